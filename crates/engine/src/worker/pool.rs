//! The worker threads of a run: starting them, sending commands to them, noticing that they ended.

use std::io;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use net::Clock;
use net::descriptors::spawn_with_own_table;

use crate::error::EngineError;
use crate::messages::{Command, RunnerCommand, WorkerReport};
use crate::network::resolver::Resolver;
use crate::network::target_filter::TargetFilter;
use crate::worker::links::WorkerChannels;
use crate::worker::remote::RemoteWorker;
use crate::worker::{self, Config, Mailbox, RunnerPlace};

pub(crate) use super::config::WorkerPlan;

/// Capacity of the report queue. A worker that meets a full queue blocks, which shows as its `lag`.
const REPORTS: usize = 1 << 13;

pub(crate) struct WorkerPool {
    pub(crate) reports: Receiver<WorkerReport>,
    mailboxes: Vec<Mailbox>,
    threads: Vec<JoinHandle<()>>,
    /// Start signal of each worker.
    gates: Vec<Sender<Clock>>,
    /// Receivers on other machines. Their worker numbers follow those of this machine. Each has a
    /// thread that communicates with it.
    remote_workers: Vec<RemoteWorker>,
    /// Report channel of remote workers.
    reporter: Sender<WorkerReport>,
}

impl WorkerPool {
    /// Starts one worker for each plan. Workers are ready on return and wait for
    /// [`WorkerPool::begin`].
    pub(crate) fn start(
        plans: Vec<WorkerPlan>,
        stop_timeout: Duration,
        seed: u64,
    ) -> Result<WorkerPool, EngineError> {
        let (place, targets) = (RunnerPlace::ALONE, TargetFilter::default());
        WorkerPool::start_at(place, targets, plans, stop_timeout, seed)
    }

    /// Starts the workers of a runner.
    pub(crate) fn start_at(
        place: RunnerPlace,
        targets: TargetFilter,
        plans: Vec<WorkerPlan>,
        stop_timeout: Duration,
        seed: u64,
    ) -> Result<WorkerPool, EngineError> {
        let failed = || EngineError::system("cannot start a worker");
        let (reports, inbox) = bounded(REPORTS);
        let resolver = Resolver::start().map_err(failed())?;
        let made: io::Result<(Vec<_>, Vec<_>)> = plans.iter().map(|_| Mailbox::new()).collect();
        let (mailboxes, inboxes) = made.map_err(failed())?;
        let mut pool = WorkerPool {
            reports: inbox,
            mailboxes,
            threads: Vec::new(),
            gates: Vec::new(),
            remote_workers: Vec::new(),
            reporter: reports.clone(),
        };
        let (standing, stand) = bounded(plans.len());
        for (index, (plan, commands)) in (0u32..).zip(plans.into_iter().zip(inboxes)) {
            let mailbox = pool.mailboxes[index as usize].clone();
            let others = (0u32..).zip(&pool.mailboxes);
            let others = others.filter(|(other, _)| *other != index);
            let mut serving = plan.serving.iter();
            let own_files = plan.endpoints.is_empty()
                && serving.all(|(_, serving)| serving.own_descriptor_tables);
            let mut config = Config {
                plan,
                links: WorkerChannels {
                    index,
                    reports: reports.clone(),
                    others: others.map(|(_, mailbox)| mailbox.clone()).collect(),
                    mailbox,
                    place,
                },
                commands,
                targets: targets.clone(),
                resolver: resolver.clone(),
                stop_timeout,
                seed,
            };
            let (gate, begin) = bounded(1);
            let standing = standing.clone();
            let thread = Builder::new().name(format!("worker-{index}"));
            let thread = if own_files {
                let (listeners, serving): (Vec<_>, Vec<_>) = config.plan.serving.drain(..).unzip();
                spawn_with_own_table(thread, listeners, config.wakers(), move |listeners| {
                    let ready = listeners.map(|listeners| {
                        config.plan.serving = listeners.into_iter().zip(serving).collect();
                    });
                    worker::run(config, ready, standing, &begin);
                })
            } else {
                thread.spawn(move || worker::run(config, Ok(()), standing, &begin))
            };
            let thread = thread.map_err(failed())?;
            pool.threads.push(thread);
            pool.gates.push(gate);
        }
        drop(standing);
        // Ends when every worker has reported that it is ready, or has ended.
        let _ = stand.iter().count();
        Ok(pool)
    }

    /// Starts the run in all workers, with a copy of `clock`.
    pub(crate) fn begin(&mut self, clock: &Clock) {
        for gate in self.gates.drain(..) {
            // A worker that has ended is noticed by `is_gone`.
            let _ = gate.send(clock.same_start());
        }
        for receiver in &mut self.remote_workers {
            receiver.begin();
        }
    }

    /// Adds a receiver on another machine. To be called before [`WorkerPool::begin`].
    pub(crate) fn add_remote_worker(&mut self, mut receiver: RemoteWorker) {
        let worker = u32::try_from(self.threads.len()).unwrap_or(u32::MAX);
        if let Some(thread) = receiver.report_to(worker, self.reporter.clone()) {
            self.threads.push(thread);
        }
        self.remote_workers.push(receiver);
    }

    /// Number of workers, including receivers on other machines.
    pub(crate) fn len(&self) -> usize {
        self.threads.len()
    }

    /// Stops the receivers on other machines once no local worker is running: no client then has
    /// media sent to them.
    pub(crate) fn release(&mut self, mut at_work: impl Iterator<Item = u32>) {
        let own = self.mailboxes.len();
        if !self.remote_workers.is_empty() && at_work.all(|worker| worker as usize >= own) {
            for receiver in &mut self.remote_workers {
                receiver.stop();
            }
        }
    }

    /// Sends a command to all local workers.
    pub(crate) fn broadcast(&self, command: &RunnerCommand) {
        for mailbox in &self.mailboxes {
            mailbox.send(Command::Runner(command.clone()));
        }
    }

    /// True if the worker's thread has ended, with or without a `Finished` report.
    pub(crate) fn is_gone(&self, worker: u32) -> bool {
        self.threads
            .get(worker as usize)
            .is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        self.gates.clear();
        self.remote_workers.clear();
        self.broadcast(&RunnerCommand::Kill);
        // Drains the report queue, so that no worker blocks on it.
        while self.threads.iter().any(|thread| !thread.is_finished()) {
            let _ = self.reports.recv_timeout(Duration::from_millis(1));
        }
    }
}
