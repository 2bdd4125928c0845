//! Messages between the supervisor and streamgauge: one line each, over a socket pair.

use std::fmt;
use std::path::PathBuf;

use crate::cgroup::CgroupVersion;

/// The hidden subcommand that makes an executable the supervisor: its `main` calls
/// [`supervise_main`](crate::supervise_main) with the arguments that follow.
pub const SUBCOMMAND: &str = "__supervise";

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this status; 0 is success.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

impl fmt::Display for Exit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Exit::Code(code) => write!(out, "exit status {code}"),
            Exit::Signal(signal) => match signal_hook::low_level::signal_name(signal) {
                Some(name) => write!(out, "killed by {name}"),
                None => write!(out, "killed by signal {signal}"),
            },
        }
    }
}

/// Request to the supervisor. A closed socket means [`Request::Kill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Send SIGTERM to every process of the tree.
    Terminate,
    /// Kill every process of the tree.
    Kill,
}

impl Request {
    pub(crate) fn line(self) -> &'static str {
        match self {
            Request::Terminate => "terminate\n",
            Request::Kill => "kill\n",
        }
    }

    pub(crate) fn parse(line: &str) -> Option<Request> {
        match line {
            "terminate" => Some(Request::Terminate),
            "kill" => Some(Request::Kill),
            _ => None,
        }
    }
}

/// Report of the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SupervisorMessage {
    /// The server has a control group of its own.
    Group(CgroupVersion, PathBuf),
    /// The server has no control group, for this reason.
    NoGroup(String),
    /// The command runs, as this process.
    Started(u32),
    /// The command could not be started, for this reason.
    Failed(String),
    /// The command's own process ended.
    Ended(Exit),
    /// The supervisor received this signal, without a request of streamgauge, and kills the server.
    Interrupted(i32),
    /// No process of the tree is left.
    Gone,
}

impl SupervisorMessage {
    pub(crate) fn line(&self) -> String {
        let flat = |text: &str| text.replace(['\n', '\r'], " ");
        match self {
            SupervisorMessage::Group(CgroupVersion::V1, path) => {
                format!("group v1 {}\n", flat(&path.to_string_lossy()))
            }
            SupervisorMessage::Group(CgroupVersion::V2, path) => {
                format!("group v2 {}\n", flat(&path.to_string_lossy()))
            }
            SupervisorMessage::NoGroup(reason) => format!("no-group {}\n", flat(reason)),
            SupervisorMessage::Started(pid) => format!("started {pid}\n"),
            SupervisorMessage::Failed(reason) => format!("failed {}\n", flat(reason)),
            SupervisorMessage::Ended(Exit::Code(code)) => format!("ended code {code}\n"),
            SupervisorMessage::Ended(Exit::Signal(signal)) => format!("ended signal {signal}\n"),
            SupervisorMessage::Interrupted(signal) => format!("interrupted {signal}\n"),
            SupervisorMessage::Gone => "gone\n".to_owned(),
        }
    }

    pub(crate) fn parse(line: &str) -> Option<SupervisorMessage> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Some(match word {
            "group" => match rest.split_once(' ')? {
                ("v1", path) => SupervisorMessage::Group(CgroupVersion::V1, path.into()),
                ("v2", path) => SupervisorMessage::Group(CgroupVersion::V2, path.into()),
                _ => return None,
            },
            "no-group" => SupervisorMessage::NoGroup(rest.to_owned()),
            "started" => SupervisorMessage::Started(rest.parse().ok()?),
            "failed" => SupervisorMessage::Failed(rest.to_owned()),
            "ended" => SupervisorMessage::Ended(match rest.split_once(' ')? {
                ("code", code) => Exit::Code(code.parse().ok()?),
                ("signal", signal) => Exit::Signal(signal.parse().ok()?),
                _ => return None,
            }),
            "interrupted" => SupervisorMessage::Interrupted(rest.parse().ok()?),
            "gone" => SupervisorMessage::Gone,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_round_trips() {
        for report in [
            SupervisorMessage::Group(CgroupVersion::V1, "/a b/c".into()),
            SupervisorMessage::Group(CgroupVersion::V2, "/x".into()),
            SupervisorMessage::NoGroup("permission denied".to_owned()),
            SupervisorMessage::Started(77),
            SupervisorMessage::Failed("no such file".to_owned()),
            SupervisorMessage::Ended(Exit::Code(3)),
            SupervisorMessage::Ended(Exit::Signal(9)),
            SupervisorMessage::Interrupted(15),
            SupervisorMessage::Gone,
        ] {
            let line = report.line();
            assert_eq!(
                SupervisorMessage::parse(line.trim_end_matches('\n')),
                Some(report)
            );
        }
        for request in [Request::Terminate, Request::Kill] {
            assert_eq!(Request::parse(request.line().trim_end()), Some(request));
        }
    }

    #[test]
    fn a_reason_cannot_forge_a_message() {
        assert_eq!(
            SupervisorMessage::Failed("a\ngone".to_owned()).line(),
            "failed a gone\n"
        );
    }

    #[test]
    fn exits_are_displayed_by_name() {
        assert_eq!(Exit::Code(1).to_string(), "exit status 1");
        assert_eq!(Exit::Signal(9).to_string(), "killed by SIGKILL");
    }
}
