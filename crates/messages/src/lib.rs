//! Short messages over TCP, TLS, WebSockets and Unix sockets, as in chats, games and telemetry.
//!
//! Each client has one connection. Its session opens the connection, exchanges the greeting, and
//! then hands the connection over as a [`exchange::ClientExchange`]: the worker sends and reads
//! messages on it without calling the session for each.

pub mod client;
pub mod config;
mod descriptor;
pub mod exchange;
pub mod failure;
pub mod framing;
pub mod metrics;
mod options;
pub mod server;
mod summary;
pub mod template;
pub mod url;

pub use descriptor::PROTOCOL;
