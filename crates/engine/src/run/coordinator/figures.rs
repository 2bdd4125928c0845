//! Figures of a run, or of a level of a continuing run, and their judges.

use std::collections::BTreeMap;

use measure::threshold::Judge;
use measure::totals::measured_seconds;
use measure::{Catalogue, ClockError, Health, ThresholdResult, Time, Totals, Window};
use runfile::Header;
use scenario::Scenario;

use super::live::ClientsSoFar;
use crate::error::EngineError;
use crate::run::coverage::Coverage;
use crate::run::parts::judge;

/// Figures measured so far. A level begins with new ones.
pub(crate) struct Figures {
    pub(crate) warm_up_windows: u64,
    /// Number of windows so far.
    pub(crate) windows: u64,
    /// Totals of each subject, without the warm-up.
    pub(crate) totals: BTreeMap<String, Totals>,
    /// Clients of each population, warm-up included.
    pub(crate) clients: Vec<ClientsSoFar>,
    /// Whether each population was measured long enough.
    pub(crate) coverage: Coverage,
    pub(crate) judge: Judge,
    pub(crate) health: Health,
}

impl Figures {
    /// Returns empty figures of the subjects in `header`.
    ///
    /// # Errors
    /// A threshold cannot be judged.
    pub(crate) fn new(scenario: &Scenario, header: &Header) -> Result<Figures, EngineError> {
        let warm_up_windows = header.warm_up_windows();
        let subjects: Vec<(&str, Catalogue)> = header
            .subjects
            .iter()
            .map(|subject| (subject.name.as_str(), subject.catalogue))
            .collect();
        let bounds = scenario.tester.health.clone();
        Ok(Figures {
            warm_up_windows,
            windows: 0,
            totals: subjects
                .iter()
                .map(|&(name, catalogue)| (name.to_owned(), Totals::new(catalogue)))
                .collect(),
            clients: ClientsSoFar::of_all(scenario),
            coverage: Coverage::new(scenario),
            judge: judge(scenario, &subjects, warm_up_windows)?,
            health: Health::new(bounds, &subjects, warm_up_windows),
        })
    }

    /// Adds window `index`, which began at `begins`. Nothing counts from `until` on.
    pub(super) fn add_window(
        &mut self,
        scenario: &Scenario,
        index: u64,
        begins: Time,
        seconds: f64,
        until: Time,
        subjects: &BTreeMap<String, Window>,
    ) {
        self.windows = index + 1;
        let measured = measured_seconds(begins, seconds, until);
        self.judge.window(index, measured.unwrap_or(0.0), subjects);
        self.health.window(index, seconds, subjects);
        let counts = measured.filter(|_| index >= self.warm_up_windows);
        self.coverage
            .window(scenario, subjects, counts.unwrap_or(0.0));
        for (name, window) in subjects {
            let Some(totals) = self.totals.get_mut(name) else {
                continue;
            };
            if index >= self.warm_up_windows {
                totals.add_until(window, begins, seconds, until);
            } else {
                totals.add_warm_up(window, scenario.starts_in_warm_up);
            }
        }
    }

    /// Judges the thresholds by the totals so far.
    pub(super) fn thresholds(&self, clocks: ClockError) -> Vec<ThresholdResult> {
        self.judge.finish(&self.totals, clocks)
    }
}
