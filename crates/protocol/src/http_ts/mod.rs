//! MPEG transport streams over HTTP, as relays of multicast and other servers of live television
//! send them: a GET, and an answer that does not end.

pub mod client;
pub mod config;
mod descriptor;
pub mod failure;
pub mod metrics;
pub mod relay;
mod summary;

pub use descriptor::PROTOCOL;
