//! Measurement windows of a worker, and the heartbeats that measure the lag of its loop.

use std::time::Duration;

use measure::{Recorder, Time, tester};

use super::timers::beat_at;

/// Interval of the heartbeats, which measure how late the loop wakes up.
///
/// Waking an idle core costs more than the work that follows: 42 µs of processor time for each
/// wake-up every 10 ms, 22 µs for each wake-up every millisecond, in a loop that does nothing else
/// (virtual machine, Linux 6.18). Each turn of reading connections coincides with a heartbeat.
pub(super) const HEARTBEAT: Duration = Duration::from_millis(40);

/// Length of a window.
pub(crate) const WINDOW: Duration = Duration::from_secs(1);

/// The current window and the next heartbeat.
pub(super) struct Windows {
    pub(super) index: u64,
    pub(super) begins: Time,
    /// Time of the next heartbeat.
    pub(super) heartbeat: Time,
    /// Delay from the end of a window to its close.
    grace: Duration,
}

impl Windows {
    /// Creates the first window of a loop that starts now. Windows close `grace` after their end,
    /// because packets may become visible that long after their arrival.
    pub(super) fn new(now: Time, grace: Duration) -> Windows {
        // The start of a worker must not count as lag of its loop.
        let soonest = now + Duration::from_nanos(1);
        Windows {
            index: 0,
            begins: Time::ZERO,
            heartbeat: beat_at(Time::ZERO, HEARTBEAT, soonest),
            grace,
        }
    }

    /// Planned end of the current window. A late loop also reads packets that arrived after it;
    /// media packets are assigned to windows by arrival time.
    pub(super) fn ends(&self) -> Time {
        self.begins + WINDOW
    }

    /// Time at which the current window closes.
    pub(super) fn closes(&self) -> Time {
        self.ends() + self.grace
    }

    /// Sets the grace period to zero.
    pub(super) fn end_grace(&mut self) {
        self.grace = Duration::ZERO;
    }

    /// Records the lag of each heartbeat that was due in the current window: a loop that was
    /// blocked for a second was late 25 times, not once. Returns the end of the window if the
    /// window closes now.
    pub(super) fn beat(&mut self, now: Time, recorder: &mut Recorder) -> Option<Time> {
        let end = self.ends();
        while self.heartbeat <= now.min(end) {
            recorder.record_duration(tester::LAG, now.since(self.heartbeat));
            self.heartbeat += HEARTBEAT;
        }
        (now >= self.closes()).then_some(end)
    }

    /// Starts the next window.
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
    fn blocked_loop_is_late_for_each_heartbeat() {
        let mut recorder = Recorder::new(tester::TESTER_CATALOGUE);
        let mut windows = Windows::new(at(30), Duration::ZERO);
        assert_eq!(windows.heartbeat, at(40));
        assert_eq!(windows.beat(at(1050), &mut recorder), Some(at(1000)));
        assert_eq!(lags(&mut recorder), 25, "those of this window alone");
        windows.advance(at(1000));
        assert_eq!((windows.index, windows.ends()), (1, at(2000)));
        assert_eq!(windows.beat(at(1050), &mut recorder), None);
        assert_eq!(lags(&mut recorder), 1);
        assert_eq!(windows.heartbeat, at(1080));
    }

    #[test]
    fn sent_media_is_counted_at_a_heartbeat_before_its_window_closes() {
        for millis in [0, 1, 500, 959, 960, 961, 999, 1000, 1960, 59_990] {
            let count = kit::publication::next_count(at(millis));
            let seen = beat_at(Time::ZERO, HEARTBEAT, count);
            let second = seen.as_nanos() / WINDOW.as_nanos() as u64;
            assert_eq!(
                second,
                count.as_nanos() / WINDOW.as_nanos() as u64,
                "{millis}"
            );
        }
    }

    #[test]
    fn late_start_does_not_count_as_lag() {
        let mut recorder = Recorder::new(tester::TESTER_CATALOGUE);
        let mut windows = Windows::new(at(500), Duration::ZERO);
        assert_eq!(windows.beat(at(500), &mut recorder), None);
        assert_eq!(lags(&mut recorder), 0);
    }

    #[test]
    fn window_closes_after_the_grace_period() {
        let mut recorder = Recorder::new(tester::TESTER_CATALOGUE);
        let mut windows = Windows::new(at(0), Duration::from_millis(20));
        assert_eq!(windows.beat(at(1019), &mut recorder), None);
        assert_eq!(lags(&mut recorder), 25, "no heartbeat is recorded twice");
        assert_eq!((windows.ends(), windows.closes()), (at(1000), at(1020)));
        assert_eq!(windows.beat(at(1020), &mut recorder), Some(at(1000)));
        assert_eq!(lags(&mut recorder), 0);
        windows.advance(at(1000));
        assert_eq!(windows.beat(at(2010), &mut recorder), None);
        windows.end_grace();
        assert_eq!(windows.beat(at(2010), &mut recorder), Some(at(2000)));
    }
}
