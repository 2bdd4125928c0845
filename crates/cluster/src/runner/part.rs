//! The part of a run that a runner plays, from its preparation to its end.

use std::collections::BTreeMap;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use engine::{
    Dealing, EngineError, Options, Runner, RunnerCommand, RunnerOrder, RunnerPlan, RunnerRecord,
    RunnerReport,
};
use kit::metrics::ACTIVE;
use kit::url::UrlParts;
use measure::Time;
use net::Clock;
use net::clock::monotonic_nanos;
use runfile::{EventRow, fact};
use scenario::Scenario;
use tokio::io::AsyncReadExt;

use super::link::Link;
use super::signs::{Signs, give_signs, see_coordinator};
use super::topics::Topics;
use super::{COORDINATOR_LOST, READY_BEFORE, RunnerOptions};
use crate::background::Background;
use crate::coordinator::RUNNERS_MAX;
use crate::orders::{Part, ReadyInfo, TopicMessage};
use crate::outbox::Outbox;
use crate::reports::Encoder;
use crate::storage::{
    ALL, FILE_MAX, Storage, beat_subject, lead_subject, report_subject, topic_subject,
};
use crate::targets::Targets;

/// Time limit for getting a file.
const FILE_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum time after the agreed start at which a runner still begins, unless the scenario allows
/// its event loops to be later than that.
const LATE_BEGIN: Duration = Duration::from_millis(250);

/// Silence of a coordinator after which a runner forgets a run that has not begun, or one whose
/// reports the log does not take.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Rows of running clients that are sent in each second. All of them are in the own run file.
const LIVING_ROWS_MAX: u32 = 16;

/// Highest weight of a runner.
const WEIGHT_MAX: u32 = 1_000;

/// A part of a run.
pub(super) struct ActivePart {
    run: String,
    number: usize,
    scenario: Scenario,
    dealing: Dealing,
    options: Options,
    plan: Option<RunnerPlan>,
    runner: Option<Runner>,
    record: Option<RunnerRecord>,
    /// True if the runner keeps a run file of its own.
    keeps_record: bool,
    /// Files of the coordinator. They are removed with the part.
    _files: tempfile::TempDir,
    outbox: Outbox,
    signs: Arc<Signs>,
    topics: Topics,
    /// Agreed start, and the start of the run since 1970.
    begins: Option<(i64, Duration)>,
    clock: Option<Clock>,
    has_ended: bool,
    /// Number of rows of running clients since the last window.
    living_rows: u32,
    /// True after the clients were told to stop because the coordinator or the log is lost.
    has_stopped: bool,
    ended_at: Option<Instant>,
}

impl ActivePart {
    /// Checks a part and prepares it: everything that can fail before the workers start.
    pub(super) fn prepare(
        wanted: Part,
        own: &RunnerOptions,
        link: &Link,
        background: &Background,
    ) -> Result<ActivePart, String> {
        if wanted.version != own.version {
            return Err(format!(
                "it is streamgauge {}, but the coordinator is {}: use the same version on all machines",
                own.version, wanted.version
            ));
        }
        let run = wanted.run;
        let mut scenario = wanted
            .scenario
            .decode()
            .map_err(|error| format!("it cannot read the scenario: {error}"))?;
        let weights = &wanted.weights;
        let sound = weights.len() <= RUNNERS_MAX && weights.iter().all(|one| *one <= WEIGHT_MAX);
        if wanted.runner >= weights.len() || !sound {
            return Err("its number or the weights are out of range".to_owned());
        }
        check_targets(&scenario, &own.targets)?;
        let files = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
        fetch_files(&mut scenario, &wanted.files, files.path(), link, background)?;
        let dealing = Dealing::new(&scenario, &wanted.weights);
        let options = Options {
            run_file: run_file(own, &run),
            version: own.version.clone(),
            build: Some(own.build.clone()),
            targets: own.targets.filter(),
            ..Options::default()
        };
        // This machine must have the files and ports for the clients.
        if let Some(shortage) = dealing.shortage(&scenario, wanted.runner) {
            return Err(shortage);
        }
        let plan = RunnerPlan::new(&RunnerOrder {
            scenario: &scenario,
            dealing: &dealing,
            runner: wanted.runner,
            changing: wanted.changing.as_deref(),
            options: &options,
        });
        let plan = plan.map_err(|error: EngineError| error.to_string())?;
        let names = scenario.populations.iter().map(|one| one.name.clone());
        let signs = Arc::new(Signs::new());
        let id = format!("{run}/{}/{}", wanted.runner, link.incarnation);
        let outbox = Outbox::start(
            background,
            link.storage.context.clone(),
            report_subject(&run, &own.name),
            id,
            Encoder::new(names.collect()),
            signs.refusal.clone(),
        );
        let number = wanted.runner;
        let topics = Topics::start(
            background,
            &link.client,
            topic_subject(&run, &own.name),
            topic_subject(&run, ALL),
            number,
            Arc::downgrade(&signs),
        );
        background.spawn(give_signs(
            link.client.clone(),
            beat_subject(&run, &own.name),
            Arc::downgrade(&signs),
        ));
        background.spawn(see_coordinator(
            link.client.clone(),
            lead_subject(&run),
            Arc::downgrade(&signs),
        ));
        Ok(ActivePart {
            run,
            number,
            scenario,
            dealing,
            options,
            plan: Some(plan),
            runner: None,
            record: None,
            keeps_record: own.folder.is_some(),
            _files: files,
            outbox,
            signs,
            topics,
            begins: None,
            clock: None,
            has_ended: false,
            living_rows: 0,
            has_stopped: false,
            ended_at: None,
        })
    }

    pub(super) fn run(&self) -> &str {
        &self.run
    }

    /// Describes its clients.
    pub(super) fn in_words(&self) -> String {
        let clients = self.dealing.clients(&self.scenario, self.number);
        let each = self.scenario.populations.iter().zip(clients);
        let each = each.map(|(population, clients)| format!("{clients} {}", population.name));
        each.collect::<Vec<_>>().join(", ")
    }

    /// Starts the workers.
    pub(super) fn start(&mut self) -> Result<ReadyInfo, String> {
        let plan = self.plan.take().ok_or("it has started already")?;
        let runner = Runner::start(plan, &self.scenario, &self.options);
        let runner = runner.map_err(|error| error.to_string())?;
        if self.keeps_record {
            let path = &self.options.run_file;
            if let Some(folder) = path.parent() {
                // If it cannot be made, the file in it cannot either, which is reported.
                let _ = std::fs::create_dir_all(folder);
            }
            let record = RunnerRecord::create(path, &self.scenario, &self.options.version);
            self.record = Some(record.map_err(|error| error.to_string())?);
        }
        let info = runner.info().into();
        self.runner = Some(runner);
        Ok(info)
    }

    /// Agrees on the start, at `at` of the monotonic clock.
    pub(super) fn agree(&mut self, at: i64, wall_clock: Duration) -> Result<(), String> {
        if self.runner.is_none() || self.begins.is_some() {
            return Err("it is not ready".to_owned());
        }
        if monotonic_nanos() >= at {
            return Err("it learnt of the start too late".to_owned());
        }
        self.begins = Some((at, wall_clock));
        Ok(())
    }

    /// Agreed start, until the clients begin.
    pub(super) fn begins_at(&self) -> Option<i64> {
        let (at, _) = self.begins.filter(|_| self.clock.is_none())?;
        Some(at)
    }

    pub(super) fn has_begun(&self) -> bool {
        self.clock.is_some()
    }

    /// Returns `true` while clients run.
    pub(super) fn is_running(&self) -> bool {
        self.clock.is_some() && !self.has_ended
    }

    /// Starts the clients if it is time. Returns `true` if they have started.
    pub(super) fn begin_if_due(&mut self) -> bool {
        let (Some((at, wall_clock)), None, Some(runner)) =
            (self.begins, &self.clock, &mut self.runner)
        else {
            return false;
        };
        let left = at.saturating_sub(monotonic_nanos());
        if left > i64::try_from(READY_BEFORE.as_nanos()).unwrap_or(i64::MAX) {
            return false;
        }
        let clock = Clock::starting_at(at);
        runner.make_ready(&clock, wall_clock);
        // By default, the kernel may wake it 50 µs late.
        let _ = net::thread::minimize_timer_slack();
        while let Ok(left @ 1..) = u64::try_from(at.saturating_sub(monotonic_nanos())) {
            std::thread::sleep(Duration::from_nanos(left));
        }
        let late = monotonic_nanos().saturating_sub(at).max(0);
        let allowed = LATE_BEGIN.max(self.scenario.tester.health.lag_p99);
        if late > i64::try_from(allowed.as_nanos()).unwrap_or(i64::MAX) {
            // The clients would not match the times of those of other runners.
            let late = late as f64 / 1e6;
            let text = format!("it could not begin in time: it was {late:.0} ms late");
            self.clock = Some(clock);
            self.outbox.add(RunnerReport::Lost(text));
            self.finish();
            return false;
        }
        runner.begin(&clock);
        self.signs.late.store(late, Ordering::Relaxed);
        if let Some(record) = &self.record {
            record.note(fact::STARTED_AT.of(&wall_clock.as_secs_f64()));
        }
        self.clock = Some(clock);
        true
    }

    /// Passes a command to the clients.
    pub(super) fn command(&self, command: &RunnerCommand) {
        if let Some(runner) = &self.runner {
            runner.send(command);
        }
    }

    /// Passes reports on for some time, and stops the clients if nobody listens.
    pub(super) fn pass_on(&mut self, within: Duration) {
        if !self.is_running() {
            self.outbox.tick();
            return;
        }
        let until = Instant::now() + within;
        self.topics.repeat(Instant::now());
        while let Some(TopicMessage { topic, message, .. }) = self.topics.take() {
            let (topic, message) = (topic.into(), message.into());
            self.command(&RunnerCommand::TopicMessage { topic, message });
        }
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Some(report) = self.runner.as_mut().and_then(|one| one.next_report(left)) else {
                break;
            };
            self.handle(report);
            if self.has_ended || left.is_zero() {
                break;
            }
        }
        self.outbox.tick();
        self.stop_if_alone();
    }

    fn handle(&mut self, report: RunnerReport) {
        if let Some(record) = &self.record {
            record.add(&report);
        }
        match report {
            RunnerReport::TopicMessage { topic, message } => {
                self.topics.send(&topic, &message, Instant::now());
            }
            RunnerReport::Ended => self.finish(),
            RunnerReport::Client(row) if row.ended.is_none() => {
                // Their final state follows.
                self.living_rows += 1;
                if self.living_rows <= LIVING_ROWS_MAX {
                    self.outbox.add(RunnerReport::Client(row));
                }
            }
            report => {
                if let RunnerReport::Window(window) = &report {
                    let active = window.populations.iter();
                    let active = active.filter_map(|own| *own.gauges.get(usize::from(ACTIVE.0))?);
                    let active: f64 = active.sum();
                    self.signs.clients.store(active as u64, Ordering::Relaxed);
                    self.signs.made.fetch_add(1, Ordering::Relaxed);
                    self.living_rows = 0;
                }
                self.outbox.add(report);
            }
        }
    }

    /// Notes that the thread that carries out orders is alive.
    pub(super) fn turn(&self) {
        let now = monotonic_nanos();
        self.signs.turned.store(now, Ordering::Relaxed);
    }

    /// The last report.
    fn finish(&mut self) {
        self.has_ended = true;
        self.ended_at = Some(Instant::now());
        if let Some(Err(error)) = self.record.take().map(RunnerRecord::finish) {
            // The coordinator has its own.
            self.outbox.add(RunnerReport::Event(EventRow {
                time: self.now(),
                kind: "record_incomplete".to_owned(),
                subject: None,
                text: format!("its own run file is incomplete: {error}"),
            }));
        }
        self.outbox.add(RunnerReport::Ended);
        self.signs.made.fetch_add(1, Ordering::Relaxed);
        self.signs.has_ended.store(true, Ordering::Relaxed);
    }

    fn now(&self) -> Time {
        self.clock.as_ref().map_or(Time::ZERO, Clock::now)
    }

    /// Stops the clients if the coordinator is lost, or if the log takes no reports.
    fn stop_if_alone(&mut self) {
        if self.has_stopped || self.has_ended {
            return;
        }
        let (silence, wait) = (self.signs.silence(), self.outbox.oldest_wait());
        let why = if silence >= COORDINATOR_LOST {
            let silence = silence.as_secs();
            format!("nothing was heard of the coordinator for {silence} s")
        } else if wait >= COORDINATOR_LOST {
            let reason = self.signs.refusal.get();
            let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
            let wait = wait.as_secs();
            format!("NATS has not taken its reports for {wait} s{reason}")
        } else {
            return;
        };
        self.stop(&why);
    }

    /// Stops the clients, whatever the coordinator wants.
    pub(super) fn stop(&mut self, why: &str) {
        if std::mem::replace(&mut self.has_stopped, true) || !self.is_running() {
            return;
        }
        let text = format!("it stopped its clients by itself: {why}");
        self.handle(RunnerReport::Lost(text));
        let until = self.now() + self.scenario.stop_timeout;
        self.command(&RunnerCommand::Stop { until });
    }

    /// Returns `true` if nothing is left to play or to send.
    pub(super) fn is_done(&self) -> bool {
        !self.is_running() && self.outbox.is_empty()
    }

    /// Returns `true` if nobody will end this part.
    pub(super) fn is_abandoned(&self) -> bool {
        let silent = self.signs.silence();
        match self.ended_at {
            None => self.clock.is_none() && silent >= FORGOTTEN_AFTER,
            // The coordinator may come back as long as the log lacks something.
            Some(_) if self.outbox.is_empty() => silent >= COORDINATOR_LOST,
            Some(ended) => ended.elapsed() >= FORGOTTEN_AFTER && silent >= COORDINATOR_LOST,
        }
    }

    /// Ends everything at once. Returns what became of the run here.
    pub(super) fn leave(mut self) -> String {
        self.command(&RunnerCommand::Kill);
        drop(self.runner.take());
        if let Some(record) = self.record.take() {
            // The coordinator has its own.
            let _ = record.finish();
        }
        let run = &self.run;
        let path = self.options.run_file.display();
        let file = match self.keeps_record {
            true => format!("; its own figures are in {path}"),
            false => String::new(),
        };
        match (self.has_begun(), self.has_ended) {
            (false, _) => {
                if self.keeps_record {
                    let _ = std::fs::remove_file(&self.options.run_file);
                }
                format!("run {run} did not begin here")
            }
            (true, true) => format!("run {run} has ended{file}"),
            (true, false) => format!("run {run} was cut off{file}"),
        }
    }
}

/// Checks that the clients send only where the owner of this machine permits it.
fn check_targets(scenario: &Scenario, targets: &Targets) -> Result<(), String> {
    if targets.are_any() {
        return Ok(());
    }
    let mut hosts = BTreeMap::new();
    for population in &scenario.populations {
        for url in &population.urls {
            let parts = UrlParts::parse(url);
            let parts =
                parts.map_err(|_| format!("it cannot read a URL of {}", population.name))?;
            hosts.entry(parts.host).or_insert(&population.name);
        }
    }
    for (host, population) in hosts {
        let found = (host.as_str(), 0).to_socket_addrs();
        let found = found.map(|all| all.map(|address| address.ip()).collect());
        let addresses: Vec<IpAddr> = found.unwrap_or_default();
        if !targets.allow(&host, &addresses) {
            return Err(format!(
                "its owner permits no clients that send to {host} ({population}): it needs \
                 `--allow-target {host}`"
            ));
        }
    }
    Ok(())
}

/// Gets the files that the clients read, and lets the scenario name the copies.
fn fetch_files(
    scenario: &mut Scenario,
    files: &[String],
    folder: &Path,
    link: &Link,
    background: &Background,
) -> Result<(), String> {
    let paths = scenario.client_files_mut();
    if paths.len() != files.len() {
        return Err("the files of the scenario do not match".to_owned());
    }
    for (number, (path, digest)) in paths.into_iter().zip(files).enumerate() {
        let storage = link.storage.clone();
        let wanted = digest.clone();
        let got = background.wait(FILE_TIMEOUT, async move { fetch(&storage, &wanted).await });
        let shown = path.display().to_string();
        let bytes = got
            .map_err(|_| format!("{shown} did not come within {} s", FILE_TIMEOUT.as_secs()))?
            .map_err(|why| format!("{shown} cannot be got: {why}"))?;
        // Some protocols tell formats by the extension.
        let extension = path.extension().unwrap_or_default().to_os_string();
        let copy = folder.join(number.to_string()).with_extension(extension);
        std::fs::write(&copy, bytes).map_err(|error| format!("{}: {error}", copy.display()))?;
        *path = copy;
    }
    Ok(())
}

async fn fetch(storage: &Storage, digest: &str) -> Result<Vec<u8>, String> {
    let object = storage.files.get(digest).await;
    let object = object.map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let read = object.take(FILE_MAX + 1).read_to_end(&mut bytes).await;
    read.map_err(|error| error.to_string())?;
    match crate::files::digest(&bytes) == digest {
        true => Ok(bytes),
        false => Err("its contents are others".to_owned()),
    }
}

/// Path of the runner's own run file.
fn run_file(own: &RunnerOptions, run: &str) -> PathBuf {
    let folder = own.folder.as_deref().unwrap_or(Path::new(""));
    folder.join(format!("{run}-{}.sgrun", own.name))
}
