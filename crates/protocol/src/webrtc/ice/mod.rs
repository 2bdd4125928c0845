//! Finding a way to the other peer (ICE, RFC 8445), and knowing that it is still there and still
//! wants to hear (RFC 7675).
//!
//! The agent is of the crate `is`. It is driven by the run's clock; what it keeps is bounded here.

mod addressed;
mod agent;
mod credentials;
mod integrity;
mod remote;

pub use addressed::Check;
pub use agent::{Ice, IceEvent, IceSettings, StunDropped};
pub use credentials::Credentials;
#[cfg(test)]
pub(super) use integrity::MessageIntegrity;
