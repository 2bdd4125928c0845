//! Faults that the reference server injects.

use std::time::Duration;

use crate::codec::handshake::Rejection;
use kit::faults::{FaultSet, one_of, share, start_and_length, time};

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

impl FaultSet for ServerFaults {
    fn known() -> Vec<&'static str> {
        vec![
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
        ]
    }

    fn set(&mut self, name: &str, value: &str) -> Option<Result<(), String>> {
        let flow = &mut self.flow;
        Some(match name {
            "handshake" => one_of(&HANDSHAKES, value).map(|fault| self.handshake = Some(fault)),
            "reject" => match value.parse() {
                Ok(code @ 1000..=9999) => {
                    self.reject = Some(Rejection::new(code));
                    Ok(())
                }
                _ => Err("expected a rejection code of SRT, such as 2404".to_owned()),
            },
            "lose" => share(value).map(|share| flow.lose = share),
            "lose-again" => share(value).map(|share| flow.lose_again = share),
            "duplicate" => share(value).map(|share| flow.duplicate = share),
            "reorder" => share(value).map(|share| flow.reorder = share),
            "corrupt" => share(value).map(|share| flow.corrupt = share),
            "stall" => start_and_length(value).map(|stall| flow.stall = Some(stall)),
            "stop" => time(value).map(|after| self.stop_after = Some(after)),
            "silent" => time(value).map(|after| self.silent_after = Some(after)),
            "close" => time(value).map(|after| self.close_after = Some(after)),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_parsed() {
        let mut faults = ServerFaults::default();
        for known in ServerFaults::known() {
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
