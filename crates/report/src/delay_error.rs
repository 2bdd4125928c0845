//! Error of delays that compare the clocks of two runners, and the mark of those that say too
//! little.

use measure::ClockError;
use schemars::JsonSchema;

/// Mark before a delay that says too little.
pub(crate) const MARK: &str = "~";

/// Error of a delay between clients on different runners.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct DelayError {
    /// Maximum error of each statistic, in seconds; null if it is unknown.
    pub seconds: Option<f64>,
    /// Statistics below three clock errors: too small to be meaningful, and marked with `~`.
    pub uncertain: UncertainStatistics,
}

/// Statistics of a distribution, each true if it is below three errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, JsonSchema)]
#[expect(clippy::struct_excessive_bools, reason = "one for each statistic")]
pub struct UncertainStatistics {
    /// The mean.
    pub mean: bool,
    /// The median.
    pub p50: bool,
    /// The 95th percentile.
    pub p95: bool,
    /// The 99th percentile.
    pub p99: bool,
    /// The largest value.
    pub max: bool,
}

impl DelayError {
    /// Returns `true` if a value is below three errors.
    pub(crate) fn hides(self, value: f64) -> bool {
        ClockError::from(self.seconds).hides(value)
    }
}

/// Puts the mark before an uncertain figure.
pub(crate) fn marked(is_uncertain: bool, text: String) -> String {
    match is_uncertain {
        true => format!("{MARK}{text}"),
        false => text,
    }
}
