//! WebRTC: what a peer connection is made of.
//!
//! The secrets of media are kept by [`srtp`] (RFC 3711). What both sides agree on beforehand is
//! [`sdp`].

pub mod fingerprint;
pub mod sdp;
pub mod srtp;
