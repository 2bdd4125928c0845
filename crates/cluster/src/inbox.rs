//! The log of a run, as its coordinator reads it: the reports of each runner in order, each once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::stream::Stream;
use crossbeam_channel::{Sender, TrySendError};
use engine::RunnerReport;
use futures_util::StreamExt;
use measure::Catalogue;

use crate::outbox::SEQUENCE;
use crate::reports::Decoder;
use crate::storage::{ALL, is_sent_by_a_client, report_subject, runner_of};

/// Time after which NATS forgets a reader that does not come back.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Interval between checks whether the run has ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Pause before the log is opened again after a failure.
const RETRY_PAUSE: Duration = Duration::from_millis(300);

/// Pause if the coordinator has not taken the reports that came.
const FULL_PAUSE: Duration = Duration::from_millis(2);

/// Messages of one runner that may be ahead of a missing one, and their length in bytes.
const AHEAD_MAX: usize = 512;
const AHEAD_BYTES_MAX: usize = 16 << 20;

/// Something that came from the log.
#[derive(Debug)]
pub(crate) enum FromLog {
    Report(usize, RunnerReport),
    /// A runner sent what does not follow the format.
    Malformed(usize),
    /// All that the log had when the reader began has come.
    CaughtUp,
}

/// Position of a coordinator in the log.
#[derive(Clone, Debug)]
pub(crate) struct LogReader {
    pub(crate) run: String,
    /// Name of this coordinator as a reader. Another one of the same run reads by itself.
    pub(crate) name: String,
    /// Version of the program.
    pub(crate) version: String,
    /// Last message of the run when the reader began; 0 for a new run.
    pub(crate) caught_up_at: u64,
}

/// Reads the reports of the named runners of a run into `reports` until the receiver is gone.
pub(crate) async fn read(
    log: Stream,
    own: LogReader,
    runners: Vec<String>,
    populations: Vec<(String, Catalogue)>,
    reports: Sender<FromLog>,
    is_over: impl Fn() -> bool,
) {
    let mut readers: HashMap<String, (usize, RunnerReader)> = runners
        .into_iter()
        .enumerate()
        .map(|(number, name)| (name, (number, RunnerReader::new(&populations))))
        .collect();
    let reports = Arc::new(reports);
    let mut is_behind = own.caught_up_at > 0;
    while !is_over() {
        // The reader is durable, because others end silently after some seconds of silence.
        let config = pull::Config {
            durable_name: Some(own.name.clone()),
            deliver_policy: DeliverPolicy::All,
            ack_policy: AckPolicy::Explicit,
            filter_subject: report_subject(&own.run, ALL),
            inactive_threshold: FORGOTTEN_AFTER,
            ..pull::Config::default()
        };
        let consumer = log.get_or_create_consumer(&own.name, config).await;
        let messages = match consumer {
            Ok(consumer) => consumer.messages().await.ok(),
            Err(_) => None,
        };
        if let Some(mut messages) = messages {
            loop {
                let message = match tokio::time::timeout(CHECK_INTERVAL, messages.next()).await {
                    Ok(Some(Ok(message))) => message,
                    Ok(_) => break,
                    Err(_) if is_over() => return,
                    Err(_) => continue,
                };
                let is_own = is_sent_by_a_client(message.headers.as_ref());
                let reader = readers.get_mut(runner_of(&message.subject));
                let Some((number, reader)) = reader.filter(|_| is_own) else {
                    let _ = message.ack().await;
                    continue;
                };
                let sequence = message.headers.as_ref();
                let sequence = sequence.and_then(|headers| headers.get(SEQUENCE));
                let sequence = sequence.and_then(|text| text.as_str().parse().ok());
                for report in reader.add(sequence, &message.payload) {
                    let report = match report {
                        Ok(report) => FromLog::Report(*number, report),
                        Err(Broken) => FromLog::Malformed(*number),
                    };
                    if !pass_on(&reports, report).await {
                        return;
                    }
                }
                let at = message.info().map_or(0, |info| info.stream_sequence);
                let _ = message.ack().await;
                if is_behind && at >= own.caught_up_at {
                    is_behind = false;
                    if !pass_on(&reports, FromLog::CaughtUp).await {
                        return;
                    }
                }
            }
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// Passes a report to the coordinator. Returns `false` if it is gone.
async fn pass_on(reports: &Sender<FromLog>, report: FromLog) -> bool {
    let mut report = report;
    loop {
        match reports.try_send(report) {
            Ok(()) => return true,
            Err(TrySendError::Disconnected(_)) => return false,
            Err(TrySendError::Full(back)) => report = back,
        }
        tokio::time::sleep(FULL_PAUSE).await;
    }
}

/// The messages of a runner do not follow the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Broken;

/// Brings the messages of one runner into their order, and leaves out repeated ones.
struct RunnerReader {
    decoder: Decoder,
    next: u64,
    ahead: BTreeMap<u64, Vec<u8>>,
    is_broken: bool,
}

impl RunnerReader {
    fn new(populations: &[(String, Catalogue)]) -> RunnerReader {
        RunnerReader {
            decoder: Decoder::new(populations),
            next: 0,
            ahead: BTreeMap::new(),
            is_broken: false,
        }
    }

    /// Adds a message. Returns the reports that are complete now. After a malformed message, which
    /// is returned once, the runner is not read any more.
    fn add(&mut self, sequence: Option<u64>, piece: &[u8]) -> Vec<Result<RunnerReport, Broken>> {
        let mut found = Vec::new();
        if self.is_broken {
            return found;
        }
        let Some(sequence) = sequence else {
            self.is_broken = true;
            return vec![Err(Broken)];
        };
        if sequence < self.next {
            return found;
        }
        self.ahead.insert(sequence, piece.to_vec());
        while let Some(piece) = self.ahead.remove(&self.next) {
            self.next += 1;
            match self.decoder.add(&piece) {
                Ok(reports) => found.extend(reports.into_iter().map(Ok)),
                Err(_) => self.is_broken = true,
            }
        }
        let bytes: usize = self.ahead.values().map(Vec::len).sum();
        self.is_broken |= self.ahead.len() > AHEAD_MAX || bytes > AHEAD_BYTES_MAX;
        if self.is_broken {
            self.ahead.clear();
            found.push(Err(Broken));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reports::Encoder;

    fn message(text: &str) -> Vec<u8> {
        let report = RunnerReport::Fault(text.to_owned());
        Encoder::new(Vec::new()).encode(&[report]).remove(0)
    }

    fn fault(text: &str) -> Result<RunnerReport, Broken> {
        Ok(RunnerReport::Fault(text.to_owned()))
    }

    #[test]
    fn messages_are_read_in_order_and_once() {
        let mut reader = RunnerReader::new(&[]);
        assert_eq!(reader.add(Some(0), &message("a")), [fault("a")]);
        assert_eq!(reader.add(Some(0), &message("a")), []);
        assert_eq!(reader.add(Some(2), &message("c")), []);
        assert_eq!(reader.add(Some(2), &message("c")), []);
        let both = reader.add(Some(1), &message("b"));
        assert_eq!(both, [fault("b"), fault("c")]);
    }

    #[test]
    fn malformed_runner_is_reported_once_and_bounded() {
        let mut reader = RunnerReader::new(&[]);
        assert_eq!(reader.add(None, &message("a")), [Err(Broken)]);
        assert_eq!(reader.add(Some(0), &message("a")), []);
        let mut reader = RunnerReader::new(&[]);
        assert_eq!(reader.add(Some(0), &[0, 0xff]), [Err(Broken)]);
        let mut reader = RunnerReader::new(&[]);
        let ahead = 1..=AHEAD_MAX as u64;
        assert!(
            ahead
                .clone()
                .all(|n| reader.add(Some(n), &message("a")).is_empty())
        );
        let full = reader.add(Some(AHEAD_MAX as u64 + 1), &message("a"));
        assert_eq!(full, [Err(Broken)]);
        assert!(reader.ahead.is_empty());
    }
}
