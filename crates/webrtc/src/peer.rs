//! One peer connection: ICE, DTLS and SRTCP over one UDP socket.
//!
//! After each change, drain the datagrams to send ([`Peer::poll_transmit`]) and the events
//! ([`Peer::poll_event`]), and call again at [`Peer::deadline`]. Media does not pass through the
//! peer: once connected, it provides the SRTP openers and sealers for the code that counts and
//! sends media.

mod config;
mod connection;
mod events;
mod last_flight;

#[cfg(test)]
mod tests;

pub use config::PeerConfig;
pub use connection::{MEDIA_MARK, Peer};
pub use events::{PeerCounts, PeerEvent, PeerFailure, PeerState, Received};
