//! Messages between coordinator and runners, as JSON. They are answered requests, so each side
//! knows whether the other has understood.

use std::sync::Weak;
use std::time::Duration;

use async_nats::Client;
use engine::{RunnerCommand, RunnerInfo};
use futures_util::StreamExt;
use measure::Time;
use scenario::PortableScenario;
use serde::{Deserialize, Serialize};

use crate::storage::is_sent_by_a_client;

/// Maximum length of a message. The default limit of nats-server is 1 MiB.
pub(crate) const MESSAGE_MAX: usize = 900 << 10;

/// Question of a coordinator to all runners.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Version of the coordinator's program.
    pub(crate) version: String,
    /// Identity of the question: a word of the subject of the answers.
    pub(crate) id: String,
}

/// Answer of a runner to [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HelloAnswer {
    pub(crate) name: String,
    /// Differs between two processes of the same name.
    pub(crate) incarnation: String,
    pub(crate) version: String,
    pub(crate) weight: u32,
    pub(crate) machine: MachineFacts,
    /// Run that it takes part in.
    pub(crate) run: Option<String>,
    /// Server that it observes instead of playing clients.
    pub(crate) observes: Option<String>,
}

/// Facts about the machine of a runner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFacts {
    /// Host name.
    pub host: String,
    /// Identity of its running kernel (/proc/sys/kernel/random/boot_id).
    pub boot: String,
    /// Release of its kernel.
    pub kernel: String,
    /// Number of its processors.
    pub cores: u32,
}

/// Order of the coordinator to one runner.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Check and prepare a part of a run.
    Prepare(Box<Part>),
    /// Start the workers, which then wait.
    Start { run: String },
    /// Read the clock.
    Clock,
    /// Begin at `at` of the runner's monotonic clock, in nanoseconds.
    Begin {
        run: String,
        at: i64,
        /// Start of the run since 1970, which is the same on all runners.
        wall_clock: Duration,
    },
    /// Command for the clients.
    Command { run: String, command: WireCommand },
    /// Observe the server from now on, and report it.
    Observe {
        run: String,
        /// Regular expressions of complaints in its log, and of other lines. Empty: the usual ones.
        patterns: Vec<String>,
        ignore: Vec<String>,
    },
    /// Leave the run: end its clients at once and forget it.
    Leave { run: String },
}

/// Part of a run that a runner is to play.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) run: String,
    /// Version of the coordinator's program. Metrics differ between versions.
    pub(crate) version: String,
    /// Number of the runner, and the weights of all.
    pub(crate) runner: usize,
    pub(crate) weights: Vec<u32>,
    /// Population whose plan is extended while the run goes on.
    pub(crate) changing: Option<String>,
    pub(crate) scenario: PortableScenario,
    /// SHA-256 of each file that the clients read, in the order of the scenario.
    pub(crate) files: Vec<String>,
}

/// Answer of a runner.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Done,
    /// The workers are ready, and wait.
    Ready(ReadyInfo),
    /// Timestamps of the runner in an exchange.
    Clock {
        reached: i64,
        answered: i64,
    },
    /// The runner does not carry out the order.
    Refused {
        why: String,
    },
}

/// [`RunnerInfo`] in transfer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReadyInfo {
    workers: u32,
    receive_path: String,
    receive_hint: Option<String>,
    unknown: Vec<String>,
    receivers: Vec<String>,
}

impl From<RunnerInfo> for ReadyInfo {
    fn from(info: RunnerInfo) -> ReadyInfo {
        ReadyInfo {
            workers: info.workers,
            receive_path: info.receive_path,
            receive_hint: info.receive_hint,
            unknown: info.unknown,
            receivers: info.receivers,
        }
    }
}

impl From<ReadyInfo> for RunnerInfo {
    fn from(info: ReadyInfo) -> RunnerInfo {
        RunnerInfo {
            // Bounded because another machine states it.
            workers: info.workers.min(1 << 10),
            receive_path: info.receive_path,
            receive_hint: info.receive_hint,
            unknown: info.unknown,
            receivers: info.receivers,
        }
    }
}

/// [`RunnerCommand`] in transfer. Times are nanoseconds of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WireCommand {
    Stop {
        until: u64,
    },
    Kill,
    Hold {
        from: u64,
    },
    Resume {
        at: u64,
    },
    Extend {
        population: usize,
        begin: u64,
        over: u64,
        clients: u64,
    },
    TopicMessage {
        topic: String,
        message: String,
    },
}

impl From<&RunnerCommand> for WireCommand {
    fn from(command: &RunnerCommand) -> WireCommand {
        match command {
            RunnerCommand::Stop { until } => WireCommand::Stop {
                until: until.as_nanos(),
            },
            RunnerCommand::Kill => WireCommand::Kill,
            RunnerCommand::Hold { from } => WireCommand::Hold {
                from: from.as_nanos(),
            },
            RunnerCommand::Resume { at } => WireCommand::Resume { at: at.as_nanos() },
            RunnerCommand::Extend {
                population,
                begin,
                over,
                clients,
            } => WireCommand::Extend {
                population: *population,
                begin: begin.as_nanos(),
                over: u64::try_from(over.as_nanos()).unwrap_or(u64::MAX),
                clients: *clients,
            },
            RunnerCommand::TopicMessage { topic, message } => WireCommand::TopicMessage {
                topic: topic.to_string(),
                message: message.to_string(),
            },
        }
    }
}

impl From<WireCommand> for RunnerCommand {
    fn from(command: WireCommand) -> RunnerCommand {
        match command {
            WireCommand::Stop { until } => RunnerCommand::Stop {
                until: Time::from_nanos(until),
            },
            WireCommand::Kill => RunnerCommand::Kill,
            WireCommand::Hold { from } => RunnerCommand::Hold {
                from: Time::from_nanos(from),
            },
            WireCommand::Resume { at } => RunnerCommand::Resume {
                at: Time::from_nanos(at),
            },
            WireCommand::Extend {
                population,
                begin,
                over,
                clients,
            } => RunnerCommand::Extend {
                population,
                begin: Time::from_nanos(begin),
                over: Duration::from_nanos(over),
                clients,
            },
            WireCommand::TopicMessage { topic, message } => RunnerCommand::TopicMessage {
                topic: topic.into(),
                message: message.into(),
            },
        }
    }
}

/// Sign of life of a runner, once a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Beat {
    /// Number of clients at present.
    pub(crate) clients: u64,
    /// Time from the agreed start to the actual one, in nanoseconds. `None` before it.
    pub(crate) late: Option<u64>,
    /// Number of windows and last reports that it has made so far.
    pub(crate) made: u64,
    pub(crate) has_ended: bool,
    /// Time since the thread that carries out orders has turned, in milliseconds.
    pub(crate) stuck: u64,
    /// Reason for which NATS does not take its reports, if it refuses them.
    pub(crate) refused: Option<String>,
}

/// Message of a client to clients of other runners.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TopicMessage {
    /// Number of the sender's runner.
    pub(crate) runner: usize,
    /// Number of the message among those of its runner.
    pub(crate) number: u64,
    pub(crate) topic: String,
    pub(crate) message: String,
}

/// Encodes a message.
pub(crate) fn encode(message: &impl Serialize) -> bytes::Bytes {
    serde_json::to_vec(message).unwrap_or_default().into()
}

/// Decodes a message; `None` if it is something else.
pub(crate) fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Option<T> {
    serde_json::from_slice(bytes).ok()
}

/// Hands the messages on a subject to `take`, each with its subject, until `kept` is gone, which is
/// checked in this interval.
pub(crate) async fn listen<T: for<'a> Deserialize<'a>, S>(
    client: Client,
    subject: String,
    kept: Weak<S>,
    interval: Duration,
    mut take: impl FnMut(&str, T, &S),
) {
    let Ok(mut messages) = client.subscribe(subject).await else {
        return;
    };
    while kept.strong_count() > 0 {
        let message = match tokio::time::timeout(interval, messages.next()).await {
            Ok(Some(message)) => message,
            Ok(None) => return,
            Err(_) => continue,
        };
        let Some(kept) = kept.upgrade() else {
            return;
        };
        let is_own = is_sent_by_a_client(message.headers.as_ref());
        if let Some(said) = decode(&message.payload).filter(|_| is_own) {
            take(&message.subject, said, &kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_survive_the_transfer() {
        let at = Time::from_nanos(1_500_000_000);
        for command in [
            RunnerCommand::Stop { until: at },
            RunnerCommand::Kill,
            RunnerCommand::Hold { from: at },
            RunnerCommand::Resume { at },
            RunnerCommand::Extend {
                population: 3,
                begin: at,
                over: Duration::from_millis(20),
                clients: u64::MAX,
            },
            RunnerCommand::TopicMessage {
                topic: "a".into(),
                message: "live video".into(),
            },
        ] {
            let sent = encode(&WireCommand::from(&command));
            let came: WireCommand = decode(&sent).expect("as written");
            assert_eq!(RunnerCommand::from(came), command);
        }
        assert_eq!(decode::<WireCommand>(b"{\"stop\": 1}"), None);
    }
}
