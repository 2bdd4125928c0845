//! Other participants of the room, and whether they publish.

use std::collections::{BTreeMap, BTreeSet};

use measure::Time;

use super::message::{ParticipantInfo, ParticipantState, TrackType};
use crate::signalling::FEEDS_MAX;

/// Maximum length of the id of a participant or track that is kept, in bytes. Servers choose ids.
const SID_MAX: usize = 256;

/// Maximum number of tracks in each collection of [`RoomState`].
const TRACKS_MAX: usize = 2 * FEEDS_MAX;

/// State of the client's room.
#[derive(Debug, Default)]
pub(super) struct RoomState {
    /// Id of the client.
    pub(super) own_sid: Option<String>,
    /// Participants that publish.
    publishers: BTreeSet<String>,
    /// Tracks of each participant.
    tracks: BTreeMap<String, Vec<String>>,
    /// Number of tracks in `tracks`.
    track_count: usize,
    /// Times until which tracks were muted by their publishers: [`Time::NEVER`] while they are.
    muted: BTreeMap<String, Time>,
    /// Video tracks that [`RoomState::new_videos`] has returned.
    known_videos: BTreeSet<String>,
    /// Reasons why tracks are not delivered.
    pub(super) missing: BTreeMap<String, String>,
}

impl RoomState {
    /// Returns `true` if another participant publishes.
    pub(super) fn has_publishers(&self) -> bool {
        !self.publishers.is_empty()
    }

    /// Returns the number of participants that publish.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.publishers.len()
    }

    /// Handles participants that have joined, changed or left.
    pub(super) fn update(&mut self, now: Time, participants: &[ParticipantInfo]) {
        for participant in participants {
            let sid = &participant.sid;
            if self.own_sid.as_ref() == Some(sid) || sid.len() > SID_MAX {
                continue;
            }
            let is_gone = participant.state == ParticipantState::Disconnected as i32;
            self.update_tracks(participant, is_gone);
            for track in &participant.tracks {
                let has_room = self.muted.len() < TRACKS_MAX;
                match (track.muted && !is_gone, self.muted.get_mut(&track.sid)) {
                    (true, Some(until)) => *until = Time::NEVER,
                    (true, None) if has_room && track.sid.len() <= SID_MAX => {
                        self.muted.insert(track.sid.clone(), Time::NEVER);
                    }
                    (false, Some(until)) if *until == Time::NEVER => *until = now,
                    _ => {}
                }
            }
            let sends = participant
                .tracks
                .iter()
                .any(|track| !track.muted && track.kind != TrackType::Data as i32);
            if !sends || is_gone {
                self.publishers.remove(sid);
            } else if self.publishers.len() < FEEDS_MAX {
                self.publishers.insert(sid.clone());
            }
        }
    }

    /// Keeps the tracks of a participant, and forgets those that it no longer has.
    fn update_tracks(&mut self, participant: &ParticipantInfo, is_gone: bool) {
        let sid = &participant.sid;
        let before = self.tracks.remove(sid).unwrap_or_default();
        self.track_count -= before.len();
        let room = TRACKS_MAX - self.track_count;
        let tracks = participant.tracks.iter().map(|track| &track.sid);
        let tracks = tracks.filter(|track| !is_gone && track.len() <= SID_MAX);
        let now: Vec<String> = tracks.take(room).cloned().collect();
        let known: BTreeSet<&String> = now.iter().collect();
        for track in before.iter().filter(|track| !known.contains(track)) {
            self.missing.remove(track);
            self.known_videos.remove(track);
        }
        self.track_count += now.len();
        if !now.is_empty() {
            self.tracks.insert(sid.clone(), now);
        }
    }

    /// Returns the time until which its publisher had muted a track. `None` if it never did.
    pub(super) fn muted_until(&self, track: &str) -> Option<Time> {
        self.muted.get(track).copied()
    }

    /// Records why a track is not delivered. Tracks that no participant has are ignored.
    pub(super) fn set_missing(&mut self, track: &str, why: String) {
        let mut all = self.tracks.values().flatten();
        if all.any(|known| known == track) {
            self.missing.insert(track.to_owned(), why);
        }
    }

    /// Returns the video tracks of other participants that it has not returned before.
    pub(super) fn new_videos(&mut self, participants: &[ParticipantInfo]) -> Vec<String> {
        let others = participants
            .iter()
            .filter(|own| self.own_sid.as_ref() != Some(&own.sid));
        let tracks = others.flat_map(|own| &own.tracks);
        let videos = tracks.filter(|track| track.kind == TrackType::Video as i32);
        let known = &mut self.known_videos;
        let is_new = |sid: &&String| {
            let has_room = known.len() < TRACKS_MAX && sid.len() <= SID_MAX;
            has_room && known.insert((*sid).clone())
        };
        let new = videos.map(|track| &track.sid).filter(is_new);
        new.cloned().collect()
    }
}
