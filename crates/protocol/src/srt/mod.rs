//! SRT (draft-sharabayko-srt-01): media over UDP with retransmission within a latency.
//!
//! Sections named `SRT, 3.2.4` and the like are of that draft. Where it is silent, libsrt 1.5
//! decides.

pub mod arq;
mod calibration;
pub mod client;
pub mod codec;
pub mod config;
pub mod crypto;
mod descriptor;
pub mod failure;
pub mod handshake;
mod in_order;
pub mod made;
pub mod messages;
pub mod metrics;
pub mod seq;
pub mod server;
mod summary;
pub mod url;

pub use descriptor::PROTOCOL;
