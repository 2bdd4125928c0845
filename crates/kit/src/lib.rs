//! Code that several protocols share: media, its formats and receivers, metrics, URLs, HTTP,
//! authentication, and the type that declares a protocol.
//!
//! Like the protocols, the crate is sans-IO: see [`session`]. It depends on no protocol.

pub mod auth;
pub mod awaiting_publisher;
pub mod browser;
pub mod calibration;
pub mod clients;
pub mod connect_failure;
pub mod descriptor;
pub mod duration_range;
pub mod failure;
pub mod faults;
pub mod http1;
pub mod keys;
pub mod lifecycle;
pub mod media;
pub mod mediagen;
pub mod metrics;
pub mod options;
pub mod publication;
pub mod published_streams;
pub mod redirect_policy;
pub mod reference;
pub mod registry;
pub mod remote_receiver;
pub mod server_counters;
pub mod source;
pub mod summary;
pub mod url;
pub mod viewer;
pub mod websocket;
pub mod zapping;
