//! Distinguishes an outage of the path from a restarted stream, by comparing two clocks.

use measure::Time;

/// Arrival and RTP timestamp of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketTime {
    pub(super) at: Time,
    pub(super) timestamp: u32,
}

/// Comparison of the elapsed times between two packets, by arrival and by RTP timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockComparison {
    /// The times differ.
    Disagree,
    /// The times agree within the tolerance, but may both be close to zero.
    Agree,
    /// The times agree, and are longer than the tolerance.
    Advance,
}

impl PacketTime {
    /// Compares the elapsed time by arrival with that by the media clock of `clock_rate` Hz. They
    /// agree within one second or a tenth, whichever is more. Correct across a wrap-around of the
    /// timestamp.
    pub(super) fn compare_elapsed(self, later: PacketTime, clock_rate: u32) -> ClockComparison {
        if clock_rate == 0 {
            return ClockComparison::Disagree;
        }
        let clock_rate = i128::from(clock_rate);
        let elapsed = i128::from(later.at.nanos_from(self.at)) * clock_rate / 1_000_000_000;
        let stamped = later.timestamp.wrapping_sub(self.timestamp);
        // Difference of the two, modulo 2^32, with the smallest absolute value.
        let apart = i128::from(stamped.wrapping_sub(elapsed as u32) as i32);
        // Over a very long time any timestamp would match: the tolerance is bounded.
        let tolerance = clock_rate.max(elapsed / 10).min(1 << 30);
        if apart.abs() > tolerance {
            ClockComparison::Disagree
        } else if elapsed + apart > tolerance {
            ClockComparison::Advance
        } else {
            ClockComparison::Agree
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn between(elapsed_ms: u64, first: u32, ticks: i64) -> ClockComparison {
        let begin = Time::from_start(Duration::from_secs(5));
        let before = PacketTime {
            at: begin,
            timestamp: first,
        };
        let later = PacketTime {
            at: begin + Duration::from_millis(elapsed_ms),
            timestamp: first.wrapping_add(ticks as u32),
        };
        before.compare_elapsed(later, 90_000)
    }

    #[test]
    fn clocks_agree_within_a_second_or_a_tenth() {
        for first in [0, u32::MAX - 100_000] {
            assert_eq!(between(0, first, 0), ClockComparison::Agree);
            assert_eq!(between(100, first, 0), ClockComparison::Agree);
            assert_eq!(between(2000, first, 90_001), ClockComparison::Advance);
            assert_eq!(between(2000, first, 89_999), ClockComparison::Disagree);
            assert_eq!(between(100, first, -81_000), ClockComparison::Agree);
            assert_eq!(between(100, first, -81_001), ClockComparison::Disagree);
            assert_eq!(between(1900, first, 90_000), ClockComparison::Agree);
            assert_eq!(
                between(60_000, first, 90_000 * 66),
                ClockComparison::Advance
            );
            assert_eq!(
                between(60_000, first, 90_000 * 54),
                ClockComparison::Advance
            );
            assert_eq!(
                between(60_000, first, 90_000 * 67),
                ClockComparison::Disagree
            );
            assert_eq!(
                between(60_000, first, 90_000 * 53),
                ClockComparison::Disagree
            );
        }
        // Longer than a cycle of the timestamp, which is 13 h.
        assert_eq!(
            between(50_000_000, 7, 4_500_000_000 - (1 << 32)),
            ClockComparison::Advance
        );
    }

    #[test]
    fn clock_rate_of_zero_never_agrees() {
        let moment = PacketTime {
            at: Time::ZERO,
            timestamp: 0,
        };
        assert_eq!(moment.compare_elapsed(moment, 0), ClockComparison::Disagree);
        // The fastest clock over the longest time does not overflow, backwards neither.
        let last = PacketTime {
            at: Time::from_nanos(u64::MAX),
            timestamp: u32::MAX,
        };
        for (from, to) in [(moment, last), (last, moment)] {
            from.compare_elapsed(to, u32::MAX);
        }
    }
}
