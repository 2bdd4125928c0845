//! Playlists (RFC 8216, draft-pantos-hls-rfc8216bis), as far as a player needs them.
//!
//! Unknown tags, comments and tags that cannot be parsed are skipped, as players do; what is odd is
//! told ([`Oddities`]). What is kept is bounded: [`SEGMENTS_MAX`], [`PARTS_MAX`],
//! [`VARIANTS_MAX`].

use std::sync::Arc;
use std::time::Duration;

mod date;
mod oddities;
mod parse;
mod tidy;
mod variables;

pub(crate) use oddities::OddityKinds;
pub use oddities::{Oddities, Oddity};
pub use variables::{Origin, REPLACED_MAX, VARIABLES_MAX, Variables};

/// Maximum number of segments of a playlist: 27 hours with segments of 2 s.
pub const SEGMENTS_MAX: usize = 50_000;

/// Maximum number of parts of segments of a playlist. Servers list those of the last three target
/// durations.
pub const PARTS_MAX: usize = 5_000;

/// Maximum number of variants, and of renditions.
pub const VARIANTS_MAX: usize = 256;

/// Longest duration that a playlist may state. A player would wait for the end of it.
const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);

/// A playlist of either kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Playlist {
    /// Variants of the same media (RFC 8216, 4.3.4).
    Multivariant(MultivariantPlaylist),
    /// Segments (RFC 8216, 4.3.3).
    Media(Box<MediaPlaylist>),
}

/// A multivariant playlist.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MultivariantPlaylist {
    /// In the order of the playlist.
    pub variants: Vec<Variant>,
    /// Audio renditions.
    pub audio: Vec<AudioRendition>,
    /// Position at which playback is to begin, if it is stated (RFC 8216, 4.3.5.2).
    pub start: Option<StartOffset>,
    /// Variables that media playlists may import (rfc8216bis, 4.4.2.3).
    pub variables: Variables,
    /// Rules that it breaks.
    pub oddities: Oddities,
}

/// Position at which a server wants playback to begin (RFC 8216, 4.3.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartOffset {
    /// Distance from the beginning of the playlist.
    FromBegin(Duration),
    /// Distance from its end.
    FromEnd(Duration),
}

/// A variant stream (RFC 8216, 4.3.4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Peak bit rate in bit/s.
    pub bandwidth: u64,
    /// Group of its audio renditions.
    pub audio: Option<String>,
    /// URI of its media playlist.
    pub uri: String,
}

/// An audio rendition (RFC 8216, 4.3.4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AudioRendition {
    /// Group that variants refer to.
    pub group: String,
    /// True if a player chooses it unless the user wants another.
    pub is_default: bool,
    /// URI of its media playlist; `None` if the variants themselves hold it.
    pub uri: Option<String>,
}

/// A media playlist.
#[derive(Clone, Debug, PartialEq)]
pub struct MediaPlaylist {
    /// Maximum duration of a segment (RFC 8216, 4.3.3.1).
    pub target_duration: Duration,
    /// Number of the first segment (RFC 8216, 4.3.3.2).
    pub media_sequence: u64,
    /// True if no segment will be added (RFC 8216, 4.3.3.4).
    pub is_ended: bool,
    /// Features that the server supports, and distances that it asks for.
    pub control: ServerControl,
    /// Position at which playback is to begin, if it is stated (RFC 8216, 4.3.5.2).
    pub start_offset: Option<StartOffset>,
    /// Maximum duration of a part (rfc8216bis, 4.4.3.7).
    pub part_target: Option<Duration>,
    /// In the order of playback.
    pub segments: Vec<Arc<Segment>>,
    /// Parts of segments, in the order of playback. Those of the segment that is not complete yet
    /// come last.
    pub parts: Vec<Part>,
    /// Resource that will be the next part (rfc8216bis, 4.4.5.3).
    pub hint: Option<Hint>,
    /// Initialization section that parts to come will need (rfc8216bis, 4.4.5.3).
    pub map_hint: Option<Hint>,
    /// Ends of the playlists of other renditions (rfc8216bis, 4.4.5.4).
    pub reports: Vec<RenditionReport>,
    /// True if the server left out segments that were in the playlist before (rfc8216bis, 4.4.5.2).
    pub is_delta: bool,
    /// Rules that it breaks.
    pub oddities: Oddities,
}

/// Features that a server supports, and distances that it asks for (rfc8216bis, 4.4.3.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerControl {
    /// Distance from the end at which players begin.
    pub hold_back: Option<Duration>,
    /// Distance from the end at which players of parts begin.
    pub part_hold_back: Option<Duration>,
    /// True if a request can wait for a segment or part to come.
    pub can_block_reload: bool,
    /// Distance from the end beyond which an update may leave out segments.
    pub can_skip_until: Option<Duration>,
}

/// A place in a playlist: a segment by its number, and the parts of it that lie before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Number of the segment.
    pub sequence: u64,
    /// Number of parts of the segment that lie before.
    pub part: u32,
}

/// Segment or part that follows a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Piece<'a> {
    /// A whole segment.
    Segment(&'a Segment),
    /// A part of one.
    Part(&'a Part),
}

/// A partial segment (rfc8216bis, 4.4.4.9).
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Place of the part: number `part` of segment `sequence`.
    pub place: Place,
    /// True if it begins with a picture that can be decoded on its own.
    pub is_independent: bool,
    /// Resource and duration of the part.
    pub media: Segment,
}

/// End of the playlist of another rendition (rfc8216bis, 4.4.5.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenditionReport {
    /// URI of that playlist.
    pub uri: Box<str>,
    /// Number of the last segment; `None` if it ends with the same segment as the playlist with the
    /// report.
    pub sequence: Option<u64>,
    /// Number of the last part within its segment; `None` if it ends with the same part.
    pub part: Option<u32>,
}

/// A part or initialization section that will be available soon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Kind of the resource.
    pub kind: HintKind,
    /// URI of the resource that will hold it.
    pub uri: Box<str>,
    /// Part of the resource.
    pub extent: Extent,
}

/// Kind of a hinted resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintKind {
    /// A part of a segment.
    Part,
    /// An initialization section.
    Map,
}

/// A media segment, or a part of one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    /// Stated duration.
    pub duration: Duration,
    /// URI of the resource that holds it.
    pub uri: Box<str>,
    /// Part of the resource; `None`: all of it.
    pub range: Option<ByteRange>,
    /// Resource that must be read before it (RFC 8216, 4.3.2.5).
    pub map: Option<Arc<Map>>,
    /// Date of its first sample, since 1970: as stated, or derived from that of an earlier segment.
    pub date: Option<Duration>,
    /// True if the date is stated for this segment.
    pub is_date_stated: bool,
    /// True if its encoding or its clock differs from the segment before (RFC 8216, 4.3.2.3).
    pub is_discontinuous: bool,
    /// True if it is missing, and must not be requested (rfc8216bis, 4.4.4.7).
    pub is_gap: bool,
    /// Key of its encryption (RFC 8216, 4.3.2.4).
    pub key: Option<Arc<Key>>,
}

/// A key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// URI of its resource; `None` if players need further software to get it, as for FairPlay.
    pub uri: Option<String>,
    /// Initialization vector. Default: the number of the segment.
    pub iv: Option<[u8; 16]>,
    /// True if whole segments are encrypted, not samples in them.
    pub is_of_segments: bool,
}

/// Media initialization section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// URI of its resource.
    pub uri: String,
    /// Part of the resource; `None`: all of it.
    pub range: Option<ByteRange>,
    /// Key of its encryption.
    pub key: Option<Arc<Key>>,
}

/// Part of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes, at least 1.
    pub length: u64,
}

/// Bytes of a resource that are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of them.
    Whole,
    /// A range.
    Range(ByteRange),
    /// All from this offset on. The resource may still grow.
    From(u64),
}

impl Extent {
    fn is_empty(self) -> bool {
        matches!(self, Extent::Range(ByteRange { length: 0, .. }))
    }
}

impl From<Option<ByteRange>> for Extent {
    fn from(range: Option<ByteRange>) -> Extent {
        range.map_or(Extent::Whole, Extent::Range)
    }
}

/// Reason why a text is not a playlist that can be played.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaylistError {
    /// The first line is not `#EXTM3U`.
    #[error("it does not begin with #EXTM3U")]
    NotPlaylist,
    /// The text has neither variants nor a target duration.
    #[error("it has no variants and no #EXT-X-TARGETDURATION")]
    NoTargetDuration,
    /// The target duration is longer than a day.
    #[error("the target duration of {0} s is not possible")]
    TargetDuration(u64),
    /// More than [`SEGMENTS_MAX`] segments.
    #[error("it has more than {SEGMENTS_MAX} segments")]
    TooManySegments,
    /// More than [`PARTS_MAX`] parts.
    #[error("it has more than {PARTS_MAX} parts of segments")]
    TooManyParts,
    /// More than [`VARIANTS_MAX`] variants or renditions.
    #[error("it has more than {VARIANTS_MAX} variants or renditions")]
    TooManyVariants,
    /// The number of a segment exceeds 64 bits.
    #[error("the number of its last segment is greater than 2^64 - 1")]
    SequenceTooLarge,
    /// Segments are left out that the player does not have from an earlier playlist.
    #[error("it leaves out segments that no earlier playlist had")]
    SkippedUnknown,
    /// A segment has a negative duration, or one of more than a day.
    #[error("the duration of a segment is not possible")]
    SegmentDuration,
    /// A variable is used that no line before defines.
    #[error("it uses the variable {0:?}, which no line before defines")]
    NotDefined(String),
    /// A variable is defined twice.
    #[error("it defines the variable {0:?} twice")]
    DefinedTwice(String),
    /// An imported variable is not defined by a multivariant playlist.
    #[error("it imports the variable {0:?}, which no multivariant playlist defines")]
    NotImported(String),
    /// The URL of the playlist has no parameter of this name, or a value that is no string in a
    /// playlist.
    #[error("it takes the variable {0:?} from its URL, which has no such text")]
    NotInQuery(String),
    /// More than [`VARIABLES_MAX`] variables, or values that are too long.
    #[error("it has more than {VARIABLES_MAX} variables, or values that are too long")]
    TooManyVariables,
    /// More than [`REPLACED_MAX`] bytes after variables were replaced by their values.
    #[error("it has more than {REPLACED_MAX} bytes with the values of its variables")]
    TooLongReplaced,
}

impl MediaPlaylist {
    /// Number of the segment that will be added next.
    pub fn end_sequence(&self) -> u64 {
        self.media_sequence + self.segments.len() as u64
    }

    /// Returns the segments with their numbers.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (&Arc<Segment>, u64)> + Clone {
        self.segments.iter().zip(self.media_sequence..)
    }

    /// Returns the segment of this number.
    pub fn segment(&self, sequence: u64) -> Option<&Arc<Segment>> {
        let index = sequence.checked_sub(self.media_sequence)?;
        self.segments.get(usize::try_from(index).ok()?)
    }

    /// Place of what will be added next: the next segment, or the next part of it.
    pub fn end(&self) -> Place {
        let sequence = self.end_sequence();
        Place {
            sequence,
            part: self.parts_of(sequence).len() as u32,
        }
    }

    /// Number of the last segment and, if the playlist lists any, of the last part within it.
    fn last(&self) -> (u64, Option<u32>) {
        let end = self.end();
        match end.part.checked_sub(1) {
            Some(part) => (end.sequence, Some(part)),
            None => {
                let sequence = end.sequence.saturating_sub(1);
                let parts = self.parts_of(sequence).len() as u32;
                (sequence, parts.checked_sub(1))
            }
        }
    }

    /// Returns what the playlist of another rendition ends with, if this one says so: the number of
    /// its last segment, and of the last part within that.
    pub fn reported_end(&self, is_it: impl Fn(&str) -> bool) -> Option<(u64, Option<u32>)> {
        let report = self.reports.iter().find(|report| is_it(&report.uri))?;
        let (sequence, part) = self.last();
        Some((report.sequence.unwrap_or(sequence), report.part.or(part)))
    }

    /// Returns the parts of the segment of this number. Empty if the playlist does not list them.
    pub fn parts_of(&self, sequence: u64) -> &[Part] {
        let begin = |sequence| {
            self.parts
                .partition_point(|part| part.place.sequence < sequence)
        };
        let end = sequence.checked_add(1).map_or(self.parts.len(), begin);
        &self.parts[begin(sequence)..end]
    }

    /// True if a player can play parts: the server lists them, and a request waits for the next
    /// one.
    pub fn is_low_latency(&self) -> bool {
        self.part_target.is_some() && self.control.can_block_reload
    }

    /// Returns the piece at `place` or, if all parts of a segment lie before, at the beginning of
    /// the next one. `None` if it does not exist yet. If the parts of a segment of which some lie
    /// before are not listed any more, the piece is the whole segment.
    pub fn piece(&self, place: Place, in_parts: bool) -> Option<(Place, Piece<'_>)> {
        let place = self.normal(place, in_parts);
        let parts = self.parts_of(place.sequence);
        let part = parts.get(place.part as usize).filter(|_| in_parts);
        let piece = match part {
            Some(part) => Piece::Part(part),
            None => Piece::Segment(self.segment(place.sequence)?),
        };
        Some((place, piece))
    }

    /// Returns `place` or, if all parts of a segment lie before it, the beginning of the next one.
    pub fn normal(&self, mut place: Place, in_parts: bool) -> Place {
        loop {
            let count = match in_parts {
                true => self.parts_of(place.sequence).len(),
                false => 0,
            };
            let is_complete = count > 0 && place.part as usize >= count;
            if !is_complete || self.segment(place.sequence).is_none() {
                return place;
            }
            place = place.next_segment();
        }
    }

    /// Duration of what follows `place`.
    pub fn duration_from(&self, place: Place, in_parts: bool) -> Duration {
        let mut duration = Duration::ZERO;
        let mut next = self.piece(place, in_parts);
        while let Some((at, piece)) = next {
            duration += piece.media().duration;
            next = self.piece(piece.end(at), in_parts);
        }
        duration
    }

    /// Place at which playback begins (RFC 8216, 6.3.3): the last one that is `distance` or more
    /// from the end. Default: the first one of recorded media, otherwise what the server asks for,
    /// or three target durations from the end. A part at which playback begins is independent.
    pub fn start(&self, distance: Option<Duration>, in_parts: bool) -> Place {
        let begin = Place {
            sequence: self.media_sequence,
            part: 0,
        };
        if self.is_ended && distance.is_none() {
            return begin;
        }
        let wanted = distance.unwrap_or(self.hold_back(in_parts));
        let (mut start, mut from_end) = (self.end(), Duration::ZERO);
        if !in_parts {
            start.part = 0;
        }
        for sequence in (self.media_sequence..=self.end_sequence()).rev() {
            let parts = match in_parts {
                true => self.parts_of(sequence),
                false => &[],
            };
            for part in parts.iter().rev() {
                from_end += part.media.duration;
                if part.is_independent || part.place.part == 0 {
                    start = part.place;
                    if from_end >= wanted {
                        return start;
                    }
                }
            }
            let Some(segment) = self.segment(sequence).filter(|_| parts.is_empty()) else {
                continue;
            };
            from_end += segment.duration;
            start = Place { sequence, part: 0 };
            if from_end >= wanted {
                return start;
            }
        }
        start
    }

    /// Media between [`start`](MediaPlaylist::start) and the position at which playback begins,
    /// which is `distance` from the end: a decoder needs it, and a viewer does not see it.
    pub fn lead(&self, distance: Option<Duration>, in_parts: bool) -> Duration {
        if self.is_ended && distance.is_none() {
            return Duration::ZERO;
        }
        let wanted = distance.unwrap_or(self.hold_back(in_parts));
        let from_end = self.duration_from(self.start(distance, in_parts), in_parts);
        from_end.saturating_sub(wanted)
    }

    /// Distance from the end at which playback is to begin, for a position that is stated here or
    /// in the multivariant playlist.
    pub fn distance_of(&self, start: StartOffset, in_parts: bool) -> Duration {
        match start {
            StartOffset::FromEnd(distance) => distance,
            StartOffset::FromBegin(offset) => {
                let begin = Place {
                    sequence: self.media_sequence,
                    part: 0,
                };
                self.duration_from(begin, in_parts).saturating_sub(offset)
            }
        }
    }

    /// Distance from the end at which the server wants players to begin (rfc8216bis, 4.4.3.8).
    pub fn hold_back(&self, in_parts: bool) -> Duration {
        match self.part_target.filter(|_| in_parts) {
            Some(part_target) => self.control.part_hold_back.unwrap_or(3 * part_target),
            None => self.control.hold_back.unwrap_or(3 * self.target_duration),
        }
    }
}

impl Map {
    /// True if it is the same resource, whatever its key is.
    pub(crate) fn is_same(&self, other: &Map) -> bool {
        (&self.uri, self.range) == (&other.uri, other.range)
    }
}

impl Segment {
    /// Last component of the path of its URI: the rest may hold a token, or name an edge.
    fn name(&self) -> &str {
        let path = self.uri.split(['?', '#']).next().unwrap_or(&self.uri);
        path.rsplit('/').next().unwrap_or(path)
    }

    /// True if a segment of the same number in another playlist has another name.
    pub(crate) fn is_renamed(&self, other: &Segment) -> bool {
        // Playlists share segments that are the same.
        !std::ptr::eq(self, other) && self.name() != other.name()
    }

    /// Date of its first sample, if the playlist states it for this segment.
    pub(crate) fn stated_date(&self) -> Option<Duration> {
        self.date.filter(|_| self.is_date_stated)
    }
}

impl Place {
    /// Place after the segment.
    pub fn next_segment(self) -> Place {
        Place {
            sequence: self.sequence.saturating_add(1),
            part: 0,
        }
    }
}

impl<'a> Piece<'a> {
    /// Resource and duration of the piece.
    pub fn media(self) -> &'a Segment {
        match self {
            Piece::Segment(segment) => segment,
            Piece::Part(part) => &part.media,
        }
    }

    /// Place after it, if it begins at `place`.
    pub fn end(self, place: Place) -> Place {
        match self {
            Piece::Segment(_) => place.next_segment(),
            Piece::Part(_) => Place {
                part: place.part + 1,
                ..place
            },
        }
    }
}

#[cfg(test)]
mod tests;
