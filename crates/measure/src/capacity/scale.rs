//! Values of a key as whole numbers.

use std::time::Duration;

use crate::Unit;
use crate::units::{BitRate, Frequency, Ratio, Size, TimeSpan, parse_quantity};
use serde::{Deserialize, Serialize};

/// Significant decimal digits of a value that is not a count.
const DIGITS: i32 = 4;

/// Kind of the values of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueKind {
    /// Whole numbers, such as `50`.
    Count,
    /// Durations, such as `120ms`.
    Duration,
    /// Bit rates, such as `4Mbps`.
    BitRate,
    /// Sizes, such as `64KiB`.
    Size,
    /// Shares, such as `0.5%`.
    Ratio,
    /// Rates of events, such as `5/s`.
    Frequency,
}

/// Maps the values of a key to loads, which are whole numbers: a value is a load times a power of
/// ten of the base unit (seconds, bit/s, bytes, shares, events per second).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    /// Kind of the values.
    pub kind: ValueKind,
    /// Power of ten of load 1, in the base unit. 0 for counts.
    pub exponent: i32,
}

impl Scale {
    /// Returns the scale on which `first` has four digits, or `None` if it is neither a whole
    /// number nor a positive quantity.
    pub fn of(first: &str) -> Option<Scale> {
        let (kind, value) = read(first)?;
        let exponent = match kind {
            ValueKind::Count => 0,
            _ if value <= 0.0 => return None,
            // Bits and bytes are whole.
            ValueKind::BitRate | ValueKind::Size => digits(value).max(0),
            _ => digits(value),
        };
        Some(Scale { kind, exponent })
    }

    /// Returns the load of a value, or `None` if the value is of another kind or too large.
    pub fn load(self, text: &str) -> Option<u64> {
        let (kind, value) = read(text)?;
        let load = (value / self.unit()).round();
        (kind == self.kind && load <= 1e15).then_some(load as u64)
    }

    /// Returns the value of a load, as written in a scenario.
    pub fn text(self, load: u64) -> String {
        // By way of digits, because a product would not be the nearest number.
        let value: f64 = format!("{load}e{}", self.exponent)
            .parse()
            .expect("digits with an exponent are a number");
        match self.kind {
            ValueKind::Count => load.to_string(),
            ValueKind::Duration => {
                let span = Duration::try_from_secs_f64(value).unwrap_or(Duration::MAX);
                TimeSpan(span).to_string()
            }
            ValueKind::BitRate => BitRate(value.round() as u64).to_string(),
            ValueKind::Size => Size(value.round() as u64).to_string(),
            ValueKind::Ratio => Ratio(value).to_string(),
            ValueKind::Frequency => Frequency(value).to_string(),
        }
    }

    /// Returns load 1 in the base unit.
    pub fn unit(self) -> f64 {
        10_f64.powi(self.exponent)
    }
}

/// Returns the power of ten of which a value is a multiple with four digits.
fn digits(value: f64) -> i32 {
    value.log10().floor() as i32 + 1 - DIGITS
}

fn read(text: &str) -> Option<(ValueKind, f64)> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some((ValueKind::Count, text.parse().ok()?));
    }
    if let Ok(Frequency(per_second)) = text.parse() {
        return Some((ValueKind::Frequency, per_second));
    }
    let quantity = parse_quantity(text).ok()?;
    let kind = match quantity.unit {
        Unit::Seconds => ValueKind::Duration,
        Unit::BitsPerSecond => ValueKind::BitRate,
        Unit::Bytes => ValueKind::Size,
        Unit::Ratio => ValueKind::Ratio,
        Unit::Count | Unit::Cores => return None,
    };
    Some((kind, quantity.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_four_digits() {
        for (first, load, text) in [
            ("50", 51, "51"),
            ("4Mbps", 4_125, "4.125Mbps"),
            ("120ms", 1_215, "121.5ms"),
            ("1s", 998, "998ms"),
            ("5/s", 12_340, "12.34/s"),
            ("0.5%", 5_123, "0.5123%"),
            ("4MB", 4_321, "4.321MB"),
        ] {
            let scale = Scale::of(first).expect("it is a value");
            assert_eq!(scale.text(load), text);
            assert_eq!(scale.load(text), Some(load), "{text}");
        }
    }

    #[test]
    fn values_of_no_scale_are_refused() {
        for text in ["", "tcp", "1.5", "-3", "0s", "0%", "many"] {
            assert_eq!(Scale::of(text), None, "{text}");
        }
        let scale = Scale::of("4Mbps").expect("it is a value");
        assert_eq!(scale.load("4s"), None);
        assert_eq!(scale.load("4"), None);
    }

    proptest::proptest! {
        #[test]
        fn every_load_survives_its_text(load in 1_u64..1_000_000, first in 0_usize..6) {
            let firsts = ["7", "20ms", "4Mbps", "0.02%", "30/s", "5kB"];
            let scale = Scale::of(firsts[first]).expect("it is a value");
            let is_share = scale.kind == ValueKind::Ratio;
            // A share is at most 100 %.
            let load = if is_share { load.min(999_999) } else { load };
            proptest::prop_assert_eq!(scale.load(&scale.text(load)), Some(load));
        }
    }
}
