//! Protocols of media servers, without I/O.
//!
//! The crate is sans-IO: bytes and time go in; transmissions, channel requests, events and the next
//! deadline come out. Its manifest has no dependency that could do I/O or read a clock.
//!
//! * [`session`] is the contract between a protocol and the engine that runs it.
//! * [`media`] holds what protocols share.
//! * Each protocol is one folder. Its [`descriptor::Protocol`] declares the protocol, and one line
//!   of [`registry`] lists it.

pub mod auth;
pub mod awaiting_publisher;
pub mod browser;
pub mod calibration;
pub mod connect_failure;
pub mod descriptor;
mod duration_range;
mod failure;
pub mod http1;
pub mod http_ts;
pub mod media;
pub mod messages;
pub mod metrics;
pub mod options;
#[cfg(any(test, feature = "proof"))]
pub mod proof;
mod publication;
mod published_streams;
pub mod redirect_policy;
pub mod reference;
pub mod registry;
pub mod remote_receiver;
pub mod rtmp;
pub mod rtsp;
pub mod scheme_help;
pub mod seeds;
pub mod server_counters;
pub mod session;
pub mod source;
pub mod srt;
mod summary;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tls;
pub mod url;
pub mod viewer;
pub mod webrtc;
pub mod websocket;
pub mod zapping;
