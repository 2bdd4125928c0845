//! A worker: one thread that owns its sessions, their sockets, timers and measurements outright.
//!
//! One loop over readiness. Nothing in it waits, takes a lock or is shared; what other threads have
//! to say comes as a [`Command`], what it has to say goes out as a [`Report`]. The loop is the same
//! for clients and for a reference server's side: both are [`Session`]s.

mod datagrams;
mod exchanges;
mod flows;
mod groups;
mod held;
mod origins;
mod outputs;
mod own;
mod pacer;
mod plan;
mod receive;
mod ring;
mod secure;
mod sessions;
mod sockets;
mod stream;
#[cfg(test)]
mod tests;
mod timers;
mod turns;
mod waiting;
mod watch;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use measure::{Recorder, Run, Time, tester};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use net::{Clock, PortRange, ReceiveBatch, Timer, Waker};
use protocol::metrics as clients;
use protocol::session::{Context, Flows, Input, Output, Session, Sinks};
use slab::Slab;

use crate::messages::{Command, Report};
use crate::resolver::{Addresses, Resolver};
use datagrams::Datagrams;
pub(crate) use datagrams::EndpointPlan;
use exchanges::Exchanges;
use flows::Sending;
use groups::Groups;
use net::ring::RingSettings;
use outputs::Pending;
use plan::Population;
pub(crate) use plan::{ClientPlan, MakeClient, PopulationPlan};
use ring::Rings;
use sessions::{SessionKey, Slot};
use sockets::{Outward, Socket};
use timers::{Task, Timers};
use turns::Turns;
use watch::Watcher;

/// How often the loop is woken for nothing but to see how late it is.
///
/// To wake an idle processor costs more than anything that is then done: 42 µs of the thread's
/// processor time a wake-up every 10 ms, and 22 every millisecond, of a loop that does nothing else
/// (a virtual machine, Linux 6.18). With each turn of reading connections one falls together.
const HEARTBEAT: Duration = Duration::from_millis(40);

/// The length of a window.
pub(crate) const WINDOW: Duration = Duration::from_secs(1);

/// What one read of a connection takes at most. All connections of a worker share the one buffer,
/// of which only what was ever filled is in memory.
const READ_BYTES: usize = 256 * 1024;

/// How many notes of a kind are passed on one by one; the others are told of together, at the end.
const NOTES_OF_A_KIND: u64 = 100;

/// How many messages of other workers' sessions may wait for a worker.
const TOLD_WAITING: usize = 1 << 16;

const TIMER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);

/// Makes the sessions of a reference server, one a connection.
pub(crate) type Accept = Arc<dyn Fn(u64) -> Box<dyn Session> + Send + Sync>;

/// A reference server's part of a worker.
pub(crate) struct Serving {
    /// Whether each datagram leaves by itself.
    pub(crate) apart: bool,
    /// Whether its worker has a table of descriptors of its own, and with it the process's limit to
    /// itself.
    pub(crate) own_files: bool,
    pub(crate) accept: Accept,
    /// What it speaks TLS with; none where its connections are plain.
    pub(crate) tls: Option<net::tls::Server>,
}

/// What becomes of the connections of one listener.
struct Acceptor {
    accept: Accept,
    tls: Option<net::tls::Server>,
}

/// Everything a worker needs, as it can be sent to its thread.
pub(crate) struct Config {
    pub(crate) index: u32,
    pub(crate) commands: Receiver<Command>,
    pub(crate) reports: Sender<Report>,
    pub(crate) others: Vec<Mailbox>,
    pub(crate) resolver: Resolver,
    pub(crate) mailbox: Mailbox,
    pub(crate) ports: PortRange,
    /// Whether it goes before others that want the same processor.
    pub(crate) goes_first: bool,
    /// Whether what it paces goes before all else on this machine.
    pub(crate) in_real_time: bool,
    /// The packet ring by which media is received; none where it is received by sockets.
    pub(crate) ring: Option<RingSettings>,
    pub(crate) populations: Vec<PopulationPlan>,
    pub(crate) serving: Vec<(std::net::TcpListener, Serving)>,
    /// Reference servers over UDP.
    pub(crate) endpoints: Vec<EndpointPlan>,
    pub(crate) stop_timeout: Duration,
    pub(crate) seed: u64,
}

impl Config {
    /// What others wake the worker by, and what it wakes others by.
    pub(crate) fn wakers(&self) -> Vec<Arc<Waker>> {
        let mailboxes = self.others.iter().chain([&self.mailbox]);
        mailboxes.map(|mailbox| mailbox.waker.clone()).collect()
    }
}

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

struct Worker {
    index: u32,
    clock: Clock,
    poll: Poll,
    /// The sockets for RTCP. Nobody is woken for what comes by them: it is asked for whenever the
    /// loop is awake, which is with each heartbeat at the latest. Times are the kernel's, and with
    /// thousands of clients to wake for each report would cost more than to read it.
    unhurried: Poll,
    timer: Timer,
    commands: Receiver<Command>,
    reports: Sender<Report>,
    others: Vec<Mailbox>,
    mailbox: Mailbox,
    resolver: Resolver,
    resolved: HashMap<String, Resolution>,
    ports: PortRange,
    seed: u64,
    stop_timeout: Duration,

    sockets: Slab<Socket>,
    /// The pairs of UDP ports that sessions share, by local address; those that send to multicast
    /// groups by the hops they live and their interface too.
    shared_pairs: HashMap<(std::net::IpAddr, Option<Outward>), (usize, usize)>,
    /// Memberships in multicast groups.
    groups: Groups,
    /// What single UDP sockets and endpoints share.
    datagrams: Datagrams,
    /// Sockets that had more to read than one turn allows.
    unread: Vec<usize>,
    sessions: Slab<Slot>,
    serial: u64,
    /// How many clients have begun.
    clients: u64,
    sinks: Sinks,
    flows: Flows,
    sending: Sending,
    /// Connections that sessions have handed over.
    exchanges: Exchanges,
    populations: Vec<Population>,
    acceptors: Vec<Acceptor>,
    timers: Timers,
    topics: HashMap<Arc<str>, Topic>,

    out: VecDeque<Output>,
    pending: VecDeque<(SessionKey, Pending)>,
    batch: Option<ReceiveBatch>,
    /// The same for the clients that are traced, of whose datagrams every byte is kept; memory is
    /// taken when they come.
    traced_batch: Option<ReceiveBatch>,
    /// Media sockets that are not polled.
    turns: Turns,
    read_buffer: Vec<u8>,
    /// When what is in the buffer came.
    runs: Vec<Run>,
    /// What was sealed in it by TLS, and when that could be read.
    plain: Vec<u8>,
    plain_runs: Vec<Run>,
    /// How many reads of handshakes there were in this turn.
    handshakes: usize,
    rings: Option<Rings>,
    /// Connections whose segments the ring shows; none where it is not to.
    watcher: Option<Watcher>,
    /// How many turns of reading connections have been taken.
    turns_taken: u64,
    /// Those that are read more often.
    fast: watch::Fast,
    /// Those of whom it is the turn.
    places: Vec<usize>,
    /// Sessions that were told to stop while their connections are read seldom.
    leaving: Vec<SessionKey>,

    tester: Recorder,
    thread: own::Thread,
    notes: HashMap<&'static str, u64>,
    window: u64,
    window_begins: Time,
    heartbeat: Time,
    /// When the running turn of the loop began.
    turn: Time,
    stopping: bool,
    /// The sessions that are still to be told so, and until when they may take.
    to_stop: (std::vec::IntoIter<SessionKey>, Time),
    killed: bool,
}

/// What is known of a name.
enum Resolution {
    Asked(Vec<(SessionKey, protocol::session::ChannelId, u16)>),
    Known(Addresses),
}

#[derive(Default)]
struct Topic {
    last: Option<Arc<str>>,
    listeners: Vec<SessionKey>,
}

/// Runs a worker on the calling thread until it has nothing left to do, or is told to stop.
///
/// It says when it stands, and then waits for the run's clock: the run begins for all at once, and
/// none has to make up for the time that threads take to start. Without a clock there is no run.
pub(crate) fn run(
    config: Config,
    ready: io::Result<()>,
    standing: Sender<()>,
    begin: &Receiver<Clock>,
) {
    let index = config.index;
    let reports = config.reports.clone();
    let worker = ready.and_then(|()| Worker::new(config));
    let _ = standing.send(());
    drop(standing);
    let Ok(clock) = begin.recv() else { return };
    let result = worker.and_then(|mut worker| {
        worker.clock = clock;
        worker.run()
    });
    // The coordinator waits for this message; without a coordinator there is nobody to tell.
    let _ = reports.send(Report::Finished {
        worker: index,
        error: result.err(),
    });
}

impl Worker {
    fn new(config: Config) -> io::Result<Worker> {
        if config.goes_first {
            net::thread::go_first()?;
        }
        let poll = Poll::new()?;
        let timer = Timer::new()?;
        for (fd, token) in [
            (timer.as_raw_fd(), TIMER),
            (config.mailbox.waker.as_raw_fd(), WAKER),
        ] {
            poll.registry()
                .register(&mut SourceFd(&fd), token, Interest::READABLE)?;
        }
        let populations: Vec<Population> = config
            .populations
            .into_iter()
            .map(Population::new)
            .collect();
        let mut worker = Worker {
            index: config.index,
            clock: Clock::start(),
            poll,
            unhurried: Poll::new()?,
            timer,
            commands: config.commands,
            reports: config.reports,
            others: config.others,
            mailbox: config.mailbox,
            resolver: config.resolver,
            resolved: HashMap::new(),
            ports: config.ports,
            seed: config.seed,
            stop_timeout: config.stop_timeout,
            sockets: Slab::new(),
            shared_pairs: HashMap::new(),
            groups: Groups::default(),
            datagrams: Datagrams::new(),
            unread: Vec::new(),
            sessions: Slab::new(),
            serial: 0,
            clients: 0,
            sinks: Sinks::default(),
            flows: Flows::default(),
            sending: Sending::new(config.in_real_time),
            exchanges: Exchanges::default(),
            populations,
            acceptors: Vec::new(),
            timers: Timers::default(),
            topics: HashMap::new(),
            out: VecDeque::new(),
            pending: VecDeque::new(),
            batch: Some(ReceiveBatch::new()),
            traced_batch: Some(ReceiveBatch::whole()),
            turns: Turns::new(),
            read_buffer: vec![0; READ_BYTES],
            runs: Vec::new(),
            plain: Vec::new(),
            plain_runs: Vec::new(),
            handshakes: 0,
            rings: None,
            watcher: None,
            turns_taken: 0,
            fast: watch::Fast::default(),
            places: Vec::new(),
            leaving: Vec::new(),
            tester: Recorder::new(tester::TESTER_CATALOGUE),
            thread: own::Thread::new(),
            notes: HashMap::new(),
            window: 0,
            window_begins: Time::ZERO,
            heartbeat: Time::ZERO,
            turn: Time::ZERO,
            stopping: false,
            to_stop: (Vec::new().into_iter(), Time::ZERO),
            killed: false,
        };
        if let Some(settings) = config.ring {
            worker.open_ring(settings)?;
        }
        for population in &worker.populations {
            if let Some(tls) = population.tls() {
                tls.warm_up();
            }
        }
        for (listener, serving) in config.serving {
            if let Some(tls) = &serving.tls {
                tls.warm_up();
            }
            worker.listen(listener, serving)?;
        }
        for plan in config.endpoints {
            worker.listen_for_datagrams(plan)?;
        }
        Ok(worker)
    }

    fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut unhurried = Events::with_capacity(1024);
        // A worker that sets to work late must not look as if its loop were late.
        let begun = self.clock.now();
        let soonest = begun + Duration::from_nanos(1);
        self.heartbeat = timers::beat_at(Time::ZERO, HEARTBEAT, soonest);
        while !self.is_done() {
            self.work_that_is_due();
            let next = self.next_work();
            self.timer.set(next, &self.clock)?;
            let more = !self.unread.is_empty()
                || self.exchanges.is_busy()
                || self.can_let_go()
                || !self.to_stop.0.as_slice().is_empty();
            let wait = more.then_some(Duration::ZERO);
            match self.poll.poll(&mut events, wait) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            let asked = self.unhurried.poll(&mut unhurried, Some(Duration::ZERO));
            asked.or_else(|error| match error.kind() {
                io::ErrorKind::Interrupted => Ok(()),
                _ => Err(error),
            })?;
            // First, so that what is heard below finds all counted that the ring has.
            self.read_rings();
            for event in &events {
                match event.token() {
                    TIMER => self.timer.fired(),
                    WAKER => {}
                    Token(place) if self.is_connection(place) => {}
                    Token(place) => self.ready(place, event),
                }
            }
            // A socket may have been put there more than once.
            let mut unread = std::mem::take(&mut self.unread);
            unread.sort_unstable();
            unread.dedup();
            for place in unread {
                self.readable(place);
            }
            // After the media of which they tell, and before what ends sessions: a stream's last
            // report may have come just before that.
            for event in &unhurried {
                let Token(place) = event.token();
                self.ready(place, event);
            }
            for event in &events {
                let Token(place) = event.token();
                if self.is_connection(place) {
                    self.ready(place, event);
                }
            }
            while let Ok(command) = self.commands.try_recv() {
                self.obey(command);
            }
            self.hear_pacer();
            self.settle();
        }
        if self.killed {
            self.end_all_now();
        }
        self.tell_of_notes_left_out();
        let now = self.clock.now();
        self.keep_time(now);
        self.close_window(now);
        Ok(())
    }

    fn is_connection(&self, place: usize) -> bool {
        matches!(self.sockets.get(place), Some(Socket::Stream(_)))
    }

    /// Whether there is nothing left to do.
    fn is_done(&self) -> bool {
        if self.killed {
            return true;
        }
        let finished = self.populations.iter().all(Population::is_finished);
        let serves = !self.acceptors.is_empty() || self.datagrams.has_endpoints();
        let serving = serves && !self.stopping;
        finished
            && !serving
            && self.sessions.is_empty()
            && self.waiting_ends() == Time::NEVER
            && !self.sockets.iter().any(|(_, s)| s.is_closing())
    }

    /// When the loop has to be awake next, whatever arrives.
    fn next_work(&mut self) -> Time {
        let (sessions, sockets) = (&self.sessions, &self.sockets);
        let task = self
            .timers
            .next(|at, task| task.is_wanted(at, sessions, sockets));
        let plans = self
            .populations
            .iter()
            .filter_map(Population::next_due)
            .min();
        self.heartbeat
            .min(self.window_begins + WINDOW)
            .min(task)
            .min(self.sending.next())
            .min(self.exchanges.next())
            .min(self.waiting_ends())
            .min(self.rings_due())
            .min(self.connections_due())
            .min(self.sockets_due())
            .min(self.groups_due())
            .min(plans.unwrap_or(Time::NEVER))
    }

    /// When the running window ends. A loop that is late reads what came after that before it is
    /// handed over: packets of media count by when they came.
    fn window_ends(&self) -> Time {
        self.window_begins + WINDOW
    }

    fn work_that_is_due(&mut self) {
        let now = self.clock.now();
        self.turn = now;
        self.handshakes = 0;
        self.stop_some();
        if now >= self.window_ends() {
            self.read_all_media(self.window_ends());
        }
        self.keep_time(now);
        self.let_go();
        self.read_in_turn(now);
        self.read_fast(now);
        self.read_sockets_in_turn(now);
        self.read_groups_in_turn(now);
        self.start_and_stop_clients(now);
        while let Some((at, task)) = self.timers.due(now) {
            self.do_task(at, task, now);
            self.settle();
        }
        self.send_flows(now);
        self.send_messages(now);
        self.settle();
    }

    /// Counts what has come and is not counted as yet, so that what a window holds does not hang on
    /// when media is read. `end` is the window's, however late the loop comes to it.
    fn read_all_media(&mut self, end: Time) {
        self.read_rings_now();
        self.read_all_streams(end);
        self.read_all_sockets();
        self.read_all_groups();
        self.read_all_late();
    }

    /// Closes the windows that are over, each with the lag of every heartbeat that was due in it: a
    /// loop that stood still for a second was late 25 times, not once.
    fn keep_time(&mut self, now: Time) {
        loop {
            let end = self.window_begins + WINDOW;
            while self.heartbeat <= now.min(end) {
                let lag = now.since(self.heartbeat);
                self.tester.record(tester::LAG, lag.as_nanos() as u64);
                self.heartbeat += HEARTBEAT;
            }
            if now < end {
                return;
            }
            self.close_window(end);
        }
    }

    fn do_task(&mut self, at: Time, task: Task, now: Time) {
        match task {
            Task::Deadline(key) => {
                let Some(slot) = self.slot(key).filter(|slot| slot.armed == at) else {
                    return;
                };
                if slot.session.awaits(now) {
                    if slot.on_ring {
                        self.read_rings_now();
                        self.let_go_of_all();
                    }
                    self.catch_up(key);
                    self.hear_datagrams_first(key, true);
                }
                let Some(slot) = self.slot(key) else { return };
                slot.armed = Time::NEVER;
                match slot.session.deadline() {
                    Some(deadline) if deadline <= now => self.deliver(key, Input::Deadline),
                    _ => self.arm(key),
                }
            }
            Task::Leave(key) => self.stop_session(key, now),
            Task::Cut(key) => self.cut_session(key),
            Task::Connect { session, channel } => self.give_up_connecting(session, channel),
            Task::Accept { socket } => self.readable(socket),
            Task::Handshake { socket, serial } => self.give_up_handshake(socket, serial),
            Task::Linger { socket, serial } => self.give_up_closing(socket, serial),
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Stop { until } => self.stop_all(until),
            Command::Kill => self.killed = true,
            Command::Resolved(answer) => self.resolved(answer),
            Command::Told { topic, message } => self.tell_listeners(&topic, &message),
        }
    }

    fn slot(&mut self, key: SessionKey) -> Option<&mut Slot> {
        self.sessions
            .get_mut(key.place)
            .filter(|slot| slot.serial == key.serial)
    }

    /// Hands an input to a session and carries out what it wants done.
    ///
    /// What that leads to at once (a channel that could not be opened, say) is kept for
    /// [`Worker::settle`]: a session is never called while another's outputs are being carried out.
    fn deliver(&mut self, key: SessionKey, input: Input<'_>) {
        if !matches!(input, Input::Media { .. }) {
            self.hear_media_first(key);
        }
        let Some(slot) = self
            .sessions
            .get_mut(key.place)
            .filter(|slot| slot.serial == key.serial)
        else {
            return;
        };
        let mut outbox = self.datagrams.take_outbox();
        let mut context = Context {
            now: self.clock.now(),
            recorder: &mut self.populations[slot.population].recorder,
            sinks: &mut self.sinks,
            flows: &mut self.flows,
            out: &mut self.out,
            outbox: &mut outbox,
        };
        slot.session.handle(&mut context, input);
        while let Some(output) = self.out.pop_front() {
            match output {
                Output::Transmit(transmit) => {
                    self.transmit(key, &transmit, outbox.bytes(&transmit));
                }
                output => self.carry_out(key, output),
            }
        }
        self.datagrams.put_back(outbox);
        self.look_at_flows(key);
        self.arm(key);
    }

    /// Sees to it that a task waits for the session's deadline. A task that waits for an earlier
    /// time is left to find out, so that a deadline which moves with every answer leaves no trail
    /// of tasks.
    fn arm(&mut self, key: SessionKey) {
        let (next, turn) = (self.heartbeat, self.turn);
        let Some(slot) = self.slot(key) else { return };
        let Some(deadline) = slot.session.deadline() else {
            return;
        };
        if deadline >= slot.armed {
            return;
        }
        let beat = timers::beat_at(next, HEARTBEAT, deadline);
        // What is only to be sent (a report, what keeps a session alive) waits for the next
        // heartbeat, for which the loop wakes anyway: with thousands of clients to wake for each
        // would cost more than to send it.
        let at = match slot.session.awaits(beat) {
            true => deadline,
            false => beat,
        };
        // One that has passed already comes in the next turn: a session that names it over and over
        // costs time, but keeps nobody from being heard.
        let at = at.max(turn + Duration::from_nanos(1));
        if at < slot.armed {
            slot.armed = at;
            self.timers.add(at, Task::Deadline(key));
        }
    }

    /// Delivers what has come up, until nothing more comes up.
    fn settle(&mut self) {
        while let Some((key, pending)) = self.pending.pop_front() {
            pending.deliver(self, key);
        }
    }

    /// Hands the running window over and begins the next.
    fn close_window(&mut self, end: Time) {
        let seconds = end.since(self.window_begins).as_secs_f64();
        if let Some(moved) = self.clock.renew() {
            self.note(
                "clock_step",
                None,
                format!(
                    "the real-time clock moved by {:.6} s against the monotonic one",
                    moved as f64 / 1e9
                ),
            );
        }
        self.look_at_itself();
        self.look_at_exchanges();
        self.collect_drops();
        self.collect_ring_drops();
        let (sessions, sockets) = (&self.sessions, &self.sockets);
        self.timers
            .sweep(|at, task| task.is_wanted(at, sessions, sockets));
        let populations = self
            .populations
            .iter_mut()
            .map(|population| {
                population
                    .recorder
                    .set(clients::ACTIVE, population.active.take_most());
                population
                    .recorder
                    .set(clients::PLAYING, population.playing.take_most());
                population.recorder.take_window_before(&mut population.next)
            })
            .collect();
        let mut tester = self.tester.take_window();
        if let Some(paced) = self.sending.take_pacer_window() {
            tester.merge(&paced, tester::TESTER_CATALOGUE);
        }
        let report = Report::Window {
            worker: self.index,
            index: self.window,
            begins: self.window_begins,
            seconds,
            populations,
            tester,
        };
        self.report(report);
        self.report_the_living();
        self.window += 1;
        self.window_begins = end;
    }

    fn report(&mut self, report: Report) {
        // Without a coordinator nobody wants to know: it is gone only after it has let us end.
        let _ = self.reports.send(report);
    }

    /// Passes a note on, as long as there were not too many of its kind.
    fn note(&mut self, kind: &'static str, subject: Option<usize>, text: String) {
        let count = self.notes.entry(kind).or_default();
        *count += 1;
        if *count <= NOTES_OF_A_KIND {
            let subject = subject.map(|index| self.populations[index].name.clone());
            let at = self.clock.now();
            self.report(Report::Event {
                at,
                kind,
                subject,
                text,
            });
        }
    }

    fn tell_of_notes_left_out(&mut self) {
        let at = self.clock.now();
        for (kind, count) in std::mem::take(&mut self.notes) {
            if let Some(more @ 1..) = count.checked_sub(NOTES_OF_A_KIND) {
                self.report(Report::Event {
                    at,
                    kind,
                    subject: None,
                    text: format!("{more} more of this kind on worker {}", self.index),
                });
            }
        }
    }
}
