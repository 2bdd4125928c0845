//! Whether the tester was fit to measure: it judges itself as strictly as the server.
//!
//! Each window of the run (its warm-up left out) is held against [`HealthBounds`]. A bound that is
//! crossed in more than a small share of the windows makes the measurement invalid, and so does too
//! much that was lost in the tester's own queues over the whole run. Windows are judged, not averages:
//! a collapse late in a long run cannot hide in its mean.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::metric::{Catalogue, CounterId, Source, Unit};
use crate::recorder::Window;
use crate::tester;
use crate::totals::{Statistic, Totals};
use crate::units::duration;
use crate::verdict::figure;

/// A client that sets to work more than this after it was due counts as
/// [`tester::NOT_STARTED_IN_TIME`].
pub const LATE_START: Duration = Duration::from_secs(1);

/// Within which bounds the tester trusts itself. Its fields are the keys of `tester: {health: ...}` of
/// a scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HealthBounds {
    /// The share of all packets that may be lost in the tester's own ring and sockets, over the run.
    /// Default 1 in 100,000: a hundredth of the smallest loss (0.1 %) that people set thresholds on.
    pub overflow: f64,
    /// The share of all packets that may be lost in this machine's kernel before any socket
    /// (`tester.softnet_drops`), over the run. Default 1 in 100,000, for the same reason. Drops
    /// count only as far as packets of the populations are missing: those of others are no business
    /// of the run.
    pub kernel_drops: f64,
    /// The 99th percentile of [`tester::LAG`] in a window. Default 100 ms. Arrival times are the
    /// kernel's and do not suffer from it, but requests leave late by as much, and a tenth of a second
    /// is what a viewer begins to notice at start-up.
    #[serde(with = "duration")]
    pub lag_p99: Duration,
    /// The longest stand-still of a worker: the largest [`tester::LAG`] of the run, in however few
    /// windows. Default 1 s: within it keep-alives and answers are missed, and buffers of a second
    /// overflow.
    #[serde(with = "duration")]
    pub longest_stall: Duration,
    /// The 99th percentile of [`tester::SEND_LATENESS`] in a window. Default 100 ms: with more, what
    /// the other side sees as jitter and delay is made here.
    #[serde(with = "duration")]
    pub send_lateness_p99: Duration,
    /// [`tester::CPU_HOTTEST_WORKER`] in a window. Default 0.9 of a core: above it waiting grows faster
    /// than load.
    pub worker_cpu: f64,
    /// `tester.cpu_wait` in a window: the share of the time in which a worker could have run and
    /// was not let. Default 50 %: then others have taken half of what it asked for.
    pub cpu_wait: f64,
    /// `tester.steal` in a window: the share of this machine's processor time that its hypervisor
    /// gave to others. Default 20 %: then the machine is not the one that its number of cores says.
    pub steal: f64,
    /// `tester.file_descriptors_share` in any window. Default 95 %: what is left is for the run file
    /// and the server's observation.
    pub file_descriptors: f64,
    /// `tester.ports_share` in any window. Default 95 %: ports that became free must rest before they
    /// are used again, or the last packets to an earlier client reach a later one.
    pub ports: f64,
    /// The share of all clients that may set to work late, over the run. Default 5 %. In a window, one
    /// late client crosses the bound; but a burst at the beginning of a long run, when all begin at once,
    /// touches few windows.
    pub late_clients: f64,
    /// The share of the windows in which a bound may be crossed. Default 5 %.
    pub windows: f64,
}

impl Default for HealthBounds {
    fn default() -> HealthBounds {
        HealthBounds {
            overflow: 1e-5,
            kernel_drops: 1e-5,
            lag_p99: Duration::from_millis(100),
            longest_stall: Duration::from_secs(1),
            send_lateness_p99: Duration::from_millis(100),
            worker_cpu: 0.9,
            cpu_wait: 0.5,
            steal: 0.2,
            file_descriptors: 0.95,
            ports: 0.95,
            late_clients: 0.05,
            windows: 0.05,
        }
    }
}

/// The bounds that are judged window by window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Check {
    Lag,
    SendLateness,
    WorkerCpu,
    LateStarts,
}

impl Check {
    const ALL: [Check; 4] = [
        Check::Lag,
        Check::SendLateness,
        Check::WorkerCpu,
        Check::LateStarts,
    ];

    fn what(self) -> &'static str {
        match self {
            Check::Lag => "the event loop's lag (tester.lag.p99)",
            Check::SendLateness => "the lateness of what was sent (tester.send_lateness.p99)",
            Check::WorkerCpu => "the busiest worker's processor time (tester.cpu_hottest_worker)",
            Check::LateStarts => {
                "the number of clients that began more than 1 s late (tester.not_started_in_time)"
            }
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Check::Lag | Check::WorkerCpu => {
                "give the tester more or faster cores, or a machine of its own, or run fewer clients"
            }
            Check::SendLateness => {
                "give the tester more or faster cores, or a machine of its own, or send fewer streams"
            }
            Check::LateStarts => "start the clients over a longer ramp, or run fewer",
        }
    }

    fn unit(self) -> Unit {
        match self {
            Check::Lag | Check::SendLateness => Unit::Seconds,
            Check::WorkerCpu => Unit::Cores,
            Check::LateStarts => Unit::Count,
        }
    }

    fn bound(self, bounds: &HealthBounds) -> f64 {
        match self {
            Check::Lag => bounds.lag_p99.as_secs_f64(),
            Check::SendLateness => bounds.send_lateness_p99.as_secs_f64(),
            Check::WorkerCpu => bounds.worker_cpu,
            Check::LateStarts => 0.0,
        }
    }

    fn value(self, tester: &Totals) -> Option<f64> {
        match self {
            Check::Lag => tester.named("lag", Statistic::Quantile(0.99)),
            Check::SendLateness => tester.named("send_lateness", Statistic::Quantile(0.99)),
            Check::WorkerCpu => tester.named("cpu_hottest_worker", Statistic::Max),
            Check::LateStarts => Some(tester.counter(tester::NOT_STARTED_IN_TIME) as f64),
        }
    }
}

/// How often and how far one bound was crossed.
#[derive(Clone, Copy, Debug)]
struct Crossings {
    windows: u64,
    first: u64,
    worst: f64,
    worst_window: u64,
}

/// Whether the tester was fit so far. Its size does not depend on how many windows it sees.
#[derive(Clone, Debug)]
pub struct Health {
    bounds: HealthBounds,
    warm_up_windows: u64,
    /// Where each population counts its packets and its clients.
    populations: Vec<(String, Option<CounterId>, Option<CounterId>)>,
    windows: u64,
    crossings: BTreeMap<Check, Crossings>,
    overflow: i64,
    first_overflow: Option<u64>,
    received: i64,
    late_clients: i64,
    started: i64,
    last: Vec<String>,
}

impl Health {
    /// A fit tester that has seen nothing. `subjects` are all subjects of the run; the first
    /// `warm_up_windows` windows are not judged.
    pub fn new(
        bounds: HealthBounds,
        subjects: &[(&str, Catalogue)],
        warm_up_windows: u64,
    ) -> Health {
        let counter = |catalogue: &Catalogue, name: &str| match catalogue.find(name)?.source {
            Source::Counter(id) => Some(id),
            _ => None,
        };
        Health {
            bounds,
            warm_up_windows,
            populations: subjects
                .iter()
                .map(|(name, catalogue)| {
                    let received = counter(catalogue, "received");
                    let started = counter(catalogue, "started");
                    ((*name).to_owned(), received, started)
                })
                .collect(),
            windows: 0,
            crossings: BTreeMap::new(),
            overflow: 0,
            first_overflow: None,
            received: 0,
            late_clients: 0,
            started: 0,
            last: Vec::new(),
        }
    }

    /// Takes in what a window of `seconds` saw of each subject, `tester` among them.
    pub fn window(&mut self, index: u64, seconds: f64, subjects: &BTreeMap<String, Window>) {
        self.last.clear();
        let Some(window) = subjects.get("tester") else {
            return;
        };
        let tester = Totals::of_window(tester::TESTER_CATALOGUE, window, seconds);
        let counted = index >= self.warm_up_windows;
        for check in Check::ALL {
            let Some(value) = check.value(&tester) else {
                continue;
            };
            let bound = check.bound(&self.bounds);
            if value <= bound {
                continue;
            }
            self.last.push(format!(
                "{} is {}",
                check.what(),
                figure(value, check.unit())
            ));
            if counted {
                let crossings = self.crossings.entry(check).or_insert(Crossings {
                    windows: 0,
                    first: index,
                    worst: value,
                    worst_window: index,
                });
                crossings.windows += 1;
                if value > crossings.worst {
                    (crossings.worst, crossings.worst_window) = (value, index);
                }
            }
        }
        let overflow = tester.counter(tester::OVERFLOW);
        if overflow > 0 {
            self.last.push(format!(
                "{overflow} packets were lost in the tester's own queues (tester.overflow)"
            ));
        }
        if !counted {
            return;
        }
        self.windows += 1;
        self.overflow += overflow;
        if overflow > 0 && self.first_overflow.is_none() {
            self.first_overflow = Some(index);
        }
        self.late_clients += tester.counter(tester::NOT_STARTED_IN_TIME);
        for (name, received, started) in &self.populations {
            let Some(window) = subjects.get(name) else {
                continue;
            };
            let read = |id: &Option<CounterId>| {
                id.and_then(|id| window.counters.get(usize::from(id.0)).copied())
                    .unwrap_or(0)
            };
            self.received += read(received);
            self.started += read(started);
        }
    }

    /// What crossed a bound in the last window, for a live display; empty where all was well.
    pub fn last_window(&self) -> &[String] {
        &self.last
    }

    /// Why the measurement cannot be trusted; empty where it can.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        let allowed = self.received.max(0) as f64 * self.bounds.overflow;
        if self.overflow as f64 > allowed {
            reasons.push(format!(
                "{} packets were lost in the tester's own queues, {} received (tester.overflow), \
                 where {} in all are allowed; first in window {}: let the tester use its packet ring \
                 (CAP_NET_RAW), raise net.core.rmem_max, give it more cores, or run fewer clients",
                self.overflow,
                self.received,
                figure(self.bounds.overflow, Unit::Ratio),
                self.first_overflow.unwrap_or(self.warm_up_windows),
            ));
        }
        for (check, crossings) in &self.crossings {
            if crossings.windows as f64 <= self.windows as f64 * self.bounds.windows {
                continue;
            }
            let unit = check.unit();
            reasons.push(format!(
                "{} was over {} in {} of {} windows, where {} are allowed; first in window {}, worst \
                 in window {} with {}: {}",
                check.what(),
                figure(check.bound(&self.bounds), unit),
                crossings.windows,
                self.windows,
                figure(self.bounds.windows, Unit::Ratio),
                crossings.first,
                crossings.worst_window,
                figure(crossings.worst, unit),
                check.advice(),
            ));
        }
        let late = self.late_clients as f64;
        let reported = self.windows_judged_invalid(Check::LateStarts);
        if late > self.started.max(0) as f64 * self.bounds.late_clients && !reported {
            reasons.push(format!(
                "{} of {} clients began more than 1 s late (tester.not_started_in_time), where {} are \
                 allowed; first in window {}: {}",
                self.late_clients,
                self.started,
                figure(self.bounds.late_clients, Unit::Ratio),
                self.crossings
                    .get(&Check::LateStarts)
                    .map_or(self.warm_up_windows, |crossings| crossings.first),
                Check::LateStarts.advice(),
            ));
        }
        reasons
    }

    /// Whether a bound was crossed in too many windows.
    fn windows_judged_invalid(&self, check: Check) -> bool {
        self.crossings.get(&check).is_some_and(|crossings| {
            crossings.windows as f64 > self.windows as f64 * self.bounds.windows
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::Recorder;

    crate::metrics! {
        /// A population.
        pub(crate) POPULATION after crate::Group::NONE;
        counters {
            /// Packets.
            RECEIVED = "received", Count, "";
            /// Clients.
            STARTED = "started", Count, "";
        }
        gauges {}
        distributions {}
        derived {}
    }
    static GROUPS: [&crate::Group; 1] = [&POPULATION];
    const VIEWERS: Catalogue = Catalogue(&GROUPS);

    fn health(warm_up: u64) -> Health {
        let subjects = [("viewers", VIEWERS), ("tester", tester::TESTER_CATALOGUE)];
        Health::new(HealthBounds::default(), &subjects, warm_up)
    }

    /// A window with so many packets, in which `set` happened to the tester.
    fn see(health: &mut Health, index: u64, received: u64, set: impl FnOnce(&mut Recorder)) {
        let mut viewers = Recorder::new(VIEWERS);
        viewers.add(RECEIVED, received);
        viewers.add(STARTED, 1);
        let mut tester = Recorder::new(tester::TESTER_CATALOGUE);
        set(&mut tester);
        let subjects = BTreeMap::from([
            ("viewers".to_owned(), viewers.take_window()),
            ("tester".to_owned(), tester.take_window()),
        ]);
        health.window(index, 1.0, &subjects);
    }

    #[test]
    fn overflow_is_judged_over_the_run() {
        let mut exact = health(0);
        see(&mut exact, 0, 100_000, |t| t.add(tester::OVERFLOW, 2));
        assert_eq!(exact.reasons().len(), 1);
        assert!(exact.reasons()[0].contains("first in window 0"));
        assert_eq!(exact.last_window().len(), 1);
        see(&mut exact, 1, 100_000, |_| ());
        assert_eq!(exact.reasons(), Vec::<String>::new());
        see(&mut exact, 2, 1, |t| t.add(tester::OVERFLOW, 1));
        assert_eq!(exact.reasons().len(), 1);
    }

    #[test]
    fn a_bound_may_be_crossed_in_one_window_of_twenty() {
        let mut tester = health(0);
        let slow = |t: &mut Recorder| t.record(tester::LAG, 150_000_000);
        for index in 0..20 {
            match index {
                7 => see(&mut tester, index, 10, slow),
                _ => see(&mut tester, index, 10, |t| t.record(tester::LAG, 1_000_000)),
            }
        }
        assert!(tester.reasons().is_empty());
        see(&mut tester, 20, 10, slow);
        let reasons = tester.reasons();
        assert_eq!(reasons.len(), 1);
        assert!(reasons[0].contains("2 of 21 windows"), "{reasons:?}");
        assert!(reasons[0].contains("first in window 7"), "{reasons:?}");
        assert!(reasons[0].contains("150 ms"), "{reasons:?}");
    }

    #[test]
    fn a_late_collapse_does_not_hide_in_the_mean() {
        let mut tester = health(0);
        for index in 0..94 {
            see(&mut tester, index, 10, |t| {
                t.set(tester::CPU_HOTTEST_WORKER, 0.1);
            });
        }
        for index in 94..100 {
            see(&mut tester, index, 10, |t| {
                t.set(tester::CPU_HOTTEST_WORKER, 0.97);
            });
        }
        assert!(tester.reasons()[0].contains("first in window 94"));
    }

    #[test]
    fn a_burst_of_late_starts_is_found_though_it_touches_one_window() {
        let mut tester = health(0);
        see(&mut tester, 0, 10, |t| {
            t.add(tester::NOT_STARTED_IN_TIME, 6)
        });
        for index in 1..100 {
            see(&mut tester, index, 10, |_| ());
        }
        assert!(tester.reasons()[0].starts_with("6 of 100 clients"));
    }

    #[test]
    fn the_warm_up_is_not_judged_but_shown() {
        let mut tester = health(2);
        for index in 0..2 {
            see(&mut tester, index, 0, |t| t.add(tester::OVERFLOW, 100));
            assert_eq!(tester.last_window().len(), 1);
        }
        see(&mut tester, 2, 10, |_| ());
        assert!(tester.reasons().is_empty());
    }
}
