//! Health of the tester: it judges itself as strictly as the server.
//!
//! Each window of the run, except its warm-up, is checked against [`HealthBounds`]. The measurement
//! is invalid if a bound is crossed in more than a small share of the windows, if too many packets
//! were lost in the tester's own queues over the whole run, if a worker stalled once for too long,
//! or if file descriptors or ports ran out. Windows are judged, not averages: a mean would hide a
//! collapse late in a long run.

mod bounds;
mod check;
mod links;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::human;
use crate::metric::{Catalogue, CounterId, MetricSource, Statistic, Unit};
use crate::recorder::Window;
use crate::tester;
use crate::totals::{Totals, WINDOW_SECONDS_MIN};
use crate::verdict::figure_four_digits;
pub use bounds::HealthBounds;
use check::{Check, JudgedBy};
use links::{LinkLateness, Links};

/// A client that starts later than this after its due time counts as
/// [`tester::NOT_STARTED_IN_TIME`].
pub const LATE_START: Duration = Duration::from_secs(1);

/// Number of judged windows from which one bad window is always forgiven.
const FORGIVING_WINDOWS_MIN: u64 = 4;

/// Maximum number of ranges of consecutive windows that a reason lists.
const RANGES_LISTED_MAX: usize = 4;

/// Result of checking one bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The bound's key in a scenario, such as `lag_p99`.
    pub bound: String,
    /// Metric that is compared with the bound, such as `tester.lag.p99`.
    pub metric: String,
    /// The unit of `limit` and `worst`.
    pub unit: Unit,
    /// Limit that the bound sets.
    pub limit: f64,
    /// Worst value of any window, or the value of the run if the bound is judged over the run.
    /// `None` if the figure is unknown.
    pub worst: Option<f64>,
    /// Index of the worst window. `None` if the bound is judged over the run, or if the value was
    /// never above 0.
    pub worst_window: Option<u64>,
    /// Number of windows in which the bound was crossed. For a bound that is judged over the run:
    /// number of windows with a non-zero count.
    pub windows: u64,
    /// True if this finding makes the measurement invalid.
    pub invalid: bool,
}

/// Crossings of one bound.
#[derive(Clone, Debug, Default)]
struct Crossings {
    worst: Option<(f64, u64)>,
    crossed: u64,
    /// Ranges of consecutive windows in which the bound was crossed, as first and last. At most
    /// [`RANGES_LISTED_MAX`] + 1 are kept.
    ranges: Vec<(u64, u64)>,
}

impl Crossings {
    fn record_value(&mut self, value: f64, index: u64) {
        if self.worst.is_none_or(|(worst, _)| value > worst) {
            self.worst = Some((value, index));
        }
    }

    /// Counts each window once, even if called several times. Windows must come in order.
    fn record_crossing(&mut self, index: u64) {
        if self.ranges.last().is_some_and(|&(_, last)| index <= last) {
            return;
        }
        self.crossed += 1;
        let room = self.ranges.len() <= RANGES_LISTED_MAX;
        match self.ranges.last_mut() {
            Some((_, last)) if *last + 1 == index => *last = index,
            _ if room => self.ranges.push((index, index)),
            _ => {}
        }
    }

    /// Formats the windows: `window 3`, `windows 2, 5 to 7`.
    fn windows(&self) -> String {
        let stretch = |&(first, last): &(u64, u64)| match last - first {
            0 => first.to_string(),
            _ => format!("{first} to {last}"),
        };
        let named: Vec<String> = self
            .ranges
            .iter()
            .take(RANGES_LISTED_MAX)
            .map(stretch)
            .collect();
        let word = if self.crossed == 1 {
            "window"
        } else {
            "windows"
        };
        let more = match self.ranges.len() > RANGES_LISTED_MAX {
            true => " and later",
            false => "",
        };
        format!("{word} {}{more}", named.join(", "))
    }
}

/// Counters of a population that the health checks read.
#[derive(Clone, Debug)]
struct PopulationCounters {
    name: String,
    expected: Option<CounterId>,
    received: Option<CounterId>,
    started: Option<CounterId>,
}

/// Health of the tester so far. Its size does not depend on the number of windows.
#[derive(Clone, Debug)]
pub struct Health {
    bounds: HealthBounds,
    warm_up_windows: u64,
    populations: Vec<PopulationCounters>,
    links: Links,
    /// Number of judged windows.
    windows: u64,
    crossings: BTreeMap<Check, Crossings>,
    ring_overflow: i64,
    socket_overflow: i64,
    softnet_drops: i64,
    expected: i64,
    received: i64,
    late_clients: i64,
    started: i64,
    last_window: Vec<String>,
}

impl Health {
    /// Creates a health check without any windows. `subjects` are all subjects of the run. The
    /// first `warm_up_windows` windows are not judged.
    pub fn new(
        bounds: HealthBounds,
        subjects: &[(&str, Catalogue)],
        warm_up_windows: u64,
    ) -> Health {
        let counter = |catalogue: &Catalogue, name: &str| match catalogue.find(name)?.source {
            MetricSource::Counter(id) => Some(id),
            _ => None,
        };
        Health {
            bounds,
            warm_up_windows,
            populations: subjects
                .iter()
                .map(|(name, catalogue)| PopulationCounters {
                    name: (*name).to_owned(),
                    expected: counter(catalogue, "expected"),
                    received: counter(catalogue, "received"),
                    started: counter(catalogue, "started"),
                })
                .collect(),
            links: Links::of_subjects(subjects),
            windows: 0,
            crossings: BTreeMap::new(),
            ring_overflow: 0,
            socket_overflow: 0,
            softnet_drops: 0,
            expected: 0,
            received: 0,
            late_clients: 0,
            started: 0,
            last_window: Vec::new(),
        }
    }

    /// Adds a window that lasted `seconds`, with the figures of each subject, including `tester`.
    pub fn window(&mut self, index: u64, seconds: f64, subjects: &BTreeMap<String, Window>) {
        self.last_window.clear();
        let Some(window) = subjects.get("tester") else {
            return;
        };
        let tester = Totals::of_window(tester::TESTER_CATALOGUE, window, seconds);
        let counted = index >= self.warm_up_windows;
        // A run may have no other window, so the first one is judged whatever its length.
        let whole = seconds >= WINDOW_SECONDS_MIN || index == self.warm_up_windows;
        for check in Check::ALL {
            if let Some(value) = check.value(&tester) {
                self.check_value(check, value, index, counted, whole);
            }
        }
        self.check_links(subjects, index, seconds, counted);
        let overflow = tester
            .named("overflow", Statistic::Value)
            .unwrap_or_default() as i64;
        if overflow > 0 {
            let overflow = human::count(overflow as f64);
            self.last_window.push(format!(
                "{overflow} packets were lost in the tester's own queues (tester.overflow)"
            ));
        }
        if !counted {
            return;
        }
        self.windows += u64::from(whole);
        let softnet_drops = tester.counter(tester::SOFTNET_DROPS);
        let late = tester.counter(tester::NOT_STARTED_IN_TIME);
        for (check, count) in [
            (Check::Overflow, overflow),
            (Check::KernelDrops, softnet_drops),
            (Check::LateClients, late),
        ] {
            if count > 0 {
                self.crossings
                    .entry(check)
                    .or_default()
                    .record_crossing(index);
            }
        }
        self.ring_overflow += tester.counter(tester::RING_OVERFLOW);
        self.socket_overflow += tester.counter(tester::SOCKET_OVERFLOW);
        self.softnet_drops += softnet_drops;
        self.late_clients += late;
        for counters in &self.populations {
            let Some(window) = subjects.get(&counters.name) else {
                continue;
            };
            let read = |id: Option<CounterId>| {
                id.and_then(|id| window.counters.get(usize::from(id.0)).copied())
                    .unwrap_or(0)
            };
            self.expected += read(counters.expected);
            self.received += read(counters.received);
            self.started += read(counters.started);
        }
    }

    /// Checks a window's value against its bound.
    fn check_value(&mut self, check: Check, value: f64, index: u64, counted: bool, whole: bool) {
        let bound = check.bound(&self.bounds);
        let crossed = value > bound;
        if crossed {
            self.last_window.push(format!(
                "{} is {} ({})",
                check.description(),
                figure_four_digits(value, check.unit()),
                check.metric()
            ));
        }
        if !counted || (check.judged_by() == JudgedBy::ByWindows && !whole) {
            return;
        }
        let crossings = self.crossings.entry(check).or_default();
        crossings.record_value(value, index);
        if crossed {
            crossings.record_crossing(index);
        }
    }

    /// Checks the emulated links' figures of a window against their bounds.
    fn check_links(
        &mut self,
        subjects: &BTreeMap<String, Window>,
        index: u64,
        seconds: f64,
        counted: bool,
    ) {
        let Some(overload) = self.links.overload(subjects, seconds) else {
            return;
        };
        // A dropped packet counts however short the window was.
        self.check_value(Check::LinkOverload, overload, index, counted, true);
        if !counted {
            return;
        }
        for late in self.links.lateness(subjects, index, seconds) {
            self.check_lateness(late);
        }
    }

    fn check_lateness(&mut self, late: LinkLateness) {
        let (first, last) = late.windows;
        let crossed = late.p99 > Check::LinkLateness.bound(&self.bounds);
        // Earlier windows of the range had too few packets to be judged on their own.
        let crossings = self.crossings.entry(Check::LinkLateness).or_default();
        (first..last)
            .filter(|_| crossed)
            .for_each(|window| crossings.record_crossing(window));
        self.check_value(Check::LinkLateness, late.p99, last, true, true);
    }

    /// Returns a copy that also judges the pending link windows, as at the end of the run.
    fn with_pending_links(&self) -> Health {
        let mut settled = self.clone();
        for late in settled.links.take_pending() {
            settled.check_lateness(late);
        }
        settled
    }

    /// Bounds that the last window crossed, for a live display. Empty if it crossed none.
    pub fn last_window(&self) -> &[String] {
        &self.last_window
    }

    /// Number of windows in which a bound may be crossed.
    fn windows_allowed(&self) -> u64 {
        let share = self.bounds.windows;
        let allowed = (self.windows as f64 * share) as u64;
        let forgiven = share > 0.0 && self.windows >= FORGIVING_WINDOWS_MIN;
        allowed.max(u64::from(forgiven))
    }

    /// Count and denominator of a check that is judged over the run.
    fn run_count_and_total(&self, check: Check) -> (i64, i64) {
        match check {
            Check::Overflow => (
                self.ring_overflow + self.socket_overflow,
                self.received.max(0),
            ),
            // The kernel counts drops of the whole machine. Those of the run are at most its
            // missing packets.
            Check::KernelDrops => {
                let lost = (self.expected - self.received).max(0);
                (self.softnet_drops.min(lost), self.received.max(0))
            }
            _ => (self.late_clients, self.started.max(0)),
        }
    }

    fn is_invalid(&self, check: Check) -> bool {
        let crossed = self
            .crossings
            .get(&check)
            .map_or(0, |crossings| crossings.crossed);
        match check.judged_by() {
            JudgedBy::ByWindows => crossed > self.windows_allowed(),
            JudgedBy::Once => crossed > 0,
            JudgedBy::OverTheRun => {
                let (count, of) = self.run_count_and_total(check);
                count as f64 > of as f64 * check.bound(&self.bounds)
                    // Reported for the windows already.
                    && !(check == Check::LateClients && self.is_invalid(Check::LateStarts))
            }
        }
    }

    /// Returns the result of every check, whether its bound was crossed or not: the evidence that
    /// the tester was healthy, or that it was not.
    pub fn findings(&self) -> Vec<Finding> {
        self.with_pending_links().current_findings()
    }

    fn current_findings(&self) -> Vec<Finding> {
        Check::ALL
            .into_iter()
            .map(|check| {
                let crossings = self.crossings.get(&check);
                let (worst, worst_window) = match check.judged_by() {
                    JudgedBy::OverTheRun => {
                        let (count, of) = self.run_count_and_total(check);
                        let share = count as f64 / of.max(count).max(1) as f64;
                        ((self.windows > 0).then_some(share), None)
                    }
                    _ => {
                        let worst = crossings.and_then(|crossings| crossings.worst);
                        let window = worst.filter(|(value, _)| *value > 0.0);
                        (
                            worst.map(|(value, _)| value),
                            window.map(|(_, window)| window),
                        )
                    }
                };
                Finding {
                    bound: check.name().to_owned(),
                    metric: check.metric().to_owned(),
                    unit: check.unit(),
                    limit: check.bound(&self.bounds),
                    worst,
                    worst_window,
                    windows: crossings.map_or(0, |crossings| crossings.crossed),
                    invalid: self.is_invalid(check),
                }
            })
            .collect()
    }

    /// Reasons why the measurement cannot be trusted; empty if it can. Each states the finding, the
    /// windows, the worst value, and the remedy.
    pub fn reasons(&self) -> Vec<String> {
        let settled = self.with_pending_links();
        let invalid = Check::ALL.into_iter();
        let invalid = invalid.filter(|&check| settled.is_invalid(check));
        invalid
            .map(|check| format!("{}: {}", settled.describe(check), check.advice()))
            .collect()
    }

    /// Describes the finding.
    fn describe(&self, check: Check) -> String {
        let Some(crossings) = self.crossings.get(&check) else {
            return format!("{} ({})", check.description(), check.metric());
        };
        let unit = check.unit();
        let bound = figure_four_digits(check.bound(&self.bounds), unit);
        let windows = crossings.windows();
        let count = |packets: i64| human::count(packets as f64);
        match check {
            Check::Overflow => format!(
                "{} packets were lost in the tester's own queues (tester.overflow: {} in its ring, {} \
                 at its sockets) and {} were received (limit {bound}); in {windows}",
                count(self.ring_overflow + self.socket_overflow),
                count(self.ring_overflow),
                count(self.socket_overflow),
                count(self.received),
            ),
            Check::KernelDrops => format!(
                "this machine's kernel dropped {} packets before any socket (tester.softnet_drops), {} \
                 packets are missing and {} were received (limit {bound}); in {windows}",
                count(self.softnet_drops),
                count(self.expected - self.received),
                count(self.received),
            ),
            Check::LateClients => format!(
                "{} of {} clients started more than 1 s late (tester.not_started_in_time, limit \
                 {bound}); in {windows}",
                self.late_clients, self.started,
            ),
            Check::SocketsRefused => format!(
                "sockets could not be opened because file descriptors or ports had run out \
                 (tester.sockets_refused); in {windows}"
            ),
            _ => {
                let (worst, worst_window) = crossings.worst.unwrap_or_default();
                let mut text = format!(
                    "{} ({}) was over {bound} in {} of {} windows",
                    check.description(),
                    check.metric(),
                    crossings.crossed,
                    self.windows,
                );
                if check.judged_by() == JudgedBy::ByWindows {
                    let allowed = self.windows_allowed();
                    text += &format!(" ({allowed} allowed)");
                }
                text += &format!(
                    "; in {windows}, worst {} in window {worst_window}",
                    figure_four_digits(worst, unit)
                );
                text
            }
        }
    }
}
