//! RTMP 1.0 (Adobe, "RTMP Specification 1.0", 2012): clients that play and publish, and a reference
//! server.
//!
//! Section numbers such as `RTMP, 5.3.1` refer to that document.

mod calibration;
pub mod client;
pub mod codec;
pub mod config;
mod descriptor;
pub mod failure;
pub mod flow;
pub mod metrics;
pub mod server;
pub mod source;
mod summary;
pub mod url;

pub use descriptor::PROTOCOL;
