//! Plays a scenario and reports it: what `run`, `load` and `demo` have in common.

use std::path::{Path, PathBuf};

use engine::{Control, EngineError, Finished};
use measure::VerdictResult;
use report::{Reader, Report};
use scenario::Scenario;

use crate::again;
use crate::args::{Results, Tracing};
use crate::console::Console;
use crate::exit::{Exit, Failure, Message};
use crate::files;
use crate::force::Force;
use crate::outlets::Outlets;
use crate::output::{Form, Outputs};
use crate::place::{Kind, Place};
use crate::progress::Display;
use crate::signals::Watch;

/// What to play, and where results go.
pub(crate) struct Play<'a> {
    /// What.
    pub(crate) scenario: &'a Scenario,
    /// Where results go.
    pub(crate) results: &'a Results,
    /// Whose traffic to keep.
    pub(crate) tracing: &'a Tracing,
}

/// Plays it to its end, or until the user stops it.
pub(crate) fn play(play: Play<'_>, console: Console) -> Result<Exit, Failure> {
    files::check(play.scenario)?;
    let name = &play.scenario.name;
    let place = Place::choose(Kind::Run, name, play.results, play.tracing, console)?;
    let outputs = claimed(play.results)?;
    let outlets = Outlets::start(play.results, console)?;
    outlets.show(&place.path, play.scenario);
    let options = engine::Options {
        run_file: place.path.clone(),
        overwrite: place.overwrite,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        trace: play.tracing.trace.clone(),
        describe: !play.results.no_describe,
        command: again::command(play.scenario.seed),
    };
    let control = Control::new();
    let watch = Watch::start(control.clone())
        .map_err(|error| Failure::bad(format_args!("cannot listen for Ctrl-C: {error}")))?;
    let mut display = Display::new(console, play.scenario.duration, &control);
    let finished = engine::run(play.scenario, &options, &control, &mut |progress| {
        display.update(progress);
    });
    display.finish();
    outlets.finish();
    made_plain(&place.path, console);
    let said = |error: &EngineError| play.scenario.secrets().mask(&error.to_string());
    let finished = finished.map_err(|error| failed_to_begin(&error, said(&error), watch.any()))?;
    // From here on a signal would only keep the report from being written, once; twice still ends
    // it.
    let exit = Exit::of_run(
        finished.verdict.stopped_by_user,
        finished.verdict.result == VerdictResult::Invalid,
        finished.verdict.result == VerdictResult::Fail,
    );
    show(&finished, &place, outputs, console)?;
    for trace in &finished.traces {
        console.say(&format!("trace of {trace}"));
    }
    match finished.run_file_error {
        None => Ok(exit),
        Some(error) => Err(Failure {
            exit: Exit::of_run(finished.verdict.stopped_by_user, true, true),
            message: Message::Plain(error),
        }),
    }
}

/// Makes a run file one file again, which it is not where it was read while it was written. The run
/// itself is whole in any case.
pub(crate) fn made_plain(path: &Path, console: Console) {
    if let Err(error) = runfile::make_plain(path) {
        console.say(&format!("warning: {error}"));
    }
}

/// The files of results, which can be written.
pub(crate) fn claimed(results: &Results) -> Result<Outputs, Failure> {
    Outputs::claim(&results.reports, Force::of(results.force))
}

fn failed_to_begin(error: &EngineError, said: String, stopped: bool) -> Failure {
    match error {
        EngineError::Stopped => Failure {
            exit: Exit::Stopped,
            message: Message::Plain(said),
        },
        _ if stopped => Failure {
            exit: Exit::Stopped,
            message: Message::Plain(said),
        },
        _ => Failure::bad(said),
    }
}

/// The report of a run that has just ended, out of its run file as any later report.
fn show(
    finished: &Finished,
    place: &Place,
    outputs: Outputs,
    console: Console,
) -> Result<(), Failure> {
    let reader = report::open(&finished.run_file, engine::catalogue_of);
    let report = reader.and_then(|reader| Ok((Report::from_run(&reader)?, reader)));
    match (report, &finished.run_file_error) {
        (Ok((mut report, reader)), error) => {
            if !place.is_kept() {
                report.path = PathBuf::new();
            }
            if error.is_some() {
                // The file broke before it got its verdict.
                report.verdict = finished.verdict.clone().into();
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
            // Nothing can be read back, which is said anyway; this much is still known.
            console.say(&format!("verdict: {}", finished.verdict.result.name()));
            for reason in &finished.verdict.reasons {
                console.say(&format!("  - {reason}"));
            }
            Ok(())
        }
    }
}

/// Reports a run file: in every form that was asked for, and as a summary.
pub(crate) fn report_file(path: &Path, outputs: Outputs, console: Console) -> Result<(), Failure> {
    let reader = report::open(path, engine::catalogue_of).map_err(Failure::bad)?;
    let report = Report::from_run(&reader).map_err(Failure::bad)?;
    write_out(&report, &reader, outputs, console)
}

/// The summary goes to standard output, unless another report goes there.
fn write_out(
    report: &Report,
    reader: &Reader,
    outputs: Outputs,
    console: Console,
) -> Result<(), Failure> {
    let to_stderr = outputs.take_stdout();
    // Said at the end: that a file could not be written is no reason to keep the summary back.
    let mut written = Ok(());
    for (form, output) in outputs.reports {
        let done = output.write(|out| match form {
            Form::Json => report::json::write(report, report::source::windows(reader), out),
            Form::Html => report::html::write(report, reader, out),
            Form::Junit => report::junit::write(report, out),
            Form::Markdown => report::markdown::write(report, out),
        });
        written = written.and(done);
    }
    if let Some(folder) = outputs.csv {
        let done = folder.write(|tables| tables.add(&report.run.name, reader));
        written = written.and(done);
    }
    console.show(to_stderr, |layout| match console.quiet {
        true => report::headline(report, layout),
        false => report::summary(report, layout),
    })?;
    written
}
