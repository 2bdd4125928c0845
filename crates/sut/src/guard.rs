//! A guard over programs that must not outlive streamgauge.
//!
//! The guard is a small process that holds one end of a socket pair. When the other end closes
//! without a word, because streamgauge was killed, it kills all processes of a network namespace
//! that streamgauge made. It starts before the first of them, so none escapes.
//!
//! The programs stay in their terminal's process group, so they are not started by the supervisor
//! ([`crate::supervise_main`]). A parent-death signal (`PR_SET_PDEATHSIG` in prctl(2)) would be
//! sent at the end of the thread that starts the program.
//!
//! The guard holds the namespace open. Otherwise the kernel would remove it with its last process
//! and could give its inode to a new namespace, whose processes the guard would then kill.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::message::SUBCOMMAND;
use crate::proc;

/// First argument of a guard.
pub(crate) const ARGUMENT: &str = "--guard";

/// Message that the program ended.
const DONE: u8 = b'd';

/// Time within which processes that start meanwhile are found too.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval between searches for processes.
const SEARCH_INTERVAL: Duration = Duration::from_millis(10);

/// Kills the processes of a network namespace if this process ends before [`Guard`] is dropped.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    socket: UnixStream,
}

impl Guard {
    /// Guards an open network namespace. This process must not be in it.
    ///
    /// # Errors
    /// The guard cannot be started.
    pub fn over(network: OwnedFd) -> io::Result<Guard> {
        let (socket, theirs) = UnixStream::pair()?;
        let child = Command::new("/proc/self/exe")
            .arg0("streamgauge")
            .args([SUBCOMMAND, ARGUMENT])
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            // Not for output: the guard inherits the namespace as this descriptor.
            .stdout(network)
            .stderr(Stdio::null())
            // Ctrl-C is for the program.
            .process_group(0)
            .spawn()?;
        Ok(Guard { child, socket })
    }
}

impl Drop for Guard {
    /// Ends the guard, because the program has ended or was not started.
    fn drop(&mut self) {
        // The guard may have been killed.
        let _ = self.socket.write_all(&[DONE]);
        let _ = self.child.wait();
    }
}

/// Runs as a guard. Returns the exit status of this process.
pub(crate) fn main(mut arguments: impl Iterator<Item = OsString>) -> i32 {
    let network = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let (Ok(Ok(network)), None) = (network.map(|file| file.metadata()), arguments.next()) else {
        return 104;
    };
    let mut word = [0];
    if io::stdin().read_exact(&mut word).is_ok() {
        return 0;
    }
    let until = Instant::now() + KILL_TIMEOUT;
    while kill_all(&network) && Instant::now() < until {
        std::thread::sleep(SEARCH_INTERVAL);
    }
    0
}

/// Kills the processes of a network namespace. Returns `true` if there were any.
fn kill_all(network: &Metadata) -> bool {
    let mut found = false;
    for id in proc::processes() {
        let is_inside = || {
            let of = fs::metadata(format!("/proc/{id}/ns/net"));
            of.is_ok_and(|of| (of.dev(), of.ino()) == (network.dev(), network.ino()))
        };
        // The second check is for an ID that was reused before the pidfd was opened.
        if is_inside()
            && let Some(id) = i32::try_from(id).ok().and_then(Pid::from_raw)
            && let Ok(process) = pidfd_open(id, PidfdFlags::empty())
            && is_inside()
        {
            found = true;
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
    }
    found
}
