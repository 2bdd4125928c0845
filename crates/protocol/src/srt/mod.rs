//! SRT (draft-sharabayko-srt-01): media over UDP with retransmission within a latency.
//!
//! Sections named `SRT, 3.2.4` and the like are of that draft. Where it is silent, libsrt 1.5
//! decides.

pub mod arq;
pub mod codec;
pub mod crypto;
pub mod handshake;
pub mod seq;
