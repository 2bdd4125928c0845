//! TURN (RFC 8656): media through a relay server.
//!
//! [`Allocation`] is the client side of one relayed address. It does no I/O. Bytes from the TURN
//! server go in, bytes for it come out. Datagrams from other peers are unwrapped, and datagrams to
//! them are wrapped.

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
pub use frames::{FrameSplitter, InvalidFrame};

#[cfg(test)]
mod tests;
