//! `Range` (RFC 2326, 12.29 and 3.5 to 3.7).

use std::fmt;
use std::time::Duration;

/// Where a range of normal play time begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NptStart {
    /// Where the media is now: live.
    Now,
    /// So long after the beginning.
    At(Duration),
}

/// A range of the media.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Range {
    /// Normal play time.
    Npt {
        /// The beginning, where it is said.
        start: Option<NptStart>,
        /// The end, where it is said.
        end: Option<Duration>,
    },
    /// Wall-clock time in UTC, as it is written.
    Clock {
        /// The beginning.
        start: String,
        /// The end; empty where it is open.
        end: String,
    },
    /// SMPTE time codes, as they are written.
    Smpte {
        /// Which kind: `smpte`, `smpte-25`, `smpte-30-drop`.
        kind: String,
        /// The beginning.
        start: String,
        /// The end; empty where it is open.
        end: String,
    },
}

impl Range {
    /// Normal play time from the beginning, open at the end.
    pub const FROM_START: Range = Range::Npt {
        start: Some(NptStart::At(Duration::ZERO)),
        end: None,
    };

    /// The range that a header value or an SDP's `range` attribute states.
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

    /// How long the range is, where that is stated in normal play time. Servers write `0-0` for
    /// media whose length they do not know.
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

/// Seconds with a fraction, or `h:mm:ss` with one (RFC 2326, 3.6).
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
    // What is later than some thousand years is no time of play.
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

/// Seconds with milliseconds, or as many digits as there are.
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
                match end {
                    Some(end) => Npt(*end).fmt(f),
                    None => Ok(()),
                }
            }
            Range::Clock { start, end } => write!(f, "clock={start}-{end}"),
            Range::Smpte { kind, start, end } => write!(f, "{kind}={start}-{end}"),
        }
    }
}
