//! The names by which the parts of a worker know each other's objects.

use mio::Token;
use protocol::session::ChannelId;

/// The channel of an accepted connection, or of a peer that an endpoint accepted.
pub(super) const ACCEPTED: ChannelId = ChannelId(0);

/// Names a session for as long as the worker lives: its place may be used again, its serial number
/// not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SessionKey {
    pub(super) place: usize,
    pub(super) serial: u64,
}

impl SessionKey {
    /// No session.
    pub(super) const NOBODY: SessionKey = SessionKey {
        place: usize::MAX,
        serial: 0,
    };
}

/// Who sends a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SentBy {
    /// The pacer.
    Pacer(Lease),
    /// The worker's loop: its place among those that are active.
    Loop(usize),
}

/// Which flow a lent one is to the pacer. Its place may be used again, its serial number not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) place: usize,
    pub(super) serial: u64,
}

/// Which socket of a worker: the place among those of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Socket(usize),
    Listener(usize),
    Connection(usize),
}

/// How many kinds of sockets a token can tell apart. The last two are none: the largest tokens are
/// those of the timer and the waker.
const KINDS: usize = 8;

impl Place {
    /// What it is polled as.
    pub(super) fn token(self) -> Token {
        let (kind, place) = match self {
            Place::Socket(place) => (0, place),
            Place::Listener(place) => (4, place),
            Place::Connection(place) => (5, place),
        };
        Token(place * KINDS + kind)
    }

    /// What is polled as that; nothing where it is no socket.
    pub(super) fn of(Token(token): Token) -> Option<Place> {
        let place = token / KINDS;
        match token % KINDS {
            0 => Some(Place::Socket(place)),
            4 => Some(Place::Listener(place)),
            5 => Some(Place::Connection(place)),
            _ => None,
        }
    }
}
