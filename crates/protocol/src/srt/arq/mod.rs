//! The transmission of media with retransmission within a latency (SRT, 4): live mode, and
//! of messages, all of which are to come.
//!
//! * [`receiver`]: what has come, what is missing, what to say of it; `gaps` are what is missing,
//!   `tsbpd` tells when packets are due, `playout` holds them until then;
//! * [`sender`]: what was sent and may be asked for again; it is spaced as the bandwidth allows;
//! * [`liveness`]: keepalives, and a peer that is gone;
//! * [`flow`] and [`message_flow`]: senders as the worker's pacer drives them.

pub mod flow;
mod gaps;
pub mod liveness;
pub mod message_flow;
mod pacing;
mod playout;
pub mod receiver;
mod rtt;
pub mod sender;
pub mod statistics;
#[cfg(test)]
mod tests;
mod tsbpd;

pub use tsbpd::TsbpdConfig;
