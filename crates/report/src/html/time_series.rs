//! Time series of a run, from one pass over its windows. Only a few windows are in memory at a
//! time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use measure::load::Holds;
use measure::metric::{MetricSource, Statistic};
use measure::threshold::Comparison;
use measure::totals::WINDOW_SECONDS_MIN;
use measure::{Finding, Metric, Threshold, Totals, Window};
use runfile::{Reader, WindowRow};
use serde_json::{Value, json};

use super::charts::{Chart, LineSource, LossPlace, charts, health_value, metric_of};
use super::downsample::{Downsampled, rounded};
use super::heat_map::HeatMap;
use crate::ReportError;
use crate::loss::{self, PopulationLink, WhereLost};
use crate::metric_words::metric_words;
use crate::metrics::Metrics;
use crate::model::Report;
use crate::source::{holds, is_population};

/// Maximum numbers of shaded periods and of marked first failures.
const SHADES_MAX: usize = 400;
const FIRST_FAILURES_MAX: usize = 60;

/// Resolution of a run's charts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resolution {
    /// Maximum number of points of a line.
    points: usize,
    /// Maximum number of columns of a heat map.
    columns: usize,
}

impl Resolution {
    pub(super) const fn new(points: usize, columns: usize) -> Resolution {
        Resolution { points, columns }
    }
}

/// Charts of a run, with the data from its windows.
pub(super) struct TimeSeries {
    charts: Vec<Chart>,
    downsampled: Downsampled,
    heat_maps: BTreeMap<usize, HeatMap>,
    shaded: Vec<ShadedPeriod>,
    /// Maximum gap between two periods that are shaded as one.
    gap: f64,
    first_failures: BTreeMap<(String, String), f64>,
    threshold_failures: Vec<ThresholdFailure>,
    /// Number of packets that links dropped and that the population with this index has not missed
    /// yet. Packets of an outage are missed after it ends, in a later window.
    undetected_drops: BTreeMap<usize, u64>,
    end: f64,
    /// Health findings of the tester.
    health: Vec<Finding>,
    /// Times at which the user held the run's plan.
    holds: Holds,
    /// Time at which the run was asked to stop, in seconds. Later windows do not count for
    /// thresholds.
    duration: f64,
}

/// Period in which the tester crossed health bounds.
struct ShadedPeriod {
    from: f64,
    to: f64,
    bounds: BTreeSet<String>,
}

/// Windows in which a threshold did not hold.
pub(super) struct ThresholdFailure {
    subject: usize,
    metric: &'static Metric,
    statistic: Statistic,
    comparison: Comparison,
    limit: f64,
    /// Index of the threshold in the report.
    pub(super) threshold: usize,
    /// Sum of a counter so far.
    sum: f64,
    /// Start of the first window that exceeded the limit.
    pub(super) first: Option<f64>,
    /// Number of windows that exceeded the limit.
    pub(super) windows: u64,
    /// Number of windows with a value.
    pub(super) all: u64,
    /// True if the value adds up over the run. Only `first` is meaningful then.
    pub(super) adds_up: bool,
}

/// Figures of a window for each subject, by its index in the run file.
struct WindowFigures<'a> {
    row: &'a WindowRow,
    windows: Vec<Option<&'a Window>>,
    totals: Vec<Option<Totals>>,
    lost: Vec<Option<WhereLost>>,
}

impl<'a> WindowFigures<'a> {
    /// `undetected_drops` has the packets that links dropped earlier. It becomes the packets that
    /// links dropped up to the end of the window and that no population has missed.
    fn new(
        reader: &Reader,
        row: &'a WindowRow,
        undetected_drops: &mut BTreeMap<usize, u64>,
    ) -> WindowFigures<'a> {
        let subjects = reader.subjects();
        let windows: Vec<Option<&Window>> = subjects
            .iter()
            .map(|subject| row.subjects.get(&subject.name))
            .collect();
        let totals: Vec<Option<Totals>> = subjects
            .iter()
            .zip(&windows)
            .map(|(subject, window)| {
                Some(Totals::of_window(
                    subject.catalogue,
                    (*window)?,
                    row.seconds,
                ))
            })
            .collect();
        let metrics = |at: usize| totals[at].as_ref().map(Metrics::of).unwrap_or_default();
        let places = 0..subjects.len();
        let populations: Vec<usize> = places.filter(|&at| is_population(&subjects[at])).collect();
        let of_populations: Vec<Metrics> = populations.iter().map(|&at| metrics(at)).collect();
        let tester = subjects.iter().position(|subject| subject.kind == "tester");
        let tester = tester.map(metrics).unwrap_or_default();
        let dropped = |name: &str| {
            let at = subjects.iter().position(|subject| subject.name == name)?;
            let of = |name| totals[at].as_ref()?.named(name, Statistic::Value);
            Some((of("lost")? + of("overload").unwrap_or(0.0)).max(0.0) as u64)
        };
        let all: Vec<(&Metrics, Option<PopulationLink>)> = populations
            .iter()
            .zip(&of_populations)
            .map(|(&at, metrics)| {
                let mut link = PopulationLink::of(&subjects[at].name, dropped);
                if let Some(link) = &mut link {
                    link.dropped += undetected_drops.get(&at).copied().unwrap_or(0);
                }
                (metrics, link)
            })
            .collect();
        let (each, _) = loss::attribute(&all, &tester);
        let mut lost = vec![None; subjects.len()];
        for ((at, found), (_, link)) in populations.into_iter().zip(each).zip(all) {
            let missed = found.and_then(|lost| lost.on_link).unwrap_or(0);
            if let Some(link) = link {
                undetected_drops.insert(at, link.dropped - missed);
            }
            lost[at] = found;
        }
        WindowFigures {
            row,
            windows,
            totals,
            lost,
        }
    }

    fn figure(&self, at: usize, metric: &Metric, statistic: Statistic) -> Option<f64> {
        self.totals.get(at)?.as_ref()?.figure(metric, statistic)
    }

    fn lost(&self, at: usize, place: LossPlace) -> Option<f64> {
        let totals = self.totals.get(at)?.as_ref()?;
        let expected = totals.named("expected", Statistic::Value)?;
        let lost = (*self.lost.get(at)?)?;
        let packets = match place {
            LossPlace::Anywhere => Some(lost.lost),
            LossPlace::Elsewhere => lost.elsewhere,
            LossPlace::WayUp => lost.on_way_up,
            LossPlace::Kernel => lost.in_kernel,
            LossPlace::Link => lost.on_link,
            LossPlace::Tester => lost.in_tester,
        };
        (expected > 0.0).then_some(packets? as f64 / expected)
    }

    fn probe(&self, probe: &LineSource, holds: &Holds) -> Option<f64> {
        match probe {
            LineSource::Figure(at, metric, statistic) => self.figure(*at, metric, *statistic),
            LineSource::PerSecond(at, metric) => {
                Some(self.figure(*at, metric, Statistic::Value)? / self.row.seconds)
            }
            LineSource::Wanted(load) => {
                let length = Duration::try_from_secs_f64(self.row.seconds).unwrap_or_default();
                Some(holds.wanted(load, self.row.start + length) as f64)
            }
            LineSource::Lost(at, place) => self.lost(*at, *place),
            LineSource::OfBound(at, metric, statistic, bound) => {
                Some(self.figure(*at, metric, *statistic)? / bound)
            }
        }
    }
}

impl TimeSeries {
    /// Reads all windows of a run.
    pub(super) fn of(
        reader: &Reader,
        report: &Report,
        resolution: Resolution,
    ) -> Result<TimeSeries, ReportError> {
        let mut series = TimeSeries::new(reader, report, resolution);
        series.duration = report.run.duration;
        series.read_holds(reader)?;
        for row in reader.windows() {
            series.window(reader, &row?);
        }
        Ok(series)
    }

    /// Creates the charts of a run in progress, without windows.
    pub(super) fn new(reader: &Reader, report: &Report, resolution: Resolution) -> TimeSeries {
        let charts = charts(reader, report);
        let lines = charts.iter().map(|chart| chart.lines.len()).sum();
        let distributions = charts.iter().enumerate();
        let heat_maps = distributions
            .filter(|(_, chart)| chart.distribution().is_some())
            .map(|(at, _)| (at, HeatMap::new(resolution.columns)));
        TimeSeries {
            heat_maps: heat_maps.collect(),
            downsampled: Downsampled::new(lines, resolution.points),
            charts,
            shaded: Vec::new(),
            gap: 0.0,
            first_failures: BTreeMap::new(),
            threshold_failures: threshold_failures(reader, report),
            undetected_drops: BTreeMap::new(),
            end: 0.0,
            health: report.tester.health.clone(),
            holds: Holds::default(),
            duration: f64::INFINITY,
        }
    }

    /// Reads the times at which the user held the plan. Call it before each further window of a run
    /// in progress.
    pub(super) fn read_holds(&mut self, reader: &Reader) -> Result<(), ReportError> {
        self.holds = holds(reader)?;
        Ok(())
    }

    /// Adds a window.
    pub(super) fn window(&mut self, reader: &Reader, row: &WindowRow) {
        if row.seconds <= 0.0 {
            return;
        }
        let warm_up = reader.header().warm_up_windows();
        let begins = row.start.as_secs_f64();
        self.end = begins + row.seconds;
        let figures = WindowFigures::new(reader, row, &mut self.undetected_drops);
        let holds = &self.holds;
        let lines = self.charts.iter().flat_map(|chart| &chart.lines);
        let values: Vec<Option<f64>> = lines
            .map(|line| figures.probe(&line.probe, holds))
            .collect();
        // A share of the fraction of a second in which a run ends says nothing. Heat maps include
        // its values.
        if row.seconds >= WINDOW_SECONDS_MIN || row.index == 0 {
            self.downsampled.push(begins, row.seconds, &values);
        }
        for (at, heat) in &mut self.heat_maps {
            let chart = &self.charts[*at];
            let Some(metric) = chart.distribution() else {
                continue;
            };
            let MetricSource::Distribution(id) = metric.source else {
                continue;
            };
            let window = figures.windows.get(chart.subject).copied().flatten();
            let sparse = window.and_then(|window| window.histograms.get(&id));
            heat.push(begins, row.seconds, sparse, metric.unit.scale());
        }
        for (name, window) in &row.subjects {
            for reason in window.failures.keys() {
                let key = (name.clone(), reason.clone());
                if self.first_failures.len() < FIRST_FAILURES_MAX
                    || self.first_failures.contains_key(&key)
                {
                    self.first_failures.entry(key).or_insert(begins);
                }
            }
        }
        if row.index < warm_up {
            return;
        }
        if row.seconds >= WINDOW_SECONDS_MIN || row.index == warm_up {
            self.judge(reader, &figures);
        }
        // Windows after the end of the run are in no rate.
        let counts = begins < self.duration;
        let whole = row.seconds >= WINDOW_SECONDS_MIN || row.index == warm_up;
        let failures = self.threshold_failures.iter_mut().filter(|_| counts);
        // A sum includes short windows as well.
        for failure in failures.filter(|failure| whole || failure.adds_up) {
            failure.window(&figures, begins);
        }
    }

    fn judge(&mut self, reader: &Reader, figures: &WindowFigures<'_>) {
        let subjects = reader.subjects();
        let Some(at) = subjects.iter().position(|subject| subject.kind == "tester") else {
            return;
        };
        let catalogue = subjects[at].catalogue;
        let crossed = self
            .health
            .iter()
            .filter(|finding| match health_value(catalogue, finding) {
                Some((metric, statistic)) => figures
                    .figure(at, metric, statistic)
                    .is_some_and(|value| value > finding.limit),
                // A bound that is judged over the run: windows with anything to count are shaded.
                None => {
                    let name = finding.metric.split('.').nth(1).unwrap_or_default();
                    let value = catalogue
                        .find(name)
                        .and_then(|metric| figures.figure(at, metric, Statistic::Value));
                    finding.invalid && value.is_some_and(|value| value > 0.0)
                }
            });
        let bounds: BTreeSet<String> = crossed
            .map(|finding| metric_words(&finding.bound))
            .collect();
        if !bounds.is_empty() {
            let begins = figures.row.start.as_secs_f64();
            self.shade(begins, begins + figures.row.seconds, bounds);
        }
    }

    fn shade(&mut self, from: f64, to: f64, bounds: BTreeSet<String>) {
        let gap = self.gap + 1e-6;
        match self.shaded.last_mut() {
            Some(last) if from - last.to <= gap && (self.gap > 0.0 || last.bounds == bounds) => {
                last.to = to;
                last.bounds.extend(bounds);
            }
            _ => self.shaded.push(ShadedPeriod { from, to, bounds }),
        }
        if self.shaded.len() > SHADES_MAX {
            self.gap = (2.0 * self.gap).max(1.0);
            for shade in std::mem::take(&mut self.shaded) {
                self.shade(shade.from, shade.to, shade.bounds);
            }
        }
    }

    /// Returns the windows in which the threshold with this index did not hold.
    pub(super) fn since(&self, threshold: usize) -> Option<&ThresholdFailure> {
        self.threshold_failures
            .iter()
            .find(|failure| failure.threshold == threshold)
    }

    /// Returns the time of the first failure for each population and reason.
    pub(super) fn first_failures(&self) -> impl Iterator<Item = (&str, &str, f64)> {
        let firsts = self.first_failures.iter();
        firsts.map(|((population, reason), at)| (population.as_str(), reason.as_str(), *at))
    }

    /// Returns the data of the charts.
    pub(super) fn value(&self, reader: &Reader) -> Value {
        let mut number = 0;
        let mut shown = Vec::new();
        for (at, chart) in self.charts.iter().enumerate() {
            let mut lines = Vec::new();
            for line in &chart.lines {
                let is_there = match line.hide_if_zero {
                    true => self.downsampled.is_nonzero(number),
                    false => self.downsampled.has_values(number),
                };
                if is_there {
                    lines.push(json!({
                        "label": line.label,
                        "metric": line.metric,
                        "planned": line.planned,
                        "values": self.downsampled.line(number),
                    }));
                }
                number += 1;
            }
            let Some(subject) = reader.subjects().get(chart.subject) else {
                continue;
            };
            if lines.is_empty() {
                continue;
            }
            let limits = chart.limits.iter().map(
                |limit| json!({"value": limit.value, "text": limit.text, "passed": limit.passed}),
            );
            shown.push(json!({
                "title": chart.title,
                "subject": subject.name,
                "kind": subject.kind,
                "unit": chart.unit,
                "bands": chart.distribution().is_some(),
                "lines": lines,
                "limits": limits.collect::<Vec<_>>(),
                "note": chart.note,
                "heat": self.heat_maps.get(&at).map(HeatMap::value),
            }));
        }
        let shaded = self.shaded.iter().map(|shade| {
            let bounds: Vec<&str> = shade.bounds.iter().map(String::as_str).collect();
            json!([
                rounded(shade.from, 3),
                rounded(shade.to, 3),
                bounds.join(", ")
            ])
        });
        json!({
            "times": self.downsampled.times(),
            "step": self.downsampled.step,
            "end": rounded(self.end, 3),
            "shades": shaded.collect::<Vec<_>>(),
            "charts": shown,
        })
    }
}

impl ThresholdFailure {
    fn window(&mut self, figures: &WindowFigures<'_>, begins: f64) {
        let Some(mut value) = figures.figure(self.subject, self.metric, self.statistic) else {
            return;
        };
        self.all += 1;
        if self.adds_up {
            self.sum += value;
            value = self.sum;
        }
        if !self.comparison.holds(value, self.limit) {
            self.windows += 1;
            self.first.get_or_insert(begins);
        }
    }
}

/// Returns the thresholds whose failure is visible in windows.
fn threshold_failures(reader: &Reader, report: &Report) -> Vec<ThresholdFailure> {
    let mut all = Vec::new();
    for (of, found) in report.thresholds.iter().enumerate() {
        let Ok(threshold) = Threshold::parse(&found.threshold) else {
            continue;
        };
        let Some((at, metric)) = metric_of(reader, &threshold) else {
            continue;
        };
        let adds_up = matches!(
            metric.source,
            MetricSource::Counter(_)
                | MetricSource::Sum(..)
                | MetricSource::Difference(..)
                | MetricSource::Scaled(..)
        );
        let comparison = threshold.comparison();
        // A sum with a lower limit is too small at first, and a number of values adds up as well.
        let grows = matches!(
            comparison,
            Comparison::Greater | Comparison::AtLeast | Comparison::NotEqual
        );
        if adds_up && grows || threshold.statistic() == Statistic::Count {
            continue;
        }
        all.push(ThresholdFailure {
            subject: at,
            metric,
            statistic: threshold.statistic(),
            comparison,
            limit: found.limit,
            threshold: of,
            sum: 0.0,
            first: None,
            windows: 0,
            all: 0,
            adds_up: adds_up && !threshold.reads_worst_window(),
        });
    }
    all
}
