//! Transmission of media with retransmission within a latency (live mode; SRT, 4), and of messages,
//! every one of which must arrive (message mode).
//!
//! * [`receiver`]: arrived and missing packets, and the control packets about them. `gaps` holds
//!   the missing packets, and `tsbpd` computes due times;
//! * [`sender`]: packets that may be requested again, spaced by the bandwidth;
//! * [`liveness`]: keep-alives, and detection of a lost peer;
//! * [`flow`]: senders driven by the worker's pacer.

pub mod flow;
mod gaps;
pub mod liveness;
pub mod message_source;
mod pacing;
pub mod receiver;
mod rtt;
pub mod sender;
pub mod statistics;
#[cfg(test)]
mod tests;
mod tsbpd;

pub use tsbpd::TsbpdConfig;
