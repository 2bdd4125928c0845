//! Identifiers by which the parts of a worker refer to each other's objects.

use mio::Token;
use session::ChannelId;

/// Channel of an accepted connection, or of a peer accepted by an endpoint.
pub(super) const ACCEPTED: ChannelId = ChannelId(0);

/// Place of a runner among those of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunnerPlace {
    pub(crate) number: u32,
    /// Number of runners.
    pub(crate) runners: u32,
}

impl RunnerPlace {
    /// The only runner of a run.
    pub(crate) const ALONE: RunnerPlace = RunnerPlace {
        number: 0,
        runners: 1,
    };
}

/// Numbers of a worker's clients, which are unique in the run without coordination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientIds {
    next: u64,
    step: u64,
}

impl ClientIds {
    /// Numbers of worker `worker` of `workers` of a runner.
    pub(crate) fn new(place: RunnerPlace, worker: u32, workers: usize) -> ClientIds {
        let runners = u64::from(place.runners);
        ClientIds {
            next: u64::from(place.number) + u64::from(worker) * runners,
            step: workers as u64 * runners,
        }
    }

    pub(super) fn take(&mut self) -> u64 {
        let id = self.next;
        self.next += self.step;
        id
    }
}

/// Identifies a session for the lifetime of the worker. `index` may be reused; `serial` is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SessionKey {
    pub(super) index: usize,
    pub(super) serial: u64,
}

impl SessionKey {
    /// Refers to no session.
    pub(super) const NONE: SessionKey = SessionKey {
        index: usize::MAX,
        serial: 0,
    };

    pub(super) fn channel(self, channel: ChannelId) -> ChannelKey {
        let session = self;
        ChannelKey { session, channel }
    }
}

/// A channel of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChannelKey {
    pub(super) session: SessionKey,
    pub(super) channel: ChannelId,
}

/// Sender of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowSender {
    Pacer(Lease),
    /// The worker's loop. The index is that of the flow among the active ones.
    Loop(usize),
}

/// Identifies a flow that was lent to the pacer. `index` may be reused; `serial` is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) index: usize,
    pub(super) serial: u64,
}

/// Identifies a socket of a worker, by its index among the sockets of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum SocketId {
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

impl SocketId {
    /// A token that belongs to no socket.
    pub(super) const NONE: usize = KINDS - 2;

    /// One socket of a pair.
    pub(super) fn of_pair(place: usize, shared: bool) -> SocketId {
        match shared {
            true => SocketId::Shared(place),
            false => SocketId::Pair(place),
        }
    }

    /// Returns the poll token of the socket.
    pub(super) fn token(self) -> Token {
        let (kind, place) = match self {
            SocketId::Pair(place) => (0, place),
            SocketId::Shared(place) => (1, place),
            SocketId::Group(place) => (2, place),
            SocketId::Single(place) => (3, place),
            SocketId::Listener(place) => (4, place),
            SocketId::Connection(place) => (5, place),
        };
        Token(place * KINDS + kind)
    }

    /// Returns the socket of a poll token, or `None` if the token is not a socket's.
    pub(super) fn from_token(Token(token): Token) -> Option<SocketId> {
        let place = token / KINDS;
        match token % KINDS {
            0 => Some(SocketId::Pair(place)),
            1 => Some(SocketId::Shared(place)),
            2 => Some(SocketId::Group(place)),
            3 => Some(SocketId::Single(place)),
            4 => Some(SocketId::Listener(place)),
            5 => Some(SocketId::Connection(place)),
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
            SocketId::Pair,
            SocketId::Shared,
            SocketId::Group,
            SocketId::Single,
            SocketId::Listener,
            SocketId::Connection,
        ];
        for (kind, place) in kinds.into_iter().zip([0, 1, 7, 8, 9, 1 << 20]) {
            assert_eq!(SocketId::from_token(kind(place).token()), Some(kind(place)));
        }
        for token in [usize::MAX, usize::MAX - 1, SocketId::NONE] {
            assert_eq!(SocketId::from_token(Token(token)), None);
        }
    }
}
