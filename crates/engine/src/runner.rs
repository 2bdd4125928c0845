//! A runner: it plays its part of a run's clients with the workers of this process, and reports to
//! the coordinator of the run.

pub(crate) mod client_row;
pub(crate) mod clients;
mod messages;
mod plan;
mod record;

use std::collections::VecDeque;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;
use kit::descriptor::RunContext;
use measure::Time;
use net::Clock;
use runfile::EventRow;
use scenario::{Scenario, Secrets};

use crate::error::EngineError;
use crate::messages::{RunnerCommand, WorkerReport};
use crate::options::Options;
use crate::process::Process;
use crate::run::parts::catalogues;
use crate::runner::client_row::client_row;
use crate::trace::{Trace, Traces};
use crate::window_merger::{MergedWindow, TesterPart, WindowMerger};
use crate::worker::pool::WorkerPool;
use crate::worker::receive_path::ReceivePath;

pub use messages::{RunnerFigures, RunnerInfo, RunnerReport};
pub use plan::{RunnerOrder, RunnerPlan};
pub use record::RunnerRecord;

/// Interval between checks for workers that ended without a report. One wake-up costs 60 µs on a
/// virtual machine, which matters when the tester's CPU use is compared with that of other testers.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A runner whose workers are ready, or at work.
pub struct Runner {
    pool: WorkerPool,
    merger: WindowMerger<measure::Window>,
    process: Process,
    traces: Traces,
    secrets: Secrets,
    surroundings: RunContext,
    /// Keeps the ports claimed, so that other runs on this machine do not use them.
    receive_path: ReceivePath,
    receivers: Vec<String>,
    /// The run's clock; `None` before the run begins.
    clock: Option<Clock>,
    /// Time of the last check for crashed workers.
    crash_checked_at: Time,
    /// Reports that the coordinator has not taken yet.
    reports: VecDeque<RunnerReport>,
    has_ended: bool,
    finished_traces: Vec<Trace>,
}

impl Runner {
    /// Starts the workers of `plan`, which then wait for [`Runner::begin`].
    ///
    /// # Errors
    /// The operating system refuses threads or files.
    pub fn start(
        mut plan: RunnerPlan,
        scenario: &Scenario,
        options: &Options,
    ) -> Result<Runner, EngineError> {
        let (path, overwrite) = (&options.run_file, options.overwrite);
        let traces = Traces::start(plan.traced, path, overwrite, &options.version)?;
        for worker in &mut plan.workers {
            for (index, population) in worker.populations.iter_mut().enumerate() {
                if let Some(clients) = &mut population.clients {
                    clients.traced = traces.of(index);
                }
            }
        }
        let mut pool = WorkerPool::start_at(
            plan.place,
            options.targets.clone(),
            plan.workers,
            scenario.stop_timeout,
            scenario.seed,
        )?;
        let receivers = plan
            .remote_workers
            .iter()
            .map(ToString::to_string)
            .collect();
        for receiver in plan.remote_workers {
            pool.add_remote_worker(receiver);
        }
        Ok(Runner {
            merger: WindowMerger::new(pool.len(), catalogues(scenario)),
            pool,
            process: Process::new(),
            traces,
            secrets: scenario.secrets(),
            surroundings: plan.surroundings,
            receive_path: plan.receive_path,
            receivers,
            clock: None,
            crash_checked_at: Time::ZERO,
            reports: VecDeque::new(),
            has_ended: false,
            finished_traces: Vec::new(),
        })
    }

    /// Facts for the coordinator.
    pub fn info(&self) -> RunnerInfo {
        RunnerInfo {
            workers: u32::try_from(self.pool.len()).unwrap_or(u32::MAX),
            receive_path: self.receive_path.name().to_owned(),
            receive_hint: self.receive_path.hint().map(str::to_owned),
            unknown: self.process.unknown(),
            receivers: self.receivers.clone(),
        }
    }

    /// Does all that can be done before the start of `clock`. `wall_clock` is the start of the run
    /// since 1970 for time codes, which is the same on all runners.
    pub fn make_ready(&mut self, clock: &Clock, wall_clock: Duration) {
        self.surroundings.set_wall_clock(wall_clock);
        self.traces.begin(clock);
        self.process = Process::new();
    }

    /// Starts the clients, by a copy of `clock`.
    pub fn begin(&mut self, clock: &Clock) {
        self.pool.begin(clock);
        self.clock = Some(clock.same_start());
    }

    /// Passes a command to all workers.
    pub fn send(&self, command: &RunnerCommand) {
        self.pool.broadcast(command);
    }

    /// Waits for the next report, at most for `within`.
    pub fn next_report(&mut self, within: Duration) -> Option<RunnerReport> {
        if self.reports.is_empty() && !self.has_ended {
            self.wait(within);
        }
        self.reports.pop_front()
    }

    /// Traces of the run, once it has ended.
    pub(crate) fn take_traces(&mut self) -> Vec<Trace> {
        std::mem::take(&mut self.finished_traces)
    }

    fn now(&self) -> Time {
        self.clock.as_ref().map_or(Time::ZERO, Clock::now)
    }

    fn wait(&mut self, within: Duration) {
        match self.pool.reports.recv_timeout(within) {
            Ok(report) => self.handle_report(report),
            Err(RecvTimeoutError::Timeout) => {}
            // All worker threads are gone and their reports are handled.
            Err(RecvTimeoutError::Disconnected) => self.detect_crashed_workers(),
        }
        // Checked by the clock because reports of live workers may arrive without a pause.
        let now = self.now();
        if now.since(self.crash_checked_at) >= POLL_INTERVAL {
            self.crash_checked_at = now;
            self.detect_crashed_workers();
        }
        self.take_windows();
        self.pool.release(self.merger.running_members());
        self.report_trace_faults();
        if self.merger.is_over() {
            self.take_windows();
            self.end_traces();
            self.has_ended = true;
            self.reports.push_back(RunnerReport::Ended);
        }
    }

    fn handle_report(&mut self, report: WorkerReport) {
        match report {
            WorkerReport::Window { worker, window } => self.merger.add(worker, window),
            WorkerReport::Client(client) => {
                let row = client_row(*client, &self.secrets);
                self.reports.push_back(RunnerReport::Client(Box::new(row)));
            }
            WorkerReport::Event {
                at,
                kind,
                subject,
                text,
            } => self.event(at, kind, subject, &text),
            WorkerReport::TopicMessage { topic, message } => {
                let message = RunnerReport::TopicMessage { topic, message };
                self.reports.push_back(message);
            }
            WorkerReport::Record(_) => {}
            WorkerReport::Finished { worker, error } => {
                if let Some(error) = error {
                    self.fault(format!("worker {worker} of the tester failed: {error}"));
                }
                self.merger.member_ended(worker);
            }
        }
    }

    fn take_windows(&mut self) {
        while let Some(window) = self.merger.take() {
            let own = TesterPart {
                member: 0,
                seconds: window.seconds,
                figures: RunnerFigures {
                    workers: window.testers,
                    process: self.process.window(),
                },
            };
            let window = MergedWindow {
                index: window.index,
                begins: window.begins,
                seconds: window.seconds,
                populations: window.populations,
                testers: vec![own],
            };
            self.reports
                .push_back(RunnerReport::Window(Box::new(window)));
        }
    }

    /// Finds workers that panicked: their thread has ended without a `Finished` report.
    fn detect_crashed_workers(&mut self) {
        let dead: Vec<u32> = self
            .merger
            .running_members()
            .filter(|&worker| self.pool.is_gone(worker))
            .collect();
        for worker in dead {
            // Reports that it sent before may still be queued.
            while let Ok(report) = self.pool.reports.try_recv() {
                self.handle_report(report);
            }
            if self.merger.running_members().any(|other| other == worker) {
                self.fault(format!("worker {worker} of the tester crashed"));
                self.merger.member_ended(worker);
            }
        }
    }

    fn fault(&mut self, text: String) {
        self.reports.push_back(RunnerReport::Fault(text));
    }

    fn event(&mut self, time: Time, kind: &str, subject: Option<String>, text: &str) {
        self.reports.push_back(RunnerReport::Event(EventRow {
            time,
            kind: kind.to_owned(),
            subject,
            text: self.secrets.mask(text),
        }));
    }

    fn report_trace_faults(&mut self) {
        for text in self.traces.news() {
            self.event(self.now(), "trace_incomplete", None, &text);
        }
    }

    /// Ends the traces and reports the path and size of each.
    fn end_traces(&mut self) {
        self.report_trace_faults();
        self.finished_traces = self.traces.finish();
        let texts: Vec<String> = self.finished_traces.iter().map(Trace::to_string).collect();
        for text in texts {
            self.event(self.now(), "trace", None, &text);
        }
    }
}
