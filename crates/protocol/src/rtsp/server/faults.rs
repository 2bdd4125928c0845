//! What the reference server does wrong on purpose, to packets and to the conversation.

use std::fmt;
use std::time::Duration;

use measure::units::{Ratio, TimeSpan};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::media::rtp::Faults;
use crate::rtsp::codec::Method;

/// When a fault of the conversation strikes.
#[derive(Clone, Debug, PartialEq)]
pub struct When {
    /// At requests of this method; at all without one.
    pub method: Option<Method>,
    /// At this share of them; from 0 to 1.
    pub probability: f64,
}

/// A request that is refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// When.
    pub when: When,
    /// With which status, 300 to 599.
    pub status: u16,
}

/// An answer that comes late.
#[derive(Clone, Debug, PartialEq)]
pub struct Slowness {
    /// When.
    pub when: When,
    /// By how much.
    pub delay: Duration,
}

/// What is done wrong to the conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControlFaults {
    /// Requests that are refused.
    pub refuse: Vec<Refusal>,
    /// Requests that are never answered.
    pub silent: Vec<When>,
    /// Requests at which the connection is closed instead of an answer.
    pub cut_at: Vec<When>,
    /// The connection is closed so long after the first PLAY.
    pub cut_after: Option<Duration>,
    /// Answers that come late.
    pub slow: Vec<Slowness>,
    /// The share of answers to DESCRIBE whose Content-Length is wrong, by half too short or as much
    /// too long.
    pub content_length: f64,
    /// The share of answers before which there is garbage; and of seconds of interleaved play in
    /// which there is some between two frames. 1 to 64 bytes that can be told from messages and
    /// frames: each is 128 or above.
    pub garbage: f64,
    /// Answers to PLAY that state what was asked for, and play as usual, or on from where it is.
    pub pretend: Vec<Pretence>,
}

/// What the answer to PLAY states and is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pretence {
    /// The position of `Range`.
    Range,
    /// `Scale`.
    Scale,
    /// `Speed`.
    Speed,
}

impl Pretence {
    const ALL: [(&str, Pretence); 3] = [
        ("range", Pretence::Range),
        ("scale", Pretence::Scale),
        ("speed", Pretence::Speed),
    ];
}

/// All that the reference server does wrong on purpose. Nothing by default.
///
/// Written as a list of texts, each as after `--fault` on the command line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerFaults {
    /// To the packets of every stream.
    pub media: Faults,
    /// To the conversation.
    pub control: ControlFaults,
    /// As they were written.
    written: Vec<String>,
}

/// The faults of the conversation, as they are written.
const KNOWN: [&str; 11] = [
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

impl ServerFaults {
    /// Reads one fault.
    pub fn parse_flag(text: &str) -> Result<ServerFaults, String> {
        let mut faults = ServerFaults::default();
        faults.add(text)?;
        Ok(faults)
    }

    /// Adds one fault, as it is written after `--fault`. One that stands already is replaced; of
    /// those that name a method there can be several.
    pub fn add(&mut self, text: &str) -> Result<(), String> {
        let text = text.trim();
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.trim(), value.trim()),
            None => (text, ""),
        };
        let result = match self.media.set(name, value) {
            Some(result) => result,
            None => self.control.set(name, value).unwrap_or_else(|| {
                let known = Faults::KNOWN.into_iter().chain(KNOWN);
                let known: Vec<String> = known.map(|known| format!("`{known}`")).collect();
                Err(format!(
                    "there is no such fault; there are {}",
                    known.join(", ")
                ))
            }),
        };
        result.map_err(|error| format!("fault `{text}`: {error}"))?;
        self.written.push(text.to_owned());
        Ok(())
    }

    /// The faults as they were written.
    pub fn written(&self) -> &[String] {
        &self.written
    }
}

impl ControlFaults {
    fn set(&mut self, name: &str, value: &str) -> Option<Result<(), String>> {
        Some(match name {
            "refuse" => refusal(value).map(|refusal| self.refuse.push(refusal)),
            "silent" => when(value).map(|when| self.silent.push(when)),
            "cut" => {
                if value.starts_with(|c: char| c.is_ascii_digit()) {
                    duration(value).map(|after| self.cut_after = Some(after))
                } else if value.is_empty() {
                    Err("write when: `cut=5s` after the first PLAY, or `cut=play`".to_owned())
                } else {
                    when(value).map(|when| self.cut_at.push(when))
                }
            }
            "slow" => slowness(value).map(|slowness| self.slow.push(slowness)),
            "content-length" => share_or_all(value).map(|share| self.content_length = share),
            "garbage" => share_or_all(value).map(|share| self.garbage = share),
            "pretend" => match Pretence::ALL.iter().find(|(name, _)| *name == value) {
                Some((_, pretence)) => {
                    self.pretend.push(*pretence);
                    Ok(())
                }
                None => Err(
                    "write what: `pretend=range`, `pretend=scale` or `pretend=speed`".to_owned(),
                ),
            },
            _ => return None,
        })
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    text.parse::<TimeSpan>()
        .map(|span| span.0)
        .map_err(|error| error.to_string())
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<Ratio>() {
        Ok(Ratio(share)) if share <= 1.0 => Ok(share),
        Ok(_) => Err(format!("`{text}` is more than 100%")),
        Err(error) => Err(error.to_string()),
    }
}

fn share_or_all(text: &str) -> Result<f64, String> {
    if text.is_empty() {
        Ok(1.0)
    } else {
        share(text)
    }
}

/// `setup`, `setup@10%`, `@10%` or nothing.
fn when(text: &str) -> Result<When, String> {
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
                    "`{name}` is no method of RTSP; there are {}",
                    known.join(", ")
                ));
            }
            method => Some(method),
        },
    };
    Ok(When {
        method,
        probability,
    })
}

/// Takes `status@10%` or `delay@10%` apart, behind the method, into what is stated and when.
fn stated_and_when(text: &str) -> Result<(&str, When), String> {
    let (method, rest) = text.split_once(':').unwrap_or(("", text));
    let (stated, at) = match rest.find('@') {
        Some(place) => rest.split_at(place),
        None => (rest, ""),
    };
    Ok((stated.trim(), when(&format!("{method}{at}"))?))
}

fn refusal(text: &str) -> Result<Refusal, String> {
    let (status, when) = stated_and_when(text)?;
    let status = status
        .parse()
        .ok()
        .filter(|status| (300..600).contains(status))
        .ok_or_else(|| {
            format!("`{status}` is no status from 300 to 599; write `refuse=setup:461`")
        })?;
    Ok(Refusal { when, status })
}

fn slowness(text: &str) -> Result<Slowness, String> {
    let (delay, when) = stated_and_when(text)?;
    Ok(Slowness {
        when,
        delay: duration(delay)?,
    })
}

impl Serialize for ServerFaults {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ServerFaults {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ServerFaults, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = ServerFaults;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of faults, such as [\"loss=1%\"]")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(
                self,
                mut list: A,
            ) -> Result<ServerFaults, A::Error> {
                let mut faults = ServerFaults::default();
                while let Some(text) = list.next_element::<String>()? {
                    faults.add(&text).map_err(de::Error::custom)?;
                }
                Ok(faults)
            }
        }
        deserializer.deserialize_seq(Visitor)
    }
}

impl JsonSchema for ServerFaults {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ServerFaults".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "description": "What the server does wrong on purpose, such as loss=1%.",
            "type": "array",
            "items": { "type": "string" },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_named_is_known() {
        for text in Faults::KNOWN.into_iter().chain(KNOWN) {
            let faults = ServerFaults::parse_flag(text).unwrap();
            assert_ne!(faults, ServerFaults::default(), "{text}");
            assert_eq!(faults.written(), [text]);
        }
    }

    #[test]
    fn faults_say_what_is_wrong_with_them() {
        let error = |text| ServerFaults::parse_flag(text).unwrap_err();
        assert!(error("los=1%").contains("`loss=1%`"));
        for (text, word) in [
            ("loss=abc", "abc"),
            ("loss=200%", "200%"),
            ("loss-burst=1%", "x5"),
            ("reorder=1%x0", "1 to 1000"),
            ("jitter=5", "unit"),
            ("delay=2h", "at most"),
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
    fn parts_are_read() {
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
        let json = serde_json::to_string(&faults).unwrap();
        assert_eq!(serde_json::from_str::<ServerFaults>(&json).unwrap(), faults);
    }
}
