//! Batched datagram I/O: `recvmmsg` and `sendmmsg`, with control messages for arrival times and the
//! number of dropped datagrams.
//!
//! Both batches own arrays of kernel structures that point into each other. The `unsafe` blocks
//! rely on these invariants: the arrays are allocated once at full size and are neither grown nor
//! moved during a system call; every pointer passed to the kernel points into one of them and comes
//! with the length of its target.

mod gso;
mod receive;
mod send;

pub use gso::{GsoSender, SendSummary};
pub(crate) use receive::read_control;
pub use receive::{ReceiveBatch, ReceiveSummary, ReceivedDatagram};
pub use send::{Address, SEND_COUNT, SendBatch};
