//! Plan of a runner: what its workers need, before any of them is started.

use std::sync::Arc;

use kit::descriptor::RunContext;
use measure::Time;
use measure::load::Share;
use net::PortRange;
use scenario::{Population, Priority, Scenario};

use crate::error::EngineError;
use crate::options::Options;
use crate::run::dealing::Dealing;
use crate::runner::clients::{client_factory, surroundings, tls};
use crate::trace::{self, Traced};
use crate::worker::count::workers_for;
use crate::worker::pool::WorkerPlan;
use crate::worker::receive_path::ReceivePath;
use crate::worker::remote::{self, RemoteWorker};
use crate::worker::{ClientPlan, MakeClient, RunnerPlace, WorkerPopulation};

/// Part of a run that a runner is to play.
pub struct RunnerOrder<'a> {
    pub scenario: &'a Scenario,
    pub dealing: &'a Dealing,
    /// Number of this runner in the dealing.
    pub runner: usize,
    /// Population whose plan is extended while the run goes on.
    pub changing: Option<&'a str>,
    pub options: &'a Options,
}

/// Workers of a runner, and what they share. Nothing has been started.
pub struct RunnerPlan {
    pub(super) place: RunnerPlace,
    /// One plan per local worker.
    pub(crate) workers: Vec<WorkerPlan>,
    /// Receivers on other machines.
    pub(super) remote_workers: Vec<RemoteWorker>,
    /// State that the clients of all workers share.
    pub(super) surroundings: RunContext,
    pub(super) receive_path: ReceivePath,
    pub(super) traced: Vec<trace::Client>,
}

impl RunnerPlan {
    /// Plans the workers of a runner.
    ///
    /// # Errors
    /// Anything that keeps the clients from being played on this machine.
    pub fn new(order: &RunnerOrder<'_>) -> Result<RunnerPlan, EngineError> {
        let (dealing, options) = (order.dealing, order.options);
        let mut resolved = None;
        let remote_workers = remote::connect(order.scenario, &options.version, &mut resolved)?;
        let scenario = resolved.as_ref().unwrap_or(order.scenario);
        let description = dealing.describe(scenario, order.runner);
        let receive_path = ReceivePath::choose(scenario, &description)?;
        let surroundings = surroundings(scenario);
        let count = workers_for(scenario, &description);
        let workers = worker_plans(order, scenario, count, &receive_path, &surroundings)?;
        let traced = trace::find(&options.trace, scenario)?;
        if scenario.tester.priority == Priority::Raised {
            may_go_first()?;
        }
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Ok(RunnerPlan {
            place: RunnerPlace {
                number: number(order.runner),
                runners: number(dealing.runners()),
            },
            workers,
            remote_workers,
            surroundings,
            receive_path,
            traced,
        })
    }
}

/// Checks whether threads of this process may raise their priority, on a thread of its own.
fn may_go_first() -> Result<(), EngineError> {
    let tried = std::thread::spawn(net::thread::raise_priority).join();
    match tried.unwrap_or_else(|_| Err(std::io::Error::other("the thread that tried panicked"))) {
        Ok(()) => Ok(()),
        Err(error) => Err(EngineError::Priority(error)),
    }
}

fn worker_plans(
    order: &RunnerOrder<'_>,
    scenario: &Scenario,
    workers: u32,
    receive_path: &ReceivePath,
    surroundings: &RunContext,
) -> Result<Vec<WorkerPlan>, EngineError> {
    let changes = |population: &Population| order.changing == Some(population.name.as_str());
    let tls: Vec<Arc<net::tls::Client>> = scenario
        .populations
        .iter()
        .map(tls)
        .collect::<Result<_, _>>()?;
    let makers: Vec<MakeClient> = scenario
        .populations
        .iter()
        .map(|population| client_factory(population, surroundings))
        .collect::<Result<_, _>>()?;
    let receive_buffer = usize::try_from(scenario.tester.receive_buffer).unwrap_or(usize::MAX);
    let ports = |worker| {
        PortRange::share(receive_path.ports(), worker, workers).with_receive_buffer(receive_buffer)
    };
    let plans = (0..workers)
        .map(|worker| {
            let populations = scenario.populations.iter().enumerate();
            let populations = populations.zip(tls.iter().zip(&makers));
            let populations = populations.map(|((index, population), (tls, maker))| {
                let own = order.dealing.slots(index, order.runner);
                let own = own.split(worker.into(), workers.into());
                WorkerPopulation {
                    name: population.name.clone(),
                    catalogue: population.config.protocol().catalogue,
                    clients: Some(ClientPlan {
                        share: match changes(population) {
                            true => Share::open(population.load.rejoin, own),
                            false => Share::of(&population.load, own),
                        },
                        urls: population.urls.clone(),
                        pick: population.pick,
                        leave: population.leave,
                        run_ends: scenario.duration.map_or(Time::NEVER, Time::from_start),
                        client: maker.clone(),
                        tls: tls.clone(),
                        traced: Traced::default(),
                        media: population.config.facts().has_media,
                        reads_at_once: population.config.facts().reads_at_once,
                        sources: population.config.facts().source_addresses.to_vec(),
                    }),
                }
            });
            WorkerPlan {
                ring: receive_path.ring(&ports(worker)),
                raised_priority: scenario.tester.priority == Priority::Raised,
                ..WorkerPlan::new(populations.collect(), ports(worker))
            }
        })
        .collect();
    Ok(plans)
}
