//! The `Range` header (RFC 2326, 12.29 and 3.5 to 3.7).

use std::fmt;
use std::time::Duration;

/// Start of a range in normal play time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NptStart {
    /// The current position of live media.
    Now,
    /// Offset from the beginning of the media.
    At(Duration),
}

impl NptStart {
    /// Returns the offset from the beginning of the media.
    pub fn at(self) -> Option<Duration> {
        match self {
            NptStart::Now => None,
            NptStart::At(offset) => Some(offset),
        }
    }
}

/// A range of the media.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Range {
    /// Normal play time.
    Npt {
        start: Option<NptStart>,
        end: Option<Duration>,
    },
    /// Absolute time in UTC, as written.
    Clock {
        start: String,
        /// Empty if the end is open.
        end: String,
    },
    /// SMPTE time codes, as written.
    Smpte {
        /// Unit: `smpte`, `smpte-25` or `smpte-30-drop`.
        kind: String,
        start: String,
        /// Empty if the end is open.
        end: String,
    },
}

impl Range {
    /// Normal play time from the beginning, with an open end.
    pub const FROM_START: Range = Range::Npt {
        start: Some(NptStart::At(Duration::ZERO)),
        end: None,
    };

    /// From the current position of live media on.
    pub const FROM_NOW: Range = Range::Npt {
        start: Some(NptStart::Now),
        end: None,
    };

    /// Parses a header value, or the value of the `range` attribute in SDP.
    pub fn parse(value: &str) -> Option<Range> {
        let range = value.split(';').next()?;
        let (unit, range) = range.split_once('=').or_else(|| {
            // Some servers write a colon.
            range.split_once(':').filter(|(unit, _)| !unit.is_empty())
        })?;
        let unit = unit.trim().to_ascii_lowercase();
        let (start, end) = range.split_once('-')?;
        let (start, end) = (start.trim(), end.trim());
        match unit.as_str() {
            "npt" => {
                let start = match start {
                    "" => None,
                    start if start.eq_ignore_ascii_case("now") => Some(NptStart::Now),
                    start => Some(NptStart::At(parse_npt(start)?)),
                };
                let end = match end {
                    "" => None,
                    end => parse_npt(end),
                };
                (start.is_some() || end.is_some()).then_some(Range::Npt { start, end })
            }
            "clock" => Some(Range::Clock {
                start: start.to_owned(),
                end: end.to_owned(),
            }),
            unit if unit.starts_with("smpte") => Some(Range::Smpte {
                kind: unit.to_owned(),
                start: start.to_owned(),
                end: end.to_owned(),
            }),
            _ => None,
        }
    }

    /// Returns the length of the range if it is stated in normal play time. Returns `None` for
    /// `0-0`, which servers write if they do not know the length of the media.
    pub fn length(&self) -> Option<Duration> {
        match self {
            Range::Npt {
                start: Some(NptStart::At(start)),
                end: Some(end),
            } => end.checked_sub(*start).filter(|length| !length.is_zero()),
            Range::Npt {
                start: None,
                end: Some(end),
            } => Some(*end).filter(|length| !length.is_zero()),
            _ => None,
        }
    }
}

/// Parses seconds or `h:mm:ss`, each with an optional fraction (RFC 2326, 3.6).
fn parse_npt(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut seconds: u64 = 0;
    let mut parts = 0;
    for part in whole.split(':') {
        parts += 1;
        if parts > 3 || part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        seconds = seconds
            .checked_mul(60)?
            .checked_add(part.parse::<u64>().ok()?)?;
    }
    // Times beyond some thousand years are not play times.
    if seconds > u64::from(u32::MAX) * 16 {
        return None;
    }
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let nanos = fraction
        .bytes()
        .chain(std::iter::repeat(b'0'))
        .take(9)
        .fold(0u32, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    Some(Duration::new(seconds, nanos))
}

/// Formats seconds with three decimals, or with nine if they are not whole milliseconds.
struct Npt(Duration);

impl fmt::Display for Npt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.subsec_nanos().is_multiple_of(1_000_000) {
            write!(f, "{}.{:03}", self.0.as_secs(), self.0.subsec_millis())
        } else {
            write!(f, "{}.{:09}", self.0.as_secs(), self.0.subsec_nanos())
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Range::Npt { start, end } => {
                f.write_str("npt=")?;
                match start {
                    Some(NptStart::Now) => f.write_str("now")?,
                    Some(NptStart::At(start)) => Npt(*start).fmt(f)?,
                    None => {}
                }
                f.write_str("-")?;
                end.map_or(Ok(()), |end| Npt(end).fmt(f))
            }
            Range::Clock { start, end } => write!(f, "clock={start}-{end}"),
            Range::Smpte { kind, start, end } => write!(f, "{kind}={start}-{end}"),
        }
    }
}
