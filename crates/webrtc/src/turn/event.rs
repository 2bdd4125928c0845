//! Settings and events of an allocation.

use std::net::SocketAddr;
use std::time::Duration;

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
    /// The allocation failed. Reported once.
    Failed(TurnFailure),
}

/// Reason why there is no relayed address, or no longer one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnFailure {
    /// The server refused; the text says why.
    Refused(String),
    /// The server rejected the user name or the password.
    Unauthorized(String),
    /// The server did not answer a request in time.
    TimedOut(String),
    /// The server did not renew the allocation or a channel.
    Lost(String),
}

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

impl TurnFailure {
    /// Returns the server's error, or the request that it did not answer.
    pub fn text(&self) -> &str {
        match self {
            TurnFailure::Refused(text)
            | TurnFailure::Unauthorized(text)
            | TurnFailure::TimedOut(text)
            | TurnFailure::Lost(text) => text,
        }
    }
}
