//! WebRTC: one peer connection without input and output, and what it is made of.
//!
//! [`peer::Peer`] is fed datagrams and times, and gives datagrams, a deadline and events. It finds
//! its way by ICE ([`ice`], RFC 8445), agrees on keys by DTLS ([`dtls`], RFC 5764) and keeps the
//! secrets of media ([`srtp`], RFC 3711). What both sides agree on beforehand is [`sdp`]; what they
//! tell each other of media while it flows is [`feedback`].

pub mod certificate;
mod clock;
pub mod dtls;
pub mod feedback;
pub mod fingerprint;
pub mod ice;
pub mod peer;
pub mod sdp;
pub mod srtp;
