//! Frames per second.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Frames per second as an exact ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameRate {
    pub(crate) numerator: u32,
    pub(crate) denominator: u32,
}

/// Error for a text that is not a frame rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a frame rate: write frames per second, such as `25`, `29.97` or `30000/1001`, from \
     0.1 to 1000"
)]
pub struct FrameRateError(String);

impl FrameRate {
    /// Creates a whole number of frames per second, from 1 to 1000.
    pub const fn whole(frames: u32) -> FrameRate {
        assert!(frames >= 1 && frames <= 1000, "outside of 1 to 1000");
        FrameRate {
            numerator: frames,
            denominator: 1,
        }
    }

    /// Numerator of the ratio.
    pub const fn numerator(self) -> u32 {
        self.numerator
    }

    /// Denominator of the ratio.
    pub const fn denominator(self) -> u32 {
        self.denominator
    }

    /// Duration of `frames` frames in ticks of a clock of `clock_rate` Hz, rounded down.
    pub fn ticks(self, frames: u64, clock_rate: u32) -> u64 {
        let ticks = u128::from(frames) * u128::from(clock_rate) * u128::from(self.denominator)
            / u128::from(self.numerator);
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }

    /// Duration of `frames` frames in nanoseconds, rounded down.
    pub fn nanos(self, frames: u64) -> u64 {
        self.ticks(frames, 1_000_000_000)
    }

    /// Number of frames that begin within `length`.
    pub fn frames_within(self, length: Duration) -> u64 {
        let unit = u128::from(self.denominator) * 1_000_000_000;
        let frames = (length.as_nanos() * u128::from(self.numerator)).div_ceil(unit);
        u64::try_from(frames).unwrap_or(u64::MAX)
    }
}

impl FromStr for FrameRate {
    type Err = FrameRateError;

    fn from_str(text: &str) -> Result<FrameRate, FrameRateError> {
        let error = || FrameRateError(text.chars().take(40).collect());
        let (numerator, denominator) = match text.trim() {
            // NTSC rates in their common notation.
            "23.976" | "23.98" => (24_000, 1001),
            "29.97" => (30_000, 1001),
            "59.94" => (60_000, 1001),
            text => match text.split_once(['/', '.']) {
                None => (text.parse().map_err(|_| error())?, 1),
                Some((numerator, denominator)) if text.contains('/') => (
                    numerator.parse().map_err(|_| error())?,
                    denominator.parse().map_err(|_| error())?,
                ),
                Some((whole, decimals)) if (1..=3).contains(&decimals.len()) => {
                    let scale = 10u32.pow(decimals.len() as u32);
                    let whole: u32 = whole.parse().map_err(|_| error())?;
                    let part: u32 = decimals.parse().map_err(|_| error())?;
                    let numerator = whole.checked_mul(scale).ok_or_else(error)? + part;
                    (numerator, scale)
                }
                Some(_) => return Err(error()),
            },
        };
        let (n, d) = (u64::from(numerator), u64::from(denominator));
        if d == 0 || d > 1_000_000 || n > 1_000_000 || n > 1000 * d || 10 * n < d {
            return Err(error());
        }
        let divisor = greatest_common_divisor(numerator, denominator);
        Ok(FrameRate {
            numerator: numerator / divisor,
            denominator: denominator / divisor,
        })
    }
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

impl fmt::Display for FrameRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.denominator == 1 {
            write!(f, "{}", self.numerator)
        } else {
            write!(f, "{}/{}", self.numerator, self.denominator)
        }
    }
}

impl Serialize for FrameRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FrameRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FrameRate, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = FrameRate;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("frames per second, such as 25, 29.97 or \"30000/1001\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<FrameRate, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, frames: u64) -> Result<FrameRate, E> {
                self.visit_str(&frames.to_string())
            }

            fn visit_f64<E: de::Error>(self, frames: f64) -> Result<FrameRate, E> {
                self.visit_str(&frames.to_string())
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for FrameRate {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "FrameRate".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "Frames per second, such as 25, 29.97 or 30000/1001.",
            "type": ["string", "number"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_rates_are_exact() {
        let ntsc: FrameRate = "29.97".parse().unwrap();
        assert_eq!(ntsc, "30000/1001".parse().unwrap());
        assert_eq!(ntsc.ticks(30_000, 90_000), 1001 * 90_000);
        assert_eq!("12.5".parse::<FrameRate>().unwrap().to_string(), "25/2");
        assert_eq!("50/2".parse::<FrameRate>().unwrap(), FrameRate::whole(25));
        assert_eq!(
            FrameRate::whole(25).frames_within(Duration::from_secs(3)),
            75
        );
        assert_eq!(
            FrameRate::whole(50).frames_within(Duration::from_millis(1)),
            1
        );
        for wrong in [
            "",
            "0",
            "x",
            "1001",
            "1/0",
            "-5",
            "1.",
            "1.2345",
            "0.01",
            "5000000000",
        ] {
            assert!(wrong.parse::<FrameRate>().is_err(), "{wrong}");
        }
    }
}
