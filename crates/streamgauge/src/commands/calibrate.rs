//! `streamgauge calibrate`: checks on this machine that measured figures are right.

mod capacity;
mod case;
mod declared;
mod judge;
mod output;
mod trial;
mod truth;

use std::time::Duration;

use engine::{Control, Phase, Progress};
use report::human::{duration, plural};

use crate::args;
use crate::exit::{Exit, Failure};
use crate::live::progress::Status;
use crate::output::overwrite::Force;
use crate::output::{Output, ReportFormat};
use crate::ui::console::Console;
use crate::ui::descriptor_limit;
use crate::ui::signals::Watch;
use capacity::Capacity;
use case::CalibrationCase;
use declared::TrialContext;
use judge::Judgement;
use trial::{Trial, TrialError};

/// Length of the media of a trial.
const LENGTH: Duration = Duration::from_secs(4);
/// Length of the media of a trial with `--quick`.
const LENGTH_QUICK: Duration = Duration::from_secs(3);
/// Maximum number of trials of a case: those that other processes or the tester's own limit disturb
/// are repeated.
const TRIALS: u32 = 5;

/// Results of one case.
struct CaseResult {
    course: CalibrationCase,
    trial: Trial,
    /// Trials before this one, which were disturbed.
    repeated: u32,
    /// Load that the machine can measure. `None` if it was skipped or if the figures are wrong
    /// anyway.
    capacity: Option<Capacity>,
}

/// Results of all cases.
struct CalibrationResult {
    found: Vec<CaseResult>,
    /// Cases that are not available to this process, and why.
    missing: Vec<(CalibrationCase, String)>,
}

impl CalibrationResult {
    /// Returns `true` if there are results, and all figures are right.
    fn passed(&self) -> bool {
        let mut judgements = self.found.iter().map(|found| found.trial.judge());
        !self.found.is_empty() && judgements.all(|judgement| judgement == Judgement::Ok)
    }
}

pub(crate) fn calibrate(arguments: &args::Calibrate, console: Console) -> Result<Exit, Failure> {
    let files = descriptor_limit::raise();
    let json = arguments
        .json
        .as_deref()
        .map(|path| Output::claim(ReportFormat::Json, path, Force::Unknown))
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
    let mut outcome = CalibrationResult {
        found: Vec::new(),
        missing: Vec::new(),
    };
    for course in requested_cases(arguments)? {
        let mut progress = |progress: &Progress| {
            if progress.phase == Phase::Running {
                let clients: u64 = progress.populations.iter().map(|(_, p)| p.playing).sum();
                status.update(&format!(
                    "{}: {}, {}",
                    course.title(),
                    duration(progress.elapsed.as_secs_f64()),
                    plural(clients as f64, "client", "clients"),
                ));
            }
        };
        let mut once = || {
            run_until_ctrl_c(|control| {
                if course.logs_packets() {
                    let set = &arguments.set;
                    return trial::trial(course.way, length, folder, set, control, &mut progress);
                }
                let setting = TrialContext {
                    course,
                    length,
                    folder,
                    set: &arguments.set,
                };
                setting.trial(control, &mut progress)
            })
        };
        let first = match once() {
            // A requested receive path that is not available is an error. If none was requested, it
            // is only reported.
            Err(TrialError::NoPath(why)) if arguments.path.is_empty() => {
                outcome.missing.push((course, why));
                continue;
            }
            Err(TrialError::NoLink(why)) => {
                outcome.missing.push((course, why));
                continue;
            }
            other => other?,
        };
        let (trial, repeated) = repeat_while_disturbed(first, once)?;
        let skips = arguments.skip_capacity || !course.logs_packets();
        let capacity = if skips || trial.judge() == Judgement::Off {
            None
        } else {
            Some(run_until_ctrl_c(|control| {
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
        outcome.found.push(CaseResult {
            course,
            trial,
            repeated,
            capacity,
        });
    }
    drop(status);
    output::show(&outcome, json, console)?;
    Ok(if outcome.passed() {
        Exit::Pass
    } else {
        Exit::Invalid
    })
}

/// Repeats a trial as long as it was disturbed. Returns the last one, and how many were before it.
fn repeat_while_disturbed(
    mut trial: Trial,
    mut once: impl FnMut() -> Result<Trial, TrialError>,
) -> Result<(Trial, u32), TrialError> {
    let mut repeated = 0;
    while trial.was_disturbed() && repeated + 1 < TRIALS {
        trial = once()?;
        repeated += 1;
    }
    Ok((trial, repeated))
}

/// Returns the requested cases: all if none was requested.
fn requested_cases(arguments: &args::Calibrate) -> Result<Vec<CalibrationCase>, Failure> {
    let mut courses = CalibrationCase::all();
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
        let CalibrationCase { protocol, way, .. } = course;
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
fn run_until_ctrl_c<T>(
    run: impl FnOnce(&Control) -> Result<T, TrialError>,
) -> Result<T, TrialError> {
    let control = Control::new();
    let watch = Watch::start(control.clone())?;
    let done = run(&control);
    if watch.was_signalled() {
        let stopped = "stopped before calibration was complete";
        return Err(Failure::new(Exit::Stopped, stopped).into());
    }
    done
}

#[cfg(test)]
mod tests {
    use kit::calibration::{Tolerance, TrueValue};
    use measure::Unit;

    use super::*;
    use judge::Row;

    /// A trial with one figure that is as far off, and known as exactly, as this.
    fn trial(off: f64, uncertainty: f64) -> Trial {
        let row = Row {
            streams: "steady",
            metric: "received".to_owned(),
            unit: Unit::Count,
            truth: TrueValue {
                value: 10.0,
                uncertainty,
            },
            measured: Some(10.0 + off),
            tolerance: Tolerance::Exact,
        };
        Trial {
            rows: vec![row],
            ..Trial::default()
        }
    }

    #[test]
    fn only_disturbed_trials_are_repeated_and_not_forever() {
        let (right, wrong, disturbed) =
            (|| trial(0.0, 0.0), || trial(5.0, 0.0), || trial(1.0, 2.0));
        let unhealthy = || Trial {
            reasons: vec!["late".to_owned()],
            ..right()
        };
        let repeat = |first: Trial, mut later: Vec<Trial>| {
            let once = || Ok(later.remove(0));
            let (last, repeated) = repeat_while_disturbed(first, once).expect("none fails");
            (last.judge(), repeated)
        };
        assert_eq!(repeat(right(), vec![]), (Judgement::Ok, 0));
        assert_eq!(repeat(wrong(), vec![]), (Judgement::Off, 0));
        let later = vec![unhealthy(), right()];
        assert_eq!(repeat(disturbed(), later), (Judgement::Ok, 2));
        assert_eq!(repeat(disturbed(), vec![wrong()]), (Judgement::Off, 1));
        let all = (0..4).map(|_| disturbed()).collect();
        assert_eq!(repeat(disturbed(), all), (Judgement::Unknown, 4));
    }
}
