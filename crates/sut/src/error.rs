//! What can go wrong with a server under test, each with what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use protocol::descriptor::Transport;

/// Why a server under test cannot be started or observed.
///
/// All of these are found before the first client starts.
#[derive(Debug, thiserror::Error)]
pub enum SutError {
    /// The catalogue has no server of that name.
    #[error("no server named `{name}` is in the catalogue; it has: {known}")]
    UnknownServer {
        /// The name that was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A file of the catalogue is wrong.
    #[error("{0}")]
    Entry(String),
    /// An exporter of the server's machine is of no use.
    #[error("the exporter at {url}: {reason}")]
    Exporter {
        /// Its URL.
        url: String,
        /// Why.
        reason: String,
    },
    /// A server does not tell what it counts.
    #[error("the server does not tell at {address} what it counts: {reason}")]
    Counters {
        /// Where it should.
        address: std::net::SocketAddr,
        /// Why it does not.
        reason: String,
    },
    /// A program or a library that is needed is not installed.
    #[error("{what} is not installed: {remedy}")]
    Missing {
        /// What is missing.
        what: String,
        /// The command that installs it, or where to get it.
        remedy: String,
    },
    /// The server cannot be started with what the scenario says.
    #[error("{0}")]
    Unusable(String),
    /// The operating system would not start the program.
    #[error("cannot start `{program}`: {reason}")]
    Spawn {
        /// The program as it was named.
        program: String,
        /// The reason, as the operating system puts it.
        reason: String,
    },
    /// The process that watches over the server failed.
    #[error("cannot watch over the server: {0}")]
    Supervisor(String),
    /// Another process already has the port the server is to listen on.
    #[error(
        "{transport} port {port} is already in use by {name} (pid {pid}): stop it or choose another port"
    )]
    PortInUse {
        /// The port.
        port: u16,
        /// Its transport.
        transport: Transport,
        /// The process that has it.
        pid: u32,
        /// That process's name.
        name: String,
    },
    /// The port is in use, and whose it is cannot be seen.
    #[error(
        "{transport} port {port} is already in use by a process that this user may not look at: choose another port"
    )]
    PortInUseByUnknown {
        /// The port.
        port: u16,
        /// Its transport.
        transport: Transport,
    },
    /// Another process took the port while the server started.
    #[error("{transport} port {port} belongs to {name} (pid {pid}), not to the server that was started{}", output(.log))]
    PortOfAnother {
        /// The port.
        port: u16,
        /// Its transport.
        transport: Transport,
        /// The process that has it.
        pid: u32,
        /// That process's name.
        name: String,
        /// The last of what the server printed.
        log: String,
    },
    /// The server ended before it was ready.
    #[error("the server ended before it was ready ({status}){}{hint}", output(.log))]
    EndedBeforeReady {
        /// How it ended.
        status: String,
        /// The last of what it printed.
        log: String,
        /// What to do about it; often empty.
        hint: String,
    },
    /// The server did not become ready in time.
    #[error("the server was not ready within {} s: {waited_for} never came{}{hint}", .after.as_secs_f64(), output(.log))]
    NotReady {
        /// How long it was waited for.
        after: Duration,
        /// What was waited for.
        waited_for: String,
        /// The last of what the server printed.
        log: String,
        /// What to do about it; often empty.
        hint: String,
    },
    /// The line of output to wait for is no regular expression.
    #[error("`{pattern}` is not a regular expression: {reason}")]
    BadPattern {
        /// The pattern as given.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no process of that number to observe.
    #[error("there is no process {pid} to observe")]
    NoSuchProcess {
        /// Its number.
        pid: u32,
    },
    /// The process to observe has streamgauge among its descendants, or is streamgauge.
    #[error("process {pid} is {what}, so it would measure itself: name the server's own process")]
    Ourselves {
        /// Its number.
        pid: u32,
        /// What it is to streamgauge.
        what: &'static str,
    },
    /// Making a clip failed.
    #[error("cannot make {}: {reason}", .path.display())]
    Clip {
        /// The clip's file.
        path: PathBuf,
        /// The reason, such as the last of what ffmpeg printed.
        reason: String,
    },
    /// A file or a folder cannot be used.
    #[error("cannot {action} {}: {source}", .path.display())]
    File {
        /// What was to be done with it.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The user stopped it.
    #[error("stopped by the user while the server was being started")]
    Cancelled,
}

impl SutError {
    /// Everything that is wrong with a file of the catalogue, each with its place and how to mend
    /// it.
    pub(crate) fn entry(error: &scenario::ScenarioError) -> SutError {
        let lines: Vec<String> = error
            .problems()
            .iter()
            .map(|problem| {
                let place = problem.place().map(|place| place + ": ");
                let help = problem.help_text().map(|help| format!(": {help}"));
                format!(
                    "{}{}{}",
                    place.unwrap_or_default(),
                    problem.message(),
                    help.unwrap_or_default()
                )
            })
            .collect();
        SutError::Entry(lines.join("\n"))
    }

    /// Makes an error about a file out of the operating system's.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> SutError {
        let path = path.into();
        move |source| SutError::File {
            action,
            path,
            source,
        }
    }
}

/// The last lines of a server's output, as the end of a message.
fn output(log: &str) -> String {
    const LINES: usize = 12;
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return "; it printed nothing".to_owned();
    }
    let mut text = String::from("; the last it printed:");
    for line in &lines[lines.len().saturating_sub(LINES)..] {
        text.push_str("\n  | ");
        text.extend(line.chars().take(300));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_last_lines_only() {
        let log: String = (0..100).map(|n| format!("line {n}\n")).collect();
        let text = SutError::EndedBeforeReady {
            status: "exit status 1".to_owned(),
            log,
            hint: String::new(),
        }
        .to_string();
        assert!(text.contains("| line 99") && text.contains("| line 88"));
        assert!(!text.contains("line 87"));
    }

    #[test]
    fn says_that_nothing_was_printed() {
        let text = SutError::EndedBeforeReady {
            status: "killed".to_owned(),
            log: String::new(),
            hint: String::new(),
        }
        .to_string();
        assert!(text.ends_with("it printed nothing"));
    }
}
