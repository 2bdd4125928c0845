//! Sources: media that clients publish.

use std::path::PathBuf;
use std::sync::Arc;

use measure::units::BitRate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clip::{Clip, FrameRate};
use super::h264::H264Settings;
use super::rtp::Pacing;

/// What is published: a made video, with a tone beside it where one is wanted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SourceConfig {
    /// Bit rate of the video: RTP payload, without headers. Default: 1Mbps.
    pub bitrate: BitRate,
    /// Pictures per second. Default: 25.
    pub frame_rate: FrameRate,
    /// Pictures from one IDR picture to the next. Default: as many as two seconds have.
    pub gop: Option<u32>,
    /// Whether there is audio too: G.711 mu-law, 64 kb/s beside the video's bit rate. Default: false.
    pub audio: bool,
    /// The longest RTP payload in bytes. Default: 1400.
    pub mtu: usize,
    /// How the packets of a picture leave: `at_once` when it is due, as from an encoder (default), or `spread` over the time
    /// until the next.
    pub pacing: Pacing,
}

impl Default for SourceConfig {
    fn default() -> SourceConfig {
        SourceConfig {
            bitrate: BitRate(1_000_000),
            frame_rate: FrameRate::whole(25),
            gop: None,
            audio: false,
            mtu: 1400,
            pacing: Pacing::AtOnce,
        }
    }
}

/// The shortest payload that is taken: a time code behind parameter sets fits in.
const MTU_MIN: usize = 256;

impl SourceConfig {
    /// What is wrong with the values, if anything. That the bit rate is possible is only known when the source is made.
    pub fn check(&self) -> Result<(), String> {
        if self.mtu < MTU_MIN {
            return Err(format!("`mtu` must be at least {MTU_MIN} bytes"));
        }
        if self.gop == Some(0) {
            return Err("`gop` must be at least one picture".to_owned());
        }
        Ok(())
    }

    /// The file that the media comes from, where it does.
    pub fn file(&self) -> Option<&PathBuf> {
        None
    }
}

/// Media to publish, made once and shared by all that publish it.
#[derive(Clone, Debug)]
pub struct Source {
    /// Each media, in the order of the description. At least one.
    pub clips: Vec<Arc<Clip>>,
    /// How the packets of a frame leave.
    pub pacing: Pacing,
}

impl Source {
    /// Makes the media. Takes up to some seconds where the bit rate is very high.
    ///
    /// # Errors
    /// No video can be made by the settings; the text says why.
    pub fn new(config: &SourceConfig) -> Result<Source, String> {
        let rate = config.frame_rate;
        let two_seconds = (2 * rate.numerator()).div_ceil(rate.denominator()).max(1);
        let video = Clip::coded_video(&H264Settings {
            bits_per_second: config.bitrate.0,
            frame_rate: rate,
            gop: config.gop.unwrap_or(two_seconds),
            mtu: config.mtu,
        })
        .map_err(|error| error.to_string())?;
        let mut clips = vec![Arc::new(video)];
        if config.audio {
            clips.push(Arc::new(Clip::audio()));
        }
        Ok(Source {
            clips,
            pacing: config.pacing,
        })
    }
}
