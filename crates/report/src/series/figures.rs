//! What a table says of one run.

use std::collections::BTreeMap;

use measure::metric::Source;
use measure::{Histogram, Window};
use runfile::{Reader, Subject};
use schemars::JsonSchema;

use super::Row;
use crate::ReportError;
use crate::model::{Metrics, Report, tidy};

/// The figures of one run, over all its populations. What is null is unknown.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, JsonSchema)]
pub struct Figures {
    /// The most clients that got media at the end of any second.
    pub playing: u64,
    /// Media, in bit/s: half of the seconds in which media came had at least as much. So neither a beginning
    /// nor an end in which few play makes it smaller.
    pub bitrate: Option<f64>,
    /// Media, in bit/s: all of it over the whole run, as the run's own report says.
    pub bitrate_mean: Option<f64>,
    /// Packets of media that came, first copies only.
    pub received: u64,
    /// The share of the expected packets that never came.
    pub loss: Option<f64>,
    /// Half of the clients had media at most so long after their first request was due, in seconds.
    pub startup_delay_p50: Option<f64>,
    /// 95 % of the clients did.
    pub startup_delay_p95: Option<f64>,
    /// The mean jitter (RFC 3550), in seconds.
    pub jitter: Option<f64>,
    /// The mean of the server's processor time, in cores.
    pub server_cpu: Option<f64>,
    /// The same of the second in which it was largest.
    pub server_cpu_peak: Option<f64>,
    /// The most memory of the server's own (USS), in bytes; where that is unknown, its resident set.
    pub server_memory: Option<f64>,
    /// Clients that failed.
    pub failed: u64,
    /// Whether no bound of the tester's health was crossed so far that the measurement is invalid; null of
    /// a run that was cut off.
    pub tester_fit: Option<bool>,
}

/// What is added up over the populations, window by window.
#[derive(Default)]
struct Sums {
    playing: f64,
    rates: Vec<f64>,
    payload: f64,
    seconds: f64,
    expected: f64,
    received: f64,
    histograms: BTreeMap<&'static str, Histogram>,
}

/// The most windows whose bit rates are kept, for the one in their middle: some twelve days.
const MOST_WINDOWS: usize = 1 << 20;

/// The distributions of which a table says anything.
const STARTUP_DELAY: &str = "startup_delay";
const JITTER: &str = "jitter";

impl Sums {
    fn add(&mut self, reader: &Reader) -> Result<(), ReportError> {
        let warm_up = reader.header().warm_up_windows();
        for row in reader.windows() {
            let row = row?;
            let of_populations = reader
                .subjects()
                .iter()
                .filter(|subject| subject.kind != "server" && subject.kind != "tester")
                .filter_map(|subject| Some((subject, row.subjects.get(&subject.name)?)));
            let (mut playing, mut payload) = (0.0, 0.0);
            for (subject, window) in of_populations {
                playing += level(subject, window, "playing");
                if row.index < warm_up {
                    continue;
                }
                payload += counter(subject, window, "payload_bytes");
                self.expected += counter(subject, window, "expected");
                self.received += counter(subject, window, "received");
                for name in [STARTUP_DELAY, JITTER] {
                    let metric = subject.catalogue.find(name);
                    let Some(Source::Distribution(id)) = metric.map(|metric| metric.source) else {
                        continue;
                    };
                    if let Some(seen) = window.histograms.get(&id) {
                        self.histograms.entry(name).or_default().merge(seen);
                    }
                }
            }
            self.playing = self.playing.max(playing);
            if row.index < warm_up {
                continue;
            }
            self.payload += payload;
            self.seconds += row.seconds;
            // The sliver in which a run ends is no second.
            if payload > 0.0 && row.seconds > 0.5 && self.rates.len() < MOST_WINDOWS {
                self.rates.push(payload * 8.0 / row.seconds);
            }
        }
        Ok(())
    }

    /// The bit rate that half of the seconds with media reached.
    fn middle_rate(&mut self) -> Option<f64> {
        let middle = self.rates.len() / 2;
        if self.rates.is_empty() {
            return None;
        }
        let (_, rate, _) = self.rates.select_nth_unstable_by(middle, f64::total_cmp);
        Some(*rate)
    }
}

fn counter(subject: &Subject, window: &Window, name: &str) -> f64 {
    match subject.catalogue.find(name).map(|metric| metric.source) {
        Some(Source::Counter(id)) => {
            let count = window.counters.get(usize::from(id.0));
            count.map_or(0.0, |count| *count as f64)
        }
        _ => 0.0,
    }
}

fn level(subject: &Subject, window: &Window, name: &str) -> f64 {
    match subject.catalogue.find(name).map(|metric| metric.source) {
        Some(Source::Gauge(id, _)) => {
            let level = window.gauges.get(usize::from(id.0));
            level.copied().flatten().unwrap_or(0.0)
        }
        _ => 0.0,
    }
}

impl Figures {
    pub(super) fn of(reader: &Reader, report: &Report) -> Result<Figures, ReportError> {
        let mut sums = Sums::default();
        sums.add(reader)?;
        let seconds = |name: &str, figure: fn(&Histogram) -> Option<f64>| {
            // Recorded in nanoseconds.
            let nanos = sums.histograms.get(name).and_then(figure);
            nanos.map(|nanos| tidy(nanos / 1e9))
        };
        let startup_delay_p50 = seconds(STARTUP_DELAY, |all| quantile_of(all, 0.5));
        let startup_delay_p95 = seconds(STARTUP_DELAY, |all| quantile_of(all, 0.95));
        let jitter = seconds(JITTER, Histogram::mean);
        let of_server = |figure: fn(&Metrics) -> Option<f64>| {
            let figure = report.server.as_ref().and_then(figure);
            figure.map(tidy)
        };
        Ok(Figures {
            playing: sums.playing.max(0.0) as u64,
            bitrate: sums.middle_rate().map(tidy),
            bitrate_mean: (sums.seconds > 0.0).then(|| tidy(sums.payload * 8.0 / sums.seconds)),
            received: sums.received.max(0.0) as u64,
            loss: (sums.expected > 0.0)
                .then(|| tidy((sums.expected - sums.received) / sums.expected)),
            startup_delay_p50,
            startup_delay_p95,
            jitter,
            server_cpu: of_server(|server| Some(server.level("cpu")?.mean)),
            server_cpu_peak: of_server(|server| Some(server.level("cpu")?.max)),
            server_memory: of_server(|server| {
                let level = server.level("uss").or_else(|| server.level("rss"))?;
                Some(level.max)
            }),
            failed: report
                .populations
                .iter()
                .map(|population| population.clients.failed)
                .sum(),
            tester_fit: (!report.tester.health.is_empty())
                .then(|| report.tester.health.iter().all(|finding| !finding.invalid)),
        })
    }
}

fn quantile_of(histogram: &Histogram, share: f64) -> Option<f64> {
    histogram.quantile(share).map(|value| value as f64)
}

/// Which end of a column is the better one.
#[derive(Clone, Copy)]
enum Better {
    Larger,
    Smaller,
}

/// A column in which a best can be told.
struct Column {
    name: &'static str,
    better: Better,
    value: fn(&Figures) -> Option<f64>,
}

const COLUMNS: [Column; 11] = [
    larger("playing", |figures| Some(figures.playing as f64)),
    larger("bitrate", |figures| figures.bitrate),
    larger("received", |figures| Some(figures.received as f64)),
    smaller("loss", |figures| figures.loss),
    smaller("startup_delay_p50", |figures| figures.startup_delay_p50),
    smaller("startup_delay_p95", |figures| figures.startup_delay_p95),
    smaller("jitter", |figures| figures.jitter),
    smaller("server_cpu", |figures| figures.server_cpu),
    smaller("server_cpu_peak", |figures| figures.server_cpu_peak),
    smaller("server_memory", |figures| figures.server_memory),
    smaller("failed", |figures| Some(figures.failed as f64)),
];

const fn larger(name: &'static str, value: fn(&Figures) -> Option<f64>) -> Column {
    Column {
        name,
        better: Better::Larger,
        value,
    }
}

const fn smaller(name: &'static str, value: fn(&Figures) -> Option<f64>) -> Column {
    Column {
        name,
        better: Better::Smaller,
        value,
    }
}

/// Marks the best of each column, among the runs that can be trusted.
pub(super) fn mark_best(rows: &mut [Row]) {
    for column in COLUMNS {
        let value = |row: &Row| {
            let figures = row.figures.as_ref().filter(|_| row.outcome.is_trusted())?;
            (column.value)(figures)
        };
        let values: Vec<f64> = rows.iter().filter_map(value).collect();
        let (Some(smallest), Some(largest)) = (
            values.iter().copied().min_by(f64::total_cmp),
            values.iter().copied().max_by(f64::total_cmp),
        ) else {
            continue;
        };
        if smallest == largest {
            continue;
        }
        let best = match column.better {
            Better::Larger => largest,
            Better::Smaller => smallest,
        };
        for row in rows.iter_mut() {
            if value(row) == Some(best) {
                row.best.push(column.name);
            }
        }
    }
}
