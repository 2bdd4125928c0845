//! Network I/O: sockets with kernel timestamps, batches, TLS, packet rings, ports, timers and the
//! clock.
//!
//! This is the only crate that may call the kernel directly, and the only one with `unsafe` code.
//! The modules with `unsafe` code are [`batch`] (batched datagram I/O), [`timed_read`] (reads with
//! arrival times), [`options`] (socket options that no safe crate offers), [`descriptors`],
//! [`allocator`], [`multicast`], [`namespace`], [`thread`] (real-time priority, and the clocks of
//! other threads), [`mod@prefetch`], [`tun`], and [`ring`] (memory shared with the kernel).

pub mod allocator;
pub mod arrival_times;
pub mod batch;
pub mod capability;
pub mod clock;
pub mod connect;
pub mod descriptors;
pub mod multicast;
pub mod namespace;
pub mod options;
pub mod port_claim;
pub mod ports;
pub mod prefetch;
pub mod ring;
pub mod thread;
pub mod timed_read;
pub mod timer;
#[cfg(not(fuzzing))]
pub mod tls;
pub mod tun;
pub mod waker;

pub use batch::{ReceiveBatch, SendBatch};
pub use clock::Clock;
pub use connect::ConnectPorts;
pub use namespace::Namespace;
pub use port_claim::PortClaim;
pub use ports::PortRange;
pub use prefetch::prefetch;
pub use ring::{PacketRing, RingSettings};
pub use timer::Timer;
pub use tun::Tun;
pub use waker::Waker;
