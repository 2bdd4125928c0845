//! What the reference server does wrong on purpose.

use std::time::Duration;

use measure::units::{Ratio, TimeSpan};

use crate::srt::codec::handshake::Rejection;

/// What it does wrong in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeFault {
    /// It says nothing.
    Silent,
    /// It answers the induction, and not the conclusion.
    Unfinished,
    /// Its answers are cut off.
    Malformed,
}

/// What is done wrong with media on its way to a player. Nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlowFaults {
    /// The share of packets that are left out when they are sent first; from 0 to 1.
    pub lose: f64,
    /// The share of retransmissions that are left out.
    pub lose_again: f64,
    /// The share of packets that leave twice.
    pub duplicate: f64,
    /// The share of packets that leave behind the one after them.
    pub reorder: f64,
    /// The share of packets of which a bit of the payload is wrong.
    pub corrupt: f64,
    /// When nothing is sent, and for how long: once, from the beginning of the stream.
    pub stall: Option<(Duration, Duration)>,
}

/// What is done wrong on purpose. Nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerFaults {
    /// In the handshake.
    pub handshake: Option<HandshakeFault>,
    /// The reason with which every connection is rejected.
    pub reject: Option<Rejection>,
    /// With media.
    pub flow: FlowFaults,
    /// After how long of media no more comes, while keepalives do.
    pub stop_after: Option<Duration>,
    /// After how long of media nothing at all comes.
    pub silent_after: Option<Duration>,
    /// After how long of media the connection is shut down.
    pub close_after: Option<Duration>,
}

/// What stands behind `handshake=`.
const HANDSHAKES: [(&str, HandshakeFault); 3] = [
    ("silent", HandshakeFault::Silent),
    ("unfinished", HandshakeFault::Unfinished),
    ("malformed", HandshakeFault::Malformed),
];

impl ServerFaults {
    /// The faults there are, as they are written; of the first, one of several words.
    pub const KNOWN: [&str; 11] = [
        "handshake=silent",
        "reject=2404",
        "lose=1%",
        "lose-again=10%",
        "duplicate=1%",
        "reorder=1%",
        "corrupt=1%",
        "stall=5s+1s",
        "stop=5s",
        "silent=5s",
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
        let share = || {
            let share = value.parse::<Ratio>();
            share
                .map(|share| share.0)
                .map_err(|error| error.to_string())
        };
        let flow = &mut self.flow;
        let result = match name {
            "handshake" => crate::reference::one_of(&HANDSHAKES, value)
                .map(|fault| self.handshake = Some(fault)),
            "reject" => match value.parse() {
                Ok(code @ 1000..=9999) => {
                    self.reject = Some(Rejection::new(code));
                    Ok(())
                }
                _ => Err("it is a code of SRT, such as 2404".to_owned()),
            },
            "lose" => share().map(|share| flow.lose = share),
            "lose-again" => share().map(|share| flow.lose_again = share),
            "duplicate" => share().map(|share| flow.duplicate = share),
            "reorder" => share().map(|share| flow.reorder = share),
            "corrupt" => share().map(|share| flow.corrupt = share),
            "stall" => match value.split_once('+') {
                Some((at, length)) => time(at)
                    .and_then(|at| Ok((at, time(length)?)))
                    .map(|stall| flow.stall = Some(stall)),
                None => Err("it needs a time and a length, such as 5s+1s".to_owned()),
            },
            "stop" => time(value).map(|after| self.stop_after = Some(after)),
            "silent" => time(value).map(|after| self.silent_after = Some(after)),
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
            reject: Some(Rejection::NOTFOUND),
            flow: FlowFaults {
                lose: 0.01,
                lose_again: 0.1,
                duplicate: 0.01,
                reorder: 0.01,
                corrupt: 0.01,
                stall: Some((seconds(5), seconds(1))),
            },
            stop_after: Some(seconds(5)),
            silent_after: Some(seconds(5)),
            close_after: Some(seconds(5)),
        };
        assert_eq!(faults, expected);
        for wrong in ["", "loss=1%", "lose", "stall=5s", "handshake=x", "reject=1"] {
            let error = faults.add(wrong).expect_err("it is wrong");
            assert!(error.contains(&format!("`{wrong}`")), "{error}");
        }
    }
}
