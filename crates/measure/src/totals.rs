//! Figures of a whole run or a single window, for reports and thresholds.

use std::collections::BTreeMap;

use crate::histogram::Sparse;
pub use crate::metric::Statistic;
use crate::metric::{Catalogue, CounterId, HistogramId, Metric, MetricSource};
use crate::recorder::Window;
use crate::time::Time;

/// Minimum length, in seconds, of a window that is judged, charted or compared as a whole one: a
/// rate or a share over a few milliseconds is far too large, or zero.
pub const WINDOW_SECONDS_MIN: f64 = 0.5;

/// Mean, minimum and maximum of a gauge that is sampled once a window.
///
/// The mean is weighted by the windows' lengths. A gauge that is itself an average over a window,
/// such as cores in use, has its extremes over intervals of at least [`WINDOW_SECONDS_MIN`]: a
/// shorter window is joined with the next one, or with the previous one if it is the last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GaugeFigures {
    /// Extremes of all windows, including short ones.
    any: Option<Extremes>,
    /// Sum over the windows of length zero, and their number.
    untimed: (f64, u64),
    /// Value times seconds, and seconds, of all other windows.
    weighted: Integral,
    /// Extremes of the completed intervals, except the last.
    over_time: Option<Extremes>,
    /// The last completed interval.
    last: Integral,
    /// Windows since then, which are not long enough yet.
    rest: Integral,
}

/// Lowest and highest value.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Extremes {
    min: f64,
    max: f64,
}

impl Extremes {
    fn with(before: Option<Extremes>, value: f64) -> Extremes {
        let (min, max) = before.map_or((value, value), |before| (before.min, before.max));
        Extremes {
            min: min.min(value),
            max: max.max(value),
        }
    }
}

/// Integral of a value over time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Integral {
    sum: f64,
    seconds: f64,
}

impl Integral {
    fn add(&mut self, value: f64, seconds: f64) {
        self.sum += value * seconds;
        self.seconds += seconds;
    }

    fn mean(self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.sum / self.seconds)
    }
}

impl GaugeFigures {
    fn add(&mut self, value: f64, seconds: f64) {
        self.any = Some(Extremes::with(self.any, value));
        if seconds.is_nan() || seconds <= 0.0 || seconds.is_infinite() {
            self.untimed.0 += value;
            self.untimed.1 += 1;
            return;
        }
        self.weighted.add(value, seconds);
        self.rest.add(value, seconds);
        if self.rest.seconds >= WINDOW_SECONDS_MIN {
            if let Some(mean) = self.last.mean() {
                self.over_time = Some(Extremes::with(self.over_time, mean));
            }
            self.last = std::mem::take(&mut self.rest);
        }
    }

    /// Mean over the time of the windows in which the gauge was sampled.
    pub fn mean(&self) -> Option<f64> {
        let any = self.any?;
        let (sum, count) = self.untimed;
        let mean = self.weighted.mean().unwrap_or(sum / count as f64);
        // Keeps rounding errors from changing the mean of a constant gauge.
        Some(mean.max(any.min).min(any.max))
    }

    /// Smallest value of any window, including short ones.
    pub fn min(&self) -> Option<f64> {
        Some(self.any?.min)
    }

    /// Largest value of any window, including short ones.
    pub fn max(&self) -> Option<f64> {
        Some(self.any?.max)
    }

    /// Smallest mean of any interval of at least [`WINDOW_SECONDS_MIN`], or of the whole time if
    /// that is shorter.
    pub fn min_over_time(&self) -> Option<f64> {
        let found = self.extremes_over_time().or(self.any)?;
        Some(found.min.max(self.any?.min).min(self.mean()?))
    }

    /// Largest mean of any interval of at least [`WINDOW_SECONDS_MIN`], or of the whole time if
    /// that is shorter.
    pub fn max_over_time(&self) -> Option<f64> {
        let found = self.extremes_over_time().or(self.any)?;
        Some(found.max.min(self.any?.max).max(self.mean()?))
    }

    fn extremes_over_time(&self) -> Option<Extremes> {
        let last = Integral {
            sum: self.last.sum + self.rest.sum,
            seconds: self.last.seconds + self.rest.seconds,
        };
        Some(Extremes::with(self.over_time, last.mean()?))
    }
}

/// Maximum time after the stop, in seconds, at which a window may end and still belong to the time
/// before the stop: a loop ends its window on its next turn.
const STOP_TOLERANCE: f64 = 0.05;

/// Measured time of a window that lasted `seconds`: all of it, or `None` if the window began after
/// the run was asked to stop or continued after that. It is unknown how many of such a window's
/// counts precede the stop.
pub fn measured_seconds(begins: Time, seconds: f64, stopped_at: Time) -> Option<f64> {
    let before = stopped_at.since(begins).as_secs_f64();
    let counts = begins < stopped_at && seconds <= before + STOP_TOLERANCE;
    (counts || seconds == 0.0).then_some(seconds)
}

/// Figures of one subject over several windows.
///
/// Their size does not depend on the number of windows.
#[derive(Clone, Debug)]
pub struct Totals {
    catalogue: Catalogue,
    seconds: f64,
    counters: Vec<i64>,
    /// The part of `counters` counted within `seconds`, without the shutdown of the run.
    timed: Vec<i64>,
    gauges: Vec<GaugeFigures>,
    /// Sparse, because most totals cover one window and are read once: a [`crate::Histogram`] would
    /// be too large for that.
    histograms: BTreeMap<HistogramId, Sparse>,
    failures: BTreeMap<String, u64>,
}

impl Totals {
    /// Creates empty totals.
    pub fn new(catalogue: Catalogue) -> Totals {
        Totals {
            catalogue,
            seconds: 0.0,
            counters: vec![0; catalogue.counters()],
            timed: vec![0; catalogue.counters()],
            gauges: vec![GaugeFigures::default(); catalogue.gauges()],
            histograms: BTreeMap::new(),
            failures: BTreeMap::new(),
        }
    }

    /// Returns the figures of a single window.
    pub fn of_window(catalogue: Catalogue, window: &Window, seconds: f64) -> Totals {
        let mut totals = Totals::new(catalogue);
        totals.add(window, seconds);
        totals
    }

    /// Adds a window that lasted `seconds`.
    pub fn add(&mut self, window: &Window, seconds: f64) {
        self.seconds += seconds;
        self.add_shutdown(window);
        for (ours, theirs) in self.timed.iter_mut().zip(&window.counters) {
            *ours += theirs;
        }
        for (ours, theirs) in self.gauges.iter_mut().zip(&window.gauges) {
            if let Some(value) = theirs {
                ours.add(*value, seconds);
            }
        }
    }

    /// Adds a window of the shutdown, in which sessions disconnect and packets in flight still
    /// arrive. It counts towards counters, distributions and failures, but not towards rates and
    /// means of gauges, which cover the time before.
    pub fn add_shutdown(&mut self, window: &Window) {
        for (ours, theirs) in self.counters.iter_mut().zip(&window.counters) {
            *ours += theirs;
        }
        for (&id, sparse) in &window.histograms {
            self.histograms.entry(id).or_default().merge(sparse);
        }
        for (reason, count) in &window.failures {
            *self.failures.entry(reason.clone()).or_default() += count;
        }
    }

    /// Adds what counts of a window of the warm-up: the counters of the whole run
    /// ([`Catalogue::whole_run`]), and with `starts` also the starts of clients, if all of them
    /// start in the warm-up.
    pub fn add_warm_up(&mut self, window: &Window, starts: bool) {
        for id in self.catalogue.whole_run() {
            let index = usize::from(id.0);
            if let (Some(ours), Some(theirs)) =
                (self.counters.get_mut(index), window.counters.get(index))
            {
                *ours += theirs;
            }
        }
        if starts {
            self.add_starts(window);
        }
    }

    /// Adds only the distributions of the starts of clients ([`Catalogue::starts`]) of a window.
    pub fn add_starts(&mut self, window: &Window) {
        for id in self.catalogue.starts() {
            if let Some(sparse) = window.histograms.get(&id) {
                self.histograms.entry(id).or_default().merge(sparse);
            }
        }
    }

    /// Adds a window that began at `begins`, of a run that was asked to stop at `stopped_at`: with
    /// [`Totals::add`] if it ended before the stop, otherwise with [`Totals::add_shutdown`].
    pub fn add_until(&mut self, window: &Window, begins: Time, seconds: f64, stopped_at: Time) {
        match measured_seconds(begins, seconds, stopped_at) {
            Some(seconds) => self.add(window, seconds),
            None => self.add_shutdown(window),
        }
    }

    /// Metrics of these figures.
    pub fn catalogue(&self) -> Catalogue {
        self.catalogue
    }

    /// Total length of the windows, in seconds.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Value of a counter, or 0 if the catalogue does not contain it.
    pub fn counter(&self, id: CounterId) -> i64 {
        self.counters.get(usize::from(id.0)).copied().unwrap_or(0)
    }

    /// Clients that failed, by reason.
    pub fn failures(&self) -> &BTreeMap<String, u64> {
        &self.failures
    }

    /// Values of a distribution, in recorded units ([`crate::metric::Unit::scale`]). `None` if
    /// there are no values, or if the metric is not a distribution.
    pub fn distribution(&self, metric: &Metric) -> Option<&Sparse> {
        match metric.source {
            MetricSource::Distribution(id) => self.histograms.get(&id),
            _ => None,
        }
    }

    /// Returns a figure in the metric's own unit (seconds, bit/s, a share from 0 to 1).
    ///
    /// `None` if there is no data (a loss ratio without expected packets, a distribution without
    /// values), or if the metric has no such figure (a counter has no quantile).
    pub fn figure(&self, metric: &Metric, statistic: Statistic) -> Option<f64> {
        let counter = |id: CounterId| self.counters[usize::from(id.0)] as f64;
        match metric.source {
            MetricSource::Distribution(id) => {
                distribution_figure(self.histograms.get(&id)?, metric, statistic)
            }
            MetricSource::Gauge(id, _) => {
                let gauge = &self.gauges[usize::from(id.0)];
                let over_time = metric.unit.is_over_time();
                match statistic {
                    Statistic::Min if over_time => gauge.min_over_time(),
                    Statistic::Max if over_time => gauge.max_over_time(),
                    Statistic::Value | Statistic::Mean => gauge.mean(),
                    Statistic::Min => gauge.min(),
                    Statistic::Max => gauge.max(),
                    Statistic::Quantile(_) | Statistic::Count => None,
                }
            }
            _ if statistic != Statistic::Value => None,
            MetricSource::Counter(id) => Some(counter(id)),
            MetricSource::Sum(a, b) => Some(counter(a) + counter(b)),
            MetricSource::Difference(a, b) => Some(counter(a) - counter(b)),
            MetricSource::LossRatio(..)
            | MetricSource::WrongShare(..)
            | MetricSource::Share(..) => {
                let (part, whole) = self.share(metric.source)?;
                (whole > 0.0).then(|| part / whole)
            }
            MetricSource::Rate(a, factor) => (self.seconds > 0.0).then(|| {
                let timed = self.timed[usize::from(a.0)] as f64;
                timed * f64::from(factor) / self.seconds
            }),
            // Negative powers divide: 10^9 is exact in binary, 10^-9 is not.
            MetricSource::Scaled(a, power) if power < 0 => Some(counter(a) / 10f64.powi(-power)),
            MetricSource::Scaled(a, power) => Some(counter(a) * 10f64.powi(power)),
        }
    }

    /// Returns numerator and denominator of a share. `None` for a source of another kind.
    fn share(&self, source: MetricSource) -> Option<(f64, f64)> {
        let counter = |id: CounterId| self.counter(id) as f64;
        match source {
            MetricSource::LossRatio(a, b) => Some((counter(a) - counter(b), counter(a))),
            MetricSource::WrongShare(all, right, less) => {
                let all: f64 = all.iter().copied().map(counter).sum();
                Some((all - (counter(right) - counter(less)), all))
            }
            MetricSource::Share(a, b) => Some((counter(a), counter(a) + counter(b))),
            _ => None,
        }
    }

    /// Returns a figure of several subjects as if they were one: derived metrics are computed from
    /// the summed counters, and distributions are merged. Subjects without the metric are ignored.
    /// `None` if there is no data, or if more than one subject has the metric and it is a gauge.
    pub fn pooled(all: &[Totals], name: &str, statistic: Statistic) -> Option<f64> {
        let of_it: Vec<(&Totals, &Metric)> = all
            .iter()
            .filter_map(|totals| Some((totals, totals.catalogue.find(name)?)))
            .collect();
        let (first, metric) = *of_it.first()?;
        if of_it.len() == 1 {
            return first.figure(metric, statistic);
        }
        let mut merged = Sparse::default();
        // Numerator and denominator.
        let (mut above, mut below) = (0.0, 0.0);
        let mut sum = None;
        for (totals, metric) in of_it {
            if let Some((part, whole)) = totals.share(metric.source) {
                above += part;
                below += whole;
                continue;
            }
            match metric.source {
                MetricSource::Distribution(id) => {
                    if let Some(distribution) = totals.histograms.get(&id) {
                        merged.merge(distribution);
                    }
                }
                MetricSource::Gauge(..) => return None,
                _ => {
                    if let Some(value) = totals.figure(metric, statistic) {
                        *sum.get_or_insert(0.0) += value;
                    }
                }
            }
        }
        match metric.source {
            MetricSource::Distribution(_) => distribution_figure(&merged, metric, statistic),
            _ if below > 0.0 && statistic == Statistic::Value => Some(above / below),
            _ => sum,
        }
    }

    /// Returns a figure of the metric with this name; see [`Totals::figure`].
    pub fn named(&self, name: &str, statistic: Statistic) -> Option<f64> {
        self.catalogue
            .find(name)
            .and_then(|metric| self.figure(metric, statistic))
    }
}

fn distribution_figure(values: &Sparse, metric: &Metric, statistic: Statistic) -> Option<f64> {
    let scale = metric.unit.scale();
    let of = |value: u64| value as f64 * scale;
    match statistic {
        Statistic::Count => Some(values.count() as f64),
        _ if values.buckets.is_empty() => None,
        Statistic::Value | Statistic::Mean => values.mean().map(|mean| mean * scale),
        Statistic::Min => Some(of(values.min)),
        Statistic::Max => Some(of(values.max)),
        Statistic::Quantile(quantile) => values.quantile(quantile).map(of),
    }
}

#[cfg(test)]
mod tests;
