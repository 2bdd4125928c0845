//! Playlists (RFC 8216, draft-pantos-hls-rfc8216bis), as far as a player needs them.
//!
//! Unknown tags, comments and tags that cannot be parsed are skipped, as players do. What is kept
//! is bounded: [`SEGMENTS_MAX`], [`VARIANTS_MAX`].

use std::sync::Arc;
use std::time::Duration;

mod date;
mod parse;

/// Maximum number of segments of a playlist: 27 hours with segments of 2 s.
pub const SEGMENTS_MAX: usize = 50_000;

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
    Media(MediaPlaylist),
}

/// A multivariant playlist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MultivariantPlaylist {
    /// In the order of the playlist.
    pub variants: Vec<Variant>,
    /// Audio renditions that have a playlist of their own.
    pub audio: Vec<AudioRendition>,
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
    /// URI of its media playlist.
    pub uri: String,
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
    /// Distance from the end at which the server wants players to begin (rfc8216bis, 4.4.3.8).
    pub hold_back: Option<Duration>,
    /// In the order of playback.
    pub segments: Vec<Segment>,
}

/// A media segment.
#[derive(Clone, Debug, PartialEq)]
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
    /// True if its encoding or its clock differs from the segment before (RFC 8216, 4.3.2.3).
    pub is_discontinuous: bool,
    /// True if it is missing, and must not be requested (rfc8216bis, 4.4.4.7).
    pub is_gap: bool,
    /// True if it, or a part of it, is encrypted (RFC 8216, 4.3.2.4).
    pub is_encrypted: bool,
}

/// Media initialization section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// URI of its resource.
    pub uri: String,
    /// Part of the resource; `None`: all of it.
    pub range: Option<ByteRange>,
}

/// Part of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes, at least 1.
    pub length: u64,
}

/// Reason why a text is not a playlist that can be played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaylistError {
    /// The first line is not `#EXTM3U`.
    #[error("it does not begin with #EXTM3U")]
    NotPlaylist,
    /// The text has neither variants nor a target duration.
    #[error("it has no variants and no #EXT-X-TARGETDURATION")]
    NoTargetDuration,
    /// The target duration is 0, or longer than a day.
    #[error("the target duration of {0} s is not possible")]
    TargetDuration(u64),
    /// More than [`SEGMENTS_MAX`] segments.
    #[error("it has more than {SEGMENTS_MAX} segments")]
    TooManySegments,
    /// More than [`VARIANTS_MAX`] variants or renditions.
    #[error("it has more than {VARIANTS_MAX} variants or renditions")]
    TooManyVariants,
    /// The number of a segment exceeds 64 bits.
    #[error("the number of its last segment is greater than 2^64 - 1")]
    SequenceTooLarge,
    /// A segment has a negative duration, or one of more than a day.
    #[error("the duration of a segment is not possible")]
    SegmentDuration,
}

impl MediaPlaylist {
    /// Number of the segment that will be added next.
    pub fn end_sequence(&self) -> u64 {
        self.media_sequence + self.segments.len() as u64
    }

    /// Returns the segment of this number.
    pub fn segment(&self, sequence: u64) -> Option<&Segment> {
        let index = sequence.checked_sub(self.media_sequence)?;
        self.segments.get(usize::try_from(index).ok()?)
    }

    /// Number of the segment at which playback begins (RFC 8216, 6.3.3): the first one of recorded
    /// media, otherwise the last one that is `distance` or more from the end. Default: what the
    /// server asks for, or three target durations.
    pub fn start(&self, distance: Option<Duration>) -> u64 {
        if self.is_ended {
            return self.media_sequence;
        }
        let usual = self.hold_back.unwrap_or(3 * self.target_duration);
        let wanted = distance.unwrap_or(usual);
        let (mut sequence, mut from_end) = (self.end_sequence(), Duration::ZERO);
        for segment in self.segments.iter().rev() {
            sequence -= 1;
            from_end += segment.duration;
            if from_end >= wanted {
                break;
            }
        }
        sequence
    }
}

#[cfg(test)]
mod tests;
