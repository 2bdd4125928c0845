//! Rules that a playlist breaks, and that a player can do without.

use std::fmt;
use std::time::Duration;

use super::{MediaPlaylist, Place};

/// Maximum number of characters of a line or URI that a description quotes.
const QUOTED_MAX: usize = 80;

/// Maximum error of fractions of seconds in attributes: servers round them.
const ROUNDING: Duration = Duration::from_millis(1);

/// Rules that a playlist breaks: the first case of each kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Oddities(Vec<Oddity>);

/// A rule that a playlist breaks.
#[derive(Clone, Debug, PartialEq)]
pub enum Oddity {
    /// A line cannot be parsed, and is skipped.
    Line(String),
    /// The target duration is no whole number of seconds, or zero (RFC 8216, 4.3.3.1). The whole
    /// seconds of it count, and at least one.
    Target(String),
    /// A segment is longer than the target duration, after rounding to whole seconds (RFC 8216,
    /// 4.3.3.1). A player that requests the playlist at this interval comes too late for others.
    LongSegment {
        /// Number of the segment.
        sequence: u64,
        /// Stated duration.
        duration: Duration,
        /// The target duration.
        target: Duration,
    },
    /// A part is longer than the target duration of parts (rfc8216bis, 4.4.3.7).
    LongPart {
        /// Place of the part.
        place: Place,
        /// Stated duration.
        duration: Duration,
        /// The target duration of parts.
        target: Duration,
    },
    /// Players are to begin closer to the end than three target durations, or than two of parts
    /// (rfc8216bis, 4.4.3.8).
    HoldBack {
        /// Name of the attribute.
        attribute: &'static str,
        /// Value of the attribute.
        stated: Duration,
        /// Smallest value that is permitted.
        least: Duration,
    },
    /// The playlist has parts, and does not state where players of parts begin (rfc8216bis,
    /// 4.4.3.8).
    NoPartHoldBack,
    /// A segment had another name, the end of its path, in the playlist before (RFC 8216, 6.2.1). A
    /// player may have received it under the other one, or receive the same media twice.
    Renamed {
        /// Number of the segment.
        sequence: u64,
        /// URI in the playlist before.
        before: String,
        /// URI in this one.
        now: String,
    },
}

impl Oddities {
    /// Adds an oddity unless there is one of its kind.
    pub(super) fn add(&mut self, oddity: Oddity) {
        if self.0.iter().all(|own| own.kind() != oddity.kind()) {
            self.0.push(oddity);
        }
    }

    /// Adds a line that cannot be parsed.
    pub(super) fn add_line(&mut self, line: &str) {
        self.add(Oddity::Line(quoted(line)));
    }

    /// Adds a target duration that is not possible.
    pub(super) fn add_target(&mut self, value: &str) {
        self.add(Oddity::Target(quoted(value)));
    }

    /// Adds what is odd about the contents of a playlist that follows `before`.
    pub(super) fn add_contents(&mut self, own: &MediaPlaylist, before: Option<&MediaPlaylist>) {
        let target = own.target_duration;
        let longest = target + Duration::from_millis(500);
        if let Some((long, sequence)) = own.numbered().find(|(own, _)| own.duration > longest) {
            self.add(Oddity::LongSegment {
                sequence,
                duration: long.duration,
                target,
            });
        }
        let least = 3 * target;
        if let Some(stated) = own
            .control
            .hold_back
            .filter(|stated| *stated + ROUNDING < least)
        {
            self.add(Oddity::HoldBack {
                attribute: "HOLD-BACK",
                stated,
                least,
            });
        }
        if let Some(target) = own.part_target {
            self.add_parts(own, target);
        }
        let renamed = before.and_then(|before| {
            own.numbered().find_map(|(segment, sequence)| {
                let before = before.segment(sequence)?;
                segment.is_renamed(before).then(|| Oddity::Renamed {
                    sequence,
                    before: quoted(&before.uri),
                    now: quoted(&segment.uri),
                })
            })
        });
        if let Some(renamed) = renamed {
            self.add(renamed);
        }
    }

    fn add_parts(&mut self, own: &MediaPlaylist, target: Duration) {
        let mut parts = own.parts.iter();
        if let Some(long) = parts.find(|part| part.media.duration > target + ROUNDING) {
            self.add(Oddity::LongPart {
                place: long.place,
                duration: long.media.duration,
                target,
            });
        }
        let least = 2 * target;
        match own.control.part_hold_back {
            None => self.add(Oddity::NoPartHoldBack),
            Some(stated) if stated + ROUNDING < least => self.add(Oddity::HoldBack {
                attribute: "PART-HOLD-BACK",
                stated,
                least,
            }),
            Some(_) => {}
        }
    }

    /// True if nothing is odd.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes those whose kind is not in `known`, and adds their kinds to it.
    pub(crate) fn take_new(&mut self, known: &mut OddityKinds) -> Vec<Oddity> {
        let mut new = std::mem::take(&mut self.0);
        new.retain(|own| known.0 & own.kind() == 0);
        for own in &new {
            known.0 |= own.kind();
        }
        new
    }
}

/// Kinds of oddities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OddityKinds(u8);

impl Oddity {
    /// Returns a bit for the kind.
    fn kind(&self) -> u8 {
        match self {
            Oddity::Line(_) => 1,
            Oddity::LongSegment { .. } => 2,
            Oddity::LongPart { .. } => 4,
            Oddity::HoldBack { .. } => 8,
            Oddity::NoPartHoldBack => 16,
            Oddity::Renamed { .. } => 32,
            Oddity::Target(_) => 64,
        }
    }
}

impl fmt::Display for Oddity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Oddity::Line(line) => write!(out, "a line cannot be parsed: `{line}`"),
            Oddity::Target(value) => write!(
                out,
                "the target duration is `{value}`, and must be whole seconds, at least 1 (RFC 8216, \
                 4.3.3.1)"
            ),
            Oddity::LongSegment {
                sequence,
                duration,
                target,
            } => write!(
                out,
                "segment {sequence} has {} s, the target duration is {} s (RFC 8216, 4.3.3.1)",
                duration.as_secs_f64(),
                target.as_secs_f64()
            ),
            Oddity::LongPart {
                place,
                duration,
                target,
            } => write!(
                out,
                "part {} of segment {} has {} s, the target duration of parts is {} s (rfc8216bis, \
                 4.4.3.7)",
                place.part,
                place.sequence,
                duration.as_secs_f64(),
                target.as_secs_f64()
            ),
            Oddity::HoldBack {
                attribute,
                stated,
                least,
            } => write!(
                out,
                "{attribute} is {} s, and must be {} s or more (rfc8216bis, 4.4.3.8)",
                stated.as_secs_f64(),
                least.as_secs_f64()
            ),
            Oddity::NoPartHoldBack => {
                write!(
                    out,
                    "it has parts but no PART-HOLD-BACK (rfc8216bis, 4.4.3.8)"
                )
            }
            Oddity::Renamed {
                sequence,
                before,
                now,
            } => write!(
                out,
                "segment {sequence} is `{now}`, and was `{before}` before (RFC 8216, 6.2.1)"
            ),
        }
    }
}

/// Returns the beginning of a text, without control characters.
fn quoted(text: &str) -> String {
    let mut own = text.chars().filter(|own| !own.is_control());
    let mut quoted: String = own.by_ref().take(QUOTED_MAX).collect();
    if own.next().is_some() {
        quoted.push('…');
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::super::Playlist;
    use super::*;

    /// Parses a media playlist with these lines after the target duration of 2 s.
    fn media(lines: &str, before: Option<&MediaPlaylist>) -> MediaPlaylist {
        let text = format!("#EXTM3U\n#EXT-X-TARGETDURATION:2\n{lines}\n");
        match Playlist::parse(text.as_bytes(), before) {
            Ok(Playlist::Media(playlist)) => *playlist,
            other => panic!("{other:?}"),
        }
    }

    fn told(lines: &str) -> Vec<String> {
        let mut own = media(lines, None).oddities;
        let new = own.take_new(&mut OddityKinds::default());
        new.iter().map(Oddity::to_string).collect()
    }

    #[test]
    fn each_broken_rule_is_told_with_its_first_case() {
        let control = "#EXT-X-PART-INF:PART-TARGET=0.2\n#EXT-X-SERVER-CONTROL:";
        for (lines, expected) in [
            ("#EXTINF:2.5,\na\n#EXTINF:0,\nb".to_owned(), &[][..]),
            (
                "#EXT-X-MEDIA-SEQUENCE:7\n#EXTINF:2,\na\n#EXTINF:2.501,\nb\n#EXTINF:9,\nc"
                    .to_owned(),
                &["segment 8 has 2.501 s, the target duration is 2 s (RFC 8216, 4.3.3.1)"],
            ),
            ("#EXT-X-SERVER-CONTROL:HOLD-BACK=6\n".to_owned(), &[]),
            (
                "#EXT-X-SERVER-CONTROL:HOLD-BACK=5.9\n".to_owned(),
                &["HOLD-BACK is 5.9 s, and must be 6 s or more (rfc8216bis, 4.4.3.8)"],
            ),
            (format!("{control}PART-HOLD-BACK=0.4"), &[]),
            (
                format!("{control}PART-HOLD-BACK=0.39"),
                &["PART-HOLD-BACK is 0.39 s, and must be 0.4 s or more (rfc8216bis, 4.4.3.8)"],
            ),
            (
                format!("{control}CAN-BLOCK-RELOAD=YES"),
                &["it has parts but no PART-HOLD-BACK (rfc8216bis, 4.4.3.8)"],
            ),
            (
                format!(
                    "{control}PART-HOLD-BACK=1\n#EXTINF:2,\na\n#EXT-X-PART:DURATION=0.2005,URI=\"b\"\n\
                     #EXT-X-PART:DURATION=0.25,URI=\"c\""
                ),
                &[
                    "part 1 of segment 1 has 0.25 s, the target duration of parts is 0.2 s \
                     (rfc8216bis, 4.4.3.7)",
                ],
            ),
            (
                "#EXTINF:two,\na\n#EXT-X-PROGRAM-DATE-TIME:today\n#EXTINF:x\nb".to_owned(),
                &["a line cannot be parsed: `#EXTINF:two,`"],
            ),
            (
                "#EXT-X-PROGRAM-DATE-TIME:today\n#EXT-X-FUTURE:a=b\n# a comment".to_owned(),
                &["a line cannot be parsed: `#EXT-X-PROGRAM-DATE-TIME:today`"],
            ),
        ] {
            assert_eq!(told(&lines), expected, "{lines}");
        }
    }

    #[test]
    fn segments_keep_their_uris() {
        let before = media(
            "#EXT-X-MEDIA-SEQUENCE:4\n#EXTINF:2,\nx/a?t=1\n#EXTINF:2,\nb",
            None,
        );
        let odd = |lines: &str| {
            let mut own = media(lines, Some(&before)).oddities;
            let new = own.take_new(&mut OddityKinds::default());
            new.first().map(Oddity::to_string)
        };
        // Tokens may change, and numbers that the playlist before did not have are new.
        for lines in [
            "#EXT-X-MEDIA-SEQUENCE:4\n#EXTINF:2,\nhttp://y/z/a?t=2\n#EXTINF:2,\nb\n#EXTINF:2,\nc",
            "#EXT-X-MEDIA-SEQUENCE:6\n#EXTINF:2,\na",
            "#EXT-X-MEDIA-SEQUENCE:0\n#EXTINF:2,\nc",
        ] {
            assert_eq!(odd(lines), None, "{lines}");
        }
        assert_eq!(
            odd("#EXT-X-MEDIA-SEQUENCE:5\n#EXTINF:2,\na").as_deref(),
            Some("segment 5 is `a`, and was `b` before (RFC 8216, 6.2.1)")
        );
    }

    #[test]
    fn each_kind_is_told_once_and_long_lines_are_cut() {
        let mut known = OddityKinds::default();
        let long = format!("#EXTINF:{}\u{7}", "é".repeat(2 * QUOTED_MAX));
        let first = media(&long, None).oddities.take_new(&mut known);
        let Some(Oddity::Line(line)) = first.first() else {
            panic!("{first:?}");
        };
        assert_eq!(line.chars().count(), QUOTED_MAX + 1);
        let both = format!("{long}\n#EXTINF:9,\na");
        let mut own = media(&both, None).oddities;
        assert!(!own.is_empty());
        let new = own.take_new(&mut known);
        assert!(matches!(&new[..], [Oddity::LongSegment { .. }]), "{new:?}");
        assert_eq!(media(&both, None).oddities.take_new(&mut known), []);
    }
}
