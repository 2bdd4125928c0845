//! The threads of a run: starting the workers, telling them things, seeing that they have ended.

use std::net::TcpListener;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use net::files::spawn_with_own_table;
use net::{Clock, PortRange};

use crate::error::EngineError;
use crate::messages::{Command, WorkerReport};
use crate::remote_worker::RemoteWorker;
use crate::resolver::Resolver;
use crate::worker::{self, Config, EndpointPlan, Mailbox, PopulationPlan, RingPlan, Serving};

/// How many reports may wait for the coordinator. A worker that meets a full queue waits, which its
/// own lag then shows.
const REPORTS: usize = 1 << 13;

/// The workers of a run.
pub(crate) struct Crew {
    pub(crate) reports: Receiver<WorkerReport>,
    mailboxes: Vec<Mailbox>,
    threads: Vec<JoinHandle<()>>,
    /// Where each worker waits for the run to begin.
    gates: Vec<Sender<Clock>>,
    /// Receivers on other machines. They count as workers behind those of this machine, and each
    /// has a thread that speaks to it.
    remote_workers: Vec<RemoteWorker>,
    /// What they report by.
    reporter: Sender<WorkerReport>,
}

/// What one worker is to do.
pub(crate) struct Duty {
    pub(crate) populations: Vec<PopulationPlan>,
    pub(crate) serving: Vec<(TcpListener, Serving)>,
    /// Reference servers over UDP. Their worker has no table of descriptors of its own.
    pub(crate) endpoints: Vec<EndpointPlan>,
    pub(crate) ports: PortRange,
    /// The packet ring by which media is received; none where it is received by sockets.
    pub(crate) ring: Option<RingPlan>,
    /// Whether it goes before others that want the same processor.
    pub(crate) goes_first: bool,
    /// Whether what it paces goes before all else on this machine.
    pub(crate) in_real_time: bool,
}

impl Crew {
    /// Starts one worker for each duty. They all stand, and wait for [`Crew::begin`].
    pub(crate) fn start(
        duties: Vec<Duty>,
        stop_timeout: Duration,
        seed: u64,
    ) -> Result<Crew, EngineError> {
        let failed = || EngineError::system("cannot start a worker");
        let (reports, inbox) = bounded(REPORTS);
        let resolver = Resolver::start().map_err(failed())?;
        let mut mailboxes = Vec::new();
        let mut inboxes = Vec::new();
        for _ in &duties {
            let (mailbox, commands) = Mailbox::new().map_err(failed())?;
            mailboxes.push(mailbox);
            inboxes.push(commands);
        }
        let mut crew = Crew {
            reports: inbox,
            mailboxes,
            threads: Vec::new(),
            gates: Vec::new(),
            remote_workers: Vec::new(),
            reporter: reports.clone(),
        };
        let (standing, stand) = bounded(duties.len());
        for (index, (duty, commands)) in (0u32..).zip(duties.into_iter().zip(inboxes)) {
            let mailbox = crew.mailboxes[index as usize].clone();
            let others = (0u32..).zip(&crew.mailboxes);
            let others = others.filter(|(other, _)| *other != index);
            let own_files = duty.endpoints.is_empty()
                && duty.serving.iter().all(|(_, serving)| serving.own_files);
            let mut config = Config {
                index,
                commands,
                reports: reports.clone(),
                others: others.map(|(_, mailbox)| mailbox.clone()).collect(),
                resolver: resolver.clone(),
                mailbox,
                ports: duty.ports,
                ring: duty.ring,
                goes_first: duty.goes_first,
                in_real_time: duty.in_real_time,
                populations: duty.populations,
                serving: duty.serving,
                endpoints: duty.endpoints,
                stop_timeout,
                seed,
            };
            let (gate, begin) = bounded(1);
            let standing = standing.clone();
            let thread = Builder::new().name(format!("worker-{index}"));
            let thread = if own_files {
                let (listeners, serving): (Vec<_>, Vec<_>) = config.serving.drain(..).unzip();
                spawn_with_own_table(thread, listeners, config.wakers(), move |listeners| {
                    let ready = listeners.map(|listeners| {
                        config.serving = listeners.into_iter().zip(serving).collect();
                    });
                    worker::run(config, ready, standing, &begin);
                })
            } else {
                thread.spawn(move || worker::run(config, Ok(()), standing, &begin))
            };
            let thread = thread.map_err(failed())?;
            crew.threads.push(thread);
            crew.gates.push(gate);
        }
        drop(standing);
        // It ends when every worker has said so or is gone.
        let _ = stand.iter().count();
        Ok(crew)
    }

    /// Lets all workers begin, by that clock.
    pub(crate) fn begin(&mut self, clock: &Clock) {
        for gate in self.gates.drain(..) {
            // A worker that is gone is found so by its thread.
            let _ = gate.send(clock.same_start());
        }
        for receiver in &mut self.remote_workers {
            receiver.begin();
        }
    }

    /// Takes a receiver on another machine in, before the crew begins.
    pub(crate) fn join(&mut self, mut receiver: RemoteWorker) {
        let worker = u32::try_from(self.threads.len()).unwrap_or(u32::MAX);
        if let Some(thread) = receiver.report_to(worker, self.reporter.clone()) {
            self.threads.push(thread);
        }
        self.remote_workers.push(receiver);
    }

    /// How many workers there are, receivers on other machines included.
    pub(crate) fn len(&self) -> usize {
        self.threads.len()
    }

    /// Ends receivers on other machines if nobody else is at work: then nobody has media sent to
    /// them.
    pub(crate) fn release(&mut self, mut at_work: impl Iterator<Item = u32>) {
        let own = self.mailboxes.len();
        if !self.remote_workers.is_empty() && at_work.all(|worker| worker as usize >= own) {
            for receiver in &mut self.remote_workers {
                receiver.stop();
            }
        }
    }

    /// Tells all workers.
    pub(crate) fn tell(&self, command: impl Fn() -> Command) {
        for mailbox in &self.mailboxes {
            mailbox.tell(command());
        }
    }

    /// Whether a worker's thread is no more, whatever it said or did not say.
    pub(crate) fn is_gone(&self, worker: u32) -> bool {
        self.threads
            .get(worker as usize)
            .is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.gates.clear();
        self.remote_workers.clear();
        self.tell(|| Command::Kill);
        // A worker that waits for room in the queue of reports has to be let on.
        while self.threads.iter().any(|thread| !thread.is_finished()) {
            let _ = self.reports.recv_timeout(Duration::from_millis(1));
        }
    }
}
