//! Who else is in the room, and whether they send anything.

use std::collections::BTreeSet;

use super::message::{ParticipantInfo, ParticipantState, TrackType};
use crate::webrtc::signalling::FEEDS_MAX;

/// The longest name of a participant that is kept, in bytes. Servers draw them.
const SID_MAX: usize = 256;

/// What a client knows of its room.
#[derive(Debug, Default)]
pub(super) struct Room {
    own: Option<String>,
    /// Those who send something.
    feeds: BTreeSet<String>,
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
    pub(super) fn update(&mut self, participants: &[ParticipantInfo]) {
        for participant in participants {
            let sid = &participant.sid;
            if self.own.as_ref() == Some(sid) || sid.len() > SID_MAX {
                continue;
            }
            let is_gone = participant.state == ParticipantState::Disconnected as i32;
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
}
