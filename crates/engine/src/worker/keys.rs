//! Identifiers by which the parts of a worker refer to each other's objects.

use mio::Token;
use protocol::session::ChannelId;

/// Channel of an accepted connection, or of a peer accepted by an endpoint.
pub(super) const ACCEPTED: ChannelId = ChannelId(0);

/// Identifies a session for the lifetime of the worker. `place` may be reused; `serial` is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SessionKey {
    pub(super) place: usize,
    pub(super) serial: u64,
}

impl SessionKey {
    /// Refers to no session.
    pub(super) const NOBODY: SessionKey = SessionKey {
        place: usize::MAX,
        serial: 0,
    };
}

/// Sender of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SentBy {
    Pacer(Lease),
    /// The worker's loop. The index is that of the flow among the active ones.
    Loop(usize),
}

/// Identifies a flow that was lent to the pacer. `place` may be reused; `serial` is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) place: usize,
    pub(super) serial: u64,
}

/// Identifies a socket of a worker, by its index among the sockets of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Place {
    /// One socket of a pair of UDP sockets that belongs to one session.
    Pair(usize),
    /// One socket of a pair of UDP sockets that sessions share.
    Shared(usize),
    /// One socket of the pair of UDP sockets of a multicast group.
    Group(usize),
    Single(usize),
    Listener(usize),
    Connection(usize),
}

/// Number of socket kinds that a token can encode. The last two are unused, because the largest
/// tokens are those of the timer and the waker.
const KINDS: usize = 8;

impl Place {
    /// A token that belongs to no socket.
    pub(super) const NONE: usize = KINDS - 2;

    /// Returns the poll token of the socket.
    pub(super) fn token(self) -> Token {
        let (kind, place) = match self {
            Place::Pair(place) => (0, place),
            Place::Shared(place) => (1, place),
            Place::Group(place) => (2, place),
            Place::Single(place) => (3, place),
            Place::Listener(place) => (4, place),
            Place::Connection(place) => (5, place),
        };
        Token(place * KINDS + kind)
    }

    /// Returns the socket of a poll token, or `None` if the token is not a socket's.
    pub(super) fn of(Token(token): Token) -> Option<Place> {
        let place = token / KINDS;
        match token % KINDS {
            0 => Some(Place::Pair(place)),
            1 => Some(Place::Shared(place)),
            2 => Some(Place::Group(place)),
            3 => Some(Place::Single(place)),
            4 => Some(Place::Listener(place)),
            5 => Some(Place::Connection(place)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_identifies_one_socket_and_the_largest_none() {
        let kinds = [
            Place::Pair,
            Place::Shared,
            Place::Group,
            Place::Single,
            Place::Listener,
            Place::Connection,
        ];
        for (kind, place) in kinds.into_iter().zip([0, 1, 7, 8, 9, 1 << 20]) {
            assert_eq!(Place::of(kind(place).token()), Some(kind(place)));
        }
        for token in [usize::MAX, usize::MAX - 1, Place::NONE] {
            assert_eq!(Place::of(Token(token)), None);
        }
    }
}
