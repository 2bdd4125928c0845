//! Charts of a run. They follow from what the catalogues of its subjects declare, so no protocol is
//! known by name.

use measure::load::Load;
use measure::metric::{MetricSource, Statistic};
use measure::summary::RowContent;
use measure::{Catalogue, Finding, Metric, Threshold, Unit};
use runfile::Reader;
use serde_json::Value;

use crate::link::LOSS_REASONS;
use crate::metric_words::{capital, metric_words};
use crate::model::Report;
use crate::source::{is_link, is_population};

/// Maximum number of distributions that are drawn for a population.
const DISTRIBUTIONS_MAX: usize = 10;

/// Value of a line in each window.
pub(super) enum LineSource {
    /// A statistic of a metric of the subject with this index in the run file.
    Figure(usize, &'static Metric, Statistic),
    /// Increase of a counter of a subject, per second.
    PerSecond(usize, &'static Metric),
    /// Number of clients that the load wants.
    Wanted(Load),
    /// Lost packets of a subject, as a share of the expected packets.
    Lost(usize, LossPlace),
    /// A statistic of the tester, as a share of its health bound.
    OfBound(usize, &'static Metric, Statistic, f64),
}

/// Place where packets were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LossPlace {
    Anywhere,
    Elsewhere,
    WayUp,
    Link,
    Kernel,
    Tester,
}

/// A line of a chart.
pub(super) struct Line {
    pub(super) label: String,
    /// Metric that defines the line, if any.
    pub(super) metric: Option<&'static str>,
    pub(super) probe: LineSource,
    /// True for a plan or a limit, false for a measurement.
    pub(super) planned: bool,
    /// True if the line is hidden when it is zero throughout the run.
    pub(super) hide_if_zero: bool,
}

/// Form of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Lines,
    /// Percentiles of a distribution, one above the other, with the heat map behind them.
    Bands,
}

/// Limit of a threshold or of the health bounds, drawn into a chart.
pub(super) struct Limit {
    pub(super) value: f64,
    pub(super) text: String,
    pub(super) passed: bool,
}

pub(super) struct Chart {
    pub(super) title: String,
    /// Index of the subject in the run file.
    pub(super) subject: usize,
    pub(super) unit: Unit,
    pub(super) form: Form,
    pub(super) lines: Vec<Line>,
    pub(super) limits: Vec<Limit>,
    /// Explanation of the chart.
    pub(super) note: &'static str,
}

impl Chart {
    fn new(title: &str, subject: usize, unit: Unit) -> Chart {
        Chart {
            title: title.to_owned(),
            subject,
            unit,
            form: Form::Lines,
            lines: Vec::new(),
            limits: Vec::new(),
            note: "",
        }
    }

    fn with(mut self, lines: impl IntoIterator<Item = Line>) -> Chart {
        self.lines.extend(lines);
        self
    }

    /// Returns the distribution that the chart shows, if any.
    pub(super) fn distribution(&self) -> Option<&'static Metric> {
        match (self.form, &self.lines.first()?.probe) {
            (Form::Bands, LineSource::Figure(_, metric, _)) => Some(metric),
            _ => None,
        }
    }

    /// Returns `true` if a line of the chart shows the metric of a threshold, or the same
    /// distribution.
    fn shows(&self, subject: usize, metric: &str) -> bool {
        self.lines.iter().any(|line| {
            let of = match &line.probe {
                LineSource::Figure(of, ..)
                | LineSource::PerSecond(of, _)
                | LineSource::Lost(of, _) => *of,
                LineSource::Wanted(_) | LineSource::OfBound(..) => return false,
            };
            // The count of a whole run is not a rate per second.
            let same =
                line.metric == Some(metric) && !matches!(line.probe, LineSource::PerSecond(..));
            of == subject && same
        })
    }
}

impl Line {
    fn new(label: &str, metric: Option<&'static str>, probe: LineSource) -> Line {
        Line {
            label: label.to_owned(),
            metric,
            probe,
            planned: false,
            hide_if_zero: false,
        }
    }

    fn hidden_if_zero(self) -> Line {
        Line {
            hide_if_zero: true,
            ..self
        }
    }

    /// Returns the line of the increase per second instead of the value.
    fn per_second(self) -> Line {
        match self.probe {
            LineSource::Figure(at, metric, _) => Line {
                probe: LineSource::PerSecond(at, metric),
                ..self
            },
            _ => self,
        }
    }
}

fn line(label: &str, subject: usize, metric: &'static Metric, statistic: Statistic) -> Line {
    let probe = LineSource::Figure(subject, metric, statistic);
    Line::new(label, Some(metric.name), probe)
}

/// Returns the line of a metric that has one value in a window, if the catalogue has the metric.
fn known_line(catalogue: Catalogue, at: usize, name: &str, label: &str) -> Option<Line> {
    let metric = catalogue.find(name)?;
    Some(line(label, at, metric, Statistic::Value))
}

/// Returns all charts of the run, in display order.
pub(super) fn charts(reader: &Reader, report: &Report) -> Vec<Chart> {
    let mut charts = Vec::new();
    for (at, subject) in reader.subjects().iter().enumerate() {
        match subject.kind.as_str() {
            "server" => server(at, subject.catalogue, &mut charts),
            "tester" => tester(at, subject.catalogue, report, &mut charts),
            _ if is_link(subject) => link(at, subject.catalogue, &mut charts),
            _ => {
                let load = load_of(reader, &subject.name);
                population(at, subject.catalogue, load, &mut charts);
            }
        }
    }
    for threshold in &report.thresholds {
        if !threshold.implied
            && let Ok(parsed) = Threshold::parse(&threshold.threshold)
        {
            let limit = Limit {
                value: threshold.limit,
                text: threshold.threshold.clone(),
                passed: threshold.passed,
            };
            add_threshold(reader, &parsed, limit, &mut charts);
        }
    }
    // Populations first, in their order, each with the charts of its thresholds.
    let rank = |chart: &Chart| match reader.subjects().get(chart.subject) {
        Some(subject) if is_population(subject) => chart.subject,
        Some(subject) if is_link(subject) => usize::MAX - 2,
        Some(subject) if subject.kind == "server" => usize::MAX - 1,
        _ => usize::MAX,
    };
    charts.sort_by_key(rank);
    charts
}

/// Returns the load of the population from the scenario in the run file, if it has one.
fn load_of(reader: &Reader, population: &str) -> Option<Load> {
    let list = reader.header().scenario["populations"].as_array()?;
    let found = list
        .iter()
        .find(|one| one["name"].as_str() == Some(population));
    let load: &Value = &found?["load"];
    serde_json::from_value(load.clone()).ok()
}

fn population(at: usize, catalogue: Catalogue, load: Option<Load>, charts: &mut Vec<Chart>) {
    let known = |name| known_line(catalogue, at, name, name);
    let wanted = load.map(|load| Line {
        planned: true,
        ..Line::new("wanted", None, LineSource::Wanted(load))
    });
    let clients = [known("active"), known("playing"), wanted];
    charts.push(Chart::new("Clients", at, Unit::Count).with(clients.into_iter().flatten()));
    if let Some(failed) = known("failed") {
        let failed = failed.per_second().hidden_if_zero();
        charts.push(Chart::new("Clients that failed, per second", at, Unit::Count).with([failed]));
    }
    let named = shown_metrics(catalogue);
    for (title, unit) in [
        ("Bit rate", Unit::BitsPerSecond),
        ("Per second", Unit::Count),
    ] {
        let rates = named.iter().filter(|metric| {
            matches!(metric.source, MetricSource::Rate(..)) && metric.unit == unit
        });
        let lines = rates.map(|metric| {
            line(&metric_words(metric.name), at, metric, Statistic::Value).hidden_if_zero()
        });
        charts.push(Chart::new(title, at, unit).with(lines));
    }
    if catalogue.find("expected").is_some() && catalogue.find("lost").is_some() {
        charts.push(loss(at));
    }
    let distributions = named
        .iter()
        .filter(|metric| matches!(metric.source, MetricSource::Distribution(_)));
    for metric in distributions.take(DISTRIBUTIONS_MAX) {
        charts.push(bands(at, metric));
    }
}

/// Metrics that the population's protocol shows: first those of the summary, then those of the
/// table.
fn shown_metrics(catalogue: Catalogue) -> Vec<&'static Metric> {
    let rows = catalogue.summary();
    let of_rows = rows.flat_map(|row| match row.shows {
        RowContent::Distribution(name, _) => vec![name],
        _ => row.metrics(),
    });
    let names = of_rows.chain(catalogue.table().map(|column| column.metric));
    let mut found: Vec<&'static Metric> = Vec::new();
    for metric in names.filter_map(|name| catalogue.find(name)) {
        if !found.iter().any(|other| other.name == metric.name) {
            found.push(metric);
        }
    }
    found
}

fn loss(at: usize) -> Chart {
    let part = |label: &str, place, only_seen| {
        let metric = match place {
            LossPlace::Anywhere => "loss",
            LossPlace::Tester => "lost_in_tester",
            LossPlace::Elsewhere | LossPlace::WayUp | LossPlace::Kernel | LossPlace::Link => "lost",
        };
        Line {
            hide_if_zero: only_seen,
            ..Line::new(label, Some(metric), LineSource::Lost(at, place))
        }
    };
    Chart::new("Loss, by where it happened", at, Unit::Ratio).with([
        part("all", LossPlace::Anywhere, false),
        part("in the network or the server", LossPlace::Elsewhere, true),
        part("on the way to the server", LossPlace::WayUp, true),
        part("on the emulated link", LossPlace::Link, true),
        part("in this machine's kernel", LossPlace::Kernel, true),
        part("in the tester", LossPlace::Tester, true),
    ])
}

fn bands(at: usize, metric: &'static Metric) -> Chart {
    let lines = [
        ("p50", Statistic::Quantile(0.5)),
        ("p95", Statistic::Quantile(0.95)),
        ("p99", Statistic::Quantile(0.99)),
        ("max", Statistic::Max),
    ];
    Chart {
        form: Form::Bands,
        ..Chart::new(&capital(&metric_words(metric.name)), at, metric.unit)
            .with(lines.map(|(label, statistic)| line(label, at, metric, statistic)))
    }
}

fn server(at: usize, catalogue: Catalogue, charts: &mut Vec<Chart>) {
    let lines = |names: &[(&str, &str, bool)]| -> Vec<Line> {
        let known = names.iter().filter_map(|&(name, label, planned)| {
            let line = known_line(catalogue, at, name, label)?.hidden_if_zero();
            Some(Line { planned, ..line })
        });
        known.collect()
    };
    charts.push(
        Chart::new("Server: processor", at, Unit::Cores).with(lines(&[
            ("cpu", "total", false),
            ("cpu_hottest_thread", "hottest thread", false),
            ("machine_cpu", "whole machine", false),
            ("cpu_allowed", "available to the server", true),
        ])),
    );
    charts.push(Chart::new("Server: memory", at, Unit::Bytes).with(lines(&[
        ("rss", "resident", false),
        ("uss", "exclusive (USS)", false),
    ])));
    let files = [
        ("file_descriptors", "file descriptors", false),
        ("threads", "threads", false),
    ];
    charts.push(Chart::new("Server: threads and descriptors", at, Unit::Count).with(lines(&files)));
    let dropped = lines(&[
        ("socket_drops", "datagrams dropped at its sockets", false),
        (
            "udp_receive_errors",
            "datagrams dropped on its machine",
            false,
        ),
        ("log_complaints", "complaints in its log", false),
    ]);
    let dropped = dropped.into_iter().map(Line::per_second);
    charts.push(
        Chart::new("Server: drops and complaints, per second", at, Unit::Count).with(dropped),
    );
}

fn link(at: usize, catalogue: Catalogue, charts: &mut Vec<Chart>) {
    let figure =
        |name: &str, label: &str| Some(known_line(catalogue, at, name, label)?.hidden_if_zero());
    let lost = LOSS_REASONS
        .into_iter()
        .filter_map(|(name, label)| figure(name, label));
    let lost = lost.map(Line::per_second);
    charts.push(Chart::new("Packets lost on the link, per second", at, Unit::Count).with(lost));
    let share = figure("loss", "lost on the link");
    charts.push(Chart::new("Loss of the link", at, Unit::Ratio).with(share));
    let rate = figure("bitrate", "delivered");
    charts.push(Chart::new("Bit rate of the link", at, Unit::BitsPerSecond).with(rate));
    let queue = figure("queue_bytes", "maximum in a window");
    charts.push(Chart::new("Queue of the link", at, Unit::Bytes).with(queue));
    for (name, title) in [
        ("planned_delay", "Planned delay of the link"),
        ("delay", "Delay of the link"),
        ("lateness", "Lateness of the link"),
    ] {
        let metric = catalogue.find(name);
        charts.extend(metric.map(|metric| Chart {
            title: title.to_owned(),
            ..bands(at, metric)
        }));
    }
}

fn tester(at: usize, catalogue: Catalogue, report: &Report, charts: &mut Vec<Chart>) {
    let lines = report.tester.health.iter().filter_map(|finding| {
        let (metric, statistic) = health_value(catalogue, finding)?;
        let probe = LineSource::OfBound(at, metric, statistic, finding.limit);
        let line = Line::new(&metric_words(&finding.bound), Some(metric.name), probe);
        (finding.limit > 0.0).then(|| line.hidden_if_zero())
    });
    let mut chart = Chart::new("Tester: use of each health bound", at, Unit::Ratio).with(lines);
    chart.limits.push(Limit {
        value: 1.0,
        text: "bound".to_owned(),
        passed: !report.tester.health.iter().any(|finding| finding.invalid),
    });
    chart.note = "Seconds with a line above 100 % cannot be trusted.";
    charts.push(chart);
    if let Some(metric) = catalogue.find("lag") {
        charts.push(Chart {
            title: "Tester: lag of its event loop".to_owned(),
            ..bands(at, metric)
        });
    }
}

/// Returns the metric and the statistic of a window that are compared with a health bound. Returns
/// `None` for a bound that is judged over the run, whose value has another unit than its metric.
pub(super) fn health_value(
    catalogue: Catalogue,
    finding: &Finding,
) -> Option<(&'static Metric, Statistic)> {
    let mut names = finding.metric.split('.').skip(1);
    let metric = catalogue.find(names.next()?)?;
    let statistic = match names.next() {
        None => Statistic::Value,
        Some("max") => Statistic::Max,
        Some(percentile) => {
            let percent: f64 = percentile.strip_prefix('p')?.parse().ok()?;
            Statistic::Quantile(percent / 100.0)
        }
    };
    (metric.unit == finding.unit).then_some((metric, statistic))
}

/// Returns the metric that a threshold reads, after the index of its subject in the run file.
pub(super) fn metric_of(
    reader: &Reader,
    threshold: &Threshold,
) -> Option<(usize, &'static Metric)> {
    let mut subjects = reader.subjects().iter();
    let at = subjects.position(|subject| subject.name == threshold.subject())?;
    let metric = reader.subjects()[at].catalogue.find(threshold.metric())?;
    Some((at, metric))
}

/// Draws the limit of a threshold into the chart of its metric, or into a new chart.
fn add_threshold(reader: &Reader, threshold: &Threshold, limit: Limit, charts: &mut Vec<Chart>) {
    let Some((at, metric)) = metric_of(reader, threshold) else {
        return;
    };
    let words = metric_words(metric.name);
    let line = || line(&words, at, metric, Statistic::Value);
    let shown = charts
        .iter_mut()
        .find(|chart| chart.shows(at, threshold.metric()));
    if let Some(chart) = shown {
        chart.limits.push(limit);
        return;
    }
    let mut chart = match metric.source {
        MetricSource::Distribution(_) => bands(at, metric),
        // The limit on a count of the whole run does not fit the axis of a rate per second.
        MetricSource::Counter(_) | MetricSource::Sum(..) | MetricSource::Difference(..) => {
            let title = format!("{}, per second", capital(&words));
            let drawn = charts.iter().any(|chart| {
                let of = |line: &Line| matches!(line.probe, LineSource::PerSecond(of, shown) if of == at && shown.name == metric.name);
                chart.lines.iter().any(of)
            });
            if drawn {
                return;
            }
            charts.push(Chart::new(&title, at, metric.unit).with([line().per_second()]));
            return;
        }
        _ => Chart::new(&capital(&words), at, metric.unit).with([line()]),
    };
    chart.limits.push(limit);
    charts.push(chart);
}
