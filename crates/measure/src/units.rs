//! Quantities with units: `60s`, `0.5%`, `20Mbps`, `64KiB`.
//!
//! The scenario file, thresholds and the command line use the same notation. Every quantity has a
//! unit, except plain counts; a share is written `7%`. Digits are parsed exactly, in integers:
//! `0.1s` is 100,000,000 ns.
//!
//! [`parse_quantity`] accepts any quantity. [`TimeSpan`], [`BitRate`], [`Size`], [`Ratio`] and
//! [`Frequency`] accept one kind each; configuration structs hold these types or deserialize
//! through them (`#[serde(with = "measure::units::duration")]` for a plain [`Duration`]).

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::human::trim_point;
use crate::metric::Unit;

mod ratio;

pub use ratio::Ratio;

/// A number and its unit, in SI base units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity {
    /// Value in the base unit: seconds, bits per second, bytes, a share from 0 to 1, cores, or a
    /// count.
    pub value: f64,
    /// Unit of the value. A bare number is a [`Unit::Count`], a percentage a [`Unit::Ratio`].
    pub unit: Unit,
}

/// Kinds of quantity that a configuration key can require.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityKind {
    /// A duration.
    Duration,
    /// Bits per second.
    BitRate,
    /// Bytes.
    Size,
    /// A share from 0 to 1.
    Ratio,
    /// Events per second.
    Frequency,
}

impl QuantityKind {
    /// Name of the kind, for messages.
    pub const fn noun(self) -> &'static str {
        match self {
            QuantityKind::Duration => "duration",
            QuantityKind::BitRate => "bit rate",
            QuantityKind::Size => "size",
            QuantityKind::Ratio => "share",
            QuantityKind::Frequency => "rate",
        }
    }

    /// Notation of the kind: its units, with examples.
    pub const fn hint(self) -> &'static str {
        match self {
            QuantityKind::Duration => {
                "a duration is written with ns, us, ms, s, m or h, such as `500ms`, `60s` or `1m30s`"
            }
            QuantityKind::BitRate => {
                "a bit rate is written with bps, kbps, Mbps or Gbps, such as `100kbps` or `1.5Mbps`"
            }
            QuantityKind::Size => {
                "a size is written with B, kB, MB, GB, KiB, MiB or GiB, such as `64KiB` or `4MB`"
            }
            QuantityKind::Ratio => "a share is written with %, such as `0.5%`, from 0% to 100%",
            QuantityKind::Frequency => "a rate is written `5/s`, `300/m` or `1000/h`",
        }
    }
}

/// Reason why a text is not a valid quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text is empty.
    #[error("a quantity is missing")]
    Empty,
    /// The text does not begin with a number.
    #[error("`{text}` is not a number with a unit")]
    NotANumber {
        /// The text.
        text: String,
    },
    /// The number is negative.
    #[error("`{text}` is below zero")]
    Negative {
        /// The text.
        text: String,
    },
    /// The number has no unit, so its meaning is unclear.
    #[error("`{text}`: a unit is missing; {}", .kind.hint())]
    MissingUnit {
        /// The text.
        text: String,
        /// Required kind.
        kind: QuantityKind,
    },
    /// The unit is unknown.
    #[error("`{text}`: unknown unit `{unit}`; {hint}")]
    UnknownUnit {
        /// The text.
        text: String,
        /// The unknown unit.
        unit: String,
        /// Known units.
        hint: &'static str,
    },
    /// The quantity is of another kind.
    #[error("`{text}` is not a {}; {}", .kind.noun(), .kind.hint())]
    WrongKind {
        /// The text.
        text: String,
        /// Required kind.
        kind: QuantityKind,
    },
    /// The number is too large to represent, or a share is above 1.
    #[error("`{text}` is too large: {limit}")]
    TooLarge {
        /// The text.
        text: String,
        /// The limit.
        limit: &'static str,
    },
}

const ALL_UNITS: &str = "units are ns, us, ms, s, m, h for durations, bps, kbps, Mbps, Gbps for bit \
                         rates, B, kB, MB, GB, KiB, MiB, GiB for sizes, %, and cores";

/// Parses a number with its unit, such as `2s`, `7%`, `20Mbps`, `1MB`, `1.5cores` or `100`.
pub fn parse_quantity(text: &str) -> Result<Quantity, QuantityError> {
    let (number, suffix) = split(text)?;
    let of = |factor, exponent, unit| Quantity {
        value: number.multiply(factor, exponent),
        unit,
    };
    match suffix {
        "" => return Ok(of(1, 0, Unit::Count)),
        "%" => return Ok(of(1, -2, Unit::Ratio)),
        "core" | "cores" => return Ok(of(1, 0, Unit::Cores)),
        _ => {}
    }
    if let Some(exponent) = bit_rate_exponent(suffix) {
        return Ok(of(1, exponent.into(), Unit::BitsPerSecond));
    }
    if let Some(factor) = size_factor(suffix) {
        return Ok(of(factor, 0, Unit::Bytes));
    }
    let nanos = parse_nanos(text).map_err(|error| match error {
        QuantityError::UnknownUnit { text, unit, .. } => QuantityError::UnknownUnit {
            text,
            hint: bytes_per_second_hint(&unit).unwrap_or(ALL_UNITS),
            unit,
        },
        other => other,
    })?;
    let seconds = Number {
        mantissa: u128::from(nanos),
        decimals: 9,
    };
    Ok(Quantity {
        value: seconds.multiply(1, 0),
        unit: Unit::Seconds,
    })
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Quantity, QuantityError> {
        parse_quantity(text)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unit {
            Unit::Seconds if (0.0..1e9).contains(&self.value) => {
                TimeSpan(Duration::from_secs_f64(self.value)).fmt(f)
            }
            Unit::BitsPerSecond => scaled(f, self.value, &BIT_RATES, "bps"),
            Unit::Bytes => scaled(f, self.value, &SIZES, "B"),
            Unit::Ratio => Ratio(self.value).fmt(f),
            Unit::Cores => write!(f, "{}cores", self.value),
            Unit::Count | Unit::Seconds => write!(f, "{}{}", self.value, self.unit.symbol()),
        }
    }
}

/// Maximum number of digits, including those before the decimal point.
const DIGITS_MAX: usize = 24;

/// An exact decimal number: `mantissa` / 10^`decimals`.
#[derive(Clone, Copy)]
struct Number {
    mantissa: u128,
    decimals: u32,
}

impl Number {
    /// Returns the number times `factor` times 10^`exponent`, correctly rounded.
    fn multiply(self, factor: u64, exponent: i64) -> f64 {
        let mantissa = self.mantissa.saturating_mul(u128::from(factor));
        let exponent = exponent - i64::from(self.decimals);
        format!("{mantissa}e{exponent}")
            .parse()
            .expect("digits with an exponent are a number")
    }

    /// Returns the number times `factor`, rounded to the nearest integer; `None` above 2^64.
    fn times_integer(self, factor: u64) -> Option<u64> {
        let product = self.mantissa.checked_mul(u128::from(factor))?;
        let divisor = 10u128.pow(self.decimals);
        u64::try_from(product.checked_add(divisor / 2)? / divisor).ok()
    }
}

/// Splits a text into the number at its beginning and the rest.
fn split(text: &str) -> Result<(Number, &str), QuantityError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(QuantityError::Empty);
    }
    let not_a_number = || QuantityError::NotANumber {
        text: truncated(text),
    };
    if let Some(rest) = text.strip_prefix('-') {
        return Err(if rest.starts_with(|c: char| c.is_ascii_digit()) {
            QuantityError::Negative {
                text: truncated(text),
            }
        } else {
            not_a_number()
        });
    }
    let limit = "at most 18 digits before the decimal point and 24 in total";
    let too_long = || too_large(text, limit);
    let (number, rest) = digits(text).map_err(|is_too_long| match is_too_long {
        true => too_long(),
        false => not_a_number(),
    })?;
    // Numbers that round up to 1e18 are printed with one more digit.
    if number.multiply(1, 0) >= 1e18 {
        return Err(too_long());
    }
    Ok((number, rest.trim_start()))
}

/// Parses digits with at most one decimal point. The error is `true` if there are too many digits.
fn digits(text: &str) -> Result<(Number, &str), bool> {
    let whole_end = end_of_digits(text);
    let whole = &text[..whole_end];
    let mut rest = &text[whole_end..];
    let mut fraction = "";
    if let Some(after) = rest.strip_prefix('.') {
        let end = end_of_digits(after);
        fraction = &after[..end];
        rest = &after[end..];
        if fraction.is_empty() {
            return Err(false);
        }
    }
    if whole.is_empty() {
        return Err(false);
    }
    let fraction = fraction.trim_end_matches('0');
    let whole = whole.trim_start_matches('0');
    // This limit keeps the arithmetic below within 128 bits.
    if whole.len() > 18 || whole.len() + fraction.len() > DIGITS_MAX {
        return Err(true);
    }
    let mantissa = whole
        .bytes()
        .chain(fraction.bytes())
        .fold(0u128, |sum, digit| {
            sum.saturating_mul(10)
                .saturating_add(u128::from(digit - b'0'))
        });
    let decimals = u32::try_from(fraction.len()).map_err(|_| true)?;
    Ok((Number { mantissa, decimals }, rest))
}

fn end_of_digits(text: &str) -> usize {
    text.find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len())
}

/// Truncates a text that is too long for a message.
fn truncated(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

fn duration_factor(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" | "sec" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// Power of ten of a unit of bit rates.
fn bit_rate_exponent(unit: &str) -> Option<u32> {
    let prefix = ["bps", "bit/s", "b/s"]
        .iter()
        .find_map(|suffix| unit.strip_suffix(suffix))?;
    Some(match prefix {
        "" => 0,
        "k" | "K" => 3,
        "M" | "m" => 6,
        "G" | "g" => 9,
        _ => return None,
    })
}

fn size_factor(unit: &str) -> Option<u64> {
    Some(match unit {
        "B" => 1,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" | "kiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    })
}

/// Hint for bytes per second, which are not supported: they differ from bits only in the case of
/// one letter.
fn bytes_per_second_hint(unit: &str) -> Option<&'static str> {
    (unit.ends_with("B/s") || unit.ends_with("Bps")).then_some(
        "bit rates are in bits per second, such as `20Mbps`; multiply bytes per second by 8",
    )
}

/// Parses a duration, such as `1m30s`, into nanoseconds.
fn parse_nanos(text: &str) -> Result<u64, QuantityError> {
    let text = text.trim();
    let mut rest = text;
    let mut total = 0u64;
    loop {
        let (number, after) = split(rest).map_err(|error| match error {
            // The message for `1mfoo` quotes all of it, not only `foo`.
            QuantityError::NotANumber { .. } => QuantityError::NotANumber {
                text: truncated(text),
            },
            other => other,
        })?;
        let end = after
            .find(|c: char| c.is_ascii_digit() || c.is_whitespace())
            .unwrap_or(after.len());
        let unit = &after[..end];
        if unit.is_empty() {
            return Err(QuantityError::MissingUnit {
                text: truncated(text),
                kind: QuantityKind::Duration,
            });
        }
        let factor = duration_factor(unit).ok_or_else(|| QuantityError::UnknownUnit {
            text: truncated(text),
            unit: truncated(unit),
            hint: QuantityKind::Duration.hint(),
        })?;
        total = number
            .times_integer(factor)
            .and_then(|nanos| total.checked_add(nanos))
            .filter(|nanos| *nanos <= 500 * 365 * 86_400 * 1_000_000_000)
            .ok_or_else(|| too_large(text, "at most 500 years"))?;
        rest = after[end..].trim_start();
        if rest.is_empty() {
            return Ok(total);
        }
    }
}

/// Returns the error for a unit that does not fit `kind`.
fn unit_error(text: &str, unit: &str, kind: QuantityKind) -> QuantityError {
    let text = truncated(text.trim());
    if unit.is_empty() {
        return QuantityError::MissingUnit { text, kind };
    }
    let known = unit == "%"
        || unit.starts_with("core")
        || duration_factor(unit).is_some()
        || bit_rate_exponent(unit).is_some()
        || size_factor(unit).is_some();
    if known {
        QuantityError::WrongKind { text, kind }
    } else {
        QuantityError::UnknownUnit {
            text,
            hint: match kind {
                QuantityKind::BitRate => bytes_per_second_hint(unit).unwrap_or(kind.hint()),
                _ => kind.hint(),
            },
            unit: truncated(unit),
        }
    }
}

const BIT_RATES: [(f64, &str); 3] = [(1e9, "Gbps"), (1e6, "Mbps"), (1e3, "kbps")];
const SIZES: [(f64, &str); 6] = [
    (1_073_741_824.0, "GiB"),
    (1e9, "GB"),
    (1_048_576.0, "MiB"),
    (1e6, "MB"),
    (1024.0, "KiB"),
    (1e3, "kB"),
];

/// Writes a value in the largest unit that needs at most three decimals.
fn scaled(
    f: &mut fmt::Formatter<'_>,
    value: f64,
    units: &[(f64, &str)],
    base: &str,
) -> fmt::Result {
    for (factor, unit) in units {
        let scaled = value / factor;
        let binary = factor.log2().fract() == 0.0;
        let decimals = if binary { 1.0 } else { 1000.0 };
        if scaled >= 1.0 && (scaled * decimals).fract() == 0.0 {
            return write!(f, "{scaled}{unit}");
        }
    }
    write!(f, "{value}{base}")
}

/// A duration, written `500ms`, `60s` or `1m30s`, with a resolution of nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeSpan(pub Duration);

impl FromStr for TimeSpan {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<TimeSpan, QuantityError> {
        let (_, suffix) = split(text)?;
        match parse_nanos(text) {
            Ok(nanos) => Ok(TimeSpan(Duration::from_nanos(nanos))),
            Err(QuantityError::UnknownUnit { .. }) => {
                Err(unit_error(text, suffix, QuantityKind::Duration))
            }
            Err(other) => Err(other),
        }
    }
}

impl fmt::Display for TimeSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        if nanos < 1_000_000_000 {
            let (unit, factor) = match nanos {
                n if n >= 1_000_000 => ("ms", 1_000_000),
                n if n >= 1_000 => ("us", 1_000),
                _ => ("ns", 1),
            };
            return write!(f, "{}{unit}", decimal(nanos, factor));
        }
        let (hours, rest) = (nanos / 3_600_000_000_000, nanos % 3_600_000_000_000);
        let (minutes, rest) = (rest / 60_000_000_000, rest % 60_000_000_000);
        // Durations below two minutes are usually given in seconds.
        if hours == 0 && nanos < 120_000_000_000 {
            return write!(f, "{}s", decimal(nanos, 1_000_000_000));
        }
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        if rest > 0 {
            write!(f, "{}s", decimal(rest, 1_000_000_000))?;
        }
        Ok(())
    }
}

/// Formats `value` / `factor` without trailing zeros. `factor` is a power of ten.
fn decimal(value: u128, factor: u128) -> String {
    let (whole, rest) = (value / factor, value % factor);
    if rest == 0 {
        return whole.to_string();
    }
    let width = factor.ilog10() as usize;
    let digits = format!("{rest:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

/// Bits per second, written `100kbps`, `1.5Mbps`, `2136kbit/s` or `1.5Mb/s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(pub u64);

impl FromStr for BitRate {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<BitRate, QuantityError> {
        let (number, unit) = split(text)?;
        let exponent =
            bit_rate_exponent(unit).ok_or_else(|| unit_error(text, unit, QuantityKind::BitRate))?;
        number
            .times_integer(10u64.pow(exponent))
            .map(BitRate)
            .ok_or_else(|| too_large(text, "at most 18446744073Gbps"))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        integer_scaled(
            f,
            self.0,
            &[
                (1_000_000_000, "Gbps"),
                (1_000_000, "Mbps"),
                (1_000, "kbps"),
            ],
            "bps",
        )
    }
}

/// A number of bytes, written `64KiB`, `4MB` or `100B`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Size, QuantityError> {
        let (number, unit) = split(text)?;
        let factor = size_factor(unit).ok_or_else(|| unit_error(text, unit, QuantityKind::Size))?;
        number
            .times_integer(factor)
            .map(Size)
            .ok_or_else(|| too_large(text, "at most 18446744073GB"))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (factor, unit) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
            if self.0 > 0 && self.0.is_multiple_of(factor) {
                return write!(f, "{}{unit}", self.0 / factor);
            }
        }
        integer_scaled(
            f,
            self.0,
            &[(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")],
            "B",
        )
    }
}

/// Writes `value` exactly, in the largest unit (a power of ten) that needs at most three decimals.
fn integer_scaled(
    f: &mut fmt::Formatter<'_>,
    value: u64,
    units: &[(u64, &str)],
    base: &str,
) -> fmt::Result {
    for (factor, unit) in units {
        if value >= *factor && value.is_multiple_of(factor / 1000) {
            let digits = decimal(u128::from(value), u128::from(*factor));
            return write!(f, "{digits}{unit}");
        }
    }
    write!(f, "{value}{base}")
}

/// A number of events per second, written `5/s`, `300/m` or `1000/h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Frequency(pub f64);

impl FromStr for Frequency {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Frequency, QuantityError> {
        let (number, unit) = split(text)?;
        let divisor = match unit.strip_prefix('/').map(str::trim) {
            Some("s" | "sec") => 1.0,
            Some("m" | "min") => 60.0,
            Some("h") => 3600.0,
            _ => return Err(unit_error(text, unit, QuantityKind::Frequency)),
        };
        Ok(Frequency(number.multiply(1, 0) / divisor))
    }
}

impl fmt::Display for Frequency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shortest = self.0.to_string();
        // A division by 60 or 3600 can produce more digits than the parser accepts. All such values
        // are below 10^-7, where 20 decimals are more than sufficient.
        match shortest.len() > 2 + DIGITS_MAX && shortest.starts_with("0.") {
            true => {
                write!(f, "{}/s", trim_point(format!("{:.20}", self.0)))
            }
            false => write!(f, "{shortest}/s"),
        }
    }
}

fn too_large(text: &str, limit: &'static str) -> QuantityError {
    QuantityError::TooLarge {
        text: truncated(text.trim()),
        limit,
    }
}

/// Implements serde and JSON Schema for the quantity types, as text.
macro_rules! as_text {
    ($($Type:ident, $kind:expr, $name:literal, $types:tt, $pattern:literal;)*) => { $(
        impl Serialize for $Type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $Type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$Type, D::Error> {
                struct Text;
                impl Visitor<'_> for Text {
                    type Value = $Type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, "a {}: {}", $kind.noun(), $kind.hint())
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$Type, E> {
                        text.parse().map_err(E::custom)
                    }

                    fn visit_u64<E: de::Error>(self, value: u64) -> Result<$Type, E> {
                        value.to_string().parse().map_err(E::custom)
                    }

                    fn visit_i64<E: de::Error>(self, value: i64) -> Result<$Type, E> {
                        value.to_string().parse().map_err(E::custom)
                    }

                    fn visit_f64<E: de::Error>(self, value: f64) -> Result<$Type, E> {
                        value.to_string().parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_any(Text)
            }
        }

        impl JsonSchema for $Type {
            fn schema_name() -> Cow<'static, str> {
                Cow::Borrowed($name)
            }

            fn inline_schema() -> bool {
                false
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": $types,
                    "pattern": $pattern,
                    "description": $kind.hint(),
                })
            }
        }
    )* };
}

as_text! {
    TimeSpan, QuantityKind::Duration, "Duration", "string", r"^([0-9]+(\.[0-9]+)?\s*(ns|us|µs|ms|s|sec|m|min|h)\s*)+$";
    BitRate, QuantityKind::BitRate, "BitRate", "string", r"^[0-9]+(\.[0-9]+)?\s*[kKmMgG]?(bps|bit/s|b/s)$";
    Size, QuantityKind::Size, "Size", "string", r"^[0-9]+(\.[0-9]+)?\s*(B|kB|KB|MB|GB|[kK]iB|MiB|GiB)$";
    Ratio, QuantityKind::Ratio, "Ratio", ["string", "number"], r"^(0|[0-9]+(\.[0-9]+)?\s*%)$";
    Frequency, QuantityKind::Frequency, "Frequency", "string", r"^[0-9]+(\.[0-9]+)?\s*/\s*(s|sec|m|min|h)$";
}

/// For `#[serde(with = "measure::units::duration")]` on a [`Duration`]. Its schema is that of
/// [`TimeSpan`] (`#[schemars(with = "measure::units::TimeSpan")]`).
pub mod duration {
    use super::{Deserialize, Deserializer, Duration, Serialize, Serializer, TimeSpan};

    /// Serializes the duration as text.
    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        TimeSpan(*value).serialize(serializer)
    }

    /// Deserializes a duration from text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        TimeSpan::deserialize(deserializer).map(|span| span.0)
    }
}

/// For `#[serde(with = "measure::units::optional_duration")]` on an `Option<Duration>`. Add
/// `default` if the key is optional.
pub mod optional_duration {
    use super::{Deserialize, Deserializer, Duration, Serialize, Serializer, TimeSpan};

    /// Serializes the duration as text, or `None` as null.
    pub fn serialize<S: Serializer>(
        value: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(TimeSpan).serialize(serializer)
    }

    /// Deserializes an optional duration from text.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Option::<TimeSpan>::deserialize(deserializer).map(|span| span.map(|span| span.0))
    }
}

#[cfg(test)]
mod tests;
