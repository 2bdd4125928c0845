//! The runners of a run on other machines, as the coordinator of the engine has them.

mod states;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use async_nats::Client;
use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use engine::{Control, Crew, Dealing, EngineError, RunnerCommand, RunnerInfo, RunnerReport, Trace};
use measure::human::plural;
use measure::tester::{RunnerSummary, SOFTNET_DROPS};
use measure::{Catalogue, Time};
use net::Clock;
use net::clock::monotonic_nanos;
use runfile::{EventRow, Noted};
use scenario::{Scenario, Server};
use sut::{CpuSource, Sut};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::clock::{AgreedOffset, ClockEstimate};
use crate::inbox::{self, FromLog, LogReader};
use crate::machine;
use crate::member::{Member, Shared, ask, ask_one, exchange_with};
use crate::observed::{CHECK_INTERVAL, ObservedServer, take_report};
use crate::orders::{Answer, Beat, Order, ReadyInfo, WireCommand, encode, listen};
use crate::run_state::{RUN_STATE, RunState, scenario_digest};
use crate::storage::{ALL, beat_subject, lead_subject, report_subject, runner_of, server_subject};
use states::{MemberState, States, lock};

/// Time limit for starting the workers of all runners.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Time limit for agreeing on the start. What is left until the start is enough to call it off.
const AGREE_TIMEOUT: Duration = Duration::from_millis(1_000);

/// Shortest time between the agreement on the start and the start.
const AHEAD_MIN: Duration = Duration::from_secs(2);

/// The start is at least this many round trips ahead.
const AHEAD_ROUND_TRIPS: u32 = 20;

/// Time limit for a command, and number of attempts.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);
const COMMAND_ATTEMPTS: u32 = 3;

/// Time that a command takes on a runner, and number of round trips that are allowed for it.
const COMMAND_LEAD: Duration = Duration::from_millis(100);
const COMMAND_ROUND_TRIPS: u32 = 5;

/// Time without a connection to NATS after which all runners are lost: they have stopped their
/// clients by then.
const DISCONNECTED_MAX: Duration = Duration::from_secs(15);

/// Interval in which the wait for the start looks for a stop.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Interval between signs of life of the coordinator.
const LEAD_INTERVAL: Duration = Duration::from_secs(1);

/// Interval between exchanges of timestamps during a run, and their number. The first ones follow
/// sooner, because they bound the drift.
const EXCHANGE_INTERVAL: Duration = Duration::from_secs(10);
const FIRST_INTERVALS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];
const EXCHANGES: usize = 4;

/// Reports that may wait for the coordinator.
const REPORTS_MAX: usize = 1 << 13;

/// Time limit for telling the runners to leave.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The runners of one run.
pub struct RemoteCrew {
    shared: Arc<Shared>,
    run: String,
    members: Vec<Member>,
    /// Runner that observes the server.
    observer: Option<Member>,
    /// Maximum number of clients of each.
    clients: Vec<u64>,
    states: Arc<Mutex<States>>,
    from_log: Receiver<FromLog>,
    /// Runners that did not carry out a command, and why.
    failed: Receiver<(usize, String)>,
    /// Commands to each runner, in their order.
    commands: Vec<UnboundedSender<Bytes>>,
    reports: VecDeque<(u32, RunnerReport)>,
    clock: Option<Clock>,
    control: Control,
    /// Name of this coordinator as a reader of the log.
    reader: String,
    /// Version of the program.
    version: String,
    /// True until all reports have come that the log had when a run was resumed.
    is_behind: bool,
    /// False until a resumed run has a new run file: until then nothing of it is ended or removed.
    is_ours: bool,
    /// SHA-256 of the scenario, and its seed.
    scenario: (String, u64),
    /// Facts about the runners, and the agreed start; empty before.
    ready: Vec<ReadyInfo>,
    start: Option<i64>,
}

impl RemoteCrew {
    /// Begins to listen to the runners of a run.
    pub(crate) fn new(
        shared: Arc<Shared>,
        reader: LogReader,
        members: &[Member],
        observer: Option<Member>,
        scenario: &Scenario,
        control: &Control,
    ) -> RemoteCrew {
        let states = Arc::new(Mutex::new(States {
            each: members.iter().map(MemberState::new).collect(),
            disconnected_since: None,
        }));
        let (sender, from_log) = bounded(REPORTS_MAX);
        let populations = scenario.populations.iter();
        let populations: Vec<(String, Catalogue)> = populations
            .map(|one| (one.name.clone(), one.config.protocol().catalogue))
            .collect();
        let background = &shared.background;
        let log = shared.storage.log.clone();
        let over = Arc::downgrade(&states);
        let run = reader.run.clone();
        background.spawn(inbox::read(
            log,
            reader.clone(),
            members.iter().map(|member| member.name.clone()).collect(),
            populations,
            sender,
            move || over.strong_count() == 0,
        ));
        let weak = Arc::downgrade(&states);
        background.spawn(listen(
            shared.client.clone(),
            beat_subject(&run, ALL),
            weak,
            LEAD_INTERVAL,
            hear_beat,
        ));
        let weak = Arc::downgrade(&states);
        background.spawn(give_signs(shared.client.clone(), run.clone(), weak));
        let (failing, failed) = unbounded();
        let commands = members.iter().enumerate().map(|(runner, member)| {
            let (sender, orders) = unbounded_channel();
            let client = shared.client.clone();
            let sending = send_commands(client, member.clone(), runner, orders, failing.clone());
            background.spawn(sending);
            sender
        });
        let commands = commands.collect();
        let weights: Vec<u32> = members.iter().map(|member| member.weight).collect();
        let dealing = Dealing::new(scenario, &weights);
        let clients = |runner| dealing.clients(scenario, runner).iter().sum();
        RemoteCrew {
            clients: (0..members.len()).map(clients).collect(),
            shared,
            run,
            members: members.to_vec(),
            observer,
            states,
            from_log,
            failed,
            commands,
            reports: VecDeque::new(),
            clock: None,
            control: control.clone(),
            is_behind: reader.caught_up_at > 0,
            // A new run is this coordinator's from the beginning.
            is_ours: reader.caught_up_at == 0,
            reader: reader.name,
            version: reader.version,
            scenario: (scenario_digest(scenario), scenario.seed),
            ready: Vec::new(),
            start: None,
        }
    }

    /// Continues a run that has begun.
    pub(crate) fn with_state(mut self, state: RunState) -> RemoteCrew {
        (self.ready, self.start) = (state.ready, Some(state.start));
        for (member, agreed) in lock(&self.states).each.iter_mut().zip(state.agreed) {
            member.agreed = agreed;
        }
        self
    }

    /// Sends an order to all runners that take part still.
    fn ask_all(
        &self,
        order: impl Fn(usize, &Member) -> Order,
        within: Duration,
        stoppable: bool,
    ) -> Vec<Asked> {
        let members = self.members.iter().enumerate();
        let orders = members.map(|(runner, member)| {
            let order: Bytes = encode(&order(runner, member));
            (member.clone(), order)
        });
        let stop = || stoppable && self.control.is_stopped();
        ask(&self.shared, orders.collect(), within, &stop)
    }

    /// Tells one runner to leave the run, without waiting for it.
    fn dismiss(&self, member: &Member) {
        let (client, member) = (self.shared.client.clone(), member.clone());
        let run = self.run.clone();
        let order = encode(&Order::Leave { run });
        self.shared.background.spawn(async move {
            let _ = ask_one(&client, &member, order, COMMAND_TIMEOUT).await;
        });
    }

    /// Tells all runners to leave the run.
    fn leave(&self, within: Duration) {
        let run = &self.run;
        let order = |_, _: &Member| Order::Leave { run: run.clone() };
        if let Some(observer) = &self.observer {
            self.dismiss(observer);
        }
        // Those that do not answer stop by themselves.
        self.ask_all(order, within, false);
    }

    /// Calls the start off.
    fn call_off(&self, why: EngineError) -> EngineError {
        self.leave(COMMAND_TIMEOUT);
        why
    }

    fn sleep_until(&self, start: i64) -> Result<(), EngineError> {
        let late = "the runners took too long to agree on the start".to_owned();
        let mut left = start.saturating_sub(monotonic_nanos());
        if left < 0 {
            return Err(EngineError::NotBegun(late));
        }
        while let Ok(nanos) = u64::try_from(left)
            && nanos > 0
        {
            if self.control.is_stopped() {
                return Err(EngineError::Stopped);
            }
            std::thread::sleep(Duration::from_nanos(nanos).min(STOP_INTERVAL));
            left = start.saturating_sub(monotonic_nanos());
        }
        Ok(())
    }

    /// Name of the first runner that refused or did not answer, and why.
    fn first_refusal(&self, answers: &[Asked]) -> Option<String> {
        let all = self.members.iter().zip(answers);
        let mut refused = all.filter_map(|(member, answer)| {
            let why = answer.as_ref().err()?;
            Some(format!("runner `{}`: {why}", member.name))
        });
        refused.next()
    }

    fn now(&self) -> Time {
        self.clock.as_ref().map_or(Time::ZERO, Clock::now)
    }

    fn take_from_log(&mut self, from: FromLog) {
        let (runner, report) = match from {
            FromLog::Report(runner, report) => (runner, report),
            FromLog::Malformed(runner) => {
                return self.lose(runner, "it sent malformed reports");
            }
            FromLog::CaughtUp => {
                self.is_behind = false;
                return self.begin_to_wait();
            }
        };
        {
            let mut states = lock(&self.states);
            let state = &mut states.each[runner];
            if !state.is_present() {
                return;
            }
            match &report {
                RunnerReport::Ended => state.has_ended = true,
                RunnerReport::Lost(why) => {
                    state.lost = Some(format!("runner {}: {why}", state.member.name));
                }
                _ => {}
            }
            let is_counted = matches!(report, RunnerReport::Window(_) | RunnerReport::Ended);
            state.came += u64::from(is_counted);
        }
        let repeats_machine = self.machine_is_counted(runner);
        let name = &self.members[runner].name;
        let report = match report {
            RunnerReport::Window(mut window) => {
                if repeats_machine {
                    for part in &mut window.testers {
                        // Another runner reports those of the machine.
                        part.figures.process.counters[usize::from(SOFTNET_DROPS.0)] = 0;
                    }
                }
                RunnerReport::Window(window)
            }
            RunnerReport::Fault(text) => RunnerReport::Fault(format!("runner {name}: {text}")),
            RunnerReport::Lost(text) => RunnerReport::Lost(format!("runner {name}: {text}")),
            RunnerReport::Event(event) => RunnerReport::Event(EventRow {
                text: format!("runner {name}: {}", event.text),
                ..event
            }),
            report => report,
        };
        self.report(runner, report);
    }

    /// Returns `true` if another runner reports the figures of the machine.
    fn machine_is_counted(&self, runner: usize) -> bool {
        let states = lock(&self.states);
        let boot = |runner: usize| &states.each[runner].member.machine.boot;
        let before = (0..runner).filter(|other| states.each[*other].is_present());
        before.into_iter().any(|other| boot(other) == boot(runner))
    }

    fn report(&mut self, runner: usize, report: RunnerReport) {
        let runner = u32::try_from(runner).unwrap_or(u32::MAX);
        self.reports.push_back((runner, report));
    }

    /// Gives a runner up: the run cannot be judged without its clients.
    fn lose(&mut self, runner: usize, why: &str) {
        let at = self.now();
        let text = {
            let count = self.members.len();
            let mut states = lock(&self.states);
            let state = &mut states.each[runner];
            if !state.is_present() {
                return;
            }
            let most = self.clients.iter().sum::<u64>();
            let text = format!(
                "runner {} of {count} was lost at {:.0} s with {} of at most {}: {why}",
                self.members[runner].name,
                at.as_secs_f64(),
                state.clients,
                plural(most as f64, "client", "clients")
            );
            state.lost = Some(text.clone());
            state.is_given_up = true;
            text
        };
        self.report(runner, RunnerReport::Lost(text));
        // If it plays on, it must not.
        self.dismiss(&self.members[runner]);
        self.report(runner, RunnerReport::Ended);
    }

    /// Judges the silence of runners from now on.
    fn begin_to_wait(&self) {
        lock(&self.states).begin_to_wait(Instant::now());
    }

    /// Finds runners that give no sign of life.
    fn find_lost(&mut self) {
        if self.is_behind {
            return;
        }
        let mut lost = Vec::new();
        {
            let now = Instant::now();
            let mut states = lock(&self.states);
            if !self.shared.state.is_connected() {
                let since = *states.disconnected_since.get_or_insert(now);
                if now.duration_since(since) >= DISCONNECTED_MAX {
                    let all = 0..self.members.len();
                    lost.extend(all.map(|runner| (runner, "NATS is out of reach".to_owned())));
                }
            } else {
                if states.disconnected_since.take().is_some() {
                    // Their signs of life could not arrive.
                    states.begin_to_wait(now);
                }
                let has_begun = self.clock.is_some();
                let present = states.each.iter_mut().enumerate();
                for (runner, state) in present.filter(|(_, state)| state.is_present()) {
                    let why = state.fault(has_begun, now);
                    lost.extend(why.map(|why| (runner, why)));
                }
            }
        }
        for (runner, why) in lost {
            self.lose(runner, &why);
        }
    }
}

type Asked = Result<Answer, String>;

impl Crew for RemoteCrew {
    fn observe_server(&mut self, server: &Server) -> Result<Option<Sut>, EngineError> {
        let Some(member) = &self.observer else {
            return Ok(None);
        };
        let observed = ObservedServer::default();
        self.shared.background.spawn(listen(
            self.shared.client.clone(),
            server_subject(&self.run, &member.name),
            observed.newest(),
            CHECK_INTERVAL,
            take_report,
        ));
        let order = encode(&Order::Observe {
            run: self.run.clone(),
            patterns: server.log.patterns.clone(),
            ignore: server.log.ignore.clone(),
        });
        let stop = || self.control.is_stopped();
        let orders = vec![(member.clone(), order)];
        let answers = ask(&self.shared, orders, COMMAND_TIMEOUT, &stop);
        if let Some(Err(why)) = answers.into_iter().next() {
            let why = format!("runner `{}`: {why}", member.name);
            return Err(EngineError::Runners(why));
        }
        let description = format!("observed by runner {}", member.name);
        let source = CpuSource::Observer {
            runner: member.name.clone(),
        };
        let observed = Box::new(observed);
        Ok(Some(Sut::observe_through(observed, description, source)?))
    }

    fn start(&mut self) -> Result<Vec<RunnerInfo>, EngineError> {
        if self.start.is_some() {
            self.is_ours = true;
            return Ok(self.ready.iter().cloned().map(Into::into).collect());
        }
        let run = &self.run;
        let order = |_, _: &Member| Order::Start { run: run.clone() };
        let answers = self.ask_all(order, START_TIMEOUT, true);
        if self.control.is_stopped() {
            return Err(EngineError::Stopped);
        }
        if let Some(why) = self.first_refusal(&answers) {
            return Err(EngineError::Runners(why));
        }
        let ready = answers.into_iter().filter_map(|answer| match answer {
            Ok(Answer::Ready(info)) => Some(info),
            _ => None,
        });
        self.ready = ready.collect();
        if self.ready.len() != self.members.len() {
            let why = "a runner gave another answer than that it is ready";
            return Err(EngineError::Runners(why.to_owned()));
        }
        Ok(self.ready.iter().cloned().map(Into::into).collect())
    }

    fn agree(&mut self) -> Result<Clock, EngineError> {
        if let Some(start) = self.start {
            return Ok(Clock::starting_at(start));
        }
        let clocks = self.members.iter().map(|member| &member.clock);
        let round_trip = clocks.map(|clock| clock.longest_round_trip()).max();
        let ahead = AHEAD_MIN.max(round_trip.unwrap_or_default() * AHEAD_ROUND_TRIPS);
        let ahead = i64::try_from(ahead.as_nanos()).unwrap_or(i64::MAX);
        let start = monotonic_nanos().saturating_add(ahead);
        let mut starts = Vec::new();
        for (runner, member) in self.members.iter().enumerate() {
            let offset = member.clock.at(start).ok_or_else(|| {
                EngineError::NotBegun(format!(
                    "runner `{}`: its clock and the one here do not run evenly",
                    member.name
                ))
            })?;
            starts.push(start.saturating_add(offset.nanos));
            lock(&self.states).each[runner].agreed = Some(AgreedOffset::new(start, offset));
        }
        let clock = Clock::starting_at(start);
        let since_1970 = u64::try_from(clock.started_at()).unwrap_or(0);
        let run = &self.run;
        let order = |runner: usize, _: &Member| Order::Begin {
            run: run.clone(),
            at: starts[runner],
            wall_clock: Duration::from_nanos(since_1970),
        };
        let answers = self.ask_all(order, AGREE_TIMEOUT, true);
        if let Some(why) = self.first_refusal(&answers) {
            return Err(self.call_off(EngineError::NotBegun(why)));
        }
        self.start = Some(start);
        match self.sleep_until(start) {
            Ok(()) => Ok(clock),
            Err(why) => Err(self.call_off(why)),
        }
    }

    fn begin(&mut self, clock: &Clock) {
        self.clock = Some(clock.same_start());
        let now = Instant::now();
        for state in &mut lock(&self.states).each {
            state.made_more = now;
        }
        let weak = Arc::downgrade(&self.states);
        let client = self.shared.client.clone();
        self.shared.background.spawn(keep_clocks(client, weak));
    }

    fn facts(&self) -> Vec<Noted> {
        let agreed = lock(&self.states)
            .each
            .iter()
            .map(|one| one.agreed)
            .collect();
        let state = RunState {
            seed: self.scenario.1,
            version: self.version.clone(),
            run: self.run.clone(),
            scenario: self.scenario.0.clone(),
            members: self.members.clone(),
            observer: self.observer.clone(),
            ready: self.ready.clone(),
            start: self.start.unwrap_or(0),
            boot: machine::facts().boot,
            agreed,
        };
        vec![RUN_STATE.of(&state)]
    }

    fn lead(&self) -> Duration {
        let clocks = self.members.iter().map(|member| &member.clock);
        let round_trip = clocks.map(ClockEstimate::longest_round_trip).max();
        COMMAND_LEAD + round_trip.unwrap_or_default() * COMMAND_ROUND_TRIPS
    }

    fn send(&mut self, command: &RunnerCommand) {
        let order = encode(&Order::Command {
            run: self.run.clone(),
            command: WireCommand::from(command),
        });
        for (runner, commands) in self.commands.iter().enumerate() {
            if lock(&self.states).each[runner].is_present() {
                // The task ends with this crew.
                let _ = commands.send(order.clone());
            }
        }
    }

    fn receive(&mut self, within: Duration) -> Option<(u32, RunnerReport)> {
        if self.reports.is_empty() {
            match self.from_log.recv_timeout(within) {
                Ok(from) => self.take_from_log(from),
                Err(RecvTimeoutError::Timeout) => {}
                // The reader of the log ends only with this crew.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(within),
            }
            while let Ok((runner, why)) = self.failed.try_recv() {
                self.lose(runner, &format!("it did not carry out a command: {why}"));
            }
            self.find_lost();
        }
        self.reports.pop_front()
    }

    fn take_traces(&mut self) -> Vec<Trace> {
        Vec::new()
    }

    fn summaries(&self) -> Vec<RunnerSummary> {
        let states = lock(&self.states);
        let each = states.each.iter().zip(&self.clients);
        each.map(|(state, clients)| {
            let member = &state.member;
            let last = member.clock.last();
            let offset = last.and_then(|last| member.clock.at(last));
            let agreed = state.agreed;
            let error = agreed.and_then(|agreed| agreed.error(&member.clock));
            RunnerSummary {
                name: member.name.clone(),
                host: member.machine.host.clone(),
                cores: member.machine.cores,
                clients_max: *clients,
                clock_offset: offset.map(|offset| offset.nanos as f64 / 1e9),
                clock_uncertainty: offset.map(|offset| offset.uncertainty as f64 / 1e9),
                clock_error: error.map(|nanos| nanos as f64 / 1e9),
                began_late: state.late.map(|nanos| nanos as f64 / 1e9),
                lost: state.lost.clone(),
                ..RunnerSummary::default()
            }
        })
        .collect()
    }
}

impl Drop for RemoteCrew {
    fn drop(&mut self) {
        if self.is_ours {
            self.leave(LEAVE_TIMEOUT);
        }
        // Another attempt to resume needs reports that were not read.
        let is_read = self.is_ours && !self.is_behind;
        // Ends the readers before what they read is removed.
        self.states = Arc::default();
        let (log, run) = (self.shared.storage.log.clone(), self.run.clone());
        let reader = self.reader.clone();
        let tidied = self.shared.background.wait(LEAVE_TIMEOUT, async move {
            let subjects = report_subject(&run, ALL);
            if is_read {
                let _ = log.purge().filter(subjects).await;
            }
            let _ = log.delete_consumer(&reader).await;
        });
        // Reports that are left expire after a day.
        let _ = tidied;
    }
}

/// Sends the commands to one runner, one after another, each until it is carried out.
async fn send_commands(
    client: Client,
    member: Member,
    runner: usize,
    mut orders: UnboundedReceiver<Bytes>,
    failing: Sender<(usize, String)>,
) {
    while let Some(order) = orders.recv().await {
        let mut answer = Ok(Answer::Done);
        for _ in 0..COMMAND_ATTEMPTS {
            answer = ask_one(&client, &member, order.clone(), COMMAND_TIMEOUT).await;
            if answer.is_ok() {
                break;
            }
            tokio::time::sleep(LEAD_INTERVAL).await;
        }
        if let Err(why) = answer {
            let _ = failing.send((runner, why));
            return;
        }
    }
}

/// Notes a sign of life of a runner.
fn hear_beat(subject: &str, beat: Beat, states: &Mutex<States>) {
    let mut each = lock(states);
    let mut each = each.each.iter_mut();
    if let Some(state) = each.find(|state| state.member.name == runner_of(subject)) {
        state.hear(beat, Instant::now());
    }
}

/// Gives signs of life until the crew is gone.
async fn give_signs(client: Client, run: String, states: Weak<Mutex<States>>) {
    let subject = lead_subject(&run);
    while states.strong_count() > 0 {
        let _ = client.publish(subject.clone(), Bytes::new()).await;
        tokio::time::sleep(LEAD_INTERVAL).await;
    }
}

/// Goes on exchanging timestamps until the crew is gone.
async fn keep_clocks(client: Client, states: Weak<Mutex<States>>) {
    let mut first = FIRST_INTERVALS.into_iter();
    loop {
        tokio::time::sleep(first.next().unwrap_or(EXCHANGE_INTERVAL)).await;
        let members: Vec<(usize, Member)> = {
            let Some(states) = states.upgrade() else {
                return;
            };
            let states = lock(&states);
            let present = states.each.iter().enumerate();
            let present = present.filter(|(_, state)| state.is_present());
            present
                .map(|(runner, state)| (runner, state.member.clone()))
                .collect()
        };
        for (runner, member) in members {
            // If it does not answer, its signs of life say why.
            let exchanges = exchange_with(&client, &member, EXCHANGES).await;
            let Some(states) = states.upgrade() else {
                return;
            };
            let state = &mut lock(&states).each[runner];
            for exchange in exchanges.unwrap_or_default() {
                state.member.clock.add(exchange);
            }
            if let Some(agreed) = &mut state.agreed {
                agreed.update(&state.member.clock);
            }
        }
    }
}
