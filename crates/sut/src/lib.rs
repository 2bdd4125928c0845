//! The server under test: start, readiness, observation of its resource use, and end of all its
//! processes.
//!
//! A server is launched through a supervisor, a small process of the same executable (see
//! [`supervise_main`]), so that none of its processes outlives streamgauge, however streamgauge
//! ends. If possible the server runs in its own control group, from which its processor time is
//! read. A server that is already running is only observed.

mod allowance;
mod browser;
pub mod catalogue;
mod cgroup;
mod clips;
mod complaints;
mod counters;
mod error;
mod exporters;
mod groups;
mod guard;
mod launched;
mod log;
mod message;
mod observe;
mod ports;
mod proc;
mod program;
mod ready;
mod spec;
mod stage;
mod supervise;
mod user;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use measure::Recorder;
use scenario::ServerLog;

pub use browser::{Browser, BrowserObservation, BrowserProcess};
pub use catalogue::ffmpeg_missing;
pub use complaints::{DEFAULT_PATTERNS, LogCount, LogLine};
pub use error::SutError;
pub use exporters::Exporters;
#[cfg(any(test, fuzzing))]
pub use exporters::read_any as read_any_samples;
pub use guard::Guard;
pub use kit::descriptor::Transport;
pub use launched::StopReport;
pub use message::{Exit, SUBCOMMAND};
pub use observe::{CpuSource, Observation, RemoteServer};
pub use ports::PortOwner;
pub use program::check;
pub use spec::{INTERFACE, Origin, Ready, ServerSpec};
pub use supervise::supervise_main;
pub use user::PASSED_ON_VARIABLES;

use complaints::{Complaints, Follower, Patterns};
use counters::Counters;
use exporters::ExporterPoller;
use launched::{LaunchContext, Launched};
use observe::{Meter, Observer};
use spec::Launch;
use user::User;

/// Progress of the start of a server. A start can take a while, and the user needs to see why.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// A clip is being made.
    MakingClip {
        /// Number of the clip, from 1.
        number: u32,
        /// Total number of clips.
        count: u32,
        /// File of the clip.
        path: PathBuf,
    },
    /// The server is being started.
    Starting {
        /// Command line of the server.
        command: String,
    },
    /// The server runs and is becoming ready.
    WaitingFor {
        /// Condition that is awaited.
        what: String,
        /// Time limit.
        within: Duration,
    },
    /// The server is ready.
    Ready {
        /// Process ID.
        pid: u32,
        /// Time since the start.
        after: Duration,
    },
}

/// Settings for starting a server, in addition to the scenario.
#[derive(Clone, Debug)]
pub struct Options {
    /// Executable that becomes the supervisor if its first argument is [`SUBCOMMAND`]. Default: the
    /// running one, even if its file has been replaced.
    pub supervisor: PathBuf,
    /// True: no control group is used; processor time then comes from the processes' own times.
    pub no_cgroup: bool,
    /// The start is cancelled when this becomes true.
    pub cancelled: Arc<AtomicBool>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            supervisor: PathBuf::from("/proc/self/exe"),
            no_cgroup: false,
            cancelled: Arc::default(),
        }
    }
}

impl Options {
    fn check(&self) -> Result<(), SutError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(SutError::Cancelled);
        }
        Ok(())
    }
}

/// A running server under test.
///
/// Dropping it kills a launched server; [`Sut::stop`] ends it gracefully.
#[derive(Debug)]
pub struct Sut {
    process: Process,
    observer: Observer,
    description: String,
    urls: Vec<String>,
    stop_within: Duration,
    cpu_source: CpuSource,
    log: WatchedLog,
    /// The server's own counters; `None` if it has none.
    counters: Option<Counters>,
}

/// Resources of its machine that a server holds at one moment. `None`: not readable.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeldResources {
    /// Watched multicast groups that are joined in its network namespace; `None` if no group is
    /// watched.
    pub groups: Option<BTreeSet<IpAddr>>,
    /// Open file descriptors of its processes.
    pub file_descriptors: Option<u64>,
    /// Unique set size of its processes, in bytes.
    pub uss: Option<u64>,
}

/// Log of a server and its complaints.
#[derive(Debug)]
struct WatchedLog {
    patterns: Arc<Patterns>,
    /// Log file that is followed, if any.
    file: Option<Follower>,
    complaints: Complaints,
    /// Lines and bytes of a file that exceeded the limits and were not searched.
    skipped: u64,
}

impl WatchedLog {
    fn new(spec: &ServerLog, base: &Path) -> Result<WatchedLog, SutError> {
        let file = spec.file.as_ref().map(|file| base.join(file));
        Ok(WatchedLog {
            patterns: Arc::new(Patterns::new(spec)?),
            file: file.as_deref().map(Follower::new).transpose()?,
            complaints: Complaints::default(),
            skipped: 0,
        })
    }

    /// Adds patterns of lines that are not complaints. Must be called before the log is read.
    fn ignore(&mut self, more: &[String]) -> Result<(), SutError> {
        let patterns = Arc::get_mut(&mut self.patterns);
        patterns
            .expect("the log is not shared before the launch")
            .ignore(more)
    }
}

#[derive(Debug)]
enum Process {
    Launched(Launched),
    /// A process that is only observed. The start time distinguishes it from a later process with
    /// the same ID.
    Observed {
        pid: u32,
        started: u64,
    },
    /// A server on another machine.
    Remote(Box<dyn RemoteServer>),
}

impl Sut {
    /// Calls [`Sut::start_with`] with the default [`Options`].
    ///
    /// # Errors
    /// If the server cannot be measured. No started process is left then.
    pub fn start(
        server: &scenario::Server,
        base: &Path,
        progress: &dyn Fn(Progress),
    ) -> Result<Sut, SutError> {
        Sut::start_with(&server.into(), base, &Options::default(), progress)
    }

    /// Makes the clips, starts the server and returns when it is ready; or begins to observe a
    /// server that is already running.
    ///
    /// Relative paths are relative to `base`, the scenario's folder. `progress` is called from this
    /// thread.
    ///
    /// # Errors
    /// If the server cannot be measured. No started process is left then.
    pub fn start_with(
        spec: &ServerSpec,
        base: &Path,
        options: &Options,
        progress: &dyn Fn(Progress),
    ) -> Result<Sut, SutError> {
        // Created before anything is started, to detect its mistakes first.
        let mut log = WatchedLog::new(&spec.log, base)?;
        let clips = match &spec.clips {
            Some(clips) => clips::make(clips, base, options, progress)?,
            None => Vec::new(),
        };
        let mut counters = None;
        let (mut launch, urls, scratch) = match &spec.origin {
            Origin::Observe { pid } => {
                let sut = Sut::observe_pid(*pid)?;
                return Ok(Sut { log, ..sut });
            }
            Origin::Exporters(exporters) => {
                let sut = Sut::observe_remote(exporters)?;
                return Ok(Sut { log, ..sut });
            }
            Origin::Observer { runner } => {
                let runner = runner.clone();
                return Err(SutError::NoObserver { runner });
            }
            Origin::Command(command) => {
                let mut launch = Launch::new(command);
                if let Some(first) = launch.command.first_mut() {
                    *first = program::resolve_program(first);
                }
                let user = spec.user.as_deref().map(User::for_server);
                launch.user = user.transpose()?.flatten();
                launch.directory = spec.directory.as_ref().map(|own| base.join(own));
                (launch, Vec::new(), None)
            }
            Origin::Catalogue {
                name,
                port,
                interface,
                groups,
            } => {
                let audio = spec.clips.as_ref().and_then(|clips| clips.audio);
                let request = catalogue::Request {
                    host: spec.host,
                    port: *port,
                    interface: interface.as_deref().unwrap_or(INTERFACE),
                    groups,
                    clips: &clips,
                    audio: audio.is_some(),
                    user: spec.user.as_deref(),
                };
                let built = catalogue::build(name, &request)?;
                counters = built.counters;
                log.ignore(&built.log_ignore)?;
                (built.launch, built.urls, Some(built.scratch))
            }
        };
        launch.ready = spec.ready.clone().unwrap_or(launch.ready);
        launch.ready_timeout = spec.ready_timeout;
        launch.stop_within = spec.stop_within;
        launch.environment.extend(spec.environment.iter().cloned());
        let mut sut = Sut::launch(spec, &launch, urls, scratch, log, options, progress)?;
        sut.counters = counters.as_ref().map(Counters::start).transpose()?;
        Ok(sut)
    }

    fn launch(
        spec: &ServerSpec,
        launch: &Launch,
        urls: Vec<String>,
        scratch: Option<tempfile::TempDir>,
        log: WatchedLog,
        options: &Options,
        progress: &dyn Fn(Progress),
    ) -> Result<Sut, SutError> {
        options.check()?;
        ready::check_free(launch)?;
        let words = match &spec.origin {
            // As written by the user.
            Origin::Command(words) => words,
            _ => &launch.command,
        };
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        let description = words.join(" ");
        progress(Progress::Starting {
            command: description.clone(),
        });
        let context = LaunchContext {
            supervisor: options.supervisor.clone(),
            scratch: scratch.as_ref().map(|scratch| scratch.path().to_owned()),
            no_group: options.no_cgroup,
            patterns: log.patterns.clone(),
        };
        let launched = Launched::start(launch, context)?;
        // From here on the supervisor removes the folder, even if streamgauge is killed.
        if let Some(scratch) = scratch {
            let _ = scratch.keep();
        }
        ready::wait(&launched, launch, options, progress)?;
        let group = launched.state().group.clone();
        let (meter, cpu_source) = match group.unwrap_or_else(|| Err("unknown".to_owned())) {
            Ok((kind, path)) => {
                let source = match kind {
                    cgroup::CgroupVersion::V1 => CpuSource::CgroupV1,
                    cgroup::CgroupVersion::V2 => CpuSource::CgroupV2,
                };
                (Meter::Group(kind, path), source)
            }
            Err(reason) => (Meter::Times, CpuSource::ProcessTimes { reason }),
        };
        let mut observer = Observer::new(meter);
        observer.begin(&launched.tree());
        Ok(Sut {
            process: Process::Launched(launched),
            observer,
            description,
            urls,
            stop_within: launch.stop_within,
            cpu_source,
            log,
            counters: None,
        })
    }

    /// Observes a running process with all its descendants.
    ///
    /// # Errors
    /// If there is no such process, or it is this one or an ancestor of it: the tester would be
    /// part of the measured server.
    pub fn observe_pid(pid: u32) -> Result<Sut, SutError> {
        let stat = proc::stat(pid)
            .filter(|stat| !stat.is_dead())
            .ok_or(SutError::NoSuchProcess { pid })?;
        if proc::is_own_or_ancestor(pid) {
            let what = match pid == std::process::id() {
                true => "streamgauge itself",
                false => "an ancestor of streamgauge itself",
            };
            return Err(SutError::Ourselves { pid, what });
        }
        let process = Process::Observed {
            pid,
            started: stat.started,
        };
        let description = format!("{} (pid {pid})", stat.name);
        let source = CpuSource::ProcessTimes {
            reason: "it was not launched by this run".to_owned(),
        };
        let mut sut = Sut::observe_process(process, description, source)?;
        sut.observer.begin(&tree(&sut.process));
        Ok(sut)
    }

    /// Observes a server on another machine through the exporters there.
    ///
    /// # Errors
    /// If an exporter does not answer, or does not know the server's processes.
    pub fn observe_remote(exporters: &Exporters) -> Result<Sut, SutError> {
        let poller = ExporterPoller::start(exporters)?;
        let description = poller.description().to_owned();
        Sut::observe_through(Box::new(poller), description, CpuSource::Exporter)
    }

    /// Observes a server on another machine through a program there.
    ///
    /// # Errors
    /// None at present: the default patterns of complaints are valid.
    pub fn observe_through(
        server: Box<dyn RemoteServer>,
        description: String,
        cpu_source: CpuSource,
    ) -> Result<Sut, SutError> {
        Sut::observe_process(Process::Remote(server), description, cpu_source)
    }

    /// Observes a server that was not launched, with the default patterns of complaints.
    fn observe_process(
        process: Process,
        description: String,
        cpu_source: CpuSource,
    ) -> Result<Sut, SutError> {
        Ok(Sut {
            description,
            process,
            observer: Observer::new(Meter::Times),
            urls: Vec::new(),
            stop_within: Duration::ZERO,
            cpu_source,
            log: WatchedLog::new(&ServerLog::default(), Path::new(""))?,
            counters: None,
        })
    }

    /// Returns the server's own process: that of the command, or the observed one. `None` on
    /// another machine.
    pub fn pid(&self) -> Option<u32> {
        match &self.process {
            Process::Launched(launched) => launched.state().pid,
            Process::Observed { pid, .. } => Some(*pid),
            Process::Remote(_) => None,
        }
    }

    /// Returns the command line, or the name and ID of the observed process.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the URLs that the server serves, if the catalogue knows them.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Returns the source of the processor time.
    pub fn cpu_source(&self) -> &CpuSource {
        &self.cpu_source
    }

    /// Returns all processes of the server: those that were started and their descendants.
    pub fn processes(&self) -> Vec<u32> {
        tree(&self.process)
    }

    /// Sets the multicast groups to look for in the server's network namespace. Has no effect for a
    /// server on another machine.
    pub fn watch_groups(&mut self, groups: BTreeSet<IpAddr>) {
        self.observer.watched = groups;
    }

    /// Returns the watched groups that are joined now in the server's network namespace. The kernel
    /// does not tell by which process. `None` if no group is watched, or nothing can be read.
    pub fn groups(&self) -> Option<BTreeSet<IpAddr>> {
        self.observer.groups(&tree(&self.process))
    }

    /// Measures the resources that the server holds now. This costs the server, because the kernel
    /// walks its page tables.
    pub fn held_resources(&self) -> HeldResources {
        let tree = tree(&self.process);
        HeldResources {
            groups: self.observer.groups(&tree),
            ..observe::held_resources(&tree)
        }
    }

    /// Observes the server and records the result. Called once per window.
    pub fn sample(&mut self, recorder: &mut Recorder) {
        self.observe().record(recorder);
        if let Some(counters) = &mut self.counters {
            counters.record(recorder);
        }
    }

    /// Returns `true` if the server's own counters are available.
    pub fn has_counters(&self) -> bool {
        self.counters.is_some()
    }

    /// Reads the server's own counters now, and waits up to `within` for the answer.
    pub fn read_counters(&self, within: Duration) {
        if let Some(counters) = &self.counters {
            counters.read_now(within);
        }
    }

    /// Observes the server. Counts are those since the last observation.
    pub fn observe(&mut self) -> Observation {
        let observation = match &mut self.process {
            Process::Remote(server) => server.observe(),
            process => self.observer.observe(&tree(process)),
        };
        Observation {
            log_complaints: observation.log_complaints + self.read_log(),
            ..observation
        }
    }

    /// Returns the number of complaints in the log since the last call.
    fn read_log(&mut self) -> u64 {
        let log = &mut self.log;
        if let Some(file) = &mut log.file {
            log.complaints.add(file.read_added(&log.patterns));
        }
        let (mut lines, mut skipped) = log.complaints.take_counts(&log.patterns);
        if let Process::Launched(launched) = &self.process {
            let printed = launched.state().complaints.take_counts(&log.patterns);
            lines += printed.0;
            skipped += printed.1;
        }
        log.skipped += skipped;
        lines
    }

    /// Begins to count the complaints in the log. Earlier ones, such as those during the start, are
    /// dropped.
    pub fn begin(&mut self) {
        let log = &mut self.log;
        log.complaints = Complaints::default();
        log.skipped = 0;
        if let Some(file) = &mut log.file {
            // The file could be opened before. A new error is seen when it is read.
            let _ = file.begin();
        }
        match &mut self.process {
            Process::Launched(launched) => launched.state().complaints = Complaints::default(),
            Process::Remote(server) => server.begin(),
            Process::Observed { .. } => {}
        }
    }

    /// Returns the complaints in the log since the last call. Of each pattern only the first three
    /// of the run are returned.
    pub fn take_log_lines(&mut self) -> Vec<LogLine> {
        let log = &mut self.log;
        let mut lines = log.complaints.take_unreported(&log.patterns);
        match &mut self.process {
            Process::Launched(launched) => {
                lines.extend(launched.state().complaints.take_unreported(&log.patterns));
            }
            Process::Remote(server) => lines.extend(server.take_log_lines()),
            Process::Observed { .. } => {}
        }
        lines
    }

    /// Returns the complaints in the log since [`Sut::begin`], by pattern, most frequent first; and
    /// whether some of the log exceeded the limits.
    pub fn log_counts(&self) -> (Vec<LogCount>, bool) {
        let log = &self.log;
        let mut counts = log.complaints.counts(&log.patterns);
        if let Process::Launched(launched) = &self.process {
            for printed in launched.state().complaints.counts(&log.patterns) {
                let mut known = counts.iter_mut();
                match known.find(|count| count.pattern == printed.pattern) {
                    Some(count) => count.lines += printed.lines,
                    None => counts.push(printed),
                }
            }
        }
        let mut has_more = false;
        if let Process::Remote(server) = &self.process {
            let (there, more) = server.log_counts();
            counts.extend(there);
            has_more = more;
        }
        counts.sort_by_key(|count| std::cmp::Reverse(count.lines));
        let skipped_bytes = log.file.as_ref().map_or(0, |file| file.skipped_bytes);
        (counts, has_more || log.skipped + skipped_bytes > 0)
    }

    /// Returns the owner of a port. The owner of another machine's port is unknown.
    pub fn owns_port(&self, port: u16, transport: Transport) -> PortOwner {
        if matches!(self.process, Process::Remote(_)) {
            return PortOwner::Unknown;
        }
        ports::owner_of(port, transport, || tree(&self.process))
    }

    /// Returns how the server ended; `None` while it runs.
    pub fn has_exited(&self) -> Option<String> {
        match &self.process {
            Process::Launched(launched) => launched.ended(),
            Process::Observed { pid, started } => {
                let alive = proc::is_running(*pid, *started);
                (!alive).then(|| "exit status known only to its parent".to_owned())
            }
            Process::Remote(server) => server.has_exited(),
        }
    }

    /// Returns why the supervisor ended without a request. The launched server is killed then, and
    /// did not end by itself. `None` while the supervisor runs, and for a server that was not
    /// launched.
    pub fn supervisor_lost(&self) -> Option<String> {
        match &self.process {
            Process::Launched(launched) => launched.supervisor_lost(),
            Process::Observed { .. } | Process::Remote(_) => None,
        }
    }

    /// Returns the last 64 KiB of the output. Empty for a server that is only observed.
    pub fn log_tail(&self) -> String {
        match &self.process {
            Process::Launched(launched) => launched.state().log.tail(),
            Process::Observed { .. } | Process::Remote(_) => String::new(),
        }
    }

    /// Ends a launched server: SIGTERM to the whole tree, SIGKILL to processes that do not end in
    /// time. A server that is only observed keeps running.
    pub fn stop(mut self) -> StopReport {
        self.counters = None;
        match &mut self.process {
            Process::Launched(launched) => launched.stop(self.stop_within),
            Process::Observed { .. } | Process::Remote(_) => StopReport::default(),
        }
    }
}

/// Returns the processes of the server.
fn tree(process: &Process) -> Vec<u32> {
    match process {
        Process::Launched(launched) => launched.tree(),
        Process::Observed { pid, started } => {
            if !proc::is_running(*pid, *started) {
                return Vec::new();
            }
            let mut tree = vec![*pid];
            tree.extend(proc::descendants(*pid));
            tree
        }
        Process::Remote(_) => Vec::new(),
    }
}
