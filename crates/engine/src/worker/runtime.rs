//! State shared by the parts of a worker: the clock, the polls, the timers, pending session inputs,
//! and the tester's own metrics.

use std::io;

use crossbeam_channel::Sender;
use measure::{Recorder, Time, tester};
use net::{Clock, Waker};

use super::ids::{SessionKey, SocketId};
use super::notes::Notes;
use super::pending_inputs::PendingInputs;
use super::readiness::Readiness;
use super::timers::Timers;
use crate::messages::WorkerReport;

/// Passed to every part that needs more than its own state.
pub(super) struct Runtime {
    pub(super) clock: Clock,
    pub(super) readiness: Readiness,
    pub(super) timers: Timers,
    pub(super) inbox: PendingInputs,
    /// Metrics of the tester itself.
    pub(super) tester: Recorder,
    pub(super) notes: Notes,
    /// Start of the current loop iteration.
    pub(super) turn: Time,
    /// Datagrams of sessions that the kernel dropped for lack of buffer space.
    losses: Vec<(SessionKey, u64)>,
    serial: u64,
}

impl Runtime {
    pub(super) fn new(waker: &Waker, reports: Sender<WorkerReport>) -> io::Result<Runtime> {
        Ok(Runtime {
            clock: Clock::start(),
            readiness: Readiness::new(waker)?,
            timers: Timers::default(),
            inbox: PendingInputs::default(),
            tester: Recorder::new(tester::TESTER_CATALOGUE),
            notes: Notes::new(reports),
            turn: Time::ZERO,
            losses: Vec::new(),
            serial: 0,
        })
    }

    /// Returns a number that is unique on this worker.
    pub(super) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Returns the number that the next call of [`Runtime::next_serial`] will return.
    pub(super) fn coming_serial(&self) -> u64 {
        self.serial + 1
    }

    /// Marks a socket for reading in the next iteration, as [`Readiness::read_later`].
    pub(super) fn read_later(&mut self, id: SocketId) {
        self.readiness.read_later(id);
    }

    /// Records `datagrams` dropped at a socket for lack of buffer space, `each` of them for every
    /// session of `sessions`.
    pub(super) fn add_loss(
        &mut self,
        datagrams: u64,
        each: u64,
        sessions: impl IntoIterator<Item = SessionKey>,
    ) {
        self.tester.add(tester::SOCKET_OVERFLOW, datagrams);
        let sessions = sessions.into_iter().map(|session| (session, each));
        self.losses.extend(sessions);
    }

    /// Returns the next loss recorded by [`Runtime::add_loss`] that is not counted for its session
    /// yet.
    #[inline]
    pub(super) fn next_loss(&mut self) -> Option<(SessionKey, u64)> {
        self.losses.pop()
    }

    /// Adds a note to the event list, about the population `subject` if given.
    pub(super) fn note(&mut self, kind: &'static str, subject: Option<&str>, text: String) {
        self.notes.add(self.clock.now(), kind, subject, text);
    }
}
