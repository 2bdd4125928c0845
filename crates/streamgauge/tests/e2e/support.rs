//! Processes that end with their test, free ports, and waiting for conditions.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// Time limit of an ordinary run.
pub(crate) const RUN_TIMEOUT: Duration = Duration::from_secs(180);

/// Health bounds that a busy machine does not exceed. Every [`Process`] sets them in its
/// environment, unless its command does: a test of a feature passes however late the tester is. The
/// bounds on losses of the tester (`overflow`, `kernel_drops`) are unchanged, because counts depend
/// on them.
pub(crate) const RELAXED_HEALTH: [(&str, &str); 10] = [
    ("CPU_WAIT", "100%"),
    ("FEEDBACK_DELAY_P99", "60s"),
    ("LAG_P99", "60s"),
    ("LATE_CLIENTS", "100%"),
    ("LINK_LATENESS_P99", "60s"),
    ("LONGEST_STALL", "60s"),
    ("SEND_LATENESS_P99", "60s"),
    ("STEAL", "100%"),
    ("WINDOWS", "100%"),
    ("WORKER_CPU", "100%"),
];

/// Packet ring for a worker that a busy machine interrupts for two seconds. The default ring holds
/// 0.6 s: 64 blocks, handed over after 10 ms each.
pub(crate) const ROOMY_RING: (&str, &str) = ("STREAMGAUGE_TESTER__RING", "32MiB");

/// Interval between checks of a condition.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Asserts that the run in a folder is one file, without the other files of a database.
#[track_caller]
pub(crate) fn assert_one_plain_file(folder: &Path) {
    let entries = fs::read_dir(folder).expect("it can be read");
    let names = entries.map(|entry| entry.expect("it can be read").file_name());
    let names: Vec<String> = names.filter_map(|name| name.into_string().ok()).collect();
    let ends = |end: &str| names.iter().filter(|name| name.ends_with(end)).count();
    let found = [".run", "-wal", "-shm"].map(ends);
    assert_eq!(found, [1, 0, 0], "{names:?}");
}

/// Creates a folder for the test, in which all its processes run.
pub(crate) fn folder() -> TempDir {
    tempfile::Builder::new()
        .prefix("streamgauge-test-")
        .tempdir()
        .expect("the system's folder for temporary files can be written")
}

/// Returns a UDP port that nobody uses; see [`unused_port`].
pub(crate) fn free_udp_port() -> u16 {
    unused_port(|port| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
}

/// Returns a TCP port on which nobody listens; see [`unused_port`].
pub(crate) fn free_port() -> u16 {
    let at = |port| (Ipv4Addr::LOCALHOST, port);
    // Some servers use UDP as well.
    unused_port(|port| TcpListener::bind(at(port)).is_ok() && UdpSocket::bind(at(port)).is_ok())
}

/// Returns a port that can be bound, a different one each time. It lies below the ports that the
/// kernel chooses for sockets (32768 and up) and below those of streamgauge's clients (16384 and
/// up), so that no other process takes it before it is used. The three ports after it are not
/// returned either: some programs listen on those as well.
fn unused_port(can_bind: impl Fn(u16) -> bool) -> u16 {
    const FIRST: u32 = 10_000;
    const STEP: u32 = 4;
    const COUNT: u32 = 6_000 / STEP;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        // Programs that run at the same time begin at different ports.
        let number = NEXT.fetch_add(1, Ordering::Relaxed) + std::process::id() % COUNT * 64;
        let port = FIRST + STEP * (number % COUNT);
        let port = u16::try_from(port).expect("it is below 16000");
        if can_bind(port) {
            return port;
        }
    }
}

/// Returns `true` if a program that no package provides is in PATH. If not, prints that the test is
/// skipped.
pub(crate) fn have_built(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        let mut out = std::io::stderr();
        let _ = writeln!(out, "left out: there is no {program} in PATH");
    }
    found
}

/// Checks a condition until it returns a value, or fails the test at the time limit.
pub(crate) fn wait_for<T>(
    what: &str,
    within: Duration,
    mut condition: impl FnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + within;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {within:?}");
        thread::park_timeout(CHECK_INTERVAL);
    }
}

/// Returns a command that runs another, such as `nsenter`: with its arguments at the end, and its
/// environment.
pub(crate) fn wrap_command(mut wrapper: Command, command: &Command) -> Command {
    wrapper.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapper.env(name, value),
            None => wrapper.env_remove(name),
        };
    }
    wrapper
}

/// Calls `act` for all items at the same time, for runs that mostly wait. All tests together run at
/// most a quarter as many items as test threads, but at least four: more would keep a hundred
/// threads waiting for a processor, and servers would fall behind.
pub(crate) fn run_concurrently<T: Sync>(items: &[T], act: impl Fn(&T) + Sync) {
    static RUNNING: Mutex<usize> = Mutex::new(0);
    static ENDED: Condvar = Condvar::new();
    /// Releases the slot, even if the item fails.
    struct Running;
    impl Running {
        fn begin(max: usize) -> Running {
            let running = RUNNING.lock().expect("nobody panics in it");
            let running = ENDED.wait_while(running, |running| *running >= max);
            *running.expect("nobody panics in it") += 1;
            Running
        }
    }
    impl Drop for Running {
        fn drop(&mut self) {
            *RUNNING.lock().expect("nobody panics in it") -= 1;
            ENDED.notify_one();
        }
    }
    let threads = std::env::var("RUST_TEST_THREADS").ok();
    let threads = threads.and_then(|threads| threads.parse::<usize>().ok());
    let max = threads.map_or(4, |threads| (threads / 4).max(4));
    thread::scope(|scope| {
        for item in items {
            scope.spawn(|| {
                let _running = Running::begin(max);
                act(item);
            });
        }
    });
}

/// A process that does not outlive the test.
pub(crate) struct Process {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
    what: String,
}

/// Result of a process that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Process {
    /// Starts a command in a folder, with its output in files there.
    pub(crate) fn start(mut command: Command, folder: &Path) -> Process {
        let what = format!("{command:?}");
        let own: BTreeSet<OsString> = command.get_envs().map(|(name, _)| name.into()).collect();
        let relaxed = RELAXED_HEALTH.map(|(bound, value)| (variable(bound), value));
        let ring = (ROOMY_RING.0.to_owned(), ROOMY_RING.1);
        for (name, value) in relaxed.into_iter().chain([ring]) {
            if !own.contains(OsStr::new(&name)) {
                command.env(name, value);
            }
        }
        let output = |kind: &str| {
            let path = tempfile::Builder::new()
                .prefix("output-")
                .suffix(kind)
                .tempfile_in(folder)
                .and_then(|file| Ok(file.keep()?.1))
                .expect("the test's folder can be written");
            let file = File::create(&path).expect("it was just made");
            (path, file)
        };
        let (stdout, stdout_file) = output(".stdout");
        let (stderr, stderr_file) = output(".stderr");
        let child = command
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(stdout_file)
            .stderr(stderr_file)
            .spawn()
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        Process {
            child,
            stdout,
            stderr,
            what,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns `true` if it is still running.
    pub(crate) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it listens on this port of TCP.
    pub(crate) fn listen(&mut self, port: u16) {
        wait_for("it listens", LISTEN_TIMEOUT, || {
            let runs = self.runs();
            assert!(runs, "it has ended: {}", self.stderr_text());
            listens(port).then_some(())
        });
    }

    /// Returns its standard error so far.
    pub(crate) fn stderr_text(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Returns its standard output so far.
    pub(crate) fn stdout_text(&self) -> String {
        fs::read_to_string(&self.stdout).unwrap_or_default()
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.id().to_string()])
            .status()
            .expect("there is a kill");
        assert!(
            sent.success(),
            "{} has ended already: {}",
            self.what,
            self.stderr_text()
        );
    }

    /// Waits until it ends.
    pub(crate) fn finish(mut self, within: Duration) -> Finished {
        let deadline = Instant::now() + within;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                break status;
            }
            assert!(
                Instant::now() < deadline,
                "{} did not end within {within:?}; it said:\n{}",
                self.what,
                self.stderr_text()
            );
            thread::park_timeout(CHECK_INTERVAL);
        };
        Finished {
            status,
            stdout: fs::read_to_string(&self.stdout).unwrap_or_default(),
            stderr: self.stderr_text(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.runs() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Finished {
    /// Asserts the exit code; shows the output if it differs.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Finished {
        assert_eq!(
            self.status.code(),
            Some(code),
            "{}\n{}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// Asserts that the error output contains a text.
    #[track_caller]
    pub(crate) fn names(self, text: &str) -> Finished {
        assert!(
            self.stderr.contains(text),
            "no `{text}` in:\n{}",
            self.stderr
        );
        self
    }
}

/// Maximum time until a server listens, also on a busy machine.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the variable that sets a health bound.
pub(crate) fn variable(bound: &str) -> String {
    format!("STREAMGAUGE_TESTER__HEALTH__{bound}")
}

/// Returns the command under test. [`Process::start`] relaxes its health bounds.
pub(crate) fn streamgauge<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
    command.args(arguments).env("NO_COLOR", "1");
    command
}

/// Returns the command under test with relaxed health bounds except for one, such as
/// `LONGEST_STALL`, which a test makes the tester exceed.
pub(crate) fn streamgauge_with_bound<S: AsRef<OsStr>>(
    (bound, value): (&str, &str),
    arguments: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = streamgauge(arguments);
    command
        .env(variable(bound), value)
        .env_remove(variable("WINDOWS"));
    command
}

/// Runs the command to its end.
pub(crate) fn run<S: AsRef<OsStr>>(
    folder: &Path,
    arguments: impl IntoIterator<Item = S>,
) -> Finished {
    Process::start(streamgauge(arguments), folder).finish(RUN_TIMEOUT)
}

/// A reference server on a port of its own.
pub(crate) struct Server {
    process: Process,
    pub(crate) port: u16,
    report: PathBuf,
}

/// Totals of the reference server over all streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) expected: u64,
    pub(crate) received: u64,
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    pub(crate) reordered: u64,
}

impl Server {
    /// Starts a server with additional arguments and waits until it listens.
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Server {
        let port = free_port();
        let report = folder.join(format!("served-{port}.jsonl"));
        let mut command = streamgauge(["serve", "rtsp", "--port", &port.to_string(), "--report"]);
        command.arg(&report).args(arguments);
        let mut process = Process::start(command, folder);
        process.listen(port);
        Server {
            process,
            port,
            report,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("rtsp://127.0.0.1:{}/1", self.port)
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Stops the server. Returns its report about each stream, and the totals.
    pub(crate) fn stop(self) -> (Vec<Value>, Counts) {
        self.process.signal("TERM");
        let report = self.report.clone();
        self.process.finish(Duration::from_secs(60));
        let text = fs::read_to_string(&report).expect("the server wrote its report");
        let mut streams: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("a line of JSON each"))
            .collect();
        let last: Value = streams
            .pop()
            .expect("it ends with how it kept its schedule");
        let paced = &last["pacing"];
        assert!(
            number(&paced["in_bursts"]) <= number(&paced["packets"]),
            "{last}"
        );
        let sum = |name: &str| streams.iter().map(|stream| number(&stream[name])).sum();
        let counts = Counts {
            expected: sum("expected"),
            received: sum("sent"),
            lost: sum("lost"),
            duplicated: sum("duplicated"),
            reordered: sum("reordered"),
        };
        (streams, counts)
    }
}

/// Returns `true` if a process listens on a TCP port. Asks the kernel, because a connection would
/// be one more client. Its table of all connections would take it milliseconds.
pub(crate) fn listens(port: u16) -> bool {
    let mut ask = Command::new("ss");
    ask.args(["-Hltn", "sport", "=", &format!(":{port}")]);
    !ask.output()
        .expect("iproute2 is installed")
        .stdout
        .is_empty()
}

/// Returns the number of TCP connections to a server on this port.
pub(crate) fn established(port: u16) -> usize {
    let table = fs::read_to_string("/proc/net/tcp").expect("Linux has it");
    // The table is missing without IPv6.
    let table_6 = fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
    let local = format!(":{port:04X}");
    let lines = table.lines().skip(1).chain(table_6.lines().skip(1));
    lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields[1].ends_with(&local) && fields[3] == "01")
        .count()
}

/// A report in JSON.
pub(crate) struct Report(pub(crate) Value);

impl Report {
    pub(crate) fn read(path: &Path) -> Report {
        let text =
            fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Report::parse(&text)
    }

    pub(crate) fn parse(text: &str) -> Report {
        Report(serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}")))
    }

    pub(crate) fn result(&self) -> &str {
        self.0["verdict"]["result"]
            .as_str()
            .expect("a verdict is a word")
    }

    /// Returns the population of `load`: `viewers`, or `senders` of messages.
    fn population(&self) -> &Value {
        let populations = &self.0["populations"];
        populations
            .get("viewers")
            .unwrap_or(&populations["senders"])
    }

    /// Returns the number of clients in a state: `started`, `completed`, ...
    pub(crate) fn clients(&self, how: &str) -> u64 {
        number(&self.population()["clients"][how])
    }

    /// Returns the number of clients that failed for a reason.
    pub(crate) fn failures(&self, reason: &str) -> u64 {
        let failures = &self.population()["clients"]["failures"];
        failures[reason].as_u64().unwrap_or(0)
    }

    pub(crate) fn metric(&self, name: &str) -> &Value {
        &self.population()["metrics"][name]
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            expected: number(self.metric("expected")),
            received: number(self.metric("received")),
            lost: number(self.metric("lost")),
            duplicated: number(self.metric("duplicated")),
            reordered: number(self.metric("reordered")),
        }
    }

    /// Asserts that the tester lost nothing itself, so that any difference is a wrong count.
    #[track_caller]
    pub(crate) fn tester_was_fit(&self) {
        assert_eq!(
            number(&self.0["tester"]["overflow"]),
            0,
            "{}",
            self.0["tester"]
        );
        assert_ne!(self.result(), "invalid", "{}", self.0["verdict"]);
    }
}

/// Asserts that most of the packets that a real server should pass on arrived. It drops some if it
/// gets no processor for a second or two.
#[track_caller]
pub(crate) fn assert_most_arrived(received: u64, expected: u64) {
    assert!(
        received <= expected && received > expected - expected / 4,
        "{received} of {expected}"
    );
}

/// Reads a JSON file.
pub(crate) fn read_json(path: &Path) -> Value {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[track_caller]
pub(crate) fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("not a count: {value}"))
}

/// Returns `true` if a program that a test needs is in PATH. If it is missing, the test fails
/// unless the environment permits to leave it out.
pub(crate) fn have(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    assert!(
        found || std::env::var_os("STREAMGAUGE_TEST_WITHOUT_TOOLS").is_some(),
        "{program} is missing: ./test installs it; set STREAMGAUGE_TEST_WITHOUT_TOOLS to leave it out"
    );
    found
}
