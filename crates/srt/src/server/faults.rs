//! Faults that the reference server injects.

use std::time::Duration;

use measure::units::{Ratio, TimeSpan};

use crate::codec::handshake::Rejection;

/// Fault in the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeFault {
    /// No handshake is answered.
    Silent,
    /// The induction is answered, but the conclusion is not.
    Unfinished,
    /// Answers are truncated.
    Malformed,
}

/// Faults in the media of a player. Default: none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FlowFaults {
    /// Share of first transmissions that are left out, from 0 to 1.
    pub lose: f64,
    /// Share of retransmissions that are left out.
    pub lose_again: f64,
    /// Share of packets that are sent twice.
    pub duplicate: f64,
    /// Share of packets that are sent after the next one.
    pub reorder: f64,
    /// Share of packets with a wrong bit in the payload.
    pub corrupt: f64,
    /// Start and length of a single pause, from the start of the stream.
    pub stall: Option<(Duration, Duration)>,
}

/// Faults that a server injects. Default: none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerFaults {
    pub handshake: Option<HandshakeFault>,
    /// Reason with which every connection is rejected.
    pub reject: Option<Rejection>,
    pub flow: FlowFaults,
    /// Length of the media after which it stops, while keep-alives continue.
    pub stop_after: Option<Duration>,
    /// Length of the media after which all packets stop.
    pub silent_after: Option<Duration>,
    /// Length of the media after which the connection is shut down.
    pub close_after: Option<Duration>,
}

/// Values of `handshake=`.
const HANDSHAKES: [(&str, HandshakeFault); 3] = [
    ("silent", HandshakeFault::Silent),
    ("unfinished", HandshakeFault::Unfinished),
    ("malformed", HandshakeFault::Malformed),
];

impl ServerFaults {
    /// One example of each fault. `handshake` has other values, too.
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

    /// Adds a fault in the syntax of `--fault`. It replaces an earlier one with the same name.
    ///
    /// # Errors
    /// Reason why the fault is invalid, with the valid ones.
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
            "handshake" => kit::reference::find_by_name(&HANDSHAKES, value)
                .map(|fault| self.handshake = Some(fault)),
            "reject" => match value.parse() {
                Ok(code @ 1000..=9999) => {
                    self.reject = Some(Rejection::new(code));
                    Ok(())
                }
                _ => Err("expected a rejection code of SRT, such as 2404".to_owned()),
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
                None => Err("expected a start and a length, such as 5s+1s".to_owned()),
            },
            "stop" => time(value).map(|after| self.stop_after = Some(after)),
            "silent" => time(value).map(|after| self.silent_after = Some(after)),
            "close" => time(value).map(|after| self.close_after = Some(after)),
            _ => {
                let known: Vec<String> = Self::KNOWN.iter().map(|own| format!("`{own}`")).collect();
                let known = known.join(", ");
                Err(format!("unknown fault; known faults are {known}"))
            }
        };
        result.map_err(|error| format!("fault `{text}`: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_parsed() {
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
