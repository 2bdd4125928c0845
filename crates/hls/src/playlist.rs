//! Playlists (RFC 8216, draft-pantos-hls-rfc8216bis), as far as a player needs them.
//!
//! Unknown tags, comments and tags that cannot be parsed are skipped, as players do. What is kept
//! is bounded: [`SEGMENTS_MAX`], [`VARIANTS_MAX`].

use std::sync::Arc;
use std::time::Duration;

use quick_m3u8::config::ParsingOptionsBuilder;
use quick_m3u8::tag::KnownTag;
use quick_m3u8::tag::hls::{EnumeratedString, MediaType, Method, Tag};
use quick_m3u8::{HlsLine, Reader};

mod date;

/// Maximum number of segments of a playlist: 27 hours with segments of 2 s.
pub const SEGMENTS_MAX: usize = 50_000;

/// Maximum number of variants, and of renditions.
pub const VARIANTS_MAX: usize = 256;

/// Name of the tag with the date of a segment. The parser of tags refuses time zones without a
/// colon, as ffmpeg writes them.
const DATE_TAG: &str = "-X-PROGRAM-DATE-TIME";

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

impl Playlist {
    /// Parses a playlist. Bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    /// [`PlaylistError`].
    pub fn parse(bytes: &[u8]) -> Result<Playlist, PlaylistError> {
        let text = String::from_utf8_lossy(bytes);
        let text = text.trim_start_matches('\u{feff}').trim_start();
        if !text.starts_with("#EXTM3U") {
            return Err(PlaylistError::NotPlaylist);
        }
        let mut build = Builder::default();
        let options = ParsingOptionsBuilder::new()
            .with_parsing_for_targetduration()
            .with_parsing_for_media_sequence()
            .with_parsing_for_endlist()
            .with_parsing_for_server_control()
            .with_parsing_for_inf()
            .with_parsing_for_byterange()
            .with_parsing_for_discontinuity()
            .with_parsing_for_key()
            .with_parsing_for_map()
            .with_parsing_for_gap()
            .with_parsing_for_media()
            .with_parsing_for_stream_inf()
            .build();
        let mut reader = Reader::from_str(text, options);
        loop {
            match reader.read_line() {
                Ok(None) => break,
                Ok(Some(HlsLine::KnownTag(KnownTag::Hls(tag)))) => build.tag(tag)?,
                Ok(Some(HlsLine::UnknownTag(tag))) if tag.name() == DATE_TAG => {
                    let value = tag.value().and_then(|value| str::from_utf8(value.0).ok());
                    build.date = value.and_then(date::since_1970);
                }
                Ok(Some(HlsLine::Uri(uri))) => build.uri(uri.trim())?,
                // Anything else, and lines with errors, are skipped.
                Ok(Some(_)) | Err(_) => {}
            }
        }
        build.finish()
    }
}

/// State of the parser between two lines.
#[derive(Debug, Default)]
struct Builder {
    multivariant: MultivariantPlaylist,
    /// Bandwidth and audio group of a variant whose URI follows.
    variant: Option<(u64, Option<String>)>,
    target_duration: Option<u64>,
    media_sequence: u64,
    is_ended: bool,
    hold_back: Option<f64>,
    segments: Vec<Segment>,
    /// Duration of the segment whose URI follows.
    duration: Option<f64>,
    /// Length and, if stated, offset.
    range: Option<(u64, Option<u64>)>,
    map: Option<Arc<Map>>,
    date: Option<Duration>,
    is_discontinuous: bool,
    is_gap: bool,
    is_encrypted: bool,
}

impl Builder {
    fn tag(&mut self, tag: Tag<'_>) -> Result<(), PlaylistError> {
        match tag {
            Tag::Targetduration(tag) => self.target_duration = Some(tag.target_duration()),
            Tag::MediaSequence(tag) => self.media_sequence = tag.media_sequence(),
            Tag::Endlist(_) => self.is_ended = true,
            Tag::ServerControl(tag) => self.hold_back = tag.hold_back(),
            Tag::Inf(tag) => self.duration = Some(tag.duration()),
            Tag::Byterange(tag) => self.range = Some((tag.length(), tag.offset())),
            Tag::Discontinuity(_) => self.is_discontinuous = true,
            Tag::Key(tag) => {
                self.is_encrypted = tag.method() != EnumeratedString::Known(Method::None);
            }
            Tag::Map(tag) => {
                let range = tag.byterange().map(|range| ByteRange {
                    offset: range.offset,
                    length: range.length,
                });
                self.map = Some(Arc::new(Map {
                    uri: tag.uri().to_owned(),
                    range: range.filter(|range| range.length > 0),
                }));
            }
            Tag::Gap(_) => self.is_gap = true,
            Tag::Media(tag) => {
                let is_audio = tag.media_type() == EnumeratedString::Known(MediaType::Audio);
                if let Some(uri) = tag.uri().filter(|_| is_audio) {
                    let audio = &mut self.multivariant.audio;
                    if audio.len() == VARIANTS_MAX {
                        return Err(PlaylistError::TooManyVariants);
                    }
                    audio.push(AudioRendition {
                        group: tag.group_id().to_owned(),
                        is_default: tag.default(),
                        uri: uri.to_owned(),
                    });
                }
            }
            Tag::StreamInf(tag) => {
                self.variant = Some((tag.bandwidth(), tag.audio().map(str::to_owned)));
            }
            _ => {}
        }
        Ok(())
    }

    fn uri(&mut self, uri: &str) -> Result<(), PlaylistError> {
        if let Some((bandwidth, audio)) = self.variant.take() {
            let variants = &mut self.multivariant.variants;
            if variants.len() == VARIANTS_MAX {
                return Err(PlaylistError::TooManyVariants);
            }
            variants.push(Variant {
                bandwidth,
                audio,
                uri: uri.to_owned(),
            });
            return Ok(());
        }
        // A URI without a duration is not a segment.
        let Some(duration) = self.duration.take() else {
            return Ok(());
        };
        if self.segments.len() == SEGMENTS_MAX {
            return Err(PlaylistError::TooManySegments);
        }
        let duration = to_duration(duration).ok_or(PlaylistError::SegmentDuration)?;
        let last = self.segments.last();
        let range = self.range.take().and_then(|(length, offset)| {
            let follows = || {
                let before = last.filter(|last| *last.uri == *uri)?.range?;
                before.offset.checked_add(before.length)
            };
            let offset = offset.or_else(follows).unwrap_or(0);
            (length > 0).then_some(ByteRange { offset, length })
        });
        let derived = || last?.date?.checked_add(last?.duration);
        let date = self.date.take().or_else(derived);
        let segment = Segment {
            duration,
            uri: uri.into(),
            range,
            map: self.map.clone(),
            date,
            is_discontinuous: std::mem::take(&mut self.is_discontinuous),
            is_gap: std::mem::take(&mut self.is_gap),
            is_encrypted: self.is_encrypted,
        };
        self.segments.push(segment);
        Ok(())
    }

    fn finish(self) -> Result<Playlist, PlaylistError> {
        if !self.multivariant.variants.is_empty() {
            return Ok(Playlist::Multivariant(self.multivariant));
        }
        let seconds = self
            .target_duration
            .ok_or(PlaylistError::NoTargetDuration)?;
        let target_duration = Duration::from_secs(seconds);
        if target_duration.is_zero() || target_duration > DURATION_MAX {
            return Err(PlaylistError::TargetDuration(seconds));
        }
        let count = self.segments.len() as u64;
        if self.media_sequence.checked_add(count).is_none() {
            return Err(PlaylistError::SequenceTooLarge);
        }
        Ok(Playlist::Media(MediaPlaylist {
            target_duration,
            media_sequence: self.media_sequence,
            is_ended: self.is_ended,
            hold_back: self.hold_back.and_then(to_duration),
            segments: self.segments,
        }))
    }
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

fn to_duration(seconds: f64) -> Option<Duration> {
    let duration = Duration::try_from_secs_f64(seconds).ok()?;
    (duration <= DURATION_MAX).then_some(duration)
}

#[cfg(test)]
mod tests;
