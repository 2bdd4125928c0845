//! The stage: the server's process before it executes the server's program.
//!
//! The supervisor cannot make these settings for its child, and code that runs between fork and
//! exec would be `unsafe`. The child is therefore this executable once more. It changes its user,
//! requests SIGKILL for the death of the supervisor, and then executes the server's program under
//! the same process ID.
//!
//! The order matters: a change of user clears the parent-death signal (PR_SET_PDEATHSIG in
//! prctl(2)), so the signal is set after it. Executing a program that is set-user-ID, set-group-ID
//! or has file capabilities clears it too: only the supervisor and the control group end such a
//! server. The signal is sent when the parent *thread* ends: the supervisor starts the stage from
//! its first thread, which lives as long as the process. Children of the server do not inherit the
//! signal.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Gid, Pid, Signal, Uid};

use crate::message::SUBCOMMAND;

/// The first argument after [`SUBCOMMAND`] that makes a process the stage.
pub(crate) const ARGUMENT: &str = "--exec";

/// Maximum length of the message of a failed stage, in bytes.
const MESSAGE_MAX: u64 = 4 * 1024;

/// Task of the stage.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Stage {
    /// Process ID of the supervisor.
    pub(crate) parent: u32,
    /// User and group to run as. Default: unchanged.
    pub(crate) user: Option<(u32, u32)>,
    /// Program and arguments.
    pub(crate) command: Vec<OsString>,
}

impl Stage {
    /// Starts the command as a child of the calling thread, which must live as long as the process.
    /// Returns when the command's program runs.
    ///
    /// # Errors
    /// The reason why the program cannot be started.
    pub(crate) fn start(&self) -> Result<Child, String> {
        let text = |error: io::Error| error.to_string();
        let (ours, theirs) = UnixStream::pair().map_err(text)?;
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("streamgauge")
            .args([SUBCOMMAND, ARGUMENT])
            .args(self.arguments())
            .stdin(OwnedFd::from(theirs))
            // Own process group: a server that signals its whole group does not reach the
            // supervisor.
            .process_group(0);
        let mut child = command.spawn().map_err(text)?;
        // Closes our copy of the child's end. The child's own copies are closed on exec.
        drop(command);
        let mut message = Vec::new();
        let read = ours.take(MESSAGE_MAX).read_to_end(&mut message);
        if read.is_ok() && message.is_empty() {
            return Ok(child);
        }
        let _ = child.kill();
        let _ = child.wait();
        Err(String::from_utf8_lossy(&message).into_owned())
    }

    fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec![self.parent.to_string().into()];
        if let Some((user, group)) = self.user {
            arguments.extend(["--user".into(), user.to_string().into()]);
            arguments.push(group.to_string().into());
        }
        arguments.push("--".into());
        arguments.extend(self.command.iter().cloned());
        arguments
    }

    fn parse(arguments: impl IntoIterator<Item = OsString>) -> Option<Stage> {
        let mut arguments = arguments.into_iter();
        let mut number = || -> Option<u32> { arguments.next()?.to_str()?.parse().ok() };
        let mut stage = Stage {
            parent: number()?,
            ..Stage::default()
        };
        let mut word = arguments.next()?;
        if word == OsStr::new("--user") {
            let mut number = || -> Option<u32> { arguments.next()?.to_str()?.parse().ok() };
            stage.user = Some((number()?, number()?));
            word = arguments.next()?;
        }
        if word != OsStr::new("--") {
            return None;
        }
        stage.command = arguments.collect();
        (!stage.command.is_empty()).then_some(stage)
    }

    /// Executes the command. Returns only on failure, with the reason.
    fn execute(&self) -> String {
        if let Some((user, group)) = self.user
            && let Err(error) = become_user(user, group)
        {
            return format!("cannot switch to user {user}: {error}");
        }
        if let Err(error) = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
            return format!("cannot request a signal for the supervisor's end: {error}");
        }
        // The supervisor may have died before the signal was requested.
        let parent = rustix::process::getppid().map(Pid::as_raw_pid);
        if parent.and_then(|pid| u32::try_from(pid).ok()) != Some(self.parent) {
            return "the supervisor has ended".to_owned();
        }
        let error = Command::new(&self.command[0])
            .args(&self.command[1..])
            .stdin(Stdio::null())
            .exec();
        match (error.kind(), self.user) {
            (io::ErrorKind::PermissionDenied, Some((user, _))) => format!(
                "{error}: user {user} may not execute it; move the program to where that user can \
                 access it, or set `user: root` under `server`"
            ),
            _ => error.to_string(),
        }
    }
}

/// Changes to a user and group, and drops all other groups. This process has one thread.
fn become_user(user: u32, group: u32) -> rustix::io::Result<()> {
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_gid(Gid::from_raw(group))?;
    rustix::thread::set_thread_uid(Uid::from_raw(user))
}

/// Runs as the stage. Returns the exit status if it cannot become the server. `arguments` are those
/// after [`ARGUMENT`]; standard input must be a socket of the supervisor.
pub(crate) fn main(arguments: impl IntoIterator<Item = OsString>) -> i32 {
    let (Some(stage), Some(mut socket)) = (Stage::parse(arguments), standard_input()) else {
        return 104;
    };
    // The socket is closed on exec, which tells the supervisor that the program runs.
    let message = stage.execute();
    let _ = socket.write_all(message.as_bytes());
    1
}

/// Returns a copy of standard input, closed on exec. `None` if it is not a socket: a user has typed
/// the hidden subcommand.
pub(crate) fn standard_input() -> Option<UnixStream> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().ok()?);
    socket.local_addr().is_ok().then_some(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stage_arguments_round_trip() {
        for user in [None, Some((65534, 7))] {
            let stage = Stage {
                parent: 42,
                user,
                command: vec!["vlc".into(), "--".into(), "--user".into()],
            };
            assert_eq!(Stage::parse(stage.arguments()), Some(stage));
        }
    }

    #[test]
    fn bad_stages_are_refused() {
        for arguments in [
            &[][..],
            &["--", "a"],
            &["1", "--"],
            &["1", "--user", "2", "--", "a"],
            &["1", "a"],
        ] {
            let arguments = arguments.iter().map(OsString::from);
            assert_eq!(Stage::parse(arguments), None);
        }
    }
}
