//! The wire: sockets with the kernel's timestamps, batches, ports, the clock.
//!
//! The only crate that may speak to the kernel directly, and the only one with `unsafe` in it: in
//! [`batch`], where datagrams are received and sent many at a time, and in [`options`], where socket
//! options are set that no safe crate offers.

pub mod batch;
pub mod clock;
pub mod options;
pub mod ports;
pub mod timer;

pub use batch::{ReceiveBatch, SendBatch};
pub use clock::Clock;
pub use ports::PortRange;
pub use timer::Timer;
