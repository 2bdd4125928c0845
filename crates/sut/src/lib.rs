//! The server under test: starting it, knowing when it is ready, looking at what it costs, and
//! ending it with all it started.
//!
//! A server is launched through a supervisor, a small process of the same executable (see
//! [`supervise_main`]), so that nothing of it outlives streamgauge, whatever kills that. It runs in
//! a control group of its own where one can be made, which is what its processor time is read from.
//! A server that runs already is only observed.

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

pub use browser::{Browser, BrowserLook, BrowserProcess};
pub use catalogue::ffmpeg_missing;
pub use complaints::{DEFAULT_PATTERNS, LogCount, LogLine, LogSpec};
pub use error::SutError;
pub use exporters::Exporters;
#[cfg(any(test, fuzzing))]
pub use exporters::read_any as read_any_samples;
pub use guard::Guard;
pub use launched::StopReport;
pub use message::{Exit, SUBCOMMAND};
pub use observe::{CpuSource, Observation};
pub use ports::PortOwner;
pub use program::check;
pub use protocol::descriptor::Transport;
pub use spec::{Clips, INTERFACE, Origin, READY_WITHIN, Ready, STOP_WITHIN, ServerSpec};
pub use supervise::supervise_main;
pub use user::PASSED_ON;

use complaints::{Complaints, Follower, Patterns};
use counters::Counters;
use exporters::Asker;
use launched::{Launched, Means};
use observe::{Meter, Observer};
use spec::Launch;
use user::User;

/// What is being done while a server starts: it can take a while, and the user wants to see why.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// A clip is being made.
    MakingClip {
        /// Its number, from 1.
        number: u32,
        /// How many there are.
        count: u32,
        /// Its file.
        path: PathBuf,
    },
    /// The server is being started.
    Starting {
        /// Its command line.
        command: String,
    },
    /// It runs; now it has to become ready.
    WaitingFor {
        /// What is waited for.
        what: String,
        /// How long at most.
        within: Duration,
    },
    /// It is ready.
    Ready {
        /// Its process number.
        pid: u32,
        /// How long it took since it was started.
        after: Duration,
    },
}

/// How to start a server, beyond what the scenario says.
#[derive(Clone, Debug)]
pub struct Options {
    /// The executable that becomes the supervisor when its first argument is [`SUBCOMMAND`].
    /// Default: the one that is running, even if its file was replaced meanwhile.
    pub supervisor: PathBuf,
    /// Do without a control group: processor time then comes from the processes' own times.
    pub no_cgroup: bool,
    /// Starting is given up when this becomes true.
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

/// The server under test, while it runs.
///
/// Dropping it kills what was launched; [`Sut::stop`] ends it in order.
#[derive(Debug)]
pub struct Sut {
    process: Process,
    observer: Observer,
    description: String,
    urls: Vec<String>,
    stop_within: Duration,
    cpu_source: CpuSource,
    log: WatchedLog,
    /// What it counts itself; none where it cannot be asked.
    counters: Option<Counters>,
}

/// What a server has taken of its machine, at one moment. What is absent could not be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Holdings {
    /// Of the watched multicast groups, those that are joined in its network namespace; none where
    /// no group is watched.
    pub groups: Option<BTreeSet<IpAddr>>,
    /// Open file descriptors of its processes.
    pub file_descriptors: Option<u64>,
    /// Unique set size of its processes, in bytes.
    pub uss: Option<u64>,
}

/// What its log complains of.
#[derive(Debug)]
struct WatchedLog {
    patterns: Arc<Patterns>,
    /// Where a file is followed: that, and what was found in it.
    file: Option<Follower>,
    found: Complaints,
    /// What was more than could be looked at: lines, and bytes of a file.
    skipped: u64,
}

impl WatchedLog {
    fn new(spec: &LogSpec, base: &Path) -> Result<WatchedLog, SutError> {
        let file = spec.file.as_ref().map(|file| base.join(file));
        Ok(WatchedLog {
            patterns: Arc::new(Patterns::new(spec)?),
            file: file.as_deref().map(Follower::new).transpose()?,
            found: Complaints::default(),
            skipped: 0,
        })
    }

    /// Lines that match one of these are no complaints. Before anybody reads the log.
    fn ignore(&mut self, more: &[String]) -> Result<(), SutError> {
        let patterns = Arc::get_mut(&mut self.patterns);
        patterns.expect("nobody else has it yet").ignore(more)
    }
}

#[derive(Debug)]
enum Process {
    Launched(Launched),
    /// Only watched: its number, and when it started, which tells it from a later one of that
    /// number.
    Observed {
        pid: u32,
        started: u64,
    },
    /// On another machine.
    Elsewhere(Box<Asker>),
}

impl Sut {
    /// As [`Sut::start_with`], with the default [`Options`].
    ///
    /// # Errors
    /// Whatever keeps the server from being measured; nothing that was started is left then.
    pub fn start(
        server: &scenario::Server,
        base: &Path,
        progress: &dyn Fn(Progress),
    ) -> Result<Sut, SutError> {
        Sut::start_with(&server.into(), base, &Options::default(), progress)
    }

    /// Makes the clips, starts the server and returns when it is ready; or, for one that runs
    /// already, begins to observe it.
    ///
    /// Relative paths count from `base`, the scenario's folder. `progress` is called from this
    /// thread.
    ///
    /// # Errors
    /// Whatever keeps the server from being measured; nothing that was started is left then.
    pub fn start_with(
        spec: &ServerSpec,
        base: &Path,
        options: &Options,
        progress: &dyn Fn(Progress),
    ) -> Result<Sut, SutError> {
        // Before anything is started: what is wrong with it is known now.
        let mut log = WatchedLog::new(&spec.log, base)?;
        let clips = match &spec.clips {
            Some(clips) => clips::make(clips, base, options, progress)?,
            None => Vec::new(),
        };
        let mut counted = None;
        let (mut launch, urls, scratch) = match &spec.origin {
            Origin::Observe { pid } => {
                return Ok(Sut {
                    log,
                    ..Sut::observe_pid(*pid)?
                });
            }
            Origin::Exporters(exporters) => {
                return Ok(Sut {
                    log,
                    ..Sut::ask(exporters)?
                });
            }
            Origin::Command(command) => {
                let mut launch = Launch::new(command);
                if let Some(first) = launch.command.first_mut() {
                    *first = program::named_by(first);
                }
                launch.user = match &spec.user {
                    Some(user) => User::wanted(user)?,
                    None => None,
                };
                launch.directory = spec
                    .directory
                    .as_ref()
                    .map(|directory| base.join(directory));
                (launch, Vec::new(), None)
            }
            Origin::Catalogue {
                name,
                port,
                interface,
                groups,
            } => {
                let request = catalogue::Request {
                    host: spec.host,
                    port: *port,
                    interface: interface.as_deref().unwrap_or(INTERFACE),
                    groups,
                    clips: &clips,
                    audio: spec
                        .clips
                        .as_ref()
                        .is_some_and(|clips| clips.audio.is_some()),
                    user: spec.user.as_deref(),
                };
                let built = catalogue::build(name, &request)?;
                counted = built.counters;
                log.ignore(&built.log_ignore)?;
                (built.launch, built.urls, Some(built.scratch))
            }
        };
        launch.ready = spec.ready.clone().unwrap_or(launch.ready);
        launch.ready_within = spec.ready_within;
        launch.stop_within = spec.stop_within;
        launch.environment.extend(spec.environment.iter().cloned());
        let mut sut = Sut::launch(spec, &launch, urls, scratch, log, options, progress)?;
        sut.counters = counted.as_ref().map(Counters::start).transpose()?;
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
            // As the user wrote it.
            Origin::Command(words) => words,
            _ => &launch.command,
        };
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        let description = words.join(" ");
        progress(Progress::Starting {
            command: description.clone(),
        });
        let means = Means {
            supervisor: options.supervisor.clone(),
            scratch: scratch.as_ref().map(|scratch| scratch.path().to_owned()),
            no_group: options.no_cgroup,
            patterns: log.patterns.clone(),
        };
        let launched = Launched::start(launch, means)?;
        // From here on the supervisor removes it, also when streamgauge is killed.
        if let Some(scratch) = scratch {
            let _ = scratch.keep();
        }
        ready::wait(&launched, launch, options, progress)?;
        let (meter, cpu_source) = match &launched.state().group {
            Some(Ok((kind, path))) => (
                Meter::Group(*kind, path.clone()),
                match kind {
                    cgroup::Kind::V1 => CpuSource::CgroupV1,
                    cgroup::Kind::V2 => CpuSource::CgroupV2,
                },
            ),
            Some(Err(reason)) => (
                Meter::Times,
                CpuSource::ProcessTimes {
                    reason: reason.clone(),
                },
            ),
            None => (
                Meter::Times,
                CpuSource::ProcessTimes {
                    reason: "not known".to_owned(),
                },
            ),
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

    /// Observes a process that runs already, with all its descendants.
    ///
    /// # Errors
    /// There is no such process, or it is this one or an ancestor of it: the tester would be part
    /// of what is measured.
    pub fn observe_pid(pid: u32) -> Result<Sut, SutError> {
        let stat = proc::stat(pid)
            .filter(|stat| !stat.is_dead())
            .ok_or(SutError::NoSuchProcess { pid })?;
        if proc::is_own_or_ancestor(pid) {
            return Err(SutError::Ourselves {
                pid,
                what: if pid == std::process::id() {
                    "streamgauge itself"
                } else {
                    "an ancestor of streamgauge itself"
                },
            });
        }
        let process = Process::Observed {
            pid,
            started: stat.started,
        };
        let mut observer = Observer::new(Meter::Times);
        observer.begin(&tree(&process));
        Ok(Sut {
            process,
            observer,
            description: format!("{} (pid {pid})", stat.name),
            urls: Vec::new(),
            stop_within: Duration::ZERO,
            cpu_source: CpuSource::ProcessTimes {
                reason: "it was not launched by this run".to_owned(),
            },
            log: WatchedLog::new(&LogSpec::default(), Path::new(""))?,
            counters: None,
        })
    }

    /// Observes a server on another machine by the exporters there.
    ///
    /// # Errors
    /// One does not answer, or knows nothing of the server's processes.
    pub fn ask(exporters: &Exporters) -> Result<Sut, SutError> {
        let asker = Asker::start(exporters)?;
        Ok(Sut {
            description: asker.description().to_owned(),
            process: Process::Elsewhere(Box::new(asker)),
            observer: Observer::new(Meter::Times),
            urls: Vec::new(),
            stop_within: Duration::ZERO,
            cpu_source: CpuSource::Exporter,
            log: WatchedLog::new(&LogSpec::default(), Path::new(""))?,
            counters: None,
        })
    }

    /// The server's own process: that of the command, or the one observed. None on another machine.
    pub fn pid(&self) -> Option<u32> {
        match &self.process {
            Process::Launched(launched) => launched.state().pid,
            Process::Observed { pid, .. } => Some(*pid),
            Process::Elsewhere(_) => None,
        }
    }

    /// Its command line, or the name and number of the observed process.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The URLs it serves, where the catalogue knows them.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Where its processor time comes from.
    pub fn cpu_source(&self) -> &CpuSource {
        &self.cpu_source
    }

    /// All processes of the server: those that were started and their descendants.
    pub fn processes(&self) -> Vec<u32> {
        tree(&self.process)
    }

    /// Says which multicast groups are looked for in its network namespace. Nothing of a server on
    /// another machine.
    pub fn watch_groups(&mut self, groups: BTreeSet<IpAddr>) {
        self.observer.watched = groups;
    }

    /// Of the watched groups, those that are joined now in the network namespace of the server, by
    /// whomever: the kernel does not say. None where no group is watched, or nothing can be read.
    pub fn groups(&self) -> Option<BTreeSet<IpAddr>> {
        self.observer.groups(&tree(&self.process))
    }

    /// What it has taken of its machine, looked at now: that costs the server, as the kernel walks
    /// its page tables.
    pub fn holdings(&self) -> Holdings {
        let tree = tree(&self.process);
        Holdings {
            groups: self.observer.groups(&tree),
            ..observe::holdings(&tree)
        }
    }

    /// Looks at it and records what is found. Once a window.
    pub fn sample(&mut self, recorder: &mut Recorder) {
        self.observe().record(recorder);
        if let Some(counters) = &mut self.counters {
            counters.record(recorder);
        }
    }

    /// Whether it tells what it counts itself.
    pub fn has_counters(&self) -> bool {
        self.counters.is_some()
    }

    /// Asks it what it counts, at once, and waits for the answer as long as that.
    pub fn look_at_counters(&self, within: Duration) {
        if let Some(counters) = &self.counters {
            counters.look_now(within);
        }
    }

    /// Looks at it; what adds up is counted since the last look.
    pub fn observe(&mut self) -> Observation {
        let seen = match &mut self.process {
            Process::Elsewhere(asker) => asker.look(),
            process => self.observer.look(&tree(process)),
        };
        Observation {
            log_complaints: self.look_at_log(),
            ..seen
        }
    }

    /// How many lines of its log complain since the last look.
    fn look_at_log(&mut self) -> u64 {
        let log = &mut self.log;
        if let Some(file) = &mut log.file {
            log.found.add(file.look(&log.patterns));
        }
        let (mut lines, mut skipped) = log.found.look(&log.patterns);
        if let Process::Launched(launched) = &self.process {
            let printed = launched.state().complaints.look(&log.patterns);
            lines += printed.0;
            skipped += printed.1;
        }
        log.skipped += skipped;
        lines
    }

    /// From now on its log counts: what it complained of before, such as while it started, is
    /// forgotten.
    pub fn begin(&mut self) {
        let log = &mut self.log;
        log.found = Complaints::default();
        log.skipped = 0;
        if let Some(file) = &mut log.file {
            // It could be opened before; what is wrong now is seen when it is read.
            let _ = file.begin();
        }
        if let Process::Launched(launched) = &self.process {
            launched.state().complaints = Complaints::default();
        }
    }

    /// Lines of its log that complain, those since this was asked last: the first three of each
    /// pattern.
    pub fn take_log_lines(&mut self) -> Vec<LogLine> {
        let log = &mut self.log;
        let mut lines = log.found.take_fresh(&log.patterns);
        if let Process::Launched(launched) = &self.process {
            lines.extend(launched.state().complaints.take_fresh(&log.patterns));
        }
        lines
    }

    /// What its log complained of since [`Sut::begin`], by pattern, most first; and whether there
    /// was more of it than could be looked at.
    pub fn log_counts(&self) -> (Vec<LogCount>, bool) {
        let log = &self.log;
        let mut counts = log.found.counts(&log.patterns);
        if let Process::Launched(launched) = &self.process {
            for printed in launched.state().complaints.counts(&log.patterns) {
                match counts
                    .iter_mut()
                    .find(|count| count.pattern == printed.pattern)
                {
                    Some(count) => count.lines += printed.lines,
                    None => counts.push(printed),
                }
            }
        }
        counts.sort_by_key(|count| std::cmp::Reverse(count.lines));
        let passed_over = log.file.as_ref().map_or(0, |file| file.passed_over);
        (counts, log.skipped + passed_over > 0)
    }

    /// Who has the port. Of another machine's ports nothing is known.
    pub fn owns_port(&self, port: u16, transport: Transport) -> PortOwner {
        if matches!(self.process, Process::Elsewhere(_)) {
            return PortOwner::Unknown;
        }
        ports::owner_of(port, transport, || tree(&self.process))
    }

    /// How it ended, where it is no more.
    pub fn has_exited(&self) -> Option<String> {
        match &self.process {
            Process::Launched(launched) => launched.ended(),
            Process::Observed { pid, started } => {
                let alive = proc::is_running(*pid, *started);
                (!alive)
                    .then(|| "it is no more; how it ended is known to its parent only".to_owned())
            }
            Process::Elsewhere(_) => None,
        }
    }

    /// Why the process that watches over the server is no more, where somebody ended it: what was
    /// launched is killed then, and did not end by itself. None while all is well, and of a server
    /// that was not launched.
    pub fn supervisor_lost(&self) -> Option<String> {
        match &self.process {
            Process::Launched(launched) => launched.supervisor_lost(),
            Process::Observed { .. } | Process::Elsewhere(_) => None,
        }
    }

    /// The last 64 KiB of what it printed. Nothing for a server that is only observed.
    pub fn log_tail(&self) -> String {
        match &self.process {
            Process::Launched(launched) => launched.state().log.tail(),
            Process::Observed { .. } | Process::Elsewhere(_) => String::new(),
        }
    }

    /// Ends what was launched: SIGTERM to the whole tree, SIGKILL to what does not heed it in time.
    /// One that is only observed goes on.
    pub fn stop(mut self) -> StopReport {
        self.counters = None;
        match &mut self.process {
            Process::Launched(launched) => launched.stop(self.stop_within),
            Process::Observed { .. } | Process::Elsewhere(_) => StopReport {
                exit: None,
                ended_by_itself: false,
                killed: false,
                left_over: Vec::new(),
                took: Duration::ZERO,
            },
        }
    }
}

/// The processes of the server.
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
        Process::Elsewhere(_) => Vec::new(),
    }
}
