//! `streamgauge calibrate`: checks on this machine that measured figures are right.

mod capacity;
mod course;
mod declared;
mod judge;
mod show;
mod trial;
mod truth;

use std::time::Duration;

use engine::{Control, Phase, Progress};
use report::human::{plural, span};

use crate::args;
use crate::console::Console;
use crate::exit::{Exit, Failure, Message};
use crate::files;
use crate::force::Force;
use crate::output::{Form, Output};
use crate::progress::Status;
use crate::signals::Watch;
use capacity::Capacity;
use course::Course;
use declared::Setting;
use judge::Judgement;
use trial::{Trial, Trouble};

/// Length of the media of a trial.
const LENGTH: Duration = Duration::from_secs(4);
/// Length of the media of a trial with `--quick`.
const LENGTH_QUICK: Duration = Duration::from_secs(3);

/// Results of one case.
struct Found {
    course: Course,
    trial: Trial,
    /// Load that the machine can measure. `None` if it was skipped or if the figures are wrong
    /// anyway.
    capacity: Option<Capacity>,
}

/// Results of all cases.
struct Outcome {
    found: Vec<Found>,
    /// Cases that are not available to this process, and why.
    missing: Vec<(Course, String)>,
}

impl Outcome {
    /// Returns `true` if there are results, and all figures are right.
    fn passed(&self) -> bool {
        let mut judgements = self.found.iter().map(|found| found.trial.judge());
        !self.found.is_empty() && judgements.all(|judgement| judgement == Judgement::Ok)
    }
}

pub(crate) fn calibrate(arguments: &args::Calibrate, console: Console) -> Result<Exit, Failure> {
    let files = files::raise();
    let json = arguments
        .json
        .as_deref()
        .map(|path| Output::claim(Form::Json, path, Force::Unknown))
        .transpose()?;
    let folder = tempfile::Builder::new()
        .prefix("streamgauge-calibrate-")
        .tempdir()
        .map_err(|error| Failure::bad(format_args!("no folder for temporary files: {error}")))?;
    let folder = folder.path();
    let length = if arguments.quick {
        LENGTH_QUICK
    } else {
        LENGTH
    };
    let status = Status::new(console);
    let mut outcome = Outcome {
        found: Vec::new(),
        missing: Vec::new(),
    };
    for course in wanted(arguments)? {
        let mut progress = |progress: &Progress| {
            if progress.phase == Phase::Running {
                let clients: u64 = progress.populations.iter().map(|(_, p)| p.playing).sum();
                status.update(&format!(
                    "{}: {}, {}",
                    course.title(),
                    span(progress.elapsed.as_secs_f64()),
                    plural(clients as f64, "client", "clients"),
                ));
            }
        };
        let mut once = || {
            stoppable(|control| {
                if course.logs_packets() {
                    let set = &arguments.set;
                    return trial::trial(course.way, length, folder, set, control, &mut progress);
                }
                let setting = Setting {
                    course,
                    length,
                    folder,
                    set: &arguments.set,
                };
                setting.trial(control, &mut progress)
            })
        };
        let mut trial = match once() {
            // A requested receive path that is not available is an error. If none was requested, it
            // is only reported.
            Err(Trouble::NoPath(why)) if arguments.path.is_empty() => {
                outcome.missing.push((course, why));
                continue;
            }
            Err(Trouble::NoLink(why)) => {
                outcome.missing.push((course, why));
                continue;
            }
            other => other?,
        };
        if trial.was_disturbed() {
            // Another process used the processor during the trial. That happens: repeat it once.
            trial = once()?;
        }
        let skips = arguments.skip_capacity || !course.logs_packets();
        let capacity = if skips || trial.judge() == Judgement::Off {
            None
        } else {
            Some(stoppable(|control| {
                capacity::capacity(
                    course.way,
                    arguments.quick,
                    folder,
                    &arguments.set,
                    files,
                    control,
                    &mut progress,
                )
            })?)
        };
        outcome.found.push(Found {
            course,
            trial,
            capacity,
        });
    }
    status.finish();
    show::show(&outcome, json, console)?;
    Ok(if outcome.passed() {
        Exit::Pass
    } else {
        Exit::Invalid
    })
}

/// Returns the requested cases: all if none was requested.
fn wanted(arguments: &args::Calibrate) -> Result<Vec<Course>, Failure> {
    let mut courses = Course::all();
    for name in &arguments.protocol {
        if !courses.iter().any(|course| course.protocol.name == *name) {
            let mut known: Vec<&str> = courses.iter().map(|own| own.protocol.name).collect();
            known.dedup();
            let known = known.join(", ");
            return Err(Failure::bad(format_args!(
                "--protocol {name}: only {known} can be calibrated"
            )));
        }
    }
    courses.retain(|course| {
        let Course { protocol, way, .. } = course;
        let named = arguments.protocol.iter().any(|name| name == protocol.name);
        (arguments.protocol.is_empty() || named)
            && (arguments.path.is_empty() || arguments.path.contains(way))
    });
    match courses.is_empty() {
        true => Err(Failure::bad(
            "no given --protocol is received by a given --path",
        )),
        false => Ok(courses),
    }
}

/// Runs something that Ctrl-C stops.
fn stoppable<T>(run: impl FnOnce(&Control) -> Result<T, Trouble>) -> Result<T, Trouble> {
    let control = Control::new();
    let watch = Watch::start(control.clone())
        .map_err(|error| Failure::bad(format_args!("cannot listen for Ctrl-C: {error}")))?;
    let done = run(&control);
    if watch.any() {
        return Err(Trouble::Failure(Failure {
            exit: Exit::Stopped,
            message: Message::Plain("stopped before calibration was complete".to_owned()),
        }));
    }
    done
}
