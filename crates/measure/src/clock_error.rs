//! Error of delays that compare the clocks of two clients.

use crate::tester::RunnerSummary;

/// Number of errors below which a delay tells too little: 3.
const ERRORS_MIN: f64 = 3.0;

/// Maximum error of a delay between two clients of a run.
///
/// Each runner keeps the time of the run by its own clock. Two of these times differ at most by the
/// errors of both runners ([`RunnerSummary::clock_error`]).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClockError(f64);

impl ClockError {
    /// All clients share a clock.
    pub const NONE: ClockError = ClockError(0.0);

    /// Error of a run with these runners: the sum of the two largest errors. The coordinator, whose
    /// clock the others are compared with, counts as one without an error. A single runner, or
    /// none, plays all clients by one clock.
    pub fn of(runners: &[RunnerSummary]) -> ClockError {
        if runners.len() < 2 {
            return ClockError::NONE;
        }
        let errors = runners.iter().map(|runner| match runner.clock_error {
            Some(error) if error >= 0.0 => error,
            _ => f64::INFINITY,
        });
        let (largest, second) = errors.fold((0.0, 0.0), |(largest, second), error: f64| {
            (error.max(largest), error.min(largest).max(second))
        });
        ClockError(largest + second)
    }

    /// The error in seconds; `None` if it is unknown.
    pub fn seconds(self) -> Option<f64> {
        self.0.is_finite().then_some(self.0)
    }

    /// True if all clients share a clock.
    pub fn is_none(self) -> bool {
        self.0 == 0.0
    }

    /// True if a delay of `seconds` is below three errors. Reports mark it with `~`, and it decides
    /// no threshold.
    pub fn hides(self, seconds: f64) -> bool {
        seconds < ERRORS_MIN * self.0
    }

    /// True if a comparison of a delay of `seconds` with `limit` has a result: the delay is not
    /// hidden, and the true one is on the same side of the limit.
    pub fn decides(self, seconds: f64, limit: f64) -> bool {
        self.is_none() || (!self.hides(seconds) && (seconds - limit).abs() > self.0)
    }
}

impl From<Option<f64>> for ClockError {
    /// The error with these [`ClockError::seconds`].
    fn from(seconds: Option<f64>) -> ClockError {
        ClockError(seconds.unwrap_or(f64::INFINITY))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::threshold::Comparison;

    fn runners(errors: &[Option<f64>]) -> Vec<RunnerSummary> {
        let runner = |&clock_error| RunnerSummary {
            clock_error,
            ..RunnerSummary::default()
        };
        errors.iter().map(runner).collect()
    }

    #[test]
    fn error_is_that_of_the_two_worst_clocks() {
        let error = |errors: &[Option<f64>]| ClockError::of(&runners(errors)).seconds();
        assert_eq!(error(&[]), Some(0.0));
        assert_eq!(error(&[Some(0.25)]), Some(0.0), "one clock");
        assert_eq!(error(&[Some(0.25), Some(0.0)]), Some(0.25));
        assert_eq!(error(&[Some(0.25), Some(1.0), Some(0.5)]), Some(1.5));
        assert_eq!(error(&[Some(1.0), Some(1.0), Some(0.5)]), Some(2.0));
        assert_eq!(error(&[Some(0.25), None]), None);
        assert_eq!(error(&[Some(-1.0), Some(0.0)]), None);
        assert!(ClockError::of(&[]).is_none());
        assert!(!ClockError::of(&runners(&[None, None])).is_none());
    }

    #[test]
    fn delays_below_three_errors_are_hidden() {
        let error = ClockError::of(&runners(&[Some(0.25), Some(0.25)]));
        assert!(error.hides(1.4) && !error.hides(1.5));
        assert!(!ClockError::NONE.hides(0.0));
        assert!(ClockError::of(&runners(&[None, None])).hides(1e9));
    }

    #[test]
    fn thresholds_on_one_clock_are_always_decided() {
        assert!(ClockError::NONE.decides(0.0, 0.0));
        assert!(ClockError::NONE.decides(0.5, 0.5));
        assert!(!ClockError::of(&runners(&[None, None])).decides(0.5, 1e9));
    }

    proptest! {
        #[test]
        fn decided_result_is_that_of_every_possible_delay(
            errors in prop::collection::vec(1e-6f64..0.01, 1..9),
            measured in 0.0f64..0.2,
            limit in 0.0f64..0.2,
            // Which two runners, and how wrong each clock is, as a share of its error.
            pair in (0usize..8, 0usize..8),
            wrong in (-1.0f64..=1.0, -1.0f64..=1.0),
        ) {
            let known: Vec<Option<f64>> = errors.iter().copied().map(Some).collect();
            let error = ClockError::of(&runners(&known));
            let (a, b) = (pair.0 % errors.len(), pair.1 % errors.len());
            let truth = match a == b {
                true => measured,
                false => measured + wrong.0 * errors[a] + wrong.1 * errors[b],
            };
            for comparison in [
                Comparison::Less, Comparison::AtMost, Comparison::Greater, Comparison::AtLeast,
                Comparison::Equal, Comparison::NotEqual,
            ] {
                if error.decides(measured, limit) {
                    let (seen, true_result) =
                        (comparison.holds(measured, limit), comparison.holds(truth, limit));
                    prop_assert_eq!(seen, true_result);
                }
            }
            // A delay that is shown without a mark is wrong by less than half of the true one.
            if !error.hides(measured) {
                prop_assert!((measured - truth).abs() <= 0.5 * truth + 1e-12);
            }
        }
    }
}
