//! Trials of a capacity search in one run: clients join and leave a server that continues. A new
//! run begins if the search asks for a new server, or for more clients than the run allows for.

use std::time::Duration;

use engine::{Finished, Level, Levels};
use measure::VerdictResult;
use measure::capacity::{Step, Verdict};
use runfile::series::EntryOutcome;
use scenario::Scenario;

use super::runner::{Runner, outcome_of};
use super::trial_log::{Halt, TrialLog, TrialPlan, verdict_of};
use crate::exit::Failure;

/// A run allows for this multiple of its first load, or for less if this machine cannot do it.
const ROOM: [u64; 2] = [4, 2];

/// Duration of a run beyond the budget of its search: it is ended by its last trial.
const BEYOND_BUDGET: Duration = Duration::from_secs(3_600);

/// Runs trials from this one on, until the run cannot continue. Returns the reason why the searches
/// halt, if they do.
pub(super) fn run(
    runner: &Runner<'_>,
    log: &mut TrialLog<'_>,
    search: &mut measure::capacity::Search,
    first: TrialPlan,
) -> Result<Option<Halt>, Failure> {
    let (room, scenario) = match roomy_scenario(runner, log, &first)? {
        Ok(found) => found,
        Err(limit) => {
            // A load beyond the limits of this process says nothing about the server.
            log.begin(search, &first)?;
            let outcome = (EntryOutcome::NotBegun, Some(limit.text()));
            return log.record(search, &first, outcome, Some(Verdict::Invalid));
        }
    };
    let level = level(log, search, &first)?;
    let mut climb = Climb {
        runner,
        log,
        search,
        plan: first,
        room,
        halted: Ok(None),
    };
    let population = climb.log.search.population().unwrap_or_default().to_owned();
    let levels = Levels {
        population,
        first: level,
        next: &mut |finished| climb.next(finished),
    };
    let ran = runner.run_levels(&scenario, levels);
    let Climb {
        log,
        search,
        plan,
        halted,
        ..
    } = climb;
    if let Some(halt) = halted? {
        return Ok(Some(halt));
    }
    match ran {
        Ok(None) => Ok(None),
        Ok(Some(finished)) => record(log, search, &plan, &finished),
        Err(outcome) => log.record(search, &plan, outcome, None),
    }
}

/// Returns the largest number of clients that a run allows for, and its scenario; or the limit of
/// this machine if it cannot do even the first load.
fn roomy_scenario(
    runner: &Runner<'_>,
    log: &TrialLog<'_>,
    first: &TrialPlan,
) -> Result<Result<(u64, Scenario), Failure>, Failure> {
    let settings = log.search.settings();
    let time = settings.budget + BEYOND_BUDGET;
    let scenario = |clients| log.search.scenario(first.combination, clients, time);
    for room in ROOM {
        let clients = first.load.saturating_mul(room).min(settings.max);
        if let Ok(scenario) = scenario(clients)
            && runner.runners.check_descriptors(&scenario).is_ok()
        {
            return Ok(Ok((clients, scenario)));
        }
    }
    let scenario = scenario(first.load).map_err(Failure::diagnostic)?;
    Ok(runner
        .runners
        .check_descriptors(&scenario)
        .map(|()| (first.load, scenario)))
}

/// Adds a trial to the log and returns its level.
fn level(
    log: &mut TrialLog<'_>,
    search: &measure::capacity::Search,
    plan: &TrialPlan,
) -> Result<Level, Failure> {
    let scenario = log.search.scenario(plan.combination, plan.load, plan.hold);
    let scenario = scenario.map_err(Failure::diagnostic)?;
    let file = log.begin(search, plan)?;
    Ok(Level {
        scenario,
        run_file: log.folder.join(file),
    })
}

fn record(
    log: &mut TrialLog<'_>,
    search: &mut measure::capacity::Search,
    plan: &TrialPlan,
    finished: &Finished,
) -> Result<Option<Halt>, Failure> {
    let outcome = outcome_of(finished);
    let reason = finished.run_file_error.clone();
    let verdict = verdict_of(outcome, reason.as_deref());
    log.record(search, plan, (outcome, reason), verdict)
}

/// A search that goes on from trial to trial.
struct Climb<'a, 'b, 'c> {
    runner: &'a Runner<'b>,
    log: &'a mut TrialLog<'c>,
    search: &'a mut measure::capacity::Search,
    /// The current trial.
    plan: TrialPlan,
    /// Largest number of clients of this run.
    room: u64,
    halted: Result<Option<Halt>, Failure>,
}

impl Climb<'_, '_, '_> {
    /// Records the current trial and returns the next level of this run.
    fn next(&mut self, finished: &Finished) -> Option<Level> {
        self.halted = record(self.log, self.search, &self.plan, finished);
        let goes_on = matches!(self.halted, Ok(None)) && !self.runner.control.is_stopped();
        // A fault of the tester, or the end of the server, would be in every later trial.
        let is_sound = finished.verdict.result != VerdictResult::Invalid && !finished.server_ended;
        if !goes_on || !is_sound {
            return None;
        }
        let combination = self.plan.combination;
        let cost = |load, hold| self.log.cost(combination, self.search, load, hold);
        let Step::Try {
            load,
            hold,
            fresh: false,
        } = self.search.next(cost)
        else {
            return None;
        };
        if load > self.room {
            return None;
        }
        self.plan = TrialPlan {
            load,
            hold,
            fresh: false,
            began: self.log.last_ended(),
            ..self.plan
        };
        match level(self.log, self.search, &self.plan) {
            Ok(level) => Some(level),
            Err(failure) => {
                self.halted = Err(failure);
                None
            }
        }
    }
}
