//! The times at which the thread of a link looks for packets.
//!
//! With few packets it is exact: each packet wakes it, and it busy-waits just before one leaves.
//! Each wake-up takes the processor from the server under test, which may have no other one. On two
//! cores, 18,000 packets a second took three quarters of a processor. So with more packets, the
//! thread only looks at intervals.

use std::time::Duration;

use measure::Time;

use super::direction::Arrival;

/// Time before the deadline at which the thread wakes and busy-waits. A wake-up takes some 30 µs.
const AWAKE_BEFORE: Duration = Duration::from_micros(40);

/// Interval at which the thread looks if there are many packets.
const INTERVAL: Duration = Duration::from_micros(200);

/// Period over which packets and busy time are counted.
const PERIOD: Duration = Duration::from_millis(100);

/// Maximum number of packets that enter or leave in a period, up to which the thread is exact on a
/// small machine: 1,250 packets a second that go through. Busy-waiting takes a tenth of a processor
/// then.
const PACKETS_MAX: usize = 250;

/// Number of processors from which the thread is exact with any number of packets.
const MANY_PROCESSORS: usize = 4;

/// Maximum busy share at which a real-time thread still busy-waits. A busier one may be stopped by
/// the kernel for 50 ms of each second (sched(7), `sched_rt_runtime_us`).
const BUSY_SHARE_MAX: f64 = 0.85;

/// If the thread wakes later than planned by more than this, it counts as delayed. Half of the
/// lateness that makes a measurement invalid.
const DELAYED_MIN: Duration = Duration::from_micros(500);

/// Next action of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Look for packets at once.
    Busy,
    /// Sleep for this duration, or until a packet arrives.
    ForPacket(Duration),
    /// Sleep for this duration, even if packets arrive.
    Through(Duration),
}

#[derive(Debug)]
pub(super) struct Pace {
    has_spare_processors: bool,
    /// Start of the current period.
    since: Time,
    /// Packets and sleep in this period.
    packets: usize,
    slept: Duration,
    /// True if the thread looks at intervals.
    at_intervals: bool,
    /// True if the thread may busy-wait before a deadline.
    busy_waits: bool,
}

impl Pace {
    pub(super) fn new(now: Time, processors: usize) -> Pace {
        Pace {
            has_spare_processors: processors >= MANY_PROCESSORS,
            since: now,
            packets: 0,
            slept: Duration::ZERO,
            at_intervals: false,
            busy_waits: true,
        }
    }

    /// Records packets that entered or left until `now`, and decides how the thread goes on.
    pub(super) fn packets(&mut self, now: Time, count: usize) {
        self.packets += count;
        let counted = now.since(self.since);
        if counted < PERIOD {
            return;
        }
        let asleep = self.slept.as_secs_f64() / counted.as_secs_f64();
        self.busy_waits = 1.0 - asleep <= BUSY_SHARE_MAX;
        let periods = counted.as_secs_f64() / PERIOD.as_secs_f64();
        self.at_intervals =
            !self.has_spare_processors && self.packets as f64 > PACKETS_MAX as f64 * periods;
        self.since = now;
        self.packets = 0;
        self.slept = Duration::ZERO;
    }

    /// False if the thread looks at intervals.
    pub(super) fn is_exact(&self) -> bool {
        !self.at_intervals
    }

    /// Decides what to do until a deadline in `wait`.
    pub(super) fn next(&self, wait: Duration) -> Wait {
        if self.at_intervals {
            return Wait::Through(INTERVAL);
        }
        let early = match self.busy_waits {
            true => AWAKE_BEFORE,
            false => Duration::ZERO,
        };
        match wait.checked_sub(early) {
            None | Some(Duration::ZERO) => Wait::Busy,
            Some(wait) => Wait::ForPacket(wait),
        }
    }

    /// Records a sleep.
    pub(super) fn slept(&mut self, from: Time, until: Time) {
        self.slept += until.since(from);
    }
}

/// The last sleep of the thread.
#[derive(Debug)]
pub(super) struct Sleep {
    /// Time at which the thread last began to look for packets: those that it finds now came later.
    looked: Time,
    from: Time,
    until: Time,
    /// True if packets that arrived did not wake the thread.
    is_deaf: bool,
}

impl Sleep {
    pub(super) fn none(now: Time) -> Sleep {
        Sleep {
            looked: now,
            from: now,
            until: now,
            is_deaf: false,
        }
    }

    pub(super) fn of(wait: Wait, looked: Time, now: Time) -> Sleep {
        let time = match wait {
            Wait::Busy => Duration::ZERO,
            Wait::ForPacket(time) | Wait::Through(time) => time,
        };
        Sleep {
            looked,
            from: now,
            until: now + time,
            is_deaf: matches!(wait, Wait::Through(_)),
        }
    }

    /// Time by which a packet may leave early. After a sleep in which the thread was deaf, a
    /// packet leaves at the nearest time at which the thread looks, so the mean delay is right.
    pub(super) fn early(&self, now: Time) -> Duration {
        match self.is_deaf {
            true => (now.since(self.looked) / 2).min(INTERVAL),
            false => Duration::ZERO,
        }
    }

    /// Arrival of the packets that wait to be read. `None` if they arrive only now.
    pub(super) fn arrival(&self, now: Time) -> Option<Arrival> {
        let late = now.since(self.until);
        if late > DELAYED_MIN {
            // The arrival times of packets in this period are unknown. The record assumes the
            // worst case, that all arrived at its beginning.
            let since = if self.is_deaf {
                self.looked
            } else {
                self.until
            };
            let waited = now.since(since);
            return Some(Arrival {
                at: None,
                waited,
                unsure: Duration::ZERO,
            });
        }
        self.is_deaf.then(|| {
            let unsure = now.since(self.looked) / 2;
            Arrival {
                // Packets that were read before the sleep did not come later.
                at: Some((self.looked + unsure).max(self.from)),
                waited: Duration::ZERO,
                unsure,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::from_start(Duration::from_micros(micros))
    }

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    const SLEEP: Wait = Wait::ForPacket(micros(60));

    #[test]
    fn thread_busy_waits_before_deadlines_unless_overloaded() {
        let mut pace = Pace::new(at(0), 4);
        assert_eq!(pace.next(micros(100)), SLEEP);
        assert_eq!(pace.next(micros(40)), Wait::Busy);
        // Asleep for 5 of 100 ms.
        pace.slept(at(95_000), at(100_000));
        pace.packets(at(100_000), 1_000_000);
        assert_eq!(pace.next(micros(100)), Wait::ForPacket(micros(100)));
        assert_eq!(pace.next(Duration::ZERO), Wait::Busy);
        // Asleep for 50 of 100 ms.
        pace.slept(at(150_000), at(200_000));
        pace.packets(at(200_000), 0);
        assert_eq!(pace.next(micros(100)), SLEEP);
    }

    #[test]
    fn thread_of_a_small_machine_looks_at_intervals_while_there_are_many_packets() {
        let mut pace = Pace::new(at(0), 2);
        let mut now = 0;
        for (packets, length, expected) in [
            (250, 100_000, SLEEP),
            // Without any sleep.
            (251, 100_000, Wait::Through(INTERVAL)),
            // A longer period, because nothing was there for the thread to do.
            (600, 200_000, Wait::Through(INTERVAL)),
            (400, 200_000, SLEEP),
        ] {
            if packets != 251 {
                pace.slept(at(now), at(now + length / 2));
            }
            now += length;
            pace.packets(at(now - 1), packets - 1);
            pace.packets(at(now), 1);
            assert_eq!(pace.next(micros(100)), expected, "{packets}");
        }
    }

    fn arrival(sleep: &Sleep, now: u64) -> Option<(Option<Time>, u128, u128)> {
        let found = sleep.arrival(at(now))?;
        Some((found.at, found.waited.as_micros(), found.unsure.as_micros()))
    }

    #[test]
    fn packets_that_wake_the_thread_arrive_when_they_are_read() {
        let sleep = Sleep::of(Wait::ForPacket(micros(1000)), at(0), at(10));
        assert_eq!(arrival(&sleep, 300), None);
        assert_eq!(arrival(&sleep, 1510), None);
        assert_eq!(sleep.early(at(1010)), Duration::ZERO);
        // The thread could not run: they may have come when it planned to wake.
        assert_eq!(arrival(&sleep, 1511), Some((None, 501, 0)));
        assert_eq!(arrival(&Sleep::none(at(0)), 500), None);
    }

    #[test]
    fn packets_of_a_deaf_sleep_arrive_in_its_middle() {
        let sleep = Sleep::of(Wait::Through(micros(200)), at(0), at(40));
        assert_eq!(arrival(&sleep, 260), Some((Some(at(130)), 0, 130)));
        assert_eq!(sleep.early(at(260)), micros(130));
        // Not before the packets that were read last.
        let sleep = Sleep::of(Wait::Through(micros(200)), at(0), at(400));
        assert_eq!(arrival(&sleep, 610), Some((Some(at(400)), 0, 305)));
        assert_eq!(sleep.early(at(610)), INTERVAL);
        // Much too late: the worst case.
        assert_eq!(arrival(&sleep, 1101), Some((None, 1101, 0)));
    }
}
