//! What workers and the coordinator say to each other.

use std::io;
use std::sync::Arc;

use measure::{Time, Window};
use protocol::session::Record;
use protocol::session::StreamRow;

use crate::resolver::Answer;

/// What a worker is told.
#[derive(Debug)]
pub(crate) enum Command {
    /// Start no client any more and end all sessions in order, by `until` at the latest.
    Stop { until: Time },
    /// End at once.
    Kill,
    /// From then on the plan stays where it is.
    Hold { from: Time },
    /// From then on the plan goes on.
    GoOn { at: Time },
    /// What a name stands for.
    Resolved(Answer),
    /// A session of another worker said something.
    Told { topic: Arc<str>, message: Arc<str> },
}

/// What a worker says.
#[derive(Debug)]
pub(crate) enum WorkerReport {
    /// What one window saw. Each worker sends every window, in order; the last one is as long as it
    /// took.
    Window {
        worker: u32,
        index: u64,
        begins: Time,
        seconds: f64,
        populations: Vec<Window>,
        tester: Window,
    },
    /// A client has ended, or how one stands that has not.
    Client(Box<ClientState>),
    /// Something for the list of events.
    Event {
        at: Time,
        kind: &'static str,
        subject: Option<String>,
        text: String,
    },
    /// What a session did.
    Record(Record),
    /// The worker has ended.
    Finished {
        worker: u32,
        error: Option<io::Error>,
    },
}

/// What has become of a client so far.
#[derive(Debug)]
pub(crate) struct ClientState {
    /// Unique in the run.
    pub(crate) id: u64,
    pub(crate) population: String,
    pub(crate) slot: u64,
    pub(crate) generation: u32,
    pub(crate) url: String,
    pub(crate) due: Time,
    pub(crate) begun: Time,
    pub(crate) first_media: Option<Time>,
    /// When it ended and how; none while it lives.
    pub(crate) ended: Option<(Time, protocol::session::Outcome)>,
    pub(crate) streams: Vec<StreamRow>,
    /// What the server says of the media, of a client that is there to ask.
    pub(crate) described: Option<Box<measure::media::MediaDescription>>,
}
