//! Faults that the reference server injects.

use std::time::Duration;

use crate::flow::FlowFaults;
use kit::faults::{FaultSet, one_of, share, start_and_length, time};

/// Fault in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeFault {
    /// Sends nothing.
    Silent,
    /// Closes the connection in the middle of the handshake.
    Cut,
    /// Sends another version.
    Version,
    /// Sends an S2 that does not echo C1.
    Echo,
    /// Sends a wrong digest to clients that use digests.
    Digest,
    /// Sends its packets twice.
    Repeat,
}

/// Wrong answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerFault {
    /// Never answers any command.
    Silent,
    /// Answers `connect`: the application does not exist.
    InvalidApp,
    /// Answers `connect`: the client is rejected.
    Rejected,
    /// Answers `play`: the stream does not exist.
    NotFound,
    /// Answers `publish`: the name is in use.
    BadName,
    /// Closes the connection on `play` and `publish`.
    Close,
    /// Answers `connect` with values nested a thousand levels deep.
    DeepAmf,
    /// Answers `connect` with a chunk size of 0.
    ChunkSizeZero,
    /// Answers `connect` with a chunk size of 2^31.
    ChunkSizeHuge,
    /// Answers `play` with endless statuses and no media.
    EndlessStatus,
    /// Answers `play`, but sends no media.
    NoMedia,
}

/// Faults to inject. Default: none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerFaults {
    pub handshake: Option<HandshakeFault>,
    /// Wrong answer to commands.
    pub answer: Option<AnswerFault>,
    /// Faults of sent media.
    pub flow: FlowFaults,
    /// Time from the beginning of media to closing the connection.
    pub close_after: Option<Duration>,
}

/// Values of `handshake=`.
const HANDSHAKES: [(&str, HandshakeFault); 6] = [
    ("silent", HandshakeFault::Silent),
    ("cut", HandshakeFault::Cut),
    ("version", HandshakeFault::Version),
    ("echo", HandshakeFault::Echo),
    ("digest", HandshakeFault::Digest),
    ("repeat", HandshakeFault::Repeat),
];

/// Values of `answer=`.
const ANSWERS: [(&str, AnswerFault); 11] = [
    ("silent", AnswerFault::Silent),
    ("invalid-app", AnswerFault::InvalidApp),
    ("rejected", AnswerFault::Rejected),
    ("not-found", AnswerFault::NotFound),
    ("bad-name", AnswerFault::BadName),
    ("close", AnswerFault::Close),
    ("deep-amf", AnswerFault::DeepAmf),
    ("chunk-size-zero", AnswerFault::ChunkSizeZero),
    ("chunk-size-huge", AnswerFault::ChunkSizeHuge),
    ("endless-status", AnswerFault::EndlessStatus),
    ("no-media", AnswerFault::NoMedia),
];

impl FaultSet for ServerFaults {
    fn known() -> Vec<&'static str> {
        vec![
            "handshake=silent",
            "answer=not-found",
            "lose=1%",
            "malformed=1%",
            "stall=5s+1s",
            "skew=200ms",
            "stop=5s",
            "close=5s",
        ]
    }

    fn set(&mut self, name: &str, value: &str) -> Option<Result<(), String>> {
        let flow = &mut self.flow;
        Some(match name {
            "handshake" => one_of(&HANDSHAKES, value).map(|fault| self.handshake = Some(fault)),
            "answer" => one_of(&ANSWERS, value).map(|fault| self.answer = Some(fault)),
            "lose" => share(value).map(|share| flow.lose = share),
            "malformed" => share(value).map(|share| flow.malformed = share),
            "stall" => start_and_length(value).map(|stall| flow.stall = Some(stall)),
            "skew" => time(value).map(|skew| flow.skew = skew),
            "stop" => time(value).map(|after| flow.stop_after = Some(after)),
            "close" => time(value).map(|after| self.close_after = Some(after)),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_they_are_written() {
        let mut faults = ServerFaults::default();
        for known in ServerFaults::known() {
            faults.add(known).expect("it is known");
        }
        let seconds = Duration::from_secs;
        let expected = ServerFaults {
            handshake: Some(HandshakeFault::Silent),
            answer: Some(AnswerFault::NotFound),
            flow: FlowFaults {
                lose: 0.01,
                malformed: 0.01,
                stall: Some((seconds(5), seconds(1))),
                skew: Duration::from_millis(200),
                stop_after: Some(seconds(5)),
            },
            close_after: Some(seconds(5)),
        };
        assert_eq!(faults, expected);
        for wrong in ["", "loss=1%", "lose", "stall=5s", "handshake=x", "answer"] {
            let error = faults.add(wrong).expect_err("it is wrong");
            assert!(error.contains(&format!("`{wrong}`")), "{error}");
        }
    }
}
