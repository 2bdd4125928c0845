//! Shares, written as percentages.

use std::fmt;
use std::str::FromStr;

use super::{QuantityError, QuantityKind, split, too_large, unit_error};

/// A share from 0 to 1, written `0.5%`. Only `0` may omit the `%`: a bare `1` could mean one per
/// cent or all.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Ratio(pub f64);

impl FromStr for Ratio {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Ratio, QuantityError> {
        let (number, unit) = split(text)?;
        let value = match unit {
            "%" => number.multiply(1, -2),
            "" if number.multiply(1, 0) == 0.0 => 0.0,
            "" => {
                return Err(QuantityError::MissingUnit {
                    text: text.trim().to_owned(),
                    kind: QuantityKind::Ratio,
                });
            }
            _ => return Err(unit_error(text, unit, QuantityKind::Ratio)),
        };
        if value > 1.0 {
            return Err(too_large(text, "a share is at most 100%"));
        }
        Ok(Ratio(value))
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Moves the point in the decimal digits of the share: 0.07 is 7%, not 7.000000000000001%.
        let scientific = format!("{:e}", self.0);
        let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0) + 2;
        let (sign, mantissa) = match mantissa.strip_prefix('-') {
            Some(mantissa) => ("-", mantissa),
            None => ("", mantissa),
        };
        let digits = mantissa.replace('.', "");
        if digits == "0" {
            return f.write_str("0%");
        }
        let whole = usize::try_from(exponent + 1).unwrap_or(0);
        if !self.0.is_finite() {
            write!(f, "{}%", self.0)
        } else if digits.len() <= whole {
            write!(f, "{sign}{digits:0<whole$}%")
        } else if whole > 0 {
            write!(f, "{sign}{}.{}%", &digits[..whole], &digits[whole..])
        } else {
            let zeros = usize::try_from(-exponent - 1).unwrap_or(0);
            write!(f, "{sign}0.{}{digits}%", "0".repeat(zeros))
        }
    }
}
