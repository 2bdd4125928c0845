//! Helpers of several test files.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sut::{Options, Origin, Ready, ServerSpec, Sut, SutError};

/// Program that contains the supervisor.
pub(crate) fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_sut-supervisor"))
}

/// Options of a test: the supervisor is a separate program.
pub(crate) fn options() -> Options {
    Options {
        supervisor: program(),
        ..Options::default()
    }
}

/// A server that is a shell script, ready when it prints `ready`.
pub(crate) fn script(text: &str) -> ServerSpec {
    let mut spec = command(["sh", "-c", text]);
    spec.ready = Some(Ready::Text("ready".to_owned()));
    spec
}

/// A server that is a Python program, ready when it prints `ready`.
pub(crate) fn python(text: &str) -> ServerSpec {
    let mut spec = command(["python3", "-u", "-c", text]);
    spec.ready = Some(Ready::Text("ready".to_owned()));
    spec
}

/// A server that is this command, ready at once.
pub(crate) fn command<const N: usize>(words: [&str; N]) -> ServerSpec {
    let mut spec = ServerSpec::new(Origin::Command(words.iter().map(OsString::from).collect()));
    spec.ready_timeout = Duration::from_secs(20);
    spec
}

/// Starts the server.
pub(crate) fn start(spec: &ServerSpec) -> Result<Sut, SutError> {
    Sut::start_with(spec, Path::new(""), &options(), &|_| ())
}

/// Waits until the condition holds. Panics if it does not hold in time.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "timed out waiting for: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Returns `true` if a process with this ID runs.
pub(crate) fn runs(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or("")
            .trim_start()
            .starts_with('Z')
    })
}

/// Returns a TCP port that is free now.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Returns `true` if a test is to be skipped, because it needs tools that are not part of a plain
/// system.
///
/// Panics if the tool is missing and skipping was not requested.
pub(crate) fn skip_without(tool: &str) -> bool {
    if std::env::var_os("STREAMGAUGE_TEST_WITHOUT_TOOLS").is_some() {
        return true;
    }
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .any(|folder| folder.join(tool).is_file());
    assert!(
        found,
        "this test needs {tool}; set STREAMGAUGE_TEST_WITHOUT_TOOLS to leave it out"
    );
    false
}

/// Lock for tests that measure, so that they do not disturb each other.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
