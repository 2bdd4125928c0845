//! Parsing of playlists, line by line.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use quick_m3u8::config::{ParsingOptions, ParsingOptionsBuilder};
use quick_m3u8::tag::hls::{
    EnumeratedString, Key as KeyTag, MediaType, Method, Part as PartTag, PreloadHint,
    PreloadHintType, Tag,
};
use quick_m3u8::tag::{KnownTag, UnknownTag};
use quick_m3u8::{HlsLine, Reader};

use super::{
    AudioRendition, ByteRange, DURATION_MAX, Extent, Hint, HintKind, Key, Map, MediaPlaylist,
    MultivariantPlaylist, Oddities, Origin, PARTS_MAX, Part, Place, Playlist, PlaylistError,
    RenditionReport, SEGMENTS_MAX, Segment, ServerControl, StartOffset, VARIANTS_MAX, Variant,
    date, tidy, variables,
};

/// Name of the tag with the date of a segment. The parser of tags refuses time zones without a
/// colon, as ffmpeg writes them.
const DATE_TAG: &str = "-X-PROGRAM-DATE-TIME";

/// Name of the tag with the target duration. The parser of tags refuses fractions, which players
/// ignore.
const TARGET_TAG: &str = "-X-TARGETDURATION";

/// Name of the tag about the playlist of another rendition. The parser of tags refuses one without
/// the numbers that a server may leave out.
const REPORT_TAG: &str = "-X-RENDITION-REPORT";

/// Format of a key that is a resource of 16 bytes (RFC 8216, 4.3.2.4).
const KEY_FORMAT: &str = "identity";

/// Tags that are parsed. Making the set costs as much as parsing several segments.
static OPTIONS: LazyLock<ParsingOptions> = LazyLock::new(|| {
    ParsingOptionsBuilder::new()
        .with_parsing_for_media_sequence()
        .with_parsing_for_endlist()
        .with_parsing_for_define()
        .with_parsing_for_start()
        .with_parsing_for_server_control()
        .with_parsing_for_part_inf()
        .with_parsing_for_part()
        .with_parsing_for_preload_hint()
        .with_parsing_for_skip()
        .with_parsing_for_inf()
        .with_parsing_for_byterange()
        .with_parsing_for_discontinuity()
        .with_parsing_for_key()
        .with_parsing_for_map()
        .with_parsing_for_gap()
        .with_parsing_for_media()
        .with_parsing_for_stream_inf()
        .build()
});

impl Playlist {
    /// Parses a playlist. Bytes that are not UTF-8 are replaced. `before` is the last playlist of
    /// the same URL, which an update may refer to.
    ///
    /// # Errors
    /// [`PlaylistError`].
    pub fn parse(bytes: &[u8], before: Option<&MediaPlaylist>) -> Result<Playlist, PlaylistError> {
        Playlist::parse_at(bytes, before, Origin::default())
    }

    /// Parses a playlist that may take variables from its URL or from a multivariant playlist.
    ///
    /// # Errors
    /// [`PlaylistError`].
    pub fn parse_at(
        bytes: &[u8],
        before: Option<&MediaPlaylist>,
        origin: Origin<'_>,
    ) -> Result<Playlist, PlaylistError> {
        let text = match str::from_utf8(bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(bytes),
        };
        let text = text.trim_start_matches('\u{feff}').trim_start();
        if !text.starts_with("#EXTM3U") {
            return Err(PlaylistError::NotPlaylist);
        }
        let (text, variables) = variables::replace(tidy::without_blanks(text), origin)?;
        let mut build = Builder {
            before,
            multivariant: MultivariantPlaylist {
                variables,
                ..MultivariantPlaylist::default()
            },
            ..Builder::default()
        };
        let mut reader = Reader::from_str(&text, OPTIONS.clone());
        loop {
            match reader.read_line() {
                Ok(None) => break,
                Ok(Some(HlsLine::KnownTag(KnownTag::Hls(tag)))) => build.tag(tag)?,
                Ok(Some(HlsLine::UnknownTag(tag))) if tag.name() == DATE_TAG => {
                    build.date = date::since_1970(value_of(&tag));
                    if build.date.is_none() {
                        build.skip_tag(&tag);
                    }
                }
                Ok(Some(HlsLine::UnknownTag(tag))) if tag.name() == TARGET_TAG => {
                    build.target_duration(&tag);
                }
                Ok(Some(HlsLine::UnknownTag(tag))) if tag.name() == REPORT_TAG => {
                    match rendition_report(&tag) {
                        Some(_) if build.reports.len() == VARIANTS_MAX => {
                            return Err(PlaylistError::TooManyVariants);
                        }
                        Some(report) => build.reports.push(report),
                        None => build.skip_tag(&tag),
                    }
                }
                // A known tag whose value is wrong.
                Ok(Some(HlsLine::UnknownTag(tag))) if tag.validation_error().is_some() => {
                    build.skip_tag(&tag);
                }
                Ok(Some(HlsLine::Uri(uri))) => build.uri(uri.trim())?,
                Ok(Some(_)) => {}
                Err(error) => build.oddities.add_line(error.errored_line),
            }
        }
        build.finish()
    }
}

/// State of the parser between two lines.
#[derive(Debug, Default)]
struct Builder<'a> {
    before: Option<&'a MediaPlaylist>,
    multivariant: MultivariantPlaylist,
    /// Bandwidth and audio group of a variant whose URI follows.
    variant: Option<(u64, Option<String>)>,
    target_duration: Option<u64>,
    media_sequence: u64,
    is_ended: bool,
    control: ServerControl,
    start: Option<StartOffset>,
    part_target: Option<f64>,
    segments: Vec<Arc<Segment>>,
    parts: Vec<Part>,
    hint: Option<Hint>,
    map_hint: Option<Hint>,
    reports: Vec<RenditionReport>,
    is_delta: bool,
    oddities: Oddities,
    /// Duration of the segment whose URI follows.
    duration: Option<f64>,
    /// Length and, if stated, offset.
    range: Option<(u64, Option<u64>)>,
    map: Option<Arc<Map>>,
    date: Option<Duration>,
    is_discontinuous: bool,
    is_gap: bool,
    key: Option<Arc<Key>>,
}

impl Builder<'_> {
    fn tag(&mut self, tag: Tag<'_>) -> Result<(), PlaylistError> {
        match tag {
            Tag::MediaSequence(tag) => self.media_sequence = tag.media_sequence(),
            Tag::Endlist(_) => self.is_ended = true,
            Tag::Start(tag) => {
                let offset = tag.time_offset();
                let distance = to_duration(offset.abs());
                self.start = distance.map(match offset < 0.0 {
                    true => StartOffset::FromEnd,
                    false => StartOffset::FromBegin,
                });
            }
            Tag::ServerControl(tag) => {
                self.control = ServerControl {
                    hold_back: tag.hold_back().and_then(to_duration),
                    part_hold_back: tag.part_hold_back().and_then(to_duration),
                    can_block_reload: tag.can_block_reload(),
                    can_skip_until: tag.can_skip_until().and_then(to_duration),
                };
            }
            Tag::PartInf(tag) => self.part_target = Some(tag.part_target()),
            Tag::Part(tag) => self.part(&tag)?,
            Tag::PreloadHint(tag) => self.preload_hint(&tag),
            Tag::Skip(tag) => self.skip(tag.skipped_segments())?,
            Tag::Inf(tag) => self.duration = Some(tag.duration()),
            Tag::Byterange(tag) => self.range = Some((tag.length(), tag.offset())),
            Tag::Discontinuity(_) => self.is_discontinuous = true,
            Tag::Key(tag) => self.key(&tag),
            Tag::Map(tag) => {
                let range = tag.byterange().map(|range| ByteRange {
                    offset: range.offset,
                    length: range.length,
                });
                self.map = Some(Arc::new(Map {
                    uri: tag.uri().to_owned(),
                    range: range.filter(|range| range.length > 0),
                    key: self.key.clone(),
                }));
            }
            Tag::Gap(_) => self.is_gap = true,
            Tag::Media(tag) => {
                let is_audio = tag.media_type() == EnumeratedString::Known(MediaType::Audio);
                if is_audio {
                    let audio = &mut self.multivariant.audio;
                    if audio.len() == VARIANTS_MAX {
                        return Err(PlaylistError::TooManyVariants);
                    }
                    audio.push(AudioRendition {
                        group: tag.group_id().to_owned(),
                        is_default: tag.default(),
                        uri: tag.uri().map(str::to_owned),
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
        let range = self.range.take();
        let range = range.and_then(|(length, offset)| {
            byte_range(length, offset, uri, self.segments.last().map(Arc::as_ref))
        });
        let date = self.date_of_next();
        let segment = Segment {
            duration,
            uri: Box::default(),
            range,
            map: self.map.clone(),
            date,
            is_date_stated: self.date.take().is_some(),
            is_discontinuous: std::mem::take(&mut self.is_discontinuous),
            is_gap: std::mem::take(&mut self.is_gap),
            key: self.key.clone(),
        };
        let segment = self.known(&segment, uri).unwrap_or_else(|| {
            let uri = uri.into();
            Arc::new(Segment { uri, ..segment })
        });
        self.segments.push(segment);
        Ok(())
    }

    /// Returns the next segment of the playlist before, if it is this one with this URI. Most are.
    fn known(&self, segment: &Segment, uri: &str) -> Option<Arc<Segment>> {
        let sequence = self
            .media_sequence
            .checked_add(self.segments.len() as u64)?;
        let Segment {
            duration,
            uri: _,
            range,
            map,
            date,
            is_date_stated,
            is_discontinuous,
            is_gap,
            key,
        } = segment;
        let known = self.before?.segment(sequence)?;
        let is_same = *known.uri == *uri
            && known.duration == *duration
            && known.range == *range
            && known.map == *map
            && known.date == *date
            && known.is_date_stated == *is_date_stated
            && known.is_discontinuous == *is_discontinuous
            && known.is_gap == *is_gap
            && known.key == *key;
        is_same.then(|| known.clone())
    }

    /// Notes a tag whose value is wrong.
    fn skip_tag(&mut self, tag: &UnknownTag<'_>) {
        let line = format!("#EXT{}:{}", tag.name(), value_of(tag));
        self.oddities.add_line(&line);
    }

    /// Takes the target duration: whole seconds, at least one, as players do.
    fn target_duration(&mut self, tag: &UnknownTag<'_>) {
        let value = value_of(tag);
        let seconds = value.parse::<f64>().ok().filter(|seconds| *seconds >= 0.0);
        let Some(seconds) = seconds else {
            return self.skip_tag(tag);
        };
        if value.parse::<u64>().is_ok_and(|seconds| seconds > 0) {
            self.target_duration = Some(seconds as u64);
        } else {
            self.target_duration = Some((seconds as u64).max(1));
            self.oddities.add_target(value);
        }
    }

    /// Date of the segment that follows: as stated, or derived from that of the segment before.
    fn date_of_next(&self) -> Option<Duration> {
        let last = self.segments.last();
        let derived = || last?.date?.checked_add(last?.duration);
        self.date.or_else(derived)
    }

    fn key(&mut self, tag: &KeyTag<'_>) {
        let method = tag.method();
        if method == EnumeratedString::Known(Method::None) {
            self.key = None;
            return;
        }
        let is_of_samples = [Method::SampleAes, Method::SampleAesCtr]
            .map(EnumeratedString::Known)
            .contains(&method);
        let is_usable = is_of_samples || method == EnumeratedString::Known(Method::Aes128);
        let uri = tag
            .uri()
            .filter(|_| is_usable && tag.keyformat() == KEY_FORMAT);
        // A segment may have keys for several systems. A key in this format has precedence.
        let has_usable = self.key.as_ref().is_some_and(|key| key.uri.is_some());
        if uri.is_some() || !has_usable {
            self.key = Some(Arc::new(Key {
                uri: uri.map(str::to_owned),
                iv: tag.iv().and_then(read_iv),
                is_of_segments: !is_of_samples,
            }));
        }
    }

    fn part(&mut self, tag: &PartTag<'_>) -> Result<(), PlaylistError> {
        if self.parts.len() == PARTS_MAX {
            return Err(PlaylistError::TooManyParts);
        }
        // The number of the first segment is added at the end.
        let sequence = self.segments.len() as u64;
        let before = self.parts.last();
        let before = before.filter(|part| part.place.sequence == sequence);
        let index = before.map_or(0, |before| before.place.part + 1);
        let date = match before.map(|before| &before.media) {
            Some(before) => before
                .date
                .and_then(|date| date.checked_add(before.duration)),
            None => self.date_of_next(),
        };
        let last = self.parts.last().map(|part| &part.media);
        let range = tag.byterange();
        let range = range.and_then(|range| byte_range(range.length, range.offset, tag.uri(), last));
        let media = Segment {
            duration: to_duration(tag.duration()).ok_or(PlaylistError::SegmentDuration)?,
            uri: tag.uri().into(),
            range,
            map: self.map.clone(),
            date,
            is_date_stated: false,
            is_discontinuous: self.is_discontinuous && index == 0,
            is_gap: tag.gap(),
            key: self.key.clone(),
        };
        self.parts.push(Part {
            place: Place {
                sequence,
                part: index,
            },
            is_independent: tag.independent(),
            media,
        });
        Ok(())
    }

    fn preload_hint(&mut self, tag: &PreloadHint<'_>) {
        let (kind, hint) = match tag.hint_type() {
            EnumeratedString::Known(PreloadHintType::Part) => (HintKind::Part, &mut self.hint),
            EnumeratedString::Known(PreloadHintType::Map) => (HintKind::Map, &mut self.map_hint),
            EnumeratedString::Unknown(_) => return,
        };
        let offset = tag.byterange_start();
        let extent = match tag.byterange_length() {
            Some(length) => Extent::Range(ByteRange { offset, length }),
            None if offset > 0 => Extent::From(offset),
            None => Extent::Whole,
        };
        // An initialization section has an end.
        let is_section = kind == HintKind::Map && matches!(extent, Extent::From(_));
        *hint = (!is_section && !extent.is_empty()).then(|| Hint {
            kind,
            uri: tag.uri().into(),
            extent,
        });
    }

    /// Takes segments from the playlist before (rfc8216bis, 6.3.7).
    fn skip(&mut self, count: u64) -> Result<(), PlaylistError> {
        self.is_delta = true;
        let before = self.before.ok_or(PlaylistError::SkippedUnknown)?;
        for _ in 0..count {
            let sequence = self
                .media_sequence
                .checked_add(self.segments.len() as u64)
                .ok_or(PlaylistError::SequenceTooLarge)?;
            let index = sequence.checked_sub(before.media_sequence);
            let index = index.and_then(|index| usize::try_from(index).ok());
            let segment = index.and_then(|index| before.segments.get(index));
            let segment = segment.ok_or(PlaylistError::SkippedUnknown)?;
            if self.segments.len() == SEGMENTS_MAX {
                return Err(PlaylistError::TooManySegments);
            }
            self.segments.push(segment.clone());
        }
        // Tags of the segments that were left out apply to those that follow.
        if let Some(last) = self.segments.last() {
            self.map.clone_from(&last.map);
            self.key.clone_from(&last.key);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Playlist, PlaylistError> {
        if !self.multivariant.variants.is_empty() {
            self.multivariant.start = self.start;
            self.multivariant.oddities = self.oddities;
            return Ok(Playlist::Multivariant(self.multivariant));
        }
        let seconds = self
            .target_duration
            .ok_or(PlaylistError::NoTargetDuration)?;
        let target_duration = Duration::from_secs(seconds);
        if target_duration > DURATION_MAX {
            return Err(PlaylistError::TargetDuration(seconds));
        }
        let count = self.segments.len() as u64;
        if self.media_sequence.checked_add(count).is_none() {
            return Err(PlaylistError::SequenceTooLarge);
        }
        // Where parts are ranges of a resource, a hint at all of it is more than a part.
        let last = self.parts.last();
        if let Some(hint) = &mut self.hint
            && hint.extent == Extent::Whole
            && last.is_some_and(|part| part.media.range.is_some())
        {
            hint.extent = Extent::From(0);
        }
        for part in &mut self.parts {
            part.place.sequence += self.media_sequence;
        }
        let part_target = self.part_target.and_then(to_duration);
        let mut playlist = MediaPlaylist {
            target_duration,
            media_sequence: self.media_sequence,
            is_ended: self.is_ended,
            control: self.control,
            start_offset: self.start,
            part_target: part_target.filter(|target| !target.is_zero()),
            segments: self.segments,
            parts: self.parts,
            hint: self.hint,
            map_hint: self.map_hint,
            reports: self.reports,
            is_delta: self.is_delta,
            oddities: self.oddities,
        };
        let mut oddities = std::mem::take(&mut playlist.oddities);
        oddities.add_contents(&playlist, self.before);
        playlist.oddities = oddities;
        Ok(Playlist::Media(Box::new(playlist)))
    }
}

/// Returns the value of a tag; empty if it has none.
fn value_of<'a>(tag: &UnknownTag<'a>) -> &'a str {
    let value = tag.value().and_then(|value| str::from_utf8(value.0).ok());
    value.unwrap_or_default()
}

/// Parses what the playlist of another rendition ends with; `None` if it is malformed.
fn rendition_report(tag: &UnknownTag<'_>) -> Option<RenditionReport> {
    let attributes = tag.value()?.try_as_attribute_list().ok()?;
    let number = |name: &str| match attributes.get(name) {
        None => Some(None),
        Some(value) => value.unquoted()?.try_as_decimal_integer().ok().map(Some),
    };
    let part = number("LAST-PART")?.map(u32::try_from);
    Some(RenditionReport {
        uri: attributes.get("URI")?.quoted()?.into(),
        sequence: number("LAST-MSN")?,
        part: part.transpose().ok()?,
    })
}

/// Returns a byte range of `uri`. Without an offset it follows `last`, the range before
/// (RFC 8216, 4.3.2.2).
fn byte_range(
    length: u64,
    offset: Option<u64>,
    uri: &str,
    last: Option<&Segment>,
) -> Option<ByteRange> {
    let follows = || {
        let before = last.filter(|last| *last.uri == *uri)?.range?;
        before.offset.checked_add(before.length)
    };
    let offset = offset.or_else(follows).unwrap_or(0);
    (length > 0).then_some(ByteRange { offset, length })
}

/// Parses 128 bits in hexadecimal (RFC 8216, 4.2).
fn read_iv(text: &str) -> Option<[u8; 16]> {
    let digits = text.strip_prefix("0x").or(text.strip_prefix("0X"))?;
    let number = u128::from_str_radix(digits, 16).ok()?;
    Some(number.to_be_bytes())
}

fn to_duration(seconds: f64) -> Option<Duration> {
    let duration = Duration::try_from_secs_f64(seconds).ok()?;
    (duration <= DURATION_MAX).then_some(duration)
}
