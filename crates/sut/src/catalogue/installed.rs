//! Installed programs and their versions. The programs are run within limits to find out.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use regex_lite::Regex;
use rustix::process::{Pid, Signal, kill_process_group};
use scenario::ServerEntry;

use super::server_files::{find_program, find_program_for};
use crate::error::SutError;
use crate::user::{self, User};

/// Time limit of a command that probes a program or prints its version.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of output bytes that are read.
const BYTES_MAX: u64 = 16 * 1024;

/// Maximum length of a version that is shown, in characters.
const VERSION_MAX: usize = 40;

/// Returns the first of the entry's programs that is installed here with all its dependencies. It
/// is probed as the default user of the entry, or else as our own user.
pub fn installed(entry: &ServerEntry) -> Option<PathBuf> {
    let user = default_user(entry);
    installed_for(entry, user.as_ref()).or_else(|| user.and_then(|_| installed_for(entry, None)))
}

/// Returns the default user of an entry's programs; `None`: our own user.
pub(super) fn default_user(entry: &ServerEntry) -> Option<User> {
    match entry.needs_root {
        Some(_) => None,
        None => User::unprivileged(),
    }
}

/// Returns the first installed program of the entry, probed as `user`.
pub(super) fn installed_for(entry: &ServerEntry, user: Option<&User>) -> Option<PathBuf> {
    entry
        .programs
        .iter()
        .filter_map(|name| find_program_for(name, user))
        .find(|program| {
            let probe = entry.probe.as_ref();
            let run = |words: &[String]| run_command(entry, program, words, user);
            probe.is_none_or(|words| run(words).is_some_and(|answer| answer.success))
        })
}

/// Returns the version that the program prints; `None` if it prints none, or the entry has no
/// command.
///
/// # Errors
/// If the entry's pattern is not a regular expression.
pub fn version(entry: &ServerEntry, program: &Path) -> Result<Option<String>, SutError> {
    let Some(version) = &entry.version else {
        return Ok(None);
    };
    let pattern = Regex::new(&version.pattern).map_err(|error| SutError::BadPattern {
        pattern: version.pattern.clone(),
        reason: error.to_string(),
    })?;
    let user = default_user(entry);
    let answer = run_command(entry, program, &version.command, user.as_ref());
    Ok(answer.and_then(|answer| find(&pattern, &answer.output)))
}

fn find(pattern: &Regex, output: &str) -> Option<String> {
    let found = output.lines().find_map(|line| pattern.captures(line))?;
    let text = found.get(1).or_else(|| found.get(0))?.as_str();
    let shown: String = text
        .chars()
        .filter(|c| !c.is_control())
        .take(VERSION_MAX)
        .collect();
    (!shown.is_empty()).then_some(shown)
}

struct CommandOutput {
    /// True if the program exited with 0.
    success: bool,
    /// Output: stdout, then stderr.
    output: String,
}

/// Runs a command of the entry. Returns `None` if it cannot run, or its output does not end in
/// time.
fn run_command(
    entry: &ServerEntry,
    program: &Path,
    words: &[String],
    user: Option<&User>,
) -> Option<CommandOutput> {
    let words = entry.fill_program(&program.to_string_lossy(), words);
    let (first, rest) = words.split_first()?;
    let mut command = Command::new(find_program(first)?);
    command
        .args(rest)
        .env_clear()
        .envs(user::environment(user))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    if let Some(user) = user {
        // The standard library drops all other groups if root changes the user.
        command.uid(user.number).gid(user.group);
    }
    let mut child = command.spawn().ok()?;
    let (output, errors) = (read(child.stdout.take()), read(child.stderr.take()));
    let deadline = Instant::now() + COMMAND_TIMEOUT;
    let texts = [output, errors].map(|text| text.recv_deadline(deadline).ok());
    let good = wait_or_kill(&mut child, deadline);
    let [Some(output), Some(errors)] = texts else {
        return None;
    };
    Some(CommandOutput {
        success: good,
        output: output + "\n" + &errors,
    })
}

/// Reads output in a thread, because it may never end.
fn read(output: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, receiver) = bounded(1);
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(output) = output {
            // The output before an error is useful, too.
            let _ = output.take(BYTES_MAX).read_to_end(&mut bytes);
        }
        // The receiver may have given up.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// Returns `true` if the child exits successfully in time. Kills the rest of its process group.
fn wait_or_kill(child: &mut Child, deadline: Instant) -> bool {
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Ok(None) | Err(_) => break None,
        }
    };
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
    if status.is_none() {
        let _ = child.wait();
    }
    status.is_some_and(|status| status.success())
}
