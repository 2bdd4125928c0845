//! The coordinator of a run: collects the reports of runners, stores and judges windows, and ends
//! the run.

pub(crate) mod figures;
mod levels;
pub(crate) mod live;
pub(crate) mod runners;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use measure::health::LATE_START;
use measure::load::{Holds, HoldsSpec};
use measure::tester::WorkerFigures;
use measure::{ClockError, Recorder, Time, Totals, Verdict, VerdictInput, Window};
use measure::{server, tester};
use net::Clock;
use runfile::{EventRow, WindowRow, fact};
use scenario::{Scenario, Secrets};
use sut::{CpuSource, Sut};

use crate::control::Control;
use crate::error::EngineError;
use crate::messages::RunnerCommand;
use crate::progress::{self, Finished, Phase, Progress};
use crate::run::crew::Crew;
use crate::run::environment::Environment;
use crate::run::levels::RunningLevels;
use crate::run::ownership;
use crate::run::parts::windows_by_subject;
use crate::run::recording::Recording;
use crate::run::server_release::{self, ReleaseObserver};
use crate::run::sources::Sources;
use crate::runner::{POLL_INTERVAL, RunnerFigures, RunnerReport};
use crate::window_merger::{MergedWindow, WindowMerger};
use figures::Figures;
use runners::{RUNNERS_EVERY, RunnerJudges};

/// Timeout for reading the server's own counters at the end of a run.
const COUNTERS_WITHIN: Duration = Duration::from_secs(2);

/// Lead time of a hold or resume command, so that all workers apply it at the same time.
const NOTICE: Duration = Duration::from_millis(50);

/// Age of a window that has just been completed, at most: a second, and the time that its parts
/// take.
const OF_NOW: Duration = Duration::from_secs(3);

/// Collects the reports of runners during a run and judges its windows.
pub(crate) struct Coordinator<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) control: &'a Control,
    pub(crate) clock: Clock,
    pub(crate) crew: &'a mut dyn Crew,
    pub(crate) assembly: WindowMerger<RunnerFigures>,
    pub(crate) figures: Figures,
    /// Tester metrics of each worker of each runner, without the warm-up.
    pub(crate) workers: BTreeMap<(u32, u32), Totals>,
    /// Runners on other machines.
    pub(crate) runners: RunnerJudges,
    /// Runners that were lost. A measuring stick that changed is broken, so the first one ends the
    /// run.
    pub(crate) lost_runners: BTreeSet<u32>,
    /// Time from which nothing counts, because a runner was lost that may be.
    pub(crate) counts_until: Time,
    /// Names of the tester's counters that are unavailable.
    pub(crate) unknown: Vec<String>,
    pub(crate) overflow: i64,
    pub(crate) server: Recorder,
    pub(crate) environment: Environment,
    /// Figures of the server from before this coordinator.
    pub(crate) earlier: Option<&'a BTreeMap<u64, Window>>,
    pub(crate) server_is_gone: bool,
    pub(crate) run_file: Recording,
    /// Secrets that are masked in all texts written to the run file.
    pub(crate) secrets: Secrets,
    pub(crate) path: PathBuf,
    /// Reasons for the verdict known so far.
    pub(crate) grounds: VerdictInput,
    pub(crate) phase: Phase,
    /// Shutdown deadline of the sessions; `None` until they are told to stop.
    pub(crate) stop_deadline: Option<Time>,
    /// End of the measurement: the planned end of the run, or the time at which it was stopped.
    pub(crate) stopped_at: Time,
    /// Times in which the user held the plan. The planned end of the run moves by the same
    /// duration.
    pub(crate) holds: Holds,
    /// True if a threshold with `abort` was violated.
    pub(crate) aborted: bool,
    /// Levels of a continuing run.
    pub(crate) levels: Option<RunningLevels<'a>>,
    /// Error of beginning a level.
    pub(crate) level_fault: Option<EngineError>,
}

impl Coordinator<'_> {
    /// Runs until every runner has ended. Returns the result of the run, or of the level of a
    /// continuing run that did not reach its end.
    pub(crate) fn run(
        mut self,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Option<Finished>, EngineError> {
        let mut killed = false;
        // A hold that was requested before the run began is discarded.
        self.control.resume();
        while !self.assembly.is_over() {
            if let Some((runner, report)) = self.crew.receive(self.poll_timeout()) {
                self.handle_report(runner, report);
            }
            while let Some(window) = self.assembly.take() {
                if self.counts(&window) {
                    let seen = self.add_window(window);
                    progress(&seen);
                }
            }
            self.apply_hold_request();
            self.stop_when_due();
            if self.control.is_killed() && !killed {
                killed = true;
                self.crew.send(&RunnerCommand::Kill);
            }
        }
        while let Some(window) = self.assembly.take() {
            if self.counts(&window) {
                self.add_window(window);
            }
        }
        self.linger(progress);
        let fault = self.level_fault.take();
        let has_result = self.levels.as_ref().is_none_or(|levels| !levels.is_over);
        let finished = self.finish();
        match fault {
            Some(fault) => Err(fault),
            None => Ok(has_result.then_some(finished)),
        }
    }

    /// Observes the server for the `linger` duration after the last client has left.
    ///
    /// The result is a window of zero length, so that rates and means exclude this time.
    fn linger(&mut self, progress: &mut dyn FnMut(&Progress)) {
        let time = self
            .scenario
            .server
            .as_ref()
            .and_then(|server| server.linger);
        let Environment { holding, sut, .. } = &mut self.environment;
        let (Some(time), Some(holding), Some(sut)) = (time, holding.take(), sut) else {
            return;
        };
        let left = self.clock.now();
        let until = left + time;
        let mut lingering = ReleaseObserver::new(holding, left);
        // A user who stopped the run does not wait, and a stop request during the wait ends it.
        let mut goes_on = !self.grounds.stopped_by_user;
        let mut told = false;
        while goes_on && !self.server_is_gone {
            let now = self.clock.now();
            lingering.add_groups(now, sut.groups().as_ref());
            if now >= until || self.control.is_killed() || sut.has_exited().is_some() {
                break;
            }
            if !std::mem::replace(&mut told, true) {
                progress(&Progress {
                    elapsed: now.since_start(),
                    held: self.holds.held_by(now),
                    ..Progress::without_clients(Phase::Lingering)
                });
            }
            std::thread::sleep(server_release::POLL_INTERVAL.min(until.since(now)));
            goes_on = !self.control.is_stopped();
        }
        let now = self.clock.now();
        if sut.has_exited().is_some() || self.grounds.stopped_by_user {
            return;
        }
        let given_back = lingering.finish(now, &sut.held_resources());
        let window = server_release::window(&given_back);
        self.run_file.note(fact::GIVEN_BACK.of(&given_back));
        if let Some(totals) = self.figures.totals.get_mut("server") {
            totals.add(&window, 0.0);
        }
        self.run_file.window(WindowRow {
            index: self.figures.windows,
            start: left,
            seconds: 0.0,
            subjects: BTreeMap::from([("server".to_owned(), window)]),
        });
    }

    fn handle_report(&mut self, runner: u32, report: RunnerReport) {
        match report {
            RunnerReport::Window(mut window) => {
                for part in &mut window.testers {
                    part.member = runner;
                }
                self.runners.keep(runner, &window);
                self.assembly.add(runner, *window);
            }
            RunnerReport::Client(row) => {
                let levels = self.levels.as_ref();
                self.run_file.client(match levels {
                    None => *row,
                    Some(levels) => levels.client(*row),
                });
            }
            RunnerReport::Event(event) => {
                let time = self.level_time(event.time);
                self.run_file.event(EventRow { time, ..event });
            }
            // The runners exchange these themselves.
            RunnerReport::TopicMessage { .. } => {}
            RunnerReport::Fault(reason) => self.grounds.invalid.push(reason),
            RunnerReport::Lost(reason) => self.lose_runner(runner, reason),
            RunnerReport::Ended => self.assembly.member_ended(runner),
        }
    }

    fn event(&mut self, time: Time, kind: &str, subject: Option<String>, text: String) {
        self.run_file.event(EventRow {
            time,
            kind: kind.to_owned(),
            subject,
            text: self.secrets.mask(&text),
        });
    }

    /// Time until the coordinator has something to do other than handling reports.
    fn poll_timeout(&self) -> Duration {
        match self.stop_deadline {
            None => POLL_INTERVAL.min(self.planned_end().since(self.clock.now())),
            Some(_) => POLL_INTERVAL,
        }
    }

    /// Planned end of the run; [`Time::NEVER`] while the plan is held.
    fn planned_end(&self) -> Time {
        match self.scenario.duration {
            Some(duration) if !self.holds.is_held() => {
                let end = Time::from_start(duration);
                end + self.holds.held_by(Time::NEVER)
            }
            _ => Time::NEVER,
        }
    }

    /// Holds or resumes the plan if the user requested it.
    fn apply_hold_request(&mut self) {
        if self.levels.is_some() {
            // Each level has its own number of clients.
            self.control.resume();
        }
        let wanted = self.control.is_held();
        if self.stop_deadline.is_some() || wanted == self.holds.is_held() {
            return;
        }
        // A time in the future, so that all workers receive the command before it takes effect.
        let at = self.clock.now() + NOTICE + self.crew.lead();
        if !wanted {
            self.resume_plan(at);
            self.crew.send(&RunnerCommand::Resume { at });
        } else if at < self.planned_end() && self.holds.begin(at) {
            let levels = self.scenario.populations.iter().map(|population| {
                let wanted = self.holds.wanted(&population.load, at);
                let max = population.load.clients_max();
                format!("{} at {wanted} of {max}", population.name)
            });
            let levels = levels.collect::<Vec<_>>().join(", ");
            let text = format!("the user held the plan: {levels}");
            self.event(at, "held", None, text);
            self.record_holds();
            self.crew.send(&RunnerCommand::Hold { from: at });
        } else {
            self.control.resume();
        }
    }

    /// Records that the plan resumes.
    fn resume_plan(&mut self, at: Time) {
        if let Some(held) = self.holds.end(at) {
            let seconds = held.as_secs_f64();
            let text = format!("the user resumed the plan after {seconds:.1} s");
            self.event(at, "went_on", None, text);
            self.record_holds();
        }
    }

    fn record_holds(&mut self) {
        self.stopped_at = self.planned_end();
        let holds = HoldsSpec::from(&self.holds);
        self.run_file.note(fact::HELD.of(&holds));
    }

    fn stop_when_due(&mut self) {
        let now = self.clock.now();
        let levels_over = self.levels.as_ref().is_some_and(|levels| levels.is_over);
        let over = now >= self.planned_end() || levels_over;
        let user = self.control.is_stopped();
        let cut_short =
            self.run_file.error().is_some() || self.aborted || !self.lost_runners.is_empty();
        if self.stop_deadline.is_some() || !(over || user || cut_short) {
            return;
        }
        self.grounds.stopped_by_user = user && !over;
        // A hold ends with the run and must not carry over to the next run of a series.
        self.resume_plan(now);
        self.control.resume();
        self.stopped_at = self.stopped_at.min(self.level_time(now));
        // Written at once, so that a run that is killed during shutdown can be reported.
        let stopped_at = self.stopped_at.as_secs_f64();
        self.run_file.note(fact::STOPPED_AT.of(&stopped_at));
        let Environment { holding, sut, .. } = &mut self.environment;
        if let Some(sut) = sut {
            // Clients are still connected here.
            if let Some(holding) = holding.as_mut().filter(|_| over) {
                holding.add(&sut.held_resources());
            }
            sut.read_counters(COUNTERS_WITHIN);
        }
        let until = self.clock.now() + self.scenario.stop_timeout;
        self.stop_deadline = Some(until);
        self.phase = Phase::Stopping;
        self.environment.browsers.leave();
        self.crew.send(&RunnerCommand::Stop { until });
    }

    /// Adds a complete window to the run file, thresholds, health and totals.
    fn add_window(&mut self, window: MergedWindow<RunnerFigures>) -> Progress {
        let mut tester = self.add_testers(&window);
        let first_window = self.levels.as_ref().map_or(0, |levels| levels.first_window);
        let index = window.index.saturating_sub(first_window);
        self.judge_runners(&window, index);
        let (begins, seconds) = (self.level_time(window.begins), window.seconds);
        let server = self.sample_server(begins, index);
        if let (Some(holding), Some(server)) = (&mut self.environment.holding, &server) {
            holding.add_window(server);
        }
        if let Some(sent) = self.environment.sources.as_ref().and_then(Sources::window) {
            tester.merge(&sent, tester::TESTER_CATALOGUE);
        }

        let mut subjects = windows_by_subject(self.scenario, window.populations, tester);
        // The last window ends with the last worker, so it is shorter than a whole window.
        let is_last = !progress::is_whole(seconds);
        subjects.extend(self.environment.links.window(window.index, is_last));
        subjects.extend(self.sample_browsers(begins, is_last));
        subjects.extend(server.map(|window| ("server".to_owned(), window)));

        let (scenario, until) = (self.scenario, self.stopped_at);
        self.figures
            .add_window(scenario, index, begins, seconds, until, &subjects);
        self.abort_on_threshold(begins + Duration::from_secs_f64(seconds));
        let progress = self.progress(begins, seconds, &subjects);
        // For readers of the current run, before the window.
        if !progress.runners.is_empty() {
            self.run_file
                .note(fact::RUNNER_STATES.of(&progress.runners));
        }
        self.run_file.window(WindowRow {
            index,
            start: begins,
            seconds,
            subjects,
        });
        if index.is_multiple_of(RUNNERS_EVERY) {
            self.record_runners();
        }
        self.go_on_to_next_level(begins + Duration::from_secs_f64(seconds), &progress);
        progress
    }

    /// Adds the figures of each worker to its totals. Returns those of all workers and processes
    /// together.
    fn add_testers(&mut self, window: &MergedWindow<RunnerFigures>) -> Window {
        // Figures of each worker are those of the whole run.
        let counts = window.index >= self.figures.warm_up_windows && self.levels.is_none();
        for part in &window.testers {
            for own in &part.figures.workers {
                if let Some(totals) = self.workers.get_mut(&(part.member, own.member))
                    && counts
                {
                    totals.add_until(&own.figures, window.begins, own.seconds, self.stopped_at);
                }
            }
        }
        window.tester()
    }

    /// Returns a time of the run as a time of the current level.
    fn level_time(&self, at: Time) -> Time {
        self.levels.as_ref().map_or(at, |levels| levels.time(at))
    }

    /// Ends the run if a threshold with `abort` is violated and its delay has passed.
    fn abort_on_threshold(&mut self, now: Time) {
        // Thresholds do not read the warm-up.
        if self.stop_deadline.is_some()
            || self.aborted
            || self.figures.windows <= self.figures.warm_up_windows
        {
            return;
        }
        for (number, threshold) in self.scenario.thresholds.iter().enumerate() {
            let due = threshold
                .abort
                .is_some_and(|delay| now >= Time::from_start(delay));
            if !due {
                continue;
            }
            let clocks = || ClockError::of(&self.crew.summaries());
            let Figures { judge, totals, .. } = &self.figures;
            if let Some(violated) = judge.violated(number, totals, clocks) {
                let why = format!(
                    "ended early, after {:.0} s, because a threshold with `abort: true` was violated: {}",
                    now.as_secs_f64(),
                    violated.explain()
                );
                self.event(now, "aborted", Some(violated.subject), why.clone());
                self.grounds.failed.push(why);
                self.aborted = true;
                return;
            }
        }
    }

    fn sample_server(&mut self, at: Time, index: u64) -> Option<Window> {
        let sut = self.environment.sut.as_mut()?;
        if let Some(earlier) = self.earlier {
            let is_past = self.clock.now().since(at) > OF_NOW;
            match earlier.get(&index) {
                Some(window) => return Some(window.clone()),
                // No coordinator was there to observe the server.
                None if is_past => return Some(Window::empty(server::SERVER_CATALOGUE)),
                None => {}
            }
        }
        sut.sample(&mut self.server);
        let lines = sut.take_log_lines();
        let ended = sut.has_exited();
        for line in lines {
            let text = format!("matches `{}`: {}", line.pattern, line.text);
            self.event(at, "server_log", Some("server".to_owned()), text);
        }
        self.record_server_exit(at, ended);
        Some(self.server.take_window())
    }

    fn sample_browsers(&mut self, at: Time, is_last: bool) -> BTreeMap<String, Window> {
        if is_last {
            self.environment.browsers.leave();
            self.environment.browsers.wait_until_left();
        }
        let (windows, events) = self.environment.browsers.window(is_last);
        for event in events {
            self.event(at, event.kind, Some(event.subject), event.text);
        }
        windows
    }

    /// Records that the server exited on its own. The run then fails whatever the clients measured,
    /// even if the server crashed while they were leaving.
    fn record_server_exit(&mut self, at: Time, ended: Option<String>) {
        let (Some(cause), false, Some(sut)) = (ended, self.server_is_gone, &self.environment.sut)
        else {
            return;
        };
        self.server_is_gone = true;
        if let Some(reason) = supervisor_lost(sut) {
            self.grounds.invalid.push(reason.clone());
            self.event(at, "supervisor_lost", Some("server".to_owned()), reason);
            return;
        }
        let tail = sut.log_tail();
        let last = tail
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .unwrap_or_default();
        let text = format!("the server ended during the run: {cause}; last log line: {last}");
        let after = at.as_secs_f64();
        self.grounds.failed.push(format!(
            "the server ended, {after:.1} s after the run began: {cause}"
        ));
        self.event(at, "server_ended", Some("server".to_owned()), text);
    }

    fn finish(mut self) -> Finished {
        let sut = self.environment.sut.as_mut();
        let ended = sut.and_then(|sut| sut.has_exited());
        self.record_server_exit(self.level_time(self.clock.now()), ended);
        if let Some(sut) = &self.environment.sut
            && !self.server_is_gone
        {
            // After the last window.
            self.grounds.invalid.extend(supervisor_lost(sut));
            for reason in ownership::check(self.scenario, sut, true) {
                if !self.grounds.invalid.contains(&reason) {
                    self.grounds.invalid.push(reason);
                }
            }
        }
        let traces = self.crew.take_traces();
        // Before the server: browsers that did not leave in time are still connected to it.
        std::mem::take(&mut self.environment.browsers).stop();
        self.end_sources();
        let now = self.level_time(self.clock.now());
        if let Some(sut) = self.environment.sut.take() {
            let source = match sut.cpu_source() {
                CpuSource::CgroupV1 => "its own control group (v1, cpuacct)".to_owned(),
                CpuSource::CgroupV2 => "its own control group (v2, cpu.stat)".to_owned(),
                CpuSource::ProcessTimes { reason } => {
                    format!("the times of its processes, in clock ticks, because {reason}")
                }
                CpuSource::Exporter => "exporters on its machine".to_owned(),
                CpuSource::Observer { runner } => {
                    format!("the times of its processes, in clock ticks, by runner {runner}")
                }
            };
            let text = format!("processor time of the server is taken from {source}");
            self.event(now, "cpu_source", Some("server".to_owned()), text);
            self.record_server_log(&sut);
            let report = sut.stop();
            if report.killed {
                let text = "the server did not exit when asked to and was killed".to_owned();
                self.event(now, "server_killed", Some("server".to_owned()), text);
            }
        }
        // After the server, which receives its stop command over the link, and after the clients.
        self.grounds
            .invalid
            .extend(std::mem::take(&mut self.environment.links).stop());
        // Clients that are due within the last second may start late, so they are not expected.
        let due_by = match self.stop_deadline {
            Some(_) => (self.stopped_at >= Time::from_start(LATE_START))
                .then(|| Time::ZERO + self.stopped_at.since(Time::from_start(LATE_START))),
            None => Some(Time::NEVER),
        };
        let due_by = due_by.map(|at| self.holds.plan_time(at));
        self.record_tester_metrics();
        Finished {
            traces,
            ..self.conclude(due_by.filter(|_| self.levels.is_none()))
        }
    }

    /// Judges the run or the level and closes its run file. Clients that were due by `due_by` must
    /// have started.
    fn conclude(&mut self, due_by: Option<Time>) -> Finished {
        let clocks = ClockError::of(&self.crew.summaries());
        let mut thresholds = self.figures.thresholds(clocks);
        if self.levels.is_some() {
            self.drop_starts_without_data(&mut thresholds);
        }
        let mut invalid = self.grounds.invalid.clone();
        invalid.extend(self.figures.health.reasons());
        invalid.extend(self.runners.reasons());
        invalid.extend(self.missing_clients());
        let mut invalid: Vec<String> = invalid
            .iter()
            .map(|reason| self.secrets.mask(reason))
            .collect();
        let broken = self.run_file.error().map(|error| error.to_string());
        if let Some(error) = &broken {
            invalid.push(format!(
                "the run ended early because its run file could not be written: {error}"
            ));
        }
        let mut clients = self.figures.clients.iter();
        let clients_failed = clients.any(|clients| clients.failed > 0)
            && thresholds
                .iter()
                .any(|found| found.has_failed() && !found.no_data);
        // A user who stops a run knows that it is incomplete. A level ends together with the
        // server.
        let is_cut_short = self.levels.is_some() && self.server_is_gone;
        if !self.grounds.stopped_by_user && !is_cut_short {
            let coverage = &self.figures.coverage;
            invalid.extend(coverage.gaps(self.scenario, due_by, clients_failed));
        }
        let grounds = VerdictInput {
            invalid,
            ..self.grounds.clone()
        };
        let verdict = Verdict::decide(&thresholds, grounds);
        self.run_file.verdict(&verdict, &thresholds);
        let finished = self.run_file.finish();
        Finished {
            run_file: self.path.clone(),
            verdict,
            thresholds,
            traces: Vec::new(),
            server_ended: self.server_is_gone,
            run_file_error: broken.or(finished.map(|error| error.to_string())),
        }
    }

    /// Stops the sources and records what they sent. A fault of theirs makes the run invalid; it is
    /// not a fault of the server.
    fn end_sources(&mut self) {
        match self.environment.sources.take().map(Sources::stop) {
            None => {}
            Some(Ok(sources)) => {
                self.grounds.invalid.extend(sources.fault());
                self.run_file.note(fact::SOURCES.of(&sources));
            }
            Some(Err(error)) => self
                .grounds
                .invalid
                .push(format!("the run's own sources ended early: {error}")),
        }
    }

    /// Stores the counts of complaints in the server's log, by pattern.
    fn record_server_log(&self, sut: &Sut) {
        let (counts, more) = sut.log_counts();
        let counts = counts.into_iter().map(|count| server::LogComplaint {
            pattern: self.secrets.mask(&count.pattern),
            lines: count.lines,
            first: self.secrets.mask(&count.first),
        });
        let log = server::ServerLog {
            complaints: counts.collect(),
            more,
        };
        self.run_file.note(fact::SERVER_LOG.of(&log));
    }

    /// Stores the health findings and the metrics of each worker.
    fn record_tester_metrics(&self) {
        self.record_health();
        let workers = self.workers.values().map(WorkerFigures::of).collect();
        self.run_file.note(fact::WORKERS.of(&workers));
    }

    /// Stores the health findings, and the metrics of the tester that are unavailable.
    fn record_health(&self) {
        self.run_file
            .note(fact::HEALTH.of(&self.figures.health.findings()));
        self.record_runners();
        self.run_file.note(fact::UNKNOWN.of(&self.unknown));
    }
}

/// Reason why the run cannot be judged if the server was killed together with its supervisor;
/// `None` otherwise.
fn supervisor_lost(sut: &Sut) -> Option<String> {
    let cause = sut.supervisor_lost()?;
    Some(format!(
        "the supervisor of the server was lost ({cause}), and the server was killed with it: it did not exit on its own"
    ))
}
