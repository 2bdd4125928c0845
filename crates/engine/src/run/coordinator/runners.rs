//! The runners of a run over several machines, each judged by itself: figures of many runners
//! together would hide one that was overloaded.

use std::collections::BTreeMap;
use std::time::Duration;

use kit::metrics::{ACTIVE, PLAYING};
use measure::metric::GaugeId;
use measure::tester::{CPU, LAG, RunnerState, RunnerSummary, TESTER_CATALOGUE, WorkerFigures};
use measure::{Catalogue, Health, Time, Totals, Window};
use runfile::fact;
use scenario::Scenario;

use super::Coordinator;
use crate::progress::is_whole;
use crate::run::parts::windows_by_subject;
use crate::runner::RunnerFigures;
use crate::window_merger::{MergedWindow, gauge_of, merge_testers};

/// Interval, in windows, at which the summaries of the runners are stored during a run, for the
/// live page and for a run that is cut off.
pub(super) const RUNNERS_EVERY: u64 = 10;

/// The runners of a run; empty if the only one is in this process.
#[derive(Default)]
pub(crate) struct RunnerJudges {
    each: Vec<RunnerJudge>,
    /// Figures of the clients of each runner, by window, until all runners have sent theirs.
    parts: BTreeMap<u64, Vec<(u32, Vec<Window>)>>,
}

/// One runner.
struct RunnerJudge {
    health: Health,
    totals: Totals,
    state: RunnerState,
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
            health: Health::new(scenario.tester.health.clone(), &subjects, warm_up_windows),
            totals: Totals::new(TESTER_CATALOGUE),
            state: RunnerState {
                name: runner.name.clone(),
                healthy: true,
                ..RunnerState::default()
            },
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

    /// Marks a runner as lost.
    pub(super) fn lose(&mut self, runner: u32) {
        if let Some(judge) = self.each.get_mut(runner as usize) {
            judge.state.lost = true;
        }
    }

    /// Returns the state of each runner in the last window. Empty if there is only one: its figures
    /// are those of the tester.
    pub(super) fn states(&self) -> Vec<RunnerState> {
        match self.each.len() {
            0 | 1 => Vec::new(),
            _ => self.each.iter().map(|judge| judge.state.clone()).collect(),
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
            reasons.map(|reason| format!("runner {}: {reason}", judge.state.name))
        });
        each.collect()
    }
}

impl RunnerJudge {
    /// Notes that the runner sent no part of a window: it has ended, or is lost.
    fn note_absence(&mut self) {
        self.state = RunnerState {
            name: std::mem::take(&mut self.state.name),
            healthy: true,
            lost: self.state.lost,
            ..RunnerState::default()
        };
    }

    /// Notes the figures of its part of a window.
    fn note(&mut self, populations: &[Window], tester: &Window, seconds: f64) {
        let sum = |gauge: GaugeId| {
            let values = populations.iter().filter_map(|one| gauge_of(one, gauge));
            values.sum::<f64>() as u64
        };
        let lag = tester.histograms.get(&LAG);
        self.state.active = Some(sum(ACTIVE));
        self.state.playing = Some(sum(PLAYING));
        self.state.cpu = gauge_of(tester, CPU).filter(|_| is_whole(seconds));
        self.state.lag_max = lag.map(|lag| lag.max as f64 / 1e9);
    }
}

impl Coordinator<'_> {
    /// Notes that a runner is lost. The run is invalid, or its later seconds do not count.
    pub(super) fn lose_runner(&mut self, runner: u32, reason: String) {
        let now = self.level_time(self.clock.now());
        self.event(now, "runner_lost", None, reason.clone());
        self.runners.lose(runner);
        if !self.lost_runners.insert(runner) {
            return;
        }
        let present = self.assembly.sent_by(runner);
        let count = u32::try_from(self.lost_runners.len()).unwrap_or(u32::MAX);
        // A level is as long as its clients run.
        if count > self.scenario.tester.may_lose || self.levels.is_some() {
            self.grounds.invalid.push(reason);
            return;
        }
        // Later seconds lack its clients.
        let present = Time::from_start(Duration::from_secs(present));
        self.counts_until = self.counts_until.min(present);
        self.stopped_at = self.stopped_at.min(present);
    }

    /// Returns `true` if all runners were present in a window.
    pub(super) fn counts(&self, window: &MergedWindow<RunnerFigures>) -> bool {
        self.levels.is_some() || window.begins < self.counts_until
    }

    /// Judges each runner's part of a complete window. `index` counts from the start of the level.
    pub(super) fn judge_runners(&mut self, window: &MergedWindow<RunnerFigures>, index: u64) {
        let Some(parts) = self.runners.parts.remove(&window.index) else {
            return;
        };
        for judge in &mut self.runners.each {
            judge.note_absence();
        }
        let begins = self.level_time(window.begins);
        for (runner, populations) in parts {
            let mut testers = window.testers.iter();
            let own = testers.find(|part| part.member == runner);
            let judge = self.runners.each.get_mut(runner as usize);
            let (Some(judge), Some(own)) = (judge, own) else {
                continue;
            };
            let tester = merge_testers(own.figures.windows());
            if index >= self.figures.warm_up_windows {
                let until = self.stopped_at;
                judge.totals.add_until(&tester, begins, own.seconds, until);
            }
            judge.note(&populations, &tester, own.seconds);
            let subjects = windows_by_subject(self.scenario, populations, tester);
            judge.health.window(index, own.seconds, &subjects);
            judge.state.healthy = judge.health.last_window().is_empty();
        }
    }

    /// Stores the summaries of the runners of a run over several machines.
    pub(super) fn record_runners(&self) {
        let runners = self.runner_summaries();
        if !runners.is_empty() {
            self.run_file.note(fact::RUNNERS.of(&runners));
        }
    }

    /// Summaries of all runners.
    fn runner_summaries(&self) -> Vec<RunnerSummary> {
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

#[cfg(test)]
mod tests {
    use measure::Recorder;
    use protocols::PROTOCOLS;

    use super::*;

    fn judges(runners: usize) -> RunnerJudges {
        protocols::install();
        let text = "clients: {viewers: {urls: ['rtsp://127.0.0.1/a'], load: {clients: 4}}}\nduration: 9s\n";
        let scenario = Scenario::parse("test", text, &scenario::Overrides::default());
        let scenario = scenario.expect("it is valid");
        let summary = |number| RunnerSummary {
            name: format!("load{number}"),
            ..RunnerSummary::default()
        };
        let runners: Vec<RunnerSummary> = (0..runners).map(summary).collect();
        RunnerJudges::new(&scenario, &runners, 0)
    }

    fn population(active: f64, playing: f64) -> Window {
        let mut recorder = Recorder::new(PROTOCOLS[0].catalogue);
        recorder.set(ACTIVE, active);
        recorder.set(PLAYING, playing);
        recorder.take_window()
    }

    #[test]
    fn state_has_only_what_was_measured() {
        let mut judges = judges(2);
        let mut tester = Recorder::new(TESTER_CATALOGUE);
        tester.set(CPU, 0.5);
        tester.record(LAG, 1_000_000);
        tester.record(LAG, 3_000_000);
        let tester = tester.take_window();
        let populations = [population(4.0, 3.0), population(2.0, 2.0)];
        judges.each[0].note(&populations, &tester, 1.0);
        let seen = RunnerState {
            name: "load0".to_owned(),
            active: Some(6),
            playing: Some(5),
            cpu: Some(0.5),
            lag_max: Some(0.003),
            healthy: true,
            lost: false,
        };
        let nothing = RunnerState {
            name: "load1".to_owned(),
            healthy: true,
            ..RunnerState::default()
        };
        assert_eq!(judges.states(), [seen.clone(), nothing]);
        // A part of a second has no processor time.
        judges.each[0].note(&populations, &tester, 0.2);
        assert_eq!(judges.states()[0], RunnerState { cpu: None, ..seen });
        judges.lose(0);
        judges.each[0].note_absence();
        let lost = RunnerState {
            name: "load0".to_owned(),
            healthy: true,
            lost: true,
            ..RunnerState::default()
        };
        assert_eq!(judges.states()[0], lost);
    }

    #[test]
    fn only_runner_has_no_state_of_its_own() {
        assert_eq!(judges(0).states(), []);
        assert_eq!(judges(1).states(), []);
        assert_eq!(judges(3).states().len(), 3);
    }
}
