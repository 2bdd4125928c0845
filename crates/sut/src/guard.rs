//! A guard over a program that must not outlive streamgauge.
//!
//! The guard is a small process that holds one end of a socket pair. When the other end closes
//! without a word, because streamgauge was killed, it kills the program. The program itself stays
//! in its terminal's process group, so it is not started by the supervisor
//! ([`crate::supervise_main`]). A parent-death signal (`PR_SET_PDEATHSIG` in prctl(2)) would come
//! at the end of the thread that starts the program.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::message::SUBCOMMAND;

/// First argument of a guard.
pub(crate) const ARGUMENT: &str = "--guard";

/// Message that the program ended.
const DONE: u8 = b'd';

/// Kills a program if this process ends before [`Guard::release`].
#[derive(Debug)]
pub struct Guard {
    child: Child,
    socket: UnixStream,
}

impl Guard {
    /// Guards a program, which must be a child that was not waited for.
    ///
    /// # Errors
    /// The guard cannot be started.
    pub fn over(program: Pid) -> io::Result<Guard> {
        let (socket, theirs) = UnixStream::pair()?;
        let child = Command::new("/proc/self/exe")
            .arg0("streamgauge")
            .args([SUBCOMMAND, ARGUMENT])
            .arg(program.as_raw_nonzero().to_string())
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is for the program.
            .process_group(0)
            .spawn()?;
        Ok(Guard { child, socket })
    }

    /// Ends the guard, because the program has ended.
    pub fn release(mut self) {
        // If the guard was killed, there is nobody to tell.
        let _ = self.socket.write_all(&[DONE]);
        let _ = self.child.wait();
    }
}

/// Runs as a guard. Returns the exit status of this process.
pub(crate) fn main(mut arguments: impl Iterator<Item = OsString>) -> i32 {
    let number = arguments.next().and_then(|own| own.to_str()?.parse().ok());
    let Some(program) = number.and_then(Pid::from_raw) else {
        return 104;
    };
    // A pidfd names the program even if its number is used again.
    let Ok(program) = pidfd_open(program, PidfdFlags::empty()) else {
        return 0;
    };
    let mut word = [0];
    if io::stdin().read_exact(&mut word).is_err() {
        let _ = pidfd_send_signal(program, Signal::KILL);
    }
    0
}
