//! Use of the machine by one test, or by several that hardly load it.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::support::{
    Finished, Process, RELAXED_HEALTH, ROOMY_RING, RUN_TIMEOUT, streamgauge, variable, wrap_command,
};

static MACHINE: RwLock<()> = RwLock::new(());

/// Lock of a test that loads the machine, or needs all of it.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    // A failed test leaves nothing behind that could disturb the next.
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Lock of a test that takes a few percent of a core. Others like it run at the same time.
pub(crate) fn among_light_tests() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the command under test with its default health bounds.
pub(crate) fn strict<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = streamgauge(arguments);
    command.env_remove(ROOMY_RING.0);
    for (bound, _) in RELAXED_HEALTH {
        command.env_remove(variable(bound));
    }
    command
}

/// Runs the command with its default health bounds, ahead of all programs of normal priority.
pub(crate) fn run_first<S: AsRef<OsStr>>(
    folder: &Path,
    arguments: impl IntoIterator<Item = S>,
) -> Finished {
    Process::start(first(&strict(arguments)), folder).finish(RUN_TIMEOUT)
}

/// Returns the command with real-time priority, if this user may set it: programs of normal
/// priority then do not delay it.
pub(crate) fn first(command: &Command) -> Command {
    const CHRT: [&str; 3] = ["chrt", "--rr", "1"];
    let may = Command::new(CHRT[0])
        .args(&CHRT[1..])
        .arg("true")
        .output()
        .is_ok_and(|output| output.status.success());
    let mut first = Command::new(if may { CHRT[0] } else { "env" });
    if may {
        first.args(&CHRT[1..]);
    }
    wrap_command(first, command)
}
