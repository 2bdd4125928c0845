//! Calendar date and time, in UTC.

use std::time::Duration;

/// Formats a time since 1970 according to RFC 3339, to the second: `2026-02-03T04:05:06Z`.
pub fn rfc3339(since_1970: Duration) -> String {
    let (year, month, day, seconds) = parts(since_1970);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Formats a time since 1970 for a file name: `20260203-040506`.
pub fn compact(since_1970: Duration) -> String {
    let (year, month, day, seconds) = parts(since_1970);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// Returns year, month, day, and seconds of the day.
fn parts(since_1970: Duration) -> (u64, u64, u64, u64) {
    let mut days = since_1970.as_secs() / 86_400;
    let mut year = 1970;
    // Whole cycles of 400 years first, so that the loops below are short for any input.
    year += days / 146_097 * 400;
    days %= 146_097;
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1, since_1970.as_secs() % 86_400)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(Duration::from_secs(seconds)), text);
        }
        assert_eq!(
            compact(Duration::from_secs(1_709_251_199)),
            "20240229-235959"
        );
        rfc3339(Duration::MAX);
    }
}
