//! Durations that are fixed or drawn at random, such as the think times of scenarios.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use measure::units::TimeSpan;
use rand::Rng;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration, or a range from which each client draws one at random: `20s`, `5s..20s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationRange {
    /// Minimum.
    pub min: Duration,
    /// Maximum.
    pub max: Duration,
}

impl DurationRange {
    /// A fixed duration.
    pub const fn fixed(time: Duration) -> DurationRange {
        DurationRange {
            min: time,
            max: time,
        }
    }

    /// Draws a duration, uniformly in steps of 1 ms.
    pub fn draw(self, random: &mut impl Rng) -> Duration {
        let steps = (self.max - self.min).as_millis();
        let steps = u64::try_from(steps).unwrap_or(u64::MAX - 1);
        // Consumes a random number even for a fixed duration, so that later choices stay the same.
        let drawn = random.next_u64() % (steps + 1);
        self.min + Duration::from_millis(drawn)
    }
}

impl FromStr for DurationRange {
    type Err = String;

    fn from_str(text: &str) -> Result<DurationRange, String> {
        let time = |text: &str| {
            let time = text.trim().parse::<TimeSpan>();
            time.map(|time| time.0).map_err(|error| error.to_string())
        };
        let Some((min, max)) = text.split_once("..") else {
            return time(text).map(DurationRange::fixed);
        };
        let (min, max) = (time(min)?, time(max)?);
        if max < min {
            return Err(format!(
                "`{text}` ends before it begins; write the shorter time first, such as `5s..20s`"
            ));
        }
        Ok(DurationRange { min, max })
    }
}

impl fmt::Display for DurationRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        TimeSpan(self.min).fmt(out)?;
        match self.min == self.max {
            true => Ok(()),
            false => write!(out, "..{}", TimeSpan(self.max)),
        }
    }
}

impl Serialize for DurationRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DurationRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DurationRange, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for DurationRange {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A duration, or a range from which each client draws one at random: `20s`, `5s..20s`.",
            "examples": ["20s", "5s..20s"]
        })
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    #[test]
    fn drawn_duration_is_within_its_range() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let span: DurationRange = "5s..6s".parse().expect("valid");
        let drawn: Vec<Duration> = (0..100).map(|_| span.draw(&mut random)).collect();
        assert!(
            drawn
                .iter()
                .all(|time| (span.min..=span.max).contains(time))
        );
        assert!(drawn.iter().any(|time| *time != drawn[0]));
        let exact: DurationRange = "5s".parse().expect("valid");
        assert_eq!(exact.draw(&mut random), Duration::from_secs(5));
        assert_eq!(
            (exact.to_string(), span.to_string()),
            ("5s".into(), "5s..6s".into())
        );
    }
}
