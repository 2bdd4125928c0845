//! Media of a player: requests for segments, their parts and keys, and what is measured of those
//! that arrive.

use std::sync::Arc;
use std::time::Duration;

use measure::{HistogramId, Time};

use super::track::{ArrivedPart, HeldMap, Lane, Listed, Wanted, WantedPiece, count_wasted};
use super::{Client, KeyFrame};
use crate::connection::{Refusal, Wish};
use crate::content::{Cipher, Encryption, key_in};
use crate::failure::Failure;
use crate::inspection::Findings;
use crate::metrics as m;
use crate::playlist::{Extent, HintKind, Key};
use kit::http1::Url;
use kit::lifecycle;
use session::{Context, Note, Output};

/// Encryption of a segment, as far as the player knows it.
#[derive(Debug)]
pub(super) enum Found {
    /// How the segment is encrypted. Nothing needs to be requested.
    Encryption(Encryption),
    /// URL of the segment's key, which the player does not have yet.
    KeyAt(Url),
}

impl Client {
    pub(super) fn begin_media(&mut self, cx: &mut Context<'_>, at: Time) {
        self.first_media = Some(at);
        lifecycle::record_startup(cx.recorder, at, self.planned_start, self.started);
        cx.out.push_back(Output::Playing { at });
    }

    /// Notes the arrival of the first picture at which decoding can start, once it is complete.
    /// `arrived` returns when the first bytes of the body, up to a number, had arrived.
    pub(super) fn find_key_frame(
        &mut self,
        cx: &mut Context<'_>,
        track: usize,
        is_whole: bool,
        arrived: impl Fn(u64) -> Time,
    ) {
        if self.key_frame == KeyFrame::Found || track != 0 {
            return;
        }
        let Some(picture) = self.tracks[0].first_picture(is_whole) else {
            return;
        };
        let at = match self.key_frame {
            KeyFrame::Begun { end, at } if end == picture.end => at,
            _ => arrived(picture.end),
        };
        self.key_frame = match picture.is_complete {
            true => KeyFrame::Found,
            false => KeyFrame::Begun {
                end: picture.end,
                at,
            },
        };
        if picture.is_complete {
            let delay = at.since(self.planned_start);
            cx.recorder.record_duration(m::KEY_FRAME_DELAY, delay);
        }
    }

    /// Returns the encryption of a segment, or the URL of its key if that was not received yet.
    pub(super) fn find_key(
        &self,
        track: usize,
        key: Option<(Arc<Key>, [u8; 16])>,
    ) -> Result<Found, Refusal> {
        let Some((key, iv)) = key else {
            return Ok(Found::Encryption(Encryption::None));
        };
        let of_segments = |encryption| match key.is_of_segments {
            true => Found::Encryption(encryption),
            false => Found::Encryption(Encryption::None),
        };
        let Some(uri) = &key.uri else {
            return Ok(of_segments(Encryption::Opaque));
        };
        let base = &self.tracks[track].base;
        if let Some(key) = key_in(uri) {
            let key = key.ok_or_else(|| Refusal {
                failure: Failure::BadKey,
                detail: format!("a data: URL does not hold a key of 16 bytes: the playlist {base}"),
            })?;
            return Ok(of_segments(Encryption::Known(Cipher { key, iv })));
        }
        let url = self.shared.resolve(&self.config, base, uri)?;
        Ok(match self.shared.key(&url) {
            None => Found::KeyAt(url),
            Some(key) => of_segments(Encryption::Known(Cipher { key, iv })),
        })
    }

    /// Requests a key, unless the other track does so.
    pub(super) fn request_key(&mut self, cx: &mut Context<'_>, track: usize, url: Url) {
        let is_it =
            |wanted: &Wanted| matches!(wanted, Wanted::Key(own) if own.is_same_resource(&url));
        let mut tracks = self.tracks.iter();
        if tracks.any(|own| own.wanted.as_ref().is_some_and(is_it)) {
            self.tracks[track].awaits_key = true;
        } else {
            let wish = (url.clone(), Extent::Whole);
            self.request_media(cx, track, wish, Wanted::Key(url), Encryption::None);
        }
    }

    pub(super) fn request_media(
        &mut self,
        cx: &mut Context<'_>,
        track: usize,
        (url, extent): (Url, Extent),
        wanted: Wanted,
        encryption: Encryption,
    ) {
        let own = &mut self.tracks[track];
        let patience = match &wanted {
            Wanted::Hint(_) => own.patience(),
            Wanted::Map(_) | Wanted::Piece(_) | Wanted::Key(_) => Duration::ZERO,
        };
        let seeks_picture = track == 0 && self.key_frame != KeyFrame::Found;
        if seeks_picture {
            self.key_frame = KeyFrame::Sought;
        }
        if !matches!(wanted, Wanted::Hint(_)) && own.attempts.take_due() {
            cx.recorder.add(m::SEGMENTS_RETRIED, 1);
        }
        own.begin_open_range(&wanted, cx.now);
        own.begin_body(wanted, encryption, seeks_picture);
        let wish = Wish {
            url,
            extent,
            patience,
            takes_gzip: false,
        };
        own.media.fetch(cx, &self.config, &mut self.shared, wish);
    }

    /// Takes a body that arrived at `at`, `took` after its request and `download` after its head.
    pub(super) fn take_media(
        &mut self,
        cx: &mut Context<'_>,
        track: usize,
        (took, download): (Duration, Duration),
        at: Time,
    ) {
        let own = &mut self.tracks[track];
        let wanted = own.take_wanted(download);
        let bytes = own.body_bytes;
        if let Some(Wanted::Key(url)) = wanted {
            cx.recorder.add(m::KEYS, 1);
            cx.recorder.record_duration(m::KEY_DELAY, took);
            if let Some(key) = own.content.key(own.body_bytes) {
                self.shared.keep_key(url, key);
            }
        } else if let Some(Wanted::Piece(piece)) = wanted {
            // A player has waited for it since the first attempt.
            let since = own.attempts.since();
            let took = since.map_or(took, |since| at.since(since));
            let histogram = match piece.is_part {
                true => m::PART_DELAY,
                false => m::SEGMENT_DELAY,
            };
            cx.recorder.record_duration(histogram, took);
            let findings = own.finish_inspection();
            self.take_piece(cx, track, (piece, took), &findings, at);
            if track == 0 {
                self.adapt(cx, bytes, download);
            }
        } else if let Some(Wanted::Hint(hint)) = wanted
            && hint.kind == HintKind::Part
            && !hint.is_open()
        {
            cx.recorder.record_duration(m::HINT_DELAY, took);
        }
        self.advance(cx, track);
    }

    /// Takes the hinted part that was received before the playlist listed it.
    pub(super) fn take_held(
        &mut self,
        cx: &mut Context<'_>,
        track: usize,
        piece: WantedPiece,
        encryption: &Encryption,
    ) {
        let own = &mut self.tracks[track];
        match own.take_held(encryption) {
            Ok((download, findings)) => {
                let bytes = own.body_bytes;
                self.take_piece(cx, track, (piece, download), &findings, self.latest);
                if track == 0 {
                    self.adapt(cx, bytes, download);
                }
            }
            Err(why) => {
                count_wasted(cx, own.body_bytes);
                let refusal = own.media.refusal(Failure::NotMedia, &why);
                own.wanted = Some(Wanted::Piece(piece));
                self.refuse(cx, track, Lane::Media, refusal);
            }
        }
    }

    /// Uses the held initialization section if the next piece needs it.
    pub(super) fn use_held_map(&mut self, cx: &mut Context<'_>, track: usize) {
        match self.tracks[track].use_held_map(&self.config) {
            Some(HeldMap::Used) => cx.recorder.add(m::HINTS_USED, 1),
            Some(HeldMap::Useless { bytes }) => count_wasted(cx, bytes),
            None => {}
        }
    }

    /// Takes the parts that have arrived in the rest of a resource, as far as the playlist lists
    /// them. Returns `false` if the track cannot go on yet.
    pub(super) fn take_open_range(&mut self, cx: &mut Context<'_>, track: usize) -> bool {
        loop {
            if self.tracks[track].keeps_open_range() {
                self.use_held_map(cx, track);
            }
            match self.tracks[track].match_open_range(&self.config) {
                None | Some(Listed::NotYet) => return true,
                Some(Listed::Part(part)) => {
                    if !self.take_arrived(cx, track, *part) {
                        return false;
                    }
                }
                Some(Listed::Useless) => {
                    let own = &mut self.tracks[track];
                    if own.receives_open_range() {
                        own.media.give_up(cx);
                        own.wanted = None;
                    }
                    own.waste_open_range(cx);
                    return true;
                }
            }
        }
    }

    /// Takes a part that has arrived in the rest of a resource. Returns `false` if it cannot be
    /// played, and the track cannot go on yet.
    fn take_arrived(&mut self, cx: &mut Context<'_>, track: usize, part: ArrivedPart) -> bool {
        let ArrivedPart {
            piece, bytes, took, ..
        } = part;
        // The part is played once the playlist lists it.
        let at = part.at.max(self.latest);
        self.latest = at;
        let seeks_picture = track == 0 && self.key_frame != KeyFrame::Found;
        let own = &mut self.tracks[track];
        let request = own.wanted.take();
        own.begin_body(Wanted::Piece(piece), Encryption::None, seeks_picture);
        own.take_body(&bytes);
        let checked = own.check_body();
        self.find_key_frame(cx, track, true, |_| at);
        let own = &mut self.tracks[track];
        if let Err((failure, why)) = checked {
            cx.recorder.add(m::BYTES_WASTED, bytes.len() as u64);
            let refusal = own.media.refusal(failure, &why);
            return self.handle_refusal(cx, track, Lane::Media, refusal);
        }
        let findings = own.finish_inspection();
        own.wanted = request;
        own.media.renew(cx.now);
        if let Some(since) = part.requested_at {
            let delay = part.at.since(since);
            cx.recorder.record_duration(m::HINT_DELAY, delay);
        }
        self.take_piece(cx, track, (piece, took), &findings, at);
        if track == 0 {
            self.adapt(cx, bytes.len() as u64, took);
        }
        true
    }

    /// Takes a segment or part that arrived at `at`, and that the playlist lists. `took` is the
    /// time from its request, or that of the body if its response waited for it.
    pub(super) fn take_piece(
        &mut self,
        cx: &mut Context<'_>,
        track: usize,
        (piece, took): (WantedPiece, Duration),
        findings: &Findings,
        at: Time,
    ) {
        let own = &mut self.tracks[track];
        own.attempts.count_success(Lane::Media);
        let wrong_duration = own.check_duration(&piece, findings);
        let (begins_at, repeated) = own.take_piece(piece);
        let damage = findings.damage(piece.needs_tables);
        self.segments += 1;
        self.last_segment = Some(at);
        self.count_due(cx, 1);
        for (counter, count) in [
            (m::SEGMENTS, 1),
            (m::PARTS, u64::from(piece.is_part)),
            (m::HINTS_USED, u64::from(piece.was_hinted)),
            (m::SEGMENTS_LATE, u64::from(took > piece.duration)),
            (
                m::DISCONTINUITIES,
                u64::from(piece.is_discontinuous && !piece.is_rest),
            ),
            (m::BYTES_WASTED, repeated),
            (m::SEGMENTS_DAMAGED, u64::from(damage.is_some())),
            (m::DURATIONS_WRONG, u64::from(wrong_duration.is_some())),
            (m::TS_PACKETS, findings.ts.ts_packets),
            (m::SYNC_LOSSES, findings.ts.sync_losses),
            (m::CONTINUITY_ERRORS, findings.ts.continuity_errors),
            (m::CONTINUITY_LOST, findings.ts.continuity_lost),
        ] {
            cx.recorder.add(counter, count);
        }
        let media = &self.tracks[track].media;
        if let Some(damage) = damage {
            let (kind, text) = ("segment_damaged", media.describe(&damage));
            cx.out.push_back(Output::Note(Note { kind, text }));
        }
        if let Some((stated, real)) = wrong_duration {
            let text = format!(
                "the segment before has {real:.3} s of media instead of the stated {stated:.3} s"
            );
            let (kind, text) = ("duration_wrong", media.describe(&text));
            cx.out.push_back(Output::Note(Note { kind, text }));
        }
        let media = piece.duration.as_secs_f64();
        if media > 0.0 {
            let nanos = took.as_nanos() as f64 / media;
            cx.recorder.record(m::DELAY_PER_SECOND, nanos as u64);
        }
        self.extend(cx, at);
        if track == 0 && self.is_live && !piece.is_rest {
            let code = findings
                .time_code
                .map(|code| Duration::from_nanos(code.nanos));
            self.measure_latency(cx, begins_at, (piece.date, m::LIVE_LATENCY));
            self.measure_latency(cx, begins_at, (code, m::PICTURE_LATENCY));
        }
    }

    /// Measures the latency of what is shown at `position`, and was made at `date`.
    pub(super) fn measure_latency(
        &self,
        cx: &mut Context<'_>,
        position: Duration,
        (date, histogram): (Option<Duration>, HistogramId),
    ) {
        let shown = self.playback.shown_at(position);
        let shown = shown.filter(|_| self.playback.shows(position));
        if let (Some(date), Some(wall_clock), Some(shown)) = (date, self.wall_clock, shown) {
            let shown = wall_clock + shown.since(Time::ZERO);
            let latency = shown.saturating_sub(date);
            cx.recorder.record_duration(histogram, latency);
        }
    }
}
