//! Settings and events of an allocation.

use std::net::SocketAddr;
use std::time::Duration;

use crate::failure::Failure;

/// Settings of an allocation.
#[derive(Clone, Debug)]
pub struct TurnSettings {
    pub user: String,
    pub password: String,
    /// True if the server is reached over TCP or TLS: requests are then not retransmitted, and
    /// channel data is padded (RFC 8656, 12.5).
    pub reliable: bool,
    /// True for an IPv6 relayed address, false for IPv4.
    pub ipv6: bool,
    /// Time limit of each request.
    pub timeout: Duration,
}

/// Event of an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnEvent {
    /// The relayed address is allocated. Reported once.
    Allocated {
        /// Address that other peers send to, and that they see as the source.
        relayed: SocketAddr,
    },
    /// A channel is bound: media for the peer can leave as channel data. Reported after each
    /// request for it.
    Bound {
        peer: SocketAddr,
        /// Channel number, which never changes.
        channel: u16,
    },
    /// The allocation failed: there is no relayed address, or no longer one. Reported once.
    Failed(TurnFailure),
}

/// Reason of a failure, one of `Failure::Turn...`, with the server's error, or the request that it
/// did not answer.
pub type TurnFailure = (Failure, String);

/// Result of handling bytes from the server.
#[derive(Debug, PartialEq, Eq)]
pub enum TurnReceived<'a> {
    /// A response, fully handled.
    Handled,
    /// A datagram from a peer.
    Data {
        /// Sender of the datagram.
        peer: SocketAddr,
        bytes: &'a [u8],
    },
    /// Ignored: malformed, not authentic, or not the answer to a request.
    Dropped,
}
