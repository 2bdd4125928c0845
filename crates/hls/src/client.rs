//! A player: it requests playlists and segments, and models the playback of what arrives.
//!
//! Each track (the variant, and its audio rendition if that has a playlist of its own) has two
//! connections, because a browser does not let a playlist wait for a segment either.

use std::sync::Arc;
use std::time::Duration;

use measure::Time;

use super::coding;
use super::config::ClientConfig;
use super::connection::{Refusal, Shared, Wish};
use super::failure::Failure;
use super::metrics as m;
use super::playback::Playback;
use super::playlist::{
    Extent, MediaPlaylist, Oddities, OddityKinds, Origin, Playlist, PlaylistError,
};
use kit::http1::{Head, ResponseItem, Url};
use kit::metrics as clients;
use session::{ArrivalTimes, ChannelId, CloseReason, Context, Input, Note, Output, Session};

mod ending;
mod failing;
mod media;
#[cfg(test)]
mod tests;
mod track;
mod variants;

use media::Found;
use track::{Lane, Next, Room, Track, Wanted, count_wasted};
use variants::Variants;

/// Maximum length of a playlist in bytes.
const PLAYLIST_BYTES_MAX: usize = 4 << 20;

/// Progress of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Active,
    Ended,
}

/// Search for the first picture at which decoding can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyFrame {
    Sought,
    /// The bytes of the picture up to `end` have arrived, the last one at `at`.
    Begun {
        end: u64,
        at: Time,
    },
    Found,
}

/// Client that plays one URL.
#[derive(Debug)]
pub struct Client {
    config: Arc<ClientConfig>,
    shared: Shared,
    /// Wall-clock time since 1970 at [`Time::ZERO`]; `None` if unknown.
    wall_clock: Option<Duration>,
    phase: Phase,
    planned_start: Time,
    started: Time,
    tracks: Vec<Track>,
    /// The variants among which the player chooses during playback.
    variants: Variants,
    playback: Playback,
    /// Kinds of oddities of playlists that were told.
    oddities: OddityKinds,
    /// True if the first media playlist could still grow.
    is_live: bool,
    is_connected: bool,
    /// Arrival of the first byte of a segment.
    first_media: Option<Time>,
    /// The first picture at which decoding can start.
    key_frame: KeyFrame,
    playback_began: Option<Time>,
    /// Arrival of the last response.
    latest: Time,
    /// Time when the last segment was complete.
    last_segment: Option<Time>,
    segments_due: u64,
    segments: u64,
}

impl Client {
    /// Creates a client that plays the playlist at `url`. `wall_clock` is the time since 1970 at
    /// [`Time::ZERO`]; without it, the live latency is not measured.
    pub fn new(config: Arc<ClientConfig>, url: Url, wall_clock: Option<Duration>) -> Client {
        let playback = Playback::new(config.playout_buffer.0);
        Client {
            config,
            tracks: vec![Track::new(url.clone())],
            variants: Variants::default(),
            shared: Shared::new(url),
            wall_clock,
            phase: Phase::Idle,
            planned_start: Time::ZERO,
            started: Time::ZERO,
            playback,
            oddities: OddityKinds::default(),
            is_live: false,
            is_connected: false,
            first_media: None,
            key_frame: KeyFrame::Sought,
            playback_began: None,
            latest: Time::ZERO,
            last_segment: None,
            segments_due: 0,
            segments: 0,
        }
    }

    fn request_playlist(&mut self, cx: &mut Context<'_>, track: usize) {
        let own = &mut self.tracks[track];
        own.plan_request(cx.now, &self.config);
        own.reload_at = None;
        own.requested_at = cx.now;
        own.text = Vec::new();
        let mut url = own.url.clone();
        let mut patience = Duration::ZERO;
        if let Some(directives) = own.directives(&self.config) {
            patience = own.patience();
            url.append_query(&directives);
        }
        let wish = Wish {
            url,
            extent: Extent::Whole,
            patience,
            takes_gzip: true,
        };
        own.playlists
            .fetch(cx, &self.config, &mut self.shared, wish);
    }

    fn find(&self, channel: ChannelId) -> Option<(usize, Lane)> {
        let of = |(at, own): (usize, &Track)| Some((at, own.lane_of(channel)?));
        self.tracks.iter().enumerate().find_map(of)
    }

    fn handle_bytes(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelId,
        bytes: &[u8],
        mut times: ArrivalTimes<'_>,
    ) {
        let Some((track, lane)) = self.find(channel) else {
            return;
        };
        cx.recorder.add(m::WIRE_BYTES, bytes.len() as u64);
        let mut at = 0;
        let mut begins = false;
        while self.phase == Phase::Active && self.tracks[track].lane(lane).is(channel) {
            let is_first = track == 0 && !self.tracks[0].has_media;
            let connection = self.tracks[track].lane_mut(lane);
            if !connection.is_busy() {
                // Bytes that belong to no request: the framing cannot be trusted any more.
                if at < bytes.len() {
                    connection.close(cx);
                }
                return;
            }
            match connection.decoder.next(bytes, &mut at) {
                Ok(Some(ResponseItem::Head(head))) => {
                    let (arrived, _) = times.arrival_of(at);
                    self.handle_head(cx, track, lane, &head, arrived);
                    begins = true;
                }
                Ok(Some(ResponseItem::Body { bytes, start })) => {
                    let arrived = |end: usize| times.clone().arrival_of(start + end).0;
                    self.handle_body(cx, track, lane, bytes, arrived);
                }
                Ok(Some(ResponseItem::End)) => {
                    let (arrived, _) = times.arrival_of(at);
                    if at < bytes.len() {
                        connection.distrust();
                    }
                    self.handle_end(cx, track, lane, arrived);
                }
                Ok(None) => {
                    // The first picture of all is wanted at once.
                    let is_sought = is_first && self.key_frame != KeyFrame::Found;
                    // Each part of the rest of a resource is wanted at once.
                    let own = &self.tracks[track];
                    if begins && lane == Lane::Media && !is_sought && !own.receives_open_range() {
                        own.media.expect_rest(cx);
                    }
                    return;
                }
                Err(malformed) => {
                    let failure = Failure::from_malformed(malformed);
                    let refusal = connection.refusal(failure, &malformed.to_string());
                    self.refuse(cx, track, lane, refusal);
                }
            }
        }
    }

    fn handle_head(
        &mut self,
        cx: &mut Context<'_>,
        track: usize,
        lane: Lane,
        head: &Head,
        at: Time,
    ) {
        let connection = self.tracks[track].lane_mut(lane);
        let taken = connection.handle_head(cx, &self.config, &mut self.shared, head, at);
        if let Err(refusal) = taken {
            self.refuse(cx, track, lane, refusal);
        }
    }

    fn handle_body(
        &mut self,
        cx: &mut Context<'_>,
        track: usize,
        lane: Lane,
        bytes: &[u8],
        arrived: impl Fn(usize) -> Time,
    ) {
        let connection = self.tracks[track].lane_mut(lane);
        if connection.is_refused() {
            if let Some(refusal) = connection.skip_refused(bytes.len() as u64) {
                self.refuse(cx, track, lane, refusal);
            }
            return;
        }
        if lane == Lane::Media && self.tracks[track].receives_open_range() {
            cx.recorder.add(m::PAYLOAD_BYTES, bytes.len() as u64);
            let own = &mut self.tracks[track];
            let taken = own.extend_open_range(bytes, arrived);
            if taken < bytes.len() {
                let lost = bytes.len() - taken;
                cx.recorder.add(m::BYTES_WASTED, lost as u64);
                let text = "too many bytes of a hint arrived before the playlist listed its parts";
                let refusal = own.media.refusal(Failure::WrongRange, text);
                self.refuse(cx, track, lane, refusal);
            }
            return;
        }
        if lane == Lane::Media {
            let own = &mut self.tracks[track];
            let before = own.body_bytes;
            own.take_body(bytes);
            if let Some(Wanted::Key(_)) = own.wanted {
                return;
            }
            let range = own.media.range();
            if let Some(range) = range.filter(|range| range.length < own.body_bytes) {
                let text = format!(
                    "the body is longer than its byte range of {} bytes",
                    range.length
                );
                let refusal = own.media.refusal(Failure::WrongRange, &text);
                return self.refuse(cx, track, lane, refusal);
            }
            cx.recorder.add(m::PAYLOAD_BYTES, bytes.len() as u64);
            if self.first_media.is_none() {
                self.begin_media(cx, arrived(1));
            }
            self.find_key_frame(cx, track, false, |end| {
                arrived(end.saturating_sub(before).max(1) as usize)
            });
            return;
        }
        let own = &mut self.tracks[track];
        if own.text.len() + bytes.len() > PLAYLIST_BYTES_MAX {
            let text = format!("a playlist of more than {PLAYLIST_BYTES_MAX} bytes");
            let refusal = own.playlists.refusal(Failure::PlaylistTooLong, &text);
            return self.fail(cx, refusal);
        }
        own.text.extend_from_slice(bytes);
    }

    fn handle_end(&mut self, cx: &mut Context<'_>, track: usize, lane: Lane, at: Time) {
        let own = &mut self.tracks[track];
        if own.lane(lane).is_refused() {
            if let Some(refusal) = own.lane_mut(lane).end_response(cx) {
                self.refuse(cx, track, lane, refusal);
            }
            return;
        }
        let range = own.media.range().filter(|_| lane == Lane::Media);
        own.is_short = range.is_some_and(|range| own.body_bytes < range.length);
        let checked = match lane {
            Lane::Media => own.check_body(),
            Lane::Playlists => Ok(()),
        };
        let waits = own.awaited.is_some() || own.names_reported;
        let connection = own.lane_mut(lane);
        // Has the addresses and the URL of the response.
        let refusal = checked.err();
        let refusal = refusal.map(|(failure, why)| connection.refusal(failure, &why));
        let Some(request) = connection.finish_response(cx) else {
            return;
        };
        if let Some(refusal) = refusal {
            return self.refuse(cx, track, lane, refusal);
        }
        self.latest = at;
        let took = at.since(request.since);
        match lane {
            Lane::Playlists => {
                cx.recorder.add(m::PLAYLISTS, 1);
                cx.recorder.add(m::RELOADS, u64::from(waits));
                let histogram = match waits {
                    true => m::RELOAD_DELAY,
                    false => m::PLAYLIST_DELAY,
                };
                cx.recorder.record_duration(histogram, took);
                if let Some(age) = request.age {
                    cx.recorder.record_duration(m::PLAYLIST_AGE, age);
                }
                let text = std::mem::take(&mut self.tracks[track].text);
                match coding::decode(text, request.coding.as_deref(), PLAYLIST_BYTES_MAX) {
                    Ok(text) => self.take_playlist(cx, track, request.url, (&text, took)),
                    Err(error) => {
                        let why = format!("a playlist: {error}");
                        self.refuse_playlist(cx, track, &request.url, &why);
                    }
                }
            }
            Lane::Media => {
                self.find_key_frame(cx, track, true, |_| at);
                let download = at.since(request.head_at.unwrap_or(request.since));
                self.take_media(cx, track, (took, download), at);
            }
        }
    }

    /// Takes a playlist that was requested at `url`, and that took this time to arrive.
    fn take_playlist(
        &mut self,
        cx: &mut Context<'_>,
        track: usize,
        url: Url,
        (text, took): (&[u8], Duration),
    ) {
        let own = &mut self.tracks[track];
        let origin = Origin {
            target: url.target(),
            variables: Some(&self.variants.defined),
        };
        match Playlist::parse_at(text, own.playlist.as_ref(), origin) {
            Ok(Playlist::Media(playlist)) => {
                own.attempts.count_success(Lane::Playlists);
                own.previous_url = None;
                own.base = url;
                own.must_be_whole = false;
                self.take_media_playlist(cx, track, *playlist, took);
            }
            // The whole playlist is requested instead.
            Err(PlaylistError::SkippedUnknown) if own.may_skip => {
                own.must_be_whole = true;
                cx.recorder.add(m::PLAYLISTS_UNUSABLE, 1);
                self.request_playlist(cx, track);
            }
            Ok(Playlist::Multivariant(mut playlist)) if track == 0 && !own.is_chosen => {
                self.tell_oddities(cx, &mut playlist.oddities, &url);
                self.choose(cx, &playlist, &url);
            }
            Ok(Playlist::Multivariant(_)) => {
                let why = "a variant is a multivariant playlist itself";
                self.refuse_playlist(cx, track, &url, why);
            }
            Err(error) => self.refuse_playlist(cx, track, &url, &error.to_string()),
        }
    }

    fn refuse_playlist(&mut self, cx: &mut Context<'_>, track: usize, url: &Url, why: &str) {
        let refusal = Refusal {
            failure: Failure::BadPlaylist,
            detail: format!("{why}: {url}"),
        };
        self.refuse(cx, track, Lane::Playlists, refusal);
    }

    fn take_media_playlist(
        &mut self,
        cx: &mut Context<'_>,
        track: usize,
        mut playlist: MediaPlaylist,
        took: Duration,
    ) {
        if !playlist.oddities.is_empty() {
            let url = self.tracks[track].base.clone();
            self.tell_oddities(cx, &mut playlist.oddities, &url);
        }
        let own = &mut self.tracks[track];
        if !own.has_begun && track == 0 {
            self.is_live = !playlist.is_ended;
        }
        let awaits = own.awaited.is_some();
        let is_delta = playlist.is_delta;
        let update = own.update(cx.now, playlist, &self.config);
        self.confirm_variant(track);
        if let Some(lead) = update.start {
            self.begin_track(track, lead);
        }
        let own = &mut self.tracks[track];
        let is_late = awaits
            && own
                .cadence(&self.config)
                .is_some_and(|cadence| took > cadence.mul_f64(1.5));
        for (counter, count) in [
            (m::PLAYLISTS_DELTA, u64::from(is_delta)),
            (m::RELOADS_LATE, u64::from(is_late)),
            (m::RELOADS_SHORT, u64::from(update.is_short)),
            (m::PLAYLISTS_UNCHANGED, u64::from(update.is_unchanged)),
            (m::PLAYLISTS_STALE, u64::from(update.is_stale)),
            (m::PLAYLISTS_BACKWARDS, u64::from(update.is_backwards)),
            (m::SEGMENTS_MISSED, update.missed),
        ] {
            cx.recorder.add(counter, count);
        }
        if self.is_live && track == 0 && self.playback.has_begun() {
            let (position, _) = self.playback.position(cx.now);
            if let Some(distance) = own.distance(position, &self.config) {
                cx.recorder.record_duration(m::LIVE_DISTANCE, distance);
            }
        }
        self.count_due(cx, update.missed);
        for wasted in update.wasted.into_iter().flatten() {
            count_wasted(cx, wasted.bytes);
            let own = &mut self.tracks[track];
            if wasted.is_requested {
                own.media.give_up(cx);
                own.wanted = None;
            }
        }
        if let Some(refusal) = update.given_up {
            self.give_up_segment(cx, track, refusal);
            if self.phase == Phase::Ended {
                return;
            }
        }
        if let Some(text) = update.restarted {
            let kind = "playlist_restarted";
            cx.out.push_back(Output::Note(Note { kind, text }));
        }
        if let Some(missed) = update.missed_text {
            let kind = "segments_missed";
            cx.out.push_back(Output::Note(Note { kind, text: missed }));
        }
        self.advance(cx, track);
    }

    /// Notes which rules the playlist at `url` breaks, once for each kind.
    fn tell_oddities(&mut self, cx: &mut Context<'_>, oddities: &mut Oddities, url: &Url) {
        if oddities.is_empty() {
            return;
        }
        cx.recorder.add(m::PLAYLISTS_ODD, 1);
        for oddity in oddities.take_new(&mut self.oddities) {
            let kind = "playlist_odd";
            let text = format!("{oddity}: {url}");
            cx.out.push_back(Output::Note(Note { kind, text }));
        }
    }

    /// Begins a track with this media before the position at which playback begins: the same
    /// distance from the end in all tracks.
    fn begin_track(&mut self, track: usize, lead: Duration) {
        self.tracks[track].lead = Some(lead);
        let Some(first) = self.tracks[0].lead else {
            return;
        };
        match track {
            0 => {
                self.playback.start_at(lead);
                let others = self.tracks.iter_mut().skip(1);
                others
                    .filter(|own| own.lead.is_some())
                    .for_each(|own| own.align(first));
            }
            _ => self.tracks[track].align(first),
        }
    }

    fn count_due(&mut self, cx: &mut Context<'_>, count: u64) {
        self.segments_due += count;
        cx.recorder.add(m::SEGMENTS_DUE, count);
    }

    /// Requests what the track needs next, if anything and if its connection is free.
    fn advance(&mut self, cx: &mut Context<'_>, track: usize) {
        self.tracks[track].awaits_key = false;
        if self.tracks[track].attempts.wait(cx.now) {
            return;
        }
        loop {
            if !self.take_open_range(cx, track) {
                return;
            }
            if let Some(next) = self.tracks[track].take_next_playlist() {
                self.change_playlist(cx, track, next.url);
                self.tracks[track].previous_url.take_if(|_| next.is_final);
                return;
            }
            let (position, waits) = self.playback.position(cx.now);
            let room = Room {
                position,
                // Media that playback waits for always has room.
                needed: waits.then_some(self.config.playout_buffer.0),
            };
            self.use_held_map(cx, track);
            let own = &mut self.tracks[track];
            match own.next(room, &self.config) {
                Next::Nothing => return,
                Next::Over => {
                    own.is_over = true;
                    self.extend(cx, cx.now);
                    return;
                }
                Next::Gap => {
                    cx.recorder.add(m::SEGMENTS_GAP, 1);
                    self.count_due(cx, 1);
                }
                Next::Held { piece, key } => match self.find_key(track, key) {
                    Ok(Found::Encryption(encryption)) => {
                        self.take_held(cx, track, piece, &encryption);
                    }
                    Ok(Found::KeyAt(url)) => return self.request_key(cx, track, url),
                    Err(refusal) => {
                        if !self.handle_refusal(cx, track, Lane::Media, refusal) {
                            return;
                        }
                    }
                },
                Next::Fetch {
                    uri,
                    extent,
                    wanted,
                    key,
                } => {
                    let found = self.shared.resolve(&self.config, &own.base, &uri);
                    let found = found.and_then(|url| Ok((url, self.find_key(track, key)?)));
                    match found {
                        Ok((url, Found::Encryption(encryption))) => {
                            let wish = (url, extent);
                            self.request_media(cx, track, wish, wanted, encryption);
                        }
                        Ok((_, Found::KeyAt(url))) => self.request_key(cx, track, url),
                        Err(refusal) => {
                            let own = &mut self.tracks[track];
                            if let Wanted::Hint(hint) = wanted {
                                own.refuse_hint(hint);
                                let (kind, text) = ("hint_failed", refusal.detail);
                                cx.out.push_back(Output::Note(Note { kind, text }));
                                continue;
                            }
                            own.wanted = Some(wanted);
                            if self.handle_refusal(cx, track, Lane::Media, refusal) {
                                continue;
                            }
                        }
                    }
                    return;
                }
            }
        }
    }

    /// Passes what has arrived on all tracks to the model of playback.
    fn extend(&mut self, cx: &mut Context<'_>, at: Time) {
        let open = self.tracks.iter().filter(|track| !track.is_over);
        let end = match open.clone().map(|track| track.end).min() {
            Some(end) => end,
            None => self
                .tracks
                .iter()
                .map(|track| track.end)
                .max()
                .unwrap_or_default(),
        };
        let change = self.playback.extend(at, end, open.count() == 0);
        self.count_shown(cx);
        if change.begins {
            self.playback_began = Some(at);
            let delay = at.since(self.planned_start);
            cx.recorder.record_duration(m::PLAYBACK_DELAY, delay);
        }
        if let Some(stalled) = change.stalled {
            self.count_stall(cx, stalled);
        }
    }

    fn count_shown(&mut self, cx: &mut Context<'_>) {
        let shown = self.playback.take_shown(cx.now);
        cx.recorder
            .add(m::SHOWN_NANOSECONDS, shown.as_nanos() as u64);
    }

    fn count_stall(&self, cx: &mut Context<'_>, stalled: Duration) {
        cx.recorder.add(m::STALLS, 1);
        cx.recorder
            .add(m::STALL_NANOSECONDS, stalled.as_nanos() as u64);
        cx.recorder.record_duration(m::STALL_TIME, stalled);
    }

    fn handle_closed(&mut self, cx: &mut Context<'_>, channel: ChannelId, how: CloseReason) {
        let Some((track, lane)) = self.find(channel) else {
            return;
        };
        let connection = self.tracks[track].lane_mut(lane);
        match connection.handle_closed(cx, &self.config, &mut self.shared, how) {
            Ok(true) => self.handle_end(cx, track, lane, cx.now),
            Ok(false) => {}
            Err(refusal) => self.refuse(cx, track, lane, refusal),
        }
    }

    /// Handles deadlines that have passed.
    fn handle_time(&mut self, cx: &mut Context<'_>) {
        for track in 0..self.tracks.len() {
            for lane in [Lane::Playlists, Lane::Media] {
                let connection = self.tracks[track].lane_mut(lane);
                let due = connection.deadline(&self.config);
                if self.phase == Phase::Active && due.is_some_and(|due| due <= cx.now) {
                    let refusal = connection.late(&self.config);
                    self.refuse(cx, track, lane, refusal);
                }
            }
            if self.phase != Phase::Active {
                return;
            }
            let own = &self.tracks[track];
            if own.reload_at.is_some_and(|due| due <= cx.now) && !own.playlists.is_busy() {
                self.request_playlist(cx, track);
            }
            self.advance(cx, track);
        }
        self.check_progress(cx);
    }
}

impl Session for Client {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        if self.phase == Phase::Ended {
            return;
        }
        match input {
            Input::Start { due } if self.phase == Phase::Idle => {
                self.phase = Phase::Active;
                self.planned_start = due;
                self.started = cx.now;
                self.request_playlist(cx, 0);
            }
            Input::Opened {
                channel,
                local,
                remote,
            } => {
                if let Some((track, lane)) = self.find(channel) {
                    if !std::mem::replace(&mut self.is_connected, true) {
                        let delay = cx.now.since(self.started);
                        cx.recorder.record_duration(clients::CONNECT_DELAY, delay);
                    }
                    let connection = self.tracks[track].lane_mut(lane);
                    connection.handle_opened(cx, &self.config, &mut self.shared, (local, remote));
                }
            }
            Input::OpenFailed { channel, error } => {
                if let Some((track, lane)) = self.find(channel) {
                    let connection = self.tracks[track].lane_mut(lane);
                    let failure = Failure::Connect(error.into());
                    let refusal = connection.refusal(failure, &error.to_string());
                    connection.forget();
                    self.refuse(cx, track, lane, refusal);
                }
            }
            Input::Bytes {
                channel,
                bytes,
                at,
                runs,
            } => self.handle_bytes(cx, channel, bytes, ArrivalTimes::new(runs, at)),
            Input::Closed { channel, reason } => self.handle_closed(cx, channel, reason),
            Input::Stop { .. } => return self.stop(cx),
            _ => {}
        }
        if self.phase == Phase::Active {
            self.handle_time(cx);
        }
    }

    fn deadline(&self) -> Option<Time> {
        if self.phase != Phase::Active {
            return None;
        }
        let tracks = self.tracks.iter().flat_map(|track| {
            let room_at = track.room_at(&self.config);
            [
                track.playlists.deadline(&self.config),
                track.media.deadline(&self.config),
                track.reload_at.filter(|_| !track.playlists.is_busy()),
                track.attempts.next_at().filter(|_| !track.media.is_busy()),
                room_at.and_then(|position| self.playback.reached_at(position)),
            ]
        });
        let is_over = self.tracks.iter().all(|track| track.is_over);
        let own = match is_over {
            true => self.playback.dry_at(),
            false => Some(self.silence_at()),
        };
        tracks.flatten().chain(own).min()
    }
}
