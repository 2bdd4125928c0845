//! WebRTC: peer connections without input and output, how both sides agree on them, and clients
//! that play and publish over them.
//!
//! [`peer::Peer`] is fed datagrams and times, and gives datagrams, a deadline and events. It finds
//! its way by ICE ([`ice`], RFC 8445), agrees on keys by DTLS ([`dtls`], RFC 5764) and keeps the
//! secrets of media ([`srtp`], RFC 3711). What both sides agree on beforehand is [`sdp`]; how they
//! tell it each other is [`signalling`]; what they tell of media while it flows is [`feedback`].
//! A [`client`] has all of that, and so has a reference [`server`]. Between the two there may be a
//! server that relays all ([`turn`], RFC 8656).

mod again;
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
pub mod sdp;
pub mod server;
pub mod signalling;
pub mod srtp;
mod summary;
mod tracks;
mod transport_numbers;
pub mod turn;
pub mod url;

pub use descriptor::PROTOCOL;
