//! Starting and stopping of clients as planned, and the end of sessions.

use std::time::Duration;

use kit::metrics as clients;
use measure::Time;
use measure::load::Action;
use scenario::Leave;
use session::{Failure, Input, Outcome, Session};

use crate::messages::{Client, ClientState, WorkerReport};
use crate::worker::ids::SessionKey;
use crate::worker::populations::NewClient;
use crate::worker::sessions::Slot;
use crate::worker::timers::Task;
use crate::worker::{Phase, Worker};

/// Maximum time of stopping sessions before the loop checks its sockets again.
const STOPPING: Duration = Duration::from_millis(5);

/// Maximum number of clients that begin before the loop checks its sockets again. Starting one
/// takes some tens of microseconds, and a thousand at once must not delay received data.
const BEGIN_AT_ONCE: usize = 64;

/// Number of windows in which every running client is reported once.
const LIVING_EVERY: u64 = 10;

impl Worker {
    pub(crate) fn start_and_stop_clients(&mut self, now: Time) {
        for index in 0..self.populations.count() {
            for _ in 0..BEGIN_AT_ONCE {
                match self.populations.next_action(index, now) {
                    Some(Action::Start {
                        slot,
                        generation,
                        due,
                        rejoins,
                    }) => {
                        self.begin_client(index, slot, generation, due);
                        if rejoins {
                            self.populations.recorder(index).add(clients::REJOINED, 1);
                        }
                    }
                    Some(Action::Stop { slot }) => {
                        if let Some(key) = self.populations.session_in_slot(index, slot) {
                            self.stop_session(key, now);
                        }
                    }
                    Some(Action::TurnAway { .. }) => {
                        let recorder = self.populations.recorder(index);
                        recorder.add(clients::TURNED_AWAY, 1);
                    }
                    None => break,
                }
            }
        }
    }

    fn begin_client(&mut self, index: usize, slot: u64, generation: u32, due: Time) {
        let begun = self.runtime.clock.now();
        let tester = &mut self.runtime.tester;
        let beginning = self
            .populations
            .begin_client(index, slot, generation, due, begun, tester);
        let Some(NewClient {
            client,
            session,
            leave,
            trace,
        }) = beginning
        else {
            return;
        };
        let session = match session {
            Ok(session) => session,
            Err(detail) => {
                let failure = Failure {
                    reason: "invalid_url",
                    detail,
                };
                self.client_ended(index, client, Outcome::Failed(failure));
                return;
            }
        };
        let key = self.add_session(session, index, Some(client));
        if let Some(slot) = self.slot(key) {
            slot.trace = trace;
        }
        self.populations.set_session(index, slot, key);
        if let Leave::After(stay) = leave {
            self.runtime.timers.add(due + stay, Task::Leave(key));
        }
        self.deliver(key, Input::Start { due });
    }

    pub(crate) fn add_session(
        &mut self,
        session: Box<dyn Session>,
        population: usize,
        client: Option<Client>,
    ) -> SessionKey {
        let serial = self.runtime.next_serial();
        let slot = Slot::new(serial, session, population, client);
        self.sessions.add(slot)
    }

    /// Adds a note that the trace of a session's client lacks `what`, if the client is traced.
    pub(crate) fn trace_misses(&mut self, key: SessionKey, what: &str) {
        let Some(slot) = self.slot(key).filter(|slot| slot.trace.is_some()) else {
            return;
        };
        let population = slot.population;
        let number = slot.client.as_ref().map_or(0, |client| client.slot);
        let name = self.populations.name(population);
        let text = format!("the trace of {name}/{number} does not contain {what}");
        self.note("trace_incomplete", Some(population), text);
    }

    /// Asks a session to stop, and limits the time it may take.
    pub(crate) fn stop_session(&mut self, key: SessionKey, now: Time) {
        let until = now + self.sessions.stop_timeout;
        self.stop_session_until(key, until);
    }

    fn stop_session_until(&mut self, key: SessionKey, until: Time) {
        let Some(slot) = self.slot(key) else { return };
        if !slot.stopping {
            slot.stopping = true;
            self.runtime.timers.add(until, Task::Cut(key));
            self.deliver(key, Input::Stop { until });
            self.connections.leaves(key);
        }
    }

    pub(crate) fn stop_all(&mut self, until: Time) {
        self.phase = self.phase.max(Phase::Stopping);
        self.populations.close();
        self.listeners.close();
        self.datagrams.close();
        self.sessions.stop_all(until);
        self.stop_some();
    }

    /// Stops some sessions, for at most [`STOPPING`]: with many thousands, stopping all takes
    /// longer.
    pub(crate) fn stop_some(&mut self) {
        let turn_ends = self.runtime.clock.now() + STOPPING;
        while let Some((key, until)) = self.sessions.next_to_stop() {
            self.stop_session_until(key, until);
            if self.runtime.clock.now() >= turn_ends {
                break;
            }
        }
    }

    /// Ends all sessions immediately.
    pub(crate) fn end_all_now(&mut self) {
        self.populations.close();
        for key in self.sessions.keys() {
            self.end_session_now(key);
        }
    }

    /// Reports some of the running clients, different ones in each window: every client is reported
    /// once in [`LIVING_EVERY`] windows.
    pub(crate) fn report_running_clients(&mut self) {
        let first = usize::try_from(self.windows.index % LIVING_EVERY).unwrap_or(0);
        let step = usize::try_from(LIVING_EVERY).unwrap_or(1);
        for slot in self.sessions.every_nth(first, step) {
            let Some(client) = &slot.client else { continue };
            let state = ClientState {
                client: client.so_far(slot.session.streams(&mut self.sinks)),
                population: self.populations.name(slot.population).to_owned(),
                ended: None,
            };
            self.links.report(WorkerReport::Client(Box::new(state)));
        }
    }

    /// Ends a session that did not stop in time.
    pub(crate) fn cut_session(&mut self, key: SessionKey) {
        let Some(slot) = self.slot(key) else { return };
        let population = slot.population;
        let who = slot
            .client
            .as_ref()
            .map(|client| client.url.clone())
            .unwrap_or_default();
        self.note(
            "session_cut",
            Some(population),
            format!("{who}: did not stop in time, cut off"),
        );
        self.end_session_now(key);
    }

    /// Tells a session that its time has run out, so that it reports its metrics and removes its
    /// sinks and flows. Then removes the session if it still exists.
    fn end_session_now(&mut self, key: SessionKey) {
        self.catch_up(key);
        let until = self.runtime.clock.now();
        self.deliver(key, Input::Stop { until });
        self.end_session(key, Outcome::Stopped);
    }

    /// Counts the outcome of a client, reports its end to the plan, and sends its row.
    pub(crate) fn client_ended(&mut self, index: usize, client: Client, outcome: Outcome) {
        let ended = self.runtime.clock.now();
        let state = self.populations.client_ended(index, client, outcome, ended);
        self.links.report(WorkerReport::Client(Box::new(state)));
    }
}
