//! Who else is in the room, and whether they send anything.

use std::collections::{BTreeMap, BTreeSet};

use measure::Time;

use super::message::{ParticipantInfo, ParticipantState, TrackType};
use crate::webrtc::signalling::FEEDS_MAX;

/// The longest name of a participant that is kept, in bytes. Servers draw them.
const SID_MAX: usize = 256;

/// The most tracks of which it is kept that they were muted, or will not come.
const TRACKS_MAX: usize = 2 * FEEDS_MAX;

/// What a client knows of its room.
#[derive(Debug, Default)]
pub(super) struct Room {
    own: Option<String>,
    /// Those who send something.
    feeds: BTreeSet<String>,
    /// The tracks of each of them, and how many they are.
    tracks: BTreeMap<String, Vec<String>>,
    count: usize,
    /// Until when the publishers of tracks had muted them: [`Time::NEVER`] while they do.
    muted: BTreeMap<String, Time>,
    /// Tracks of pictures that were told of as new.
    videos: BTreeSet<String>,
    /// Why tracks will not come.
    missing: BTreeMap<String, String>,
}

impl Room {
    /// The client is in it, under that name.
    pub(super) fn enter(&mut self, own: Option<String>) {
        self.own = own;
    }

    /// Whether somebody else sends something.
    pub(super) fn is_busy(&self) -> bool {
        !self.feeds.is_empty()
    }

    /// How many that are known of.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.feeds.len()
    }

    /// These are there, have changed, or have left.
    pub(super) fn update(&mut self, now: Time, participants: &[ParticipantInfo]) {
        for participant in participants {
            let sid = &participant.sid;
            if self.own.as_ref() == Some(sid) || sid.len() > SID_MAX {
                continue;
            }
            let is_gone = participant.state == ParticipantState::Disconnected as i32;
            self.list(participant, is_gone);
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
            match sends && !is_gone {
                true if self.feeds.len() < FEEDS_MAX => drop(self.feeds.insert(sid.clone())),
                true => {}
                false => drop(self.feeds.remove(sid)),
            }
        }
    }

    /// Keeps which tracks somebody has, and forgets what was known of those that are no more.
    fn list(&mut self, participant: &ParticipantInfo, is_gone: bool) {
        let sid = &participant.sid;
        let before = self.tracks.remove(sid).unwrap_or_default();
        self.count -= before.len();
        let room = TRACKS_MAX - self.count;
        let tracks = participant.tracks.iter().map(|track| &track.sid);
        let tracks = tracks.filter(|track| !is_gone && track.len() <= SID_MAX);
        let now: Vec<String> = tracks.take(room).cloned().collect();
        let known: BTreeSet<&String> = now.iter().collect();
        for track in before.iter().filter(|track| !known.contains(track)) {
            self.missing.remove(track);
            self.videos.remove(track);
        }
        self.count += now.len();
        if !now.is_empty() {
            self.tracks.insert(sid.clone(), now);
        }
    }

    /// Until when the publisher of a track had muted it; none where they never did.
    pub(super) fn muted_until(&self, track: &str) -> Option<Time> {
        self.muted.get(track).copied()
    }

    /// A track will not come: of those that somebody has.
    pub(super) fn will_not_come(&mut self, track: &str, why: String) {
        let mut all = self.tracks.values().flatten();
        if all.any(|known| known == track) {
            self.missing.insert(track.to_owned(), why);
        }
    }

    /// The tracks that will not come, and why.
    pub(super) fn missing(&self) -> &BTreeMap<String, String> {
        &self.missing
    }

    /// The tracks of pictures among what others have that were not told of before.
    pub(super) fn new_videos(&mut self, participants: &[ParticipantInfo]) -> Vec<String> {
        let others = participants
            .iter()
            .filter(|own| self.own.as_ref() != Some(&own.sid));
        let tracks = others.flat_map(|own| &own.tracks);
        let videos = tracks.filter(|track| track.kind == TrackType::Video as i32);
        let known = &mut self.videos;
        let is_new = |sid: &&String| {
            let has_room = known.len() < TRACKS_MAX && sid.len() <= SID_MAX;
            has_room && known.insert((*sid).clone())
        };
        let new = videos.map(|track| &track.sid).filter(is_new);
        new.cloned().collect()
    }
}
