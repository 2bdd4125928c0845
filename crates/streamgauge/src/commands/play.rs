//! Runs and reports a scenario: the common part of `run`, `load` and `demo`.

use std::path::{Path, PathBuf};

use engine::{Control, EngineError, Finished};
use measure::VerdictResult;
use report::{Reader, Report};
use scenario::Scenario;

use crate::args::{Results, RunnerPlacement, TraceOptions};
use crate::commands::compare::{self, Baseline};
use crate::exit::{Exit, Failure};
use crate::live::outputs::LiveOutputs;
use crate::live::progress::Display;
use crate::output::overwrite::Force;
use crate::output::run_location::{ResultKind, RunLocation};
use crate::output::unfinished_run::UnfinishedRun;
use crate::output::{Outputs, ReportFormat};
use crate::runners::Runners;
use crate::ui::console::Console;
use crate::ui::repeat_command;
use crate::ui::signals::Watch;
use crate::ui::version;

/// A scenario to run, and where its results go.
pub(crate) struct Play<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) results: &'a Results,
    /// Clients whose traffic is captured.
    pub(crate) tracing: &'a TraceOptions,
    /// Runners that play the clients.
    pub(crate) runners: &'a RunnerPlacement,
    /// Run that goes on, if any.
    pub(crate) unfinished: Option<UnfinishedRun>,
}

/// Runs the scenario to its end, or until the user stops it.
pub(crate) fn play(play: Play<'_>, console: Console) -> Result<Exit, Failure> {
    let control = Control::new();
    let watch = Watch::start(control.clone())?;
    let (runners, location, earlier) = match play.unfinished {
        None => {
            let runners = Runners::open(play.runners, &control, console)?;
            runners.check_descriptors(play.scenario)?;
            let name = &play.scenario.name;
            let (results, tracing) = (play.results, play.tracing);
            let location = RunLocation::choose(ResultKind::Run, name, results, tracing, console)?;
            (runners, location, None)
        }
        Some(run) => {
            let location = RunLocation::of_unfinished(&run.path);
            let runners = Runners::resume(play.runners, run.state)?;
            (runners, location, Some(run.server))
        }
    };
    let baseline = play.results.baseline.as_deref();
    let baseline = Baseline::check(baseline, &location.path, false)?;
    let outputs = claim_outputs(play.results)?;
    let live_outputs = LiveOutputs::start(play.results, console)?;
    live_outputs.show(&location.path, play.scenario);
    let options = engine::Options {
        overwrite: location.overwrite,
        trace: play.tracing.trace.clone(),
        describe: !play.results.no_describe,
        command: repeat_command::command(play.scenario.seed),
        earlier,
        ..version::run_options(location.path.clone())
    };
    let mut display = Display::new(console, play.scenario, play.scenario.duration, &control);
    let finished = runners.run(play.scenario, &options, &control, &mut |progress| {
        display.update(progress);
    });
    drop(display);
    let kept = (finished.is_ok() && location.is_kept()).then_some(location.path.as_path());
    let lingering = live_outputs.finish(kept, finished.is_ok(), &watch);
    if finished.is_ok() || !location.continued {
        restore_single_file(&location.path, console);
    }
    let masked = |error: &EngineError| play.scenario.secrets().mask(&error.to_string());
    let finished =
        finished.map_err(|error| start_failure(&error, masked(&error), watch.was_signalled()))?;
    // The run has ended: from here on, signals do not keep the report from being written. The third
    // signal of the process still ends it.
    let exit = Exit::of_run(
        finished.verdict.stopped_by_user,
        finished.verdict.result == VerdictResult::Invalid,
        finished.verdict.result == VerdictResult::Fail,
    );
    let baseline = baseline.filter(|_| finished.run_file_error.is_none());
    let path = &location.path;
    let concluded = compare::conclude(baseline, path, exit, outputs, console, |outputs| {
        show(&finished, &location, outputs, console)?;
        for trace in &finished.traces {
            console.say(&format!("trace of {trace}"));
        }
        match &finished.run_file_error {
            None => Ok(exit),
            Some(error) => {
                let exit = Exit::of_run(finished.verdict.stopped_by_user, true, true);
                Err(Failure::new(exit, error))
            }
        }
    });
    if let (Ok(_), Some(lingering)) = (&concluded, lingering) {
        lingering.wait(&watch, console);
    }
    concluded
}

/// Turns a run file that was read while it was written back into a single file. The run is complete
/// even if that fails.
pub(crate) fn restore_single_file(path: &Path, console: Console) {
    if let Err(error) = runfile::merge_log(path) {
        console.say(&format!("warning: {error}"));
    }
}

/// Claims the files of all reports, which can then be written.
pub(crate) fn claim_outputs(results: &Results) -> Result<Outputs, Failure> {
    Outputs::claim(&results.reports, Force::of(results.force))
}

fn start_failure(error: &EngineError, message: String, stopped: bool) -> Failure {
    let exit = match error {
        EngineError::Stopped => Exit::Stopped,
        _ if stopped => Exit::Stopped,
        EngineError::NotBegun(_) => Exit::Invalid,
        _ => Exit::Bad,
    };
    Failure::new(exit, message)
}

/// Reports a run that has just ended, from its run file like any later report.
fn show(
    finished: &Finished,
    location: &RunLocation,
    outputs: Outputs,
    console: Console,
) -> Result<(), Failure> {
    let reader = report::open(&finished.run_file, engine::catalogue_of);
    let report = reader.and_then(|reader| Ok((Report::from_run(&reader)?, reader)));
    match (report, &finished.run_file_error) {
        (Ok((mut report, reader)), error) => {
            if !location.is_kept() {
                report.path = PathBuf::new();
            }
            if error.is_some() {
                // The run file broke before the verdict was written to it.
                report.verdict = finished.verdict.clone();
                report.thresholds = finished
                    .thresholds
                    .iter()
                    .cloned()
                    .map(Into::into)
                    .collect();
            }
            write_out(&report, &reader, outputs, console)
        }
        (Err(error), None) => Err(Failure::bad(error)),
        (Err(_), Some(_)) => {
            // The run file cannot be read, which is reported as an error anyway. The verdict is
            // still known.
            console.say(&format!("verdict: {}", finished.verdict.result.name()));
            for reason in &finished.verdict.reasons {
                console.say(&format!("  - {reason}"));
            }
            Ok(())
        }
    }
}

/// Reports a run file: in every requested form, and as a summary.
pub(crate) fn report_file(path: &Path, outputs: Outputs, console: Console) -> Result<(), Failure> {
    let reader = report::open(path, engine::catalogue_of).map_err(Failure::bad)?;
    let report = Report::from_run(&reader).map_err(Failure::bad)?;
    write_out(&report, &reader, outputs, console)
}

/// Writes the reports and the summary.
fn write_out(
    report: &Report,
    reader: &Reader,
    outputs: Outputs,
    console: Console,
) -> Result<(), Failure> {
    outputs.write(
        |form, out| match form {
            ReportFormat::Json => report::json::write(report, report::source::windows(reader), out),
            ReportFormat::Html => report::html::write(report, reader, out),
            ReportFormat::Junit => report::junit::write(report, out),
            ReportFormat::Markdown => report::markdown::write(report, out),
        },
        |tables| tables.add(&report.run.name, reader),
        |layout| match console.quiet {
            true => report::headline(report, layout),
            false => report::summary(report, layout),
        },
        console,
    )
}
