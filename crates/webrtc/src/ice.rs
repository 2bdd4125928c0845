//! ICE (RFC 8445): finds a path to the other peer, and renews that peer's consent (RFC 7675).
//!
//! The agent is from the crate `is`. The run's clock drives it, and its state is bounded here.

mod agent;
mod check;
mod credentials;
mod integrity;
mod remote;

pub use agent::{Ice, IceEvent, IceSettings, StunDropped};
pub use check::IceCheck;
pub use credentials::Credentials;
pub(super) use integrity::MessageIntegrity;
