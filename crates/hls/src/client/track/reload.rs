//! Reloads of the playlist of a track.

use std::time::Duration;

use measure::Time;

use super::hints::Wasted;
use super::{ROUNDING, Track, Wanted};
use crate::config::{ClientConfig, LowLatency};
use crate::connection::Refusal;
use crate::playlist::{MediaPlaylist, Place, SEGMENTS_MAX};

/// Number of segments by which the playlist of one variant may be behind that of another.
const AHEAD_MAX: u64 = 3;

/// Minimum interval between requests for a playlist, however fast the server answers.
const RELOAD_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Number of segments above which a playlist that goes on cannot have lost them: the server has
/// begun to count again, at a higher number.
const MISSED_MAX: u64 = SEGMENTS_MAX as u64;

/// Number of target durations after which a playlist that grows, and ends far before the next
/// segment, is no older one from a cache: the server has begun to count again.
const BEHIND_TARGETS: u32 = 3;

/// Maximum difference between the stated dates of the same segment in two playlists.
const DATES_MAX: Duration = Duration::from_secs(1);

/// How a playlist differs from the one before.
#[derive(Debug, Default)]
pub(in crate::client) struct Update {
    pub(in crate::client) is_unchanged: bool,
    pub(in crate::client) is_stale: bool,
    pub(in crate::client) is_backwards: bool,
    /// True if the server answered before it had what the request waited for.
    pub(in crate::client) is_short: bool,
    /// Hints that are of no use, because the playlist does not list them.
    pub(in crate::client) wasted: [Option<Wasted>; 2],
    /// Words for a note, if the server has begun to count its segments again.
    pub(in crate::client) restarted: Option<String>,
    /// Number of segments that were not requested in time.
    pub(in crate::client) missed: u64,
    /// Position at which playback begins, if it is to begin.
    pub(in crate::client) start: Option<Duration>,
    /// Words for a note.
    pub(in crate::client) missed_text: Option<String>,
    /// Why the next segment was to be requested again, if it has left the playlist meanwhile.
    pub(in crate::client) given_up: Option<Refusal>,
}

impl Track {
    /// True if the player plays the parts of segments.
    pub(in crate::client) fn is_in_parts(&self, config: &ClientConfig) -> bool {
        config.low_latency != LowLatency::None
            && self
                .playlist
                .as_ref()
                .is_some_and(MediaPlaylist::is_low_latency)
    }

    /// Takes a playlist, and plans when to request it again (RFC 8216, 6.3.4).
    pub(in crate::client) fn update(
        &mut self,
        now: Time,
        playlist: MediaPlaylist,
        config: &ClientConfig,
    ) -> Update {
        let in_parts = config.low_latency != LowLatency::None && playlist.is_low_latency();
        let distance = self.begin_distance(&playlist, config, in_parts);
        let mut update = Update::default();
        match &self.playlist {
            None => {
                // The variants of a stream number their segments alike (RFC 8216, 6.2.4), but may
                // have them at slightly other times.
                let begin = playlist.media_sequence.saturating_sub(MISSED_MAX);
                let end = playlist.end_sequence().saturating_add(AHEAD_MAX);
                match self.has_begun && (begin..=end).contains(&self.next.sequence) {
                    true => {
                        let first = playlist.media_sequence;
                        update.missed = first.saturating_sub(self.next.sequence);
                        if in_parts {
                            self.find_part(&playlist);
                        }
                    }
                    false => self.begin_at(&playlist, playlist.start(distance, in_parts)),
                }
                if !self.has_begun {
                    update.start = Some(playlist.lead(distance, in_parts));
                }
                self.has_begun = true;
                self.newest = playlist.end();
                self.changed_at = now;
            }
            Some(before) => {
                let place = |playlist: &MediaPlaylist| {
                    (playlist.media_sequence, playlist.end(), playlist.is_ended)
                };
                update.is_unchanged = place(before) == place(&playlist);
                update.is_backwards = playlist.end() < before.end();
                match update.is_unchanged {
                    false => self.changed_at = now,
                    true => {
                        let same_for = now.since(self.changed_at);
                        update.is_stale =
                            !playlist.is_ended && same_for > playlist.target_duration.mul_f64(1.5);
                    }
                }
                // An older playlist, as from a cache, has segments in common with the one before.
                let is_other =
                    playlist.end_sequence() <= before.media_sequence || differs(before, &playlist);
                let is_behind = !playlist.is_ended && playlist.end_sequence() < self.next.sequence;
                let behind_since = *self.behind_since.get_or_insert(now);
                self.behind_since = is_behind.then_some(behind_since);
                let behind = self.next.sequence.saturating_sub(playlist.end_sequence());
                let behind = u32::try_from(behind).unwrap_or(u32::MAX);
                let target = playlist.target_duration;
                // The player would fail before the playlist has what is next.
                let is_left = is_behind
                    && self.changed_at > behind_since
                    && now.since(behind_since) >= BEHIND_TARGETS * target
                    && target.saturating_mul(behind) > config.silence.0;
                let is_restart = update.is_backwards && is_other
                    || is_left
                    || playlist.media_sequence.saturating_sub(self.next.sequence) > MISSED_MAX;
                self.newest = self.newest.max(playlist.end());
                if is_restart {
                    update.restarted = Some(format!(
                        "segments are counted again: the playlist ended with number {} before, and \
                         does with {} now: {}",
                        before.end_sequence().saturating_sub(1),
                        playlist.end_sequence().saturating_sub(1),
                        self.url
                    ));
                    self.behind_since = None;
                    self.newest = playlist.end();
                    self.begin_at(&playlist, playlist.start(distance, in_parts));
                    if let Some(Wanted::Piece(wanted)) = &mut self.wanted {
                        wanted.is_of_old_count = true;
                    }
                }
                // The segment that is being requested is not missed yet.
                let next = match &self.wanted {
                    Some(Wanted::Piece(wanted)) if !wanted.is_of_old_count => {
                        self.next.max(wanted.after)
                    }
                    _ => self.next,
                };
                update.missed = playlist.media_sequence.saturating_sub(next.sequence);
            }
        }
        let first = Place {
            sequence: playlist.media_sequence,
            part: 0,
        };
        if update.missed > 0 && self.attempts.next_at().is_some() {
            update.given_up = self.attempts.forget();
            update.missed -= u64::from(update.given_up.is_some());
            self.go_to(first);
        }
        if update.missed > 0 {
            update.missed_text = Some(format!(
                "{} segments had left the playlist before they were requested, from number {} on: \
                 {}",
                update.missed,
                playlist.media_sequence - update.missed,
                self.url
            ));
            self.go_to(first);
        }
        update.is_short = !playlist.is_ended
            && self.awaited.is_some_and(|awaited| match in_parts {
                true => playlist.end() <= awaited,
                false => playlist.end_sequence() <= awaited.sequence,
            });
        let can_block = config.low_latency != LowLatency::None && playlist.control.can_block_reload;
        let wait = match (can_block, update.is_unchanged || update.is_short) {
            (true, false) => Duration::ZERO,
            // The server does not wait: it is not asked again at once.
            (true, true) if in_parts => playlist.part_target.unwrap_or(playlist.target_duration),
            (_, true) => playlist.target_duration / 2,
            (false, false) => playlist.target_duration,
        };
        let reload_at = match can_block {
            true => (now + wait).max(self.requested_at + RELOAD_INTERVAL_MIN),
            false => self.requested_at + wait,
        };
        self.reload_at = (!playlist.is_ended).then_some(reload_at);
        self.target = playlist.target_duration;
        self.playlist = Some(playlist);
        update.wasted = self.match_hints(in_parts);
        update
    }

    /// Returns the distance from the end of a playlist at which playback begins. `None`: the usual
    /// one (RFC 8216, 6.3.3).
    fn begin_distance(
        &self,
        playlist: &MediaPlaylist,
        config: &ClientConfig,
        in_parts: bool,
    ) -> Option<Duration> {
        let wanted = config.live_distance.filter(|_| !playlist.is_ended);
        let stated = self.start_offset.or(playlist.start_offset);
        let stated = || Some(playlist.distance_of(stated?, in_parts));
        wanted.map(|distance| distance.0).or_else(stated)
    }

    /// Goes to a place of a playlist.
    fn begin_at(&mut self, playlist: &MediaPlaylist, place: Place) {
        self.go_to(place);
        let before = playlist.parts_of(place.sequence).iter();
        let before = before.take_while(|part| part.place < place);
        let offset = before.map(|part| part.media.duration).sum();
        self.parts_before = (offset, 0);
    }

    /// Goes on within the next segment, of which parts were played, with the parts of another
    /// playlist: with the part that has the end of what was played.
    fn find_part(&mut self, playlist: &MediaPlaylist) {
        let parts = playlist.parts_of(self.next.sequence);
        if self.next.part == 0 || parts.is_empty() {
            return;
        }
        let played = self.parts_before.0;
        let (mut begin, mut count) = (Duration::ZERO, 0);
        for part in parts {
            let end = begin + part.media.duration;
            if end > played + ROUNDING {
                break;
            }
            (begin, count) = (end, count + 1);
        }
        self.next.part = count;
        self.parts_before.0 = begin;
        self.hidden += played.saturating_sub(begin);
    }

    /// Returns what the next request for the playlist waits for, and whether the server may leave
    /// out segments that the player has (rfc8216bis, 6.2.5).
    pub(in crate::client) fn plan_request(&mut self, now: Time, config: &ClientConfig) {
        (self.awaited, self.may_skip) = (None, false);
        self.names_reported = false;
        if std::mem::take(&mut self.asks_plainly) {
            return;
        }
        let in_parts = self.is_in_parts(config);
        let Some(playlist) = &self.playlist else {
            return;
        };
        if config.low_latency == LowLatency::None || !playlist.control.can_block_reload {
            return;
        }
        // A playlist that is older than the one before says nothing new.
        let mut awaited = playlist.end().max(self.newest);
        if !in_parts {
            awaited.part = 0;
        }
        self.awaited = Some(awaited);
        // A playlist that is older may have lost segments that the update leaves out.
        let age = now.since(self.requested_at);
        let can_skip_until = playlist.control.can_skip_until;
        self.may_skip = !self.must_be_whole && can_skip_until.is_some_and(|until| age < until / 2);
    }

    /// Returns the parameters of a request for the playlist that waits for a place, or for the end
    /// that another playlist has reported (rfc8216bis, 6.2.5). `None` if it waits for nothing.
    pub(in crate::client) fn directives(&mut self, config: &ClientConfig) -> Option<String> {
        let reported = self.reported.take();
        let (sequence, part) = match self.awaited {
            Some(awaited) => {
                let in_parts = self.is_in_parts(config);
                (awaited.sequence, in_parts.then_some(awaited.part))
            }
            None => {
                self.names_reported = reported.is_some();
                reported?
            }
        };
        let mut directives = format!("_HLS_msn={sequence}");
        if let Some(part) = part {
            directives += &format!("&_HLS_part={part}");
        }
        if self.may_skip {
            directives += "&_HLS_skip=YES";
        }
        Some(directives)
    }

    /// Maximum interval at which the server adds what a request for the playlist waits for.
    pub(in crate::client) fn cadence(&self, config: &ClientConfig) -> Option<Duration> {
        let playlist = self.playlist.as_ref()?;
        let part_target = playlist.part_target.filter(|_| self.is_in_parts(config));
        Some(part_target.unwrap_or(playlist.target_duration))
    }

    /// Returns the distance from a position to the end of the playlist.
    pub(in crate::client) fn distance(
        &self,
        position: Duration,
        config: &ClientConfig,
    ) -> Option<Duration> {
        let in_parts = self.is_in_parts(config);
        let ahead = match self.piece(in_parts) {
            Some((place, _)) => self.playlist.as_ref()?.duration_from(place, in_parts),
            None => Duration::ZERO,
        };
        Some(self.end.saturating_add(ahead).saturating_sub(position))
    }

    /// Time after which a playlist that could not be had is requested again.
    pub(in crate::client) fn retry_after(&self) -> Duration {
        match self.target.is_zero() {
            true => Duration::from_secs(1),
            false => self.target / 2,
        }
    }

    /// Returns how long the server may wait before it answers a request for what does not exist
    /// yet: three target durations (rfc8216bis, 6.2.5.2).
    pub(in crate::client) fn patience(&self) -> Duration {
        3 * self.target
    }
}

/// True if a segment that two playlists have in common is not the same: the server has begun to
/// count again.
fn differs(before: &MediaPlaylist, now: &MediaPlaylist) -> bool {
    let mut common = now
        .numbered()
        .filter_map(|(now, at)| Some((before.segment(at)?, now)));
    common.any(|(before, now)| {
        let dates = before.stated_date().zip(now.stated_date());
        let apart = dates.map(|(before, now)| before.abs_diff(now));
        now.is_renamed(before) || apart.is_some_and(|apart| apart > DATES_MAX)
    })
}
