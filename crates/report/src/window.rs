//! One window of a run in the JSON report.

use measure::metric::MetricSource;
use measure::totals::Statistic;
use measure::{Catalogue, ClockError, Sparse, Totals, Window};
use serde::ser::{Serialize, SerializeMap, SerializeStruct, Serializer};

use crate::metrics::{Distribution, MetricFigures, round_figure};

/// Figures of all subjects in one window.
#[derive(Clone, Debug, Default)]
pub struct ReportWindow {
    /// Start, in seconds since the start of the run.
    pub start: f64,
    /// Length in seconds.
    pub seconds: f64,
    /// Figures of each population, by name.
    pub populations: Vec<(String, SubjectWindow)>,
    /// Figures of each direction of an emulated link, by name.
    pub links: Vec<(String, SubjectWindow)>,
    /// Figures of the server under test, if it was observed.
    pub server: Option<SubjectWindow>,
    /// Figures of the tester.
    pub tester: Option<SubjectWindow>,
}

/// Figures of one subject in one window.
#[derive(Clone, Debug)]
pub struct SubjectWindow {
    /// Every metric with its figures, in the order of the catalogue.
    pub(crate) metrics: Vec<(&'static str, MetricFigures)>,
    /// Number of failed clients, by reason.
    pub(crate) failures: Vec<(String, u64)>,
}

impl SubjectWindow {
    /// Computes every metric of the catalogue.
    ///
    /// Quantiles are read from the existing buckets, without building a full histogram.
    /// `clocks` is the error of delays between clients.
    pub fn of(
        catalogue: Catalogue,
        mut window: Window,
        seconds: f64,
        clocks: ClockError,
    ) -> SubjectWindow {
        let distributions = std::mem::take(&mut window.histograms);
        let totals = Totals::of_window(catalogue, &window, seconds);
        let metrics = catalogue.metrics().map(|metric| {
            let figures = match metric.source {
                MetricSource::Distribution(id) => {
                    let found = distributions.get(&id);
                    MetricFigures::Distribution(
                        found
                            .and_then(|sparse| distribution(sparse, metric.unit.scale()))
                            .map(|found| match metric.between_clients {
                                true => found.with_error(clocks),
                                false => found,
                            }),
                    )
                }
                _ => {
                    MetricFigures::Value(totals.figure(metric, Statistic::Value).map(round_figure))
                }
            };
            (metric.name, figures)
        });
        SubjectWindow {
            metrics: metrics.collect(),
            failures: window.failures.into_iter().collect(),
        }
    }
}

/// Returns the count of a counter in a window, by its name.
pub(crate) fn counter(catalogue: Catalogue, window: &Window, name: &str) -> Option<i64> {
    match catalogue.find(name)?.source {
        MetricSource::Counter(id) => window.counters.get(usize::from(id.0)).copied(),
        _ => None,
    }
}

/// Returns a level in a window, by its name. `None` if it was not taken.
pub(crate) fn level(catalogue: Catalogue, window: &Window, name: &str) -> Option<f64> {
    match catalogue.find(name)?.source {
        MetricSource::Gauge(id, _) => *window.gauges.get(usize::from(id.0))?,
        _ => None,
    }
}

fn distribution(sparse: &Sparse, scale: f64) -> Option<Distribution> {
    let quantile = |share: f64| Some(round_figure(sparse.quantile(share)? as f64 * scale));
    Some(Distribution {
        count: sparse.count(),
        mean: round_figure(sparse.mean()? * scale),
        p50: quantile(0.5)?,
        p95: quantile(0.95)?,
        p99: quantile(0.99)?,
        max: round_figure(sparse.max as f64 * scale),
        clock_error: None,
    })
}

/// A map in the order of a list.
struct Ordered<'a, K, V>(&'a [(K, V)]);

impl<K: Serialize, V: Serialize> Serialize for Ordered<'_, K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// Part of a window for a population.
struct PopulationPart<'a>(&'a SubjectWindow);

impl Serialize for PopulationPart<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut part = serializer.serialize_struct("PopulationPart", 2)?;
        part.serialize_field("failures", &Ordered(&self.0.failures))?;
        part.serialize_field("metrics", &Ordered(&self.0.metrics))?;
        part.end()
    }
}

impl Serialize for ReportWindow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let populations: Vec<_> = self
            .populations
            .iter()
            .map(|(name, window)| (name, PopulationPart(window)))
            .collect();
        let flat = |window: &SubjectWindow| window.metrics.clone();
        let (server, tester) = (
            self.server.as_ref().map(flat),
            self.tester.as_ref().map(flat),
        );
        let links: Vec<_> = self
            .links
            .iter()
            .map(|(name, window)| (name, Ordered(&window.metrics)))
            .collect();
        let mut row = serializer.serialize_struct("WindowRow", 6)?;
        row.serialize_field("start", &self.start)?;
        row.serialize_field("seconds", &self.seconds)?;
        row.serialize_field("populations", &Ordered(&populations))?;
        row.serialize_field("links", &Ordered(&links))?;
        row.serialize_field("server", &server.as_deref().map(Ordered))?;
        row.serialize_field("tester", &tester.as_deref().map(Ordered))?;
        row.end()
    }
}

#[cfg(test)]
mod tests {
    use measure::{Histogram, Recorder};
    use proptest::prelude::*;

    use super::*;

    measure::metrics! {
        /// Something to measure.
        THING after measure::Group::NONE;
        counters {
            /// Sent.
            SENT = "sent", Count, "";
            /// Came.
            CAME = "came", Count, "";
        }
        gauges {}
        distributions {
            /// Delay.
            DELAY = "delay", Seconds, "";
        }
        derived {
            /// Loss.
            "loss", Ratio, "", LossRatio(SENT, CAME);
        }
    }
    static THINGS: [&measure::Group; 1] = [&THING];
    const CATALOGUE: Catalogue = Catalogue(&THINGS);

    proptest! {
        #[test]
        fn quantiles_equal_those_of_the_full_histogram(
            values in proptest::collection::vec(0u64..(1 << 41), 1..200),
        ) {
            let mut full = Histogram::new();
            for &value in &values { full.record(value); }
            let found = distribution(&full.to_sparse(), 1.0).expect("there are values");
            prop_assert_eq!(found.p50 as u64, full.quantile(0.5).expect("not empty"));
            prop_assert_eq!(found.p95 as u64, full.quantile(0.95).expect("not empty"));
            prop_assert_eq!(found.p99 as u64, full.quantile(0.99).expect("not empty"));
            prop_assert_eq!(found.max as u64, full.max().expect("not empty"));
        }
    }

    #[test]
    fn a_window_is_written_flat_and_empty_figures_are_null() {
        let mut recorder = Recorder::new(CATALOGUE);
        recorder.add(SENT, 4);
        recorder.add(CAME, 3);
        recorder.fail("timed_out");
        let window = SubjectWindow::of(CATALOGUE, recorder.take_window(), 1.0, ClockError::NONE);
        let row = ReportWindow {
            start: 2.0,
            seconds: 1.0,
            populations: vec![("viewers".to_owned(), window)],
            ..ReportWindow::default()
        };
        assert_eq!(
            serde_json::to_string(&row).expect("it has string keys"),
            concat!(
                r#"{"start":2.0,"seconds":1.0,"populations":{"viewers":{"failures":{"timed_out":1},"#,
                r#""metrics":{"sent":4,"came":3,"delay":null,"loss":0.25}}},"links":{},"server":null,"tester":null}"#
            )
        );
    }
}
