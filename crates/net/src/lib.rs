//! The wire: sockets with the kernel's timestamps, batches, ports, the clock.
//!
//! The only crate that may speak to the kernel directly, and the only one with `unsafe` in it: in
//! [`batch`], where datagrams are received and sent many at a time, in [`stream`], where bytes are
//! read with their time, in [`options`], where socket options are set that no safe crate offers, in
//! [`files`], in [`multicast`], in [`namespace`], in [`thread`], where another thread's clock is
//! read, in [`mod@prefetch`], in [`tun`], and in [`ring`], where memory is shared with the kernel.

pub mod batch;
pub mod claim;
pub mod clock;
pub mod connect;
pub mod files;
pub mod memory;
pub mod multicast;
pub mod namespace;
pub mod options;
pub mod ports;
pub mod prefetch;
pub mod ring;
pub mod segments;
pub mod stream;
pub mod thread;
pub mod timer;
#[cfg(not(fuzzing))]
pub mod tls;
pub mod tun;
pub mod waker;

pub use batch::{ReceiveBatch, SendBatch};
pub use claim::Claim;
pub use clock::Clock;
pub use connect::ConnectPorts;
pub use namespace::Namespace;
pub use ports::PortRange;
pub use prefetch::prefetch;
pub use ring::{PacketRing, RingSettings};
pub use timer::Timer;
pub use tun::Tun;
pub use waker::Waker;
