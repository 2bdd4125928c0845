//! What a worker has to do later.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use measure::Time;
use protocol::session::ChannelId;

use super::keys::SessionKey;

/// What is to be done when a time comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Task {
    /// Tell a session that its deadline has come.
    Deadline(SessionKey),
    /// Tell a session to stop, because its client has stayed as long as the plan wants.
    Leave(SessionKey),
    /// End a session that was told to stop and has not.
    Cut(SessionKey),
    /// Give a channel up that was asked for and does not stand yet, be it that its name is still
    /// looked up or that it still connects, to whichever address.
    Connect {
        /// The session it is for.
        session: SessionKey,
        /// Which channel.
        channel: ChannelId,
    },
    /// Accept connections again, after there was no descriptor left for one.
    Accept {
        /// The listener's place among the sockets.
        socket: usize,
    },
    /// Give a handshake up that an accepted connection came to no end with.
    Handshake {
        /// Its place among the sockets.
        socket: usize,
        /// Which it was: the place may have been used again.
        serial: u64,
    },
    /// Give a closing connection up that takes nothing any more.
    Linger {
        /// Its place among the sockets.
        socket: usize,
        /// Which closing it was: the place may have been used again.
        serial: u64,
    },
}

/// How many tasks there are at least before those that nobody wants any more are looked for.
const SWEEP: usize = 4096;

/// Tasks by time. A task whose object is gone, or which another has replaced, is found so when it
/// is the next, or when there have come to be many (see [`Timers::sweep`]).
#[derive(Debug, Default)]
pub(super) struct Timers {
    tasks: BinaryHeap<Reverse<(Time, Task)>>,
    /// How many were left by the last sweep.
    swept: usize,
}

impl Timers {
    pub(super) fn add(&mut self, at: Time, task: Task) {
        self.tasks.push(Reverse((at, task)));
    }

    /// When the first task comes that is still wanted. Those before it are taken out: nobody is to
    /// be woken for them.
    pub(super) fn next(&mut self, is_wanted: impl Fn(Time, &Task) -> bool) -> Time {
        while let Some(Reverse((at, task))) = self.tasks.peek() {
            if is_wanted(*at, task) {
                return *at;
            }
            self.tasks.pop();
        }
        Time::NEVER
    }

    /// The earliest task that is due, and when it was.
    pub(super) fn due(&mut self, now: Time) -> Option<(Time, Task)> {
        let Reverse((at, _)) = self.tasks.peek()?;
        (*at <= now)
            .then(|| self.tasks.pop().map(|Reverse(entry)| entry))
            .flatten()
    }

    /// Takes tasks out that are not wanted any more, once there are twice as many as were left the
    /// last time: clients that fail at once and are replaced leave tasks for times that are far
    /// away. Costs a constant a task added.
    pub(super) fn sweep(&mut self, is_wanted: impl Fn(Time, &Task) -> bool) {
        if self.tasks.len() < SWEEP.max(2 * self.swept) {
            return;
        }
        self.tasks
            .retain(|Reverse((at, task))| is_wanted(*at, task));
        self.swept = self.tasks.len();
    }
}

/// The first beat at that time or after it, of those that come `every` so often from `next` on.
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
        Task::Leave(SessionKey { place: 0, serial })
    }

    #[test]
    fn what_can_wait_comes_with_the_next_beat() {
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
    fn tasks_come_in_order_and_not_before_their_time() {
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
    fn nobody_is_woken_for_a_task_that_is_not_wanted() {
        let mut timers = Timers::default();
        for at in [3, 1, 2, 3] {
            timers.add(Time::from_nanos(at), leave(at));
        }
        let wanted = |at: Time, task: &Task| at > Time::from_nanos(1) && *task != leave(2);
        assert_eq!(timers.next(wanted), Time::from_nanos(3));
        assert_eq!(timers.tasks.len(), 2);
    }

    #[test]
    fn tasks_of_what_is_gone_do_not_pile_up() {
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
