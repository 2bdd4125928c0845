//! ICE (RFC 8445): finds a path to the other peer, and renews that peer's consent (RFC 7675).
//!
//! The agent is from the crate `is`. The run's clock drives it, and its state is bounded here.

mod addressed;
mod agent;
mod credentials;
mod integrity;
mod remote;

pub use addressed::IceCheck;
pub use agent::{Ice, IceEvent, IceSettings, StunDropped};
pub use credentials::Credentials;
#[cfg(test)]
pub(super) use integrity::MessageIntegrity;
