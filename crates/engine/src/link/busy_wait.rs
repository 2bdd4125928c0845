//! Exact waiting: the thread sleeps, and busy-waits for the last moments.

use std::time::Duration;

use measure::Time;

/// Time before the deadline at which the thread wakes and busy-waits. A wake-up takes some 30 µs.
const AWAKE_BEFORE: Duration = Duration::from_micros(40);

/// Period over which the thread's busy time is averaged.
const COUNTED: Duration = Duration::from_millis(100);

/// Maximum busy share at which a real-time thread still busy-waits. A busier one may be stopped by
/// the kernel for 50 ms of each second (sched(7), `sched_rt_runtime_us`).
const BUSY_SHARE_MAX: f64 = 0.85;

#[derive(Debug)]
pub(super) struct BusyWait {
    /// Start of the current averaging period.
    since: Time,
    slept: Duration,
    /// True if the thread may busy-wait before a deadline.
    exact: bool,
}

impl BusyWait {
    pub(super) fn new(now: Time) -> BusyWait {
        BusyWait {
            since: now,
            slept: Duration::ZERO,
            exact: true,
        }
    }

    /// Duration of the sleep before a deadline in `wait`. `None` if there is no time to sleep.
    pub(super) fn sleep_time(&self, now: Time, wait: Duration) -> Option<Duration> {
        let early = match self.exact || now.since(self.since) >= COUNTED {
            true => AWAKE_BEFORE,
            false => Duration::ZERO,
        };
        wait.checked_sub(early).filter(|wait| !wait.is_zero())
    }

    /// Records a sleep.
    pub(super) fn waited(&mut self, from: Time, until: Time) {
        self.slept += until.since(from);
        let counted = until.since(self.since);
        if counted >= COUNTED {
            let asleep = self.slept.as_secs_f64() / counted.as_secs_f64();
            self.exact = 1.0 - asleep <= BUSY_SHARE_MAX;
            self.since = until;
            self.slept = Duration::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::from_start(Duration::from_micros(micros))
    }

    #[test]
    fn thread_busy_waits_before_deadlines_unless_overloaded() {
        let mut pace = BusyWait::new(at(0));
        let wait = Duration::from_micros(100);
        assert_eq!(
            pace.sleep_time(at(0), wait),
            Some(Duration::from_micros(60))
        );
        assert_eq!(pace.sleep_time(at(0), Duration::from_micros(40)), None);
        // Asleep for 5 of 100 ms.
        pace.waited(at(95_000), at(100_000));
        assert_eq!(pace.sleep_time(at(100_000), wait), Some(wait));
        assert_eq!(pace.sleep_time(at(100_000), Duration::ZERO), None);
        // Asleep for 50 of 100 ms.
        pace.waited(at(150_000), at(200_000));
        assert_eq!(
            pace.sleep_time(at(200_000), wait),
            Some(Duration::from_micros(60))
        );
    }
}
