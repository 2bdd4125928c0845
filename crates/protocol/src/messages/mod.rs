//! Short messages over TCP, TLS, WebSockets and Unix sockets: as chats, games and telemetry send
//! them.
//!
//! One connection is one client. Its session makes the connection, exchanges what has to come
//! first, and then hands the connection over as a [`caller::Caller`]: the worker sends and reads
//! messages on it without asking the session for each.

pub mod caller;
pub mod client;
pub mod config;
mod descriptor;
pub mod failure;
pub mod frame;
pub mod metrics;
mod options;
pub mod server;
mod summary;
pub mod template;
pub mod url;

pub use descriptor::PROTOCOL;
