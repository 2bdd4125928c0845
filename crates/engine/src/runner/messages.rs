//! Messages between the coordinator of a run and its runners.

use std::sync::Arc;
use std::time::Duration;

use measure::{Time, Window};
use runfile::{ClientRow, EventRow};

use crate::window_merger::{MergedWindow, TesterPart};

/// Command of the coordinator to every runner of a run. Times are those of the run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunnerCommand {
    /// Start no more clients and shut down all sessions before `until`.
    Stop { until: Time },
    /// End at once, without shutdown.
    Kill,
    /// Hold the load plan from `from` on.
    Hold { from: Time },
    /// Resume the load plan at `at`.
    Resume { at: Time },
    /// Change the number of clients of a population to `clients` from `begin` on, over all runners.
    Extend {
        population: usize,
        begin: Time,
        over: Duration,
        clients: u64,
    },
    /// Topic message of a client of another runner.
    TopicMessage { topic: Arc<str>, message: Arc<str> },
}

/// Report of a runner.
#[derive(Clone, Debug, PartialEq)]
pub enum RunnerReport {
    /// One window. Each runner sends every window, in order. `testers` has one entry: its own.
    Window(Box<MergedWindow<RunnerFigures>>),
    /// Final state of a client, or the state of one that is still running at the end.
    Client(Box<ClientRow>),
    /// Entry for the event list, with masked secrets.
    Event(EventRow),
    /// Topic message of one of its clients, for the clients of other runners.
    TopicMessage { topic: Arc<str>, message: Arc<str> },
    /// Reason why the run cannot be judged.
    Fault(String),
    /// The runner is lost, or has stopped its clients by itself: the run cannot go on. `Ended`
    /// follows.
    Lost(String),
    /// Last report: all its workers have ended.
    Ended,
}

/// Figures of a runner itself in one window.
#[derive(Clone, Debug, PartialEq)]
pub struct RunnerFigures {
    /// Figures of each worker.
    pub workers: Vec<TesterPart<Window>>,
    /// Figures of its process and machine.
    pub process: Window,
}

impl RunnerFigures {
    /// Figures of its workers and of its process.
    pub(crate) fn windows(&self) -> impl Iterator<Item = &Window> {
        let workers = self.workers.iter().map(|part| &part.figures);
        workers.chain([&self.process])
    }
}

/// Facts about a runner that is ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunnerInfo {
    /// Number of its workers.
    pub workers: u32,
    /// How it receives media: `ring` or `sockets`.
    pub receive_path: String,
    /// Requirement of a faster receive path, if one exists and could not be chosen.
    pub receive_hint: Option<String>,
    /// Names of counters that are unavailable on its machine.
    pub unknown: Vec<String>,
    /// Texts about receivers on other machines, for the event list.
    pub receivers: Vec<String>,
}
