//! A small protocol over UDP that shows the cost of adding a protocol: this folder, and one line of
//! the registry. It exists in tests only: those of this crate, and those of the command that are
//! built with the feature `proof`.
//!
//! A client sends a hello, and repeats it with the cookie of the server's challenge. Then the
//! server sends numbered packets. The client requests missing ones, and the server's flow
//! retransmits them, until the client gives them up. Once the server has announced the number of
//! packets and none is missing, the client says goodbye.

mod client;
mod codec;
pub mod config;
mod descriptor;
mod endpoint;
pub mod failure;
pub mod metrics;
mod receiver;
mod reference;
mod sender;
mod server;
#[cfg(test)]
mod tests;

pub use descriptor::PROTOCOL;
