//! TURN (RFC 8656): media by way of a server that relays it.
//!
//! [`Allocation`] is the client's side of one relayed address. It does no I/O: what comes of the
//! TURN server goes in, what is to be sent to it comes out, and between the two stand the datagrams
//! that other peers sent to the relayed address, and those that are to be sent from it.

mod allocation;
mod channel;
mod config;
mod event;
mod frames;
mod message;

pub use allocation::Allocation;
pub use channel::RelayChannel;
pub use config::{TurnConfig, TurnTransport, TurnUrl};
pub use event::{TurnEvent, TurnFailure, TurnReceived, TurnSettings};
pub use frames::{Frames, NotTurn};

#[cfg(test)]
mod tests;
