//! Clients as the plan wants them: when they begin, which media they ask for, when they leave.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use load::{Action, Share};
use measure::{Catalogue, Recorder, Time, health, tester};
use protocol::metrics as clients;
use protocol::session::{Failure, Input, Outcome, Session};
use scenario::{Leave, Pick};

use super::Worker;
use super::sessions::{Client, SessionKey, Slot};
use super::timers::Task;
use crate::messages::Report;
use crate::trace::Traced;

/// What one worker is to do for a population.
pub(crate) struct PopulationPlan {
    pub(crate) name: String,
    pub(crate) catalogue: Catalogue,
    pub(crate) clients: Option<ClientPlan>,
}

/// The clients of a population on one worker.
pub(crate) struct ClientPlan {
    pub(crate) share: Share,
    pub(crate) urls: Vec<String>,
    pub(crate) pick: Pick,
    pub(crate) leave: Leave,
    pub(crate) client: MakeClient,
    /// What they speak TLS with, where a URL asks for it.
    pub(crate) tls: Arc<net::tls::Client>,
    /// Whether they send or receive media.
    pub(crate) media: bool,
    /// The addresses of this machine that connections come from; none where its routes decide.
    pub(crate) sources: Vec<IpAddr>,
    /// The clients that are traced, whichever worker plays them.
    pub(crate) traced: Traced,
}

/// Makes the session of a client that asks for a URL, with its seed; or says why the URL will not
/// do.
pub(crate) type MakeClient =
    Arc<dyn Fn(&str, u64) -> Result<Box<dyn Session>, String> + Send + Sync>;

/// A population on one worker, at work.
pub(super) struct Population {
    pub(super) name: String,
    pub(super) recorder: Recorder,
    /// What came after the end of the running window, where that is over and not handed over yet.
    pub(super) next: Recorder,
    pub(super) active: Level,
    pub(super) playing: Level,
    pub(super) plan: Option<ClientPlan>,
    /// Which of the source addresses is taken now.
    pub(super) source: usize,
    /// How many connections it has had in a row.
    pub(super) from_source: usize,
    by_slot: HashMap<u64, SessionKey>,
}

/// A number that goes up and down, and the most it was in the running window.
#[derive(Default)]
pub(super) struct Level {
    now: u64,
    most: u64,
}

impl Level {
    pub(super) fn rise(&mut self) {
        self.now += 1;
        self.most = self.most.max(self.now);
    }

    pub(super) fn fall(&mut self) {
        self.now -= 1;
    }

    /// The most it was in the window that ends now.
    pub(super) fn take_most(&mut self) -> f64 {
        std::mem::replace(&mut self.most, self.now) as f64
    }
}

impl Population {
    pub(super) fn new(plan: PopulationPlan) -> Population {
        Population {
            name: plan.name,
            recorder: Recorder::new(plan.catalogue),
            next: Recorder::new(plan.catalogue),
            active: Level::default(),
            playing: Level::default(),
            plan: plan.clients,
            source: 0,
            from_source: 0,
            by_slot: HashMap::new(),
        }
    }

    /// What counts a packet that came then, where the running window ends at `end`.
    #[inline]
    pub(super) fn recorder_at(&mut self, at: Time, end: Time) -> &mut Recorder {
        match at < end {
            true => &mut self.recorder,
            false => &mut self.next,
        }
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.plan.as_ref().and_then(|plan| plan.share.next_due())
    }

    /// What its clients speak TLS with; nothing where there are no clients.
    pub(super) fn tls(&self) -> Option<&net::tls::Client> {
        self.plan.as_ref().map(|plan| &*plan.tls)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.plan
            .as_ref()
            .is_none_or(|plan| plan.share.is_finished())
    }
}

/// How long sessions are told to stop before the loop looks at its sockets again.
const STOPPING: Duration = Duration::from_millis(5);

/// How many clients are begun before the loop looks at its sockets again: beginning one costs some
/// tens of microseconds, and a thousand at once must not keep what arrives waiting.
const BEGIN_AT_ONCE: usize = 64;

/// In how many windows the rows of all clients that live are sent once.
const LIVING_EVERY: u64 = 10;

impl Worker {
    pub(super) fn start_and_stop_clients(&mut self, now: Time) {
        for index in 0..self.populations.len() {
            for _ in 0..BEGIN_AT_ONCE {
                let Some(plan) = &mut self.populations[index].plan else {
                    break;
                };
                match plan.share.next_action(now) {
                    Some(Action::Start {
                        slot,
                        generation,
                        due,
                    }) => {
                        self.begin_client(index, slot, generation, due);
                    }
                    Some(Action::Stop { slot }) => {
                        if let Some(&key) = self.populations[index].by_slot.get(&slot) {
                            self.stop_session(key, now);
                        }
                    }
                    Some(Action::TurnAway { .. }) => {
                        self.populations[index]
                            .recorder
                            .add(clients::TURNED_AWAY, 1);
                    }
                    None => break,
                }
            }
        }
    }

    fn begin_client(&mut self, index: usize, slot: u64, generation: u32, due: Time) {
        let begun = self.clock.now();
        let seed = protocol::mix::mix(&[self.seed, index as u64, slot, u64::from(generation)]);
        let population = &mut self.populations[index];
        let Some(plan) = &population.plan else { return };
        let place = match plan.pick {
            Pick::Random => protocol::mix::mix(&[seed, 1]),
            Pick::InTurn => slot + u64::from(generation),
            Pick::Own => slot,
        };
        let url = plan.urls[(place % plan.urls.len() as u64) as usize].clone();
        let session = (plan.client)(&url, seed);
        let leave = plan.leave;
        let trace = plan.traced.get(&slot).cloned();
        population.recorder.add(clients::STARTED, 1);
        let late = begun.since(due);
        population
            .recorder
            .record(clients::START_LATENESS, late.as_nanos() as u64);
        if late > health::LATE_START {
            self.tester.add(tester::NOT_STARTED_IN_TIME, 1);
        }
        self.clients += 1;
        // Unique without asking the other workers.
        let id = (self.clients - 1) * (self.others.len() as u64 + 1) + u64::from(self.index);
        let client = Client {
            id,
            slot,
            generation,
            url,
            due,
            begun,
            first_media: None,
            streams: Vec::new(),
            described: None,
        };
        let session = match session {
            Ok(session) => session,
            Err(detail) => {
                let failure = Failure {
                    reason: "invalid_url",
                    detail,
                };
                self.populations[index].active.rise();
                self.client_ended(index, client, Outcome::Failed(failure));
                return;
            }
        };
        let key = self.add_session(session, index, Some(client));
        if let Some(slot) = self.slot(key) {
            slot.trace = trace;
        }
        let population = &mut self.populations[index];
        population.active.rise();
        population.by_slot.insert(slot, key);
        if let Leave::After(stay) = leave {
            self.timers.add(due + stay, Task::Leave(key));
        }
        self.deliver(key, Input::Start { due });
    }

    pub(super) fn add_session(
        &mut self,
        session: Box<dyn Session>,
        population: usize,
        client: Option<Client>,
    ) -> SessionKey {
        self.serial += 1;
        let slot = Slot::new(self.serial, session, population, client);
        SessionKey {
            place: self.sessions.insert(slot),
            serial: self.serial,
        }
    }

    /// Says what the trace of a client has not, where it is traced.
    pub(super) fn trace_misses(&mut self, key: SessionKey, what: &str) {
        let Some(slot) = self.slot(key).filter(|slot| slot.trace.is_some()) else {
            return;
        };
        let population = slot.population;
        let number = slot.client.as_ref().map_or(0, |client| client.slot);
        let name = &self.populations[population].name;
        let text = format!("the trace of {name}/{number} has not {what}");
        self.note("trace_incomplete", Some(population), text);
    }

    /// Tells a session to come to its end, and sees to it that it does.
    pub(super) fn stop_session(&mut self, key: SessionKey, now: Time) {
        self.stop_session_until(key, now + self.stop_timeout);
    }

    fn stop_session_until(&mut self, key: SessionKey, until: Time) {
        let Some(slot) = self.slot(key) else { return };
        if !slot.stopping {
            slot.stopping = true;
            self.timers.add(until, Task::Cut(key));
            self.deliver(key, Input::Stop { until });
            self.leaves(key);
        }
    }

    pub(super) fn stop_all(&mut self, until: Time) {
        self.stopping = true;
        for population in &mut self.populations {
            if let Some(plan) = &mut population.plan {
                plan.share.close();
            }
        }
        self.stop_listening();
        self.to_stop = (self.keys().into_iter(), until);
        self.stop_some();
    }

    /// Tells sessions that they are to stop, for as long as the loop can bear it: of many thousands
    /// that takes longer.
    pub(super) fn stop_some(&mut self) {
        let (turn_ends, until) = (self.clock.now() + STOPPING, self.to_stop.1);
        while let Some(key) = self.to_stop.0.next() {
            self.stop_session_until(key, until);
            if self.clock.now() >= turn_ends {
                break;
            }
        }
    }

    /// Ends every session where it stands.
    pub(super) fn end_all_now(&mut self) {
        for population in &mut self.populations {
            if let Some(plan) = &mut population.plan {
                plan.share.close();
            }
        }
        for key in self.keys() {
            self.end_session_now(key);
        }
    }

    /// Sends the rows of some of the clients that live, others in each window: every client's comes
    /// round once in so many windows.
    pub(super) fn report_the_living(&mut self) {
        let first = usize::try_from(self.window % LIVING_EVERY).unwrap_or(0);
        let step = usize::try_from(LIVING_EVERY).unwrap_or(1);
        // By place, so that the cost is a share of the places and not all of them.
        let end = self.sessions.capacity();
        for place in (first..end).step_by(step) {
            let Some(slot) = self.sessions.get(place) else {
                continue;
            };
            let Some(client) = &slot.client else { continue };
            let mut state = client.state(self.populations[slot.population].name.clone());
            state.streams = slot.session.streams(&mut self.sinks);
            self.report(Report::Client(Box::new(state)));
        }
    }

    fn keys(&self) -> Vec<SessionKey> {
        let key = |(place, slot): (usize, &Slot)| SessionKey {
            place,
            serial: slot.serial,
        };
        self.sessions.iter().map(key).collect()
    }

    /// Ends a session that did not come to an end in the time it was given.
    pub(super) fn cut_session(&mut self, key: SessionKey) {
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
            format!("{who}: not ended in time, cut off"),
        );
        self.end_session_now(key);
    }

    /// Tells a session that no time is left, so that it hands in its figures and takes its sinks
    /// and flows away; and takes it away itself where it does not obey.
    fn end_session_now(&mut self, key: SessionKey) {
        self.catch_up(key);
        let until = self.clock.now();
        self.deliver(key, Input::Stop { until });
        self.end_session(key, Outcome::Stopped);
    }

    /// Counts how a client ended and lets the plan know.
    pub(super) fn client_ended(&mut self, index: usize, client: Client, outcome: Outcome) {
        let ended = self.clock.now();
        let population = &mut self.populations[index];
        match &outcome {
            Outcome::Completed => population.recorder.add(clients::COMPLETED, 1),
            Outcome::Stopped => population.recorder.add(clients::STOPPED, 1),
            Outcome::Failed(failure) => {
                population.recorder.add(clients::FAILED, 1);
                population.recorder.fail(failure.reason);
            }
        }
        population.active.fall();
        if client.first_media.is_some() {
            population.playing.fall();
        }
        population.by_slot.remove(&client.slot);
        if let Some(plan) = &mut population.plan {
            plan.share.ended(client.slot, ended);
        }
        let population = population.name.clone();
        let mut state = client.state(population);
        state.ended = Some((ended, outcome));
        state.streams = client.streams;
        state.described = client.described;
        self.report(Report::Client(Box::new(state)));
    }
}
