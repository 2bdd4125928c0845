//! WebRTC: sans-IO peer connections, signalling, and clients that play and publish.
//!
//! [`peer::Peer`] takes datagrams and times, and returns datagrams, a deadline and events. It finds
//! a path with ICE ([`ice`], RFC 8445), negotiates keys with DTLS ([`dtls`], RFC 5764) and protects
//! RTCP and media with SRTP ([`srtp`], RFC 3711). [`sdp`] contains session descriptions,
//! [`signalling`] their exchange, and [`feedback`] the RTCP feedback on media. A [`client`]
//! combines them, and so does the reference [`server`]. A TURN server may relay all datagrams
//! between the two ([`turn`], RFC 8656).

mod calibration;
pub mod certificate;
pub mod client;
mod clock;
pub mod config;
mod descriptor;
pub mod dtls;
pub mod extension;
pub mod failure;
pub mod feedback;
pub mod fingerprint;
mod golden;
pub mod ice;
pub mod metrics;
pub mod peer;
mod retransmitter;
pub mod sdp;
pub mod server;
pub mod signalling;
pub mod srtp;
mod summary;
mod tracks;
mod transport_sequence;
pub mod turn;
pub mod url;

pub use descriptor::PROTOCOL;
