//! Actions of a client while it plays: the keys of a scenario's `actions`.

use std::fmt;
use std::time::Duration;

use measure::units::TimeSpan;
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

pub use kit::duration_range::DurationRange;

/// Maximum number of actions of one client.
pub const MAX_ACTIONS: usize = 256;

/// An action of a client while it plays. It begins when the action before it ends: a PLAY or PAUSE
/// ends with its answer, a PLAY with a limited range with that range, and a wait with its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Continues playing, or changes position, scale or speed: `{from: 10s, to: 40s}`. As the first
    /// action, it determines how the client begins. Without it, the client begins to play the whole
    /// media.
    Play(#[serde(deserialize_with = "Play::checked")] Play),
    /// Keeps playing for this time: `20s`, or `5s..20s` for a time drawn with the seed.
    Wait(DurationRange),
    /// Pauses for this time (PAUSE), then resumes from there (PLAY without a range).
    Pause(DurationRange),
    /// Seeks to this position and plays on from there (PAUSE, then PLAY with a range).
    Seek(DurationRange),
    /// Requests fast forward or rewind from the current position: `2` plays twice as much media in
    /// the same time, `-1` plays backwards, `1` is normal (RFC 2326, 12.34).
    Scale(Scale),
    /// Requests delivery at a multiple of the normal rate, from the current position: `2` needs
    /// twice the bandwidth (RFC 2326, 12.35).
    Speed(Speed),
    /// Leaves early.
    Leave(LeaveEarly),
}

/// Parameters of `play`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, expecting = "struct PlayKeys")]
pub struct Play {
    /// Start position. Default: the current position; for the first action, the beginning.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(!skip_serializing_if)]
    pub from: Option<DurationRange>,
    /// End position. When it is reached, the next action begins; without a next action, the client
    /// has completed. Default: the end of the media, while the next action begins at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(!skip_serializing_if)]
    pub to: Option<DurationRange>,
    /// Same as the action `scale`. Default: unchanged, initially 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(!skip_serializing_if)]
    pub scale: Option<Scale>,
    /// Same as the action `speed`. Default: unchanged, initially 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(!skip_serializing_if)]
    pub speed: Option<Speed>,
}

impl Play {
    /// Reads the parameters, and checks whether they make sense together.
    fn checked<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Play, D::Error> {
        let play = Play::deserialize(deserializer)?;
        let from = play.from.map_or(Duration::ZERO, |from| from.max);
        let backwards = play.scale.is_some_and(|scale| scale.0 < 0.0);
        if let Some(to) = play.to {
            if backwards {
                return Err(D::Error::custom(
                    "`to` cannot be combined with a negative `scale`; \
                     a rewind ends at the beginning or with the next action",
                ));
            }
            if to.min <= from {
                return Err(D::Error::custom(format!(
                    "`to: {to}` is not after `from`; write a position after {}, counted from the beginning of the media",
                    TimeSpan(from)
                )));
            }
        }
        Ok(play)
    }
}

/// Parameters of `leave`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LeaveEarly {
    /// Probability of leaving. Default: 100%.
    pub chance: measure::units::Ratio,
}

impl Default for LeaveEarly {
    fn default() -> LeaveEarly {
        LeaveEarly {
            chance: measure::units::Ratio(1.0),
        }
    }
}

/// Value of `Scale` (RFC 2326, 12.34): from -256 to 256, except 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "f64", into = "f64")]
pub struct Scale(pub f64);

/// Value of `Speed` (RFC 2326, 12.35): above 0, up to 256.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "f64", into = "f64")]
pub struct Speed(pub f64);

impl TryFrom<f64> for Scale {
    type Error = String;

    fn try_from(scale: f64) -> Result<Scale, String> {
        match scale != 0.0 && scale.abs() <= 256.0 {
            true => Ok(Scale(scale)),
            false => Err(format!(
                "`scale` cannot be {scale}; write 2 for fast forward, -1 for rewind, 1 for normal, up to 256"
            )),
        }
    }
}

impl TryFrom<f64> for Speed {
    type Error = String;

    fn try_from(speed: f64) -> Result<Speed, String> {
        match speed > 0.0 && speed <= 256.0 {
            true => Ok(Speed(speed)),
            false => Err(format!(
                "`speed` cannot be {speed}; write a number above 0 and up to 256, such as 2 or 0.5"
            )),
        }
    }
}

impl From<Scale> for f64 {
    fn from(scale: Scale) -> f64 {
        scale.0
    }
}

impl From<Speed> for f64 {
    fn from(speed: Speed) -> f64 {
        speed.0
    }
}

impl fmt::Display for Action {
    /// Describes what a client does: `seeks to 30s..50s`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Play(play) => play.fmt(out),
            Action::Wait(span) => write!(out, "plays on for {span}"),
            Action::Pause(span) => write!(out, "pauses for {span}"),
            Action::Seek(span) => write!(out, "seeks to {span}"),
            Action::Scale(Scale(scale)) => write!(out, "asks for scale {scale}"),
            Action::Speed(Speed(speed)) => write!(out, "asks for speed {speed}"),
            Action::Leave(LeaveEarly { chance }) if chance.0 >= 1.0 => out.write_str("leaves"),
            Action::Leave(LeaveEarly { chance }) => write!(out, "leaves with a chance of {chance}"),
        }
    }
}

impl fmt::Display for Play {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("plays")?;
        if let Some(from) = self.from {
            write!(out, " from {from}")?;
        }
        if let Some(to) = self.to {
            write!(out, " to {to}")?;
        }
        if let Some(Scale(scale)) = self.scale {
            write!(out, " at scale {scale}")?;
        }
        match self.speed {
            Some(Speed(speed)) => write!(out, " at speed {speed}"),
            None => Ok(()),
        }
    }
}

/// Describes what clients with these actions do. Names at most the first 12. Returns `None` if
/// there are no actions.
pub fn describe_actions(actions: &[Action]) -> Option<String> {
    const SHOWN: usize = 12;
    let mut words: Vec<String> = actions.iter().take(SHOWN).map(Action::to_string).collect();
    if actions.len() > SHOWN {
        words.push(format!("and {} more", actions.len() - SHOWN));
    }
    (!words.is_empty()).then(|| words.join(", "))
}

/// Checks whether these actions make sense together. Returns the reason if they do not.
pub fn check(actions: &[Action]) -> Result<(), String> {
    if actions.len() > MAX_ACTIONS {
        return Err(format!(
            "there are {} `actions`; write at most {MAX_ACTIONS}",
            actions.len()
        ));
    }
    let leaves = |action: &Action| matches!(action, Action::Leave(leave) if leave.chance.0 >= 1.0);
    match actions.iter().position(leaves) {
        Some(place) if place + 1 < actions.len() => Err(format!(
            "action {} of `actions` is `leave`, so no client reaches the {} after it; \
             remove these, or write `leave: {{chance: 30%}}`",
            place + 1,
            actions.len() - place - 1
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actions(json: &str) -> Result<Vec<Action>, String> {
        serde_json::from_str::<Vec<Action>>(json).map_err(|error| error.to_string())
    }

    #[test]
    fn actions_round_trip_through_json() {
        let text = r#"[{"play":{"from":"10s","to":"40s"}},{"wait":"5s..20s"},{"pause":"3s"},{"seek":"30s..50s"},{"scale":-1.0},{"speed":0.5},{"leave":{"chance":"30%"}}]"#;
        let read = actions(text).expect("valid");
        assert_eq!(read.len(), 7);
        let words = "plays from 10s to 40s, plays on for 5s..20s, pauses for 3s, seeks to 30s..50s, \
                     asks for scale -1, asks for speed 0.5, leaves with a chance of 30%";
        assert_eq!(describe_actions(&read).as_deref(), Some(words));
        let many = vec![Action::Pause(DurationRange::fixed(Duration::ZERO)); 15];
        assert!(describe_actions(&many).is_some_and(|words| words.ends_with(", and 3 more")));
        assert_eq!(describe_actions(&[]), None);
        assert_eq!(check(&read), Ok(()));
        let written = serde_json::to_string(&read).expect("plain data");
        assert_eq!(actions(&written), Ok(read));
    }

    #[test]
    fn invalid_actions_are_rejected() {
        for (text, says) in [
            (r#"[{"wait":"20s..5s"}]"#, "ends before it begins"),
            (r#"[{"wait":"5"}]"#, "a unit is missing"),
            (r#"[{"seek":"5s.."}]"#, "missing"),
            (r#"[{"scale":0}]"#, "cannot be 0"),
            (r#"[{"speed":-1}]"#, "cannot be -1"),
            (r#"[{"play":{"from":"10s","to":"5s"}}]"#, "not after `from`"),
            (r#"[{"play":{"to":"5s","scale":-2}}]"#, "negative `scale`"),
            (r#"[{"play":{"until":"5s"}}]"#, "unknown field"),
            (r#"[{"play":5}]"#, "expected struct PlayKeys"),
            (r#"[{"leave":{"chance":2}}]"#, "share"),
            (r#"[{"jump":"5s"}]"#, "unknown variant"),
        ] {
            let error = actions(text).expect_err(text);
            assert!(error.contains(says), "{text}: {error}");
        }
        let read = actions(r#"[{"leave":{}},{"wait":"1s"}]"#).expect("each is valid");
        assert!(
            check(&read).is_err_and(|error| error.contains("no client reaches the 1 after it"))
        );
        let many = vec![Action::Wait(DurationRange::fixed(Duration::ZERO)); MAX_ACTIONS + 1];
        assert!(check(&many).is_err());
    }
}
