//! RTSP 1.0 (RFC 2326): client, reference server, and the codec they share.

pub mod actions;
pub mod client;
pub mod codec;
pub mod config;
mod describe;
mod descriptor;
pub mod failure;
pub mod headers;
pub mod metrics;
pub mod server;
mod summary;
pub mod url;

pub use descriptor::PROTOCOL;
