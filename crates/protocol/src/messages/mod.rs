//! Short messages over TCP, TLS, WebSockets and Unix sockets, as in chats, games and telemetry.
//!
//! Each client has one connection. Its session opens the connection, exchanges the greeting, and
//! then hands the connection over as a [`caller::ClientExchange`]: the worker sends and reads
//! messages on it without calling the session for each.

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
