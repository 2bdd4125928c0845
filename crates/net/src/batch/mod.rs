//! Datagrams, many at a time: `recvmmsg` and `sendmmsg` with the control messages that tell when
//! each arrived and how many were dropped.
//!
//! Both batches own arrays of kernel structures that point into each other. Invariants that the
//! `unsafe` blocks rest on: the arrays are allocated once at full size and never grown or moved
//! while a system call runs; every pointer handed to the kernel points into one of them, with that
//! place's own length.

mod receive;
mod segments;
mod send;

pub use receive::{Datagram, Filled, ReceiveBatch};
pub use segments::{SegmentSender, Sent};
pub use send::{Address, SEND_COUNT, SendBatch};
