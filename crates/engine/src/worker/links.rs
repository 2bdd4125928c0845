//! How a worker and the other threads of a run reach each other.

use std::io;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use net::Waker;

use crate::messages::{Command, WorkerReport};

/// How many messages of other workers' sessions may wait for a worker.
const TOLD_WAITING: usize = 1 << 16;

/// How others reach a worker.
#[derive(Clone, Debug)]
pub(crate) struct Mailbox {
    pub(crate) commands: Sender<Command>,
    pub(crate) waker: Arc<Waker>,
}

impl Mailbox {
    /// A way to reach a worker, and what the worker has to listen to.
    pub(crate) fn new() -> io::Result<(Mailbox, Receiver<Command>)> {
        // Without a bound, because whoever commands must never wait for a worker that waits for it.
        // What the coordinator and the resolver say is little; for the rest see `pass_on`.
        let (commands, inbox) = crossbeam_channel::unbounded();
        let waker = Arc::new(Waker::new()?);
        Ok((Mailbox { commands, waker }, inbox))
    }

    pub(crate) fn tell(&self, command: Command) {
        // A worker that has ended needs to be told nothing.
        if self.commands.send(command).is_ok() {
            self.waker.wake();
        }
    }

    /// Passes on what a session of another worker said; says whether there was room.
    pub(crate) fn pass_on(&self, topic: &Arc<str>, message: &Arc<str>) -> bool {
        if self.commands.len() >= TOLD_WAITING {
            return false;
        }
        self.tell(Command::Told {
            topic: topic.clone(),
            message: message.clone(),
        });
        true
    }
}

/// How a worker reaches the others.
pub(super) struct Links {
    /// Which worker it is.
    pub(super) index: u32,
    pub(super) reports: Sender<WorkerReport>,
    pub(super) others: Vec<Mailbox>,
    pub(super) mailbox: Mailbox,
}

impl Links {
    /// How many workers there are.
    pub(super) fn workers(&self) -> usize {
        self.others.len() + 1
    }

    pub(super) fn report(&self, report: WorkerReport) {
        // Without a coordinator nobody wants to know: it is gone only after it has let us end.
        let _ = self.reports.send(report);
    }

    /// Passes on to all other workers what a session said; says whether each had room.
    pub(super) fn pass_on(&self, topic: &Arc<str>, message: &Arc<str>) -> bool {
        let others = self.others.iter();
        let full = others.filter(|other| !other.pass_on(topic, message));
        full.count() == 0
    }
}
