//! What the reference server does wrong on purpose.

use std::time::Duration;

use measure::units::{Ratio, TimeSpan};

use crate::rtmp::flow::FlowFaults;

/// What it does wrong in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeFault {
    /// It says nothing.
    Silent,
    /// It closes the connection in the middle of it.
    Cut,
    /// It has another version.
    Version,
    /// It repeats something else than was sent.
    Echo,
    /// Its digest is wrong, for clients with digests.
    Digest,
    /// It sends its part once more.
    Repeat,
}

/// What it answers instead of what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing, to any command.
    Silent,
    /// To `connect`, that there is no such application.
    InvalidApp,
    /// To `connect`, that the client may not.
    Rejected,
    /// To `play`, that there is no such stream.
    NotFound,
    /// To `publish`, that the name is taken.
    BadName,
    /// To `play` and `publish`, the end of the connection.
    Close,
    /// To `connect`, values within values a thousand deep.
    DeepAmf,
    /// To `connect`, chunks of no bytes.
    ChunkSizeZero,
    /// To `connect`, chunks of 2^31 bytes.
    ChunkSizeHuge,
    /// To `play`, statuses without an end, and no media.
    EndlessStatus,
    /// To `play`, no media.
    NoMedia,
}

/// What is done wrong on purpose. Nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerFaults {
    /// In the handshake.
    pub handshake: Option<HandshakeFault>,
    /// In answers.
    pub answer: Option<Answer>,
    /// With media.
    pub flow: FlowFaults,
    /// After how long of media the connection is closed.
    pub close_after: Option<Duration>,
}

/// What stands behind `handshake=`.
const HANDSHAKES: [(&str, HandshakeFault); 6] = [
    ("silent", HandshakeFault::Silent),
    ("cut", HandshakeFault::Cut),
    ("version", HandshakeFault::Version),
    ("echo", HandshakeFault::Echo),
    ("digest", HandshakeFault::Digest),
    ("repeat", HandshakeFault::Repeat),
];

/// What stands behind `answer=`.
const ANSWERS: [(&str, Answer); 11] = [
    ("silent", Answer::Silent),
    ("invalid-app", Answer::InvalidApp),
    ("rejected", Answer::Rejected),
    ("not-found", Answer::NotFound),
    ("bad-name", Answer::BadName),
    ("close", Answer::Close),
    ("deep-amf", Answer::DeepAmf),
    ("chunk-size-zero", Answer::ChunkSizeZero),
    ("chunk-size-huge", Answer::ChunkSizeHuge),
    ("endless-status", Answer::EndlessStatus),
    ("no-media", Answer::NoMedia),
];

impl ServerFaults {
    /// The faults there are, as they are written; of the two first, one of several words.
    pub const KNOWN: [&str; 8] = [
        "handshake=silent",
        "answer=not-found",
        "lose=1%",
        "malformed=1%",
        "stall=5s+1s",
        "skew=200ms",
        "stop=5s",
        "close=5s",
    ];

    /// Adds one fault, as it is written after `--fault`. One that stands already is replaced.
    ///
    /// # Errors
    /// What is wrong with it, and what there is.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let (name, value) = (name.trim(), value.trim());
        let time = |text: &str| {
            let span = text.parse::<TimeSpan>();
            span.map(|span| span.0).map_err(|error| error.to_string())
        };
        let share = |text: &str| {
            let share = text.parse::<Ratio>();
            share
                .map(|share| share.0)
                .map_err(|error| error.to_string())
        };
        let result = match name {
            "handshake" => crate::reference::one_of(&HANDSHAKES, value)
                .map(|fault| self.handshake = Some(fault)),
            "answer" => {
                crate::reference::one_of(&ANSWERS, value).map(|fault| self.answer = Some(fault))
            }
            "lose" => share(value).map(|share| self.flow.lose = share),
            "malformed" => share(value).map(|share| self.flow.malformed = share),
            "stall" => value
                .split_once('+')
                .ok_or_else(|| "it is written `stall=5s+1s`".to_owned())
                .and_then(|(at, length)| Ok((time(at)?, time(length)?)))
                .map(|stall| self.flow.stall = Some(stall)),
            "skew" => time(value).map(|skew| self.flow.skew = skew),
            "stop" => time(value).map(|after| self.flow.stop_after = Some(after)),
            "close" => time(value).map(|after| self.close_after = Some(after)),
            _ => {
                let known: Vec<String> = Self::KNOWN.iter().map(|own| format!("`{own}`")).collect();
                let known = known.join(", ");
                Err(format!("there is no such fault; there are {known}"))
            }
        };
        result.map_err(|error| format!("fault `{text}`: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_they_are_written() {
        let mut faults = ServerFaults::default();
        for known in ServerFaults::KNOWN {
            faults.add(known).expect("it is known");
        }
        let seconds = Duration::from_secs;
        let expected = ServerFaults {
            handshake: Some(HandshakeFault::Silent),
            answer: Some(Answer::NotFound),
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
