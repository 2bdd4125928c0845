//! The runners of a run on other machines, as the coordinator of the engine has them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use async_nats::Client;
use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use engine::{Crew, Dealing, EngineError, RunnerCommand, RunnerInfo, RunnerReport, Trace};
use futures_util::StreamExt;
use measure::tester::{RunnerSummary, SOFTNET_DROPS};
use measure::{Catalogue, Time};
use net::Clock;
use net::clock::monotonic_nanos;
use runfile::EventRow;
use scenario::Scenario;

use crate::clock::Offset;
use crate::inbox::{self, FromLog};
use crate::member::{Member, Shared, ask, ask_one, exchange_with};
use crate::orders::{Answer, Beat, Order, WireCommand, decode, encode};
use crate::storage::{all_beat_subjects, all_report_subjects, lead_subject};

/// Time limit for starting the workers of all runners.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Time limit for agreeing on the start.
const AGREE_TIMEOUT: Duration = Duration::from_millis(1_500);

/// Shortest time between the agreement on the start and the start.
const AHEAD_MIN: Duration = Duration::from_secs(2);

/// The start is at least this many round trips ahead.
const AHEAD_ROUND_TRIPS: u32 = 20;

/// Time limit for a command, and number of attempts.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(2);
const COMMAND_ATTEMPTS: u32 = 3;

/// Time without a sign of life after which a runner is lost. It is never taken back.
const LOST_AFTER: Duration = Duration::from_secs(10);

/// Time without a connection to NATS after which all runners are lost.
const DISCONNECTED_MAX: Duration = Duration::from_secs(60);

/// Interval between signs of life of the coordinator.
const LEAD_INTERVAL: Duration = Duration::from_secs(1);

/// Interval between exchanges of timestamps during a run, and their number.
const EXCHANGE_INTERVAL: Duration = Duration::from_secs(5);
const EXCHANGES: usize = 8;

/// Reports that may wait for the coordinator.
const REPORTS_MAX: usize = 1 << 13;

/// Time limit for telling the runners to leave.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The runners of one run.
pub struct RemoteCrew {
    shared: Arc<Shared>,
    run: String,
    members: Vec<Member>,
    /// Maximum number of clients of each.
    clients: Vec<u64>,
    /// Runners on a machine of which another one reports the figures.
    counted_twice: BTreeSet<usize>,
    states: Arc<Mutex<States>>,
    from_log: Receiver<FromLog>,
    /// Runners that did not carry out a command, and why.
    failed: Receiver<(usize, String)>,
    failing: Sender<(usize, String)>,
    reports: VecDeque<(u32, RunnerReport)>,
    clock: Option<Clock>,
}

/// What is known of the runners at the moment.
struct States {
    each: Vec<MemberState>,
    disconnected_since: Option<Instant>,
}

struct MemberState {
    /// Last sign of life.
    seen: Instant,
    clients: u64,
    late: Option<u64>,
    has_ended: bool,
    lost: Option<String>,
    member: Member,
}

fn lock(states: &Mutex<States>) -> MutexGuard<'_, States> {
    states.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RemoteCrew {
    /// Begins to listen to the runners of a run.
    pub(crate) fn new(
        shared: Arc<Shared>,
        run: String,
        members: &[Member],
        scenario: &Scenario,
    ) -> RemoteCrew {
        let now = Instant::now();
        let state = |member: &Member| MemberState {
            seen: now,
            clients: 0,
            late: None,
            has_ended: false,
            lost: None,
            member: member.clone(),
        };
        let states = Arc::new(Mutex::new(States {
            each: members.iter().map(state).collect(),
            disconnected_since: None,
        }));
        let (sender, from_log) = bounded(REPORTS_MAX);
        let populations = scenario.populations.iter();
        let populations: Vec<(String, Catalogue)> = populations
            .map(|one| (one.name.clone(), one.config.protocol().catalogue))
            .collect();
        let background = &shared.background;
        let log = shared.storage.log.clone();
        background.spawn(inbox::read(
            log,
            run.clone(),
            members.len(),
            populations,
            sender,
        ));
        let weak = Arc::downgrade(&states);
        background.spawn(hear_beats(shared.client.clone(), run.clone(), weak));
        let weak = Arc::downgrade(&states);
        background.spawn(give_signs(shared.client.clone(), run.clone(), weak));
        let (failing, failed) = unbounded();
        let weights: Vec<u32> = members.iter().map(|member| member.weight).collect();
        let dealing = Dealing::new(scenario, &weights);
        let clients = |runner| dealing.clients(scenario, runner).iter().sum();
        let mut machines = BTreeSet::new();
        RemoteCrew {
            counted_twice: (0..members.len())
                .filter(|runner| !machines.insert(members[*runner].machine.boot.clone()))
                .collect(),
            clients: (0..members.len()).map(clients).collect(),
            shared,
            run,
            members: members.to_vec(),
            states,
            from_log,
            failed,
            failing,
            reports: VecDeque::new(),
            clock: None,
        }
    }

    /// Sends an order to all runners that take part still.
    fn ask_all(&self, order: impl Fn(usize, &Member) -> Order, within: Duration) -> Vec<Asked> {
        let members = self.members.iter().enumerate();
        let orders = members.map(|(runner, member)| {
            let order: Bytes = encode(&order(runner, member));
            (member.clone(), order)
        });
        ask(&self.shared, orders.collect(), within)
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
                return self.lose(runner, "its reports make no sense");
            }
        };
        {
            let mut states = lock(&self.states);
            let state = &mut states.each[runner];
            // A lost runner is never taken back.
            if state.lost.is_some() || state.has_ended {
                return;
            }
            state.has_ended = matches!(report, RunnerReport::Ended);
        }
        let name = &self.members[runner].name;
        let report = match report {
            RunnerReport::Window(mut window) => {
                if self.counted_twice.contains(&runner) {
                    for (_, figures) in &mut window.testers {
                        // Another runner reports those of the machine.
                        figures.process.counters[usize::from(SOFTNET_DROPS.0)] = 0;
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
            if state.lost.is_some() || state.has_ended {
                return;
            }
            let text = format!(
                "runner {} of {count} was lost at {:.0} s with {} of at most {} clients: {why}",
                self.members[runner].name,
                at.as_secs_f64(),
                state.clients,
                self.clients.iter().sum::<u64>()
            );
            state.lost = Some(text.clone());
            text
        };
        self.report(runner, RunnerReport::Lost(text));
        self.report(runner, RunnerReport::Ended);
    }

    /// Finds runners that give no sign of life.
    fn find_lost(&mut self) {
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
                    // They could not be heard.
                    states.each.iter_mut().for_each(|state| state.seen = now);
                }
                for (runner, state) in states.each.iter().enumerate() {
                    let silent = now.duration_since(state.seen);
                    if silent >= LOST_AFTER {
                        let why = format!("no sign of life for {} s", silent.as_secs());
                        lost.push((runner, why));
                    }
                }
            }
        }
        for (runner, why) in lost {
            self.lose(runner, &why);
        }
    }

    fn offset(member: &Member, at: i64) -> Option<Offset> {
        member.clock.at(at)
    }
}

type Asked = Result<Answer, String>;

impl Crew for RemoteCrew {
    fn start(&mut self) -> Result<Vec<RunnerInfo>, EngineError> {
        let run = &self.run;
        let order = |_, _: &Member| Order::Start { run: run.clone() };
        let answers = self.ask_all(order, START_TIMEOUT);
        if let Some(why) = self.first_refusal(&answers) {
            return Err(EngineError::Runners(why));
        }
        let ready = answers.into_iter().filter_map(|answer| match answer {
            Ok(Answer::Ready(info)) => Some(info.into()),
            _ => None,
        });
        let ready: Vec<RunnerInfo> = ready.collect();
        match ready.len() == self.members.len() {
            true => Ok(ready),
            false => Err(EngineError::Runners(
                "a runner gave another answer than that it is ready".to_owned(),
            )),
        }
    }

    fn agree(&mut self) -> Result<Clock, EngineError> {
        let clocks = self.members.iter().map(|member| &member.clock);
        let round_trip = clocks.map(|clock| clock.longest_round_trip()).max();
        let ahead = AHEAD_MIN.max(round_trip.unwrap_or_default() * AHEAD_ROUND_TRIPS);
        let ahead = i64::try_from(ahead.as_nanos()).unwrap_or(i64::MAX);
        let start = monotonic_nanos().saturating_add(ahead);
        let mut starts = Vec::new();
        for member in &self.members {
            let offset = RemoteCrew::offset(member, start).ok_or_else(|| {
                EngineError::NotBegun(format!(
                    "runner `{}`: its clock and the one here do not run evenly",
                    member.name
                ))
            })?;
            starts.push(start.saturating_add(offset.nanos));
        }
        let clock = Clock::starting_at(start);
        let since_1970 = u64::try_from(clock.started_at()).unwrap_or(0);
        let run = &self.run;
        let order = |runner: usize, _: &Member| Order::Begin {
            run: run.clone(),
            at: starts[runner],
            wall_clock: Duration::from_nanos(since_1970),
        };
        let answers = self.ask_all(order, AGREE_TIMEOUT);
        if let Some(why) = self.first_refusal(&answers) {
            return Err(EngineError::NotBegun(why));
        }
        let left = start.saturating_sub(monotonic_nanos());
        match u64::try_from(left) {
            Ok(left) => std::thread::sleep(Duration::from_nanos(left)),
            Err(_) => {
                let why = "the runners took too long to agree on the start".to_owned();
                return Err(EngineError::NotBegun(why));
            }
        }
        Ok(clock)
    }

    fn begin(&mut self, clock: &Clock) {
        self.clock = Some(clock.same_start());
        let weak = Arc::downgrade(&self.states);
        let client = self.shared.client.clone();
        self.shared.background.spawn(keep_clocks(client, weak));
    }

    fn send(&mut self, command: &RunnerCommand) {
        for (runner, member) in self.members.iter().enumerate() {
            let state = &lock(&self.states).each[runner];
            if state.has_ended || state.lost.is_some() {
                continue;
            }
            let order = encode(&Order::Command {
                run: self.run.clone(),
                command: WireCommand::from(command),
            });
            let (client, member) = (self.shared.client.clone(), member.clone());
            let failing = self.failing.clone();
            self.shared.background.spawn(async move {
                let mut answer = Ok(Answer::Done);
                for _ in 0..COMMAND_ATTEMPTS {
                    answer = ask_one(&client, &member, order.clone(), COMMAND_TIMEOUT).await;
                    if answer.is_ok() {
                        return;
                    }
                    tokio::time::sleep(LEAD_INTERVAL).await;
                }
                if let Err(why) = answer {
                    let _ = failing.send((runner, why));
                }
            });
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
        let now = monotonic_nanos();
        let states = lock(&self.states);
        let each = states.each.iter().zip(&self.clients);
        each.map(|(state, clients)| {
            let member = &state.member;
            let offset = RemoteCrew::offset(member, now);
            RunnerSummary {
                name: member.name.clone(),
                host: member.machine.host.clone(),
                cores: member.machine.cores,
                clients_max: *clients,
                clock_offset: offset.map(|offset| offset.nanos as f64 / 1e9),
                clock_uncertainty: offset.map(|offset| offset.uncertainty as f64 / 1e9),
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
        let run = &self.run;
        let order = |_, _: &Member| Order::Leave { run: run.clone() };
        // Those that do not answer stop by themselves.
        self.ask_all(order, LEAVE_TIMEOUT);
        let (log, run) = (self.shared.storage.log.clone(), self.run.clone());
        let tidied = self.shared.background.wait(LEAVE_TIMEOUT, async move {
            let subjects = all_report_subjects(&run);
            let purged = log.purge().filter(subjects).await;
            let deleted = log.delete_consumer(&inbox::reader_name(&run)).await;
            purged.is_ok() && deleted.is_ok()
        });
        // What is left expires after a day.
        let _ = tidied;
    }
}

/// Notes signs of life of the runners until the crew is gone.
async fn hear_beats(client: Client, run: String, states: Weak<Mutex<States>>) {
    let Ok(mut beats) = client.subscribe(all_beat_subjects(&run)).await else {
        return;
    };
    while let Some(message) = beats.next().await {
        let Some(states) = states.upgrade() else {
            return;
        };
        let runner = message.subject.rsplit('.').next();
        let runner = runner.and_then(|number| number.parse::<usize>().ok());
        let Some(beat) = decode::<Beat>(&message.payload) else {
            continue;
        };
        let mut states = lock(&states);
        if let Some(state) = runner.and_then(|runner| states.each.get_mut(runner)) {
            state.seen = Instant::now();
            state.clients = beat.clients;
            state.late = beat.late.or(state.late);
        }
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
    loop {
        tokio::time::sleep(EXCHANGE_INTERVAL).await;
        let members: Vec<(usize, Member)> = {
            let Some(states) = states.upgrade() else {
                return;
            };
            let states = lock(&states);
            let present = states.each.iter().enumerate();
            let present = present.filter(|(_, state)| state.lost.is_none() && !state.has_ended);
            present
                .map(|(runner, state)| (runner, state.member.clone()))
                .collect()
        };
        for (runner, member) in members {
            let Ok(member) = exchange_with(&client, member, EXCHANGES).await else {
                continue;
            };
            let Some(states) = states.upgrade() else {
                return;
            };
            lock(&states).each[runner].member = member;
        }
    }
}
