//! MPEG transport streams over HTTP, as sent by multicast relays and other servers of live
//! television: a GET request, and a response that does not end.

pub mod client;
pub mod config;
mod descriptor;
pub mod failure;
pub mod metrics;
pub mod relay;
mod summary;

pub use descriptor::PROTOCOL;
