//! Capacity search: trials with different loads, until the capacity is known.

use std::fs;
use std::io;
use std::path::Path;

use measure::capacity::{End, Step, Verdict};
use runfile::RunFile;
use runfile::series::{Axis, CapacityGoal, Entry, EntryOutcome, Index};
use scenario::{CapacitySearch, Scenario};
use serde_json::Value;

use super::runner::Runner;
use super::trial_log::{Halt, TrialLog, TrialPlan, trials_of, verdict_of};
use super::{continuing, empty_index, report};
use crate::args::{Results, RunnerPlacement, TraceOptions};
use crate::commands::compare::{self, Baseline};
use crate::commands::play::claim_outputs;
use crate::exit::{Exit, Failure};
use crate::output::run_location::{ResultKind, RunLocation};
use crate::ui::console::Console;
use crate::ui::descriptor_limit;

/// A search to make, and where its results go.
pub(crate) struct Play<'a> {
    pub(crate) search: &'a CapacitySearch,
    /// Here, `out` names a folder.
    pub(crate) results: &'a Results,
    /// Clients whose traffic is captured in every trial.
    pub(crate) tracing: &'a TraceOptions,
    /// Runners that play the clients of every trial.
    pub(crate) runners: &'a RunnerPlacement,
    /// Folder of an interrupted search that goes on.
    pub(crate) resume: Option<&'a Path>,
}

/// Searches until the capacity is known, the budget ends, or the user stops it, and shows the
/// answer.
pub(crate) fn play(play: &Play<'_>, console: Console) -> Result<Exit, Failure> {
    let settings = play.search.settings();
    if settings.continuing && !play.tracing.trace.is_empty() {
        return Err(Failure::bad(
            "--trace: a trace is of one run, and this search continues from trial to trial; leave it out, or remove \
             `capacity.continue`",
        ));
    }
    let first = play.search.scenario(0, settings.from, settings.hold);
    let first = first.map_err(Failure::diagnostic)?;
    if play.runners.runners.is_none() {
        descriptor_limit::check(&first)?;
    }
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
    let baseline = Baseline::check(baseline, &location.path, true)?;
    let outputs = claim_outputs(play.results)?;
    let combinations = play.search.combinations();
    let secrets = (0..combinations.runs()).map(|combination| {
        let scenario = play
            .search
            .scenario(combination, settings.from, settings.hold);
        Ok(scenario.map_err(Failure::diagnostic)?.secrets())
    });
    let secrets = secrets.collect::<Result<Vec<_>, Failure>>()?;
    let runner = Runner::start(
        play.results,
        play.tracing,
        play.runners,
        console,
        location,
        secrets,
        combinations.settle(),
    )?;
    let log = TrialLog {
        search: play.search,
        folder: runner.location.path.clone(),
        console,
        index,
        ended_at: None,
    };
    let mut run = CapacityRun { runner, log };
    for line in play.search.lines() {
        console.say(&line);
    }
    let ended = run.search_all();
    let lingering = run.runner.finish(&run.log.index);
    let exit = match ended {
        Ok(true) => Exit::Bad,
        _ => exit_of(&run.log.index, combinations.runs()),
    };
    let folder = &run.runner.location.path;
    let concluded = compare::conclude(baseline, folder, exit, outputs, console, |outputs| {
        report(&run.runner.location, outputs, console)?;
        ended.map(|_| exit)
    });
    run.runner.linger(lingering.filter(|_| concluded.is_ok()));
    concluded
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
    let Some((old, new)) = index.capacity.as_ref().zip(other.capacity.as_ref()) else {
        return Some("it is no search for a capacity");
    };
    let judged = |goal: &CapacityGoal| {
        let settings = &goal.settings;
        let bounds = (settings.min, settings.max);
        (settings.hold, bounds, settings.method, settings.continuing)
    };
    if keys(index) != keys(other) || old.scale != new.scale {
        Some("the load is another one")
    } else if index.varied != other.varied {
        Some("`vary` has other values")
    } else if judged(old) != judged(new) {
        Some("`hold`, `min`, `max`, `quick` or `continue` differ")
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
    runner: Runner<'a>,
    log: TrialLog<'a>,
}

impl CapacityRun<'_> {
    /// Makes the search of each combination. Returns `true` if a trial could not begin.
    fn search_all(&mut self) -> Result<bool, Failure> {
        self.log.write()?;
        for combination in 0..self.log.search.combinations().runs() {
            match self.search_one(combination)? {
                None => {}
                Some(Halt::Stopped) => return Ok(false),
                Some(Halt::NotBegun) => return Ok(true),
            }
        }
        self.log.index.ended = true;
        self.log.write()?;
        Ok(false)
    }

    fn search_one(&mut self, combination: usize) -> Result<Option<Halt>, Failure> {
        let trials = trials_of(&self.log.index, combination);
        let settings = self.log.search.settings().clone();
        let continues = settings.continuing;
        let mut search = measure::capacity::Search::resumed(settings, &trials);
        loop {
            let cost = |load, hold| self.log.cost(combination, &search, load, hold);
            let (load, hold, fresh) = match search.next(cost) {
                Step::Try { load, hold, fresh } => (load, hold, fresh),
                Step::End(end) => {
                    self.log.end(combination, end)?;
                    return Ok(None);
                }
            };
            let began = self.log.last_ended();
            if self.runner.runs_started > 0 {
                let number = search.trials().len() + 1;
                self.runner.settle(&format!("trial {number}"));
            }
            if self.runner.control.is_stopped() {
                return Ok(Some(Halt::Stopped));
            }
            self.runner.runs_started += 1;
            let plan = TrialPlan {
                combination,
                load,
                hold,
                // Each run begins with a new server.
                fresh: fresh || continues,
                began,
            };
            let halt = match continues {
                true => continuing::run(&self.runner, &mut self.log, &mut search, plan)?,
                false => self.try_load(&mut search, plan)?,
            };
            if halt.is_some() {
                return Ok(halt);
            }
        }
    }

    /// Makes a trial in a run of its own.
    fn try_load(
        &mut self,
        search: &mut measure::capacity::Search,
        plan: TrialPlan,
    ) -> Result<Option<Halt>, Failure> {
        let scenario = self
            .log
            .search
            .scenario(plan.combination, plan.load, plan.hold);
        let scenario = scenario.map_err(Failure::diagnostic)?;
        let file = self.log.begin(search, &plan)?;
        // A load beyond the limits of this process says nothing about the server.
        let (outcome, reason, is_too_large) = match self.runner.runners.check_descriptors(&scenario)
        {
            Ok(()) => {
                let (outcome, reason) = self.runner.run(&scenario, &file);
                (outcome, reason, false)
            }
            Err(failure) => (EntryOutcome::NotBegun, Some(failure.text()), true),
        };
        let verdict = match outcome {
            EntryOutcome::NotBegun if is_too_large => Some(Verdict::Invalid),
            outcome => verdict_of(outcome, reason.as_deref()),
        };
        self.log.record(search, &plan, (outcome, reason), verdict)
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
        let all = measure::capacity::Search::resumed(goal.settings.clone(), &trials);
        all.answer().capacity.is_none()
    })
}
