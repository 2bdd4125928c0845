//! A server that was launched: streamgauge's end of the supervisor.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cgroup::{self, Kind};
use crate::complaints::{Complaints, Patterns};
use crate::error::SutError;
use crate::log::{Lines, Log, Matcher};
use crate::message::{Exit, Request, SUBCOMMAND, SupervisorMessage};
use crate::proc;
use crate::spec::Launch;
use crate::supervise::Order;
use crate::user;

/// How long the supervisor may take for what needs no waiting: to say that the command runs, and to
/// end once everything is killed.
const PROMPT: Duration = Duration::from_secs(10);

/// How long processes that were sent SIGKILL are waited for where no supervisor does it.
const KILL_WITHIN: Duration = Duration::from_secs(2);

/// The longest report.
const REPORT_MAX: u64 = 16 * 1024;

/// What is known of the launched server; changed by the threads that listen to it.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) log: Log,
    pub(crate) complaints: Complaints,
    /// The line that is waited for has come.
    pub(crate) matched: bool,
    pub(crate) group: Option<Result<(Kind, PathBuf), String>>,
    pub(crate) pid: Option<u32>,
    /// The processes last seen where there is no group, each with when it started.
    seen: Vec<(u32, u64)>,
    failed: Option<String>,
    pub(crate) ended: Option<Exit>,
    /// This signal told the supervisor to end, which streamgauge did not ask for.
    interrupted: Option<i32>,
    /// No process of the tree is left.
    pub(crate) gone: bool,
    /// The supervisor has closed its end.
    closed: bool,
    /// How many of the two output streams are open.
    open_outputs: u8,
}

impl State {
    /// The server's control group, where it has one of its own.
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
        // What is kept stays whole after each single change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

/// How a server ended when it was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopReport {
    /// How the command's own process ended; none where it was only observed, or is not known.
    pub exit: Option<Exit>,
    /// It had ended before it was asked to.
    pub ended_by_itself: bool,
    /// It did not heed SIGTERM in time and was killed.
    pub killed: bool,
    /// Processes that could not be ended at all, even by SIGKILL.
    pub left_over: Vec<u32>,
    /// How long stopping took.
    pub took: Duration,
}

/// A launched server: the supervisor's process and what it reports.
#[derive(Debug)]
pub(crate) struct Launched {
    supervisor: Child,
    control: UnixStream,
    shared: Arc<Shared>,
}

/// How to start it, beyond the command itself.
#[derive(Debug)]
pub(crate) struct Means {
    pub(crate) supervisor: PathBuf,
    pub(crate) scratch: Option<PathBuf>,
    pub(crate) no_group: bool,
    /// What is looked for in what it prints.
    pub(crate) patterns: Arc<Patterns>,
}

impl Launched {
    /// Starts the command and returns when it runs.
    pub(crate) fn start(launch: &Launch, means: Means) -> Result<Launched, SutError> {
        let trouble = |error: std::io::Error| SutError::Supervisor(error.to_string());
        let matcher = launch.ready.matcher()?;
        let program = launch
            .command
            .first()
            .ok_or_else(|| SutError::Unusable("the server's command is empty".to_owned()))?
            .to_string_lossy()
            .into_owned();
        let order = Order {
            command: launch.command.clone(),
            user: launch.user.as_ref().map(|user| (user.number, user.group)),
            scratch: means.scratch,
            no_group: means.no_group,
        };
        let (control, theirs) = UnixStream::pair().map_err(trouble)?;
        let mut command = Command::new(&means.supervisor);
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
            // Out of the terminal's group: Ctrl-C is for streamgauge, which then stops the server.
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
            SutError::Supervisor(format!("{}: {error}", means.supervisor.display()))
        })?;
        // Closes our copies of its ends.
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
            read_output(output, &shared, &matcher, &means.patterns);
        }
        if let Some(output) = supervisor.stderr.take() {
            read_output(output, &shared, &matcher, &means.patterns);
        }
        let mut launched = Launched {
            supervisor,
            control,
            shared,
        };
        read_reports(
            launched.control.try_clone().map_err(trouble)?,
            Arc::clone(&launched.shared),
        );
        launched.wait(PROMPT, |state| {
            state.pid.is_some() || state.failed.is_some() || state.closed
        });
        let state = launched.shared.lock();
        if state.pid.is_some() {
            drop(state);
            return Ok(launched);
        }
        let (failed, output) = (state.failed.clone(), state.log.tail());
        drop(state);
        launched.finish(PROMPT);
        Err(match failed {
            Some(reason) => SutError::Spawn { program, reason },
            None => SutError::Supervisor(format!(
                "{} said nothing {output}",
                means.supervisor.display()
            )),
        })
    }

    /// Waits until `condition` holds; says whether it came to hold in time.
    pub(crate) fn wait(&self, within: Duration, condition: impl Fn(&State) -> bool) -> bool {
        let state = self.shared.lock();
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(state, within, |state| !condition(state))
            .unwrap_or_else(PoisonError::into_inner);
        condition(&state)
    }

    /// What is known now.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock()
    }

    /// The processes of the server, without the supervisor.
    pub(crate) fn tree(&self) -> Vec<u32> {
        let group = match &self.state().group {
            Some(Ok((_, path))) => cgroup::processes(path),
            _ => None,
        };
        if let Some(processes) = group
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
        // Or the supervisor was killed, and they are nobody's children now.
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

    /// How it ended, if the server is no more: its own process ended with an error, or nothing is
    /// left of its tree. One that put itself into the background still lives.
    pub(crate) fn ended(&self) -> Option<String> {
        let state = self.state();
        match state.ended {
            Some(exit) if state.gone || state.closed || exit != Exit::Code(0) => {
                Some(exit.to_string())
            }
            None if state.gone || state.closed => {
                Some("how is not known, because its supervisor was lost".to_owned())
            }
            _ => None,
        }
    }

    /// Why the supervisor is no more, where it ended and nobody here asked it to. The server then
    /// did not end by itself: it was killed because of that.
    pub(crate) fn supervisor_lost(&self) -> Option<String> {
        let state = self.state();
        match state.interrupted {
            Some(signal) => Some(format!("it was {}", Exit::Signal(signal))),
            None if state.closed && !state.gone => Some("it was killed".to_owned()),
            None => None,
        }
    }

    /// After an end: waits until all that was printed has been read.
    pub(crate) fn wait_for_output(&self) {
        self.wait(Duration::from_millis(500), |state| state.open_outputs == 0);
    }

    /// Ends every process of the tree: SIGTERM, and after `within` SIGKILL.
    pub(crate) fn stop(&mut self, within: Duration) -> StopReport {
        let began = Instant::now();
        let ended_by_itself = self.ended().is_some();
        let mut killed = false;
        if !self.state().gone {
            self.ask(Request::Terminate);
            if !self.wait(within, |state| state.gone || state.closed) {
                killed = true;
                self.ask(Request::Kill);
                self.wait(PROMPT, |state| state.gone || state.closed);
            }
        }
        let left_over = self.finish(PROMPT);
        StopReport {
            exit: self.state().ended,
            ended_by_itself,
            killed,
            left_over,
            took: began.elapsed(),
        }
    }

    fn ask(&mut self, request: Request) {
        // A supervisor that is gone has closed its end, which is seen where it is waited for.
        let _ = self.control.write_all(request.line().as_bytes());
    }

    /// Makes sure that nothing is left, the supervisor included; names what could not be ended.
    fn finish(&mut self, within: Duration) -> Vec<u32> {
        let tree = self.tree();
        // The supervisor kills everything when it reads the end.
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
        // Only where the supervisor itself was killed is anything left here.
        if self.state().gone {
            return Vec::new();
        }
        let group = self.state().group_path();
        let left = kill_rest(group.as_deref(), &proc::identified(&tree), KILL_WITHIN);
        if let Some(path) = group {
            let _ = cgroup::remove(&path, Duration::from_secs(1));
        }
        left
    }
}

/// Kills what is in the group, and those of the known processes that still are the same, until none
/// is left or the time is over; names those that are left. For when no supervisor can do it.
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
                found = lines.push(bytes, matcher);
            }
            let news = patterns.find(&mut all_lines, bytes);
            shared.change(|state| {
                state.complaints.add(news);
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
                Some(SupervisorMessage::Gone) => state.gone = true,
                None => {}
            });
        }
        shared.change(|state| state.closed = true);
        // The supervisor was killed, and the kernel has killed the server's own process. Others of
        // the server must not run on until the end of the run.
        let (gone, group, seen) = {
            let state = shared.lock();
            (state.gone, state.group_path(), state.seen.clone())
        };
        if !gone {
            kill_rest(group.as_deref(), &seen, KILL_WITHIN);
        }
    });
}
