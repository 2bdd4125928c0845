//! What an allocation is told, and what it tells.

use std::net::SocketAddr;
use std::time::Duration;

/// How an allocation is to be.
#[derive(Clone, Debug)]
pub struct TurnSettings {
    /// The user's name.
    pub user: String,
    /// The password.
    pub password: String,
    /// Whether the server is reached over a connection: nothing is sent twice then, and channel data
    /// is padded (RFC 8656, 12.5).
    pub reliable: bool,
    /// Whether the relayed address is one of IPv6.
    pub ipv6: bool,
    /// How long each request may take.
    pub timeout: Duration,
}

/// Something has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnEvent {
    /// There is a relayed address. Said once.
    Allocated {
        /// Other peers send to it, and see it as what sends.
        relayed: SocketAddr,
    },
    /// Media for a peer can leave as channel data. Said whenever that was asked for.
    Bound {
        /// The peer.
        peer: SocketAddr,
        /// The channel's number, which stays.
        channel: u16,
    },
    /// It is over. Said once.
    Failed(TurnFailure),
}

/// Why there is no relayed address, or no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnFailure {
    /// The server refused, in words.
    Refused(String),
    /// The server does not take name and password.
    Unauthorized(String),
    /// The server did not answer that request in time.
    TimedOut(String),
    /// There was one, and the server did not renew it.
    Lost(String),
}

/// What came of the server.
#[derive(Debug, PartialEq, Eq)]
pub enum TurnReceived<'a> {
    /// An answer; it is dealt with.
    Handled,
    /// A datagram of a peer's.
    Data {
        /// Who sent it.
        peer: SocketAddr,
        /// What.
        bytes: &'a [u8],
    },
    /// Nothing was made of it: it is malformed, not authentic, or answers nothing.
    Dropped,
}

impl TurnFailure {
    /// The server's word, or what it did not do.
    pub fn text(&self) -> &str {
        match self {
            TurnFailure::Refused(text)
            | TurnFailure::Unauthorized(text)
            | TurnFailure::TimedOut(text)
            | TurnFailure::Lost(text) => text,
        }
    }
}
