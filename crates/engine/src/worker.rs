//! A worker: one thread that owns its sessions, their sockets, timers and measurements.
//!
//! The worker is a single poll loop. The loop never blocks outside its poll, unless the queue of
//! reports is full, and shares no state except with its pacer. Commands of other threads arrive as
//! a [`Command`]; results leave as a [`WorkerReport`]. The loop is the same for clients and for a
//! reference server: both are [`Session`]s.
//!
//! A worker consists of parts. Each part owns its state, takes anything else it needs as arguments,
//! and returns its results; no part knows the worker. The parts are connected in [`wiring`]. This
//! file contains the loop, the order of work in an iteration ([`Worker::run`]), and the call of a
//! session ([`Worker::deliver`]).
//!
//! [`Session`]: session::Session

mod batched_reads;
mod config;
mod connections;
pub(crate) mod count;
mod datagrams;
mod deferred;
mod error_mapping;
mod exchanges;
mod flows;
mod groups;
mod ids;
mod links;
mod listeners;
mod media_counter;
mod name_cache;
mod notes;
mod pacer;
mod pairs;
mod pending_inputs;
pub(crate) mod pool;
mod populations;
mod readiness;
pub(crate) mod receive_path;
mod receiving;
pub(crate) mod remote;
mod rings;
mod runtime;
mod self_stats;
mod sessions;
#[cfg(test)]
mod tests;
mod timers;
mod topics;
mod windows;
mod wiring;

use std::io;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use measure::{Time, tester};
use net::Clock;
use session::{Context, Flows, Input, MediaEvent, Output, Sinks};

use crate::messages::{Command, RunnerCommand, WorkerReport};
use crate::network::target_filter::TargetFilter;
use crate::window_merger::{MergedWindow, TesterPart};
pub(crate) use config::{Accept, Config, ListenerPlan, RingPlan};
use connections::Connections;
use datagrams::Datagrams;
pub(crate) use datagrams::EndpointPlan;
use exchanges::Exchanges;
use flows::Sending;
use groups::Groups;
pub(crate) use ids::{ClientIds, RunnerPlace};
use ids::{SessionKey, SocketId};
pub(crate) use links::Mailbox;
use links::WorkerChannels;
use listeners::Listeners;
use name_cache::NameCache;
use pairs::Pairs;
use pending_inputs::{Outputs, Pending};
use populations::Populations;
pub use populations::client_identity;
pub(crate) use populations::{ClientPlan, MakeClient, WorkerPopulation};
use readiness::Ready;
use receiving::Batches;
use rings::Rings;
use runtime::Runtime;
use self_stats::SelfStats;
use sessions::{Channel, Sessions, Slot};
use timers::Task;
use topics::Topics;
pub(crate) use windows::WINDOW;
use windows::Windows;

struct Worker {
    /// Targets that clients may send to.
    targets: TargetFilter,
    /// Clock, polls, timers, pending session inputs, and other state shared by the parts.
    runtime: Runtime,
    /// Channels to the other threads and the commands received from them.
    links: WorkerChannels,
    commands: Receiver<Command>,
    phase: Phase,
    windows: Windows,
    self_stats: SelfStats,

    /// The plan's clients and their metrics, the sessions, and the topics between sessions.
    populations: Populations,
    sessions: Sessions,
    topics: Topics,

    /// Media receivers and senders that run without calling their session.
    sinks: Sinks,
    flows: Flows,
    /// Outputs of the session that is being called.
    outputs: Outputs,

    /// Connections: the name cache, open connections, listeners, and connections handed over by
    /// sessions.
    names: NameCache,
    connections: Connections,
    listeners: Listeners,
    exchanges: Exchanges,

    /// Datagrams: packet rings, port pairs, multicast groups, single sockets and endpoints, and the
    /// receive batches shared by all sockets.
    rings: Option<Rings>,
    pairs: Pairs,
    groups: Groups,
    datagrams: Datagrams,
    batches: Batches,

    /// The flows that are sending.
    sending: Sending,
}

/// Run state of a worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Running,
    /// No new clients or connections.
    Stopping,
    /// Stops immediately.
    Killed,
}

/// Runs a worker on the calling thread until it has nothing left to do or is stopped.
///
/// The worker reports on `standing` that it is set up, and then waits for the run's clock. All
/// workers start together, so none has to catch up on the time that starting the threads took.
/// Returns without running if no clock arrives.
pub(crate) fn run(
    config: Config,
    ready: io::Result<()>,
    standing: Sender<()>,
    begin: &Receiver<Clock>,
) {
    let index = config.links.index;
    let reports = config.links.reports.clone();
    let worker = ready.and_then(|()| Worker::new(config));
    let _ = standing.send(());
    drop(standing);
    let Ok(clock) = begin.recv() else { return };
    let result = worker.and_then(|mut worker| {
        worker.runtime.clock = clock;
        worker.run()
    });
    // The coordinator waits for this message. If there is no coordinator, the message has no
    // recipient.
    let _ = reports.send(WorkerReport::Finished {
        worker: index,
        error: result.err(),
    });
}

impl Worker {
    fn new(config: Config) -> io::Result<Worker> {
        let Config { plan, links, .. } = config;
        if plan.raised_priority {
            net::thread::raise_priority()?;
        }
        let runtime = Runtime::new(&links.mailbox.waker, links.reports.clone())?;
        let workers = links.workers();
        let ids = ClientIds::new(links.place, links.index, workers);
        let populations = Populations::new(plan.populations, config.seed, ids);
        populations.warm_up();
        let shown = plan.ring.as_ref().filter(|ring| ring.settings.segments);
        let shown = shown.map(|ring| ring.settings.ports.clone());
        let connections = Connections::new(shown, populations.count(), workers);
        let open = |ring| Rings::open(ring, &runtime.readiness);
        let rings = plan.ring.map(open).transpose()?;
        let mut worker = Worker {
            runtime,
            commands: config.commands,
            phase: Phase::Running,
            targets: config.targets,
            windows: Windows::new(Time::ZERO, Duration::ZERO),
            names: NameCache::new(config.resolver, links.mailbox.clone()),
            links,
            pairs: Pairs::new(plan.ports),
            groups: Groups::default(),
            datagrams: Datagrams::default(),
            sessions: Sessions::new(config.stop_timeout),
            sinks: Sinks::default(),
            flows: Flows::default(),
            sending: Sending::default(),
            exchanges: Exchanges::default(),
            populations,
            topics: Topics::default(),
            outputs: Outputs::default(),
            batches: Batches::new(),
            rings,
            connections,
            listeners: Listeners::default(),
            self_stats: SelfStats::new(),
        };
        let pacer_options = &mut worker.sending.pacer_options;
        pacer_options.realtime_pacer = plan.realtime_pacer;
        for (listener, serving) in plan.serving {
            pacer_options.apart = serving.no_segmentation;
            worker.listeners.add(&worker.runtime, listener, serving)?;
        }
        for plan in plan.endpoints {
            worker.datagrams.listen(&worker.runtime, plan)?;
        }
        Ok(worker)
    }

    fn run(&mut self) -> io::Result<()> {
        let mut ready = Ready::new();
        let grace = self.rings.as_ref().map_or(Duration::ZERO, Rings::delay);
        self.windows = Windows::new(self.runtime.clock.now(), grace);
        while !self.is_done() {
            self.process_due();
            let next = self.next_wakeup();
            let more = self.has_work_left();
            let (readiness, clock) = (&mut self.runtime.readiness, &self.runtime.clock);
            if readiness.wait(&mut ready, next, more, clock)? {
                self.process_ready(&ready);
            }
        }
        if self.phase == Phase::Killed {
            self.end_all_now();
        }
        let now = self.runtime.clock.now();
        self.runtime.notes.report_omitted(now, self.links.index);
        // All received data has been counted. What remains after the end of a window forms a window
        // of its own.
        self.windows.end_grace();
        self.close_due_windows(now);
        self.close_window(now);
        Ok(())
    }

    /// Processes received data: media first, then RTCP, then anything that can end a session.
    fn process_ready(&mut self, ready: &Ready) {
        // First, so that the inputs below are delivered after all packets of the ring are counted.
        self.read_rings();
        for (place, event) in ready.events() {
            if !matches!(place, SocketId::Connection(_)) {
                self.ready(place, event);
            }
        }
        for place in self.runtime.readiness.take_unread() {
            self.readable(place);
        }
        // RTCP after the media it reports on, and before anything that ends a session: the last
        // report of a stream may have arrived just before that.
        for (place, event) in ready.control() {
            self.ready(place, event);
        }
        for (place, event) in ready.events() {
            if matches!(place, SocketId::Connection(_)) {
                self.ready(place, event);
            }
        }
        while let Ok(command) = self.commands.try_recv() {
            self.handle_command(command);
        }
        self.take_pacer_events();
        self.deliver_pending();
    }

    /// Returns `true` if there is nothing left to do.
    fn is_done(&self) -> bool {
        if self.phase == Phase::Killed {
            return true;
        }
        let serves = self.listeners.are_any() || self.datagrams.has_endpoints();
        let serving = serves && self.phase == Phase::Running;
        self.populations.is_finished()
            && !serving
            && self.sessions.is_empty()
            && self.nothing_is_deferred()
            && !self.connections.any_closes()
    }

    /// Returns `true` if work was left for the next iteration. The loop must then not wait.
    fn has_work_left(&self) -> bool {
        self.runtime.readiness.has_unread()
            || self.exchanges.is_busy()
            || self.can_release_deferred()
            || self.sessions.has_some_to_stop()
    }

    /// Returns the latest time at which the loop must wake up, whatever arrives.
    fn next_wakeup(&mut self) -> Time {
        let (sessions, connections) = (&self.sessions, &self.connections);
        let listeners = &self.listeners;
        let wanted = |at, task: &Task| is_wanted(at, task, sessions, connections, listeners);
        let task = self.runtime.timers.next(wanted);
        self.windows
            .heartbeat
            .min(self.windows.closes())
            .min(task)
            .min(self.sending.next())
            .min(self.exchanges.next())
            .min(self.rings_due())
            .min(self.connections.next_turn())
            .min(self.pairs.next_read())
            .min(self.groups.next_read())
            .min(self.datagrams.next_look(self.runtime.turn))
            .min(self.populations.next_due())
    }

    /// Does the work that is due, media first.
    fn process_due(&mut self) {
        let now = self.runtime.clock.now();
        self.runtime.turn = now;
        self.connections.begin_turn();
        self.stop_some();
        if now >= self.windows.closes() {
            self.read_all_media(self.windows.ends());
        }
        self.close_due_windows(now);
        self.release_deferred();
        self.read_connections_in_turn(now);
        self.read_fast_connections(now);
        self.read_pairs(Some(now));
        self.read_groups_in_turn(now);
        self.start_and_stop_clients(now);
        while let Some((at, task)) = self.runtime.timers.due(now) {
            self.do_task(at, task, now);
            self.deliver_pending();
        }
        self.send_flows(now);
        self.send_messages(now);
        self.deliver_pending();
    }

    /// Counts everything that has arrived and is not counted yet, so that window contents do not
    /// depend on read timing. `end` is the end of the window, however late the loop is.
    fn read_all_media(&mut self, end: Time) {
        self.read_rings_now();
        self.read_all_connections(end);
        self.read_pairs(None);
        self.read_all_groups();
        self.read_all_late();
    }

    /// Closes the windows that have ended.
    fn close_due_windows(&mut self, now: Time) {
        while let Some(end) = self.windows.beat(now, &mut self.runtime.tester) {
            self.close_window(end);
        }
    }

    fn do_task(&mut self, at: Time, task: Task, now: Time) {
        match task {
            Task::Deadline(key) => {
                let Some(slot) = self.slot(key).filter(|slot| slot.deadline_task_at == at) else {
                    return;
                };
                let awaits = slot.session.awaits_input(now);
                if awaits {
                    if slot.on_ring {
                        self.read_rings_now();
                        self.release_all_ready();
                    }
                    self.catch_up(key);
                    self.read_datagrams_before(key, Some(now));
                }
                let Some(slot) = self.slot(key) else { return };
                slot.deadline_task_at = Time::NEVER;
                match slot.session.deadline() {
                    Some(deadline) if deadline <= now => {
                        self.read_media_before(key, !awaits);
                        self.deliver_now(key, Input::Deadline);
                    }
                    _ => self.arm(key),
                }
            }
            Task::Leave(key) => self.stop_session(key, now),
            Task::Cut(key) => self.cut_session(key),
            Task::Connect { session, channel } => self.give_up_connecting(session.channel(channel)),
            Task::Accept { socket } => self.readable(SocketId::Listener(socket)),
            Task::Handshake { index, serial } => self.give_up_handshake(index, serial),
            Task::Linger { index, serial } => self.connections.give_up_closing(index, serial),
        }
    }

    fn handle_command(&mut self, command: Command) {
        match command {
            Command::Resolved(answer) => self.resolved(answer),
            Command::Runner(command) => self.handle_runner_command(command),
        }
    }

    fn handle_runner_command(&mut self, command: RunnerCommand) {
        match command {
            RunnerCommand::Stop { until } => self.stop_all(until),
            RunnerCommand::Kill => self.phase = Phase::Killed,
            RunnerCommand::Hold { from } => self.populations.hold(from),
            RunnerCommand::Resume { at } => self.populations.go_on(at),
            RunnerCommand::Extend {
                population,
                begin,
                over,
                clients,
            } => self.populations.extend(population, begin, over, clients),
            RunnerCommand::TopicMessage { topic, message } => {
                self.publish_to_subscribers(&topic, &message)
            }
        }
    }

    fn slot(&mut self, key: SessionKey) -> Option<&mut Slot> {
        self.sessions.get_mut(key)
    }

    /// Delivers an input to a session and carries out its outputs.
    ///
    /// Inputs that result immediately (for example a channel that could not be opened) are queued
    /// for [`Worker::deliver_pending`]: no session is called while the outputs of another are being
    /// carried out.
    fn deliver(&mut self, key: SessionKey, input: Input<'_>) {
        if !matches!(input, Input::Media { .. }) {
            self.read_media_before(key, true);
        }
        self.deliver_now(key, input);
    }

    /// As [`Worker::deliver`], but without reading the session's media first.
    fn deliver_now(&mut self, key: SessionKey, input: Input<'_>) {
        let Some(slot) = self.sessions.get_mut(key) else {
            return;
        };
        let mut outbox = std::mem::take(&mut self.outputs.outbox);
        let mut context = Context {
            now: self.runtime.clock.now(),
            recorder: self.populations.recorder(slot.population),
            sinks: &mut self.sinks,
            flows: &mut self.flows,
            out: &mut self.outputs.queue,
            outbox: &mut outbox,
        };
        slot.session.handle(&mut context, input);
        while let Some(output) = self.outputs.queue.pop_front() {
            match output {
                Output::Transmit(transmit) => {
                    self.transmit(key, &transmit, outbox.bytes(&transmit));
                }
                output => self.carry_out(key, output),
            }
        }
        outbox.clear();
        self.outputs.outbox = outbox;
        self.check_flows(key);
        self.arm(key);
    }

    /// Schedules a task for the session's deadline.
    fn arm(&mut self, key: SessionKey) {
        let (beat, turn) = (self.windows.heartbeat, self.runtime.turn);
        if let Some(slot) = self.sessions.get_mut(key)
            && let Some(at) = slot.arm(beat, turn)
        {
            self.runtime.timers.add(at, Task::Deadline(key));
        }
    }

    /// Delivers pending inputs until none is left.
    fn deliver_pending(&mut self) {
        while let Some((key, pending)) = self.runtime.inbox.pop() {
            let feedback_due = match &pending {
                Pending::Input(Input::Media {
                    event: MediaEvent::FeedbackDue { at },
                    ..
                }) => Some(*at),
                _ => None,
            };
            match pending {
                Pending::Input(input) => self.deliver(key, input),
                Pending::TopicMessage { topic, message } => {
                    let (topic, message) = (&topic, &message);
                    self.deliver(key, Input::TopicMessage { topic, message });
                }
            }
            if let Some(at) = feedback_due {
                let waited = self.runtime.clock.now().since(at).as_nanos() as u64;
                self.runtime.tester.record(tester::FEEDBACK_DELAY, waited);
            }
        }
        self.count_losses();
    }

    /// Reports the current window and starts the next one.
    fn close_window(&mut self, end: Time) {
        let begins = self.windows.begins;
        if let Some(moved) = self.runtime.clock.refresh_offset() {
            self.note(
                "clock_step",
                None,
                format!(
                    "the real-time clock moved by {:.6} s against the monotonic one",
                    moved as f64 / 1e9
                ),
            );
        }
        let pacer = || self.sending.take_pacer_cpu();
        let (now, tester) = (self.runtime.clock.now(), &mut self.runtime.tester);
        self.self_stats.take_cpu(now, pacer, tester);
        let udp = self.pairs.count() + self.groups.count() + self.datagrams.count();
        let sockets = udp + self.connections.count() + self.listeners.count();
        SelfStats::take_shares(sockets, &self.pairs.ports, tester);
        self.check_exchanges();
        self.pairs.collect_drops(&mut self.runtime);
        self.groups.collect_drops(&mut self.runtime);
        self.datagrams.collect_drops(&mut self.runtime);
        self.count_losses();
        self.collect_ring_drops();
        let (sessions, connections) = (&self.sessions, &self.connections);
        let listeners = &self.listeners;
        let wanted = |at, task: &Task| is_wanted(at, task, sessions, connections, listeners);
        self.runtime.timers.sweep(wanted);
        let populations = self.populations.take_windows(end + WINDOW);
        let mut tester = self.runtime.tester.take_window();
        if let Some(paced) = self.sending.take_pacer_window() {
            tester.merge(&paced, tester::TESTER_CATALOGUE);
        }
        let worker = self.links.index;
        let seconds = end.since(begins).as_secs_f64();
        let window = MergedWindow {
            index: self.windows.index,
            begins,
            seconds,
            populations,
            testers: vec![TesterPart {
                member: worker,
                seconds,
                figures: tester,
            }],
        };
        self.links.report(WorkerReport::Window { worker, window });
        self.report_running_clients();
        self.windows.advance(end);
    }

    /// Adds a note to the event list, about the population with that index if given.
    fn note(&mut self, kind: &'static str, subject: Option<usize>, text: String) {
        let subject = subject.map(|index| self.populations.name(index));
        self.runtime.note(kind, subject, text);
    }
}

/// Returns `true` if the object of the task still exists, the task's purpose is not fulfilled yet,
/// and no other task has replaced it.
fn is_wanted(
    at: Time,
    task: &Task,
    sessions: &Sessions,
    connections: &Connections,
    listeners: &Listeners,
) -> bool {
    match *task {
        Task::Deadline(key) => sessions
            .get(key)
            .is_some_and(|slot| slot.deadline_task_at == at),
        Task::Leave(key) | Task::Cut(key) => sessions.get(key).is_some(),
        Task::Connect { session, channel } => match sessions.channel(session.channel(channel)) {
            Some(Channel::Resolving) => true,
            Some(Channel::Stream(place)) => connections.is_beginning(place),
            Some(Channel::Pair { .. } | Channel::Group(_) | Channel::Datagrams { .. }) | None => {
                false
            }
        },
        Task::Accept { socket } => listeners.is_open(socket),
        Task::Handshake { index, serial } => connections.is_in_handshake(index, serial),
        Task::Linger { index, serial } => connections.is_closing(index, serial),
    }
}
