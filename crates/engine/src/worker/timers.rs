//! Timed tasks of a worker.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use measure::Time;
use session::ChannelId;

use super::ids::SessionKey;

/// A timed task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// Delivers the deadline of a session.
    Deadline(SessionKey),
    /// Stops a session because its client has stayed as long as planned.
    Leave(SessionKey),
    /// Ends a session that did not stop in time.
    Cut(SessionKey),
    /// Gives up opening a channel that is still resolving its name or connecting to any of its
    /// addresses.
    Connect {
        session: SessionKey,
        channel: ChannelId,
    },
    /// Accepts connections again after accepting failed, for example for lack of descriptors.
    Accept {
        /// Index of the listener.
        socket: usize,
    },
    /// Gives up the unfinished TLS handshake of an accepted connection.
    Handshake {
        /// Index of the connection.
        index: usize,
        /// Serial number of the handshake; the index may have been reused.
        serial: u64,
    },
    /// Gives up a closing connection whose peer does not read the rest of the queue.
    Linger {
        /// Index of the connection.
        index: usize,
        /// Serial number of the close; the index may have been reused.
        serial: u64,
    },
}

/// Minimum number of tasks before obsolete ones are swept.
const SWEEP: usize = 4096;

/// Tasks ordered by time. Obsolete tasks (the object is gone or another task has replaced them) are
/// removed when they come first, or by [`Timers::sweep`].
#[derive(Debug, Default)]
pub(super) struct Timers {
    tasks: BinaryHeap<Reverse<(Time, Task)>>,
    /// Number of tasks left by the last sweep.
    swept: usize,
}

impl Timers {
    pub(super) fn add(&mut self, at: Time, task: Task) {
        self.tasks.push(Reverse((at, task)));
    }

    /// Returns the time of the first task that is still wanted. Removes obsolete tasks before it,
    /// so that the loop does not wake up for them.
    pub(super) fn next(&mut self, is_wanted: impl Fn(Time, &Task) -> bool) -> Time {
        while let Some(Reverse((at, task))) = self.tasks.peek() {
            if is_wanted(*at, task) {
                return *at;
            }
            self.tasks.pop();
        }
        Time::NEVER
    }

    /// Removes and returns the earliest task that is due, with its time.
    pub(super) fn due(&mut self, now: Time) -> Option<(Time, Task)> {
        let Reverse((at, _)) = self.tasks.peek()?;
        (*at <= now)
            .then(|| self.tasks.pop().map(|Reverse(entry)| entry))
            .flatten()
    }

    /// Removes obsolete tasks once their total number has doubled since the last sweep: clients
    /// that fail immediately and are replaced leave tasks far in the future. The amortized cost for
    /// each added task is constant.
    pub(super) fn sweep(&mut self, is_wanted: impl Fn(Time, &Task) -> bool) {
        if self.tasks.len() < SWEEP.max(2 * self.swept) {
            return;
        }
        self.tasks
            .retain(|Reverse((at, task))| is_wanted(*at, task));
        self.swept = self.tasks.len();
    }
}

/// Returns the first beat at or after `at`, of beats that repeat with the period `every` from
/// `next` on.
pub(super) fn beat_at(next: Time, every: Duration, at: Time) -> Time {
    let every = (every.as_nanos() as u64).max(1);
    let beats = at
        .as_nanos()
        .saturating_sub(next.as_nanos())
        .div_ceil(every);
    next + Duration::from_nanos(beats.saturating_mul(every))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leave(serial: u64) -> Task {
        Task::Leave(SessionKey { index: 0, serial })
    }

    #[test]
    fn time_is_rounded_up_to_the_next_beat() {
        let time = Time::from_nanos;
        let every = Duration::from_nanos(10);
        for (at, expected) in [(0, 25), (25, 25), (26, 35), (35, 35), (44, 45)] {
            assert_eq!(beat_at(time(25), every, time(at)), time(expected), "{at}");
        }
        assert_eq!(beat_at(time(25), every, Time::NEVER), Time::NEVER);
    }

    fn all(_: Time, _: &Task) -> bool {
        true
    }

    #[test]
    fn tasks_are_due_in_order_and_not_early() {
        let mut timers = Timers::default();
        assert_eq!(timers.next(all), Time::NEVER);
        for at in [3, 1, 2] {
            timers.add(Time::from_nanos(at), leave(at));
        }
        let now = Time::from_nanos(2);
        assert_eq!(timers.due(now), Some((Time::from_nanos(1), leave(1))));
        assert_eq!(timers.due(now), Some((Time::from_nanos(2), leave(2))));
        assert_eq!(timers.due(now), None);
        assert_eq!(timers.next(all), Time::from_nanos(3));
    }

    #[test]
    fn obsolete_tasks_do_not_wake_the_loop() {
        let mut timers = Timers::default();
        for at in [3, 1, 2, 3] {
            timers.add(Time::from_nanos(at), leave(at));
        }
        let wanted = |at: Time, task: &Task| at > Time::from_nanos(1) && *task != leave(2);
        assert_eq!(timers.next(wanted), Time::from_nanos(3));
        assert_eq!(timers.tasks.len(), 2);
    }

    #[test]
    fn obsolete_tasks_do_not_accumulate() {
        let mut timers = Timers::default();
        for serial in 0..100_000 {
            timers.add(Time::from_nanos(1 << 60), leave(serial));
            timers.sweep(|_, task| *task == leave(serial) || *task == leave(7));
            assert!(timers.tasks.len() <= SWEEP);
        }
        let kept: Vec<_> = std::iter::from_fn(|| timers.due(Time::NEVER)).collect();
        assert!(kept.iter().any(|(_, task)| *task == leave(7)));
    }
}
