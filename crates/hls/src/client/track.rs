//! One track of a player: its playlist, and the segment that is next.

use std::sync::Arc;
use std::time::Duration;

use measure::Time;

use crate::connection::Connection;
use crate::content::Content;
use crate::playlist::{ByteRange, Map, MediaPlaylist, SEGMENTS_MAX};
use kit::http1::Url;
use session::ChannelId;

/// Purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Playlists,
    Media,
}

/// Number of segments above which a playlist that goes on cannot have lost them: the server has
/// begun to count again, at a higher number.
const MISSED_MAX: u64 = SEGMENTS_MAX as u64;

/// Media of one playlist.
#[derive(Debug)]
pub(super) struct Track {
    /// URL of the playlist.
    pub(super) url: Url,
    /// True if the URL was chosen from a multivariant playlist.
    pub(super) is_chosen: bool,
    pub(super) playlists: Connection,
    pub(super) media: Connection,
    /// The part of a playlist that has arrived.
    pub(super) text: Vec<u8>,
    pub(super) playlist: Option<MediaPlaylist>,
    /// URL that the URIs of the playlist are relative to.
    pub(super) base: Url,
    pub(super) requested_at: Time,
    /// Time when a playlist arrived that was not the same as the one before.
    changed_at: Time,
    pub(super) reload_at: Option<Time>,
    /// Number of the next segment.
    sequence: u64,
    /// The current request on the connection for media.
    pub(super) wanted: Option<Wanted>,
    /// Beginning of the body on the connection for media.
    pub(super) content: Content,
    /// The initialization section that was received last.
    map: Option<Arc<Map>>,
    /// End of the received media, from the first segment.
    pub(super) end: Duration,
    /// Failures in a row of playlists, and of media.
    failures: [u32; 2],
    /// True if the last segment was received or skipped.
    pub(super) is_over: bool,
}

/// Purpose of a request on the connection for media.
#[derive(Debug)]
pub(super) enum Wanted {
    Map(Arc<Map>),
    Segment(WantedSegment),
}

/// Properties of the segment that is being requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct WantedSegment {
    sequence: u64,
    pub(super) duration: Duration,
    pub(super) date: Option<Duration>,
    pub(super) is_discontinuous: bool,
    is_encrypted: bool,
    /// True if the server has begun to count again since the request.
    is_of_old_count: bool,
}

/// Room for further media.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Position that is shown.
    pub(super) position: Duration,
    pub(super) buffer_max: Duration,
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
    /// Request this.
    Fetch {
        uri: String,
        range: Option<ByteRange>,
        wanted: Wanted,
    },
}

/// How a playlist differs from the one before.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Update {
    pub(super) is_unchanged: bool,
    pub(super) is_stale: bool,
    pub(super) is_backwards: bool,
    /// Number of segments that were not requested in time.
    pub(super) missed: u64,
    /// Words for a note.
    pub(super) missed_text: Option<String>,
}

impl Track {
    pub(super) fn new(url: Url) -> Track {
        Track {
            base: url.clone(),
            url,
            is_chosen: false,
            playlists: Connection::default(),
            media: Connection::default(),
            text: Vec::new(),
            playlist: None,
            requested_at: Time::ZERO,
            changed_at: Time::ZERO,
            reload_at: None,
            sequence: 0,
            wanted: None,
            content: Content::default(),
            map: None,
            end: Duration::ZERO,
            failures: [0; 2],
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

    /// Counts a failure, and returns how many there were in a row.
    pub(super) fn count_failure(&mut self, lane: Lane) -> u32 {
        let failures = &mut self.failures[lane as usize];
        *failures += 1;
        *failures
    }

    pub(super) fn count_success(&mut self, lane: Lane) {
        self.failures[lane as usize] = 0;
    }

    /// Returns which of its connections has this number.
    pub(super) fn lane_of(&self, channel: ChannelId) -> Option<Lane> {
        let mut lanes = [Lane::Playlists, Lane::Media].into_iter();
        lanes.find(|lane| self.lane(*lane).is(channel))
    }

    /// Takes a playlist, and plans when to request it again (RFC 8216, 6.3.4). `distance` is that
    /// from the end of a live playlist at which playback begins.
    pub(super) fn update(
        &mut self,
        now: Time,
        playlist: MediaPlaylist,
        distance: Option<Duration>,
    ) -> Update {
        let mut update = Update::default();
        match &self.playlist {
            None => {
                self.sequence = playlist.start(distance);
                self.changed_at = now;
            }
            Some(before) => {
                let place = |playlist: &MediaPlaylist| {
                    (
                        playlist.media_sequence,
                        playlist.end_sequence(),
                        playlist.is_ended,
                    )
                };
                update.is_unchanged = place(before) == place(&playlist);
                update.is_backwards = playlist.end_sequence() < before.end_sequence();
                match update.is_unchanged {
                    false => self.changed_at = now,
                    true => {
                        let same_for = now.since(self.changed_at);
                        update.is_stale =
                            !playlist.is_ended && same_for > playlist.target_duration.mul_f64(1.5);
                    }
                }
                // An older playlist, as from a cache, has segments in common with the one before.
                let is_restart = playlist.end_sequence() <= before.media_sequence
                    && update.is_backwards
                    || playlist.media_sequence.saturating_sub(self.sequence) > MISSED_MAX;
                if is_restart {
                    self.sequence = playlist.start(distance);
                    if let Some(Wanted::Segment(wanted)) = &mut self.wanted {
                        wanted.is_of_old_count = true;
                    }
                }
                // The segment that is being requested is not missed yet.
                let next = match &self.wanted {
                    Some(Wanted::Segment(wanted)) if !wanted.is_of_old_count => {
                        self.sequence.max(wanted.sequence.saturating_add(1))
                    }
                    _ => self.sequence,
                };
                update.missed = playlist.media_sequence.saturating_sub(next);
            }
        }
        if update.missed > 0 {
            update.missed_text = Some(format!(
                "{} segments had left the playlist before they were requested, from number {} on: \
                 {}",
                update.missed,
                playlist.media_sequence - update.missed,
                self.url
            ));
            self.sequence = playlist.media_sequence;
        }
        let wait = match update.is_unchanged {
            true => playlist.target_duration / 2,
            false => playlist.target_duration,
        };
        self.reload_at = (!playlist.is_ended).then_some(self.requested_at + wait);
        self.playlist = Some(playlist);
        update
    }

    /// Time after which a playlist that could not be had is requested again.
    pub(super) fn retry_after(&self) -> Duration {
        let target = self.playlist.as_ref().map(|own| own.target_duration / 2);
        target.unwrap_or(Duration::from_secs(1))
    }

    /// Returns how far playback must have come for the next segment to find room in the buffer;
    /// `None` if there is none yet, or if another is being requested.
    pub(super) fn room_at(&self, buffer_max: Duration) -> Option<Duration> {
        let segment = self.playlist.as_ref()?.segment(self.sequence)?;
        let end = self.end.saturating_add(segment.duration);
        // A segment is requested while the one before it plays, however long they are.
        let buffer_max = buffer_max.max(segment.duration.saturating_mul(2));
        (!self.media.is_busy()).then(|| end.saturating_sub(buffer_max))
    }

    /// Returns what to do with this room.
    pub(super) fn next(&mut self, room: Room) -> Next {
        let room_at = self.room_at(room.buffer_max);
        let needed_until = room.needed.map(|needed| room.position + needed);
        let is_needed = needed_until.is_some_and(|until| self.end <= until);
        let has_room = room_at.is_some_and(|room_at| room_at <= room.position);
        let Some(playlist) = &self.playlist else {
            return Next::Nothing;
        };
        if self.media.is_busy() || self.is_over {
            return Next::Nothing;
        }
        let Some(segment) = playlist.segment(self.sequence) else {
            return match playlist.is_ended {
                true => Next::Over,
                false => Next::Nothing,
            };
        };
        if segment.is_gap {
            self.sequence += 1;
            return Next::Gap;
        }
        if !is_needed && !has_room {
            return Next::Nothing;
        }
        match &segment.map {
            Some(map) if self.map.as_ref() != Some(map) => Next::Fetch {
                uri: map.uri.clone(),
                range: map.range,
                wanted: Wanted::Map(map.clone()),
            },
            _ => Next::Fetch {
                uri: segment.uri.to_string(),
                range: segment.range,
                wanted: Wanted::Segment(WantedSegment {
                    sequence: self.sequence,
                    duration: segment.duration,
                    date: segment.date,
                    is_discontinuous: segment.is_discontinuous,
                    is_encrypted: segment.is_encrypted,
                    is_of_old_count: false,
                }),
            },
        }
    }

    /// True if the complete body can be what was requested. Of an encrypted one only the length is
    /// known.
    pub(super) fn is_media(&self) -> bool {
        match &self.wanted {
            Some(Wanted::Segment(segment)) if segment.is_encrypted => !self.content.is_empty(),
            _ => self.content.is_media(),
        }
    }

    /// Returns the purpose of the request, whose response is complete.
    pub(super) fn take_wanted(&mut self) -> Option<Wanted> {
        let wanted = self.wanted.take();
        match &wanted {
            Some(Wanted::Segment(segment)) => self.pass(*segment),
            Some(Wanted::Map(map)) => self.map = Some(map.clone()),
            None => {}
        }
        wanted
    }

    fn pass(&mut self, segment: WantedSegment) {
        if !segment.is_of_old_count {
            self.sequence = self.sequence.max(segment.sequence.saturating_add(1));
        }
    }

    /// Gives up the segment that was requested, or is next.
    pub(super) fn skip(&mut self) {
        match self.wanted.take() {
            Some(Wanted::Segment(segment)) => self.pass(segment),
            // The initialization section failed, or the URL of the segment cannot be requested.
            Some(Wanted::Map(_)) | None => self.sequence = self.sequence.saturating_add(1),
        }
    }
}
