//! Difference between the clocks of two machines, from exchanges of four timestamps.
//!
//! The coordinator notes when it sends a request and when it has the answer, by its own clock; the
//! runner when it has the request and when it answers, by its clock (RFC 8762, section 4.2.1; RFC
//! 5905, section 8). One exchange bounds the difference: it is at most half of the round trip away
//! from its middle, however unequal the two ways are. Exchanges at different times also bound the
//! drift.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Maximum drift between two machines: 500 ppm, the limit of the kernel's own correction
/// (adjtimex(2)), for each of the two.
const DRIFT_MAX: f64 = 1_000e-6;

/// Number of exchanges that are kept.
const KEPT: usize = 64;

/// Time for which an exchange is kept: clocks that are disciplined do not run evenly for longer.
const KEPT_FOR: i64 = 120_000_000_000;

/// Four timestamps of one exchange, in nanoseconds of the monotonic clock of each machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// The coordinator sent its request.
    pub sent: i64,
    /// The runner had the request.
    pub reached: i64,
    /// The runner answered.
    pub answered: i64,
    /// The coordinator had the answer.
    pub returned: i64,
}

impl Exchange {
    /// Time on the way, there and back.
    pub fn round_trip(&self) -> Duration {
        let all = self.returned.saturating_sub(self.sent);
        let there = self.answered.saturating_sub(self.reached);
        Duration::from_nanos(u64::try_from(all.saturating_sub(there)).unwrap_or(0))
    }

    /// Lower and upper bound of the runner's clock minus the coordinator's, in the middle of the
    /// exchange, relative to `time` and `offset`. The request took some time, and so did the
    /// answer.
    fn range(&self, time: i64, offset: i64) -> Range {
        let (lower, upper) = self.bounds();
        let middle = self.sent.midpoint(self.returned);
        Range {
            time: middle.saturating_sub(time) as f64,
            lower: lower.saturating_sub(offset) as f64,
            upper: upper.saturating_sub(offset) as f64,
        }
    }

    fn bounds(&self) -> (i64, i64) {
        let lower = self.answered.saturating_sub(self.returned);
        let upper = self.reached.saturating_sub(self.sent);
        (lower, upper)
    }
}

/// Difference between the clocks at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Offset {
    /// The runner's clock minus the coordinator's, in nanoseconds.
    pub nanos: i64,
    /// The difference is at most this far away from `nanos`, in nanoseconds.
    pub uncertainty: u64,
}

impl Offset {
    /// Maximum difference between the true offset at this moment and `nanos`.
    fn error_of(self, nanos: i64) -> u64 {
        let distance = self.nanos.abs_diff(nanos);
        distance.saturating_add(self.uncertainty)
    }
}

/// Offset by which a runner began, and how wrong it was during the run. Clocks drift, but the time
/// of a run is not corrected: it would be uneven.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct AgreedOffset {
    /// Start of the run by the coordinator's clock, in nanoseconds.
    start: i64,
    nanos: i64,
    /// Largest error up to the exchanges that are kept; `None` if it is unknown.
    past: Option<u64>,
}

impl AgreedOffset {
    /// The offset that was expected for the start of a run.
    pub(crate) fn new(start: i64, expected: Offset) -> AgreedOffset {
        AgreedOffset {
            start,
            nanos: expected.nanos,
            past: Some(expected.uncertainty),
        }
    }

    /// Adds what the last exchanges say. To be called after each of them, because an estimate keeps
    /// only the last two minutes.
    pub(crate) fn update(&mut self, estimate: &ClockEstimate) {
        let error_at = |at| Some(estimate.at(at)?.error_of(self.nanos));
        let Some((first, last)) = estimate.first().zip(estimate.last()) else {
            return;
        };
        self.past = match first <= self.start {
            // The start lies between exchanges, so its error gets better known.
            true => error_at(self.start),
            // Two minutes have passed, or another coordinator goes on with the run.
            false => self.past.zip(error_at(last)).map(|(a, b)| a.max(b)),
        };
    }

    /// Maximum error from the start to the last exchange, in nanoseconds. Clocks drift evenly
    /// between exchanges, so it is largest at one of them. `None` if it is unknown.
    pub(crate) fn error(&self, estimate: &ClockEstimate) -> Option<u64> {
        let last = estimate.at(estimate.last()?)?;
        Some(self.past?.max(last.error_of(self.nanos)))
    }
}

/// The exchanges with one runner, of which the tightest are kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClockEstimate {
    kept: Vec<Exchange>,
}

impl ClockEstimate {
    /// Adds an exchange. Exchanges in which time ran backwards are ignored.
    pub fn add(&mut self, exchange: Exchange) {
        let (lower, upper) = exchange.bounds();
        if upper < lower {
            return;
        }
        let oldest = exchange.sent.saturating_sub(KEPT_FOR);
        self.kept.retain(|one| one.sent >= oldest);
        self.kept.push(exchange);
        if self.kept.len() > KEPT {
            // The first and the last bound the drift; of the others the slowest says least.
            let between = 1..self.kept.len() - 1;
            let slowest = between.max_by_key(|at| self.kept[*at].round_trip());
            self.kept.remove(slowest.unwrap_or_default());
        }
    }

    /// Time of the last exchange by the coordinator's clock; `None` without any.
    pub fn last(&self) -> Option<i64> {
        self.kept.last().map(|exchange| exchange.returned)
    }

    /// Time of the first exchange that is kept, by the coordinator's clock.
    fn first(&self) -> Option<i64> {
        self.kept.first().map(|exchange| exchange.sent)
    }

    /// Longest round trip of the exchanges that are kept.
    pub fn longest_round_trip(&self) -> Duration {
        let trips = self.kept.iter().map(Exchange::round_trip);
        trips.max().unwrap_or_default()
    }

    /// Returns the difference at the time `at` of the coordinator's clock: the middle between the
    /// smallest and the largest value at `at` of all lines that are consistent with every exchange.
    /// `None` without an exchange, or if no line is: a clock was set, or drifts by more than
    /// 500 ppm against true time.
    pub fn at(&self, at: i64) -> Option<Offset> {
        // Relative to the first exchange, numbers are small enough to be exact.
        let first = self.kept.first()?;
        let (time, offset) = (first.sent, first.reached.saturating_sub(first.sent));
        let ranges: Vec<Range> = self
            .kept
            .iter()
            .map(|one| one.range(time, offset))
            .collect();
        let at = at.saturating_sub(time) as f64;
        // A line through two bounds is extreme at `at`; so is one of the largest drift through one.
        let mut found: Option<(f64, f64)> = None;
        let mut consider = |value: f64, drift: f64| {
            if is_consistent(&ranges, at, value, drift) {
                let (lower, upper) = found.unwrap_or((value, value));
                found = Some((lower.min(value), upper.max(value)));
            }
        };
        let bounds = |range: &Range| [(range.time, range.lower), (range.time, range.upper)];
        let points: Vec<(f64, f64)> = ranges.iter().flat_map(bounds).collect();
        for (number, &(time, bound)) in points.iter().enumerate() {
            for drift in [-DRIFT_MAX, DRIFT_MAX] {
                consider(bound + drift * (at - time), drift);
            }
            for &(other, value) in &points[number + 1..] {
                if other != time {
                    let drift = (value - bound) / (other - time);
                    consider(bound + drift * (at - time), drift);
                }
            }
        }
        let (lower, upper) = found?;
        Some(Offset {
            nanos: offset.saturating_add(((lower + upper) / 2.0).round() as i64),
            uncertainty: ((upper - lower) / 2.0).ceil() as u64,
        })
    }
}

/// Range of the difference at a time, both relative to a base.
#[derive(Clone, Copy, Debug)]
struct Range {
    time: f64,
    lower: f64,
    upper: f64,
}

/// Returns `true` if the line with `value` at `at` and this drift keeps within every range.
fn is_consistent(ranges: &[Range], at: f64, value: f64, drift: f64) -> bool {
    // Bounds are whole nanoseconds, but lines through them are not exact.
    const ROUNDING: f64 = 1.0;
    drift.abs() <= DRIFT_MAX + 1e-12
        && ranges.iter().all(|range| {
            let here = value + drift * (range.time - at);
            range.lower - ROUNDING <= here && here <= range.upper + ROUNDING
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An exchange at `sent` with a runner whose clock is `offset` ahead and drifts.
    fn exchange(sent: i64, offset: i64, ppm: i64, there: i64, back: i64) -> Exchange {
        let theirs = |own: i64| own + offset + own * ppm / 1_000_000;
        Exchange {
            sent,
            reached: theirs(sent + there),
            answered: theirs(sent + there + 5_000),
            returned: sent + there + 5_000 + back,
        }
    }

    #[test]
    fn one_exchange_bounds_the_offset_by_half_of_its_round_trip() {
        let mut estimate = ClockEstimate::default();
        assert_eq!(estimate.at(0), None);
        estimate.add(exchange(0, 1_000_000, 0, 30_000, 50_000));
        let found = estimate.at(42_500).expect("one exchange");
        assert_eq!(found.nanos, 990_000);
        assert!(found.uncertainty.abs_diff(40_000) <= 2, "{found:?}");
        assert_eq!(estimate.longest_round_trip(), Duration::from_nanos(80_000));
    }

    #[test]
    fn impossible_exchanges_are_ignored_and_a_stepped_clock_is_noticed() {
        let mut estimate = ClockEstimate::default();
        estimate.add(Exchange {
            sent: 100,
            reached: 0,
            answered: 500,
            returned: 110,
        });
        assert_eq!(estimate.at(0), None);
        estimate.add(exchange(0, 0, 0, 1000, 1000));
        estimate.add(exchange(1_000_000_000, 50_000_000, 0, 1000, 1000));
        assert_eq!(estimate.at(0), None);
    }

    proptest! {
        #[test]
        fn true_offset_is_within_the_uncertainty(
            offset in -1_000_000_000_000i64..1_000_000_000_000,
            ppm in -400i64..400,
            ways in prop::collection::vec((1_000i64..3_000_000, 1_000i64..3_000_000), 2..90),
            ahead in 0i64..10_000_000_000,
        ) {
            let mut estimate = ClockEstimate::default();
            let step = 700_000_000;
            for (number, (there, back)) in (0i64..).zip(&ways) {
                estimate.add(exchange(number * step, offset, ppm, *there, *back));
            }
            prop_assert!(estimate.kept.len() <= KEPT);
            for at in [0, (ways.len() as i64 - 1) * step + ahead] {
                let truth = offset + at * ppm / 1_000_000;
                let found = estimate.at(at).expect("the line itself is consistent");
                let off = (found.nanos - truth).unsigned_abs();
                prop_assert!(off <= found.uncertainty + 10, "{off} {found:?}");
            }
        }

        #[test]
        fn agreed_offset_is_never_further_off_than_its_error(
            offset in -1_000_000_000_000i64..1_000_000_000_000,
            ppm in -400i64..400,
            ways in prop::collection::vec((1_000i64..3_000_000, 1_000i64..3_000_000), 20..60),
            step in 1_000_000_000i64..10_000_000_000,
        ) {
            let mut estimate = ClockEstimate::default();
            for (number, (there, back)) in (0i64..).zip(&ways[..8]) {
                estimate.add(exchange(number * 10_000_000, offset, ppm, *there, *back));
            }
            let start = 2_000_000_000;
            let expected = estimate.at(start).expect("the line itself is consistent");
            let mut agreed = AgreedOffset::new(start, expected);
            let mut worst = 0;
            for (number, (there, back)) in (1i64..).zip(&ways[8..]) {
                let sent = start + number * step;
                estimate.add(exchange(sent, offset, ppm, *there, *back));
                agreed.update(&estimate);
                for at in [start, sent + there + back + 5_000] {
                    let truth = offset + at * ppm / 1_000_000;
                    worst = worst.max((expected.nanos - truth).unsigned_abs());
                }
                let error = agreed.error(&estimate).expect("the line itself is consistent");
                prop_assert!(worst <= error + 20, "{worst} {error}");
            }
        }
    }
}
