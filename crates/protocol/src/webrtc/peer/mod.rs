//! One peer connection: ICE, DTLS and the protection of RTCP over one UDP socket.
//!
//! Change something, then take what is to be sent ([`Peer::poll_transmit`]), what has happened
//! ([`Peer::poll_event`]) and when to call again ([`Peer::deadline`]). Media does not go through
//! it: once connected it gives what opens and seals media to those who count and send it.

mod config;
mod connection;
mod last_flight;
mod outcome;

#[cfg(test)]
mod tests;

pub use config::PeerConfig;
pub use connection::{MEDIA_MARK, Peer};
pub use outcome::{Dropped, PeerCounts, PeerEvent, PeerFailure, PeerState, Received};
