//! Faults that the reference server injects into packets and into RTSP sessions.

use std::time::Duration;

use crate::codec::Method;
use kit::faults::{FaultSet, one_of, share, time};
use kit::media::rtp::Faults;

/// Condition of a fault in an RTSP session.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultCondition {
    /// Method of the affected requests; `None` for all methods.
    pub method: Option<Method>,
    /// Share of these requests that is affected, from 0 to 1.
    pub probability: f64,
}

/// Refusal of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    pub when: FaultCondition,
    /// Status, 300 to 599.
    pub status: u16,
}

#[derive(Clone, Debug, PartialEq)]
pub struct AnswerDelay {
    pub when: FaultCondition,
    pub delay: Duration,
}

/// Faults in RTSP sessions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControlFaults {
    /// Requests that are refused.
    pub refuse: Vec<Refusal>,
    /// Requests that are never answered.
    pub silent: Vec<FaultCondition>,
    /// Requests at which the connection is closed instead of sending an answer.
    pub cut_at: Vec<FaultCondition>,
    /// Time from the first PLAY until the connection is closed.
    pub cut_after: Option<Duration>,
    /// Delayed answers.
    pub slow: Vec<AnswerDelay>,
    /// Share of answers to DESCRIBE with a wrong Content-Length: by half too short, or by half too
    /// long.
    pub content_length: f64,
    /// Share of answers preceded by garbage, and share of seconds of interleaved playback with
    /// garbage between two frames. Garbage is 1 to 64 bytes that differ from messages and frames:
    /// each byte is 128 or above.
    pub garbage: f64,
    /// Values that answers to PLAY state as requested, although the stream plays as before: at the
    /// normal scale or speed, or from its current position.
    pub pretend: Vec<FalseStatement>,
}

/// A value that the answer to PLAY states without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FalseStatement {
    /// The position in `Range`.
    Range,
    Scale,
    Speed,
}

impl FalseStatement {
    const ALL: [(&str, FalseStatement); 3] = [
        ("range", FalseStatement::Range),
        ("scale", FalseStatement::Scale),
        ("speed", FalseStatement::Speed),
    ];
}

/// All faults that the reference server injects. None by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerFaults {
    /// Faults in the packets of every stream.
    pub media: Faults,
    /// Faults in RTSP sessions.
    pub control: ControlFaults,
}

/// Examples of all faults in RTSP sessions.
const EXAMPLES: [&str; 11] = [
    "refuse=setup:461",
    "refuse=describe:503@10%",
    "silent=describe",
    "silent",
    "cut=5s",
    "cut=play",
    "slow=500ms",
    "slow=play:2s@10%",
    "content-length",
    "garbage=0.1%",
    "pretend=scale",
];

/// `refuse`, `silent`, `slow`, `pretend` and `cut` at a method accumulate.
impl FaultSet for ServerFaults {
    fn known() -> Vec<&'static str> {
        Faults::EXAMPLES.into_iter().chain(EXAMPLES).collect()
    }

    fn set(&mut self, name: &str, value: &str) -> Option<Result<(), String>> {
        let media = self.media.set(name, value);
        media.or_else(|| self.control.set(name, value))
    }
}

impl ControlFaults {
    fn set(&mut self, name: &str, value: &str) -> Option<Result<(), String>> {
        Some(match name {
            "refuse" => refusal(value).map(|refusal| self.refuse.push(refusal)),
            "silent" => parse_condition(value).map(|when| self.silent.push(when)),
            "cut" => {
                if value.starts_with(|c: char| c.is_ascii_digit()) {
                    time(value).map(|after| self.cut_after = Some(after))
                } else if value.is_empty() {
                    Err("a time or a method is missing; write `cut=5s` or `cut=play`".to_owned())
                } else {
                    parse_condition(value).map(|when| self.cut_at.push(when))
                }
            }
            "slow" => answer_delay(value).map(|delay| self.slow.push(delay)),
            "content-length" => share_or_all(value).map(|share| self.content_length = share),
            "garbage" => share_or_all(value).map(|share| self.garbage = share),
            "pretend" => one_of(&FalseStatement::ALL, value).map(|own| self.pretend.push(own)),
            _ => return None,
        })
    }
}

fn share_or_all(text: &str) -> Result<f64, String> {
    if text.is_empty() {
        Ok(1.0)
    } else {
        share(text)
    }
}

/// Parses `setup`, `setup@10%`, `@10%` or an empty text.
fn parse_condition(text: &str) -> Result<FaultCondition, String> {
    let (name, probability) = match text.split_once('@') {
        Some((name, text)) => (name, share(text)?),
        None => (text, 1.0),
    };
    let method = match name.trim() {
        "" => None,
        name => match Method::from_name(&name.to_ascii_uppercase().replace('-', "_")) {
            Method::Other(_) => {
                let known: Vec<String> = Method::KNOWN
                    .iter()
                    .map(|method| method.name().to_ascii_lowercase())
                    .collect();
                return Err(format!(
                    "`{name}` is not an RTSP method; write one of {}",
                    known.join(", ")
                ));
            }
            method => Some(method),
        },
    };
    Ok(FaultCondition {
        method,
        probability,
    })
}

/// Splits `method:status@10%` or `method:delay@10%` into the stated value and the condition.
fn split_condition(text: &str) -> Result<(&str, FaultCondition), String> {
    let (method, rest) = text.split_once(':').unwrap_or(("", text));
    let (stated, at) = match rest.find('@') {
        Some(place) => rest.split_at(place),
        None => (rest, ""),
    };
    Ok((stated.trim(), parse_condition(&format!("{method}{at}"))?))
}

fn refusal(text: &str) -> Result<Refusal, String> {
    let (status, when) = split_condition(text)?;
    let status = status
        .parse()
        .ok()
        .filter(|status| (300..600).contains(status))
        .ok_or_else(|| {
            format!("`{status}` is not a status from 300 to 599; write `refuse=setup:461`")
        })?;
    Ok(Refusal { when, status })
}

fn answer_delay(text: &str) -> Result<AnswerDelay, String> {
    let (delay, when) = split_condition(text)?;
    Ok(AnswerDelay {
        when,
        delay: time(delay)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_faults_are_known() {
        for text in ServerFaults::known() {
            let mut faults = ServerFaults::default();
            faults.add(text).unwrap();
            assert_ne!(faults, ServerFaults::default(), "{text}");
        }
    }

    #[test]
    fn invalid_faults_are_rejected_with_a_reason() {
        let error = |text: &str| ServerFaults::default().add(text).unwrap_err();
        assert!(error("los=1%").contains("`loss=1%`"));
        for (text, word) in [
            ("loss=abc", "abc"),
            ("loss=200%", "200%"),
            ("loss-burst=1%", "x5"),
            ("reorder=1%x0", "1 to 1000"),
            ("jitter=5", "unit"),
            ("delay=2h", "maximum delay"),
            ("stall=2s", "10s+2s"),
            ("refuse=setup", "status"),
            ("refuse=sitzup:400", "options, describe"),
            ("refuse=setup:200", "300 to 599"),
            ("cut", "cut=5s"),
            ("garbage=x", "x"),
        ] {
            assert!(error(text).contains(word), "{text}: {}", error(text));
        }
    }

    #[test]
    fn parts_of_a_fault_are_parsed() {
        let mut faults = ServerFaults::default();
        for text in [
            "refuse=describe:503@10%",
            "cut=get-parameter",
            "slow=2s",
            "reorder=1%x3",
        ] {
            faults.add(text).unwrap();
        }
        let control = &faults.control;
        assert_eq!(control.refuse[0].status, 503);
        assert_eq!(control.refuse[0].when.method, Some(Method::Describe));
        assert_eq!(control.refuse[0].when.probability, 0.1);
        assert_eq!(control.cut_at[0].method, Some(Method::GetParameter));
        assert_eq!(control.slow[0].when.method, None);
        assert_eq!(control.slow[0].delay, Duration::from_secs(2));
        assert_eq!(faults.media.reorder.unwrap().distance, 3);
    }
}
