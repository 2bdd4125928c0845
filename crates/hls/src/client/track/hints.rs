//! Hinted parts and initialization sections of a track: requested before the playlist lists them
//! (rfc8216bis, 4.4.5.3).

use std::time::Duration;

use super::{Next, Track, Wanted};
use crate::boxes::TimeScales;
use crate::config::{ClientConfig, LowLatency};
use crate::content::{Content, Encryption};
use crate::inspection::Findings;
use crate::metrics as m;
use crate::playlist::{ByteRange, Extent, Hint, HintKind, Piece};
use session::Context;

/// A hinted part that was received.
#[derive(Debug)]
pub(super) struct Hinted {
    pub(super) hint: Hint,
    pub(super) bytes: u64,
    pub(super) content: Content,
    pub(super) findings: Findings,
    /// Time from the head of the response to its end.
    pub(super) download: Duration,
}

/// A hinted initialization section that was received.
#[derive(Debug)]
pub(super) struct HintedMap {
    hint: Hint,
    pub(super) bytes: u64,
    scales: TimeScales,
}

/// Use of a hinted initialization section, once the playlist lists the next piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum HeldMap {
    Used,
    /// The section is encrypted, so it is requested again, with its key.
    Useless {
        bytes: u64,
    },
}

/// A hint that was of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) struct Wasted {
    /// Bytes of it that were received.
    pub(in crate::client) bytes: u64,
    /// True if its request is still under way.
    pub(in crate::client) is_requested: bool,
}

impl Track {
    /// Returns the request for what the server will have next: an initialization section, otherwise
    /// a part.
    pub(super) fn next_hint(&self, config: &ClientConfig) -> Next {
        let Some(playlist) = &self.playlist else {
            return Next::Nothing;
        };
        // An older playlist, as from a cache, hints at what the player has.
        let is_next = playlist.normal(self.next, true) == playlist.end();
        // Without a first part the initialization section may be missing.
        let holds_none = self.held.is_none() && self.open_range.is_none();
        let is_free = is_next && !self.end.is_zero() && holds_none;
        let part = playlist.hint.as_ref().filter(|_| is_free);
        let part = part.filter(|hint| {
            let is_readable = !hint.is_open() || self.last_key().is_none();
            is_readable && self.refused.as_ref() != Some(*hint)
        });
        // Whether a section is encrypted, and how, is not known before it is listed.
        let may_have_map = is_free && !self.ends_encrypted();
        let map = playlist.map_hint.as_ref().filter(|_| may_have_map);
        let map = map.filter(|hint| {
            let held = self.held_map.as_ref().map(|held| &held.hint);
            let known = self.map.as_ref();
            let is_known = known.is_some_and(|map| hint.is(&map.uri, map.range));
            !is_known && held != Some(*hint) && self.refused_map.as_ref() != Some(*hint)
        });
        match map.or(part) {
            Some(hint) if config.low_latency == LowLatency::Hints => Next::Fetch {
                uri: hint.uri.to_string(),
                extent: hint.extent,
                wanted: Wanted::Hint(hint.clone()),
                key: None,
            },
            _ => Next::Nothing,
        }
    }

    /// Keeps a hinted resource that has arrived. `download` is the time from the head of its
    /// response to its end.
    pub(super) fn hold(&mut self, hint: Hint, download: Duration) {
        let bytes = self.body_bytes;
        match hint.kind {
            // The bytes are kept as they arrive.
            HintKind::Part if hint.is_open() => {}
            HintKind::Part => {
                self.held = Some(Hinted {
                    hint,
                    bytes,
                    content: self.content,
                    findings: self.finish_inspection(),
                    download,
                });
            }
            HintKind::Map => {
                self.held_map = Some(HintedMap {
                    hint,
                    bytes,
                    scales: self.inspection.finish_section(),
                });
            }
        }
    }

    /// Compares the hints that were requested, or received, with what a new playlist lists. Returns
    /// those that are of no use.
    pub(super) fn match_hints(&mut self, in_parts: bool) -> [Option<Wasted>; 2] {
        [self.match_part(in_parts), self.match_map(in_parts)]
    }

    /// Compares a part with the piece in its place.
    fn match_part(&mut self, in_parts: bool) -> Option<Wasted> {
        let requested = self.requested_hint(HintKind::Part);
        let requested = requested.filter(|(hint, _)| !hint.is_open());
        let held = self.held.as_ref().map(|held| (&held.hint, held.bytes));
        let (hint, bytes) = requested.or(held)?;
        let wasted = Wasted {
            bytes,
            is_requested: requested.is_some(),
        };
        let is_wasted = match self.piece(in_parts).map(|(_, piece)| piece.media()) {
            Some(media) => media.is_gap || !hint.is(&media.uri, media.range),
            None => self.playlist.as_ref().is_some_and(|own| own.is_ended),
        };
        if is_wasted {
            self.held = None;
        }
        is_wasted.then_some(wasted)
    }

    /// Compares an initialization section with those of the pieces to come. It stays of use as long
    /// as the playlist hints at it. A request without an answer must not delay a piece that needs
    /// another section.
    fn match_map(&mut self, in_parts: bool) -> Option<Wasted> {
        let requested = self.requested_hint(HintKind::Map);
        let held = self.held_map.as_ref().map(|held| (&held.hint, held.bytes));
        let (hint, bytes) = requested.or(held)?;
        let wasted = Wasted {
            bytes,
            is_requested: requested.is_some(),
        };
        let playlist = self.playlist.as_ref()?;
        let mut next = self.piece(in_parts);
        let is_open = wasted.is_requested && !self.media.is_receiving();
        let delays = is_open && next.is_some_and(|(_, piece)| !hint.is_of(piece));
        let mut is_listed = false;
        while let Some((place, piece)) = next {
            is_listed |= hint.is_of(piece);
            next = playlist.piece(piece.end(place), in_parts);
        }
        let is_hinted = playlist.map_hint.as_ref() == Some(hint);
        if !delays && (is_listed || is_hinted) {
            return None;
        }
        self.refused_map = delays.then(|| hint.clone()).or(self.refused_map.take());
        self.held_map = None;
        Some(wasted)
    }

    /// Returns the hint of this kind that is being requested, and its bytes that have arrived.
    fn requested_hint(&self, kind: HintKind) -> Option<(&Hint, u64)> {
        match &self.wanted {
            Some(Wanted::Hint(hint)) if hint.kind == kind => Some((hint, self.body_bytes)),
            _ => None,
        }
    }

    /// Uses the held initialization section if the next piece needs it. Returns `None` if it needs
    /// another or none, or if no section is held.
    pub(in crate::client) fn use_held_map(&mut self, config: &ClientConfig) -> Option<HeldMap> {
        let is_busy = self.media.is_busy() && !self.receives_open_range();
        if self.held_map.is_none() || is_busy {
            return None;
        }
        let (_, piece) = self.piece(self.is_in_parts(config))?;
        let map = piece.media().map.clone()?;
        let held = self
            .held_map
            .take_if(|held| held.hint.is(&map.uri, map.range))?;
        if map.key.as_ref().is_some_and(|key| key.is_of_segments) {
            let bytes = held.bytes;
            return Some(HeldMap::Useless { bytes });
        }
        self.map = Some(map);
        self.scales = held.scales;
        Some(HeldMap::Used)
    }

    /// Notes a hint that was refused, so that it is not requested again.
    pub(in crate::client) fn refuse_hint(&mut self, hint: Hint) {
        match hint.kind {
            HintKind::Part => self.refused = Some(hint),
            HintKind::Map => self.refused_map = Some(hint),
        }
    }

    /// Takes the part that is held. Returns the time that its body took and what was found in it,
    /// or why it cannot be played.
    pub(in crate::client) fn take_held(
        &mut self,
        encryption: &Encryption,
    ) -> Result<(Duration, Findings), String> {
        let Some(held) = self.held.take() else {
            return Ok((Duration::ZERO, Findings::default()));
        };
        self.body_bytes = held.bytes;
        held.content.check(held.bytes, encryption)?;
        Ok((held.download, held.findings))
    }
}

impl Hint {
    /// True if it is this resource.
    fn is(&self, uri: &str, range: Option<ByteRange>) -> bool {
        *self.uri == *uri && self.extent == Extent::from(range)
    }

    /// True if it is the initialization section of this piece.
    fn is_of(&self, piece: Piece<'_>) -> bool {
        let map = piece.media().map.as_ref();
        map.is_some_and(|map| self.is(&map.uri, map.range))
    }
}

/// Counts a hint that was of no use, and the bytes of it that were received.
pub(in crate::client) fn count_wasted(cx: &mut Context<'_>, bytes: u64) {
    cx.recorder.add(m::HINTS_WASTED, 1);
    cx.recorder.add(m::BYTES_WASTED, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::playlist::Playlist;
    use kit::http1::Url;
    use kit::mediagen::frame_rate::FrameRate;
    use kit::mediagen::segments::{Container, SegmentedVideo};
    use kit::mediagen::video::{PictureForm, VideoSettings};

    fn held_map(uri: &str) -> HintedMap {
        HintedMap {
            hint: Hint {
                kind: HintKind::Map,
                uri: uri.into(),
                extent: Extent::Whole,
            },
            bytes: 80,
            scales: TimeScales::default(),
        }
    }

    #[test]
    fn hints_of_the_playlist_before_are_of_no_use() {
        let mut own = Track::new(Url::parse("http://h/a.m3u8").expect("a URL"));
        let other = || Url::parse("http://h/b.m3u8").expect("a URL");
        assert_eq!(
            own.change_playlist(other(), &ClientConfig::default()),
            [None, None]
        );
        own.held = Some(Hinted {
            hint: Hint {
                kind: HintKind::Part,
                uri: "part".into(),
                extent: Extent::Whole,
            },
            bytes: 700,
            content: Content::default(),
            findings: Findings::default(),
            download: Duration::ZERO,
        });
        own.held_map = Some(held_map("map"));
        assert_eq!(
            own.change_playlist(other(), &ClientConfig::default()),
            [Some(700), Some(80)]
        );
        assert!(own.held.is_none() && own.held_map.is_none());
    }

    #[test]
    fn section_that_is_encrypted_is_requested_again_with_its_key() {
        for (key, used) in [
            ("", HeldMap::Used),
            ("METHOD=AES-128,URI=\"k\"", HeldMap::Useless { bytes: 80 }),
        ] {
            let key = match key {
                "" => String::new(),
                key => format!("#EXT-X-KEY:{key}\n"),
            };
            let text = format!(
                "#EXTM3U\n#EXT-X-TARGETDURATION:2\n{key}#EXT-X-MAP:URI=\"map\"\n#EXTINF:2,\na\n"
            );
            let Ok(Playlist::Media(playlist)) = Playlist::parse(text.as_bytes(), None) else {
                panic!("it is one");
            };
            let mut own = Track::new(Url::parse("http://h/a.m3u8").expect("a URL"));
            own.playlist = Some(*playlist);
            assert_eq!(own.use_held_map(&ClientConfig::default()), None);
            own.held_map = Some(held_map("other"));
            assert_eq!(own.use_held_map(&ClientConfig::default()), None);
            own.held_map = Some(held_map("map"));
            assert_eq!(own.use_held_map(&ClientConfig::default()), Some(used));
            assert!(own.held_map.is_none());
            assert_eq!(own.map.is_some(), used == HeldMap::Used);
        }
    }

    /// A track at the end of a playlist with hints at a section and a part.
    fn at_the_end(key: &str) -> Track {
        let text = format!(
            "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-PART-INF:PART-TARGET=1\n\
             #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=3\n{key}#EXTINF:2,\na\n\
             #EXT-X-PRELOAD-HINT:TYPE=MAP,URI=\"map\"\n\
             #EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"part\"\n"
        );
        let Ok(Playlist::Media(playlist)) = Playlist::parse(text.as_bytes(), None) else {
            panic!("it is one");
        };
        let mut own = Track::new(Url::parse("http://h/a.m3u8").expect("a URL"));
        own.next = playlist.end();
        own.end = Duration::from_secs(2);
        own.playlist = Some(*playlist);
        own
    }

    #[test]
    fn hinted_section_of_encrypted_media_is_not_requested() {
        let next = |own: &Track| match own.next_hint(&ClientConfig::default()) {
            Next::Fetch { uri, .. } => uri,
            other => panic!("{other:?}"),
        };
        assert_eq!(next(&at_the_end("")), "map");
        let key = "#EXT-X-KEY:METHOD=AES-128,URI=\"k\"\n";
        assert_eq!(next(&at_the_end(key)), "part");
    }

    #[test]
    fn rest_of_an_encrypted_segment_is_not_requested() {
        let [whole, samples] = ["AES-128", "SAMPLE-AES"]
            .map(|method| format!("#EXT-X-KEY:METHOD={method},URI=\"k\"\n"));
        for (key, is_requested) in [("", true), (&whole, false), (&samples, false)] {
            let mut own = at_the_end(key);
            let playlist = own.playlist.as_mut().expect("it has one");
            playlist.map_hint = None;
            let hint = playlist.hint.as_mut().expect("it has one");
            hint.extent = Extent::From(8);
            let next = own.next_hint(&ClientConfig::default());
            assert_eq!(matches!(next, Next::Fetch { .. }), is_requested, "{next:?}");
        }
    }

    #[test]
    fn held_section_has_its_time_scales() {
        let settings = VideoSettings {
            bits_per_second: 300_000,
            frame_rate: FrameRate::whole(5),
            gop: 10,
            mtu: 65_000,
            form: PictureForm::default(),
        };
        let video = SegmentedVideo::new(&settings, Container::FragmentedMp4).expect("it is made");
        let section = video.initialization().expect("it has one").to_vec();
        let mut own = at_the_end("");
        own.begin_body(
            Wanted::Hint(Hint {
                kind: HintKind::Map,
                uri: "map".into(),
                extent: Extent::Whole,
            }),
            Encryption::None,
            false,
        );
        own.take_body(&section);
        own.take_wanted(Duration::ZERO);
        let text = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\na\n\
                    #EXT-X-MAP:URI=\"map\"\n#EXTINF:2,\nb\n";
        let Ok(Playlist::Media(playlist)) = Playlist::parse(text.as_bytes(), None) else {
            panic!("it is one");
        };
        own.playlist = Some(*playlist);
        let used = own.use_held_map(&ClientConfig::default());
        assert_eq!(used, Some(HeldMap::Used));
        assert_eq!(own.scales, TimeScales::read(&section));
        assert_ne!(own.scales, TimeScales::default());
    }
}
