//! A small protocol over UDP that shows what a protocol costs: this folder, and one line of the
//! registry. It is in tests alone: those of this crate, and those of the command that are built
//! with the feature `proof`.
//!
//! A client says hello, and again with the cookie of the server's challenge. Then numbered media
//! comes. The client asks for numbers that are missing, and the server's flow sends them again,
//! until the client gives a number up. When the server has said how many there were and none is
//! missing any more, the client says goodbye.

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
