//! Catalogues as JSON, and the mapping from a stored catalogue to the current one.
//!
//! Figures are stored by index. The metric names are stored too, so a file written by a streamgauge
//! with other metrics is read by name.

use measure::metric::{GaugeMerge, MetricSource};
use measure::{Catalogue, HistogramId, Unit, Window};
use serde::{Deserialize, Serialize};

/// Catalogue as stored in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredCatalogue {
    /// Counter names, by index.
    pub(crate) counters: Vec<String>,
    /// Level names, by index.
    pub(crate) gauges: Vec<String>,
    /// Distribution names, by index.
    pub(crate) distributions: Vec<String>,
    /// Definitions of the metrics, for readers of the file without this program.
    metrics: Vec<StoredMetric>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredMetric {
    name: String,
    unit: Unit,
    /// Value of one stored step in `unit`: `1e-9` for distributions of times, which are stored in
    /// nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step: Option<String>,
    /// Origin of the value, such as `counter` or `(expected - received) / expected`.
    source: String,
    doc: String,
    reference: String,
}

impl StoredCatalogue {
    pub(crate) fn new(catalogue: Catalogue) -> StoredCatalogue {
        let mut stored = StoredCatalogue {
            counters: vec![String::new(); catalogue.counters()],
            gauges: vec![String::new(); catalogue.gauges()],
            distributions: vec![String::new(); catalogue.histograms()],
            metrics: Vec::new(),
        };
        for metric in catalogue.metrics() {
            let name = metric.name.to_owned();
            match metric.source {
                MetricSource::Counter(id) => stored.counters[usize::from(id.0)] = name,
                MetricSource::Gauge(id, _) => stored.gauges[usize::from(id.0)] = name,
                MetricSource::Distribution(id) => stored.distributions[usize::from(id.0)] = name,
                _ => {}
            }
        }
        for metric in catalogue.metrics() {
            let counter = |id: measure::CounterId| &stored.counters[usize::from(id.0)];
            let source = match metric.source {
                MetricSource::Counter(_) => "counter".to_owned(),
                MetricSource::Gauge(_, GaugeMerge::Sum) => "level, sum over workers".to_owned(),
                MetricSource::Gauge(_, GaugeMerge::Max) => "level, maximum over workers".to_owned(),
                MetricSource::Distribution(_) => "distribution".to_owned(),
                MetricSource::Sum(a, b) => format!("{} + {}", counter(a), counter(b)),
                MetricSource::Difference(a, b) => format!("{} - {}", counter(a), counter(b)),
                MetricSource::LossRatio(a, b) => {
                    format!("({0} - {1}) / {0}", counter(a), counter(b))
                }
                MetricSource::WrongShare(all, right, less) => {
                    let all: Vec<&str> = all.iter().map(|&id| counter(id).as_str()).collect();
                    let all = all.join(" + ");
                    format!("1 - ({} - {}) / ({all})", counter(right), counter(less))
                }
                MetricSource::Share(a, b) => format!("{} / {}", counter(a), counter(b)),
                MetricSource::Rate(a, factor) => format!("{} * {factor} / seconds", counter(a)),
                MetricSource::Scaled(a, power) => format!("{} * 1e{power}", counter(a)),
            };
            let nanoseconds = matches!(metric.source, MetricSource::Distribution(_))
                && metric.unit == Unit::Seconds;
            stored.metrics.push(StoredMetric {
                name: metric.name.to_owned(),
                unit: metric.unit,
                step: nanoseconds.then(|| "1e-9".to_owned()),
                source,
                doc: metric.doc.to_owned(),
                reference: metric.reference.to_owned(),
            });
        }
        stored
    }
}

/// Mapping from stored figures to the current catalogue.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    catalogue: Catalogue,
    /// Current index of each stored counter. `None` if the current catalogue lacks it.
    counters: Vec<Option<usize>>,
    gauges: Vec<Option<usize>>,
    /// Current metrics that the file lacks.
    pub(crate) absent: Vec<&'static str>,
    /// Names in the file that the current catalogue lacks.
    pub(crate) unknown: Vec<String>,
}

impl Mapping {
    pub(crate) fn new(stored: &StoredCatalogue, catalogue: Catalogue) -> Mapping {
        let mut unknown = Vec::new();
        let mut indices = |names: &[String], wanted: fn(MetricSource) -> Option<usize>| {
            names
                .iter()
                .map(|name| {
                    let index = catalogue
                        .find(name)
                        .and_then(|metric| wanted(metric.source));
                    if index.is_none() && !name.is_empty() {
                        unknown.push(name.clone());
                    }
                    index
                })
                .collect::<Vec<_>>()
        };
        let counters = indices(&stored.counters, |source| match source {
            MetricSource::Counter(id) => Some(usize::from(id.0)),
            _ => None,
        });
        let gauges = indices(&stored.gauges, |source| match source {
            MetricSource::Gauge(id, _) => Some(usize::from(id.0)),
            _ => None,
        });
        indices(&stored.distributions, |source| match source {
            MetricSource::Distribution(id) => Some(usize::from(id.0)),
            _ => None,
        });
        let absent = catalogue
            .metrics()
            .filter(|metric| match metric.source {
                MetricSource::Counter(_) => !stored.counters.iter().any(|name| name == metric.name),
                MetricSource::Gauge(..) => !stored.gauges.iter().any(|name| name == metric.name),
                MetricSource::Distribution(_) => {
                    !stored.distributions.iter().any(|name| name == metric.name)
                }
                _ => false,
            })
            .map(|metric| metric.name)
            .collect();
        Mapping {
            catalogue,
            counters,
            gauges,
            absent,
            unknown,
        }
    }

    /// Builds a window from stored counters and levels. Returns `None` if their number does not
    /// match the stored catalogue.
    pub(crate) fn window(&self, counters: &[i64], gauges: &[Option<f64>]) -> Option<Window> {
        if counters.len() != self.counters.len() || gauges.len() != self.gauges.len() {
            return None;
        }
        let mut window = Window::empty(self.catalogue);
        for (value, index) in counters.iter().zip(&self.counters) {
            if let Some(index) = index {
                window.counters[*index] = *value;
            }
        }
        for (value, index) in gauges.iter().zip(&self.gauges) {
            if let Some(index) = index {
                window.gauges[*index] = *value;
            }
        }
        Some(window)
    }

    /// Returns the current id of a stored distribution.
    pub(crate) fn distribution(&self, name: &str) -> Option<HistogramId> {
        match self.catalogue.find(name)?.source {
            MetricSource::Distribution(id) => Some(id),
            _ => None,
        }
    }
}
