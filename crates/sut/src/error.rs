//! Errors of a server under test, each with advice.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use kit::descriptor::Transport;

/// Reason why a server under test cannot be started or observed.
///
/// All of them are detected before the first client starts.
#[derive(Debug, thiserror::Error)]
pub enum SutError {
    /// The catalogue has no server of that name.
    #[error("no server named `{name}` is in the catalogue; it has: {known}")]
    UnknownServer {
        name: String,
        /// Names of the known servers.
        known: String,
    },
    /// A server entry has mistakes.
    #[error("{0}")]
    Entry(String),
    /// An exporter of the server's machine cannot be used.
    #[error("the exporter at {url}: {reason}")]
    Exporter {
        /// URL of the exporter.
        url: String,
        reason: String,
    },
    /// A server's own counters cannot be read.
    #[error("cannot read the server's own counters at {address}: {reason}")]
    Counters {
        /// Address of the server's interface.
        address: std::net::SocketAddr,
        reason: String,
    },
    /// A required program or library is not installed.
    #[error("{what} is not installed: {remedy}")]
    Missing {
        what: String,
        /// Command that installs it, or where to get it.
        remedy: String,
    },
    /// The settings of the scenario do not fit the server.
    #[error("{0}")]
    Unusable(String),
    /// The operating system did not start the program.
    #[error("cannot start `{program}`: {reason}")]
    Spawn {
        /// Program as named in the command.
        program: String,
        /// Reason of the operating system.
        reason: String,
    },
    /// The supervisor failed.
    #[error("cannot supervise the server: {0}")]
    Supervisor(String),
    /// Another process already owns the port that the server is to listen on.
    #[error(
        "{transport} port {port} is already in use by {name} (pid {pid}): stop it or choose another port"
    )]
    PortInUse {
        port: u16,
        transport: Transport,
        /// Owner of the port.
        pid: u32,
        /// Name of that process.
        name: String,
    },
    /// The port is in use, and its owner is not visible.
    #[error(
        "{transport} port {port} is already in use by a process that this user cannot see: choose another port"
    )]
    PortInUseByUnknown {
        /// Port that the server is to listen on.
        port: u16,
        transport: Transport,
    },
    /// Another process took the port while the server started.
    #[error("{transport} port {port} belongs to {name} (pid {pid}), not to the server that was started{}", output(.log))]
    PortOfAnother {
        port: u16,
        transport: Transport,
        /// Owner of the port.
        pid: u32,
        /// Name of that process.
        name: String,
        /// End of the server's output.
        log: String,
    },
    /// The server ended before it was ready.
    #[error("the server ended before it was ready ({status}){}{hint}", output(.log))]
    EndedBeforeReady {
        /// Exit status or signal.
        status: String,
        /// End of the server's output.
        log: String,
        /// Advice; often empty.
        hint: String,
    },
    /// The server did not become ready in time.
    #[error("the server was not ready within {} s: gave up waiting for {waited_for}{}{hint}", .after.as_secs_f64(), output(.log))]
    NotReady {
        /// Time limit that was exceeded.
        after: Duration,
        /// Condition that was awaited.
        waited_for: String,
        /// End of the server's output.
        log: String,
        /// Advice; often empty.
        hint: String,
    },
    /// A pattern is not a valid regular expression.
    #[error("`{pattern}` is not a regular expression: {reason}")]
    BadPattern {
        /// Pattern as given by the user or the entry.
        pattern: String,
        reason: String,
    },
    /// The process to observe does not exist.
    #[error("there is no process {pid} to observe")]
    NoSuchProcess {
        /// Process ID as given by the scenario.
        pid: u32,
    },
    /// The process to observe is streamgauge or one of its ancestors.
    #[error(
        "process {pid} is {what}, so streamgauge would measure itself: name the server's own process"
    )]
    Ourselves {
        pid: u32,
        /// Relation of the process to streamgauge.
        what: &'static str,
    },
    /// A clip could not be made.
    #[error("cannot make {}: {reason}", .path.display())]
    Clip {
        /// File of the clip.
        path: PathBuf,
        /// Reason, such as the end of ffmpeg's output.
        reason: String,
    },
    /// A file or a folder cannot be used.
    #[error("cannot {action} {}: {source}", .path.display())]
    File {
        /// Action that failed.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The runner that is to observe the server takes no part in this run.
    #[error(
        "`server.observe.runner: {runner}`: only a run with runners has it: add `--runners` and \
         `--at`, and start `streamgauge runner --observe PID --name {runner}` on the server's machine"
    )]
    NoObserver {
        /// Name of the runner.
        runner: String,
    },
    /// The user cancelled the start.
    #[error("stopped by the user while the server was being started")]
    Cancelled,
}

impl SutError {
    /// Lists all mistakes in a file of the catalogue, each with its position and advice.
    pub(crate) fn entry(error: &scenario::ScenarioError) -> SutError {
        let lines = error.problems().iter().map(|problem| {
            let position = problem.position().map(|position| position + ": ");
            let help = problem.help_text().map(|help| format!(": {help}"));
            let (position, help) = (position.unwrap_or_default(), help.unwrap_or_default());
            format!("{position}{}{help}", problem.message())
        });
        SutError::Entry(lines.collect::<Vec<_>>().join("\n"))
    }

    /// Returns a function that converts an I/O error of a file.
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

/// Returns the last lines of a server's output as the end of a message.
fn output(log: &str) -> String {
    const LINES: usize = 12;
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return "; it printed nothing".to_owned();
    }
    let mut text = String::from("; its last output:");
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
