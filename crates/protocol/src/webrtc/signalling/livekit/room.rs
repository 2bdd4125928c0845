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
    /// Until when the publishers of tracks had muted them: [`Time::NEVER`] while they do.
    muted: BTreeMap<String, Time>,
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

    /// Until when the publisher of a track had muted it; none where he never did.
    pub(super) fn muted_until(&self, track: &str) -> Option<Time> {
        self.muted.get(track).copied()
    }

    /// A track will not come.
    pub(super) fn will_not_come(&mut self, track: &str, why: String) {
        if self.missing.len() < TRACKS_MAX && track.len() <= SID_MAX {
            self.missing.insert(track.to_owned(), why);
        }
    }

    /// The tracks that will not come, and why.
    pub(super) fn missing(&self) -> &BTreeMap<String, String> {
        &self.missing
    }
}
