//! The figures of a run that goes on, as Prometheus scrapes them: its text format, version 0.0.4
//! (prometheus.io/docs/instrumenting/exposition_formats).
//!
//! Names are those of the metrics, with `streamgauge_` before and the base unit behind:
//! `streamgauge_loss_ratio{population="viewers"}`. Figures of the server, the tester and a link
//! have `server_`, `tester_` and `link_` before theirs. Rates are in bytes per second. Counters and
//! distributions are of the whole run so far, its warm-up included; levels, shares and rates are of
//! its last window.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use measure::metric::{Metric, MetricSource, Statistic, Unit};
use measure::{Sparse, Totals};
use runfile::{Header, Reader, Subject};

use crate::ReportError;
use crate::source::{SERVER, TESTER, is_link};

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upper bounds of the buckets of delays, in seconds.
const SECONDS: [f64; 18] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0,
];
/// Upper bounds of the buckets of all else.
const NUMBERS: [f64; 10] = [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

/// What a family of metrics is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
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

    fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// What is known of one subject.
#[derive(Debug)]
struct Figures {
    subject: Subject,
    /// Of all windows.
    whole: Totals,
    /// Of the last one; none before there was one.
    last: Option<Totals>,
    /// What each counter has shown, because one that falls is a restart to Prometheus, and of ours
    /// some fall: what was taken for lost may come.
    shown: BTreeMap<&'static str, f64>,
}

/// The figures of a run, kept up to date from its run file.
#[derive(Debug)]
pub struct Scrape {
    run: BTreeMap<&'static str, String>,
    subjects: Vec<Figures>,
    last_window: Option<u64>,
    seconds: f64,
}

/// Lines of one name.
#[derive(Debug)]
struct Family {
    kind: Kind,
    doc: &'static str,
    lines: String,
}

impl Scrape {
    /// Of a run of which nothing has been read yet.
    pub fn new(reader: &Reader) -> Scrape {
        let subjects = reader.subjects().iter().map(|subject| Figures {
            subject: subject.clone(),
            whole: Totals::new(subject.catalogue),
            last: None,
            shown: BTreeMap::new(),
        });
        let header = reader.header();
        Scrape {
            run: BTreeMap::from([
                ("name", scenario_name(header)),
                ("seed", header.seed.to_string()),
                ("version", header.version.clone()),
            ]),
            subjects: subjects.collect(),
            last_window: None,
            seconds: 0.0,
        }
    }

    /// Takes in the windows that have been written since the last time. What that costs depends on
    /// their number alone.
    pub fn update(&mut self, reader: &Reader) -> Result<(), ReportError> {
        let rows = match self.last_window {
            None => reader.windows(),
            Some(last) => reader.windows_after(last),
        };
        for row in rows {
            let row = row?;
            self.last_window = Some(row.index);
            self.seconds = self.seconds.max(row.start.as_secs_f64() + row.seconds);
            for figures in &mut self.subjects {
                if let Some(window) = row.subjects.get(&figures.subject.name) {
                    figures.whole.add(window, row.seconds);
                    let catalogue = figures.subject.catalogue;
                    figures.last = Some(Totals::of_window(catalogue, window, row.seconds));
                }
            }
        }
        Ok(())
    }

    /// Writes all of it.
    pub fn write(&mut self) -> String {
        let mut out = String::new();
        let labels = self
            .run
            .iter()
            .map(|(key, value)| format!("{key}=\"{}\"", escaped(value)));
        let labels = labels.collect::<Vec<_>>().join(",");
        let windows = self.last_window.map_or(0, |last| last + 1);
        let _ = write!(
            out,
            "# HELP streamgauge_run_info The run under way.\n\
             # TYPE streamgauge_run_info gauge\n\
             streamgauge_run_info{{{labels}}} 1\n\
             # HELP streamgauge_run_seconds How long it has been measured for.\n\
             # TYPE streamgauge_run_seconds gauge\n\
             streamgauge_run_seconds {}\n\
             # HELP streamgauge_windows_total How many windows have been measured.\n\
             # TYPE streamgauge_windows_total counter\n\
             streamgauge_windows_total {windows}\n",
            self.seconds
        );
        let mut families: BTreeMap<String, Family> = BTreeMap::new();
        for figures in &mut self.subjects {
            figures.add_to(&mut families);
        }
        for (name, family) in families {
            if family.lines.is_empty() {
                continue;
            }
            let doc = family.doc.split_whitespace().collect::<Vec<_>>().join(" ");
            let doc = doc.replace('\\', "\\\\");
            let _ = writeln!(out, "# HELP {name} {doc}");
            let _ = writeln!(out, "# TYPE {name} {}", family.kind.name());
            out.push_str(&family.lines);
        }
        out
    }
}

impl Figures {
    fn add_to(&mut self, families: &mut BTreeMap<String, Family>) {
        let subject = &self.subject;
        let (prefix, label) = match subject.kind.as_str() {
            SERVER => ("server_", String::new()),
            TESTER => ("tester_", String::new()),
            _ if is_link(subject) => ("link_", labelled("link", &subject.name)),
            _ => ("", labelled("population", &subject.name)),
        };
        let metrics = subject.catalogue.metrics();
        for metric in metrics.filter(|metric| !subject.absent.contains(&metric.name)) {
            let kind = Kind::of(metric.source);
            let mut name = family_name(prefix, metric, kind);
            if families.get(&name).is_some_and(|other| other.kind != kind) {
                // Two protocols may mean something else by a name.
                name = family_name(&format!("{prefix}{}_", plain(&subject.kind)), metric, kind);
            }
            let family = families.entry(name.clone()).or_insert_with(|| Family {
                kind,
                doc: metric.doc,
                lines: String::new(),
            });
            let lines = &mut family.lines;
            match kind {
                Kind::Counter => {
                    let value = self.whole.figure(metric, Statistic::Value);
                    let shown = self.shown.entry(metric.name).or_default();
                    *shown = shown.max(value.unwrap_or(0.0));
                    sample(lines, &name, &label, *shown);
                }
                Kind::Gauge => {
                    let last = self.last.as_ref();
                    let value = last.and_then(|last| last.figure(metric, Statistic::Value));
                    if let Some(value) = value {
                        let value = match metric.unit {
                            // The base unit of Prometheus.
                            Unit::BitsPerSecond => value / 8.0,
                            _ => value,
                        };
                        sample(lines, &name, &label, value);
                    }
                }
                Kind::Histogram => {
                    if let Some(values) = self.whole.distribution(metric) {
                        histogram(lines, &name, &label, values, metric.unit);
                    }
                }
            }
        }
        for (reason, count) in self.whole.failures() {
            let name = "streamgauge_failures_total";
            let family = families.entry(name.to_owned()).or_insert_with(|| Family {
                kind: Kind::Counter,
                doc: "Clients that failed, by reason.",
                lines: String::new(),
            });
            let label = format!("{label},{}", labelled("reason", reason));
            sample(&mut family.lines, name, &label, *count as f64);
        }
    }
}

fn scenario_name(header: &Header) -> String {
    let name = header.scenario.get("name").and_then(|name| name.as_str());
    name.unwrap_or_default().to_owned()
}

/// A name of Prometheus: with the base unit behind, and `_total` behind what only grows.
fn family_name(prefix: &str, metric: &Metric, kind: Kind) -> String {
    let name = plain(metric.name);
    let unit = match metric.unit {
        Unit::Count => "",
        Unit::Seconds => "_seconds",
        Unit::BitsPerSecond => "_bytes_per_second",
        Unit::Bytes => "_bytes",
        Unit::Ratio => "_ratio",
        Unit::Cores => "_cores",
    };
    let name = name.strip_suffix(unit).unwrap_or(&name);
    let total = match kind {
        Kind::Counter => "_total",
        _ => "",
    };
    format!("streamgauge_{prefix}{name}{unit}{total}")
}

fn plain(name: &str) -> String {
    let plain = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' => letter,
        _ => '_',
    };
    name.chars().map(plain).collect()
}

fn labelled(key: &str, value: &str) -> String {
    format!("{key}=\"{}\"", escaped(value))
}

/// A value of a label.
fn escaped(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    value.replace('\n', "\\n")
}

fn sample(lines: &mut String, name: &str, label: &str, value: f64) {
    let _ = match label.is_empty() {
        true => writeln!(lines, "{name} {value}"),
        false => writeln!(lines, "{name}{{{label}}} {value}"),
    };
}

fn histogram(lines: &mut String, name: &str, label: &str, values: &Sparse, unit: Unit) {
    let scale = unit.scale();
    let bounds = match unit {
        Unit::Seconds => &SECONDS[..],
        _ => &NUMBERS[..],
    };
    let comma = if label.is_empty() { "" } else { "," };
    let bucket = format!("{name}_bucket");
    for bound in bounds {
        let count = values.at_most((bound / scale).round() as u64);
        sample(
            lines,
            &bucket,
            &format!("{label}{comma}le=\"{bound}\""),
            count as f64,
        );
    }
    let count = values.count() as f64;
    sample(lines, &bucket, &format!("{label}{comma}le=\"+Inf\""), count);
    sample(
        lines,
        &format!("{name}_sum"),
        label,
        values.sum as f64 * scale,
    );
    sample(lines, &format!("{name}_count"), label, count);
}
