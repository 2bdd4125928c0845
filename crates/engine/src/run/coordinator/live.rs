//! State of a run after each window, for live views.

use std::collections::BTreeMap;
use std::time::Duration;

use measure::load::Shape;
use measure::totals::Statistic;
use measure::{ClockError, Time, Totals, Window};
use measure::{server, tester};
use scenario::{Population, Scenario};

use super::Coordinator;
use crate::progress::{self, ClientRole, Failures, PopulationProgress, Progress, Rates};
use crate::progress::{StartDelay, TesterProgress};

/// Delays that tell how fast clients start. The first that a population has is shown.
const START_DELAYS: [&str; 3] = ["startup_delay", "publish_delay", "connect_delay"];

/// Clients of a population since the start of the run, warm-up included.
pub(crate) struct ClientsSoFar {
    pub(crate) started: i64,
    pub(crate) failed: i64,
    /// Only the distributions of starts.
    starts: Totals,
}

impl ClientsSoFar {
    /// Returns those of each population of a run that begins.
    pub(crate) fn of_all(scenario: &Scenario) -> Vec<ClientsSoFar> {
        let populations = scenario.populations.iter();
        let none = |population: &Population| ClientsSoFar {
            started: 0,
            failed: 0,
            starts: Totals::new(population.config.protocol().catalogue),
        };
        populations.map(none).collect()
    }

    fn start_delay(&self) -> Option<StartDelay> {
        START_DELAYS.into_iter().find_map(|metric| {
            let p95 = self.starts.named(metric, Statistic::Quantile(0.95))?;
            Some(StartDelay { metric, p95 })
        })
    }
}

/// Role of the clients of a population.
fn role(population: &Population) -> ClientRole {
    let config = &population.config;
    let facts = config.facts();
    match (facts.has_media, facts.receives) {
        (false, _) => ClientRole::Send,
        (true, false) => ClientRole::Publish,
        (true, true) => ClientRole::Play,
    }
}

impl Coordinator<'_> {
    /// Returns the state after a window that began at `begins` and lasted `seconds`.
    pub(super) fn progress(
        &mut self,
        begins: Time,
        seconds: f64,
        subjects: &BTreeMap<String, Window>,
    ) -> Progress {
        let mut populations = Vec::new();
        let mut failures = Vec::new();
        for (number, population) in self.scenario.populations.iter().enumerate() {
            let catalogue = population.config.protocol().catalogue;
            let window = &subjects[&population.name];
            let figures = Totals::of_window(catalogue, window, seconds);
            let value = |name| figures.named(name, Statistic::Value).unwrap_or(0.0);
            let planned = self.planned_clients(number);
            let clients = &mut self.figures.clients[number];
            clients.started += value("started") as i64;
            clients.failed += value("failed") as i64;
            clients.starts.add_starts(window);
            // The number of active clients is the highest of the window.
            let starting = value("active") - value("playing") - value("failed");
            let progress = PopulationProgress {
                role: role(population),
                planned,
                active: value("active") as u64,
                playing: value("playing") as u64,
                starting: starting.max(0.0) as u64,
                started: u64::try_from(clients.started).unwrap_or(0),
                failed: u64::try_from(clients.failed).unwrap_or(0),
                start_delay: clients.start_delay(),
                rates: Rates::of(&figures, seconds),
            };
            populations.push((population.name.clone(), progress));
            failures.extend(window.failures.iter().map(|(reason, &count)| Failures {
                population: population.name.clone(),
                reason: reason.clone(),
                count,
            }));
        }
        let tester = Totals::of_window(tester::TESTER_CATALOGUE, &subjects["tester"], seconds);
        self.overflow += tester.named("overflow", Statistic::Value).unwrap_or(0.0) as i64;
        let whole = progress::is_whole(seconds);
        let server = subjects.get("server").filter(|_| whole);
        let server_cpu = server.and_then(|window| {
            let figures = Totals::of_window(server::SERVER_CATALOGUE, window, seconds);
            figures.named("cpu", Statistic::Value)
        });
        let clocks = ClockError::of(&self.crew.summaries());
        let mut thresholds = self.figures.thresholds(clocks);
        thresholds.retain(|result| !result.implied);
        let ended = begins + Duration::from_secs_f64(seconds);
        Progress {
            elapsed: ended.since_start(),
            phase: self.phase.clone(),
            populations,
            thresholds,
            server_cpu,
            tester: TesterProgress {
                cpu: tester.named("cpu", Statistic::Value).filter(|_| whole),
                lag_p99: tester.named("lag", Statistic::Quantile(0.99)),
                overflow: self.overflow,
                healthy: self.figures.health.last_window().is_empty() && self.runners.are_fit(),
            },
            runners: self.runners.states(),
            failures,
            is_held: self.holds.is_held(),
            held: self.holds.held_by(ended),
        }
    }

    /// Maximum number of clients that a population has at a time by its plan, or by the current
    /// level. `None` for arrivals, whose number depends on how long they stay.
    fn planned_clients(&self, population: usize) -> Option<u64> {
        let levels = self.levels.as_ref();
        if let Some(levels) = levels.filter(|levels| levels.population == population) {
            return Some(levels.clients);
        }
        let load = &self.scenario.populations[population].load;
        let is_open = matches!(load.shape, Shape::Arrivals { .. });
        (!is_open).then(|| load.clients_max())
    }
}
