//! Media that goes elsewhere than the signalling: to another address of this machine, or to another
//! machine where `streamgauge receive` counts it.
//!
//! * `config`: the keys of a scenario;
//! * [`messages`]: what a client and its receiver say to each other;
//! * `proof`: how a client shows that it may ask;
//! * `link`: the client's side;
//! * `receiver`: the receiver's side, a session for each client.

mod config;
mod link;
pub mod messages;
mod proof;
mod receiver;
#[cfg(test)]
mod tests;

pub use crate::media::rtp::NEEDS;
pub use config::{MediaConfig, Ports};
pub use link::{Heard, Link};
pub use proof::{Secret, challenge_of, proof};
pub use receiver::{PROOF_WITHIN, Receiver, Terms};
