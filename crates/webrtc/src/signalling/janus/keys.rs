//! Scenario keys of rooms and mount points: what fits together, and to which URLs.

use serde_json::Value;

use super::room_config::{RoomConfig, Subscribe};
use crate::config::{ClientConfig, refuse_if};
use kit::keys::KeyError;

impl ClientConfig {
    /// Checks the keys about the media of a room. Returns the invalid key and the reason.
    pub(crate) fn check_room_keys(&self) -> Result<(), KeyError> {
        let is_unused = self.layer.is_some() && self.subscribe == Subscribe::Nobody;
        let text = "`layer` has no effect with `subscribe: nobody`; remove one of them";
        refuse_if(is_unused, "layer", text)?;
        let text = "`last_n` must be at least 1";
        refuse_if(self.last_n == Some(0), "last_n", text)?;
        let is_apart = self.last_n.is_some() && self.subscribe != Subscribe::Together;
        let text = "`last_n` needs `subscribe: together`";
        refuse_if(is_apart, "last_n", text)
    }

    pub(crate) fn check_feed(&self) -> Result<(), KeyError> {
        let Some(source) = &self.feed else {
            return Ok(());
        };
        let with = [
            ("publish", self.publish.is_some()),
            ("participate", self.participate.is_some()),
            ("golden", self.golden.is_some()),
            ("turn", self.turn.is_some()),
            ("congestion", self.follows_congestion()),
        ];
        if let Some((key, _)) = with.into_iter().find(|(_, written)| *written) {
            let text = "this key cannot be combined with `feed`, which sends plain RTP to a mount \
                        point; remove one of them";
            return Err((key, text.to_owned()));
        }
        let text = "`feed` supports neither `simulcast` nor `talk`; remove them";
        refuse_if(source.simulcast || source.talk.is_some(), "feed", text)
    }

    /// Checks the keys for a Janus mount point, or, if `is_one` is false, for any other URL.
    /// Returns the invalid key and the reason.
    pub(crate) fn check_mountpoint(&self, is_one: bool) -> Result<(), KeyError> {
        let text = "`feed` is for Janus mount points (`janus+ws://HOST/streaming/ID`)";
        refuse_if(self.feed.is_some() && !is_one, "feed", text)?;
        let text = "`participate` is for rooms; use `feed` for a mount point";
        refuse_if(self.participate.is_some() && is_one, "participate", text)?;
        let text = "`publish` is for WHIP; use `feed` for a mount point";
        refuse_if(self.publish.is_some() && is_one, "publish", text)
    }

    /// Checks the keys for a Janus room. Returns the invalid key and the reason.
    pub(crate) fn check_room(&self) -> Result<(), KeyError> {
        let text = "`publish` is for WHIP; use `participate` in rooms";
        refuse_if(self.publish.is_some(), "publish", text)
    }

    /// Returns the body of the request that creates the room, if `room` is set.
    pub(crate) fn room_request(&self) -> Option<Value> {
        let room = self.room.as_ref();
        room.map(RoomConfig::request)
    }

    /// Checks the keys for URLs that are not Janus rooms; `of_livekit` is true for LiveKit rooms.
    /// Returns the invalid key and the reason.
    pub(crate) fn check_without_janus_room(&self, of_livekit: bool) -> Result<(), KeyError> {
        let text = "`layer` is for rooms of Janus or LiveKit; remove it";
        refuse_if(self.layer.is_some() && !of_livekit, "layer", text)?;
        let text = "`last_n` is for Janus rooms; remove it";
        refuse_if(self.last_n.is_some(), "last_n", text)
    }
}
