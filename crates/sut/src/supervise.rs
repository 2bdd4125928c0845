//! The supervisor: a small process between streamgauge and the server it launches.
//!
//! streamgauge can be killed at any moment, without a chance to clean up. So the server is started
//! by a process that holds one end of a socket pair: when the other end closes, for whatever
//! reason, it kills everything the server started, and ends. As a child subreaper (prctl(2)) the
//! supervisor also becomes the parent of what detaches itself from the server, so nothing gets out
//! of its sight.
//!
//! If the supervisor is killed too, two more nets remain. The kernel kills the server's own process
//! (see [`crate::stage`] for what a parent-death signal does not cover), and the next supervisor
//! kills what is left in the control group and removes it (see [`cgroup::clear_stale`]).
//!
//! It sets up the server's control group too, and stays outside: it costs the server nothing.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
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

/// The longest line of a request.
const REQUEST_MAX: u64 = 64;

/// Runs as the supervisor and returns the exit status of this process.
///
/// `arguments` are those after [`SUBCOMMAND`](crate::SUBCOMMAND). Standard input must be the socket
/// that streamgauge holds the other end of; standard output and error are passed on to the server.
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
    let Some(order) = Order::parse(arguments) else {
        return 104;
    };
    let Ok(socket) = io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map(UnixStream::from)
    else {
        return 104;
    };
    // Anything but a socket is a user who typed the hidden subcommand.
    if socket.local_addr().is_err() {
        return 104;
    }
    supervise(order, socket)
}

/// What the supervisor is to start.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
    /// The user and the group to run it as. Default: unchanged.
    pub(crate) user: Option<(u32, u32)>,
    /// A folder to remove at the end.
    pub(crate) scratch: Option<PathBuf>,
    /// Whether to do without a control group.
    pub(crate) no_group: bool,
}

impl Order {
    /// The arguments that say so.
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
    // That streamgauge is gone is noticed where its end of the socket is read.
    let report = |report: SupervisorMessage| {
        if let Ok(mut socket) = reports.lock() {
            let _ = socket.write_all(report.line().as_bytes());
        }
    };
    // Before the server is there: this may be told to end at any moment.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]);
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    // Before any thread is there: all of this process moves, and comes back, as one.
    let group = if order.no_group {
        Err("switched off".to_owned())
    } else {
        Cgroup::enter()
    };
    // This thread waits below for the server's end: the kernel kills the server when it ends.
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

/// Waits for every child and every orphan of theirs, until none is left.
fn reap(main: u32, report: impl Fn(SupervisorMessage)) {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) => {
                if u32::try_from(pid.as_raw_pid()) == Ok(main) {
                    let exit = match (status.exit_status(), status.terminating_signal()) {
                        (Some(code), _) => Exit::Code(code),
                        (None, Some(signal)) => Exit::Signal(signal),
                        // Neither stops nor continues are asked for.
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

/// The threads that end the server: on request, when streamgauge is gone, and when the supervisor
/// itself is told to end. They end with the process.
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
                // Nobody asked for this: the run must not take it for the server's own end.
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

/// Kills until the process ends with its last child. Again and again, as a process may start
/// another between being listed and being killed; ever more slowly, as some cannot be killed at
/// once.
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
    fn orders_survive_the_way() {
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
