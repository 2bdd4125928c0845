//! WebRTC: what a peer connection is made of.
//!
//! The secrets of media are kept by [`srtp`] (RFC 3711).

pub mod srtp;
