//! Levels of a continuing run: each begins when the last one has ended.

use measure::{Threshold, ThresholdResult, Time};

use super::Coordinator;
use super::figures::Figures;
use super::runners::RunnerJudges;
use crate::error::EngineError;
use crate::progress::Progress;
use crate::run::environment::Environment;
use crate::run::levels::{Level, RunningLevels};
use crate::run::ownership;
use crate::run::sources::Sources;

impl<'a> Coordinator<'a> {
    /// Begins with the first of these levels.
    pub(crate) fn begin_levels(
        &mut self,
        mut levels: RunningLevels<'a>,
    ) -> Result<(), EngineError> {
        let first = levels.first.take();
        self.levels = Some(levels);
        first.map_or(Ok(()), |level| self.begin_level(&level))
    }

    /// Ends the current level if its last window was added or the server has ended, and begins the
    /// next one. `now` is the end of the last window, which `seen` describes.
    pub(super) fn go_on_to_next_level(&mut self, now: Time, seen: &Progress) {
        let windows = self.figures.windows;
        let is_due = |levels: &RunningLevels<'_>| {
            levels.is_complete(windows) || (self.server_is_gone && !levels.is_over)
        };
        if self.stop_deadline.is_some() || !self.levels.as_ref().is_some_and(is_due) {
            return;
        }
        self.find_faults();
        self.record_health();
        let finished = self.conclude(None);
        let levels = self.levels.as_mut();
        let next = levels.and_then(|levels| {
            levels.note_active(seen);
            levels.after(&finished, windows, now)
        });
        if let Some(Err(error)) = next.map(|level| self.begin_level(&level)) {
            self.level_fault = Some(error);
            if let Some(levels) = &mut self.levels {
                levels.is_over = true;
            }
        }
    }

    fn begin_level(&mut self, level: &Level) -> Result<(), EngineError> {
        let Some(levels) = &mut self.levels else {
            return Ok(());
        };
        let new = levels.begin(level, &self.clock, self.crew.lead())?;
        self.figures = Figures::new(&level.scenario, &new.header)?;
        self.run_file = new.run_file;
        self.path = level.run_file.clone();
        self.stopped_at = new.ends;
        let runners = self.crew.summaries();
        let warm_up_windows = self.figures.warm_up_windows;
        self.runners = RunnerJudges::new(self.scenario, &runners, warm_up_windows);
        self.crew.send(&new.change);
        Ok(())
    }

    /// Returns the reason why a level is invalid in which the tester did not start every client.
    pub(super) fn missing_clients(&self) -> Option<String> {
        let is_whole = !self.grounds.stopped_by_user && !self.server_is_gone;
        let levels = self.levels.as_ref().filter(|_| is_whole)?;
        let started = self.figures.clients[levels.population].started;
        levels.missing_clients(u64::try_from(started).unwrap_or(0))
    }

    /// Finds faults of the tester and of the observed server that other runs notice at their end.
    fn find_faults(&mut self) {
        let mut faults = Vec::new();
        let Environment { sources, sut, .. } = &self.environment;
        if sources.as_ref().is_some_and(Sources::has_ended) {
            faults.push("the run's own sources ended early".to_owned());
        }
        if let Some(sut) = sut.as_ref().filter(|_| !self.server_is_gone) {
            faults.extend(ownership::check(self.scenario, sut, true));
        }
        for fault in faults {
            if !self.grounds.invalid.contains(&fault) {
                self.grounds.invalid.push(fault);
            }
        }
    }

    /// Removes the thresholds on starts of clients in a level in which no client started.
    pub(super) fn drop_starts_without_data(&self, thresholds: &mut Vec<ThresholdResult>) {
        thresholds.retain(|result| {
            let mut populations = self.scenario.populations.iter();
            let population = populations.find(|population| population.name == result.subject);
            let (Some(population), Ok(read)) = (population, Threshold::parse(&result.text)) else {
                return true;
            };
            let catalogue = population.config.protocol().catalogue;
            !(result.no_data && catalogue.is_start(read.metric()))
        });
    }
}
