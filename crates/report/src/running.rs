//! The figures of a run that goes on, kept up to date from its run file, and how other programs
//! name them: what the text for Prometheus and the messages of OTLP are made from.
//!
//! Counters and distributions are of the whole run so far, its warm-up included. Levels, shares and
//! rates are of one window.

use std::collections::BTreeMap;
use std::time::Duration;

use measure::metric::{Metric, MetricSource, Statistic, Unit};
use measure::totals::SHORTEST_WINDOW;
use measure::{Catalogue, Totals};
use runfile::{Reader, Subject};

use crate::ReportError;
use crate::source::{SERVER, TESTER, is_link};

/// What all names begin with.
pub(crate) const PREFIX: &str = "streamgauge";

/// What a family of metrics is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It only grows.
    Counter,
    /// A level, a share or a rate.
    Gauge,
    /// A distribution.
    Histogram,
}

impl Kind {
    fn of(source: MetricSource) -> Kind {
        match source {
            MetricSource::Counter(_) | MetricSource::Sum(..) | MetricSource::Scaled(..) => {
                Kind::Counter
            }
            MetricSource::Distribution(_) => Kind::Histogram,
            MetricSource::Gauge(..)
            | MetricSource::Difference(..)
            | MetricSource::LossRatio(..)
            | MetricSource::Share(..)
            | MetricSource::NotRight(..)
            | MetricSource::Rate(..) => Kind::Gauge,
        }
    }
}

/// What other programs call a metric: the base unit is part of a name of Prometheus, and stands
/// beside one of OTLP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// Whose it is, such as `server`; nothing of a population's.
    of: Vec<String>,
    base: String,
    pub(crate) unit: Unit,
    pub(crate) kind: Kind,
}

impl Name {
    fn new(of: &[&str], metric: &Metric, kind: Kind) -> Name {
        Name {
            of: of.iter().map(|part| plain(part)).collect(),
            base: plain(metric.name),
            unit: metric.unit,
            kind,
        }
    }

    /// That of the clients that failed, by reason.
    fn failures() -> Name {
        Name {
            of: Vec::new(),
            base: "failures".to_owned(),
            unit: Unit::Count,
            kind: Kind::Counter,
        }
    }

    /// As Prometheus names it: with the base unit behind, and `_total` behind what only grows.
    pub(crate) fn prometheus(&self) -> String {
        let total = match self.kind {
            Kind::Counter => "_total",
            Kind::Gauge | Kind::Histogram => "",
        };
        let name = self.joined("_");
        let suffix = suffix(self.unit);
        match name.ends_with(suffix) {
            true => format!("{name}{total}"),
            false => format!("{name}{suffix}{total}"),
        }
    }

    /// As OTLP names it: the unit stands apart, but for cores, which have no unit of their own
    /// there, and where it is part of the metric's own name.
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

/// What stands behind a name of Prometheus.
fn suffix(unit: Unit) -> &'static str {
    match unit {
        Unit::Count => "",
        Unit::Seconds => "_seconds",
        // The base unit: bits are divided by 8.
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

/// What is known of one subject.
#[derive(Debug)]
struct Figures {
    subject: Subject,
    /// Of all windows.
    whole: Totals,
    /// Of the last one with levels; none before there was one.
    last: Option<Totals>,
    /// What each counter has shown, because one that falls is a restart to others, and of ours some
    /// fall: what was taken for lost may come.
    shown: BTreeMap<&'static str, f64>,
}

/// The figures of a run, kept up to date from its run file.
#[derive(Debug)]
pub struct Running {
    /// The scenario's name.
    pub name: String,
    /// The seed of everything random.
    pub seed: u64,
    /// The version of streamgauge.
    pub version: String,
    /// When the run began, since 1970.
    pub started_at: Duration,
    /// How long it has been measured for, in seconds.
    pub seconds: f64,
    /// The number of the last window; none before there was one.
    last_window: Option<u64>,
    /// Whether it had levels of its own.
    had_levels: bool,
    subjects: Vec<Figures>,
}

/// All metrics of one name.
#[derive(Debug)]
pub(crate) struct Family<'a> {
    pub(crate) name: Name,
    pub(crate) doc: &'static str,
    pub(crate) series: Vec<Series<'a>>,
}

/// One metric of one subject.
#[derive(Clone, Debug)]
pub(crate) struct Series<'a> {
    /// Labels and their values.
    pub(crate) labels: Vec<(&'static str, &'a str)>,
    /// Which subject's it is.
    pub(crate) subject: usize,
    /// What it is; none of the clients that failed for a reason.
    pub(crate) metric: Option<&'static Metric>,
    /// What a counter came to.
    pub(crate) count: f64,
}

impl Running {
    /// A run of which nothing has been read yet.
    pub fn new(reader: &Reader) -> Running {
        let header = reader.header();
        let name = header.scenario.get("name").and_then(|name| name.as_str());
        let subjects = reader.subjects().iter().map(|subject| Figures {
            subject: subject.clone(),
            whole: Totals::new(subject.catalogue),
            last: None,
            shown: BTreeMap::new(),
        });
        Running {
            name: name.unwrap_or_default().to_owned(),
            seed: header.seed,
            version: header.version.clone(),
            started_at: header.started_at,
            seconds: 0.0,
            last_window: None,
            had_levels: false,
            subjects: subjects.collect(),
        }
    }

    /// How many windows have been measured.
    pub fn windows(&self) -> u64 {
        self.last_window.map_or(0, |last| last + 1)
    }

    /// Takes in the windows that have been written since the last time, and hands itself to `each`
    /// after every one. What that costs depends on their number alone.
    pub fn update(
        &mut self,
        reader: &Reader,
        mut each: impl FnMut(&Running),
    ) -> Result<(), ReportError> {
        let rows = match self.last_window {
            None => {
                // It is noted anew once everything is ready: the file is older than the run.
                let began = reader.meta("started_at")?;
                let began = began.and_then(|began| began.as_f64());
                let began = began.and_then(|began| Duration::try_from_secs_f64(began).ok());
                self.started_at = began.unwrap_or(self.started_at);
                reader.windows()
            }
            Some(last) => reader.windows_after(last),
        };
        for row in rows {
            let row = row?;
            self.last_window = Some(row.index);
            self.had_levels = row.seconds == 0.0 || row.seconds >= SHORTEST_WINDOW;
            self.seconds = self.seconds.max(row.start.as_secs_f64() + row.seconds);
            for figures in &mut self.subjects {
                if let Some(window) = row.subjects.get(&figures.subject.name) {
                    figures.take_in(window, row.seconds);
                }
            }
            each(self);
        }
        Ok(())
    }

    /// Every metric, by the name that Prometheus has for it.
    pub(crate) fn families(&self) -> BTreeMap<String, Family<'_>> {
        let mut families = BTreeMap::new();
        for (place, figures) in self.subjects.iter().enumerate() {
            figures.add_to(&mut families, place);
        }
        families
    }

    /// A level, share or rate of the last window, in its base unit; none where it had none.
    pub(crate) fn level(&self, subject: usize, metric: &Metric) -> Option<f64> {
        let last = self.subjects.get(subject)?.last.as_ref()?;
        let value = last.figure(metric, Statistic::Value)?;
        Some(match metric.unit {
            Unit::BitsPerSecond => value / 8.0,
            _ => value,
        })
    }

    /// A distribution of the run so far; none where it has no values.
    pub(crate) fn distribution(&self, subject: usize, metric: &Metric) -> Option<&measure::Sparse> {
        self.subjects.get(subject)?.whole.distribution(metric)
    }

    /// Whether the last window had levels of its own.
    pub(crate) fn had_levels(&self) -> bool {
        self.had_levels
    }

    /// Whose levels there are, and which.
    pub(crate) fn gauges(&self) -> impl Iterator<Item = (usize, &'static Metric)> + '_ {
        let subjects = self.subjects.iter().enumerate();
        subjects.flat_map(|(place, figures)| {
            let gauges = figures.metrics();
            let gauges = gauges.filter(|metric| Kind::of(metric.source) == Kind::Gauge);
            gauges.map(move |metric| (place, metric))
        })
    }
}

impl Figures {
    fn take_in(&mut self, window: &measure::Window, seconds: f64) {
        let catalogue: Catalogue = self.subject.catalogue;
        self.whole.add(window, seconds);
        if seconds == 0.0 {
            // What the server gave back after the run: it adds to the levels of the last second.
            let last = self.last.get_or_insert_with(|| Totals::new(catalogue));
            last.add(window, 0.0);
        } else if seconds >= SHORTEST_WINDOW {
            self.last = Some(Totals::of_window(catalogue, window, seconds));
        }
        let counters = catalogue.metrics();
        for metric in counters.filter(|metric| Kind::of(metric.source) == Kind::Counter) {
            let value = self.whole.figure(metric, Statistic::Value).unwrap_or(0.0);
            let shown = self.shown.entry(metric.name).or_default();
            *shown = shown.max(value);
        }
    }

    fn metrics(&self) -> impl Iterator<Item = &'static Metric> + '_ {
        let metrics = self.subject.catalogue.metrics();
        metrics.filter(|metric| !self.subject.absent.contains(&metric.name))
    }

    fn add_to<'a>(&'a self, families: &mut BTreeMap<String, Family<'a>>, place: usize) {
        let subject = &self.subject;
        let (of, labels): (&[&str], _) = match subject.kind.as_str() {
            SERVER => (&["server"], Vec::new()),
            TESTER => (&["tester"], Vec::new()),
            _ if is_link(subject) => (&["link"], vec![("link", subject.name.as_str())]),
            _ => (&[], vec![("population", subject.name.as_str())]),
        };
        for metric in self.metrics() {
            let kind = Kind::of(metric.source);
            let mut name = Name::new(of, metric, kind);
            let known = families.get(&name.prometheus());
            if known.is_some_and(|other| other.name.kind != kind) {
                // Two protocols may mean something else by a name.
                let of: Vec<&str> = of.iter().copied().chain([subject.kind.as_str()]).collect();
                name = Name::new(&of, metric, kind);
            }
            let family = families.entry(name.prometheus()).or_insert_with(|| Family {
                name,
                doc: metric.doc,
                series: Vec::new(),
            });
            family.series.push(Series {
                labels: labels.clone(),
                subject: place,
                metric: Some(metric),
                count: self.shown.get(metric.name).copied().unwrap_or(0.0),
            });
        }
        for (reason, count) in self.whole.failures() {
            let name = Name::failures();
            let family = families.entry(name.prometheus()).or_insert_with(|| Family {
                name,
                doc: "Clients that failed, by reason.",
                series: Vec::new(),
            });
            let reason = ("reason", reason.as_str());
            family.series.push(Series {
                labels: labels.iter().copied().chain([reason]).collect(),
                subject: place,
                metric: None,
                count: *count as f64,
            });
        }
    }
}
