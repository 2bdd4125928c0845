//! The populations of a worker: their plans, metrics and running clients.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kit::descriptor::ClientIdentity;
use kit::metrics as clients;
use measure::load::{Action, Load, Shape, Share};
use measure::{Catalogue, Recorder, Time, Window, health, tester};
use scenario::{Leave, Pick};
use session::{Failure, Outcome, Session};

use super::ids::{ClientIds, SessionKey};
use super::windows::WINDOW;
use crate::messages::{Client, ClientState};
use crate::trace::{Traced, Tracer};

/// Plan of a population on one worker.
pub(crate) struct WorkerPopulation {
    pub(crate) name: String,
    pub(crate) catalogue: Catalogue,
    pub(crate) clients: Option<ClientPlan>,
}

/// Clients of a population on one worker.
pub(crate) struct ClientPlan {
    pub(crate) share: Share,
    pub(crate) urls: Vec<String>,
    pub(crate) pick: Pick,
    pub(crate) leave: Leave,
    /// Planned end of the run; [`Time::NEVER`] if it has none.
    pub(crate) run_ends: Time,
    pub(crate) client: MakeClient,
    /// TLS configuration, used if the URL asks for TLS.
    pub(crate) tls: Arc<net::tls::Client>,
    /// True if the clients send or receive media.
    pub(crate) media: bool,
    /// True if connections with media are read as soon as data arrives.
    pub(crate) reads_at_once: bool,
    /// Local addresses of outgoing connections; empty if routing decides.
    pub(crate) sources: Vec<IpAddr>,
    /// The traced clients, on any worker.
    pub(crate) traced: Traced,
}

/// Tolerance for streams that end before their clients are to leave. At the end of a run,
/// publishers leave together with their viewers, and may be first.
const ENDS_TOGETHER: Duration = Duration::from_secs(1);

impl ClientPlan {
    /// Plan with one client for each URL. All start at once, on the only worker, and stay until
    /// the end.
    pub(crate) fn at_once(
        urls: Vec<String>,
        pick: Pick,
        client: MakeClient,
        tls: Arc<net::tls::Client>,
    ) -> ClientPlan {
        let load = Load {
            shape: Shape::AtOnce {
                clients: urls.len() as u64,
            },
            rejoin: false,
            after: Duration::ZERO,
        };
        ClientPlan {
            share: Share::new(&load, 0, 1),
            urls,
            pick,
            leave: Leave::AtEnd,
            run_ends: Time::NEVER,
            client,
            tls,
            media: true,
            reads_at_once: false,
            sources: Vec::new(),
            traced: Traced::default(),
        }
    }

    /// Returns the outcome of a client that was due at `due` and whose stream the server ended at
    /// `at`.
    fn ended_by_server(&self, due: Time, at: Time, in_order: bool, failure: Failure) -> Outcome {
        match self.leave.due(due, self.run_ends) {
            None => Outcome::Completed,
            // A run without a duration ends with its media.
            Some(Time::NEVER) if in_order => Outcome::Completed,
            Some(leaves) if at + ENDS_TOGETHER >= leaves => Outcome::Stopped,
            Some(_) => {
                let advice = "if the server's streams end, write `leave: at_end`";
                let detail = format!("{}; {advice}", failure.detail);
                Outcome::Failed(Failure { detail, ..failure })
            }
        }
    }
}

/// Creates the session of a client from its URL and identity. Fails with a description if the URL
/// is invalid.
pub(crate) type MakeClient =
    Arc<dyn Fn(&str, ClientIdentity) -> Result<Box<dyn Session>, String> + Send + Sync>;

/// Identity of the client in a slot of the population with this index. It does not depend on who
/// plays the client. `seed` is the seed of the run.
pub fn client_identity(seed: u64, population: usize, slot: u64, generation: u32) -> ClientIdentity {
    let population = population as u64;
    let own = [seed, population, slot, u64::from(generation)];
    ClientIdentity {
        seed: session::seeds::derive_seed(&own),
        shared_seed: session::seeds::derive_seed(&own[..2]),
        index: slot,
    }
}

/// A population on one worker, while it runs.
struct Population {
    name: String,
    recorder: Recorder,
    /// Recorder of the next window, for packets that arrived after the end of the current window
    /// while it is not closed yet.
    next: Recorder,
    active: PeakGauge,
    playing: PeakGauge,
    plan: Option<ClientPlan>,
    by_slot: HashMap<u64, SessionKey>,
}

/// A gauge with its maximum in the current window.
#[derive(Default)]
struct PeakGauge {
    now: u64,
    max: u64,
}

impl PeakGauge {
    fn rise(&mut self) {
        self.now += 1;
        self.max = self.max.max(self.now);
    }

    fn fall(&mut self) {
        self.now -= 1;
    }

    /// Returns the maximum in the window that ends now.
    fn take_max(&mut self) -> f64 {
        std::mem::replace(&mut self.max, self.now) as f64
    }
}

/// A client that has just begun.
pub(super) struct NewClient {
    pub(super) client: Client,
    /// The session, or the reason why the URL is invalid.
    pub(super) session: Result<Box<dyn Session>, String>,
    pub(super) leave: Leave,
    pub(super) trace: Option<Tracer>,
}

/// The populations of a worker, by index.
pub(super) struct Populations {
    each: Vec<Population>,
    /// Seed of the run.
    pub(super) seed: u64,
    ids: ClientIds,
    window_ends: Time,
    /// Time since when the plans are held.
    held_from: Option<Time>,
}

impl Populations {
    /// Creates the populations of a worker, whose clients get these numbers.
    pub(super) fn new(plans: Vec<WorkerPopulation>, seed: u64, ids: ClientIds) -> Populations {
        let population = |plan: WorkerPopulation| Population {
            name: plan.name,
            recorder: Recorder::new(plan.catalogue),
            next: Recorder::new(plan.catalogue),
            active: PeakGauge::default(),
            playing: PeakGauge::default(),
            plan: plan.clients,
            by_slot: HashMap::new(),
        };
        Populations {
            each: plans.into_iter().map(population).collect(),
            seed,
            ids,
            window_ends: Time::ZERO + WINDOW,
            held_from: None,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.each.len()
    }

    pub(super) fn name(&self, index: usize) -> &str {
        &self.each[index].name
    }

    /// Returns the recorder of the current window.
    #[inline]
    pub(super) fn recorder(&mut self, index: usize) -> &mut Recorder {
        &mut self.each[index].recorder
    }

    /// Returns the recorder for a packet that arrived at `at`: that of the current window, or that
    /// of the next window if the packet arrived after the end of the current one.
    #[inline]
    pub(super) fn recorder_at(&mut self, index: usize, at: Time) -> &mut Recorder {
        let population = &mut self.each[index];
        match at < self.window_ends {
            true => &mut population.recorder,
            false => &mut population.next,
        }
    }

    /// Returns the TLS configuration of the clients, or `None` if the population has no clients.
    pub(super) fn tls(&self, index: usize) -> Option<&net::tls::Client> {
        self.each[index].plan.as_ref().map(|plan| &*plan.tls)
    }

    /// Does the one-time work of TLS before the run begins.
    pub(super) fn warm_up(&self) {
        (0..self.count())
            .filter_map(|index| self.tls(index))
            .for_each(net::tls::Client::warm_up);
    }

    /// Returns `true` if the clients send or receive media. Always true for a server's population.
    pub(super) fn has_media(&self, index: usize) -> bool {
        self.each[index].plan.as_ref().is_none_or(|plan| plan.media)
    }

    /// Returns `true` if the packet ring is to receive the segments of the clients' connections.
    pub(super) fn has_segment_times(&self, index: usize) -> bool {
        let plan = self.each[index].plan.as_ref();
        plan.is_none_or(|plan| plan.media && !plan.reads_at_once)
    }

    /// Returns the local addresses of the population's outgoing connections.
    pub(super) fn sources(&self, index: usize) -> &[IpAddr] {
        let plan = self.each[index].plan.as_ref();
        plan.map_or(&[][..], |plan| &plan.sources)
    }

    /// Time at which the next client begins or leaves.
    pub(super) fn next_due(&self) -> Time {
        let plans = self.each.iter().filter_map(|each| each.plan.as_ref());
        let due = plans.filter_map(|plan| plan.share.next_due()).min();
        due.unwrap_or(Time::NEVER)
    }

    /// Returns `true` if no more clients will begin.
    pub(super) fn is_finished(&self) -> bool {
        let mut plans = self.each.iter().filter_map(|each| each.plan.as_ref());
        plans.all(|plan| plan.share.is_finished())
    }

    /// Holds the plans of all populations at `from`.
    pub(super) fn hold(&mut self, from: Time) {
        let plans = self.each.iter_mut().filter_map(|each| each.plan.as_mut());
        plans.for_each(|plan| plan.share.hold(from));
        self.held_from = Some(from);
    }

    /// Resumes the plans of all populations at `at`.
    pub(super) fn go_on(&mut self, at: Time) {
        let plans = self.each.iter_mut().filter_map(|each| each.plan.as_mut());
        let held = self
            .held_from
            .take()
            .map_or(Duration::ZERO, |from| at.since(from));
        plans.for_each(|plan| {
            plan.share.resume(at);
            plan.run_ends += held;
        });
    }

    /// Extends the plan of a population.
    pub(super) fn extend(&mut self, index: usize, begin: Time, over: Duration, clients: u64) {
        let population = self.each.get_mut(index);
        if let Some(plan) = population.and_then(|population| population.plan.as_mut()) {
            plan.share.extend(begin, over, clients);
        }
    }

    /// Starts no more clients.
    pub(super) fn close(&mut self) {
        let plans = self.each.iter_mut().filter_map(|each| each.plan.as_mut());
        plans.for_each(|plan| plan.share.close());
    }

    /// Returns the next action of a population's plan that is due.
    pub(super) fn next_action(&mut self, index: usize, now: Time) -> Option<Action> {
        self.each[index].plan.as_mut()?.share.next_action(now)
    }

    /// Returns the session of the client in a slot of the plan.
    pub(super) fn session_in_slot(&self, index: usize, slot: u64) -> Option<SessionKey> {
        self.each[index].by_slot.get(&slot).copied()
    }

    /// Begins a client of the plan.
    pub(super) fn begin_client(
        &mut self,
        index: usize,
        slot: u64,
        generation: u32,
        due: Time,
        begun: Time,
        tester: &mut Recorder,
    ) -> Option<NewClient> {
        let identity = client_identity(self.seed, index, slot, generation);
        let population = &mut self.each[index];
        let plan = population.plan.as_ref()?;
        let place = match plan.pick {
            Pick::Random => session::seeds::derive_seed(&[identity.seed, 1]),
            Pick::InTurn => slot + u64::from(generation),
            Pick::Own => slot,
        };
        let url = plan.urls[(place % plan.urls.len() as u64) as usize].clone();
        let session = (plan.client)(&url, identity);
        let (leave, trace) = (plan.leave, plan.traced.get(&slot).cloned());
        let (recorder, late) = (&mut population.recorder, begun.since(due));
        recorder.add(clients::STARTED, 1);
        recorder.record_duration(clients::START_LATENESS, late);
        if late > health::LATE_START {
            tester.add(tester::NOT_STARTED_IN_TIME, 1);
        }
        population.active.rise();
        let client = Client {
            id: self.ids.take(),
            slot,
            generation,
            url,
            due,
            begun,
            first_media: None,
            service: None,
            streams: Vec::new(),
            described: None,
        };
        Some(NewClient {
            client,
            session,
            leave,
            trace,
        })
    }

    /// Stores the session of the client in a slot of the plan.
    pub(super) fn set_session(&mut self, index: usize, slot: u64, key: SessionKey) {
        self.each[index].by_slot.insert(slot, key);
    }

    /// Counts one more client as playing.
    pub(super) fn plays(&mut self, index: usize) {
        self.each[index].playing.rise();
    }

    /// Counts the outcome of a client and reports its end to the plan. Returns the client's row.
    pub(super) fn client_ended(
        &mut self,
        index: usize,
        client: Client,
        outcome: Outcome,
        ended: Time,
    ) -> ClientState {
        let population = &mut self.each[index];
        let outcome = match (outcome, &population.plan) {
            (
                Outcome::EndedByServer {
                    at,
                    in_order,
                    failure,
                },
                Some(plan),
            ) => plan.ended_by_server(client.due, at, in_order, failure),
            (other, _) => other,
        };
        match &outcome {
            Outcome::Completed => population.recorder.add(clients::COMPLETED, 1),
            Outcome::Stopped => population.recorder.add(clients::STOPPED, 1),
            Outcome::Failed(failure) | Outcome::EndedByServer { failure, .. } => {
                population.recorder.add(clients::FAILED, 1);
                population.recorder.fail(failure.reason);
            }
        }
        if let Some(service) = client.service {
            let failed = matches!(outcome, Outcome::Failed(_) | Outcome::EndedByServer { .. });
            kit::viewer::count(service, failed, &mut population.recorder);
        }
        population.active.fall();
        if client.first_media.is_some() {
            population.playing.fall();
        }
        population.by_slot.remove(&client.slot);
        if let Some(plan) = &mut population.plan {
            plan.share.ended(client.slot, ended);
        }
        ClientState {
            client,
            population: population.name.clone(),
            ended: Some((ended, outcome)),
        }
    }

    /// Returns the metrics of the current window. The next window ends at `next_ends`.
    pub(super) fn take_windows(&mut self, next_ends: Time) -> Vec<Window> {
        self.window_ends = next_ends;
        let take = |population: &mut Population| {
            let (active, playing) = (&mut population.active, &mut population.playing);
            let recorder = &mut population.recorder;
            recorder.set(clients::ACTIVE, active.take_max());
            recorder.set(clients::PLAYING, playing.take_max());
            recorder.take_window_and_continue(&mut population.next)
        };
        self.each.iter_mut().map(take).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kit::viewer::{self, Delivery, ServedWell, Viewing};
    use protocols::RTSP_PROTOCOL;

    use super::super::ids::RunnerPlace;
    use super::*;

    fn populations() -> Populations {
        let load = Load {
            shape: Shape::AtOnce { clients: 2 },
            rejoin: false,
            after: Duration::ZERO,
        };
        let plan = WorkerPopulation {
            name: "toys".to_owned(),
            catalogue: RTSP_PROTOCOL.catalogue,
            clients: Some(ClientPlan {
                share: Share::new(&load, 0, 1),
                urls: vec!["one".to_owned(), "two".to_owned()],
                pick: Pick::InTurn,
                leave: Leave::AtEnd,
                run_ends: Time::NEVER,
                tls: Arc::new(net::tls::Client::new(net::tls::Trust::default())),
                client: Arc::new(|_, _| Err("no URL".to_owned())),
                traced: Traced::default(),
                media: false,
                reads_at_once: false,
                sources: Vec::new(),
            }),
        };
        Populations::new(vec![plan], 1, ClientIds::new(RunnerPlace::ALONE, 2, 3))
    }

    #[test]
    fn clients_begin_as_planned_and_are_counted_at_their_end() {
        let mut populations = populations();
        let mut own = Recorder::new(tester::TESTER_CATALOGUE);
        let late = Time::ZERO + Duration::from_secs(10);
        let mut begun = Vec::new();
        while let Some(Action::Start {
            slot,
            generation,
            due,
            rejoins: false,
        }) = populations.next_action(0, late)
        {
            begun.extend(populations.begin_client(0, slot, generation, due, late, &mut own));
        }
        let seen = begun.iter().map(|b| (b.client.id, &*b.client.url));
        assert_eq!(seen.collect::<Vec<_>>(), [(2, "one"), (5, "two")]);
        assert!(!populations.is_finished());
        for beginning in begun {
            let client = beginning.client;
            populations.set_session(0, client.slot, SessionKey::NONE);
            assert!(populations.session_in_slot(0, client.slot).is_some());
            let slot = client.slot;
            let state = populations.client_ended(0, client, Outcome::Completed, late);
            assert_eq!(state.ended, Some((late, Outcome::Completed)));
            assert!(populations.session_in_slot(0, slot).is_none());
        }
        assert!(populations.is_finished());
        let window = &populations.take_windows(late)[0];
        let count = |id: measure::CounterId| window.counters[usize::from(id.0)];
        assert_eq!((count(clients::STARTED), count(clients::COMPLETED)), (2, 2));
        let late = own.take_window().counters[usize::from(tester::NOT_STARTED_IN_TIME.0)];
        assert_eq!(late, 2);
    }

    #[test]
    fn end_by_the_server_fails_a_client_that_should_stay() {
        let second = Duration::from_secs(1);
        let at = |seconds: f64| Time::from_start(second.mul_f64(seconds));
        let (stays, leaves) = (Leave::WithRun, Leave::After(5 * second));
        // A client is due at 1 s, and a run of 12 s is held from 2 s to 5 s.
        let orders = [true, false].into_iter();
        let cases = [
            (stays, at(12.0), false, 2.0, "failed"),
            (stays, at(12.0), false, 10.9, "failed"),
            (stays, at(12.0), false, 11.0, "stopped"),
            (stays, at(12.0), true, 13.9, "failed"),
            (stays, at(12.0), true, 14.0, "stopped"),
            (stays, Time::NEVER, false, 2.0, "completed or failed"),
            (leaves, Time::NEVER, false, 4.9, "failed"),
            (leaves, at(12.0), false, 4.9, "failed"),
            (leaves, at(12.0), false, 5.0, "stopped"),
            (leaves, at(4.0), false, 3.0, "stopped"),
            (Leave::AtEnd, at(12.0), false, 2.0, "completed"),
        ];
        let cases = orders.flat_map(|order| cases.map(|case| (order, case)));
        for (in_order, (leave, run_ends, held, ended, wanted)) in cases {
            let mut populations = populations();
            let plan = populations.each[0].plan.as_mut().expect("it has clients");
            (plan.leave, plan.run_ends) = (leave, run_ends);
            if held {
                populations.hold(at(2.0));
                populations.go_on(at(5.0));
            }
            let client = Client {
                id: 1,
                slot: 0,
                generation: 0,
                url: "one".to_owned(),
                due: at(1.0),
                begun: at(1.0),
                first_media: None,
                service: None,
                streams: Vec::new(),
                described: None,
            };
            populations.each[0].active.rise();
            let failure = Failure {
                reason: "ended_by_server",
                detail: "BYE".to_owned(),
            };
            let outcome = Outcome::EndedByServer {
                at: at(ended),
                in_order,
                failure,
            };
            let wanted = match (wanted, in_order) {
                ("completed or failed", true) => "completed",
                ("completed or failed", false) => "failed",
                (wanted, _) => wanted,
            };
            let state = populations.client_ended(0, client, outcome, at(ended));
            let ended_as = match state.ended.expect("it has ended").1 {
                Outcome::Completed => "completed",
                Outcome::Stopped => "stopped",
                Outcome::Failed(failure) => {
                    assert_eq!(
                        failure.detail,
                        "BYE; if the server's streams end, write `leave: at_end`"
                    );
                    "failed"
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(
                ended_as, wanted,
                "{leave:?} {run_ends:?} {held} {ended} {in_order}"
            );
        }
    }

    #[test]
    fn packets_after_the_end_of_a_window_count_in_the_next() {
        let mut populations = populations();
        let end = Time::ZERO + WINDOW;
        let before = Time::from_nanos(end.as_nanos() - 1);
        for at in [before, end] {
            let recorder = populations.recorder_at(0, at);
            recorder.add(clients::LOST_IN_TESTER, 1);
        }
        for ends in [end + WINDOW, end + 2 * WINDOW] {
            let window = &populations.take_windows(ends)[0];
            let lost = window.counters[usize::from(clients::LOST_IN_TESTER.0)];
            assert_eq!(lost, 1);
        }
    }

    #[test]
    fn viewers_are_counted_with_the_outcome_that_the_plan_decides() {
        let mut populations = populations();
        let plan = populations.each[0].plan.as_mut().expect("it has clients");
        plan.leave = Leave::WithRun;
        plan.run_ends = Time::from_start(Duration::from_secs(60));
        let viewing = |first_media| Viewing {
            due: Time::ZERO,
            first_media,
            ended: Time::from_start(Duration::from_secs(10)),
            delivery: Delivery::default(),
        };
        let bounds = ServedWell::default();
        let (well, late) = (
            bounds.judge(&viewing(Some(Time::ZERO))),
            bounds.judge(&viewing(None)),
        );
        let by_server = Outcome::EndedByServer {
            at: Time::from_start(Duration::from_secs(10)),
            in_order: true,
            failure: Failure {
                reason: "ended_by_server",
                detail: String::new(),
            },
        };
        for (service, outcome) in [
            (Some(well), Outcome::Stopped),
            (Some(well), Outcome::Completed),
            (Some(late), Outcome::Stopped),
            // The plan lets it stay for longer, so it has failed.
            (Some(well), by_server),
            // A publisher.
            (None, Outcome::Stopped),
        ] {
            populations.each[0].active.rise();
            let client = Client {
                id: 1,
                slot: 0,
                generation: 0,
                url: "one".to_owned(),
                due: Time::ZERO,
                begun: Time::ZERO,
                first_media: None,
                service,
                streams: Vec::new(),
                described: None,
            };
            populations.client_ended(0, client, outcome, Time::ZERO);
        }
        let window = &populations.take_windows(Time::ZERO)[0];
        let counted = [
            viewer::VIEWERS_SERVED_WELL,
            viewer::VIEWERS_SERVED_BADLY,
            viewer::VIEWERS_STARTED_LATE,
            viewer::VIEWERS_FAILED,
        ]
        .map(|id| window.counters[usize::from(id.0)]);
        assert_eq!(counted, [2, 2, 1, 1]);
    }
}
