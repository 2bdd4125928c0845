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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Place {
    /// One of a session's own pair of UDP sockets.
    Pair(usize),
    /// One of a pair of UDP sockets that sessions share.
    Shared(usize),
    /// One of the pair of UDP sockets of a multicast group.
    Group(usize),
    /// A single UDP socket.
    Single(usize),
    Listener(usize),
    Connection(usize),
}

/// How many kinds of sockets a token can tell apart. The last two are none: the largest tokens are
/// those of the timer and the waker.
const KINDS: usize = 8;

impl Place {
    /// A token that no socket has.
    pub(super) const NONE: usize = KINDS - 2;

    /// What it is polled as.
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

    /// What is polled as that; nothing where it is no socket.
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
    fn a_token_names_one_socket_and_the_largest_name_none() {
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
