//! Dates of segments (ISO 8601, RFC 8216, 4.3.2.6).

use std::time::Duration;

/// Parses a date with time and zone, such as `2026-11-29T06:44:13.522+01:00`, and returns the time
/// since 1970. The colon in the zone may be missing, as with ffmpeg. Without a zone the date is
/// that of Greenwich. `None` for other texts, and for dates before 1970.
pub(super) fn since_1970(text: &str) -> Option<Duration> {
    let (date, rest) = text.trim().split_once(['T', 't', ' '])?;
    let mut numbers = date.splitn(3, '-').map(|part| number(part, 4));
    let (year, month, day) = (numbers.next()??, numbers.next()??, numbers.next()??);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (time, zone) = match rest.find(['Z', 'z', '+', '-']) {
        Some(at) => rest.split_at(at),
        None => (rest, "Z"),
    };
    let mut parts = time.splitn(3, ':');
    let (hour, minute) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let second = seconds(parts.next()?)?;
    if hour > 24 || minute > 59 {
        return None;
    }
    let minutes = 60 * hour + minute - offset(zone)?;
    let whole = u64::try_from(86_400 * days(year, month, day) + 60 * minutes).ok()?;
    Some(Duration::from_secs(whole) + second)
}

/// Parses digits, at most `len` of them.
fn number(text: &str, len: usize) -> Option<i64> {
    let is_plain = text.len() <= len && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

/// Parses seconds with a fraction. A leap second is the 60th.
fn seconds(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once(['.', ',']).unwrap_or((text, "0"));
    let whole = u64::try_from(number(whole, 2)?).ok()?;
    let fraction = fraction.get(..9).unwrap_or(fraction);
    // Value of the next digit, in nanoseconds.
    let mut unit = 100_000_000;
    let mut nanoseconds = 0;
    for digit in fraction.chars() {
        nanoseconds += digit.to_digit(10)? * unit;
        unit /= 10;
    }
    (whole <= 60).then(|| Duration::new(whole, nanoseconds))
}

/// Minutes by which a zone is ahead of Greenwich.
fn offset(zone: &str) -> Option<i64> {
    let (sign, zone) = match zone.as_bytes().first()? {
        b'Z' | b'z' => return (zone.len() == 1).then_some(0),
        b'-' => (-1, &zone[1..]),
        _ => (1, &zone[1..]),
    };
    let (hours, minutes) = match zone.split_once(':') {
        Some(parts) => parts,
        None => zone.split_at_checked(2)?,
    };
    let minutes = if minutes.is_empty() { "0" } else { minutes };
    Some(sign * (60 * number(hours, 2)? + number(minutes, 2)?))
}

/// Days since 1970 in the Gregorian calendar, counted with years that begin in March.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let leap_days = year / 4 - year / 100 + year / 400;
    365 * year + leap_days + (153 * ((month + 9) % 12) + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_with_any_zone() {
        // From `date -u -d TEXT +%s.%3N`.
        for (text, milliseconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T12:00:00.5Z", 951_825_600_500),
            ("2026-11-29T06:44:13.522+0000", 1_795_934_653_522),
            ("2026-11-29T06:44:13,522+01:00", 1_795_931_053_522),
            ("2024-03-01T00:00:00-0330", 1_709_263_800_000),
            ("2026-11-29T06:44:13", 1_795_934_653_000),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000),
        ] {
            let read = since_1970(text).map(|since| since.as_millis());
            assert_eq!(read, Some(milliseconds), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_dates() {
        for text in [
            "",
            "2026-11-29",
            "2026-13-01T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "2026-11-29T06:44Z",
            "2026-11-29T06:44:61Z",
            "2026-11-29T25:00:00Z",
            "2026-11-29T06:44:13+é",
            "2026-11-29T06:44:13Zulu",
            "99999-01-01T00:00:00Z",
            "2026-+1-01T00:00:00Z",
        ] {
            assert_eq!(since_1970(text), None, "{text}");
        }
    }
}
