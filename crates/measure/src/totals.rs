//! The figures of a whole run (or of one window), out of which reports and thresholds read.

use std::collections::BTreeMap;

use crate::histogram::Sparse;
pub use crate::metric::Statistic;
use crate::metric::{Catalogue, CounterId, HistogramId, Metric, MetricSource};
use crate::recorder::Window;
use crate::time::Time;

/// A window of less, in seconds, is not judged, charted or compared as a whole one: a rate or a
/// share over a few milliseconds is many times too much, or nothing.
pub const SHORTEST_WINDOW: f64 = 0.5;

/// Mean, minimum and maximum of a level that is taken once a window.
///
/// The mean is weighted by the windows' lengths. What is itself taken over a window's time, such as
/// cores in use, has its extremes over stretches of at least [`SHORTEST_WINDOW`]: a shorter window
/// is joined with the next one, or with the one before if it is the last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GaugeFigures {
    /// Extremes of all windows, short ones included.
    any: Option<Extremes>,
    /// The sum over windows of no length, and their number.
    untimed: (f64, u64),
    /// Value times seconds, and seconds.
    weighted: Stretch,
    /// Extremes of all stretches but the last.
    over_time: Option<Extremes>,
    /// The last stretch that is long enough.
    last: Stretch,
    /// Windows since then, not long enough yet.
    rest: Stretch,
}

/// The lowest and the highest value.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Extremes {
    min: f64,
    max: f64,
}

impl Extremes {
    fn with(before: Option<Extremes>, value: f64) -> Extremes {
        before.map_or(
            Extremes {
                min: value,
                max: value,
            },
            |before| Extremes {
                min: before.min.min(value),
                max: before.max.max(value),
            },
        )
    }
}

/// An integral over time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Stretch {
    sum: f64,
    seconds: f64,
}

impl Stretch {
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
        if self.rest.seconds >= SHORTEST_WINDOW {
            if let Some(mean) = self.last.mean() {
                self.over_time = Some(Extremes::with(self.over_time, mean));
            }
            self.last = std::mem::take(&mut self.rest);
        }
    }

    /// Mean over the time of the windows in which it was taken.
    pub fn mean(&self) -> Option<f64> {
        let any = self.any?;
        let (sum, count) = self.untimed;
        let mean = self.weighted.mean().unwrap_or(sum / count as f64);
        // A level that never changed is not off by a rounding error.
        Some(mean.max(any.min).min(any.max))
    }

    /// The smallest value of any window, however short.
    pub fn min(&self) -> Option<f64> {
        Some(self.any?.min)
    }

    /// The largest value of any window, however short.
    pub fn max(&self) -> Option<f64> {
        Some(self.any?.max)
    }

    /// The smallest mean of any stretch of at least [`SHORTEST_WINDOW`], or of all if that is
    /// shorter.
    pub fn min_over_time(&self) -> Option<f64> {
        let found = self.extremes_over_time().or(self.any)?;
        Some(found.min.max(self.any?.min).min(self.mean()?))
    }

    /// The largest mean of any stretch of at least [`SHORTEST_WINDOW`], or of all if that is
    /// shorter.
    pub fn max_over_time(&self) -> Option<f64> {
        let found = self.extremes_over_time().or(self.any)?;
        Some(found.max.min(self.any?.max).max(self.mean()?))
    }

    fn extremes_over_time(&self) -> Option<Extremes> {
        let last = Stretch {
            sum: self.last.sum + self.rest.sum,
            seconds: self.last.seconds + self.rest.seconds,
        };
        Some(Extremes::with(self.over_time, last.mean()?))
    }
}

/// How much later than the stop a window may end that still counts as of the time before it, in
/// seconds: a loop ends its window when it gets round to it.
const LATE_END: f64 = 0.05;

/// How long of a window of `seconds` from `begins` counts as time of measurement: all of it, or
/// `None` if it began after the run was told to stop, or goes on after that. How much of such a
/// window's counts came before the stop is not known.
pub fn seconds_until(begins: Time, seconds: f64, stopped_at: Time) -> Option<f64> {
    let before = stopped_at.since(begins).as_secs_f64();
    let counts = begins < stopped_at && seconds <= before + LATE_END;
    (counts || seconds == 0.0).then_some(seconds)
}

/// What was seen of one subject over several windows.
///
/// Its size does not depend on how many windows were added.
#[derive(Clone, Debug)]
pub struct Totals {
    catalogue: Catalogue,
    seconds: f64,
    counters: Vec<i64>,
    /// What of it was counted in `seconds`: all but what came while the run was being ended.
    timed: Vec<i64>,
    gauges: Vec<GaugeFigures>,
    /// Sparse, because most figures are of one window, and looked at once: nothing so large as a
    /// [`crate::Histogram`] is made for them.
    histograms: BTreeMap<HistogramId, Sparse>,
    failures: BTreeMap<String, u64>,
}

impl Totals {
    /// Nothing seen yet.
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

    /// The figures of a single window.
    pub fn of_window(catalogue: Catalogue, window: &Window, seconds: f64) -> Totals {
        let mut totals = Totals::new(catalogue);
        totals.add(window, seconds);
        totals
    }

    /// Adds a window that lasted so many seconds.
    pub fn add(&mut self, window: &Window, seconds: f64) {
        self.seconds += seconds;
        self.add_closing(window);
        for (ours, theirs) in self.timed.iter_mut().zip(&window.counters) {
            *ours += theirs;
        }
        for (ours, theirs) in self.gauges.iter_mut().zip(&window.gauges) {
            if let Some(value) = theirs {
                ours.add(*value, seconds);
            }
        }
    }

    /// Adds a window in which the run was already being ended: sessions say goodbye, and what was
    /// on its way still arrives. That counts, but in no rate and no mean level: those are of the
    /// time before.
    pub fn add_closing(&mut self, window: &Window) {
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

    /// Adds a window that began at `begins`, of a run that was told to stop at `stopped_at`: as
    /// [`Totals::add`] does where it ended before that, or as [`Totals::add_closing`].
    pub fn add_until(&mut self, window: &Window, begins: Time, seconds: f64, stopped_at: Time) {
        match seconds_until(begins, seconds, stopped_at) {
            Some(seconds) => self.add(window, seconds),
            None => self.add_closing(window),
        }
    }

    /// The metrics these figures are of.
    pub fn catalogue(&self) -> Catalogue {
        self.catalogue
    }

    /// How long the windows lasted together.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// What a counter came to. Zero for one that the catalogue does not have.
    pub fn counter(&self, id: CounterId) -> i64 {
        self.counters.get(usize::from(id.0)).copied().unwrap_or(0)
    }

    /// Clients that failed, by reason.
    pub fn failures(&self) -> &BTreeMap<String, u64> {
        &self.failures
    }

    /// The values of a distribution, in its recorded steps ([`crate::metric::Unit::scale`]). `None`
    /// where there are none, or the metric is no distribution.
    pub fn distribution(&self, metric: &Metric) -> Option<&Sparse> {
        match metric.source {
            MetricSource::Distribution(id) => self.histograms.get(&id),
            _ => None,
        }
    }

    /// A figure in the metric's own unit (seconds, bit/s, a share from 0 to 1).
    ///
    /// `None` where there is no data (nothing expected, so no loss ratio; a distribution without
    /// values), or the metric has no such figure (a counter has no quantile).
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
            MetricSource::LossRatio(a, b) => {
                (counter(a) > 0.0).then(|| (counter(a) - counter(b)) / counter(a))
            }
            MetricSource::NotRight(all, right, less) => {
                let all: f64 = all.iter().copied().map(counter).sum();
                (all > 0.0).then(|| (all - (counter(right) - counter(less))) / all)
            }
            MetricSource::Share(a, b) => {
                let both = counter(a) + counter(b);
                (both > 0.0).then(|| counter(a) / both)
            }
            MetricSource::Rate(a, factor) => (self.seconds > 0.0).then(|| {
                let timed = self.timed[usize::from(a.0)] as f64;
                timed * f64::from(factor) / self.seconds
            }),
            // Divided where the power is negative: 10^-9 has no exact value, 10^9 has.
            MetricSource::Scaled(a, power) if power < 0 => Some(counter(a) / 10f64.powi(-power)),
            MetricSource::Scaled(a, power) => Some(counter(a) * 10f64.powi(power)),
        }
    }

    /// A figure of several subjects as if they were one: counters are added up before anything is
    /// worked out of them, distributions merged. Subjects without the metric do not count. `None`
    /// where there is no data, and of a level that more than one has.
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
        // What is divided, and by what.
        let (mut above, mut below) = (0.0, 0.0);
        let mut sum = None;
        for (totals, metric) in of_it {
            let counter = |id: CounterId| totals.counter(id) as f64;
            match metric.source {
                MetricSource::Distribution(id) => {
                    if let Some(distribution) = totals.histograms.get(&id) {
                        merged.merge(distribution);
                    }
                }
                MetricSource::Gauge(..) => return None,
                MetricSource::LossRatio(a, b) => {
                    above += counter(a) - counter(b);
                    below += counter(a);
                }
                MetricSource::NotRight(all, right, less) => {
                    let all: f64 = all.iter().copied().map(counter).sum();
                    above += all - (counter(right) - counter(less));
                    below += all;
                }
                MetricSource::Share(a, b) => {
                    above += counter(a);
                    below += counter(a) + counter(b);
                }
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

    /// The figure of the metric of that name; see [`Totals::figure`].
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
