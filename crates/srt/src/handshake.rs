//! Establishment of a connection (SRT, 4.3): a caller and a listener, or two ends that call each
//! other (rendezvous).
//!
//! The inputs are datagrams and times; the outputs are datagrams, the next deadline and one
//! outcome.

mod caller;
mod conclusion;
mod failure;
mod listener;
mod negotiated;
mod rendezvous;
mod settings;
#[cfg(test)]
mod tests;

pub use caller::Caller;
pub use failure::HandshakeFailure;
pub use listener::{
    ConclusionRepeater, ConnectionRequest, Listener, ListenerConfig, ListenerResult,
};
pub use negotiated::{Negotiated, Security};
pub use rendezvous::Rendezvous;
pub use settings::{HandshakeSettings, TransmissionType};
