//! Figures of a run in progress for Prometheus, in its text format, version 0.0.4
//! (prometheus.io/docs/instrumenting/exposition_formats).
//!
//! Names are those of the metrics, with the prefix `streamgauge_` and the base unit as a suffix:
//! `streamgauge_loss_ratio{population="viewers"}`. Figures of the server, the tester and a link
//! have the further prefix `server_`, `tester_` and `link_`; those of each runner of a run over
//! several machines have `runner_`. Rates are in bytes per second.
//! Counters and distributions cover the whole run so far, including the warm-up. Levels, shares and
//! rates cover its last window of at least half a second. Counters of a feature that the run does
//! not use, such as publishing, are left out until one of them counts.

use std::fmt::Write as _;

use measure::Sparse;
use measure::metric::Unit;

use crate::live_figures::{LiveFigures, MetricType, Series};

/// Content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Upper bounds of the buckets of delays, in seconds.
const SECONDS: [f64; 18] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0,
];
/// Upper bounds of the buckets of all other distributions.
const NUMBERS: [f64; 10] = [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];

impl MetricType {
    fn in_prometheus(self) -> &'static str {
        match self {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
        }
    }
}

/// Formats all figures of a run.
pub fn write(figures: &LiveFigures) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "# HELP streamgauge_run_info The current run.\n\
         # TYPE streamgauge_run_info gauge\n\
         streamgauge_run_info{{name=\"{}\",seed=\"{}\",version=\"{}\"}} 1\n\
         # HELP streamgauge_run_seconds Measured time of the run so far.\n\
         # TYPE streamgauge_run_seconds gauge\n\
         streamgauge_run_seconds {}\n\
         # HELP streamgauge_windows_total Number of windows measured so far.\n\
         # TYPE streamgauge_windows_total counter\n\
         streamgauge_windows_total {}\n",
        escaped(&figures.name),
        figures.seed,
        escaped(&figures.version),
        figures.seconds,
        figures.windows(),
    );
    for (name, family) in figures.families() {
        let mut lines = String::new();
        for series in &family.series {
            series_of(&mut lines, &name, family.name.kind, series, figures);
        }
        if lines.is_empty() {
            continue;
        }
        let doc = family.doc.split_whitespace().collect::<Vec<_>>().join(" ");
        let doc = doc.replace('\\', "\\\\");
        let _ = writeln!(out, "# HELP {name} {doc}");
        let _ = writeln!(out, "# TYPE {name} {}", family.name.kind.in_prometheus());
        out.push_str(&lines);
    }
    out
}

fn series_of(
    lines: &mut String,
    name: &str,
    kind: MetricType,
    series: &Series<'_>,
    figures: &LiveFigures,
) {
    let labels = series.labels.iter();
    let labels = labels.map(|(key, value)| format!("{key}=\"{}\"", escaped(value)));
    let label = labels.collect::<Vec<_>>().join(",");
    match (kind, series.metric) {
        (MetricType::Counter, _) | (MetricType::Gauge, None) => {
            sample(lines, name, &label, series.value);
        }
        (MetricType::Gauge, Some(metric)) => {
            if let Some(value) = figures.level(series.subject, metric) {
                sample(lines, name, &label, value);
            }
        }
        (MetricType::Histogram, Some(metric)) => {
            if let Some(values) = figures.distribution(series.subject, metric) {
                histogram(lines, name, &label, values, metric.unit);
            }
        }
        // A series without a metric is a counter or a gauge.
        (MetricType::Histogram, None) => {}
    }
}

/// Escapes the value of a label.
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
