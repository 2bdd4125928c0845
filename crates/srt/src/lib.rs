//! SRT (draft-sharabayko-srt-01): media over UDP with retransmission within a latency.
//!
//! References such as `SRT, 3.2.4` are to sections of that draft. Where the draft is silent, the
//! implementation follows libsrt 1.5.

pub mod arq;
mod calibration;
pub mod client;
pub mod codec;
pub mod config;
pub mod crypto;
mod descriptor;
pub mod failure;
pub mod handshake;
pub mod messages;
pub mod metrics;
mod reorder_buffer;
pub mod seq;
pub mod server;
pub mod source_media;
mod summary;
pub mod url;

pub use descriptor::PROTOCOL;
