//! A launched server: streamgauge's side of the supervisor.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cgroup::{self, CgroupVersion};
use crate::complaints::{Complaints, Patterns};
use crate::error::SutError;
use crate::log::{Lines, Log, Matcher};
use crate::message::{Exit, Request, SUBCOMMAND, SupervisorMessage};
use crate::proc;
use crate::spec::Launch;
use crate::supervise::Order;
use crate::user;

/// Time limit of the supervisor's immediate actions: reporting that the command runs, and ending
/// once everything is killed. On a machine with a load of 27 the first took more than 10 s.
const SUPERVISOR_TIMEOUT: Duration = Duration::from_secs(30);

/// Time to wait for processes after SIGKILL if no supervisor does so.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum length of a report, in bytes.
const REPORT_MAX: u64 = 16 * 1024;

/// State of the launched server, updated by the threads that read from it.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) log: Log,
    pub(crate) complaints: Complaints,
    /// True once the awaited line has been printed.
    pub(crate) matched: bool,
    pub(crate) group: Option<Result<(CgroupVersion, PathBuf), String>>,
    pub(crate) pid: Option<u32>,
    /// Processes last seen without a control group, each with its start time.
    seen: Vec<(u32, u64)>,
    failed: Option<String>,
    pub(crate) ended: Option<Exit>,
    /// Signal that ended the supervisor without a request of streamgauge.
    interrupted: Option<i32>,
    /// True if no process of the tree is left.
    pub(crate) tree_ended: bool,
    /// True if the supervisor has closed its end of the socket.
    closed: bool,
    /// Number of output streams that are open, 2 at first.
    open_outputs: u8,
}

impl State {
    /// Returns the server's own control group, if it has one.
    fn group_path(&self) -> Option<PathBuf> {
        match &self.group {
            Some(Ok((_, path))) => Some(path.clone()),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is consistent after each single change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

/// Result of stopping a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopReport {
    /// Exit of the command's own process; `None` if it was only observed, or its exit is unknown.
    pub exit: Option<Exit>,
    /// True if it had ended before it was asked to.
    pub ended_by_itself: bool,
    /// True if it did not end in time after SIGTERM and was killed.
    pub killed: bool,
    /// Processes that did not end, even after SIGKILL.
    pub left_over: Vec<u32>,
    /// Duration of the stop.
    pub took: Duration,
}

/// A launched server: the supervisor's process and what it reports.
#[derive(Debug)]
pub(crate) struct Launched {
    supervisor: Child,
    control: UnixStream,
    shared: Arc<Shared>,
    /// Folder of the server's files, which ends with the server.
    scratch: Option<PathBuf>,
}

/// Settings of a start, in addition to the command.
#[derive(Debug)]
pub(crate) struct LaunchContext {
    pub(crate) supervisor: PathBuf,
    pub(crate) scratch: Option<PathBuf>,
    pub(crate) no_group: bool,
    /// Patterns to search the output for.
    pub(crate) patterns: Arc<Patterns>,
}

impl Launched {
    /// Starts the command and returns when it runs.
    pub(crate) fn start(launch: &Launch, context: LaunchContext) -> Result<Launched, SutError> {
        let trouble = |error: std::io::Error| SutError::Supervisor(error.to_string());
        let matcher = launch.ready.matcher()?;
        let program = launch.command.first();
        let program = program.map(|program| program.to_string_lossy().into_owned());
        let is_empty = || SutError::Unusable("the server's command is empty".to_owned());
        let program = program.ok_or_else(is_empty)?;
        let order = Order {
            command: launch.command.clone(),
            user: launch.user.as_ref().map(|user| (user.number, user.group)),
            scratch: context.scratch.clone(),
            no_group: context.no_group,
        };
        let (control, theirs) = UnixStream::pair().map_err(trouble)?;
        let mut command = Command::new(&context.supervisor);
        command
            .arg0("streamgauge")
            .arg(SUBCOMMAND)
            .args(order.arguments())
            .env_clear()
            .envs(user::environment(launch.user.as_ref()))
            .envs(launch.environment.iter().map(|(name, value)| (name, value)))
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Outside the terminal's process group: Ctrl-C is for streamgauge, which then stops the
            // server.
            .process_group(0);
        if let Some(directory) = &launch.directory {
            if !directory.is_dir() {
                return Err(SutError::Unusable(format!(
                    "the server's folder {} does not exist",
                    directory.display()
                )));
            }
            command.current_dir(directory);
        }
        let mut supervisor = command.spawn().map_err(|error| {
            SutError::Supervisor(format!("{}: {error}", context.supervisor.display()))
        })?;
        // Closes our copies of the supervisor's ends.
        drop(command);
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                open_outputs: 2,
                ..State::default()
            }),
            changed: Condvar::new(),
        });
        let matcher = Arc::new(matcher);
        if let Some(output) = supervisor.stdout.take() {
            read_output(output, &shared, &matcher, &context.patterns);
        }
        if let Some(output) = supervisor.stderr.take() {
            read_output(output, &shared, &matcher, &context.patterns);
        }
        let mut launched = Launched {
            supervisor,
            control,
            shared,
            scratch: context.scratch,
        };
        let reports = launched.control.try_clone().map_err(trouble)?;
        read_reports(reports, Arc::clone(&launched.shared));
        launched.wait(SUPERVISOR_TIMEOUT, |state| {
            state.pid.is_some() || state.failed.is_some() || state.closed
        });
        let state = launched.shared.lock();
        if state.pid.is_some() {
            drop(state);
            return Ok(launched);
        }
        let in_time = state.closed;
        drop(state);
        launched.finish(SUPERVISOR_TIMEOUT);
        launched.wait_for_output();
        // The status of a supervisor that was killed above is no news.
        let how = match launched.supervisor.try_wait() {
            Ok(Some(status)) if in_time => {
                format!("ended with {status} before it reported a start")
            }
            _ => "did not report a start in time".to_owned(),
        };
        let state = launched.state();
        Err(match state.failed.clone() {
            Some(reason) => SutError::Spawn { program, reason },
            None => SutError::Supervisor(format!(
                "{} {how} {}",
                context.supervisor.display(),
                state.log.tail()
            )),
        })
    }

    /// Waits until `condition` holds. Returns `false` if it does not hold in time.
    pub(crate) fn wait(&self, within: Duration, condition: impl Fn(&State) -> bool) -> bool {
        let state = self.shared.lock();
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(state, within, |state| !condition(state))
            .unwrap_or_else(PoisonError::into_inner);
        condition(&state)
    }

    /// Returns the current state.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    /// Returns the processes of the server, without the supervisor.
    pub(crate) fn tree(&self) -> Vec<u32> {
        let group = self.state().group_path();
        if let Some(processes) = group.and_then(|path| cgroup::processes(&path))
            && !processes.is_empty()
        {
            return processes;
        }
        // No group, or the server moved itself to another one.
        let found = proc::descendants(self.supervisor.id());
        if !found.is_empty() {
            self.state().seen = proc::identified(&found);
            return found;
        }
        // Or the supervisor was killed, and the processes are no longer its descendants.
        let mut seen = self.state().seen.clone();
        seen.retain(|&(pid, started)| proc::is_running(pid, started));
        let mut tree: Vec<u32> = seen.into_iter().map(|(pid, _)| pid).collect();
        for pid in tree.clone() {
            tree.extend(proc::descendants(pid));
        }
        tree.sort_unstable();
        tree.dedup();
        tree
    }

    /// Returns how the server ended: its own process failed, or no process of its tree is left.
    /// `None` while it lives, also in the background.
    pub(crate) fn ended(&self) -> Option<String> {
        let state = self.state();
        match state.ended {
            Some(exit) if state.tree_ended || state.closed || exit != Exit::Code(0) => {
                Some(exit.to_string())
            }
            None if state.tree_ended || state.closed => {
                Some("exit status unknown, because its supervisor was lost".to_owned())
            }
            _ => None,
        }
    }

    /// Returns why the supervisor ended without a request. The server then did not end by itself:
    /// it was killed as a consequence.
    pub(crate) fn supervisor_lost(&self) -> Option<String> {
        let state = self.state();
        match state.interrupted {
            Some(signal) => Some(format!("it was {}", Exit::Signal(signal))),
            None if state.closed && !state.tree_ended => Some("it was killed".to_owned()),
            None => None,
        }
    }

    /// Waits after an end until all output has been read.
    pub(crate) fn wait_for_output(&self) {
        self.wait(Duration::from_millis(500), |state| state.open_outputs == 0);
    }

    /// Ends every process of the tree: SIGTERM, and SIGKILL after `within`.
    pub(crate) fn stop(&mut self, within: Duration) -> StopReport {
        let began = Instant::now();
        let ended_by_itself = self.ended().is_some();
        let mut killed = false;
        if !self.state().tree_ended {
            self.ask(Request::Terminate);
            if !self.wait(within, |state| state.tree_ended || state.closed) {
                killed = true;
                self.ask(Request::Kill);
                self.wait(SUPERVISOR_TIMEOUT, |state| state.tree_ended || state.closed);
            }
        }
        let left_over = self.finish(SUPERVISOR_TIMEOUT);
        StopReport {
            exit: self.state().ended,
            ended_by_itself,
            killed,
            left_over,
            took: began.elapsed(),
        }
    }

    fn ask(&mut self, request: Request) {
        // If the supervisor has ended, the wait that follows sees that its end is closed.
        let _ = self.control.write_all(request.line().as_bytes());
    }

    /// Ensures that no process is left, including the supervisor. Returns those that did not end.
    fn finish(&mut self, within: Duration) -> Vec<u32> {
        let tree = self.tree();
        // The supervisor kills everything at the end of its input.
        let _ = self.control.shutdown(std::net::Shutdown::Write);
        let deadline = Instant::now() + within;
        while matches!(self.supervisor.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                let _ = self.supervisor.kill();
                let _ = self.supervisor.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        // Processes are left here only if the supervisor itself was killed.
        let group = self.state().group_path();
        let left = match self.state().tree_ended {
            true => Vec::new(),
            false => kill_rest(group.as_deref(), &proc::identified(&tree), KILL_TIMEOUT),
        };
        // The supervisor removes both, unless it was killed before.
        if let Some(path) = group {
            let _ = cgroup::remove(&path, Duration::from_secs(1));
        }
        if let Some(scratch) = &self.scratch {
            let _ = std::fs::remove_dir_all(scratch);
        }
        left
    }
}

/// Kills the processes in the group, and the known processes that are still the same, until none is
/// left or the time limit expires. Returns the rest. For use if no supervisor can do it.
fn kill_rest(group: Option<&Path>, known: &[(u32, u64)], within: Duration) -> Vec<u32> {
    let deadline = Instant::now() + within;
    loop {
        let known = known
            .iter()
            .filter(|&&(pid, started)| proc::is_running(pid, started));
        let grouped = group.and_then(cgroup::processes).unwrap_or_default();
        let left: Vec<u32> = known
            .map(|&(pid, _)| pid)
            .chain(grouped)
            .filter(|&pid| proc::stat(pid).is_some_and(|stat| !stat.is_dead()))
            .collect();
        if left.is_empty() || Instant::now() >= deadline {
            return left;
        }
        proc::kill(&left);
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        if matches!(self.supervisor.try_wait(), Ok(None)) {
            self.finish(Duration::from_secs(3));
        }
    }
}

fn read_output(
    mut output: impl Read + Send + 'static,
    shared: &Arc<Shared>,
    matcher: &Arc<Option<Matcher>>,
    patterns: &Arc<Patterns>,
) {
    let (shared, matcher, patterns) = (shared.clone(), matcher.clone(), patterns.clone());
    std::thread::spawn(move || {
        let mut buffer = [0; 8 * 1024];
        let mut lines = Lines::default();
        let mut all_lines = Lines::default();
        let mut found = false;
        loop {
            let bytes = match output.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => &buffer[..length],
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            if let (Some(matcher), false) = (&*matcher, found) {
                found = lines.push_and_match(bytes, matcher);
            }
            let found_lines = patterns.find(&mut all_lines, bytes);
            shared.change(|state| {
                state.complaints.add(found_lines);
                state.log.push(bytes);
                state.matched |= found;
            });
        }
        shared.change(|state| state.open_outputs = state.open_outputs.saturating_sub(1));
    });
}

fn read_reports(socket: UnixStream, shared: Arc<Shared>) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(socket);
        let mut line = String::new();
        loop {
            line.clear();
            match reader.by_ref().take(REPORT_MAX).read_line(&mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            let report = SupervisorMessage::parse(line.trim_end_matches('\n'));
            shared.change(|state| match report {
                Some(SupervisorMessage::Group(kind, path)) => state.group = Some(Ok((kind, path))),
                Some(SupervisorMessage::NoGroup(reason)) => state.group = Some(Err(reason)),
                Some(SupervisorMessage::Started(pid)) => state.pid = Some(pid),
                Some(SupervisorMessage::Failed(reason)) => state.failed = Some(reason),
                Some(SupervisorMessage::Ended(exit)) => state.ended = Some(exit),
                Some(SupervisorMessage::Interrupted(signal)) => state.interrupted = Some(signal),
                Some(SupervisorMessage::Gone) => state.tree_ended = true,
                None => {}
            });
        }
        shared.change(|state| state.closed = true);
        // The supervisor was killed, and the kernel has killed the server's own process. The other
        // processes of the server must not live until the end of the run.
        let (gone, group, seen) = {
            let state = shared.lock();
            (state.tree_ended, state.group_path(), state.seen.clone())
        };
        if !gone {
            kill_rest(group.as_deref(), &seen, KILL_TIMEOUT);
        }
    });
}
