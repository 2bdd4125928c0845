//! Telling an outage of the path from a stream that began anew: by two clocks.

use measure::Time;

/// A packet's arrival, and its RTP timestamp.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) at: Time,
    pub(super) timestamp: u32,
}

/// What the arrival times and the RTP timestamps of two packets say of the time between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clocks {
    /// Not the same.
    Disagree,
    /// The same, as far as can be told; but it may be none at all.
    Agree,
    /// The same, and surely some.
    Advance,
}

impl Moment {
    /// Compares the time that passed by arrival and by the media's clock of `clock_rate` Hz. They
    /// agree within a second or a tenth, whichever is more. Holds over a wrap-around of the
    /// timestamp.
    pub(super) fn until(self, later: Moment, clock_rate: u32) -> Clocks {
        if clock_rate == 0 {
            return Clocks::Disagree;
        }
        let clock_rate = i128::from(clock_rate);
        let elapsed = i128::from(later.at.nanos_from(self.at)) * clock_rate / 1_000_000_000;
        let stamped = later.timestamp.wrapping_sub(self.timestamp);
        // The difference of both, in the half of the circle where it is least.
        let apart = i128::from(stamped.wrapping_sub(elapsed as u32) as i32);
        // Of a time so long that any timestamp would do, nothing can be told.
        let tolerance = clock_rate.max(elapsed / 10).min(1 << 30);
        if apart.abs() > tolerance {
            Clocks::Disagree
        } else if elapsed + apart > tolerance {
            Clocks::Advance
        } else {
            Clocks::Agree
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn between(elapsed_ms: u64, first: u32, ticks: i64) -> Clocks {
        let begin = Time::from_start(Duration::from_secs(5));
        let before = Moment {
            at: begin,
            timestamp: first,
        };
        let later = Moment {
            at: begin + Duration::from_millis(elapsed_ms),
            timestamp: first.wrapping_add(ticks as u32),
        };
        before.until(later, 90_000)
    }

    #[test]
    fn two_clocks_agree_within_a_second_or_a_tenth() {
        for first in [0, u32::MAX - 100_000] {
            assert_eq!(between(0, first, 0), Clocks::Agree);
            assert_eq!(between(100, first, 0), Clocks::Agree);
            assert_eq!(between(2000, first, 90_001), Clocks::Advance);
            assert_eq!(between(2000, first, 89_999), Clocks::Disagree);
            assert_eq!(between(100, first, -81_000), Clocks::Agree);
            assert_eq!(between(100, first, -81_001), Clocks::Disagree);
            assert_eq!(between(1900, first, 90_000), Clocks::Agree);
            assert_eq!(between(60_000, first, 90_000 * 66), Clocks::Advance);
            assert_eq!(between(60_000, first, 90_000 * 54), Clocks::Advance);
            assert_eq!(between(60_000, first, 90_000 * 67), Clocks::Disagree);
            assert_eq!(between(60_000, first, 90_000 * 53), Clocks::Disagree);
        }
        // Longer than the timestamp's circle of 13 h.
        assert_eq!(
            between(50_000_000, 7, 4_500_000_000 - (1 << 32)),
            Clocks::Advance
        );
    }

    #[test]
    fn without_a_clock_nothing_agrees() {
        let moment = Moment {
            at: Time::ZERO,
            timestamp: 0,
        };
        assert_eq!(moment.until(moment, 0), Clocks::Disagree);
        // Nor does anything break with the fastest one, over the longest time, backwards too.
        let last = Moment {
            at: Time::from_nanos(u64::MAX),
            timestamp: u32::MAX,
        };
        for (from, to) in [(moment, last), (last, moment)] {
            from.until(to, u32::MAX);
        }
    }
}
