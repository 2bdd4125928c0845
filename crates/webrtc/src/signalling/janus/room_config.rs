//! Keys of Janus rooms: `room`, for a room that a run creates, and `subscribe`.

use measure::units::BitRate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// How a client in a room receives the other participants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Subscribe {
    /// All over one PeerConnection.
    #[default]
    Together,
    /// Each over its own PeerConnection.
    Each,
    /// Other participants are not received.
    Nobody,
}

/// Room of the Janus VideoRoom plugin that the run creates if it does not exist.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RoomConfig {
    /// Maximum number of publishers. Default: 1000.
    pub publishers: u32,
    /// Bit rate limit that Janus requests from publishers. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bitrate: Option<BitRate>,
    /// Accepted video codecs, such as `h264` or `vp8,h264`. Default: h264,vp8,vp9.
    pub video_codecs: String,
    /// Accepted audio codecs, such as `opus` or `pcmu`. Default: pcmu,opus.
    pub audio_codecs: String,
}

impl Default for RoomConfig {
    fn default() -> RoomConfig {
        RoomConfig {
            publishers: 1000,
            bitrate: None,
            video_codecs: "h264,vp8,vp9".to_owned(),
            audio_codecs: "pcmu,opus".to_owned(),
        }
    }
}

impl RoomConfig {
    /// Returns the body of the request that creates the room. The room reports speakers to all
    /// participants, after half a second of audio louder than -50 dBov, because other participants
    /// may need these reports.
    pub(crate) fn request(&self) -> Value {
        let bitrate = self.bitrate.map_or(0, |BitRate(rate)| rate);
        json!({
            "permanent": false,
            "publishers": self.publishers,
            "bitrate": bitrate,
            "videocodec": self.video_codecs,
            "audiocodec": self.audio_codecs,
            "fir_freq": 0,
            "audiolevel_event": true,
            "audio_active_packets": 25,
            "audio_level_average": 50,
        })
    }
}
