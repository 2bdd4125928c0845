//! The windows of a worker, and the heartbeats by which it finds out how late its loop is.

use std::time::Duration;

use measure::{Recorder, Time, tester};

use super::timers::beat_at;

/// How often the loop is woken for nothing but to see how late it is.
///
/// Waking an idle core costs more than the work it then does: 42 µs of the thread's processor time
/// a wake-up every 10 ms, and 22 every millisecond, of a loop that does nothing else (a virtual
/// machine, Linux 6.18). With each turn of reading connections one falls together.
pub(super) const HEARTBEAT: Duration = Duration::from_millis(40);

/// The length of a window.
pub(crate) const WINDOW: Duration = Duration::from_secs(1);

/// Which window runs, and when the next heartbeat comes.
pub(super) struct Windows {
    index: u64,
    begins: Time,
    heartbeat: Time,
    /// Time between the end of a window and its close.
    grace: Duration,
}

impl Windows {
    /// The first window, of a loop that begins now. Packets come into sight up to `grace` after
    /// they arrive, so windows close that much after their end.
    pub(super) fn new(now: Time, grace: Duration) -> Windows {
        // A worker that sets to work late must not look as if its loop were late.
        let soonest = now + Duration::from_nanos(1);
        Windows {
            index: 0,
            begins: Time::ZERO,
            heartbeat: beat_at(Time::ZERO, HEARTBEAT, soonest),
            grace,
        }
    }

    pub(super) fn index(&self) -> u64 {
        self.index
    }

    pub(super) fn begins(&self) -> Time {
        self.begins
    }

    /// When the running window ends. A loop that is late reads what came after that before it is
    /// handed over: packets of media count by when they came.
    pub(super) fn ends(&self) -> Time {
        self.begins + WINDOW
    }

    /// Time when the running window closes.
    pub(super) fn closes(&self) -> Time {
        self.ends() + self.grace
    }

    /// Lets windows close at their end from now on.
    pub(super) fn close_at_their_end(&mut self) {
        self.grace = Duration::ZERO;
    }

    /// When the next heartbeat comes.
    pub(super) fn heartbeat(&self) -> Time {
        self.heartbeat
    }

    /// Records how late each heartbeat comes that was due within the running window: a loop that
    /// stood still for a second was late 25 times, not once. Returns the end of the window if it
    /// closes now.
    pub(super) fn beat(&mut self, now: Time, recorder: &mut Recorder) -> Option<Time> {
        let end = self.ends();
        while self.heartbeat <= now.min(end) {
            let lag = now.since(self.heartbeat);
            recorder.record(tester::LAG, lag.as_nanos() as u64);
            self.heartbeat += HEARTBEAT;
        }
        (now >= self.closes()).then_some(end)
    }

    /// The next window begins.
    pub(super) fn advance(&mut self, begins: Time) {
        self.index += 1;
        self.begins = begins;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn lags(recorder: &mut Recorder) -> u64 {
        let window = recorder.take_window();
        window
            .histograms
            .get(&tester::LAG)
            .map_or(0, |lag| lag.count())
    }

    #[test]
    fn a_loop_that_stood_still_was_late_with_each_heartbeat() {
        let mut recorder = Recorder::new(tester::TESTER_CATALOGUE);
        let mut windows = Windows::new(at(30), Duration::ZERO);
        assert_eq!(windows.heartbeat(), at(40));
        assert_eq!(windows.beat(at(1050), &mut recorder), Some(at(1000)));
        assert_eq!(lags(&mut recorder), 25, "those of this window alone");
        windows.advance(at(1000));
        assert_eq!((windows.index(), windows.ends()), (1, at(2000)));
        assert_eq!(windows.beat(at(1050), &mut recorder), None);
        assert_eq!(lags(&mut recorder), 1);
        assert_eq!(windows.heartbeat(), at(1080));
    }

    #[test]
    fn a_worker_that_begins_late_is_not_late() {
        let mut recorder = Recorder::new(tester::TESTER_CATALOGUE);
        let mut windows = Windows::new(at(500), Duration::ZERO);
        assert_eq!(windows.beat(at(500), &mut recorder), None);
        assert_eq!(lags(&mut recorder), 0);
    }

    #[test]
    fn window_closes_after_what_came_in_it_is_in_sight() {
        let mut recorder = Recorder::new(tester::TESTER_CATALOGUE);
        let mut windows = Windows::new(at(0), Duration::from_millis(20));
        assert_eq!(windows.beat(at(1019), &mut recorder), None);
        assert_eq!(lags(&mut recorder), 25, "no heartbeat is recorded twice");
        assert_eq!((windows.ends(), windows.closes()), (at(1000), at(1020)));
        assert_eq!(windows.beat(at(1020), &mut recorder), Some(at(1000)));
        assert_eq!(lags(&mut recorder), 0);
        windows.advance(at(1000));
        assert_eq!(windows.beat(at(2010), &mut recorder), None);
        windows.close_at_their_end();
        assert_eq!(windows.beat(at(2010), &mut recorder), Some(at(2000)));
    }
}
