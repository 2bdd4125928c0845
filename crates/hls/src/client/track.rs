//! One track of a player: its playlist, and the segment that is next.

use std::sync::Arc;
use std::time::Duration;

use measure::Time;

use crate::boxes::TimeScales;
use crate::config::ClientConfig;
use crate::connection::{Connection, Refusal};
use crate::content::{Content, Encryption};
use crate::failure::Failure;
use crate::inspection::{Findings, Inspection};
use crate::playlist::{Extent, Hint, HintKind, Key, Map, MediaPlaylist, Piece, Place, StartOffset};
use crate::start::Start;
use kit::http1::Url;
use kit::media::ts::checker::FirstPicture;
use session::ChannelId;

mod attempts;
mod changes;
mod hints;
mod open_range;
mod reload;

use attempts::Attempts;
pub(super) use changes::NextPlaylist;
pub(super) use hints::{HeldMap, count_wasted};
use hints::{Hinted, HintedMap};
use open_range::OpenRange;
pub(super) use open_range::{ArrivedPart, Listed};

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Playlists,
    Media,
}

/// Maximum difference between the duration of a segment and the sum of those of its parts.
const ROUNDING: Duration = Duration::from_millis(20);

/// Maximum difference between the stated duration of a segment and that of its media, in seconds.
const DURATION_ERROR_MAX: f64 = 0.1;
/// Further difference if the duration is stated in whole seconds, or if the segment has only audio,
/// which some servers cut elsewhere than they state.
const ROUNDED_BY: f64 = 0.5;

/// Media of one playlist.
#[derive(Debug)]
pub(super) struct Track {
    /// URL of the playlist.
    pub(super) url: Url,
    /// Playlist with which it goes on after the current segment.
    pub(super) next_playlist: Option<NextPlaylist>,
    /// URL of the playlist before, until one of the current URL has arrived.
    pub(super) previous_url: Option<Url>,
    /// True if the URL was chosen from a multivariant playlist.
    pub(super) is_chosen: bool,
    pub(super) playlists: Connection,
    pub(super) media: Connection,
    /// The part of a playlist that has arrived.
    pub(super) text: Vec<u8>,
    pub(super) playlist: Option<MediaPlaylist>,
    /// Position at which playback is to begin, if the multivariant playlist states it.
    pub(super) start_offset: Option<StartOffset>,
    /// True if a playlist was received, of any variant.
    pub(super) has_begun: bool,
    /// Target duration of the last playlist; zero before the first.
    pub(super) target: Duration,
    /// URL that the URIs of the playlist are relative to.
    pub(super) base: Url,
    pub(super) requested_at: Time,
    /// Time when a playlist arrived that was not the same as the one before.
    changed_at: Time,
    pub(super) reload_at: Option<Time>,
    /// Place of the next piece of media.
    next: Place,
    /// Duration of the parts before it that belong to the same segment, and bytes of those
    /// received.
    parts_before: (Duration, u64),
    /// End of the newest playlist.
    newest: Place,
    /// Time since which playlists have ended before the next segment.
    behind_since: Option<Time>,
    /// True if the next request for the playlist waits for nothing, because the server refused one
    /// that did.
    pub(super) asks_plainly: bool,
    /// Last segment and part of the playlist that is requested next, if another one says so.
    pub(super) reported: Option<(u64, Option<u32>)>,
    /// True if the request for the playlist names its last segment, as another playlist says.
    pub(super) names_reported: bool,
    /// Place for which the request for the playlist waits.
    pub(super) awaited: Option<Place>,
    /// True if the request for the playlist allows the server to leave out segments.
    pub(super) may_skip: bool,
    /// True if the last answer left out segments that were not known.
    pub(super) must_be_whole: bool,
    /// The hinted part that was received before the playlist listed it.
    held: Option<Hinted>,
    /// The rest of a resource that is being received, or was, as a hint names it.
    open_range: Option<Box<OpenRange>>,
    /// The initialization section that was received before the playlist listed it.
    held_map: Option<HintedMap>,
    /// The hint that was refused last.
    refused: Option<Hint>,
    /// The hint at an initialization section that was refused last.
    refused_map: Option<Hint>,
    /// The current request on the connection for media.
    pub(super) wanted: Option<Wanted>,
    /// True if its next piece needs a key that another track has requested.
    pub(super) awaits_key: bool,
    /// Encryption of the body on the connection for media.
    pub(super) encryption: Encryption,
    /// Beginning of the body on the connection for media.
    pub(super) content: Content,
    /// Length of the body so far.
    pub(super) body_bytes: u64,
    /// True if the body is complete, and shorter than its byte range.
    pub(super) is_short: bool,
    /// Contents of the body so far, if it is media that can be read.
    inspection: Inspection,
    /// True if a segment or part was received.
    pub(super) has_media: bool,
    /// Time scales of the initialization section that was received last.
    scales: TimeScales,
    /// The piece that was received last.
    last: Option<LastPiece>,
    /// The initialization section that was received last.
    map: Option<Arc<Map>>,
    /// End of the received media, from the position at which the first track begins.
    pub(super) end: Duration,
    /// Media before the position at which its own playback begins; `None` before the first
    /// playlist.
    pub(super) lead: Option<Duration>,
    /// Media still to come that lies before the position at which the first track begins.
    hidden: Duration,
    pub(super) attempts: Attempts,
    /// True if the last segment was received or skipped.
    pub(super) is_over: bool,
}

/// Purpose of a request on the connection for media.
#[derive(Debug)]
pub(super) enum Wanted {
    Map(Arc<Map>),
    Piece(WantedPiece),
    /// A part or initialization section that the playlist does not list yet.
    Hint(Hint),
    /// The key of the next segment or initialization section, which is at this URL.
    Key(Url),
}

/// Properties of the segment or part that is being requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct WantedPiece {
    place: Place,
    after: Place,
    pub(super) duration: Duration,
    pub(super) date: Option<Duration>,
    pub(super) is_discontinuous: bool,
    /// True if it is a part of a segment.
    pub(super) is_part: bool,
    /// True if it is a whole segment, of which parts were received before.
    pub(super) is_rest: bool,
    /// True if it was requested before the playlist listed it.
    pub(super) was_hinted: bool,
    /// True if the server has begun to count again since the request.
    is_of_old_count: bool,
    /// True if a decoder can begin with it, and has had no initialization section before.
    pub(super) needs_tables: bool,
}

/// A piece that was received, as far as the next one shows how long it is.
#[derive(Clone, Copy, Debug)]
struct LastPiece {
    after: Place,
    start: Start,
    duration: Duration,
}

/// Room for further media.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Position that is shown.
    pub(super) position: Duration,
    /// Media after the position that playback waits for; `None` if it does not wait.
    pub(super) needed: Option<Duration>,
}

/// Next step of a track.
#[derive(Debug)]
pub(super) enum Next {
    /// No step: a request is under way, the buffer is full, or there is no further segment yet.
    Nothing,
    /// No segment will follow.
    Over,
    /// The next segment was missing, and has been skipped.
    Gap,
    /// The next part was received when it was hinted. With its key, and the initialization vector.
    Held {
        piece: WantedPiece,
        key: Option<(Arc<Key>, [u8; 16])>,
    },
    /// Request this.
    Fetch {
        uri: String,
        extent: Extent,
        wanted: Wanted,
        /// Key of its encryption, and the initialization vector.
        key: Option<(Arc<Key>, [u8; 16])>,
    },
}

impl Track {
    pub(super) fn new(url: Url) -> Track {
        Track {
            base: url.clone(),
            url,
            next_playlist: None,
            previous_url: None,
            is_chosen: false,
            playlists: Connection::default(),
            media: Connection::default(),
            text: Vec::new(),
            playlist: None,
            start_offset: None,
            has_begun: false,
            target: Duration::ZERO,
            requested_at: Time::ZERO,
            changed_at: Time::ZERO,
            reload_at: None,
            next: Place::default(),
            parts_before: (Duration::ZERO, 0),
            newest: Place::default(),
            behind_since: None,
            asks_plainly: false,
            reported: None,
            names_reported: false,
            awaited: None,
            may_skip: false,
            must_be_whole: false,
            held: None,
            open_range: None,
            held_map: None,
            refused: None,
            refused_map: None,
            wanted: None,
            awaits_key: false,
            encryption: Encryption::None,
            content: Content::default(),
            body_bytes: 0,
            is_short: false,
            inspection: Inspection::Skipped,
            has_media: false,
            scales: TimeScales::default(),
            last: None,
            map: None,
            end: Duration::ZERO,
            lead: None,
            hidden: Duration::ZERO,
            attempts: Attempts::default(),
            is_over: false,
        }
    }

    pub(super) fn lane(&self, lane: Lane) -> &Connection {
        match lane {
            Lane::Playlists => &self.playlists,
            Lane::Media => &self.media,
        }
    }

    pub(super) fn lane_mut(&mut self, lane: Lane) -> &mut Connection {
        match lane {
            Lane::Playlists => &mut self.playlists,
            Lane::Media => &mut self.media,
        }
    }

    /// Counts a failure. Returns `true` if the playlist or the segments count as gone.
    pub(super) fn count_failure(&mut self, lane: Lane, config: &ClientConfig) -> bool {
        let media = self.wanted_duration(config);
        self.attempts.count_failure(lane, media, self.target)
    }

    /// Duration of the piece that is requested, or needs what is requested.
    fn wanted_duration(&self, config: &ClientConfig) -> Duration {
        match &self.wanted {
            Some(Wanted::Piece(piece)) => piece.duration,
            _ => {
                let piece = self.piece(self.is_in_parts(config));
                piece.map_or(Duration::ZERO, |(_, piece)| piece.media().duration)
            }
        }
    }

    /// Plans another request for the next piece after a failure. Returns `false` if the piece is to
    /// be given up.
    pub(super) fn plan_retry(
        &mut self,
        now: Time,
        asked_at: Option<Time>,
        refusal: &Refusal,
    ) -> bool {
        let asked_at = asked_at.filter(|_| matches!(self.wanted, Some(Wanted::Piece(_))));
        let is_planned = !self.has_left_wanted() && self.attempts.plan(now, asked_at, refusal);
        if is_planned {
            self.wanted = None;
        }
        is_planned
    }

    /// True if the playlist has gone on without the piece that is requested.
    pub(super) fn has_left_wanted(&self) -> bool {
        let wanted = self.wanted.as_ref();
        wanted.is_some_and(|wanted| match wanted {
            Wanted::Piece(piece) => piece.is_of_old_count || piece.after <= self.next,
            Wanted::Map(_) | Wanted::Hint(_) | Wanted::Key(_) => false,
        })
    }

    /// Returns which of its connections has this number.
    pub(super) fn lane_of(&self, channel: ChannelId) -> Option<Lane> {
        let mut lanes = [Lane::Playlists, Lane::Media].into_iter();
        lanes.find(|lane| self.lane(*lane).is(channel))
    }

    /// Returns the next piece of media that the playlist lists.
    fn piece(&self, in_parts: bool) -> Option<(Place, Piece<'_>)> {
        let playlist = self.playlist.as_ref()?;
        let (place, piece) = playlist.piece(self.next, in_parts)?;
        // All parts had arrived before the playlist ceased to list them.
        let missing = piece.media().duration.saturating_sub(self.parts_before.0);
        let is_complete = place.part > 0 && missing <= ROUNDING;
        match piece {
            Piece::Segment(_) if is_complete => playlist.piece(place.next_segment(), in_parts),
            _ => Some((place, piece)),
        }
    }

    fn go_to(&mut self, place: Place) {
        if place.sequence != self.next.sequence {
            self.parts_before = (Duration::ZERO, 0);
        }
        if place != self.next {
            self.attempts.forget();
        }
        self.next = place;
    }

    /// Returns how far playback must have come for the next piece to find room in the buffer;
    /// `None` if there is none yet, or if another is being requested.
    pub(super) fn room_at(&self, config: &ClientConfig) -> Option<Duration> {
        if self.media.is_busy() || self.awaits_key || self.attempts.next_at().is_some() {
            return None;
        }
        let in_parts = self.is_in_parts(config);
        let (_, piece) = self.piece(in_parts)?;
        let duration = piece.media().duration;
        let end = self.end.saturating_add(duration);
        // A segment is requested while the one before it plays, however long they are.
        let buffer_max = config.buffer_max.0.max(duration.saturating_mul(2));
        Some(end.saturating_sub(buffer_max))
    }

    /// Returns what to do with this room.
    pub(super) fn next(&mut self, room: Room, config: &ClientConfig) -> Next {
        let room_at = self.room_at(config);
        let needed_until = room.needed.map(|needed| room.position + needed);
        let is_needed = needed_until.is_some_and(|until| self.end <= until);
        let has_room = room_at.is_some_and(|room_at| room_at <= room.position);
        let in_parts = self.is_in_parts(config);
        let Some(playlist) = &self.playlist else {
            return Next::Nothing;
        };
        if self.media.is_busy() || self.is_over {
            return Next::Nothing;
        }
        let Some((place, piece)) = self.piece(in_parts) else {
            return match playlist.is_ended {
                true => Next::Over,
                false if in_parts => self.next_hint(config),
                false => Next::Nothing,
            };
        };
        let wanted = WantedPiece::new(place, piece, self.held.is_some());
        if piece.media().is_gap {
            self.pass(wanted);
            return Next::Gap;
        }
        match is_needed || has_room || self.held.is_some() {
            true => self.fetch(wanted, in_parts),
            false => Next::Nothing,
        }
    }

    /// Returns the request for the next piece, or for the initialization section before it. A piece
    /// that is held needs no request.
    fn fetch(&self, wanted: WantedPiece, in_parts: bool) -> Next {
        let Some((_, piece)) = self.piece(in_parts) else {
            return Next::Nothing;
        };
        let media = piece.media();
        let key = |key: &Option<Arc<Key>>| {
            let key = key.clone()?;
            let number = u128::from(wanted.place.sequence).to_be_bytes();
            let iv = key.iv.unwrap_or(number);
            Some((key, iv))
        };
        match &media.map {
            Some(map) if !self.has_map(map) => Next::Fetch {
                uri: map.uri.clone(),
                extent: map.range.into(),
                wanted: Wanted::Map(map.clone()),
                key: key(&map.key),
            },
            _ if self.held.is_some() => Next::Held {
                piece: wanted,
                key: key(&media.key),
            },
            _ => Next::Fetch {
                uri: media.uri.to_string(),
                extent: media.range.into(),
                wanted: Wanted::Piece(wanted),
                key: key(&media.key),
            },
        }
    }

    /// True if the initialization section that was received last is this one.
    fn has_map(&self, map: &Map) -> bool {
        self.map.as_ref().is_some_and(|own| own.is_same(map))
    }

    /// Begins a body with this encryption, in which the first picture is sought at which decoding
    /// can start if `seeks_picture` is true.
    pub(super) fn begin_body(
        &mut self,
        wanted: Wanted,
        encryption: Encryption,
        seeks_picture: bool,
    ) {
        let is_section = match &wanted {
            Wanted::Map(_) => Some(true),
            Wanted::Piece(_) => Some(false),
            Wanted::Hint(hint) if !self.ends_encrypted() => Some(hint.kind == HintKind::Map),
            Wanted::Hint(_) | Wanted::Key(_) => None,
        };
        self.inspection = match (is_section, &encryption) {
            (Some(true), Encryption::None) => Inspection::Section(Vec::new()),
            (Some(false), Encryption::None) => Inspection::Before { seeks_picture },
            _ => Inspection::Skipped,
        };
        self.wanted = Some(wanted);
        self.encryption = encryption;
        self.content = Content::default();
        self.body_bytes = 0;
        self.is_short = false;
    }

    /// Takes the next bytes of the body.
    pub(super) fn take_body(&mut self, bytes: &[u8]) {
        self.content.extend(bytes);
        self.body_bytes += bytes.len() as u64;
        self.inspection.feed(bytes);
    }

    /// Returns the first picture of the body at which decoding can start, if it is sought and has
    /// begun. `is_whole` is true if the body is complete.
    pub(super) fn first_picture(&self, is_whole: bool) -> Option<FirstPicture> {
        self.inspection.first_picture(&self.scales, is_whole)
    }

    /// Checks if the complete body can be what was requested. Otherwise returns why not.
    pub(super) fn check_body(&self) -> Result<(), (Failure, String)> {
        if let Some(Wanted::Key(_)) = &self.wanted {
            let length = self.body_bytes;
            let text = || format!("the key has {length} bytes instead of 16");
            let key = self.content.key(length);
            return key.map(drop).ok_or_else(|| (Failure::BadKey, text()));
        }
        if self.receives_open_range() {
            let text = || (Failure::NotMedia, "the body is empty".to_owned());
            return self.open_range_held_bytes().then_some(()).ok_or_else(text);
        }
        // The key of what a hint refers to is only known once the playlist lists it.
        let is_unknown = matches!(self.wanted, Some(Wanted::Hint(_))) && self.ends_encrypted();
        let encryption = match is_unknown {
            true => &Encryption::Opaque,
            false => &self.encryption,
        };
        let checked = self.content.check(self.body_bytes, encryption);
        checked.map_err(|why| (Failure::NotMedia, why))
    }

    /// Compares the stated duration of the piece before `piece` with the time from its start to
    /// that of `piece`, in which `found` was. Returns both in seconds if they differ by too much.
    /// Call it before the piece is taken.
    pub(super) fn check_duration(
        &mut self,
        piece: &WantedPiece,
        found: &Findings,
    ) -> Option<(f64, f64)> {
        let start = found.start(&self.scales);
        self.compare_duration(piece, start)
    }

    fn compare_duration(
        &mut self,
        piece: &WantedPiece,
        start: Option<Start>,
    ) -> Option<(f64, f64)> {
        // A part need not begin with a picture that is shown first.
        let start = start.filter(|_| !piece.is_part);
        let own = start.filter(|_| !piece.is_of_old_count);
        let last = std::mem::replace(
            &mut self.last,
            own.map(|start| LastPiece {
                after: piece.after,
                start,
                duration: piece.duration,
            }),
        );
        // No segment was missed or skipped since.
        let last = last.filter(|last| last.after == self.next)?;
        let is_next = !piece.is_discontinuous && !piece.is_rest && !piece.is_of_old_count;
        let start = start.filter(|_| is_next)?;
        let real = start.seconds_since(last.start)?;
        let stated = last.duration.as_secs_f64();
        let is_rounded = last.duration.subsec_nanos() == 0 || start.is_of_audio;
        let allowed = DURATION_ERROR_MAX + if is_rounded { ROUNDED_BY } else { 0.0 };
        // Pictures may be decoded in another order than they are shown in: one of both is right.
        let is_wrong = |real: &f64| (real - stated).abs() > allowed;
        real.iter().all(is_wrong).then_some((stated, real[1]))
    }

    /// Returns what was found in the body, which is complete.
    pub(super) fn finish_inspection(&mut self) -> Findings {
        let mut findings = self.inspection.finish();
        if self.is_short {
            findings.add_short();
        }
        findings
    }

    /// True if the last segments or parts of the playlist are encrypted as a whole.
    fn ends_encrypted(&self) -> bool {
        self.last_key().is_some_and(|key| key.is_of_segments)
    }

    /// Key of the last segment or part of the playlist.
    fn last_key(&self) -> Option<&Key> {
        let playlist = self.playlist.as_ref()?;
        let part = playlist.parts.last().map(|part| &part.media);
        let last = part.or(playlist.segments.last().map(Arc::as_ref));
        last?.key.as_deref()
    }

    /// Returns the purpose of the request, whose response is complete. `download` is the time from
    /// its head to its end.
    pub(super) fn take_wanted(&mut self, download: Duration) -> Option<Wanted> {
        let wanted = self.wanted.take();
        match &wanted {
            Some(Wanted::Map(map)) => {
                self.map = Some(map.clone());
                self.scales = self.inspection.finish_section();
            }
            Some(Wanted::Hint(hint)) => self.hold(hint.clone(), download),
            Some(Wanted::Piece(_) | Wanted::Key(_)) | None => {}
        }
        wanted
    }

    /// Takes a piece that has arrived. Returns where it begins, and the number of bytes of it that
    /// had arrived before, in parts.
    pub(super) fn take_piece(&mut self, piece: WantedPiece) -> (Duration, u64) {
        self.has_media = true;
        // Parts of a whole segment may have been played before.
        let (played, bytes) = match piece.is_part || piece.is_of_old_count {
            true => (Duration::ZERO, 0),
            false => self.parts_before,
        };
        let begins_at = self.end.saturating_sub(played);
        let added = piece.duration.saturating_sub(played);
        let hidden = self.hidden.min(added);
        self.hidden -= hidden;
        let added = added - hidden;
        self.end = self.end.saturating_add(added);
        self.pass(piece);
        if piece.is_part && !piece.is_of_old_count {
            self.parts_before.1 += self.body_bytes;
        }
        (begins_at, bytes)
    }

    /// Counts positions from where the first track begins, which has `lead` before the position at
    /// which playback begins.
    pub(super) fn align(&mut self, lead: Duration) {
        let own = self.lead.unwrap_or(lead);
        let before = own.saturating_sub(lead);
        let cut = self.end.min(before);
        self.end = self.end - cut + lead.saturating_sub(own);
        self.hidden += before - cut;
    }

    /// Goes on after a piece, received or not.
    fn pass(&mut self, piece: WantedPiece) {
        if piece.is_of_old_count || piece.after <= self.next {
            return;
        }
        self.go_to(piece.after);
        if piece.is_part {
            self.parts_before.0 += piece.duration;
        }
    }

    /// Gives up the piece that was requested, or is next. Returns the bytes of a hinted part that
    /// is of no use any more.
    pub(super) fn skip(&mut self, config: &ClientConfig) -> Option<u64> {
        match self.wanted.take() {
            Some(Wanted::Piece(piece)) => self.pass(piece),
            Some(Wanted::Hint(hint)) => self.refuse_hint(hint),
            // The initialization section or key failed, or the URL of the piece cannot be
            // requested.
            Some(Wanted::Map(_) | Wanted::Key(_)) | None => {
                let held = self.held.take();
                let next = self.piece(self.is_in_parts(config));
                let next = next.map(|(place, piece)| WantedPiece::new(place, piece, false));
                match next {
                    Some(piece) => self.pass(piece),
                    None => self.go_to(self.next.next_segment()),
                }
                return held.map(|held| held.bytes);
            }
        }
        None
    }
}

impl WantedPiece {
    fn new(place: Place, piece: Piece<'_>, was_hinted: bool) -> WantedPiece {
        let media = piece.media();
        WantedPiece {
            place,
            after: piece.end(place),
            duration: media.duration,
            date: media.date,
            is_discontinuous: media.is_discontinuous,
            is_part: matches!(piece, Piece::Part(_)),
            is_rest: matches!(piece, Piece::Segment(_)) && place.part > 0,
            was_hinted,
            is_of_old_count: false,
            needs_tables: place.part == 0 && media.map.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::playlist::Segment;

    const SECOND: Duration = Duration::from_secs(1);

    fn track(lead: u32, end: u32) -> Track {
        let mut track = Track::new(Url::parse("http://h/a.m3u8").expect("a URL"));
        track.lead = Some(lead * SECOND);
        track.end = end * SECOND;
        track
    }

    fn piece(duration: Duration) -> WantedPiece {
        let segment = Segment {
            duration,
            ..Segment::default()
        };
        let mut piece = WantedPiece::new(Place::default(), Piece::Segment(&segment), false);
        piece.is_of_old_count = true;
        piece
    }

    #[test]
    fn tracks_are_aligned_at_their_distance_from_the_end() {
        // Two seconds less before the position at which playback begins.
        let mut later = track(1, 5);
        later.align(3 * SECOND);
        assert_eq!(later.end, 7 * SECOND);
        // Two seconds more, of which one has arrived.
        let mut earlier = track(3, 1);
        earlier.align(SECOND);
        assert_eq!(earlier.end, Duration::ZERO);
        earlier.take_piece(piece(4 * SECOND));
        assert_eq!(earlier.end, 3 * SECOND);
        earlier.take_piece(piece(4 * SECOND));
        assert_eq!(earlier.end, 7 * SECOND);
    }

    #[test]
    fn durations_are_compared_as_exactly_as_they_are_stated() {
        let seconds = |seconds: f64| Duration::from_secs_f64(seconds);
        // Stated, by decoding, by presentation, whether it is wrong.
        for (stated, decoding, presentation, is_wrong) in [
            (9.6, 9.6, 9.6, false),
            (9.6, 9.75, 9.6, false),
            (9.6, 9.6, 9.75, false),
            (9.6, 9.75, 9.8, true),
            (9.6, 9.2, 9.2, true),
            // Rounded to whole seconds.
            (10.0, 9.6, 9.6, false),
            (10.0, 9.3, 9.3, true),
            (2.0, -1.0, -1.0, true),
        ] {
            let mut track = track(0, 0);
            let start = |at: [f64; 2]| {
                let ticks = at.map(|at| ((100.0 + at) * 1000.0).round() as u64);
                Start::new(ticks, 1000, 1)
            };
            track.last = Some(LastPiece {
                after: Place::default(),
                start: start([0.0; 2]),
                duration: seconds(stated),
            });
            let own = piece(SECOND);
            let own = WantedPiece {
                is_of_old_count: false,
                ..own
            };
            let next = start([decoding, presentation]);
            let found = track.compare_duration(&own, Some(next));
            assert_eq!(found.is_some(), is_wrong, "{stated}: {found:?}");
            let last = track.last.expect("it is kept");
            assert_eq!((last.start, last.duration), (next, SECOND));
        }
    }
}
