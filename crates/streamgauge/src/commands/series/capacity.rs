//! Capacity search: trials with different loads, until the capacity is known.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use capacity::{End, Step, Trial, Verdict};
use report::Report;
use report::human::short_duration;
use runfile::RunFile;
use runfile::series::{Axis, CapacityGoal, EndedSearch, Entry, EntryOutcome, Index, TrialEntry};
use scenario::{CapacitySearch, Scenario};
use serde_json::Value;

use super::runner::{Runner, outcome_text};
use super::{empty_index, folder, report};
use crate::args::{Results, TraceOptions};
use crate::commands::compare;
use crate::commands::play::claim_outputs;
use crate::console::Console;
use crate::descriptor_limit;
use crate::exit::{Exit, Failure};
use crate::run_location::{ResultKind, RunLocation};

/// Number of holds after a trial within which a metric that gets worse is extrapolated.
const HOLDS_AHEAD: u32 = 10;

/// Digits of a trial's number in the name of its file.
const NUMBERED: usize = 100;

/// A search to make, and where its results go.
pub(crate) struct Play<'a> {
    pub(crate) search: &'a CapacitySearch,
    /// Here, `out` names a folder.
    pub(crate) results: &'a Results,
    /// Clients whose traffic is captured in every trial.
    pub(crate) tracing: &'a TraceOptions,
    /// Folder of an interrupted search that goes on.
    pub(crate) resume: Option<&'a Path>,
}

/// Searches until the capacity is known, the budget ends, or the user stops it, and shows the
/// answer.
pub(crate) fn play(play: &Play<'_>, console: Console) -> Result<Exit, Failure> {
    let settings = play.search.settings();
    let first = play.search.scenario(0, settings.from, settings.hold);
    let first = first.map_err(Failure::diagnostic)?;
    descriptor_limit::check(&first)?;
    let (location, index) = match play.resume {
        Some(folder) => (
            RunLocation::of_existing(folder)?,
            resumed(folder, play.search, &first)?,
        ),
        None => {
            let location = RunLocation::choose(
                ResultKind::Series,
                &first.name,
                play.results,
                play.tracing,
                console,
            )?;
            (location, new_index(play.search, &first))
        }
    };
    let baseline = play.results.baseline.as_deref();
    if let Some(baseline) = baseline {
        compare::check_baseline(baseline)?;
    }
    let outputs = claim_outputs(play.results)?;
    let (own_outputs, outputs) = compare::split(baseline, outputs);
    let combinations = play.search.combinations();
    let secrets = (0..combinations.runs()).map(|combination| {
        let scenario = play
            .search
            .scenario(combination, settings.from, settings.hold);
        Ok(scenario.map_err(Failure::diagnostic)?.secrets())
    });
    let secrets = secrets.collect::<Result<Vec<_>, Failure>>()?;
    let runner = Runner::start(
        (play.results, play.tracing),
        console,
        location,
        secrets,
        combinations.settle(),
    )?;
    let mut run = CapacityRun {
        search: play.search,
        runner,
        index,
    };
    for line in play.search.lines() {
        console.say(&line);
    }
    let ended = run.search_all();
    run.runner.finish(&run.index);
    report(&run.runner.location, own_outputs, console)?;
    let could_not_begin = ended?;
    let exit = match could_not_begin {
        true => Exit::Bad,
        false => exit_of(&run.index, combinations.runs()),
    };
    match baseline {
        None => Ok(exit),
        Some(baseline) => {
            compare::with_baseline(baseline, &run.runner.location.path, exit, outputs, console)
        }
    }
}

/// Returns the index of a new search.
fn new_index(search: &CapacitySearch, first: &Scenario) -> Index {
    let mut index = empty_index(search.combinations(), &first.name);
    index.varied.push(Axis {
        key: search.key().to_owned(),
        values: Vec::new(),
    });
    index.capacity = Some(CapacityGoal {
        key: search.key().to_owned(),
        scale: search.scale(),
        settings: search.settings().clone(),
        scenario: without_load(first),
        ended: Vec::new(),
    });
    index
}

/// Returns a scenario without what differs between trials.
fn without_load(scenario: &Scenario) -> Value {
    let mut shown = scenario.shown();
    if let Some(keys) = shown.as_object_mut() {
        for key in ["name", "seed", "duration", "warm_up", "varied"] {
            keys.remove(key);
        }
    }
    let populations = shown.get_mut("populations").and_then(Value::as_array_mut);
    for population in populations.into_iter().flatten() {
        if let Some(keys) = population.as_object_mut() {
            keys.remove("load");
        }
    }
    shown
}

/// Returns the index of an interrupted search, with the trials that were completed. Files of others
/// are removed.
fn resumed(folder: &Path, search: &CapacitySearch, first: &Scenario) -> Result<Index, Failure> {
    let mut index = Index::read(folder).map_err(Failure::bad)?;
    let alike = new_index(search, first);
    if let Some(difference) = difference(&index, &alike) {
        return Err(Failure::bad(format_args!(
            "{}: these trials cannot be added to: {difference}; name the folder of a search with this scenario, or leave out \
             `--resume`",
            folder.display()
        )));
    }
    let (done, other): (Vec<Entry>, Vec<Entry>) = index
        .runs
        .into_iter()
        .partition(|entry| entry.trial.is_some());
    for entry in &other {
        let path = folder.join(&entry.file);
        // Refuses a file that another process still writes.
        RunFile::check(&path, true).map_err(Failure::bad)?;
        remove(folder, &entry.file)?;
    }
    index.runs = done;
    index.capacity = alike.capacity;
    index.ended = false;
    Ok(index)
}

/// Returns how the search of an index differs from another, apart from its budget and accuracy.
fn difference(index: &Index, other: &Index) -> Option<&'static str> {
    let keys = |index: &Index| -> Vec<String> {
        index.varied.iter().map(|axis| axis.key.clone()).collect()
    };
    let values = |index: &Index| -> Vec<Vec<String>> {
        index
            .varied
            .iter()
            .map(|axis| axis.values.clone())
            .collect()
    };
    let Some((old, new)) = index.capacity.as_ref().zip(other.capacity.as_ref()) else {
        return Some("it is no search for a capacity");
    };
    let judged = |goal: &CapacityGoal| {
        let settings = &goal.settings;
        (settings.hold, settings.min, settings.max, settings.method)
    };
    if keys(index) != keys(other) || old.scale != new.scale {
        Some("the load is another one")
    } else if values(index) != values(other) {
        Some("`vary` has other values")
    } else if judged(old) != judged(new) {
        Some("`hold`, `min`, `max` or `quick` differ")
    } else if old.scenario != new.scenario {
        Some("the scenario differs in more than its load")
    } else {
        None
    }
}

/// Removes the files of an interrupted trial: its run file, what belongs to it, and its traces.
fn remove(folder: &Path, file: &str) -> Result<(), Failure> {
    let refused = |error: &io::Error| {
        Failure::bad(format_args!(
            "{}: an interrupted trial cannot be removed: {}",
            folder.join(file).display(),
            report::io_reason(error)
        ))
    };
    for entry in fs::read_dir(folder).map_err(|error| refused(&error))? {
        let path = entry.map_err(|error| refused(&error))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_part = name.strip_prefix(file).is_some_and(|rest| {
            ["", "-wal", "-shm"].contains(&rest)
                || (rest.starts_with('.') && rest.ends_with(".pcapng"))
        });
        if is_part {
            fs::remove_file(&path).map_err(|error| refused(&error))?;
        }
    }
    Ok(())
}

/// A search in progress.
struct CapacityRun<'a> {
    search: &'a CapacitySearch,
    runner: Runner<'a>,
    index: Index,
}

/// Reason for the end of all searches before their own end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Halt {
    /// The user stopped the search.
    Stopped,
    /// A run could not begin, or could not be kept.
    NotBegun,
}

impl CapacityRun<'_> {
    /// Makes the search of each combination. Returns `true` if a trial could not begin.
    fn search_all(&mut self) -> Result<bool, Failure> {
        self.write()?;
        for combination in 0..self.search.combinations().runs() {
            match self.search_one(combination)? {
                None => {}
                Some(Halt::Stopped) => return Ok(false),
                Some(Halt::NotBegun) => return Ok(true),
            }
        }
        self.index.ended = true;
        self.write()?;
        Ok(false)
    }

    fn search_one(&mut self, combination: usize) -> Result<Option<Halt>, Failure> {
        let values: Vec<String> = {
            let settings = self.search.combinations().settings(combination);
            settings.into_iter().map(|setting| setting.value).collect()
        };
        let trials = trials_of(&self.index, combination);
        let settings = self.search.settings().clone();
        let mut search = capacity::Search::resumed(settings, &trials);
        loop {
            let cost = |load, hold| self.cost(combination, &search, load, hold);
            let (load, hold, fresh) = match search.next(cost) {
                Step::Try { load, hold, fresh } => (load, hold, fresh),
                Step::End(end) => {
                    if let Some(goal) = &mut self.index.capacity {
                        goal.ended.push(EndedSearch { combination, end });
                    }
                    self.write()?;
                    return Ok(None);
                }
            };
            match self.try_load(combination, &values, &search, (load, hold, fresh))? {
                Ok(trial) => search.record(trial),
                Err(halt) => return Ok(Some(halt)),
            }
        }
    }

    /// Estimates the duration of a trial: its plan, and what the last one took beyond its own plan.
    fn cost(
        &self,
        combination: usize,
        search: &capacity::Search,
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

    /// Makes a trial and adds it to the index.
    fn try_load(
        &mut self,
        combination: usize,
        values: &[String],
        search: &capacity::Search,
        (load, hold, fresh): (u64, Duration, bool),
    ) -> Result<Result<Trial, Halt>, Failure> {
        let began = Instant::now();
        if self.runner.runs_started > 0 {
            let number = search.trials().len() + 1;
            self.runner.settle(&format!("trial {number}"));
        }
        if self.runner.control.is_stopped() {
            return Ok(Err(Halt::Stopped));
        }
        self.runner.runs_started += 1;
        let mut values = values.to_vec();
        values.push(self.search.scale().text(load));
        self.say(&values, search, hold);
        let scenario = self.search.scenario(combination, load, hold);
        let scenario = scenario.map_err(Failure::diagnostic)?;
        let file = folder::run_file(self.index.runs.len(), NUMBERED, &values);
        self.index.runs.push(Entry {
            values,
            file: file.clone(),
            outcome: EntryOutcome::Running,
            reason: None,
            trial: None,
        });
        self.write()?;
        // A load beyond the limits of this process says nothing about the server.
        let (outcome, reason, is_too_large) = match descriptor_limit::check(&scenario) {
            Ok(()) => {
                let (outcome, reason) = self.runner.run(&scenario, &file);
                (outcome, reason, false)
            }
            Err(failure) => (EntryOutcome::NotBegun, Some(failure.text()), true),
        };
        let verdict = match outcome {
            EntryOutcome::Pass => Some(Verdict::Held),
            EntryOutcome::Fail => Some(Verdict::Failed),
            // A run file that cannot be written says nothing about the tester.
            EntryOutcome::Invalid if reason.is_none() => Some(Verdict::Invalid),
            EntryOutcome::NotBegun if is_too_large => Some(Verdict::Invalid),
            _ => None,
        };
        let mut trial = verdict.map(|verdict| TrialEntry {
            combination,
            trial: Trial {
                load,
                hold,
                verdict,
                served: None,
                took: began.elapsed(),
                fresh,
            },
            worsened: None,
        });
        let why = trial.as_mut().and_then(|trial| self.judge(&file, trial));
        let said = why.or_else(|| reason.clone());
        let said = match trial.as_ref().map(|entry| entry.trial.verdict) {
            Some(Verdict::GettingWorse) => format!("  got worse: {}", said.unwrap_or_default()),
            _ => outcome_text(outcome, said.as_deref()),
        };
        self.runner.console.say(&said);
        let entry = self.index.runs.last_mut().expect("it was added");
        entry.outcome = outcome;
        entry.reason = reason;
        entry.trial.clone_from(&trial);
        self.write()?;
        Ok(match trial {
            Some(entry) => Ok(entry.trial),
            None if outcome == EntryOutcome::Stopped => Err(Halt::Stopped),
            None => Err(Halt::NotBegun),
        })
    }

    /// Reads from the run file what a trial shows besides its outcome, and returns the first reason
    /// for a bad one. A run file that cannot be read shows nothing more.
    fn judge(&self, file: &str, entry: &mut TrialEntry) -> Option<String> {
        let path = self.runner.location.path.join(file);
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
        let (started, failed) = clients.fold((0, 0), |(started, failed), clients| {
            (started + clients.started, failed + clients.failed)
        });
        let is_load = self.search.key().ends_with(".load.clients");
        if is_load && report.populations.len() == 1 && failed > 0 {
            entry.trial.served = Some(started.saturating_sub(failed));
        }
        report.verdict.reasons.first().cloned()
    }

    /// Reports the next trial, the bounds known so far, and the rest of the budget.
    fn say(&self, values: &[String], search: &capacity::Search, hold: Duration) {
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
        self.runner.console.say(&format!(
            "trial {}: {settings}, held for {}; {known}; {} left",
            search.trials().len() + 1,
            short_duration(hold.as_secs_f64()),
            short_duration(left.as_secs_f64()),
        ));
    }

    fn write(&self) -> Result<(), Failure> {
        let path = &self.runner.location.path;
        self.index.write(path).map_err(Failure::bad)
    }
}

/// Returns the exit code of all searches: stopped before unknown before below the smallest load.
fn exit_of(index: &Index, searches: usize) -> Exit {
    let ended = index.capacity.as_ref().map_or(&[][..], |goal| &goal.ended);
    let any = |end| ended.iter().any(|search| search.end == end);
    let is_unknown = any(End::TesterLimit) || is_without_answer(index);
    Exit::of_run(ended.len() < searches, is_unknown, any(End::BelowMin))
}

/// Returns `true` if a search ended at its budget or its maximum of trials before any load held and
/// any failed.
fn is_without_answer(index: &Index) -> bool {
    let Some(goal) = &index.capacity else {
        return false;
    };
    let ended = goal.ended.iter();
    let mut limited = ended.filter(|search| matches!(search.end, End::Budget | End::Trials));
    limited.any(|search| {
        let trials = trials_of(index, search.combination);
        let all = capacity::Search::resumed(goal.settings.clone(), &trials);
        all.answer().capacity.is_none()
    })
}

/// Returns the trials of a combination, in order.
fn trials_of(index: &Index, combination: usize) -> Vec<Trial> {
    let trials = index.runs.iter().filter_map(|entry| entry.trial.as_ref());
    let own = trials.filter(|entry| entry.combination == combination);
    own.map(|entry| entry.trial).collect()
}
