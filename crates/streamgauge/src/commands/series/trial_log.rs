//! Trials of a capacity search in the index of its series.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use measure::capacity::{End, Trial, Verdict};
use report::Report;
use report::human::short_duration;
use runfile::series::{EndedSearch, Entry, EntryOutcome, Index, TrialEntry};
use scenario::CapacitySearch;

use super::folder;
use super::runner::outcome_text;
use crate::exit::Failure;
use crate::ui::console::Console;

/// Number of holds after a trial within which a metric that gets worse is extrapolated.
const HOLDS_AHEAD: u32 = 10;

/// Digits of a trial's number in the name of its file.
const NUMBERED: usize = 100;

/// Trials of a search so far.
pub(super) struct TrialLog<'a> {
    pub(super) search: &'a CapacitySearch,
    /// Folder of the series.
    pub(super) folder: PathBuf,
    pub(super) console: Console,
    pub(super) index: Index,
    /// End of the last trial, which is the start of the next one.
    pub(super) ended_at: Option<Instant>,
}

/// A trial that is about to begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrialPlan {
    /// Combination of the other varied values.
    pub(super) combination: usize,
    pub(super) load: u64,
    pub(super) hold: Duration,
    /// True if the server was started for it.
    pub(super) fresh: bool,
    /// End of the trial before it.
    pub(super) began: Instant,
}

/// Reason for the end of all searches before their own end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    /// The user stopped the search.
    Stopped,
    /// A run could not begin, or could not be kept.
    NotBegun,
}

impl TrialLog<'_> {
    /// Returns the end of the last trial, or the present time before the first one.
    pub(super) fn last_ended(&self) -> Instant {
        self.ended_at.unwrap_or_else(Instant::now)
    }

    /// Adds a trial to the index and reports it. Returns the name of its run file.
    pub(super) fn begin(
        &mut self,
        search: &measure::capacity::Search,
        plan: &TrialPlan,
    ) -> Result<String, Failure> {
        let settings = self.search.combinations().settings(plan.combination);
        let mut values: Vec<String> = settings.into_iter().map(|setting| setting.value).collect();
        values.push(self.search.scale().text(plan.load));
        self.say(&values, search, plan.hold);
        let file = folder::run_file(self.index.runs.len(), NUMBERED, &values);
        self.index.runs.push(Entry {
            values,
            file: file.clone(),
            outcome: EntryOutcome::Running,
            reason: None,
            trial: None,
        });
        self.write()?;
        Ok(file)
    }

    /// Records how the last trial ended, in the index and in the search. Without a verdict, the
    /// searches halt.
    pub(super) fn record(
        &mut self,
        search: &mut measure::capacity::Search,
        plan: &TrialPlan,
        (outcome, reason): (EntryOutcome, Option<String>),
        verdict: Option<Verdict>,
    ) -> Result<Option<Halt>, Failure> {
        let file = self.index.runs.last().map(|entry| entry.file.clone());
        let file = file.expect("the trial was added");
        let mut trial = verdict.map(|verdict| TrialEntry {
            combination: plan.combination,
            trial: Trial {
                load: plan.load,
                hold: plan.hold,
                verdict,
                served: None,
                took: plan.began.elapsed(),
                fresh: plan.fresh,
            },
            worsened: None,
        });
        self.ended_at = Some(Instant::now());
        let why = trial.as_mut().and_then(|trial| self.judge(&file, trial));
        let said = why.or_else(|| reason.clone());
        let said = match trial.as_ref().map(|entry| entry.trial.verdict) {
            Some(Verdict::GettingWorse) => format!("  got worse: {}", said.unwrap_or_default()),
            _ => outcome_text(outcome, said.as_deref()),
        };
        self.console.say(&said);
        let entry = self.index.runs.last_mut().expect("the trial was added");
        entry.outcome = outcome;
        entry.reason = reason;
        entry.trial.clone_from(&trial);
        self.write()?;
        Ok(match trial {
            Some(entry) => {
                search.record(entry.trial);
                None
            }
            None if outcome == EntryOutcome::Stopped => Some(Halt::Stopped),
            None => Some(Halt::NotBegun),
        })
    }

    /// Records the end of a search.
    pub(super) fn end(&mut self, combination: usize, end: End) -> Result<(), Failure> {
        if let Some(goal) = &mut self.index.capacity {
            goal.ended.push(EndedSearch { combination, end });
        }
        self.write()
    }

    /// Estimates the duration of a trial: its plan, and what the last one took beyond its own plan.
    pub(super) fn cost(
        &self,
        combination: usize,
        search: &measure::capacity::Search,
        load: u64,
        hold: Duration,
    ) -> Duration {
        let settle = self.search.combinations().settle();
        let planned = |load, hold| {
            let scenario = self.search.scenario(combination, load, hold);
            let duration = scenario.ok().and_then(|scenario| scenario.duration);
            duration.unwrap_or(hold) + settle
        };
        let last = search.trials().last();
        let beyond = last.map(|last| last.took.saturating_sub(planned(last.load, last.hold)));
        planned(load, hold) + beyond.unwrap_or_default()
    }

    /// Reads from the run file what a trial shows besides its outcome, and returns the first reason
    /// for a bad one. A run file that cannot be read shows nothing more.
    fn judge(&self, file: &str, entry: &mut TrialEntry) -> Option<String> {
        let path = self.folder.join(file);
        let reader = report::open(&path, engine::catalogue_of).ok()?;
        let ahead = entry.trial.hold * HOLDS_AHEAD;
        if entry.trial.verdict == Verdict::Held
            && let Some(worsened) = report::worsened(&reader, ahead).ok()?
        {
            entry.trial.verdict = Verdict::GettingWorse;
            entry.worsened = Some(worsened.clone());
            return Some(worsened);
        }
        let report = Report::from_run(&reader).ok()?;
        let clients = report
            .populations
            .iter()
            .map(|population| &population.clients);
        let failed: u64 = clients.map(|clients| clients.failed).sum();
        let is_load = self.search.population().is_some();
        if is_load && report.populations.len() == 1 && failed > 0 {
            entry.trial.served = Some(entry.trial.load.saturating_sub(failed));
        }
        report::cause(&report).or_else(|| report.verdict.reasons.first().cloned())
    }

    /// Reports the next trial, the bounds known so far, and the rest of the budget.
    fn say(&self, values: &[String], search: &measure::capacity::Search, hold: Duration) {
        let keys = self.index.varied.iter().map(|axis| axis.key.as_str());
        let settings = keys
            .zip(values)
            .map(|(key, value)| format!("{key}: {value}"));
        let settings = settings.collect::<Vec<_>>().join(", ");
        let scale = self.search.scale();
        let answer = search.answer();
        let known = match (answer.interval, answer.largest_held, answer.smallest_failed) {
            (Some(interval), ..) => format!(
                "known so far: {} to {}",
                scale.text(interval.low.floor() as u64),
                scale.text(interval.high.ceil() as u64)
            ),
            (None, Some(held), Some(failed)) => format!(
                "known so far: {} held, {} failed",
                scale.text(held.load),
                scale.text(failed.load)
            ),
            (None, Some(held), None) => format!("known so far: {} held", scale.text(held.load)),
            (None, None, Some(failed)) => {
                format!("known so far: {} failed", scale.text(failed.load))
            }
            (None, None, None) => "nothing is known yet".to_owned(),
        };
        let left = self.search.settings().budget.saturating_sub(search.spent());
        self.console.say(&format!(
            "trial {}: {settings}, held for {}; {known}; {} left",
            search.trials().len() + 1,
            short_duration(hold.as_secs_f64()),
            short_duration(left.as_secs_f64()),
        ));
    }

    pub(super) fn write(&self) -> Result<(), Failure> {
        self.index.write(&self.folder).map_err(Failure::bad)
    }
}

/// Returns the verdict of a trial that ended with this outcome, or `None` if it says nothing. A run
/// file that could not be written, for this reason, says nothing about the tester.
pub(super) fn verdict_of(outcome: EntryOutcome, reason: Option<&str>) -> Option<Verdict> {
    match outcome {
        EntryOutcome::Pass => Some(Verdict::Held),
        EntryOutcome::Fail => Some(Verdict::Failed),
        EntryOutcome::Invalid if reason.is_none() => Some(Verdict::Invalid),
        _ => None,
    }
}

/// Returns the trials of a combination, in order.
pub(super) fn trials_of(index: &Index, combination: usize) -> Vec<Trial> {
    let trials = index.runs.iter().filter_map(|entry| entry.trial.as_ref());
    let own = trials.filter(|entry| entry.combination == combination);
    own.map(|entry| entry.trial).collect()
}
