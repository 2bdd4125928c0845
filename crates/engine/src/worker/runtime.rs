//! What the parts of a worker have in common: the clock, the polls, what is to be done later, what
//! sessions are to hear, and what the tester counts of itself.

use std::io;

use crossbeam_channel::Sender;
use measure::{Recorder, Time, tester};
use net::{Clock, Waker};

use super::inbox::Inbox;
use super::keys::SessionKey;
use super::notes::Notes;
use super::readiness::Readiness;
use super::timers::Timers;
use crate::messages::WorkerReport;

/// What is handed to every part that needs more than its own state.
pub(super) struct Runtime {
    pub(super) clock: Clock,
    pub(super) readiness: Readiness,
    pub(super) timers: Timers,
    pub(super) inbox: Inbox,
    /// What the tester counts of itself.
    pub(super) tester: Recorder,
    pub(super) notes: Notes,
    /// When the running turn of the loop began.
    pub(super) turn: Time,
    /// Datagrams of sessions that the kernel had no room for.
    losses: Vec<(SessionKey, u64)>,
    serial: u64,
}

impl Runtime {
    pub(super) fn new(waker: &Waker, reports: Sender<WorkerReport>) -> io::Result<Runtime> {
        Ok(Runtime {
            clock: Clock::start(),
            readiness: Readiness::new(waker)?,
            timers: Timers::default(),
            inbox: Inbox::default(),
            tester: Recorder::new(tester::TESTER_CATALOGUE),
            notes: Notes::new(reports),
            turn: Time::ZERO,
            losses: Vec::new(),
            serial: 0,
        })
    }

    /// A number that nothing else on this worker has.
    pub(super) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// The number that [`Runtime::next_serial`] gives next.
    pub(super) fn coming_serial(&self) -> u64 {
        self.serial + 1
    }

    /// Datagrams found no room at one of our sockets, so many of `each` session.
    pub(super) fn lost(
        &mut self,
        datagrams: u64,
        each: u64,
        sessions: impl IntoIterator<Item = SessionKey>,
    ) {
        self.tester.add(tester::SOCKET_OVERFLOW, datagrams);
        let sessions = sessions.into_iter().map(|session| (session, each));
        self.losses.extend(sessions);
    }

    /// What [`Runtime::lost`] was told of and is not counted for its session yet.
    #[inline]
    pub(super) fn next_loss(&mut self) -> Option<(SessionKey, u64)> {
        self.losses.pop()
    }

    /// Notes something that is about no population, or about the one of that name.
    pub(super) fn note(&mut self, kind: &'static str, subject: Option<&str>, text: String) {
        self.notes.add(self.clock.now(), kind, subject, text);
    }
}
