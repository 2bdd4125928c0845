//! The supervisor: a small process between streamgauge and the server it launches.
//!
//! streamgauge can be killed at any moment, without a chance to clean up. The server is therefore
//! started by a process that holds one end of a socket pair. If the other end closes, for whatever
//! reason, this process kills everything that the server started, and ends. As a child subreaper
//! (prctl(2)) the supervisor also becomes the parent of processes that detach themselves from the
//! server, so that none escapes.
//!
//! If the supervisor is killed too, two safeguards remain. The kernel kills the server's own
//! process (see [`crate::stage`] for the limits of a parent-death signal), and the next supervisor
//! kills the remaining processes in the control group and removes it (see [`cgroup::clear_stale`]).
//!
//! The supervisor also creates the server's control group, and stays outside it: its own processor
//! time is not counted with the server's.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cgroup::{self, Cgroup};
use crate::guard;
use crate::message::{Exit, Request, SupervisorMessage};
use crate::proc;
use crate::stage::{self, Stage};

/// Maximum length of a request line, in bytes.
const REQUEST_MAX: u64 = 64;

/// Runs as the supervisor. Returns the exit status of this process.
///
/// `arguments` are those after [`SUBCOMMAND`](crate::SUBCOMMAND). Standard input must be the socket
/// whose other end streamgauge holds; standard output and error are passed on to the server.
pub fn supervise_main(arguments: impl IntoIterator<Item = OsString>) -> i32 {
    let mut arguments = arguments.into_iter().peekable();
    if arguments
        .next_if(|first| first == stage::ARGUMENT)
        .is_some()
    {
        return stage::main(arguments);
    }
    if arguments
        .next_if(|first| first == guard::ARGUMENT)
        .is_some()
    {
        return guard::main(arguments);
    }
    match (Order::parse(arguments), stage::standard_input()) {
        (Some(order), Some(socket)) => supervise(order, socket),
        _ => 104,
    }
}

/// Task of the supervisor.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    /// Program and arguments.
    pub(crate) command: Vec<OsString>,
    /// User and group to run it as. Default: unchanged.
    pub(crate) user: Option<(u32, u32)>,
    /// Folder to remove at the end.
    pub(crate) scratch: Option<PathBuf>,
    /// True: no control group is used.
    pub(crate) no_group: bool,
}

impl Order {
    /// Encodes the task as arguments.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut arguments = Vec::new();
        if let Some((user, group)) = self.user {
            arguments.extend(["--user".into(), user.to_string().into()]);
            arguments.push(group.to_string().into());
        }
        if let Some(scratch) = &self.scratch {
            arguments.extend(["--scratch".into(), scratch.clone().into_os_string()]);
        }
        if self.no_group {
            arguments.push("--no-group".into());
        }
        arguments.push("--".into());
        arguments.extend(self.command.iter().cloned());
        arguments
    }

    fn parse(arguments: impl IntoIterator<Item = OsString>) -> Option<Order> {
        let mut order = Order::default();
        let mut arguments = arguments.into_iter();
        loop {
            let argument = arguments.next()?;
            if argument == OsStr::new("--") {
                break;
            } else if argument == OsStr::new("--user") {
                let mut number = || -> Option<u32> { arguments.next()?.to_str()?.parse().ok() };
                order.user = Some((number()?, number()?));
            } else if argument == OsStr::new("--scratch") {
                order.scratch = Some(arguments.next()?.into());
            } else if argument == OsStr::new("--no-group") {
                order.no_group = true;
            } else {
                return None;
            }
        }
        order.command = arguments.collect();
        (!order.command.is_empty()).then_some(order)
    }
}

fn supervise(order: Order, socket: UnixStream) -> i32 {
    let Ok(reports) = socket
        .try_clone()
        .map(|socket| Arc::new(Mutex::new(socket)))
    else {
        return 104;
    };
    // A failed write is ignored: the end of streamgauge is noticed by the thread that reads the
    // socket.
    let report = |report: SupervisorMessage| {
        if let Ok(mut socket) = reports.lock() {
            let _ = socket.write_all(report.line().as_bytes());
        }
    };
    // Before the start of the server: the supervisor may be asked to end at any moment.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]);
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    // Before any thread is started: the whole process enters the group, and leaves it again.
    let group = if order.no_group {
        Err("switched off".to_owned())
    } else {
        Cgroup::enter()
    };
    // The kernel kills the server if this thread ends, so it waits below for the server's end.
    let started = Stage {
        parent: std::process::id(),
        user: order.user,
        command: order.command,
    }
    .start();
    match &group {
        Ok(group) => match group.leave() {
            Ok(()) => report(SupervisorMessage::Group(group.kind, group.path.clone())),
            Err(error) => report(SupervisorMessage::NoGroup(error.to_string())),
        },
        Err(reason) => report(SupervisorMessage::NoGroup(reason.clone())),
    }
    let status = match started {
        Ok(child) => {
            report(SupervisorMessage::Started(child.id()));
            spawn_killers(socket, signals, Arc::clone(&reports));
            reap(child.id(), report);
            0
        }
        Err(error) => {
            report(SupervisorMessage::Failed(error));
            1
        }
    };
    if let Ok(group) = group {
        let _ = cgroup::remove(&group.path, Duration::from_secs(2));
    }
    if let Some(scratch) = order.scratch {
        let _ = std::fs::remove_dir_all(scratch);
    }
    report(SupervisorMessage::Gone);
    status
}

/// Waits for all children and orphaned descendants, until none is left.
fn reap(main: u32, report: impl Fn(SupervisorMessage)) {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => {
                if u32::try_from(pid.as_raw_pid()) == Ok(main) {
                    let exit = match (status.exit_status(), status.terminating_signal()) {
                        (Some(code), _) => Exit::Code(code),
                        (None, Some(signal)) => Exit::Signal(signal),
                        // Stops and continues are not requested.
                        (None, None) => continue,
                    };
                    report(SupervisorMessage::Ended(exit));
                }
            }
            Ok(None) | Err(Errno::INTR) => {}
            // ECHILD: none left.
            Err(_) => return,
        }
    }
}

/// Starts the threads that end the server: on request, when streamgauge has ended, and when the
/// supervisor itself is asked to end. They end with the process.
fn spawn_killers(
    socket: UnixStream,
    signals: io::Result<Signals>,
    reports: Arc<Mutex<UnixStream>>,
) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(socket);
        let mut line = String::new();
        loop {
            line.clear();
            match reader.by_ref().take(REQUEST_MAX).read_line(&mut line) {
                Ok(0) | Err(_) => kill_all(),
                Ok(_) => match Request::parse(line.trim_end()) {
                    Some(Request::Terminate) => signal_all(Signal::TERM),
                    Some(Request::Kill) | None => kill_all(),
                },
            }
        }
    });
    if let Ok(mut signals) = signals {
        std::thread::spawn(move || {
            if let Some(signal) = signals.forever().next() {
                // Not requested: the run must not take this for an end of the server itself.
                if let Ok(mut socket) = reports.lock() {
                    let _ =
                        socket.write_all(SupervisorMessage::Interrupted(signal).line().as_bytes());
                }
                kill_all();
            }
        });
    }
}

/// Sends `signal` to every descendant.
fn signal_all(signal: Signal) {
    proc::signal(&proc::descendants(std::process::id()), signal);
}

/// Kills repeatedly until the process ends with its last child, because a process may start another
/// one between being listed and being killed. The interval grows, because some processes cannot be
/// killed at once.
fn kill_all() -> ! {
    let mut pause = Duration::from_millis(2);
    loop {
        signal_all(Signal::KILL);
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_arguments_round_trip() {
        let order = Order {
            command: vec!["vlc".into(), "--".into(), "--user".into()],
            user: Some((65534, 7)),
            scratch: Some("/tmp/a b".into()),
            no_group: true,
        };
        assert_eq!(Order::parse(order.arguments()), Some(order));
    }

    #[test]
    fn bad_orders_are_refused() {
        for arguments in [
            &["--"][..],
            &[],
            &["--user", "x", "--", "a"],
            &["--user", "1", "--", "a"],
            &["--what", "--", "a"],
            &["a"],
        ] {
            assert_eq!(
                Order::parse(arguments.iter().map(OsString::from)),
                None,
                "{arguments:?}"
            );
        }
    }
}
