//! The coordinator's side: which runners take part, and what they are told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::Control;
use futures_util::future::join_all;
use scenario::{Network, Scenario};

use crate::background::Background;
use crate::clock::{ClockEstimate, Exchange};
use crate::connection::Access;
use crate::crew::RemoteCrew;
use crate::error::ClusterError;
use crate::files;
use crate::inbox::LogReader;
use crate::member::{EXCHANGE_TIMEOUT, Member, Shared, ask, exchange_with, no_answer};
use crate::names::COORDINATOR;
use crate::orders::{Hello, HelloAnswer, MESSAGE_MAX, MachineFacts, Order, Part, encode, listen};
use crate::storage::{HELLO, Storage, hello_subject, new_word};

/// Time limit for opening everything.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval between questions to all runners.
const HELLO_INTERVAL: Duration = Duration::from_millis(200);

/// Answers of runners that are kept.
const ANSWERS_MAX: usize = 4 * RUNNERS_MAX;

/// Number of exchanges of timestamps before a run.
const EXCHANGES: usize = 32;

/// Time limit for the preparation of a part. Media may have to be made.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum number of runners of a run.
pub const RUNNERS_MAX: usize = 256;

/// The coordinator of runs on other machines.
pub struct Coordinator {
    pub(crate) shared: Arc<Shared>,
    version: String,
    members: Vec<Member>,
    /// Runner that observes the server.
    observer: Option<Member>,
}

/// A runner that is ready for runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerFacts {
    pub name: String,
    /// A runner of weight 2 gets twice as many clients as one of weight 1.
    pub weight: u32,
    pub machine: MachineFacts,
}

/// The runners of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Any, of this number.
    Any(usize),
    /// Those with these names, in this order.
    Named(Vec<String>),
}

impl Wanted {
    fn count(&self) -> usize {
        match self {
            Wanted::Any(count) => *count,
            Wanted::Named(names) => names.len(),
        }
    }

    fn wants(&self, name: &str) -> bool {
        match self {
            Wanted::Any(_) => true,
            Wanted::Named(names) => names.iter().any(|one| one == name),
        }
    }
}

impl Coordinator {
    /// Connects to NATS.
    ///
    /// # Errors
    /// It is not there, refuses, or has no JetStream.
    pub fn connect(access: &Access, version: &str) -> Result<Coordinator, ClusterError> {
        let background =
            Background::start().map_err(ClusterError::system("cannot start a thread"))?;
        let own = access.clone();
        let opened = background.wait(OPEN_TIMEOUT, async move {
            let (client, state) = own.connect(COORDINATOR).await?;
            let storage = Storage::open(&client, &own.url).await?;
            Ok((client, state, storage))
        });
        let (client, state, storage) =
            opened.unwrap_or_else(|_| Err(ClusterError::no_answer(&access.url, OPEN_TIMEOUT)))?;
        let shared = Shared {
            background,
            client,
            state,
            storage,
        };
        Ok(Coordinator {
            shared: Arc::new(shared),
            version: version.to_owned(),
            members: Vec::new(),
            observer: None,
        })
    }

    /// Waits until the runners are there, and the one that observes the server, if any; at most for
    /// `within`, or until `check` fails.
    ///
    /// # Errors
    /// Too few came, two have the same name, or the check failed.
    pub fn gather(
        &mut self,
        wanted: &Wanted,
        observer: Option<&str>,
        within: Duration,
        check: &mut dyn FnMut() -> Result<(), ClusterError>,
    ) -> Result<Vec<RunnerFacts>, ClusterError> {
        let until = Instant::now() + within;
        let round = Round::begin(&self.shared, &self.version);
        loop {
            round.ask(&self.shared);
            std::thread::sleep(HELLO_INTERVAL);
            let (observers, players) = round
                .answers()
                .into_iter()
                .partition(|one: &HelloAnswer| one.observes.is_some());
            let (usable, others) = self.sort_out(players, wanted)?;
            let (found, unfit) = self.find_observer(observers, observer)?;
            if usable.len() >= wanted.count() && found.is_some() == observer.is_some() {
                self.observer = found;
                self.members = members(usable, wanted);
                return Ok(self.facts());
            }
            check()?;
            if Instant::now() >= until {
                let list = |words: &str, items: String, end: &str| match items.is_empty() {
                    true => items,
                    false => format!("{words}{items}{end}"),
                };
                if let (Some(runner), None) = (observer, found)
                    && usable.len() >= wanted.count()
                {
                    return Err(ClusterError::NoObserver {
                        runner: runner.to_owned(),
                        within,
                        why: list(" (", unfit.join(", "), ")"),
                    });
                }
                let names: Vec<&str> = usable.iter().map(|one| one.name.as_str()).collect();
                return Err(ClusterError::TooFew {
                    wanted: wanted.count(),
                    found: usable.len(),
                    within,
                    names: list(" (", names.join(", "), ")"),
                    others: list("; not usable: ", others.join(", "), ""),
                });
            }
        }
    }

    /// Returns the runners that can be used, and why others cannot.
    fn sort_out(
        &self,
        found: Vec<HelloAnswer>,
        wanted: &Wanted,
    ) -> Result<(Vec<HelloAnswer>, Vec<String>), ClusterError> {
        let mut usable: BTreeMap<String, HelloAnswer> = BTreeMap::new();
        let mut others = Vec::new();
        for one in found {
            if !wanted.wants(&one.name) {
                continue;
            }
            if let Some(other) = usable.get(&one.name)
                && other.incarnation != one.incarnation
            {
                return Err(ClusterError::NameTwice {
                    name: one.name,
                    one: other.machine.host.clone(),
                    other: one.machine.host,
                });
            }
            if one.version != self.version {
                others.push(format!(
                    "{} is streamgauge {}, and this is {}",
                    one.name, one.version, self.version
                ));
            } else if let Some(run) = &one.run {
                others.push(format!("{} takes part in run {run}", one.name));
            } else {
                usable.insert(one.name.clone(), one);
            }
        }
        Ok((usable.into_values().collect(), others))
    }

    /// Returns the runner that observes the server, if it can be used, and otherwise why not.
    fn find_observer(
        &self,
        observers: Vec<HelloAnswer>,
        name: Option<&str>,
    ) -> Result<(Option<Member>, Vec<String>), ClusterError> {
        let wanted = Wanted::Named(name.map(str::to_owned).into_iter().collect());
        let (usable, unfit) = self.sort_out(observers, &wanted)?;
        Ok((members(usable, &wanted).pop(), unfit))
    }

    fn facts(&self) -> Vec<RunnerFacts> {
        let members = self.members.iter();
        members
            .map(|member| RunnerFacts {
                name: member.name.clone(),
                weight: member.weight,
                machine: member.machine.clone(),
            })
            .collect()
    }

    /// Prepares all runners for a run: exchanges timestamps, sends files and parts. `changing` is
    /// the population whose clients change in a continuing run. A stop of `control` ends all waits,
    /// also those of the crew.
    ///
    /// # Errors
    /// A runner refuses its part, or the scenario works on one machine only.
    pub fn prepare(
        &mut self,
        scenario: &Scenario,
        changing: Option<&str>,
        control: &Control,
    ) -> Result<RemoteCrew, ClusterError> {
        fits(scenario)?;
        let background = &self.shared.background;
        let run = new_word(&self.shared.client);
        let stop = || control.is_stopped();
        let exchanged = exchange_with_all(&self.shared, &self.members, &stop)?;
        for (member, exchanges) in self.members.iter_mut().zip(exchanged) {
            member.clock = ClockEstimate::default();
            exchanges.into_iter().for_each(|one| member.clock.add(one));
        }
        let digests = files::store(scenario, &self.shared.storage, background)?;
        let weights: Vec<u32> = self.members.iter().map(|member| member.weight).collect();
        let mut orders = Vec::new();
        for (runner, member) in self.members.iter().enumerate() {
            let part = Part {
                run: run.clone(),
                version: self.version.clone(),
                runner,
                weights: weights.clone(),
                changing: changing.map(str::to_owned),
                scenario: scenario.portable(),
                files: digests.clone(),
            };
            let order = encode(&Order::Prepare(Box::new(part)));
            if order.len() > MESSAGE_MAX {
                let (bytes, max) = (order.len(), MESSAGE_MAX);
                return Err(ClusterError::TooLarge { bytes, max });
            }
            orders.push((member.clone(), order));
        }
        // From here on the crew tells them to leave if anything fails.
        let reader = self.reader_of(run, 0);
        let crew = RemoteCrew::new(
            self.shared.clone(),
            reader,
            &self.members,
            self.observer.clone(),
            scenario,
            control,
        );
        let answers = ask(&self.shared, orders, PREPARE_TIMEOUT, &stop);
        if stop() {
            return Err(ClusterError::Stopped);
        }
        for (member, answer) in self.members.iter().zip(answers) {
            answer.map_err(|why| member.failed(why))?;
        }
        Ok(crew)
    }

    /// Returns where this coordinator reads the log of a run.
    pub(crate) fn reader_of(&self, run: String, caught_up_at: u64) -> LogReader {
        LogReader {
            name: format!("coordinator_{run}_{}", new_word(&self.shared.client)),
            run,
            version: self.version.clone(),
            caught_up_at,
        }
    }

    /// Version of the program.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }
}

/// Answers by name and incarnation.
type Answers = Mutex<BTreeMap<(String, String), HelloAnswer>>;

/// Questions to all runners, and the answers so far.
struct Round {
    hello: bytes::Bytes,
    answers: Arc<Answers>,
}

impl Round {
    fn begin(shared: &Shared, version: &str) -> Round {
        let answers: Arc<Answers> = Arc::default();
        let id = new_word(&shared.client);
        let asked = id.clone();
        let note = move |subject: &str, answer: HelloAnswer, answers: &Answers| {
            let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
            // The server permits each runner to answer under its own name alone.
            if hello_subject(&answer.name, &asked) == subject && answers.len() < ANSWERS_MAX {
                let key = (answer.name.clone(), answer.incarnation.clone());
                answers.insert(key, answer);
            }
        };
        shared.background.spawn(listen(
            shared.client.clone(),
            hello_subject("*", &id),
            Arc::downgrade(&answers),
            HELLO_INTERVAL,
            note,
        ));
        let hello = encode(&Hello {
            version: version.to_owned(),
            id,
        });
        Round { hello, answers }
    }

    fn ask(&self, shared: &Shared) {
        let (client, hello) = (shared.client.clone(), self.hello.clone());
        shared.background.spawn(async move {
            // Asked again.
            let _ = client.publish(HELLO, hello).await;
        });
    }

    fn answers(&self) -> Vec<HelloAnswer> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.values().cloned().collect()
    }
}

/// Checks that a scenario can be played on other machines.
fn fits(scenario: &Scenario) -> Result<(), ClusterError> {
    let refused = |what, why| Err(ClusterError::OneMachine { what, why });
    if scenario.network != Network::Own || scenario.links().next().is_some() {
        return refused(
            "a network that is made for the run (`network`, `link`)",
            "it exists on one machine",
        );
    }
    let populations = scenario.populations.iter();
    let mut media = populations.filter_map(|one| one.config.facts().media);
    if media.any(|media| media.receiver.is_some()) {
        return refused(
            "a receiver on another machine (`media.receiver`)",
            "it serves one tester",
        );
    }
    Ok(())
}

/// Members of a run, in their order.
fn members(usable: Vec<HelloAnswer>, wanted: &Wanted) -> Vec<Member> {
    let mut usable = usable;
    if let Wanted::Named(names) = wanted {
        usable.sort_by_key(|one| names.iter().position(|name| *name == one.name));
    } else {
        // `runner-2` before `runner-10`.
        usable.sort_by_key(|one| (one.name.len(), one.name.clone()));
    }
    usable.truncate(wanted.count());
    let member = |one: HelloAnswer| Member {
        name: one.name,
        incarnation: one.incarnation,
        // Bounded because another machine states it.
        weight: one.weight.clamp(1, 1_000),
        machine: one.machine,
        clock: ClockEstimate::default(),
    };
    usable.into_iter().map(member).collect()
}

/// Exchanges timestamps with all runners.
fn exchange_with_all(
    shared: &Shared,
    members: &[Member],
    stop: &dyn Fn() -> bool,
) -> Result<Vec<Vec<Exchange>>, ClusterError> {
    let client = shared.client.clone();
    let limit = EXCHANGE_TIMEOUT * u32::try_from(EXCHANGES).unwrap_or(u32::MAX);
    let asked = members.to_vec();
    let exchanged = shared.background.wait_unless(stop, limit, async move {
        let each = asked.into_iter().map(|member| {
            let client = client.clone();
            async move { exchange_with(&client, &member, EXCHANGES).await }
        });
        join_all(each).await
    });
    if stop() {
        return Err(ClusterError::Stopped);
    }
    let nobody = |_| members.iter().map(|_| Err(no_answer(limit))).collect();
    let exchanged: Vec<Result<_, String>> = exchanged.unwrap_or_else(nobody);
    let named = members.iter().zip(exchanged);
    named
        .map(|(member, exchanges)| exchanges.map_err(|why| member.failed(why)))
        .collect()
}
