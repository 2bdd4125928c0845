//! Start, readiness and end of a server.

mod common;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{command, free_port, options, program, python, runs, script, start, until};
use rustix::process::{Pid, Signal, kill_process};
use sut::{Exit, PortOwner, Progress, Ready, Sut, SutError, Transport};

fn kill(pid: u32) {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

#[test]
fn ready_by_port() {
    let port = free_port();
    let mut spec = command([
        "python3",
        "-m",
        "http.server",
        "--bind",
        "127.0.0.1",
        &port.to_string(),
    ]);
    spec.ready = Some(Ready::tcp(port));
    spec.directory = Some(".".into());
    let seen = std::cell::RefCell::new(Vec::new());
    let base = tempfile::tempdir().unwrap();
    let sut = Sut::start_with(&spec, base.path(), &options(), &|step| {
        seen.borrow_mut().push(step)
    })
    .unwrap();
    assert_eq!(sut.owns_port(port, Transport::Tcp), PortOwner::Ours);
    assert_eq!(sut.owns_port(port, Transport::Udp), PortOwner::Nobody);
    assert!(matches!(
        seen.borrow()[..],
        [
            Progress::Starting { .. },
            Progress::WaitingFor { .. },
            Progress::Ready { .. }
        ]
    ));
    assert_eq!(
        std::fs::read_link(format!(
            "/proc/{}/cwd",
            sut.pid().expect("it is on this machine")
        ))
        .unwrap(),
        base.path()
    );
    let tree = sut.processes();
    assert!(tree.contains(&sut.pid().expect("it is on this machine")));
    assert_eq!(sut.has_exited(), None);
    let report = sut.stop();
    assert_eq!(
        (report.exit, report.killed),
        (Some(Exit::Signal(15)), false)
    );
    assert!(!report.ended_by_itself && report.left_over.is_empty());
    assert!(tree.into_iter().all(|pid| !runs(pid)));
    TcpListener::bind(("127.0.0.1", port)).unwrap();
}

#[test]
fn ready_by_udp_port() {
    let port = free_port();
    let mut spec = python(&format!(
        "import socket, threading\ns = socket.socket(type=socket.SOCK_DGRAM)\ns.bind(('127.0.0.1', {port}))\ns.recv(1)"
    ));
    spec.ready = Some(Ready::Port {
        address: ([127, 0, 0, 1], port).into(),
        transport: Transport::Udp,
    });
    let sut = start(&spec).unwrap();
    assert_eq!(sut.owns_port(port, Transport::Udp), PortOwner::Ours);
}

#[test]
fn ready_by_a_line_of_either_output() {
    for output in [1, 2] {
        let mut spec = script(&format!(
            "echo wait >&{output}; echo now listening on :99 >&{output}; exec tail -f /dev/null"
        ));
        spec.ready = Some(Ready::Pattern("listening on :[0-9]+$".to_owned()));
        let sut = start(&spec).unwrap();
        assert_eq!(sut.log_tail(), "wait\nnow listening on :99\n");
    }
}

#[test]
fn environment_is_set_and_input_is_empty() {
    let mut spec = script(
        "echo value=$SUT_TEST; read line || echo no input; echo ready; exec tail -f /dev/null",
    );
    spec.environment.push(("SUT_TEST".into(), "a b".into()));
    let sut = start(&spec).unwrap();
    assert_eq!(sut.log_tail(), "value=a b\nno input\nready\n");
}

#[test]
fn a_port_in_use_names_its_owner() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut spec = command(["tail", "-f", "/dev/null"]);
    spec.ready = Some(Ready::tcp(port));
    match start(&spec).unwrap_err() {
        SutError::PortInUse {
            port: named,
            pid,
            name,
            ..
        } => {
            assert_eq!((named, pid), (port, std::process::id()));
            assert_eq!(
                name,
                std::fs::read_to_string("/proc/self/comm").unwrap().trim()
            );
        }
        other => panic!("{other}"),
    }
}

#[test]
fn port_taken_during_the_start_names_its_owner() {
    let mut spec = command(["tail", "-f", "/dev/null"]);
    // A port that was free may be in use when the launch checks it. Another port is tried then.
    let mut errors = (0..10).map(|_| {
        let port = free_port();
        spec.ready = Some(Ready::tcp(port));
        let listener = std::cell::RefCell::new(None);
        let take = |step| {
            if matches!(step, Progress::Starting { .. }) {
                *listener.borrow_mut() = TcpListener::bind(("127.0.0.1", port)).ok();
            }
        };
        Sut::start_with(&spec, "".as_ref(), &options(), &take).unwrap_err()
    });
    let error = errors
        .find(|error| {
            !matches!(
                error,
                SutError::PortInUse { .. } | SutError::PortInUseByUnknown { .. }
            )
        })
        .expect("one of ten ports stays free");
    assert!(
        matches!(error, SutError::PortOfAnother { pid, .. } if pid == std::process::id()),
        "{error}"
    );
}

#[test]
fn early_end_reports_status_and_output() {
    let spec = script("echo starting; echo the configuration is broken >&2; exit 3");
    let error = start(&spec).unwrap_err().to_string();
    assert!(
        error.contains("exit status 3") && error.contains("the configuration is broken"),
        "{error}"
    );
    let error = start(&script("kill -SEGV $$")).unwrap_err().to_string();
    assert!(
        error.contains("killed by SIGSEGV") && error.contains("printed nothing"),
        "{error}"
    );
    // A successful exit is an error, too.
    let error = start(&script("true")).unwrap_err().to_string();
    assert!(error.contains("exit status 0"), "{error}");
}

#[test]
fn server_that_is_not_ready_in_time_is_ended() {
    let mut spec = script("echo $$; exec tail -f /dev/null");
    spec.ready_timeout = Duration::from_millis(300);
    match start(&spec).unwrap_err() {
        SutError::NotReady {
            waited_for, log, ..
        } => {
            assert!(waited_for.contains("`ready`"));
            let pid = log.trim().parse().unwrap();
            until("it is ended", || !runs(pid));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn failed_starts_report_the_reason() {
    let error = start(&command(["no-such-program-here"])).unwrap_err();
    assert!(matches!(error, SutError::Spawn { .. }), "{error}");
    assert!(error.to_string().contains("No such file"), "{error}");
    assert!(matches!(
        start(&command([])).unwrap_err(),
        SutError::Unusable(_)
    ));
    let mut spec = script("true");
    spec.ready = Some(Ready::Pattern("(".to_owned()));
    assert!(matches!(
        start(&spec).unwrap_err(),
        SutError::BadPattern { .. }
    ));
    let mut spec = script("true");
    spec.directory = Some("/no/such/folder".into());
    assert!(
        start(&spec)
            .unwrap_err()
            .to_string()
            .contains("/no/such/folder")
    );
}

#[test]
fn starting_can_be_cancelled() {
    let options = options();
    let cancelled = options.cancelled.clone();
    let cancel = |step| {
        if matches!(step, Progress::WaitingFor { .. }) {
            cancelled.store(true, Ordering::Relaxed);
        }
    };
    let spec = script("exec tail -f /dev/null");
    let error = Sut::start_with(&spec, "".as_ref(), &options, &cancel).unwrap_err();
    assert!(matches!(error, SutError::Cancelled), "{error}");
}

#[test]
fn server_that_ignores_sigterm_is_killed() {
    let mut spec =
        script("trap '' TERM; echo ready; while :; do read x </dev/null; tail -f /dev/null; done");
    spec.stop_within = Duration::from_millis(100);
    let sut = start(&spec).unwrap();
    let tree = sut.processes();
    let report = sut.stop();
    assert!(report.killed && report.left_over.is_empty());
    assert_eq!(report.exit, Some(Exit::Signal(9)));
    assert!(tree.into_iter().all(|pid| !runs(pid)));
}

/// Prints its children: one in its own session, one that left for another session. `tail` does not
/// write to the pipe: it ends if nobody reads from it.
const DETACHED: &str = "tail -f /dev/null >/dev/null & echo $!; \
    (setsid sh -c 'trap \"\" TERM HUP; echo $$; tail -f /dev/null >/dev/null & echo $!; echo ready; wait' &) ; wait";

#[test]
fn detached_grandchildren_are_ended_too() {
    for no_cgroup in [false, true] {
        let options = sut::Options {
            no_cgroup,
            ..options()
        };
        let mut spec = script(DETACHED);
        spec.stop_within = Duration::from_millis(500);
        let sut = Sut::start_with(&spec, "".as_ref(), &options, &|_| ()).unwrap();
        let mut printed = Vec::new();
        until("all are named", || {
            printed = sut
                .log_tail()
                .lines()
                .filter_map(|line| line.parse::<u32>().ok())
                .collect();
            printed.len() == 3
        });
        let tree = sut.processes();
        assert!(
            printed.iter().all(|pid| tree.contains(pid)),
            "{printed:?} {tree:?}"
        );
        assert!(sut.stop().left_over.is_empty());
        assert!(printed.into_iter().all(|pid| !runs(pid)));
    }
}

#[test]
fn server_in_the_background_lives_on() {
    let sut = start(&script("(tail -f /dev/null &); echo ready")).unwrap();
    until("its first process ends", || {
        !runs(sut.pid().expect("it is on this machine"))
    });
    assert_eq!(sut.has_exited(), None);
    let tree = sut.processes();
    assert_eq!(tree.len(), 1);
    sut.stop();
    assert!(!runs(tree[0]));
}

#[test]
fn a_crash_is_noticed() {
    let sut = start(&script("echo ready; exec tail -f /dev/null")).unwrap();
    kill(sut.pid().expect("it is on this machine"));
    until("the crash is noticed", || sut.has_exited().is_some());
    assert_eq!(sut.has_exited().unwrap(), "killed by SIGKILL");
    let report = sut.stop();
    assert!(report.ended_by_itself && !report.killed);
}

#[test]
fn killed_supervisor_leaves_no_processes() {
    let sut = start(&script(
        "tail -f /dev/null & echo ready; exec tail -f /dev/null",
    ))
    .unwrap();
    let tree = sut.processes();
    assert_eq!(tree.len(), 2);
    assert_eq!(sut.supervisor_lost(), None);
    kill(supervisor_of(&sut));
    until("its end is noticed", || sut.has_exited().is_some());
    assert_eq!(sut.supervisor_lost().as_deref(), Some("it was killed"));
    // At once, not only at the end of the run.
    until("nothing of it runs", || tree.iter().all(|&pid| !runs(pid)));
    assert!(sut.stop().left_over.is_empty());
}

/// Returns the process between this one and the server.
fn supervisor_of(sut: &Sut) -> u32 {
    let pid = sut.pid().expect("it is on this machine");
    parent_of(pid)
}

fn parent_of(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.split(' ').nth(3).unwrap().parse().unwrap()
}

#[test]
fn interrupted_supervisor_is_not_an_end_of_the_server() {
    let sut = start(&script("echo ready; exec tail -f /dev/null")).unwrap();
    let pid = Pid::from_raw(supervisor_of(&sut).try_into().unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    until("its end is noticed", || sut.has_exited().is_some());
    let how = sut.supervisor_lost();
    assert_eq!(how.as_deref(), Some("it was killed by SIGTERM"));

    let sut = start(&script("echo ready; exec tail -f /dev/null")).unwrap();
    kill(sut.pid().expect("it is on this machine"));
    until("its end is noticed", || sut.has_exited().is_some());
    until("nothing is left", || sut.processes().is_empty());
    assert_eq!(sut.supervisor_lost(), None, "the server alone was killed");
}

#[test]
fn a_dropped_server_is_ended() {
    let sut = start(&script("echo ready; exec tail -f /dev/null")).unwrap();
    let pid = sut.pid().expect("it is on this machine");
    drop(sut);
    assert!(!runs(pid));
}

/// A streamgauge process that launched a server with detached grandchildren.
struct Holder {
    process: Child,
    /// Processes of the server.
    tree: Vec<u32>,
    /// The server's own process.
    server: u32,
    supervisor: u32,
    /// Control group of the server, if it has one.
    group: Option<PathBuf>,
}

impl Holder {
    fn start(options: &[&str]) -> Holder {
        let mut process = Command::new(program())
            .arg("hold")
            .args(options)
            .args(["sh", "-c", DETACHED])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let tree: Vec<u32> = line
            .split_whitespace()
            .map(|pid| pid.parse().unwrap())
            .collect();
        assert!(tree.len() >= 3, "{line}");
        assert!(tree.iter().all(|&pid| runs(pid)));
        // A detached child is also a child of the supervisor by now.
        let is_supervised = |&pid: &u32| parent_of(parent_of(pid)) == process.id();
        let server = tree.iter().copied().filter(is_supervised).min().unwrap();
        let supervisor = parent_of(server);
        let membership = std::fs::read_to_string(format!("/proc/{server}/cgroup")).unwrap();
        let name = membership
            .lines()
            .find_map(|line| Some(line.rsplit_once("/streamgauge-")?.1.to_owned()));
        let group = name.map(|name| {
            ["cpuacct", "cpu,cpuacct", "unified", ""]
                .map(|mount| PathBuf::from(format!("/sys/fs/cgroup/{mount}/streamgauge-{name}")))
                .into_iter()
                .find(|path| path.exists())
                .expect("it is below one of the usual mounts")
        });
        Holder {
            process,
            tree,
            server,
            supervisor,
            group,
        }
    }

    /// Kills streamgauge and the supervisor, which has no chance to clean up.
    fn kill_both(&self) {
        let stopped = Pid::from_raw(self.supervisor.try_into().unwrap()).unwrap();
        kill_process(stopped, Signal::STOP).unwrap();
        kill(self.process.id());
        kill(self.supervisor);
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // Left over by a failed test.
        let left = self.tree.iter().filter(|&&pid| runs(pid));
        left.for_each(|&pid| kill(pid));
    }
}

#[test]
fn sigkill_of_streamgauge_leaves_no_processes() {
    let mut holder = Holder::start(&[]);
    holder.process.kill().unwrap();
    holder.process.wait().unwrap();
    until("all of it is gone", || {
        holder.tree.iter().all(|&pid| !runs(pid))
    });
    until("the supervisor is gone", || !runs(holder.supervisor));
    if let Some(group) = &holder.group {
        assert!(!group.exists(), "{}", group.display());
    }
}

/// Without a control group, so that the supervisor of another test does not remove it.
#[test]
fn the_server_ends_with_streamgauge_and_supervisor() {
    let mut option_lists = vec![vec!["--no-group"]];
    if rustix::process::geteuid().is_root() {
        option_lists.push(vec!["--no-group", "--nobody"]);
    }
    for options in option_lists {
        let holder = Holder::start(&options);
        holder.kill_both();
        until("the server's own process is gone", || !runs(holder.server));
    }
}

#[test]
fn next_start_clears_orphaned_processes() {
    let holder = Holder::start(&[]);
    let Some(group) = &holder.group else {
        return;
    };
    holder.kill_both();
    until("the supervisor is gone", || !runs(holder.supervisor));
    let mut next = start(&script("echo ready; exec tail -f /dev/null")).unwrap();
    // A start waits some time for the processes that it kills. On a busy machine that may be too
    // short.
    until("the group is gone", || {
        let gone = !group.exists();
        if !gone {
            next = start(&script("echo ready; exec tail -f /dev/null")).unwrap();
        }
        gone
    });
    assert!(holder.tree.iter().all(|&pid| !runs(pid)));
    assert!(next.processes().iter().all(|&pid| runs(pid)));
}

/// The kernel shifts the start time of every process by the clock of the reader, so the first
/// supervisor has another start time there.
#[test]
fn run_in_another_time_namespace_spares_the_server() {
    let other_clock = || {
        let mut command = Command::new("unshare");
        command.args(["--time", "--boottime", "100000", "--fork"]);
        command
    };
    let possible = other_clock().arg("true").status();
    if !possible.is_ok_and(|status| status.success()) {
        return;
    }
    let holder = Holder::start(&[]);
    let status = other_clock()
        .arg(program())
        .args(["hold", "sh", "-c", "echo ready; exec tail -f /dev/null"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    assert!(holder.tree.iter().all(|&pid| runs(pid)));
    assert!(holder.group.as_ref().is_none_or(|group| group.exists()));
}

/// Returns the variables of a server that ends as `tail`, and its user and groups, as /proc shows
/// them.
fn seen_by_proc(sut: &Sut) -> (Vec<String>, String) {
    let pid = sut.pid().unwrap();
    let mut environment = Vec::new();
    // A read of the environment ends early if the shell executes `tail` meanwhile.
    until("it executes tail", || {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap() == "tail\n"
    });
    // The environment is empty until `tail` is set up.
    until("it has an environment", || {
        environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        !environment.is_empty()
    });
    let mut names: Vec<String> = String::from_utf8(environment)
        .unwrap()
        .split_terminator('\0')
        .map(str::to_owned)
        .collect();
    names.sort();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let user: Vec<&str> = status
        .lines()
        .filter(|line| {
            ["Uid:", "Gid:", "Groups:"]
                .iter()
                .any(|key| line.starts_with(key))
        })
        .map(str::trim)
        .collect();
    (names, user.join("|"))
}

#[test]
fn server_gets_only_listed_variables() {
    let mut spec = script("echo ready; exec tail -f /dev/null");
    spec.environment.push(("SUT_TEST".into(), "1".into()));
    let sut = start(&spec).unwrap();
    let (variables, _) = seen_by_proc(&sut);
    assert!(
        variables.contains(&"SUT_TEST=1".to_owned()),
        "{variables:?}"
    );
    // The test itself has many variables of cargo.
    assert!(std::env::vars().any(|(name, _)| name.starts_with("CARGO")));
    for variable in variables {
        let name = variable.split('=').next().unwrap();
        // A shell adds PWD and the like.
        let by_shell = ["PWD", "OLDPWD", "SHLVL", "_", "SUT_TEST"].contains(&name);
        let passed_on = sut::PASSED_ON_VARIABLES.contains(&name) || name.starts_with("LC_");
        assert!(by_shell || passed_on, "{variable}");
    }
}

#[test]
fn server_runs_as_the_named_user() {
    let mut spec = script("echo ready; exec tail -f /dev/null");
    spec.user = Some("65534".to_owned());
    if !rustix::process::geteuid().is_root() {
        let error = start(&spec).unwrap_err().to_string();
        assert!(
            error.contains("only root") && error.contains("user"),
            "{error}"
        );
        return;
    }
    spec.environment.push(("HOME".into(), "/own".into()));
    let sut = start(&spec).unwrap();
    let (variables, user) = seen_by_proc(&sut);
    let number = "65534\t65534\t65534\t65534";
    assert_eq!(user, format!("Uid:\t{number}|Gid:\t{number}|Groups:"));
    assert!(variables.contains(&"HOME=/own".to_owned()), "{variables:?}");
    assert!(
        variables.contains(&"USER=nobody".to_owned()),
        "{variables:?}"
    );
    drop(sut);

    spec.user = Some("no-such-user".to_owned());
    let error = start(&spec).unwrap_err().to_string();
    assert!(error.contains("no user `no-such-user`"), "{error}");

    // A program that this user cannot access: the error names the solution.
    let closed = tempfile::tempdir().unwrap();
    std::fs::set_permissions(
        closed.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o700),
    )
    .unwrap();
    let path = closed.path().join("server");
    std::fs::copy("/bin/sh", &path).unwrap();
    let mut spec = command([path.to_str().unwrap(), "-c", "true"]);
    spec.user = Some("nobody".to_owned());
    let error = start(&spec).unwrap_err().to_string();
    assert!(
        error.contains("user 65534 may not execute it") && error.contains("`user: root`"),
        "{error}"
    );
}
