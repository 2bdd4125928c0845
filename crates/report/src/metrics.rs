//! Figures of metrics in a report.

use measure::totals::Statistic;
use measure::{Metric, Totals, Unit};
use schemars::JsonSchema;
use serde::ser::{Serialize, SerializeMap, Serializer};

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
}

impl Metrics {
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
