//! One run of a scenario, from the start of the server to the verdict.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;
use load::Share;
use measure::threshold::{Judge, Threshold, ThresholdResult};
use measure::totals::Statistic;
use measure::{Catalogue, Health, Recorder, Time, Totals, Verdict, Window, server, tester};
use net::{Clock, PortRange};
use protocol::registry;
use protocol::session::Outcome;
use runfile::{ClientOutcome, ClientRow, EventRow, Header, RunFile, SubjectHeader, WindowRow};
use scenario::Scenario;
use sut::{CpuSource, Sut};

use crate::collect::{Assembled, Assembly};
use crate::control::Control;
use crate::crew::{Crew, Duty};
use crate::error::EngineError;
use crate::machine;
use crate::messages::{ClientState, Command, Report};
use crate::ownership;
use crate::worker::{ClientPlan, MakeClient, PopulationPlan, WINDOW};

/// What the scenario does not say about a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where the run file goes.
    pub run_file: PathBuf,
    /// Whether a run file that is there already may be replaced.
    pub overwrite: bool,
    /// The folder that relative paths of the scenario count from.
    pub base: PathBuf,
    /// The version to put into the run file.
    pub version: String,
}

/// How a run stands, once a window.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Since the run began.
    pub elapsed: Duration,
    /// What it is doing.
    pub phase: Phase,
    /// Each population, in the scenario's order.
    pub populations: Vec<(String, PopulationProgress)>,
    /// What the server used in the last window, in cores; none where none is observed.
    pub server_cpu: Option<f64>,
    /// How the tester does.
    pub tester: TesterProgress,
}

/// What a run is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The server is being started; the text says how far.
    Launching(String),
    /// Clients are at work.
    Running,
    /// Sessions are being ended.
    Stopping,
}

/// How a population stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct PopulationProgress {
    /// Clients at work.
    pub active: u64,
    /// Clients whose media has begun to arrive.
    pub playing: u64,
    /// Clients begun since the start of the run.
    pub started: u64,
    /// Clients failed since the start of the run.
    pub failed: u64,
    /// Media payload in the last window, bit/s.
    pub bitrate: f64,
    /// Media with its headers in the last window, bit/s.
    pub wire_bitrate: f64,
    /// Packets expected in the last window.
    pub expected: i64,
    /// Packets received in the last window.
    pub received: i64,
}

/// How the tester does.
#[derive(Clone, Copy, Debug, Default)]
pub struct TesterProgress {
    /// Cores that its workers used in the last window.
    pub cpu: Option<f64>,
    /// 99th percentile of its event loops' lag in the last window, in seconds.
    pub lag_p99: Option<f64>,
    /// Packets it dropped itself since the start of the run.
    pub overflow: i64,
    /// Whether no bound was crossed in the last window.
    pub healthy: bool,
}

/// A run that is over.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Where everything measured is.
    pub run_file: PathBuf,
    /// What the run comes to.
    pub verdict: Verdict,
    /// What became of each threshold.
    pub thresholds: Vec<ThresholdResult>,
    /// Why the run file is not whole, where it is not.
    pub run_file_error: Option<String>,
}

/// How often the coordinator looks up when no worker says anything.
const LOOK_UP: Duration = Duration::from_millis(50);

/// How many clients one worker is given before another is started, where the scenario names no number.
/// One core stands for some thousands; a second worker takes a core that the server may want.
const CLIENTS_A_WORKER: u64 = 1000;

/// How media is received, as reports name it.
const RECEIVE_PATH: &str = "sockets";

/// Runs a scenario to its end.
///
/// `progress` is called from the calling thread: while the server is started, then once a window.
///
/// # Errors
/// Whatever keeps the run from beginning. What goes wrong later is in the verdict.
pub fn run(
    scenario: &Scenario,
    options: &Options,
    control: &Control,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Finished, EngineError> {
    run_duties(scenario, duties(scenario), options, control, progress)
}

/// Runs a scenario with what workers do given.
fn run_duties(
    scenario: &Scenario,
    duties: Vec<Duty>,
    options: &Options,
    control: &Control,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Finished, EngineError> {
    let subjects = subjects(scenario);
    let names: Vec<(&str, Catalogue)> = subjects
        .iter()
        .map(|subject| (subject.name.as_str(), subject.catalogue))
        .collect();
    let header = header(scenario, options, subjects.clone());
    let judge = judge(scenario, &names, header.warm_up_windows())?;
    let bounds = measure::HealthBounds::default();
    let health = Health::new(bounds, &names, header.warm_up_windows());
    let sut = start_server(scenario, &options.base, control, progress)?;
    let invalid = sut
        .as_ref()
        .map_or_else(Vec::new, |sut| ownership::check(scenario, sut));
    let header = Header {
        started_at: since_1970(&Clock::start()),
        ..header
    };
    let run_file = if options.overwrite {
        RunFile::create_over(&options.run_file, &header)?
    } else {
        RunFile::create(&options.run_file, &header)?
    };
    let mut crew = Crew::start(duties, scenario.stop_timeout, scenario.seed)?;
    // From here on the run has begun: whatever had to be made ready is.
    let clock = Clock::start();
    crew.begin(&clock);
    run_file.meta("started_at", since_1970(&clock).as_secs_f64().into());
    run_file.meta("receive_path", RECEIVE_PATH.into());
    let coordinator = Coordinator {
        scenario,
        control,
        clock,
        assembly: Assembly::new(
            crew.len(),
            scenario
                .populations
                .iter()
                .map(|p| p.config.protocol().catalogue)
                .collect(),
            tester::TESTER_CATALOGUE,
        ),
        crew,
        warm_up_windows: header.warm_up_windows(),
        totals: subjects
            .iter()
            .map(|subject| (subject.name.clone(), Totals::new(subject.catalogue)))
            .collect(),
        whole: scenario.populations.iter().map(|_| (0, 0)).collect(),
        overflow: 0,
        judge,
        health,
        server: Recorder::new(server::SERVER_CATALOGUE),
        process: machine::Process::new(),
        dead_looked_for: Time::ZERO,
        sut,
        server_is_gone: false,
        run_file,
        path: options.run_file.clone(),
        invalid,
        phase: Phase::Running,
        until: None,
        stopped_by_user: false,
    };
    Ok(coordinator.run(progress))
}

fn subjects(scenario: &Scenario) -> Vec<SubjectHeader> {
    let mut subjects: Vec<SubjectHeader> = scenario
        .populations
        .iter()
        .map(|population| {
            let protocol = population.config.protocol();
            SubjectHeader {
                name: population.name.clone(),
                kind: protocol.name.to_owned(),
                catalogue: protocol.catalogue,
            }
        })
        .collect();
    let own = [
        ("server", server::SERVER_CATALOGUE),
        ("tester", tester::TESTER_CATALOGUE),
    ];
    for (name, catalogue) in own {
        if name != "server" || scenario.server.is_some() {
            let (name, kind) = (name.to_owned(), name.to_owned());
            subjects.push(SubjectHeader {
                name,
                kind,
                catalogue,
            });
        }
    }
    subjects
}

fn header(scenario: &Scenario, options: &Options, subjects: Vec<SubjectHeader>) -> Header {
    Header {
        version: options.version.clone(),
        scenario: serde_json::to_value(scenario).unwrap_or(serde_json::Value::Null),
        machine: machine::describe(),
        seed: scenario.seed,
        started_at: Duration::ZERO,
        warm_up: scenario.warm_up,
        window: WINDOW,
        subjects,
    }
}

fn judge(
    scenario: &Scenario,
    subjects: &[(&str, Catalogue)],
    warm_up_windows: u64,
) -> Result<Judge, EngineError> {
    let refused = |text: &str, error: measure::threshold::ThresholdError| EngineError::Threshold {
        text: text.to_owned(),
        message: error.to_string(),
    };
    let mut thresholds = Vec::new();
    for threshold in &scenario.thresholds {
        let text = &threshold.text;
        thresholds.push(Threshold::parse(text).map_err(|error| refused(text, error))?);
    }
    Judge::new(thresholds, subjects, warm_up_windows).map_err(|error| refused("", error))
}

fn start_server(
    scenario: &Scenario,
    base: &Path,
    control: &Control,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Option<Sut>, EngineError> {
    let Some(server) = &scenario.server else {
        return Ok(None);
    };
    let options = sut::Options {
        cancelled: control.stop_flag(),
        ..sut::Options::default()
    };
    let progress = std::cell::RefCell::new(progress);
    let tell = |step: sut::Progress| {
        (progress.borrow_mut())(&Progress {
            elapsed: Duration::ZERO,
            phase: Phase::Launching(in_words(&step)),
            populations: Vec::new(),
            server_cpu: None,
            tester: TesterProgress {
                healthy: true,
                ..TesterProgress::default()
            },
        });
    };
    match Sut::start_with(&server.into(), base, &options, &tell) {
        Ok(sut) => Ok(Some(sut)),
        Err(sut::SutError::Cancelled) => Err(EngineError::Stopped),
        Err(error) => Err(error.into()),
    }
}

/// When the run of a clock began.
fn since_1970(clock: &Clock) -> Duration {
    Duration::from_nanos(u64::try_from(clock.started_at()).unwrap_or(0))
}

fn in_words(step: &sut::Progress) -> String {
    match step {
        sut::Progress::MakingClip {
            number,
            count,
            path,
        } => {
            format!("making clip {number} of {count}: {}", path.display())
        }
        sut::Progress::Starting { command } => format!("starting {command}"),
        sut::Progress::WaitingFor { what, within } => {
            format!("waiting up to {} s for {what}", within.as_secs())
        }
        sut::Progress::Ready { pid, after } => {
            format!(
                "server ready after {:.1} s (pid {pid})",
                after.as_secs_f64()
            )
        }
    }
}

/// What each worker is to do.
fn duties(scenario: &Scenario) -> Vec<Duty> {
    let clients: u64 = scenario
        .populations
        .iter()
        .map(|p| p.load.clients_max())
        .sum();
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let wanted = clients.div_ceil(CLIENTS_A_WORKER).clamp(1, cores);
    let workers = scenario
        .workers
        .unwrap_or(u32::try_from(wanted).unwrap_or(1))
        .max(1);
    (0..workers)
        .map(|worker| Duty {
            populations: scenario
                .populations
                .iter()
                .map(|population| PopulationPlan {
                    name: population.name.clone(),
                    catalogue: population.config.protocol().catalogue,
                    clients: Some(ClientPlan {
                        share: Share::new(&population.load, worker, workers),
                        urls: population.urls.clone(),
                        pick: population.pick,
                        leave: population.leave,
                        client: maker(population.config.clone()),
                    }),
                })
                .collect(),
            serving: Vec::new(),
            ports: PortRange::share(net::ports::DEFAULT_RANGE, worker, workers),
        })
        .collect()
}

fn maker(config: registry::ClientConfig) -> MakeClient {
    Arc::new(move |url, seed| registry::client(&config, url, seed))
}

struct Coordinator<'a> {
    scenario: &'a Scenario,
    control: &'a Control,
    clock: Clock,
    crew: Crew,
    assembly: Assembly,
    warm_up_windows: u64,
    totals: BTreeMap<String, Totals>,
    /// Clients started and failed of each population, the warm-up included.
    whole: Vec<(i64, i64)>,
    overflow: i64,
    judge: Judge,
    health: Health,
    server: Recorder,
    process: machine::Process,
    /// When it was last looked whether all workers live.
    dead_looked_for: Time,
    sut: Option<Sut>,
    server_is_gone: bool,
    run_file: RunFile,
    path: PathBuf,
    /// Why the measurement is invalid, as far as it is known already.
    invalid: Vec<String>,
    phase: Phase,
    /// When sessions must have ended, once they were told to.
    until: Option<Time>,
    stopped_by_user: bool,
}

impl Coordinator<'_> {
    fn run(mut self, progress: &mut dyn FnMut(&Progress)) -> Finished {
        let mut killed = false;
        while !self.assembly.is_over() {
            match self.crew.reports.recv_timeout(LOOK_UP) {
                Ok(report) => self.take(report),
                Err(RecvTimeoutError::Timeout) => {}
                // All are gone, and what they said has been taken in.
                Err(RecvTimeoutError::Disconnected) => self.look_for_the_dead(),
            }
            // By the clock, because those that live may always have something to say.
            let now = self.clock.now();
            if now.since(self.dead_looked_for) >= LOOK_UP {
                self.dead_looked_for = now;
                self.look_for_the_dead();
            }
            while let Some(window) = self.assembly.take() {
                let seen = self.window(window);
                progress(&seen);
            }
            self.stop_when_due();
            if self.control.is_killed() && !killed {
                killed = true;
                self.crew.tell(|| Command::Kill);
            }
        }
        while let Some(window) = self.assembly.take() {
            self.window(window);
        }
        self.finish()
    }

    fn take(&mut self, report: Report) {
        match report {
            Report::Window {
                worker,
                index,
                begins,
                seconds,
                populations,
                tester,
            } => {
                let part = Assembled {
                    index,
                    begins,
                    seconds,
                    populations,
                    tester,
                };
                self.assembly.add(worker, part);
            }
            Report::Client(client) => self.run_file.client(client_row(*client)),
            Report::Event {
                at,
                kind,
                subject,
                text,
            } => self.event(at, kind, subject, text),
            Report::Served(_) => {}
            Report::Finished { worker, error } => {
                if let Some(error) = error {
                    self.invalid
                        .push(format!("worker {worker} of the tester failed: {error}"));
                }
                self.assembly.ended(worker);
            }
        }
    }

    /// A worker that panicked says nothing: its thread is just gone.
    fn look_for_the_dead(&mut self) {
        let dead: Vec<u32> = self
            .assembly
            .at_work()
            .filter(|&worker| self.crew.is_gone(worker))
            .collect();
        for worker in dead {
            // What it said before it died may still be waiting.
            while let Ok(report) = self.crew.reports.try_recv() {
                self.take(report);
            }
            if self.assembly.at_work().any(|other| other == worker) {
                self.invalid
                    .push(format!("worker {worker} of the tester broke down"));
                self.assembly.ended(worker);
            }
        }
    }

    fn event(&mut self, time: Time, kind: &str, subject: Option<String>, text: String) {
        self.run_file.event(EventRow {
            time,
            kind: kind.to_owned(),
            subject,
            text,
        });
    }

    fn stop_when_due(&mut self) {
        let now = self.clock.now();
        let over = self
            .scenario
            .duration
            .is_some_and(|duration| now >= Time::from_start(duration));
        let user = self.control.is_stopped();
        let broken = self.run_file.failed().is_some();
        if self.until.is_some() || !(over || user || broken) {
            return;
        }
        self.stopped_by_user = user && !over;
        let until = now + self.scenario.stop_timeout;
        self.until = Some(until);
        self.phase = Phase::Stopping;
        self.crew.tell(|| Command::Stop { until });
    }

    /// Takes a complete window in: into the run file, the thresholds, the health, the totals.
    fn window(&mut self, window: Assembled) -> Progress {
        let Assembled {
            index,
            begins,
            seconds,
            populations,
            tester,
        } = window;
        let server = self.look_at_server(begins);
        let mut tester = tester;
        let catalogue = tester::TESTER_CATALOGUE;
        tester.merge(&self.process.window(), catalogue);

        let names = self
            .scenario
            .populations
            .iter()
            .map(|population| population.name.clone());
        let mut subjects: BTreeMap<String, Window> = names.zip(populations).collect();
        subjects.extend(server.map(|window| ("server".to_owned(), window)));
        subjects.insert("tester".to_owned(), tester);

        self.judge.window(index, seconds, &subjects);
        self.health.window(index, seconds, &subjects);
        if index >= self.warm_up_windows {
            for (name, window) in &subjects {
                if let Some(totals) = self.totals.get_mut(name) {
                    totals.add(window, seconds);
                }
            }
        }
        let progress = self.progress(begins, seconds, &subjects);
        self.run_file.window(WindowRow {
            index,
            start: begins,
            seconds,
            subjects,
        });
        progress
    }

    fn look_at_server(&mut self, at: Time) -> Option<Window> {
        let sut = self.sut.as_mut()?;
        sut.sample(&mut self.server);
        if let Some(how) = sut.has_exited().filter(|_| !self.server_is_gone) {
            self.server_is_gone = true;
            let tail = sut.log_tail();
            let last = tail
                .lines()
                .rev()
                .find(|line| !line.trim().is_empty())
                .unwrap_or_default();
            let text = format!("the server ended during the run: {how}; its last line: {last}");
            self.event(at, "server_ended", Some("server".to_owned()), text);
        }
        Some(self.server.take_window())
    }

    fn progress(
        &mut self,
        begins: Time,
        seconds: f64,
        subjects: &BTreeMap<String, Window>,
    ) -> Progress {
        let mut populations = Vec::new();
        for (population, whole) in self.scenario.populations.iter().zip(&mut self.whole) {
            let catalogue = population.config.protocol().catalogue;
            let window = &subjects[&population.name];
            let figures = Totals::of_window(catalogue, window, seconds);
            let value = |name| figures.named(name, Statistic::Value).unwrap_or(0.0);
            whole.0 += value("started") as i64;
            whole.1 += value("failed") as i64;
            let progress = PopulationProgress {
                active: value("active") as u64,
                playing: value("playing") as u64,
                started: u64::try_from(whole.0).unwrap_or(0),
                failed: u64::try_from(whole.1).unwrap_or(0),
                bitrate: value("bitrate"),
                wire_bitrate: value("wire_bitrate"),
                expected: value("expected") as i64,
                received: value("received") as i64,
            };
            populations.push((population.name.clone(), progress));
        }
        let tester = Totals::of_window(tester::TESTER_CATALOGUE, &subjects["tester"], seconds);
        self.overflow += tester.named("overflow", Statistic::Value).unwrap_or(0.0) as i64;
        let server_cpu = subjects.get("server").and_then(|window| {
            let figures = Totals::of_window(server::SERVER_CATALOGUE, window, seconds);
            figures.named("cpu", Statistic::Value)
        });
        Progress {
            elapsed: begins.since_start() + Duration::from_secs_f64(seconds),
            phase: self.phase.clone(),
            populations,
            server_cpu,
            tester: TesterProgress {
                cpu: tester.named("cpu", Statistic::Value),
                lag_p99: tester.named("lag", Statistic::Quantile(0.99)),
                overflow: self.overflow,
                healthy: self.health.last_window().is_empty(),
            },
        }
    }

    fn finish(mut self) -> Finished {
        if let Some(sut) = &self.sut
            && !self.server_is_gone
        {
            for reason in ownership::check(self.scenario, sut) {
                if !self.invalid.contains(&reason) {
                    self.invalid.push(reason);
                }
            }
        }
        let now = self.clock.now();
        if let Some(sut) = self.sut.take() {
            let source = match sut.cpu_source() {
                CpuSource::CgroupV1 => "its own control group (v1, cpuacct)".to_owned(),
                CpuSource::CgroupV2 => "its own control group (v2, cpu.stat)".to_owned(),
                CpuSource::ProcessTimes { reason } => {
                    format!("the times of its processes, in clock ticks, because {reason}")
                }
            };
            let text = format!("processor time of the server is taken from {source}");
            self.event(now, "cpu_source", Some("server".to_owned()), text);
            let report = sut.stop();
            if report.killed {
                let text = "the server did not end when asked to and was killed".to_owned();
                self.event(now, "server_killed", Some("server".to_owned()), text);
            }
        }
        let thresholds = self.judge.finish(&self.totals);
        let mut invalid = std::mem::take(&mut self.invalid);
        invalid.extend(self.health.reasons());
        let broken = self.run_file.failed().map(|error| error.to_string());
        if let Some(error) = &broken {
            invalid.push(format!(
                "the run was cut short, because its run file could not be written: {error}"
            ));
        }
        let verdict = Verdict::decide(&thresholds, invalid, self.stopped_by_user);
        self.run_file.verdict(&verdict, &thresholds);
        let finished = self.run_file.finish();
        Finished {
            run_file: self.path,
            verdict,
            thresholds,
            run_file_error: broken.or(finished.err().map(|error| error.to_string())),
        }
    }
}

fn client_row(client: ClientState) -> ClientRow {
    let (ended, outcome) = client.ended.unzip();
    let (outcome, failure) = match outcome {
        None => (None, None),
        Some(Outcome::Completed) => (Some(ClientOutcome::Completed), None),
        Some(Outcome::Stopped) => (Some(ClientOutcome::Stopped), None),
        Some(Outcome::Failed(failure)) => (Some(ClientOutcome::Failed), Some(failure)),
    };
    ClientRow {
        id: client.id,
        subject: client.population,
        slot: u32::try_from(client.slot).unwrap_or(u32::MAX),
        generation: client.generation,
        url: client.url,
        due: client.due,
        begun: Some(client.begun),
        first_media: client.first_media,
        ended,
        outcome,
        reason: failure.as_ref().map(|failure| failure.reason.to_owned()),
        detail: failure.map(|failure| failure.detail),
        streams: serde_json::to_value(client.streams).unwrap_or(serde_json::Value::Null),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::session::{Context, Input, Session};
    use scenario::Pick;

    /// A session with a fault in it.
    struct Broken;

    impl Session for Broken {
        fn handle(&mut self, _: &mut Context<'_>, _: Input<'_>) {
            panic!("on purpose");
        }

        fn deadline(&self) -> Option<Time> {
            None
        }
    }

    #[test]
    fn a_worker_that_breaks_down_makes_the_run_invalid_and_does_not_hold_it_up() {
        let text = "clients: {viewers: {protocol: rtsp, urls: ['rtsp://127.0.0.1:9/a'], \
                    load: {clients: 2}}}\nworkers: 2\n";
        let scenario = Scenario::parse("test", text, &scenario::Overrides::default())
            .unwrap_or_else(|error| panic!("{error:?}"));
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options {
            run_file: folder.path().join("run"),
            ..Options::default()
        };
        let mut duties = duties(&scenario);
        assert_eq!(duties.len(), 2);
        let mut plan = duties[0].populations[0].clients.take().expect("clients");
        plan.pick = Pick::InTurn;
        plan.client = Arc::new(|_, _| Ok(Box::new(Broken)));
        duties[0].populations[0].clients = Some(plan);
        let run = run_duties(&scenario, duties, &options, &Control::new(), &mut |_| {});
        let finished = run.expect("a report all the same");
        let reasons = &finished.verdict.reasons;
        assert!(
            reasons.iter().any(|reason| reason.contains("broke down")),
            "{reasons:?}"
        );
        assert_eq!(finished.verdict.result, measure::VerdictResult::Invalid);
    }
}
