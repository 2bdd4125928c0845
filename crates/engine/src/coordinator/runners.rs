//! The runners of a run over several machines, each judged by itself: figures of many runners
//! together would hide one that was overloaded.

use std::collections::BTreeMap;

use measure::tester::{RunnerSummary, TESTER_CATALOGUE, WorkerFigures};
use measure::{Catalogue, Health, Totals, Window};
use scenario::Scenario;

use super::Coordinator;
use crate::runner::RunnerFigures;
use crate::window_merger::{MergedWindow, merge_testers};

/// The runners of a run; empty if the only one is in this process.
#[derive(Default)]
pub(crate) struct RunnerJudges {
    each: Vec<RunnerJudge>,
    /// Figures of the clients of each runner, by window, until all runners have sent theirs.
    parts: BTreeMap<u64, Vec<(u32, Vec<Window>)>>,
}

/// One runner.
struct RunnerJudge {
    name: String,
    health: Health,
    totals: Totals,
}

impl RunnerJudges {
    /// Judges these runners by the bounds of the scenario.
    pub(crate) fn new(
        scenario: &Scenario,
        runners: &[RunnerSummary],
        warm_up_windows: u64,
    ) -> RunnerJudges {
        let populations = scenario.populations.iter();
        let mut subjects: Vec<(&str, Catalogue)> = populations
            .map(|one| (one.name.as_str(), one.config.protocol().catalogue))
            .collect();
        subjects.push(("tester", TESTER_CATALOGUE));
        let judge = |runner: &RunnerSummary| RunnerJudge {
            name: runner.name.clone(),
            health: Health::new(scenario.tester.health.clone(), &subjects, warm_up_windows),
            totals: Totals::new(TESTER_CATALOGUE),
        };
        RunnerJudges {
            each: runners.iter().map(judge).collect(),
            parts: BTreeMap::new(),
        }
    }

    /// Keeps a runner's part of a window until the window is complete.
    pub(super) fn keep(&mut self, runner: u32, window: &MergedWindow<RunnerFigures>) {
        if !self.each.is_empty() {
            let parts = self.parts.entry(window.index).or_default();
            parts.push((runner, window.populations.clone()));
        }
    }

    /// Returns `true` if every runner was fit in the last window.
    pub(super) fn are_fit(&self) -> bool {
        let mut each = self.each.iter();
        each.all(|judge| judge.health.last_window().is_empty())
    }

    /// Reasons why the measurements of runners are invalid.
    pub(super) fn reasons(&self) -> Vec<String> {
        let each = self.each.iter().flat_map(|judge| {
            let reasons = judge.health.reasons().into_iter();
            reasons.map(|reason| format!("runner {}: {reason}", judge.name))
        });
        each.collect()
    }
}

impl Coordinator<'_> {
    /// Judges each runner's part of a complete window. `index` counts from the start of the level.
    pub(super) fn judge_runners(&mut self, window: &MergedWindow<RunnerFigures>, index: u64) {
        let Some(parts) = self.runners.parts.remove(&window.index) else {
            return;
        };
        let begins = self.level_time(window.begins);
        for (runner, populations) in parts {
            let mut testers = window.testers.iter();
            let own = testers.find(|part| part.member == runner);
            let judge = self.runners.each.get_mut(runner as usize);
            let (Some(judge), Some(own)) = (judge, own) else {
                continue;
            };
            let tester = merge_testers(own.figures.windows());
            if index >= self.warm_up_windows {
                let until = self.stopped_at;
                judge.totals.add_until(&tester, begins, own.seconds, until);
            }
            let names = self.scenario.populations.iter();
            let names = names.map(|population| population.name.clone());
            let mut subjects: BTreeMap<String, Window> = names.zip(populations).collect();
            subjects.insert("tester".to_owned(), tester);
            judge.health.window(index, own.seconds, &subjects);
        }
    }

    /// Summaries of all runners.
    pub(super) fn runner_summaries(&self) -> Vec<RunnerSummary> {
        let known = self.crew.summaries().into_iter();
        let each = known
            .zip(&self.runners.each)
            .map(|(summary, judge)| RunnerSummary {
                figures: WorkerFigures::of(&judge.totals),
                unfit: judge.health.reasons(),
                ..summary
            });
        each.collect()
    }
}
