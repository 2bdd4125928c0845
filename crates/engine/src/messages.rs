//! Messages between workers and the coordinator.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use measure::{Time, Window};
use session::{Record, Service, StreamRow};

use crate::network::resolver::ResolverAnswer;
use crate::window_merger::MergedWindow;

/// Command of the coordinator to every runner of a run, and of a runner to its workers. Times are
/// those of the run.
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

/// Command to a worker.
#[derive(Debug)]
pub(crate) enum Command {
    Runner(RunnerCommand),
    /// Result of a name lookup.
    Resolved(ResolverAnswer),
}

/// Report of a worker.
#[derive(Debug)]
pub(crate) enum WorkerReport {
    /// One window. Each worker sends every window, in order.
    Window {
        worker: u32,
        window: MergedWindow<Window>,
    },
    /// Final state of a client, or the state of one that is still running at the end.
    Client(Box<ClientState>),
    /// Entry for the event list.
    Event {
        at: Time,
        kind: &'static str,
        subject: Option<String>,
        text: String,
    },
    /// Record of a session.
    Record(Record),
    /// Topic message of a session, for the sessions of other runners.
    TopicMessage { topic: Arc<str>, message: Arc<str> },
    /// Last report: the worker has ended.
    Finished {
        worker: u32,
        error: Option<io::Error>,
    },
}

/// State of a client.
#[derive(Debug)]
pub(crate) struct ClientState {
    pub(crate) client: Client,
    pub(crate) population: String,
    /// End time and outcome; `None` while the client is running.
    pub(crate) ended: Option<(Time, session::Outcome)>,
}

/// Data of a client for the plan and the run file.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) slot: u64,
    pub(crate) generation: u32,
    pub(crate) url: String,
    pub(crate) due: Time,
    pub(crate) begun: Time,
    pub(crate) first_media: Option<Time>,
    /// How well a viewer was served, known at its end.
    pub(crate) service: Option<Service>,
    pub(crate) streams: Vec<StreamRow>,
    /// Media description given by the server, if the client is one that asks for it.
    pub(crate) described: Option<Box<measure::media::MediaDescription>>,
}

impl Client {
    /// Returns the data of a running client, with the current results of its streams.
    pub(crate) fn so_far(&self, streams: Vec<StreamRow>) -> Client {
        Client {
            url: self.url.clone(),
            streams,
            described: None,
            ..*self
        }
    }
}
