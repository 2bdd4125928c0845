//! Formatting of figures for people: `12.4 ms`, `50.1 Mbit/s`, `0.03 %`.
//!
//! Figures have three significant digits, and a non-zero figure is never shown as zero.

use crate::Unit;

/// Formats a figure in its unit.
pub fn figure(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Seconds => seconds(value),
        Unit::BitsPerSecond => scaled(
            value,
            1000.0,
            ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"],
        ),
        Unit::Bytes => scaled(value, 1024.0, ["B", "KiB", "MiB", "GiB", "TiB"]),
        Unit::Ratio => ratio(value),
        Unit::Cores => cores(value),
        Unit::Count => count(value),
    }
}

/// Formats a figure, or a dash if there is no data.
pub fn figure_or_dash(unit: Unit, value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| figure(unit, value))
}

/// Formats processor time as a percentage of one core, as top(1) does. Values below 1 % are noise,
/// but are shown as `<1 %` instead of 0.
pub fn cores(value: f64) -> String {
    let percent = value * 100.0;
    match percent.abs() {
        0.0 => "0 %".to_owned(),
        size if size < 1.0 => "<1 %".to_owned(),
        _ => format!("{percent:.0} %"),
    }
}

/// Formats a time in the unit that fits, from nanoseconds to hours.
pub fn seconds(value: f64) -> String {
    let (factor, unit) = match value.abs() {
        0.0 => return "0 s".to_owned(),
        size if size < 999.5e-9 => (1e9, "ns"),
        size if size < 999.5e-6 => (1e6, "µs"),
        size if size < 0.9995 => (1e3, "ms"),
        size if size < 120.0 => (1.0, "s"),
        _ => return duration(value),
    };
    format!("{} {unit}", digits(value * factor))
}

/// Formats a duration, rounded to seconds: `7 s`, `2 min 5 s`, `1 h 3 min`.
pub fn duration(value: f64) -> String {
    let whole = value.max(0.0).round() as u64;
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    match (hours, minutes, seconds) {
        (0, 0, _) => format!("{seconds} s"),
        (0, _, 0) => format!("{minutes} min"),
        (0, _, _) => format!("{minutes} min {seconds} s"),
        (_, 0, _) => format!("{hours} h"),
        _ => format!("{hours} h {minutes} min"),
    }
}

/// Formats a duration like [`duration`], but with a tenth of a second below one minute: `4.5 s`.
pub fn short_duration(value: f64) -> String {
    match value < 60.0 && (value - value.round()).abs() >= 0.05 {
        true => format!("{value:.1} s"),
        false => duration(value),
    }
}

/// Formats a share as a percentage.
pub fn ratio(value: f64) -> String {
    let percent = value * 100.0;
    if percent == 0.0 {
        "0 %".to_owned()
    } else if percent.abs() >= 0.01 {
        format!("{} %", trim_point(format!("{percent:.2}")))
    } else {
        format!("{} %", digits(percent))
    }
}

/// Formats a count with commas between thousands.
pub fn count(value: f64) -> String {
    if value.fract() != 0.0 && value.abs() < 1000.0 {
        return digits(value);
    }
    let whole = format!("{:.0}", value.abs());
    let mut text = String::with_capacity(whole.len() * 4 / 3 + 1);
    if value < 0.0 {
        text.push('-');
    }
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun: `1 client`, `2 clients`.
pub fn plural(number: f64, one: &str, many: &str) -> String {
    let noun = if number == 1.0 { one } else { many };
    format!("{} {noun}", count(number))
}

/// Formats a quantity in the unit that fits its size.
fn scaled(value: f64, step: f64, units: [&str; 5]) -> String {
    let mut value = value;
    for unit in &units[..4] {
        if value.abs() < step - 0.5 {
            return format!("{} {unit}", digits(value));
        }
        value /= step;
    }
    format!("{} {}", digits(value), units[4])
}

/// Formats a number with three significant digits and no trailing zeros.
pub fn digits(value: f64) -> String {
    match value == 0.0 || !value.is_finite() {
        true => format!("{value:.0}"),
        false => significant(value, 3),
    }
}

/// Formats a finite number other than 0 with `number` significant digits, but at least all digits
/// before the point, without trailing zeros.
pub(crate) fn significant(value: f64, number: i32) -> String {
    let before_point = value.abs().log10().floor() as i32 + 1;
    let decimals = (number - before_point).clamp(0, 12);
    trim_point(format!("{value:.*}", decimals as usize))
}

/// Removes trailing zeros after the point.
pub(crate) fn trim_point(text: String) -> String {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_use_the_unit_that_fits() {
        for (value, text) in [
            (0.0, "0 s"),
            (25e-9, "25 ns"),
            (0.000_999_9, "1 ms"),
            (0.012_449, "12.4 ms"),
            (0.1, "100 ms"),
            (0.999_9, "1 s"),
            (2.314, "2.31 s"),
            (119.0, "119 s"),
            (125.0, "2 min 5 s"),
            (3600.0, "1 h"),
            (3780.0, "1 h 3 min"),
        ] {
            assert_eq!(seconds(value), text);
        }
        assert_eq!(short_duration(4.5), "4.5 s");
        assert_eq!(short_duration(5.01), "5 s");
        assert_eq!(short_duration(75.5), "1 min 16 s");
    }

    #[test]
    fn shares_are_never_rounded_to_zero() {
        assert_eq!(ratio(0.0), "0 %");
        assert_eq!(ratio(0.000_001), "0.0001 %");
        assert_eq!(ratio(0.0312), "3.12 %");
        assert_eq!(ratio(1.0), "100 %");
    }

    #[test]
    fn counts_and_rates() {
        assert_eq!(count(0.0), "0");
        assert_eq!(count(999.0), "999");
        assert_eq!(count(1_234_567.0), "1,234,567");
        assert_eq!(count(-1_000.0), "-1,000");
        assert_eq!(count(12.5), "12.5");
        assert_eq!(figure(Unit::BitsPerSecond, 50_123_000.0), "50.1 Mbit/s");
        assert_eq!(figure(Unit::BitsPerSecond, 999_900.0), "1 Mbit/s");
        assert_eq!(figure(Unit::Bytes, 512.0), "512 B");
        assert_eq!(figure(Unit::Cores, 0.423_4), "42 %");
        assert_eq!(figure(Unit::Cores, 0.000_5), "<1 %");
        assert_eq!(figure(Unit::Cores, 0.0), "0 %");
        assert_eq!(figure(Unit::Cores, 12.5), "1250 %");
        assert_eq!(figure_or_dash(Unit::Cores, None), "-");
        assert_eq!(plural(1.0, "client", "clients"), "1 client");
    }
}
