//! Media with a destination other than the origin of the signalling: another address of this
//! machine, or another machine where `streamgauge receive` counts it.
//!
//! * `config`: keys of a scenario
//! * [`messages`]: messages between a client and its receiver
//! * `proof`: authentication of a client
//! * `link`: client side
//! * `receiver`: receiver side, one session for each client

mod config;
mod link;
pub mod messages;
mod proof;
mod receiver;
#[cfg(test)]
mod tests;

pub use crate::media::rtp::READ_NEEDS;
pub use config::{MediaConfig, ReceiverPorts};
pub use link::{Link, ReceiverEvent};
pub use proof::{Secret, challenge_of, proof};
pub use receiver::{PROOF_TIMEOUT, Receiver, Terms};
