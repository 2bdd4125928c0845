//! Scenario keys of LiveKit: which it needs, and which it does not know.

use crate::config::{ClientConfig, refuse_if};
use crate::signalling::janus::room_config::Subscribe;
use kit::keys::KeyError;

impl ClientConfig {
    /// Checks the keys for LiveKit rooms. Returns the invalid key and the reason.
    pub(crate) fn check_for_livekit(&self) -> Result<(), KeyError> {
        let has_key = self.api_key.is_some() && self.api_secret.is_some();
        let text = "LiveKit requires a token; set `api_key` and `api_secret`, with which each \
                    client makes its own, or `token`";
        refuse_if(!self.has_token() && !has_key, "api_key", text)?;
        let text = "LiveKit sends all media over one PeerConnection; set `subscribe` to \
                    `together` or `nobody`";
        refuse_if(self.subscribe == Subscribe::Each, "subscribe", text)?;
        for (key, written) in [("room", self.room.is_some()), ("pin", self.pin.is_some())] {
            if written {
                let text = format!("`{key}` is for Janus; LiveKit creates rooms on demand");
                return Err((key, text));
            }
        }
        self.check_room()
    }
}
