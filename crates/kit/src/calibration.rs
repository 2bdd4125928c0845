//! Declaration of a protocol's calibration: clients against its reference server, and which of
//! their figures are compared with the server's report. The command that runs a trial knows no
//! protocol.

use std::collections::BTreeMap;

use serde_json::Value;

/// Clients against one reference server with deliberate faults.
#[derive(Debug)]
pub struct Trial {
    /// Flags of the server, separated by spaces, apart from its address and its report. `{length}`
    /// stands for the length of the media.
    pub server: &'static str,
    /// Emulated link between clients and server. `None` means the loopback interface. Trials
    /// without a link run together.
    pub link: Option<TrialLink>,
    /// Thresholds that replace those of every run, if faults violate them.
    pub thresholds: &'static [&'static str],
    /// Populations of clients.
    pub clients: &'static [TrialClients],
    /// Comparisons.
    pub checks: &'static [Check],
}

/// Emulated link without loss and with unlimited bit rate, of which only the delay matters. Delays
/// are one-way, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialLink {
    /// Delay from the clients to the server.
    pub up: u32,
    /// Delay from the server to the clients.
    pub down: u32,
}

/// A population of clients that end on their own, with the media or by `leave`.
#[derive(Debug)]
pub struct TrialClients {
    /// Name, unique within the protocol.
    pub name: &'static str,
    /// Number of clients.
    pub number: u32,
    /// URL. `{address}` stands for the server's address and port.
    pub url: &'static str,
    /// Keys as in a scenario, one a line: `time_codes: true`. `{length}` stands for the length of
    /// the media.
    pub keys: &'static [&'static str],
}

/// Comparison of one figure with its true value.
#[derive(Debug)]
pub struct Check {
    /// Population that measured it.
    pub clients: &'static str,
    pub metric: &'static str,
    /// Statistic of the metric.
    pub figure: Statistic,
    /// Source of the true value.
    pub truth: Truth,
    /// Permitted deviation.
    pub tolerance: Tolerance,
}

/// A statistic of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// Value of a counter.
    Value,
    /// Mean of a distribution.
    Mean,
    /// Maximum of a distribution.
    Max,
    /// Number of values of a distribution.
    Count,
}

impl Statistic {
    /// Suffix after the name of the metric.
    pub fn suffix(self) -> &'static str {
        match self {
            Statistic::Value => "",
            Statistic::Mean => ".mean",
            Statistic::Max => ".max",
            Statistic::Count => ".count",
        }
    }
}

/// Source of a true value.
#[derive(Clone, Copy, Debug)]
pub enum Truth {
    /// Sum of the numbers at these JSON pointers (RFC 6901) over all lines of the server's report.
    /// 0 without pointers.
    Sum(&'static [&'static str]),
    /// Computed value; `None` if it cannot be computed.
    Known(fn(&Evidence) -> Option<TrueValue>),
}

/// Permitted deviation of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// No deviation.
    Exact,
    /// Absolute deviation in the figure's unit.
    Absolute(f64),
    /// The larger of a share of the true value and an absolute deviation in the figure's unit.
    RelativeOrAbsolute(f64, f64),
}

/// Tolerance of delays: 1 ms.
pub const DELAY_TOLERANCE: Tolerance = Tolerance::Absolute(1e-3);

impl Tolerance {
    /// Permitted deviation for a true value, in its unit.
    pub fn for_value(self, truth: f64) -> f64 {
        match self {
            Tolerance::Exact => 0.0,
            Tolerance::Absolute(absolute) => absolute,
            Tolerance::RelativeOrAbsolute(share, absolute) => (truth.abs() * share).max(absolute),
        }
    }
}

impl Check {
    /// A counter that must equal the sum of these pointers of the report.
    pub const fn count(
        clients: &'static str,
        metric: &'static str,
        pointers: &'static [&'static str],
    ) -> Check {
        Check {
            clients,
            metric,
            figure: Statistic::Value,
            truth: Truth::Sum(pointers),
            tolerance: Tolerance::Exact,
        }
    }

    /// A counter whose value is known.
    pub const fn exact(
        clients: &'static str,
        metric: &'static str,
        truth: fn(&Evidence) -> Option<TrueValue>,
    ) -> Check {
        Check {
            clients,
            metric,
            figure: Statistic::Value,
            truth: Truth::Known(truth),
            tolerance: Tolerance::Exact,
        }
    }

    /// A counter that must be 0.
    pub const fn zero(clients: &'static str, metric: &'static str) -> Check {
        Check::count(clients, metric, &[])
    }

    /// The mean of a distribution of delays, within 1 ms.
    pub const fn delay(
        clients: &'static str,
        metric: &'static str,
        truth: fn(&Evidence) -> Option<TrueValue>,
    ) -> Check {
        Check {
            clients,
            metric,
            figure: Statistic::Mean,
            truth: Truth::Known(truth),
            tolerance: DELAY_TOLERANCE,
        }
    }
}

/// A true value with its uncertainty.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrueValue {
    pub value: f64,
    /// Uncertainty of the value: its source may have been interrupted between reading the clock and
    /// the action that it timed.
    pub uncertainty: f64,
}

impl TrueValue {
    /// An exactly known value.
    pub const fn exactly(value: f64) -> TrueValue {
        TrueValue {
            value,
            uncertainty: 0.0,
        }
    }

    /// A value of which only the bounds are known.
    pub fn between(from: f64, to: f64) -> TrueValue {
        TrueValue {
            value: f64::midpoint(from, to),
            uncertainty: (to - from) / 2.0,
        }
    }

    /// A value in seconds between two numbers of nanoseconds.
    pub fn between_nanos(from: f64, to: f64) -> TrueValue {
        TrueValue::between(from / 1e9, to / 1e9)
    }
}

impl std::ops::Add for TrueValue {
    type Output = TrueValue;

    fn add(self, other: TrueValue) -> TrueValue {
        TrueValue {
            value: self.value + other.value,
            uncertainty: self.uncertainty + other.uncertainty,
        }
    }
}

/// Facts about a finished trial.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Lines of the server's report.
    pub served: Vec<Value>,
    /// Start of the run, in nanoseconds of `CLOCK_MONOTONIC`, which all processes of a machine
    /// share.
    pub start_nanos: f64,
    /// Interval between the planned starts of a population's clients, in nanoseconds.
    pub start_interval_nanos: f64,
    /// Delay of a packet from the clients to the server, in seconds, with the lateness of the link
    /// itself as uncertainty. 0 on the loopback interface.
    pub up: TrueValue,
    /// Delay of a packet from the server to the clients, in seconds, with the same uncertainty.
    /// 0 on the loopback interface.
    pub down: TrueValue,
    /// Longest time for which a worker of the clients stood still, in seconds, as far as its
    /// heartbeats show it ([`measure::tester::LAG`]).
    pub longest_lag: f64,
    /// Means of the distributions that clients measured, in seconds, by population and metric. Used
    /// for figures that must be consistent with each other.
    pub means: BTreeMap<(String, &'static str), f64>,
}

impl Evidence {
    /// Mean of a distribution that a population measured; `None` if it is empty.
    pub fn measured(&self, clients: &str, metric: &'static str) -> Option<f64> {
        self.means.get(&(clients.to_owned(), metric)).copied()
    }

    /// Numbers at a JSON pointer, from each line that has it.
    pub fn numbers<'a>(&'a self, pointer: &'a str) -> impl Iterator<Item = f64> + 'a {
        self.served
            .iter()
            .filter_map(move |line| line.pointer(pointer)?.as_f64())
    }

    /// Sum of the numbers at a JSON pointer; `None` if no line has it.
    pub fn sum(&self, pointer: &str) -> Option<f64> {
        let mut numbers = self.numbers(pointer).peekable();
        numbers.peek()?;
        Some(numbers.sum())
    }

    /// Mean of the numbers at a JSON pointer; `None` if no line has it.
    pub fn mean(&self, pointer: &str) -> Option<f64> {
        Some(self.sum(pointer)? / self.numbers(pointer).count() as f64)
    }
}

impl Truth {
    /// Returns the true value, or `None` if it is unknown.
    pub fn value(self, evidence: &Evidence) -> Option<TrueValue> {
        match self {
            Truth::Known(truth) => truth(evidence),
            Truth::Sum(pointers) => {
                let sums = pointers.iter().map(|pointer| evidence.sum(pointer));
                sums.sum::<Option<f64>>().map(TrueValue::exactly)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sums_use_only_lines_that_have_the_pointer() {
        let evidence = Evidence {
            served: vec![
                json!({ "sent": { "frames": 3 } }),
                json!({ "sent": { "frames": 4 }, "lost": 1 }),
                json!({ "served": 7 }),
            ],
            ..Evidence::default()
        };
        let sum = |pointers| Truth::Sum(pointers).value(&evidence);
        assert_eq!(
            sum(&["/sent/frames", "/lost"]),
            Some(TrueValue::exactly(8.0))
        );
        assert_eq!(sum(&[]), Some(TrueValue::exactly(0.0)));
        assert_eq!(evidence.mean("/sent/frames"), Some(3.5));
        // A pointer that no line has is an error, unlike a sum of 0.
        assert_eq!(sum(&["/sent/frames", "/sent/lost"]), None);
    }
}
