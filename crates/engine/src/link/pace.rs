//! How a thread waits that must be exact: it sleeps, and is awake the last moment.

use std::time::Duration;

use measure::Time;

/// So long before it is due the thread wakes, and looks at the time over and over. Waking takes
/// some 30 µs.
const AWAKE_BEFORE: Duration = Duration::from_micros(40);

/// For so long it is counted how much of the time the thread was awake.
const COUNTED: Duration = Duration::from_millis(100);

/// A thread that goes before all others and is awake for a larger share than this of the time
/// stops being exact: the kernel stops it for 50 ms of each second (sched(7),
/// `sched_rt_runtime_us`).
const MOST_AWAKE: f64 = 0.85;

/// How a thread waits.
#[derive(Debug)]
pub(super) struct Pace {
    /// When it was begun to count.
    since: Time,
    slept: Duration,
    /// Whether there is time to be awake before something is due.
    exact: bool,
}

impl Pace {
    pub(super) fn new(now: Time) -> Pace {
        Pace {
            since: now,
            slept: Duration::ZERO,
            exact: true,
        }
    }

    /// How long to sleep, where something is due after `wait`. None: not at all.
    pub(super) fn wait(&self, now: Time, wait: Duration) -> Option<Duration> {
        let early = match self.exact || now.since(self.since) >= COUNTED {
            true => AWAKE_BEFORE,
            false => Duration::ZERO,
        };
        wait.checked_sub(early).filter(|wait| !wait.is_zero())
    }

    /// It has slept.
    pub(super) fn waited(&mut self, from: Time, until: Time) {
        self.slept += until.since(from);
        let counted = until.since(self.since);
        if counted >= COUNTED {
            let asleep = self.slept.as_secs_f64() / counted.as_secs_f64();
            self.exact = 1.0 - asleep <= MOST_AWAKE;
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
    fn it_is_awake_before_something_is_due_unless_it_is_awake_all_the_time() {
        let mut pace = Pace::new(at(0));
        let wait = Duration::from_micros(100);
        assert_eq!(pace.wait(at(0), wait), Some(Duration::from_micros(60)));
        assert_eq!(pace.wait(at(0), Duration::from_micros(40)), None);
        // 5 of 100 ms asleep.
        pace.waited(at(95_000), at(100_000));
        assert_eq!(pace.wait(at(100_000), wait), Some(wait));
        assert_eq!(pace.wait(at(100_000), Duration::ZERO), None);
        // 50 of 100 ms.
        pace.waited(at(150_000), at(200_000));
        assert_eq!(
            pace.wait(at(200_000), wait),
            Some(Duration::from_micros(60))
        );
    }
}
