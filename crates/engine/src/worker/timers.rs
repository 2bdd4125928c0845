//! What a worker has to do later.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use measure::Time;

use super::sessions::SessionKey;

/// What is to be done when a time comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// Tell a session that its deadline has come.
    Deadline(SessionKey),
    /// Tell a session to stop, because its client has stayed as long as the plan wants.
    Leave(SessionKey),
    /// End a session that was told to stop and has not.
    Cut(SessionKey),
    /// Give a connection up that does not stand yet.
    Connect {
        /// Its place among the sockets.
        socket: usize,
        /// The session it is for: the place may have been used again.
        session: SessionKey,
    },
    /// Give a closing connection up that takes nothing any more.
    Linger {
        /// Its place among the sockets.
        socket: usize,
        /// Which closing it was: the place may have been used again.
        serial: u64,
    },
}

/// Tasks by time. A task whose object is gone is found so when its time comes: nothing is taken out.
#[derive(Debug, Default)]
pub(super) struct Timers(BinaryHeap<Reverse<(Time, Task)>>);

impl Timers {
    pub(super) fn add(&mut self, at: Time, task: Task) {
        self.0.push(Reverse((at, task)));
    }

    pub(super) fn next(&self) -> Time {
        self.0.peek().map_or(Time::NEVER, |Reverse((at, _))| *at)
    }

    /// The earliest task that is due, and when it was.
    pub(super) fn due(&mut self, now: Time) -> Option<(Time, Task)> {
        (self.next() <= now)
            .then(|| self.0.pop().map(|Reverse(entry)| entry))
            .flatten()
    }
}
