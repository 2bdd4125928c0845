//! Figures of a run in progress, kept up to date from its run file, and their names in other
//! programs. The text for Prometheus and the messages of OTLP are made from them.
//!
//! Counters and distributions cover the whole run so far, including the warm-up. Levels, shares and
//! rates cover one window.

use std::collections::BTreeMap;
use std::time::Duration;

use measure::metric::{Metric, MetricSource, Statistic, Unit};
use measure::tester::RunnerState;
use measure::totals::WINDOW_SECONDS_MIN;
use measure::{Catalogue, CounterId, Totals};
use runfile::{Reader, Subject, fact};

use crate::ReportError;
use crate::source::{SERVER, TESTER, is_link, noted};

/// Prefix of all names.
pub(crate) const PREFIX: &str = "streamgauge";

/// Type of a metric in other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricType {
    /// Value that only increases.
    Counter,
    /// Level, share or rate.
    Gauge,
    /// Distribution.
    Histogram,
}

impl MetricType {
    fn of(source: MetricSource) -> MetricType {
        match source {
            MetricSource::Counter(_) | MetricSource::Sum(..) | MetricSource::Scaled(..) => {
                MetricType::Counter
            }
            MetricSource::Distribution(_) => MetricType::Histogram,
            MetricSource::Gauge(..)
            | MetricSource::Difference(..)
            | MetricSource::LossRatio(..)
            | MetricSource::Share(..)
            | MetricSource::WrongShare(..)
            | MetricSource::Rate(..) => MetricType::Gauge,
        }
    }
}

/// Name of a metric in other programs. A Prometheus name includes the base unit; OTLP has a
/// separate field for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExportName {
    /// Prefix for the subject, such as `server`. Empty for a population.
    of: Vec<String>,
    base: String,
    pub(crate) unit: Unit,
    pub(crate) kind: MetricType,
}

impl ExportName {
    fn new(of: &[&str], base: &str, unit: Unit, kind: MetricType) -> ExportName {
        ExportName {
            of: of.iter().map(|part| plain(part)).collect(),
            base: plain(base),
            unit,
            kind,
        }
    }

    /// Returns the name in Prometheus: with the base unit as a suffix, and `_total` after a
    /// counter.
    pub(crate) fn prometheus(&self) -> String {
        let total = match self.kind {
            MetricType::Counter => "_total",
            MetricType::Gauge | MetricType::Histogram => "",
        };
        let name = self.joined("_");
        let suffix = suffix(self.unit);
        match name.ends_with(suffix) {
            true => format!("{name}{total}"),
            false => format!("{name}{suffix}{total}"),
        }
    }

    /// Returns the name in OTLP, without the unit. Cores have no OTLP unit and keep their suffix,
    /// as do units in the metric's own name.
    pub(crate) fn otlp(&self) -> String {
        let suffix = match self.unit {
            Unit::Cores => suffix(self.unit),
            _ => "",
        };
        format!("{}{suffix}", self.joined("."))
    }

    fn joined(&self, mark: &str) -> String {
        let mut name = PREFIX.to_owned();
        for part in self.of.iter().chain([&self.base]) {
            name.push_str(mark);
            name.push_str(part);
        }
        name
    }
}

/// Returns the suffix of a Prometheus name.
fn suffix(unit: Unit) -> &'static str {
    match unit {
        Unit::Count => "",
        Unit::Seconds => "_seconds",
        // The base unit is bytes, so bits are divided by 8.
        Unit::BitsPerSecond => "_bytes_per_second",
        Unit::Bytes => "_bytes",
        Unit::Ratio => "_ratio",
        Unit::Cores => "_cores",
    }
}

fn plain(name: &str) -> String {
    let plain = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' => letter,
        _ => '_',
    };
    name.chars().map(plain).collect()
}

/// Gauge of a runner of a run over several machines. Its names differ from those of the tester, so
/// that a sum over a name does not count anything twice.
struct RunnerMetric {
    name: &'static str,
    unit: Unit,
    doc: &'static str,
    /// Value in its base unit, if known.
    value: fn(&RunnerState) -> Option<f64>,
}

const RUNNER_METRICS: [RunnerMetric; 5] = [
    RunnerMetric {
        name: "active",
        unit: Unit::Count,
        doc: "Clients of a runner that have started and not ended, over all populations.",
        value: |runner| Some(runner.active? as f64),
    },
    RunnerMetric {
        name: "playing",
        unit: Unit::Count,
        doc: "Clients of a runner that play, publish or send, over all populations.",
        value: |runner| Some(runner.playing? as f64),
    },
    RunnerMetric {
        name: "cpu",
        unit: Unit::Cores,
        doc: "Processor time of the workers of a runner in the last window, in seconds per second.",
        value: |runner| runner.cpu,
    },
    RunnerMetric {
        name: "lag_max",
        unit: Unit::Seconds,
        doc: "Longest delay between the planned and the actual wake-up of an event loop of a \
              runner in the last window.",
        value: |runner| runner.lag_max,
    },
    RunnerMetric {
        name: "lost",
        unit: Unit::Count,
        doc: "1 if a runner was lost during the run, otherwise 0.",
        value: |runner| Some(f64::from(u8::from(runner.lost))),
    },
];

/// Figures of one subject.
#[derive(Debug)]
struct SubjectFigures {
    subject: Subject,
    /// Totals of all windows.
    totals: Totals,
    /// Totals of the last window with levels, if there was one.
    last: Option<Totals>,
    /// Largest value of each counter so far. Other programs take a decrease for a restart, and some
    /// counters decrease: packets that counted as lost may still arrive.
    shown: BTreeMap<&'static str, f64>,
}

/// The figures of a run, kept up to date from its run file.
#[derive(Debug)]
pub struct LiveFigures {
    /// Name of the scenario.
    pub name: String,
    /// Seed of all randomness.
    pub seed: u64,
    /// Version of streamgauge.
    pub version: String,
    /// Start of the run, since 1970.
    pub started_at: Duration,
    /// Measured time so far, in seconds.
    pub seconds: f64,
    /// Index of the last window, if there was one.
    last_window: Option<u64>,
    /// True if the last window had levels of its own.
    pub(crate) had_levels: bool,
    subjects: Vec<SubjectFigures>,
    /// Newest state of each runner of a run over several machines; otherwise empty.
    runners: Vec<RunnerState>,
}

/// All metrics with one name.
#[derive(Debug)]
pub(crate) struct Family<'a> {
    pub(crate) name: ExportName,
    pub(crate) doc: &'static str,
    pub(crate) series: Vec<Series<'a>>,
}

/// A metric of one subject.
#[derive(Clone, Debug)]
pub(crate) struct Series<'a> {
    /// Labels with their values.
    pub(crate) labels: Vec<(&'static str, &'a str)>,
    /// Index of the subject.
    pub(crate) subject: usize,
    /// Metric of the series. `None` for the failed clients by reason, and for runners.
    pub(crate) metric: Option<&'static Metric>,
    /// Value of a counter, or newest value of a gauge of a runner.
    pub(crate) value: f64,
}

impl LiveFigures {
    /// Creates the figures of a run, without windows.
    pub fn new(reader: &Reader) -> LiveFigures {
        let header = reader.header();
        let name = header.scenario.get("name").and_then(|name| name.as_str());
        let subjects = reader.subjects().iter().map(|subject| SubjectFigures {
            subject: subject.clone(),
            totals: Totals::new(subject.catalogue),
            last: None,
            shown: BTreeMap::new(),
        });
        LiveFigures {
            name: name.unwrap_or_default().to_owned(),
            seed: header.seed,
            version: header.version.clone(),
            started_at: header.started_at,
            seconds: 0.0,
            last_window: None,
            had_levels: false,
            subjects: subjects.collect(),
            runners: Vec::new(),
        }
    }

    /// Returns the number of measured windows.
    pub fn windows(&self) -> u64 {
        self.last_window.map_or(0, |last| last + 1)
    }

    /// Adds the windows that were written since the last update, and calls `each` after every one.
    /// The cost depends on their number only.
    pub fn update(
        &mut self,
        reader: &Reader,
        mut each: impl FnMut(&LiveFigures),
    ) -> Result<(), ReportError> {
        if self.last_window.is_none() {
            // The start is noted again once everything is ready, because the file is older than the
            // run.
            let began = reader.fact(&fact::STARTED_AT)?;
            let began = began.and_then(|began| Duration::try_from_secs_f64(began).ok());
            self.started_at = began.unwrap_or(self.started_at);
        }
        for row in reader.windows_after(self.last_window) {
            let row = row?;
            self.last_window = Some(row.index);
            self.had_levels = row.seconds == 0.0 || row.seconds >= WINDOW_SECONDS_MIN;
            self.seconds = self.seconds.max(row.start.as_secs_f64() + row.seconds);
            for figures in &mut self.subjects {
                if let Some(window) = row.subjects.get(&figures.subject.name) {
                    figures.add_window(window, row.seconds);
                }
            }
            each(self);
        }
        self.runners = noted(reader, &fact::RUNNER_STATES)?;
        Ok(())
    }

    /// Returns all metrics by their Prometheus names.
    pub(crate) fn families(&self) -> BTreeMap<String, Family<'_>> {
        let mut families = BTreeMap::new();
        for (index, figures) in self.subjects.iter().enumerate() {
            figures.add_to(&mut families, index);
        }
        self.add_runners_to(&mut families);
        families
    }

    fn add_runners_to<'a>(&'a self, families: &mut BTreeMap<String, Family<'a>>) {
        for metric in RUNNER_METRICS.iter().filter(|_| !self.runners.is_empty()) {
            let series = self.runners.iter().filter_map(|runner| {
                Some(Series {
                    labels: vec![("runner", runner.name.as_str())],
                    subject: usize::MAX,
                    metric: None,
                    value: (metric.value)(runner)?,
                })
            });
            let name = ExportName::new(&["runner"], metric.name, metric.unit, MetricType::Gauge);
            let family = Family {
                doc: metric.doc,
                series: series.collect(),
                name: name.clone(),
            };
            families.insert(name.prometheus(), family);
        }
    }

    /// Returns a level, share or rate of the last window in its base unit, or `None` if it has
    /// none.
    pub(crate) fn level(&self, subject: usize, metric: &Metric) -> Option<f64> {
        let last = self.subjects.get(subject)?.last.as_ref()?;
        let value = last.figure(metric, Statistic::Value)?;
        Some(match metric.unit {
            Unit::BitsPerSecond => value / 8.0,
            _ => value,
        })
    }

    /// Returns a distribution of the run so far, or `None` if it has no values.
    pub(crate) fn distribution(&self, subject: usize, metric: &Metric) -> Option<&measure::Sparse> {
        self.subjects.get(subject)?.totals.distribution(metric)
    }

    /// Iterates over all gauges, with the index of their subject.
    pub(crate) fn gauges(&self) -> impl Iterator<Item = (usize, &'static Metric)> + '_ {
        let subjects = self.subjects.iter().enumerate();
        subjects.flat_map(|(index, figures)| {
            let gauges = figures.metrics();
            let gauges = gauges.filter(|metric| MetricType::of(metric.source) == MetricType::Gauge);
            gauges.map(move |metric| (index, metric))
        })
    }
}

impl SubjectFigures {
    fn add_window(&mut self, window: &measure::Window, seconds: f64) {
        let catalogue: Catalogue = self.subject.catalogue;
        self.totals.add(window, seconds);
        if seconds == 0.0 {
            // Resources that the server released after the run belong to the levels of the last
            // second.
            let last = self.last.get_or_insert_with(|| Totals::new(catalogue));
            last.add(window, 0.0);
        } else if seconds >= WINDOW_SECONDS_MIN {
            self.last = Some(Totals::of_window(catalogue, window, seconds));
        }
        let counters = catalogue.metrics();
        for metric in counters.filter(|metric| MetricType::of(metric.source) == MetricType::Counter)
        {
            let value = self.totals.figure(metric, Statistic::Value).unwrap_or(0.0);
            let shown = self.shown.entry(metric.name).or_default();
            *shown = shown.max(value);
        }
    }

    fn metrics(&self) -> impl Iterator<Item = &'static Metric> + '_ {
        let metrics = self.subject.catalogue.metrics();
        metrics.filter(|metric| !self.subject.absent.contains(&metric.name))
    }

    /// Returns `true` for a counter of a feature that the run has not used so far.
    fn is_unused(&self, metric: &Metric) -> bool {
        let MetricSource::Counter(id) = metric.source else {
            return false;
        };
        let mut features = self.subject.catalogue.features();
        let own = features.find(|counters| counters.contains(&id));
        // A counter that went back to zero was used.
        let is_shown = |other: &Metric, counters: &[CounterId]| match other.source {
            MetricSource::Counter(id) => {
                counters.contains(&id) && self.shown.get(other.name).is_some_and(|&max| max > 0.0)
            }
            _ => false,
        };
        own.is_some_and(|counters| {
            let mut all = self.subject.catalogue.metrics();
            !all.any(|other| is_shown(other, counters))
        })
    }

    fn add_to<'a>(&'a self, families: &mut BTreeMap<String, Family<'a>>, index: usize) {
        let subject = &self.subject;
        let (of, labels): (&[&str], _) = match subject.kind.as_str() {
            SERVER => (&["server"], Vec::new()),
            TESTER => (&["tester"], Vec::new()),
            _ if is_link(subject) => (&["link"], vec![("link", subject.name.as_str())]),
            _ => (&[], vec![("population", subject.name.as_str())]),
        };
        for metric in self.metrics().filter(|metric| !self.is_unused(metric)) {
            let kind = MetricType::of(metric.source);
            let named = |of: &[&str]| ExportName::new(of, metric.name, metric.unit, kind);
            let mut name = named(of);
            let known = families.get(&name.prometheus());
            if known.is_some_and(|other| other.name.kind != kind) {
                // A name may have different kinds in two protocols.
                let of: Vec<&str> = of.iter().copied().chain([subject.kind.as_str()]).collect();
                name = named(&of);
            }
            let family = families.entry(name.prometheus()).or_insert_with(|| Family {
                name,
                doc: metric.doc,
                series: Vec::new(),
            });
            family.series.push(Series {
                labels: labels.clone(),
                subject: index,
                metric: Some(metric),
                value: self.shown.get(metric.name).copied().unwrap_or(0.0),
            });
        }
        for (reason, count) in self.totals.failures() {
            let name = ExportName::new(&[], "failures", Unit::Count, MetricType::Counter);
            let family = families.entry(name.prometheus()).or_insert_with(|| Family {
                name,
                doc: "Clients that failed, by reason.",
                series: Vec::new(),
            });
            let reason = ("reason", reason.as_str());
            family.series.push(Series {
                labels: labels.iter().copied().chain([reason]).collect(),
                subject: index,
                metric: None,
                value: *count as f64,
            });
        }
    }
}
