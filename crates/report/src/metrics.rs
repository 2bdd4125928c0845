//! Figures of metrics in a report.

use measure::totals::Statistic;
use measure::{Catalogue, ClockError, Metric, Totals, Unit};
use schemars::JsonSchema;
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::delay_error::{DelayError, UncertainStatistics, marked};
use crate::human::figure;

/// All metrics of one subject, in the order of its catalogue.
#[derive(Clone, Debug, Default)]
pub struct Metrics(pub Vec<NamedFigures>);

/// A metric with its figures.
#[derive(Clone, Debug)]
pub struct NamedFigures {
    /// Stable name of the metric.
    pub name: &'static str,
    /// Unit of the values.
    pub unit: Unit,
    pub figures: MetricFigures,
}

/// Figures of one metric.
#[derive(Clone, Copy, Debug)]
pub enum MetricFigures {
    /// Counter, or value derived from counters.
    Value(Option<f64>),
    /// Level that is taken once per window.
    Level(Option<Level>),
    Distribution(Option<Distribution>),
}

/// A level over a run.
#[derive(Clone, Copy, Debug, serde::Serialize, JsonSchema)]
pub struct Level {
    /// Mean over the windows in which the level was taken.
    pub mean: f64,
    /// Smallest value of any window.
    pub min: f64,
    /// Largest value of any window.
    pub max: f64,
}

/// Statistics of a distribution.
#[derive(Clone, Copy, Debug, serde::Serialize, JsonSchema)]
pub struct Distribution {
    /// Number of values.
    pub count: u64,
    /// Arithmetic mean, exact.
    pub mean: f64,
    /// Half of the values are at most this.
    pub p50: f64,
    /// 95 % of the values are at most this.
    pub p95: f64,
    /// 99 % of the values are at most this.
    pub p99: f64,
    /// Largest value, exact.
    pub max: f64,
    /// Error of a delay between clients in a run over several runners; absent for any other
    /// distribution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_error: Option<DelayError>,
}

impl Distribution {
    /// Notes the error of a delay between clients.
    pub(crate) fn with_error(self, clocks: ClockError) -> Distribution {
        let error = (!clocks.is_none()).then(|| DelayError {
            seconds: clocks.seconds(),
            uncertain: UncertainStatistics {
                mean: clocks.hides(self.mean),
                p50: clocks.hides(self.p50),
                p95: clocks.hides(self.p95),
                p99: clocks.hides(self.p99),
                max: clocks.hides(self.max),
            },
        });
        Distribution {
            clock_error: error,
            ..self
        }
    }

    /// Formats one of its statistics, with a mark if it says too little.
    pub(crate) fn text(&self, unit: Unit, value: f64) -> String {
        marked(self.hides(value), figure(unit, value))
    }

    /// Returns `true` if any of its statistics says too little.
    pub(crate) fn is_marked(&self) -> bool {
        self.statistics()
            .iter()
            .any(|(_, value)| self.hides(*value))
    }

    fn hides(&self, value: f64) -> bool {
        self.clock_error.is_some_and(|error| error.hides(value))
    }

    /// Statistics with their names, in the order of reports.
    pub(crate) fn statistics(&self) -> [(&'static str, f64); 5] {
        [
            ("mean", self.mean),
            ("p50", self.p50),
            ("p95", self.p95),
            ("p99", self.p99),
            ("max", self.max),
        ]
    }

    /// Returns the statistics as text.
    pub(crate) fn texts(&self, unit: Unit) -> [(&'static str, String); 5] {
        let all = self.statistics();
        all.map(|(name, value)| (name, self.text(unit, value)))
    }

    /// Returns the statistics of a row as text: `first`, which is `mean` or `p50`, then the tail.
    pub(crate) fn row_texts(&self, unit: Unit, first: &str) -> [(&'static str, String); 4] {
        let [mean, median, p95, p99, max] = self.texts(unit);
        let first = if first == "mean" { mean } else { median };
        [first, p95, p99, max]
    }
}

impl Level {
    /// Returns the mean and the largest value as text.
    pub(crate) fn with_peak(&self, unit: Unit) -> String {
        let (mean, peak) = (figure(unit, self.mean), figure(unit, self.max));
        format!("{mean} (peak {peak})")
    }
}

impl Metrics {
    /// Notes the error of all delays between clients.
    pub(crate) fn with_delay_error(mut self, catalogue: Catalogue, clocks: ClockError) -> Metrics {
        for metric in catalogue.metrics().filter(|metric| metric.between_clients) {
            let mut all = self.0.iter_mut();
            let named = all.find(|named| named.name == metric.name);
            if let Some(MetricFigures::Distribution(Some(found))) =
                named.map(|named| &mut named.figures)
            {
                *found = found.with_error(clocks);
            }
        }
        self
    }

    /// Computes every metric of the catalogue from the totals of a run or a window.
    pub fn of(totals: &Totals) -> Metrics {
        let metrics = totals.catalogue().metrics();
        Metrics(
            metrics
                .map(|metric| NamedFigures::of(totals, metric))
                .collect(),
        )
    }

    /// Removes the figures of unknown metrics.
    pub(crate) fn clear_unknown(&mut self, unknown: impl Fn(&'static str) -> bool) {
        for named in self.0.iter_mut().filter(|named| unknown(named.name)) {
            named.figures = match named.figures {
                MetricFigures::Value(_) => MetricFigures::Value(None),
                MetricFigures::Level(_) => MetricFigures::Level(None),
                MetricFigures::Distribution(_) => MetricFigures::Distribution(None),
            };
        }
    }

    pub fn find(&self, name: &str) -> Option<&NamedFigures> {
        self.0.iter().find(|named| named.name == name)
    }

    /// Returns the value of a counter or of a metric derived from counters; the mean of a level or
    /// of a distribution.
    pub fn value(&self, name: &str) -> Option<f64> {
        match self.find(name)?.figures {
            MetricFigures::Value(value) => value,
            MetricFigures::Level(level) => level.map(|level| level.mean),
            MetricFigures::Distribution(distribution) => distribution.map(|found| found.mean),
        }
    }

    /// Returns the level with this name, if it was taken.
    pub fn level(&self, name: &str) -> Option<Level> {
        match self.find(name)?.figures {
            MetricFigures::Level(level) => level,
            _ => None,
        }
    }

    /// Returns the distribution with this name, if it has any values.
    pub fn distribution(&self, name: &str) -> Option<Distribution> {
        match self.find(name)?.figures {
            MetricFigures::Distribution(distribution) => distribution,
            _ => None,
        }
    }
}

impl NamedFigures {
    /// Returns the figures as text, with this separator between statistics. `None` without figures.
    pub(crate) fn text(&self, separator: &str) -> Option<String> {
        let shown = |value| figure(self.unit, value);
        Some(match self.figures {
            MetricFigures::Value(value) => shown(value?),
            MetricFigures::Level(level) => {
                let Level { mean, min, max } = level?;
                let all = [("mean", mean), ("min", min), ("max", max)];
                all.map(|(name, value)| format!("{name} {}", shown(value)))
                    .join(separator)
            }
            MetricFigures::Distribution(found) => {
                let all = found?.texts(self.unit);
                all.map(|(name, value)| format!("{name} {value}"))
                    .join(separator)
            }
        })
    }

    fn of(totals: &Totals, metric: &'static Metric) -> NamedFigures {
        use measure::metric::MetricSource;
        let figure = |statistic| totals.figure(metric, statistic).map(round_figure);
        let figures = match metric.source {
            MetricSource::Distribution(_) => {
                MetricFigures::Distribution(figure(Statistic::Count).and_then(|count| {
                    Some(Distribution {
                        count: count as u64,
                        mean: figure(Statistic::Mean)?,
                        p50: figure(Statistic::Quantile(0.5))?,
                        p95: figure(Statistic::Quantile(0.95))?,
                        p99: figure(Statistic::Quantile(0.99))?,
                        max: figure(Statistic::Max)?,
                        clock_error: None,
                    })
                }))
            }
            MetricSource::Gauge(..) => {
                MetricFigures::Level(figure(Statistic::Mean).and_then(|mean| {
                    Some(Level {
                        mean,
                        min: figure(Statistic::Min)?,
                        max: figure(Statistic::Max)?,
                    })
                }))
            }
            _ => MetricFigures::Value(figure(Statistic::Value)),
        };
        NamedFigures {
            name: metric.name,
            unit: metric.unit,
            figures,
        }
    }
}

/// Rounds a value to twelve significant digits. This removes artefacts of binary fractions, such as
/// 0.030000000000000002, and is finer than any measurement. Whole numbers stay unchanged.
pub(crate) fn round_figure(value: f64) -> f64 {
    if value.fract() == 0.0 {
        return value;
    }
    format!("{value:.11e}").parse().unwrap_or(value)
}

impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for named in &self.0 {
            map.serialize_entry(named.name, &named.figures)?;
        }
        map.end()
    }
}

impl Serialize for MetricFigures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            MetricFigures::Value(value) => number(*value, serializer),
            MetricFigures::Level(level) => level.serialize(serializer),
            MetricFigures::Distribution(distribution) => distribution.serialize(serializer),
        }
    }
}

/// Writes whole numbers without a decimal point, so that a count reads as a count.
fn number<S: Serializer>(value: Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        None => serializer.serialize_none(),
        Some(value) if value.fract() == 0.0 && value.abs() < 9e15 => {
            serializer.serialize_i64(value as i64)
        }
        Some(value) => serializer.serialize_f64(value),
    }
}

#[cfg(test)]
mod tests {
    use measure::tester::RunnerSummary;

    use super::*;

    #[test]
    fn statistics_below_three_errors_are_marked() {
        let delay = Distribution {
            count: 9,
            mean: 0.004,
            p50: 0.002,
            p95: 0.02,
            p99: 0.03,
            max: 0.04,
            clock_error: None,
        };
        let runner = |clock_error| RunnerSummary {
            clock_error,
            ..RunnerSummary::default()
        };
        let plain = delay.with_error(ClockError::NONE);
        assert_eq!(plain.clock_error, None);
        assert_eq!(plain.text(Unit::Seconds, plain.p50), "2 ms");
        let one = delay.with_error(ClockError::of(&[runner(Some(0.001)), runner(Some(0.0))]));
        let error = one.clock_error.expect("there is one");
        assert_eq!(error.seconds, Some(0.001));
        let only_p50 = UncertainStatistics {
            p50: true,
            ..UncertainStatistics::default()
        };
        assert_eq!(error.uncertain, only_p50);
        assert_eq!(one.text(Unit::Seconds, one.p50), "~2 ms");
        assert_eq!(one.text(Unit::Seconds, one.mean), "4 ms");
        let unknown = delay.with_error(ClockError::of(&[runner(None), runner(None)]));
        assert_eq!(unknown.clock_error.and_then(|error| error.seconds), None);
        assert_eq!(unknown.text(Unit::Seconds, unknown.max), "~40 ms");
    }
}
