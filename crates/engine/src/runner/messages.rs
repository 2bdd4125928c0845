//! Messages between the coordinator of a run and its runners.

use std::sync::Arc;

use measure::Window;
use runfile::{ClientRow, EventRow};

use crate::window_merger::{MergedWindow, TesterPart, merge_testers};

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

impl MergedWindow<RunnerFigures> {
    /// Figures of the tester, merged over runners.
    pub(crate) fn tester(&self) -> Window {
        merge_testers(self.testers.iter().flat_map(|part| part.figures.windows()))
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
