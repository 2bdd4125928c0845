//! Hearing what a crew says until it has ended, for what is no run: servers and sources.

use std::io;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;
use measure::{Catalogue, tester};
use net::Clock;

use crate::collect::{Assembled, Assembly};
use crate::control::Control;
use crate::crew::Crew;
use crate::error::EngineError;
use crate::messages::{Command, WorkerReport};

/// How often it looks whether it is to stop.
const LOOK_UP: Duration = Duration::from_millis(50);

/// What a crew says.
pub(crate) enum Heard {
    /// What one window saw, of all workers.
    Window(Assembled),
    /// Anything else but that a worker has ended.
    WorkerReport(WorkerReport),
}

/// Hears what a crew says, until all its workers have ended; tells it to stop when the user wants
/// so, and how long that may take. `catalogue` is that of its only population, `what` it is in
/// words.
pub(crate) fn attend(
    crew: &Crew,
    clock: &Clock,
    (catalogue, what): (Catalogue, &str),
    control: &Control,
    stop_timeout: Duration,
    hear: &mut dyn FnMut(Heard) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let mut assembly = Assembly::new(crew.len(), vec![catalogue], tester::TESTER_CATALOGUE);
    let (mut stopping, mut killed) = (false, false);
    while !assembly.is_over() {
        match crew.reports.recv_timeout(LOOK_UP) {
            Ok(WorkerReport::Window {
                worker,
                index,
                begins,
                seconds,
                populations,
                tester,
            }) => {
                assembly.add(
                    worker,
                    Assembled {
                        index,
                        begins,
                        seconds,
                        populations,
                        tester,
                    },
                );
            }
            Ok(WorkerReport::Finished { worker, error }) => {
                if let Some(error) = error {
                    return Err(EngineError::System {
                        what: "a worker failed".to_owned(),
                        error,
                    });
                }
                assembly.ended(worker);
            }
            Ok(report) => hear(Heard::WorkerReport(report))?,
            Err(RecvTimeoutError::Timeout) => {
                // One that has just ended has said so, and is heard before this is looked at again.
                let dead = |worker| crew.is_gone(worker) && crew.reports.is_empty();
                if assembly.at_work().any(dead) {
                    return Err(broke_down(what));
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Err(broke_down(what)),
        }
        while let Some(window) = assembly.take() {
            hear(Heard::Window(window))?;
        }
        if control.is_stopped() && !stopping {
            stopping = true;
            let until = clock.now() + stop_timeout;
            crew.tell(|| Command::Stop { until });
        }
        if control.is_killed() && !killed {
            killed = true;
            crew.tell(|| Command::Kill);
        }
    }
    Ok(())
}

fn broke_down(what: &str) -> EngineError {
    EngineError::System {
        what: format!("a worker of the {what} broke down"),
        error: io::Error::other("its thread panicked"),
    }
}
