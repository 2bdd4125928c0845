//! Report loop of servers and sources: handles worker reports until all workers have ended.

use std::io;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;
use measure::{Catalogue, Window};
use net::Clock;

use crate::control::Control;
use crate::error::EngineError;
use crate::messages::{RunnerCommand, WorkerReport};
use crate::window_merger::{MergedWindow, WindowMerger};
use crate::worker::pool::WorkerPool;

/// Interval between checks of the stop and kill flags.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Report of a worker pool, with windows merged over its workers.
pub(crate) enum PoolReport {
    Window(MergedWindow<Window>),
    /// Any report except windows and `Finished`.
    WorkerReport(WorkerReport),
}

/// Handles the reports of a worker pool until all workers have ended. Forwards a stop or kill
/// request of the user to the workers; after a stop, sessions have `stop_timeout` to end.
///
/// `catalogue` belongs to the pool's only population, `what` names the pool in error messages.
pub(crate) fn handle_reports(
    pool: &WorkerPool,
    clock: &Clock,
    (catalogue, what): (Catalogue, &str),
    control: &Control,
    stop_timeout: Duration,
    hear: &mut dyn FnMut(PoolReport) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let mut assembly = WindowMerger::new(pool.len(), vec![catalogue]);
    let (mut stopping, mut killed) = (false, false);
    while !assembly.is_over() {
        match pool.reports.recv_timeout(STOP_CHECK_INTERVAL) {
            Ok(WorkerReport::Window { worker, window }) => assembly.add(worker, window),
            Ok(WorkerReport::Finished { worker, error }) => {
                if let Some(error) = error {
                    return Err(EngineError::System {
                        what: "a worker failed".to_owned(),
                        error,
                    });
                }
                assembly.member_ended(worker);
            }
            Ok(report) => hear(PoolReport::WorkerReport(report))?,
            Err(RecvTimeoutError::Timeout) => {
                // A worker that ended normally has a `Finished` report in the queue, which is
                // handled first.
                let dead = |worker| pool.is_gone(worker) && pool.reports.is_empty();
                if assembly.running_members().any(dead) {
                    return Err(worker_crashed(what));
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Err(worker_crashed(what)),
        }
        while let Some(window) = assembly.take() {
            hear(PoolReport::Window(window))?;
        }
        if control.is_stopped() && !stopping {
            stopping = true;
            let until = clock.now() + stop_timeout;
            pool.broadcast(&RunnerCommand::Stop { until });
        }
        if control.is_killed() && !killed {
            killed = true;
            pool.broadcast(&RunnerCommand::Kill);
        }
    }
    Ok(())
}

fn worker_crashed(what: &str) -> EngineError {
    EngineError::System {
        what: format!("a worker of the {what} crashed"),
        error: io::Error::other("its thread panicked"),
    }
}
