//! Runs of a series, one after another: with one location, one set of live outputs and one control.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use engine::{Control, EngineError, Finished, Level, Levels, Options};
use measure::VerdictResult;
use report::human::duration;
use runfile::series::{EntryOutcome, Index};
use scenario::{Scenario, Secrets};

use super::folder;
use crate::args::{Results, RunnerPlacement, TraceOptions};
use crate::commands::play::restore_single_file;
use crate::exit::Failure;
use crate::live::outputs::{LingeringDashboard, LiveOutputs};
use crate::live::progress::{Display, Status};
use crate::output::run_location::RunLocation;
use crate::runners::Runners;
use crate::ui::console::Console;
use crate::ui::repeat_command;
use crate::ui::signals::Watch;
use crate::ui::version;

/// Interval between checks for a stop during the pause between two runs.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Makes runs in the folder of a series.
pub(super) struct Runner<'a> {
    results: &'a Results,
    tracing: &'a TraceOptions,
    pub(super) console: Console,
    /// Live views and exports of the current run. `None` after the last run.
    live_outputs: Option<LiveOutputs>,
    pub(super) control: Control,
    watch: Watch,
    pub(super) location: RunLocation,
    /// Secrets of every run: the command line that a run file keeps may contain any of them.
    secrets: Vec<Secrets>,
    /// Pause between two runs.
    settle: Duration,
    /// Number of runs that have begun.
    pub(super) runs_started: usize,
    /// Runners that play the clients of every run.
    pub(super) runners: Runners,
}

impl<'a> Runner<'a> {
    /// Starts the live outputs and creates the folder of the series, unless it exists and is
    /// continued.
    pub(super) fn start(
        results: &'a Results,
        tracing: &'a TraceOptions,
        placement: &RunnerPlacement,
        console: Console,
        location: RunLocation,
        secrets: Vec<Secrets>,
        settle: Duration,
    ) -> Result<Runner<'a>, Failure> {
        let control = Control::new();
        let watch = Watch::start(control.clone())?;
        let runners = Runners::open(placement, &control, console)?;
        let live_outputs = LiveOutputs::start(results, console)?;
        if !location.continued {
            folder::make(&location.path)?;
        }
        Ok(Runner {
            results,
            tracing,
            console,
            live_outputs: Some(live_outputs),
            control,
            watch,
            location,
            secrets,
            settle,
            runs_started: 0,
            runners,
        })
    }

    /// Ends the live views and exports, and turns the run files into single files. Returns the
    /// dashboard if it stays.
    pub(super) fn finish(&mut self, index: &Index) -> Option<LingeringDashboard> {
        let kept = self.location.is_kept();
        let kept = kept.then_some(self.location.path.as_path());
        let live_outputs = self.live_outputs.take();
        let lingering = live_outputs.and_then(|outputs| outputs.finish(kept, true, &self.watch));
        for run in &index.runs {
            restore_single_file(&self.location.path.join(&run.file), self.console);
        }
        lingering
    }

    /// Waits for the end of the dashboard.
    pub(super) fn linger(&self, lingering: Option<LingeringDashboard>) {
        if let Some(lingering) = lingering {
            lingering.wait(&self.watch, self.console);
        }
    }

    /// Runs a scenario to its end, into this file of the folder. Returns its outcome, and the
    /// reason if it could not begin or its run file is incomplete.
    pub(super) fn run(&self, scenario: &Scenario, file: &str) -> (EntryOutcome, Option<String>) {
        let options = Options {
            trace: self.tracing.trace.clone(),
            ..self.options(self.location.path.join(file), scenario)
        };
        if let Some(live_outputs) = &self.live_outputs {
            live_outputs.show(&options.run_file, scenario);
        }
        let mut display = Display::new(self.console, scenario, scenario.duration, &self.control);
        let runners = &self.runners;
        let finished = runners.run(scenario, &options, &self.control, &mut |progress| {
            display.update(progress);
        });
        drop(display);
        match finished {
            Ok(finished) => (outcome_of(&finished), finished.run_file_error),
            Err(error) => self.outcome_of_error(&error, scenario),
        }
    }

    /// Runs levels on a server that continues. `scenario` has the largest load of them. Returns the
    /// result of a level that did not reach its end; or, if the run could not begin, its outcome
    /// and the reason.
    pub(super) fn run_levels(
        &self,
        scenario: &Scenario,
        levels: Levels<'_>,
    ) -> Result<Option<Finished>, (EntryOutcome, Option<String>)> {
        let options = self.options(levels.first.run_file.clone(), scenario);
        let show = |level: &Level| {
            if let Some(live_outputs) = &self.live_outputs {
                live_outputs.show(&level.run_file, &level.scenario);
            }
        };
        show(&levels.first);
        let mut next = |finished: &Finished| {
            let level = (levels.next)(finished)?;
            show(&level);
            Some(level)
        };
        let shown = Levels {
            population: levels.population,
            first: levels.first,
            next: &mut next,
        };
        let mut display = Display::new(self.console, scenario, None, &self.control);
        let control = &self.control;
        let runners = &self.runners;
        let finished = runners.run_levels(scenario, shown, &options, control, &mut |progress| {
            display.update(progress);
        });
        drop(display);
        finished.map_err(|error| self.outcome_of_error(&error, scenario))
    }

    /// Returns the options of a run into this file, without traces.
    fn options(&self, run_file: PathBuf, scenario: &Scenario) -> Options {
        let command = repeat_command::command(scenario.seed);
        let masks = self.secrets.iter();
        Options {
            overwrite: self.location.overwrite,
            describe: !self.results.no_describe,
            command: masks.fold(command, |text, secrets| secrets.mask(&text)),
            ..version::run_options(run_file)
        }
    }

    /// Returns the outcome of a run that failed with this error, and the reason if one is known.
    fn outcome_of_error(
        &self,
        error: &EngineError,
        scenario: &Scenario,
    ) -> (EntryOutcome, Option<String>) {
        let outcome = match error {
            EngineError::Stopped => return (EntryOutcome::Stopped, None),
            _ if self.watch.was_signalled() => EntryOutcome::Stopped,
            EngineError::NotBegun(_) => EntryOutcome::Invalid,
            _ => EntryOutcome::NotBegun,
        };
        (outcome, Some(scenario.secrets().mask(&error.to_string())))
    }

    /// Waits until the machine has settled, so that a run does not measure leftovers of the
    /// previous one. `what` names the next run.
    pub(super) fn settle(&self, what: &str) {
        let status = Status::new(self.console);
        let deadline = Instant::now() + self.settle;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.control.is_stopped() {
                break;
            }
            let left_text = duration(left.as_secs_f64().ceil());
            status.update(&format!("{what} begins in {left_text}"));
            thread::park_timeout(left.min(STOP_CHECK_INTERVAL));
        }
        drop(status);
    }
}

/// Returns the outcome of a run or a level.
pub(super) fn outcome_of(finished: &Finished) -> EntryOutcome {
    match finished.verdict.result {
        _ if finished.verdict.stopped_by_user => EntryOutcome::Stopped,
        _ if finished.run_file_error.is_some() => EntryOutcome::Invalid,
        VerdictResult::Pass => EntryOutcome::Pass,
        VerdictResult::Fail => EntryOutcome::Fail,
        VerdictResult::Invalid => EntryOutcome::Invalid,
        VerdictResult::Stopped => EntryOutcome::Stopped,
    }
}

pub(super) fn outcome_text(outcome: EntryOutcome, reason: Option<&str>) -> String {
    let word = match outcome {
        EntryOutcome::Pass => "passed",
        EntryOutcome::Fail => "failed",
        EntryOutcome::Invalid => "invalid",
        EntryOutcome::Stopped => "stopped",
        EntryOutcome::NotBegun => "could not begin",
        EntryOutcome::Planned | EntryOutcome::Running => "cut off",
    };
    match reason {
        Some(reason) => format!("  {word}: {reason}"),
        None => format!("  {word}"),
    }
}
