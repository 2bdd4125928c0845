//! Evaluation of thresholds over a run, window by window.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Comparison, Resolved, Threshold, ThresholdError, ThresholdFigure};
use crate::clock_error::ClockError;
use crate::metric::{Catalogue, MetricSource, Statistic, Unit};
use crate::recorder::Window;
use crate::tester;
use crate::totals::{Totals, WINDOW_SECONDS_MIN};

/// Result of a threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThresholdResult {
    /// The threshold as written.
    pub text: String,
    /// Subject whose metric was read: a population, `server` or `tester`.
    pub subject: String,
    /// Measured value, in `unit`; `None` if there was no data.
    pub value: Option<f64>,
    /// Statistic that was compared, such as `mean` or `p95`; `None` if the metric has only one
    /// figure.
    #[serde(default)]
    pub statistic: Option<String>,
    /// The unit of `value` and `limit`.
    pub unit: Unit,
    /// Limit that the value was compared with, in `unit`.
    pub limit: f64,
    /// True if the threshold held. It did not without data, and if it is undecided.
    pub passed: bool,
    /// Number of the worst window, for thresholds that read the worst window.
    pub window: Option<u64>,
    /// True if there was no data.
    pub no_data: bool,
    /// True if the threshold is implied: see [`implied_thresholds`](super::implied_thresholds) and
    /// [`Judge::with`].
    pub implied: bool,
    /// True if it reads lost packets, and the result could differ without the packets that were
    /// lost in the tester itself or in this machine's kernel.
    pub in_doubt: bool,
    /// True if the value is a delay between clients on different runners, and the error of their
    /// clocks leaves the result open: see [`ClockError::decides`]. The threshold neither held nor
    /// failed.
    #[serde(default)]
    pub undecided: bool,
    /// Maximum error of the value in seconds, if it is a delay between clients on different
    /// runners. `None` if the error is unknown, and for any other value.
    #[serde(default)]
    pub clock_error: Option<f64>,
}

impl ThresholdResult {
    /// True if the threshold was decided and did not hold.
    pub fn has_failed(&self) -> bool {
        !self.passed && !self.undecided
    }
}

/// Evaluates thresholds. Its size does not depend on the number of windows.
#[derive(Clone, Debug)]
pub struct Judge {
    watched: Vec<JudgedThreshold>,
    warm_up_windows: u64,
}

#[derive(Clone, Debug)]
struct JudgedThreshold {
    threshold: Threshold,
    resolved: Resolved,
    implied: bool,
    worst: Option<WorstWindow>,
    /// Client count including the warm-up, for thresholds on client counts.
    clients: Option<i64>,
    /// For thresholds on lost packets in the worst window: lost and expected packets of the window
    /// that decides whether the tester's own losses could have changed the result.
    decisive_losses: Option<Losses>,
}

#[derive(Clone, Copy, Debug)]
struct WorstWindow {
    window: u64,
    value: f64,
}

/// Lost packets and the number they are compared with.
#[derive(Clone, Copy, Debug)]
struct Losses {
    lost: f64,
    /// Denominator of the loss ratio; 1 if the threshold reads the number of lost packets.
    of: f64,
}

impl Losses {
    /// Number of lost packets above the limit.
    fn excess(self, limit: f64) -> f64 {
        self.lost - limit * self.of
    }
}

impl Judge {
    /// Creates a judge of `thresholds` and of the [implied](super::implied_thresholds) ones.
    ///
    /// `.worst` ignores the first `warm_up_windows` windows; the totals passed to [`Judge::finish`]
    /// must exclude them too. Client counts include them.
    pub fn new(
        thresholds: Vec<Threshold>,
        subjects: &[(&str, Catalogue)],
        warm_up_windows: u64,
    ) -> Result<Judge, ThresholdError> {
        let implied = super::implied_thresholds(&thresholds, subjects);
        let implied = implied.iter().map(|text| Threshold::parse(text));
        let implied = implied.collect::<Result<Vec<_>, _>>()?;
        // Explicit thresholds first, in their order.
        let explicit = thresholds.into_iter().map(|threshold| (threshold, false));
        let all = explicit.chain(implied.into_iter().map(|threshold| (threshold, true)));
        let watched =
            all.map(|(threshold, implied)| JudgedThreshold::new(threshold, implied, subjects));
        Ok(Judge {
            watched: watched.collect::<Result<_, _>>()?,
            warm_up_windows,
        })
    }

    /// Adds an implied threshold, such as `viewers.received > 0`, unless an explicit threshold
    /// bounds that metric on the same side or exactly.
    ///
    /// # Errors
    /// The threshold cannot be parsed, or there is no such population or metric.
    pub fn with(
        mut self,
        text: &str,
        subjects: &[(&str, Catalogue)],
    ) -> Result<Judge, ThresholdError> {
        let threshold = Threshold::parse(text)?;
        let replaced = |watched: &JudgedThreshold| watched.threshold.replaces(&threshold);
        if !self.watched.iter().any(replaced) {
            let watched = JudgedThreshold::new(threshold, true, subjects)?;
            self.watched.push(watched);
        }
        Ok(self)
    }

    /// Returns the result of the `number`-th threshold, in the order in which they were given, if
    /// it is violated so far. Without data it is not violated yet, nor if it is undecided.
    /// `clocks` returns the error of delays between clients.
    pub fn violated(
        &self,
        number: usize,
        totals: &BTreeMap<String, Totals>,
        clocks: impl FnOnce() -> ClockError,
    ) -> Option<ThresholdResult> {
        let watched = self.watched.get(number)?;
        let ours = lost_on_this_machine(totals, watched.threshold.subject());
        let mut result = watched.result(totals, ours, ClockError::NONE);
        if result.has_failed() && watched.resolved.is_between_clients() {
            result = watched.result(totals, ours, clocks());
        }
        (result.has_failed() && !result.no_data).then_some(result)
    }

    /// Adds a window that lasted `seconds`, with the figures of each subject.
    pub fn window(&mut self, index: u64, seconds: f64, subjects: &BTreeMap<String, Window>) {
        // A run may have no other window, so the first one is judged whatever its length.
        let judged = index == 0 || seconds >= WINDOW_SECONDS_MIN;
        for watched in &mut self.watched {
            let window = subjects.get(watched.threshold.subject());
            if let Some(clients) = window.and_then(|window| watched.resolved.clients(window)) {
                *watched.clients.get_or_insert(0) += clients;
                if watched.threshold.worst && judged {
                    watched.update_worst(index, clients as f64);
                }
            }
        }
        if index < self.warm_up_windows || !judged {
            return;
        }
        let mut figures: BTreeMap<&str, Totals> = BTreeMap::new();
        let of_the_rest =
            |watched: &&mut JudgedThreshold| watched.threshold.worst && watched.clients.is_none();
        for watched in self.watched.iter_mut().filter(of_the_rest) {
            let Some((name, window)) = subjects.get_key_value(watched.threshold.subject()) else {
                continue;
            };
            let catalogue = watched.resolved.catalogue;
            let totals = figures
                .entry(name)
                .or_insert_with(|| Totals::of_window(catalogue, window, seconds));
            let Some(value) = watched.resolved.value(totals) else {
                continue;
            };
            watched.update_worst(index, value);
            let (comparison, limit) = (watched.threshold.comparison, watched.resolved.limit);
            if let Some(losses) = watched.resolved.losses(totals) {
                let excess = losses.excess(limit);
                let harder = |other: Losses| match comparison {
                    Comparison::Greater | Comparison::AtLeast => excess < other.excess(limit),
                    Comparison::Equal => excess.abs() > other.excess(limit).abs(),
                    Comparison::NotEqual => excess.abs() < other.excess(limit).abs(),
                    Comparison::Less | Comparison::AtMost => excess > other.excess(limit),
                };
                if watched.decisive_losses.is_none_or(harder) {
                    watched.decisive_losses = Some(losses);
                }
            }
        }
    }

    /// Returns the result of each threshold: the explicit ones in their order, then the implied
    /// ones. The implied threshold on content is omitted if the correct content is unknown.
    ///
    /// `totals` are the figures of the run without its warm-up. The subject `tester`, if present,
    /// states how many packets the tester itself and this machine's kernel dropped. `clocks` is the
    /// error of delays between clients.
    pub fn finish(
        &self,
        totals: &BTreeMap<String, Totals>,
        clocks: ClockError,
    ) -> Vec<ThresholdResult> {
        self.watched
            .iter()
            .filter_map(|watched| {
                let ours = lost_on_this_machine(totals, watched.threshold.subject());
                let result = watched.result(totals, ours, clocks);
                let on_content = watched.threshold.metric() == super::WRONG;
                (!(result.implied && on_content && result.no_data)).then_some(result)
            })
            .collect()
    }
}

/// Maximum number of a population's lost packets that this machine lost, instead of the server or
/// the network: in the tester's queues, or in the kernel before them.
fn lost_on_this_machine(totals: &BTreeMap<String, Totals>, subject: &str) -> f64 {
    let Some(tester) = totals.get("tester") else {
        return 0.0;
    };
    // Overflow of sockets belongs to a known population, and so does the ring's if the ports have
    // been released. The rest of the ring's overflow and the kernel's drops may belong to any
    // population.
    let known = totals
        .get(subject)
        .and_then(|population| population.named("lost_in_tester", Statistic::Value))
        .unwrap_or_else(|| tester.counter(tester::SOCKET_OVERFLOW) as f64);
    let ring = tester.counter(tester::RING_OVERFLOW) - tester.counter(tester::RING_MISSED);
    let unknown = ring.max(0) + tester.counter(tester::SOFTNET_DROPS);
    known + unknown as f64
}

impl JudgedThreshold {
    fn new(
        threshold: Threshold,
        implied: bool,
        subjects: &[(&str, Catalogue)],
    ) -> Result<JudgedThreshold, ThresholdError> {
        Ok(JudgedThreshold {
            resolved: threshold.resolve(subjects)?,
            threshold,
            implied,
            worst: None,
            clients: None,
            decisive_losses: None,
        })
    }

    fn update_worst(&mut self, window: u64, value: f64) {
        let (comparison, limit) = (self.threshold.comparison, self.resolved.limit);
        let worse = |worst: WorstWindow| {
            comparison.badness(value, limit) > comparison.badness(worst.value, limit)
        };
        if self.worst.is_none_or(worse) {
            self.worst = Some(WorstWindow { window, value });
        }
    }

    fn result(
        &self,
        totals: &BTreeMap<String, Totals>,
        ours: f64,
        clocks: ClockError,
    ) -> ThresholdResult {
        let (comparison, limit) = (self.threshold.comparison, self.resolved.limit);
        let totals = totals.get(self.threshold.subject());
        let (value, window, losses) = if self.threshold.worst {
            let value = self.worst.map(|worst| worst.value);
            (
                value,
                self.worst.map(|worst| worst.window),
                self.decisive_losses,
            )
        } else {
            let measured = totals.and_then(|totals| self.resolved.value(totals));
            // Without a measured second, nothing is known of clients either, unless some were
            // counted in the warm-up.
            let clients = self.clients.map(|clients| clients as f64);
            let counted = clients.filter(|clients| *clients > 0.0 || measured.is_some());
            let value = counted.or(measured);
            let losses = totals.and_then(|totals| self.resolved.losses(totals));
            (value, None, losses)
        };
        let clocks = match self.resolved.is_between_clients() {
            true => clocks,
            false => ClockError::NONE,
        };
        let undecided = value.is_some_and(|value| !clocks.decides(value, limit));
        ThresholdResult {
            text: self.threshold.text.clone(),
            subject: self.threshold.subject.text.clone(),
            value,
            statistic: self.threshold.statistic_name(&self.resolved.reads),
            unit: self.resolved.unit,
            limit,
            passed: !undecided && value.is_some_and(|value| comparison.holds(value, limit)),
            window,
            no_data: value.is_none(),
            implied: self.implied,
            in_doubt: losses.is_some_and(|losses| could_differ(comparison, limit, losses, ours)),
            undecided,
            clock_error: clocks.seconds().filter(|_| !clocks.is_none()),
        }
    }
}

/// True if the comparison could have another result if up to `ours` of the lost packets were lost
/// on this machine.
fn could_differ(comparison: Comparison, limit: f64, losses: Losses, ours: f64) -> bool {
    let ours = ours.min(losses.lost).max(0.0);
    if ours == 0.0 {
        return false;
    }
    let highest = losses.lost / losses.of;
    let lowest = (losses.lost - ours) / losses.of;
    match comparison {
        // Between the two there are values that equal the limit and values that do not.
        Comparison::Equal | Comparison::NotEqual => lowest <= limit && limit <= highest,
        _ => comparison.holds(highest, limit) != comparison.holds(lowest, limit),
    }
}

impl Resolved {
    /// True if the figure is a delay that compares the clocks of two clients.
    fn is_between_clients(&self) -> bool {
        match &self.reads {
            ThresholdFigure::Metric(metric, statistic) => {
                metric.between_clients && *statistic != Statistic::Count
            }
            ThresholdFigure::Failures(_) => false,
        }
    }

    /// Returns the lost packets behind the figure, or `None` if it does not read lost packets.
    fn losses(&self, totals: &Totals) -> Option<Losses> {
        let ThresholdFigure::Metric(metric, Statistic::Value) = self.reads else {
            return None;
        };
        let (expected, received, share) = match metric.source {
            MetricSource::LossRatio(expected, received) => (expected, received, true),
            MetricSource::Difference(expected, received) => (expected, received, false),
            _ => return None,
        };
        let expected = totals.counter(expected) as f64;
        let lost = expected - totals.counter(received) as f64;
        let of = if share { expected } else { 1.0 };
        (of > 0.0).then_some(Losses { lost, of })
    }
}
