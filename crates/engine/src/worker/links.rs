//! Channels between a worker and the other threads of a run.

use std::io;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use net::Waker;

use super::ids::RunnerPlace;
use crate::messages::{Command, RunnerCommand, WorkerReport};

/// Maximum number of queued commands at which topic messages of other workers are still accepted.
const QUEUED_MESSAGES_MAX: usize = 1 << 16;

/// Sends commands to a worker.
#[derive(Clone, Debug)]
pub(crate) struct Mailbox {
    pub(crate) commands: Sender<Command>,
    pub(crate) waker: Arc<Waker>,
}

impl Mailbox {
    /// Creates a mailbox and the receiver of its commands.
    pub(crate) fn new() -> io::Result<(Mailbox, Receiver<Command>)> {
        // Unbounded, because a sender of commands must never wait for a worker that may be waiting
        // for the sender. The coordinator and the resolver send few commands; messages of sessions
        // are bounded in `pass_on`.
        let (commands, inbox) = crossbeam_channel::unbounded();
        let waker = Arc::new(Waker::new()?);
        Ok((Mailbox { commands, waker }, inbox))
    }

    pub(crate) fn send(&self, command: Command) {
        // Nothing to do if the worker has ended.
        if self.commands.send(command).is_ok() {
            self.waker.wake();
        }
    }

    /// Forwards a topic message of a session on another worker. Returns `false` if the queue is
    /// full.
    pub(crate) fn pass_on(&self, topic: &Arc<str>, message: &Arc<str>) -> bool {
        if self.commands.len() >= QUEUED_MESSAGES_MAX {
            return false;
        }
        self.send(Command::Runner(RunnerCommand::TopicMessage {
            topic: topic.clone(),
            message: message.clone(),
        }));
        true
    }
}

/// Channels from a worker to the other threads.
pub(crate) struct WorkerChannels {
    /// Index of this worker.
    pub(crate) index: u32,
    pub(crate) reports: Sender<WorkerReport>,
    pub(crate) others: Vec<Mailbox>,
    pub(crate) mailbox: Mailbox,
    /// Place of the runner that the worker belongs to.
    pub(crate) place: RunnerPlace,
}

impl WorkerChannels {
    /// Number of workers.
    pub(super) fn workers(&self) -> usize {
        self.others.len() + 1
    }

    pub(super) fn report(&self, report: WorkerReport) {
        // The coordinator ends only after it has ended its workers, so a report that cannot be sent
        // is not needed.
        let _ = self.reports.send(report);
    }

    /// Forwards a topic message to all other workers, and to other runners. Returns `false` if the
    /// queue of any worker was full.
    pub(super) fn pass_on(&self, topic: &Arc<str>, message: &Arc<str>) -> bool {
        if self.place.runners > 1 {
            self.report(WorkerReport::TopicMessage {
                topic: topic.clone(),
                message: message.clone(),
            });
        }
        let others = self.others.iter();
        let full = others.filter(|other| !other.pass_on(topic, message));
        full.count() == 0
    }
}
