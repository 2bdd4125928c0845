//! `streamgauge calibrate`: proves on this machine that what is measured is true.

mod capacity;
mod judge;
mod show;
mod trial;
mod truth;

use std::time::Duration;

use engine::{Control, Phase, Progress};
use report::human::{plural, span};

use crate::args::{self, Way};
use crate::console::Console;
use crate::exit::{Exit, Failure, Message};
use crate::files;
use crate::force::Force;
use crate::output::{Form, Output};
use crate::progress::Status;
use crate::signals::Watch;
use capacity::Capacity;
use judge::Judgement;
use trial::{Trial, Trouble};

/// Length of the media of a trial.
const LENGTH: Duration = Duration::from_secs(4);
/// The same, in a hurry.
const LENGTH_QUICK: Duration = Duration::from_secs(3);

impl Way {
    /// All there are.
    const ALL: [Way; 3] = [Way::Ring, Way::Sockets, Way::Tcp];

    /// As it is written in JSON.
    fn name(self) -> &'static str {
        match self {
            Way::Ring => "udp_ring",
            Way::Sockets => "udp_sockets",
            Way::Tcp => "tcp",
        }
    }

    /// As people read it.
    fn title(self) -> &'static str {
        match self {
            Way::Ring => "UDP, read from packet rings",
            Way::Sockets => "UDP, read from sockets",
            Way::Tcp => "TCP, interleaved",
        }
    }

    /// The `transport` of a population that is received in this way.
    fn transport(self) -> &'static str {
        match self {
            Way::Ring | Way::Sockets => "udp",
            Way::Tcp => "tcp",
        }
    }

    /// What has to be set of a scenario, so that it is received in this way.
    fn set(self) -> Option<&'static str> {
        match self {
            Way::Ring => Some("tester.receive=ring"),
            Way::Sockets => Some("tester.receive=sockets"),
            Way::Tcp => None,
        }
    }
}

/// What was found of one receive path.
struct Found {
    way: Way,
    trial: Trial,
    /// How much it carries; `None` where nobody asked, or where its figures are not true anyway.
    capacity: Option<Capacity>,
}

/// What was found in all.
struct Outcome {
    found: Vec<Found>,
    /// Receive paths that this process cannot have, and why.
    missing: Vec<(Way, String)>,
}

impl Outcome {
    /// Whether there is anything, and all of it true.
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
    let wanted = |way: &Way| arguments.path.is_empty() || arguments.path.contains(way);
    for way in Way::ALL.into_iter().filter(wanted) {
        let mut progress = |progress: &Progress| {
            if progress.phase == Phase::Running {
                let clients: u64 = progress.populations.iter().map(|(_, p)| p.playing).sum();
                status.update(&format!(
                    "{}: {}, {}",
                    way.title(),
                    span(progress.elapsed.as_secs_f64()),
                    plural(clients as f64, "client", "clients"),
                ));
            }
        };
        let mut once = || {
            stoppable(|control| {
                trial::trial(way, length, folder, &arguments.set, control, &mut progress)
            })
        };
        let mut trial = match once() {
            // One that was asked for by name and cannot be had is an error; else it is only said.
            Err(Trouble::NoPath(why)) if arguments.path.is_empty() => {
                outcome.missing.push((way, why));
                continue;
            }
            other => other?,
        };
        if trial.judge() == Judgement::Unknown {
            // Something else took the processor while the server sent. That happens; once more.
            trial = once()?;
        }
        let capacity = if arguments.skip_capacity || trial.judge() == Judgement::Off {
            None
        } else {
            Some(stoppable(|control| {
                capacity::capacity(
                    way,
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
            way,
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

/// Does something that Ctrl-C ends.
fn stoppable<T>(run: impl FnOnce(&Control) -> Result<T, Trouble>) -> Result<T, Trouble> {
    let control = Control::new();
    let watch = Watch::start(control.clone())
        .map_err(|error| Failure::bad(format_args!("cannot listen for Ctrl-C: {error}")))?;
    let done = run(&control);
    if watch.any() {
        return Err(Trouble::Failure(Failure {
            exit: Exit::Stopped,
            message: Message::Plain("stopped before it was done".to_owned()),
        }));
    }
    done
}
