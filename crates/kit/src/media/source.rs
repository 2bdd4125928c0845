//! Media sources that clients publish.

use std::path::PathBuf;
use std::sync::Arc;

use measure::units::BitRate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rtp::Pacing;
use super::talk::TalkConfig;
use crate::mediagen::clip::Clip;
use crate::mediagen::file;
use crate::mediagen::frame_rate::FrameRate;
use crate::mediagen::ladder::Ladder;
use crate::mediagen::picture_size::PictureSize;
use crate::mediagen::video::{PictureForm, Profile, SettingsError, VideoSettings};
use crate::mediagen::vp8::Vp8Stream;

/// A profile of H.264 (A.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VideoProfile {
    /// Constrained Baseline.
    #[default]
    Baseline,
    /// Main, with CAVLC.
    Main,
}

impl From<VideoProfile> for Profile {
    fn from(profile: VideoProfile) -> Profile {
        match profile {
            VideoProfile::Baseline => Profile::Baseline,
            VideoProfile::Main => Profile::Main,
        }
    }
}

/// Codec of generated audio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AudioCodec {
    /// G.711, mu-law: a tone of 64 kb/s.
    Pcmu,
    /// Opus: silence of 32 kb/s, coded at that rate.
    Opus,
}

/// Codec of generated video.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VideoCodec {
    /// H.264.
    #[default]
    H264,
    /// VP8.
    Vp8,
}

/// Published media: generated video, optionally with audio, or a file that is repeated endlessly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SourceConfig {
    /// File to publish in a loop without a pause between repetitions: MP4 or MPEG-TS with H.264 and
    /// optional AAC; for WebRTC also WebM (VP8 or VP9, and Opus), IVF, and Janus recordings (.mjr).
    /// At most 512 MiB and one hour. A relative path is relative to the scenario file. Default:
    /// none, the media is generated.
    pub file: Option<PathBuf>,
    /// Bit rate of the generated video: RTP payload, without headers. Default: 1Mbps.
    pub bitrate: Option<BitRate>,
    /// Frame rate of the generated video, in pictures per second. Default: 25.
    pub frame_rate: Option<FrameRate>,
    /// Number of pictures from one key frame to the next in the generated video. Default: the
    /// pictures of two seconds.
    pub gop: Option<u32>,
    /// Width and height of the generated video, such as 1280x720: both even, from 48 to 4096.
    /// Default: the largest size that leaves nine tenths of the bit rate to picture content, at
    /// most 1920x1080.
    pub size: Option<PictureSize>,
    /// H.264 profile of the generated video: `baseline` (Constrained Baseline) or `main` (with
    /// CAVLC). Default: baseline.
    pub profile: Option<VideoProfile>,
    /// Codec of the generated video, WebRTC only: `h264` (default) or `vp8`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub video_codec: Option<VideoCodec>,
    /// Publishes audio as well. Generated audio is G.711 mu-law at 64 kb/s, in addition to the
    /// video's bit rate; default: false. A `file` provides its own audio; default: true.
    pub audio: Option<bool>,
    /// Codec of the generated audio, WebRTC only: `pcmu` (default) or `opus` (silence at 32 kb/s).
    /// Needs `audio: true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audio_codec: Option<AudioCodec>,
    /// Simulated conversation with Opus, such as `{speakers: 1.2, turn: 8s}`, or `{}` for all
    /// defaults: the clients of a population, or of each of its rooms, take turns. A client that
    /// talks sends 32 kb/s with an audio level of -20 to -40 dBov (RFC 6464); a silent one sends a
    /// packet every 400 ms (DTX). Needs `audio_codec: opus`. Default: all clients send all the
    /// time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub talk: Option<TalkConfig>,
    /// Sends the generated video in three layers (simulcast), WebRTC only: the first layer has the
    /// `bitrate`, each further one a quarter of the bit rate of the layer before and, if `size` is
    /// given, half its width and height. Default: false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub simulcast: bool,
    /// Maximum size of an RTP payload in bytes. Default: 1400.
    pub mtu: usize,
    /// Send times of the packets of a picture: all `at_once` when the picture is due, as an encoder
    /// does (default), or `spread` over the time until the next picture.
    pub pacing: Pacing,
}

impl Default for SourceConfig {
    fn default() -> SourceConfig {
        SourceConfig {
            file: None,
            bitrate: None,
            frame_rate: None,
            gop: None,
            size: None,
            profile: None,
            video_codec: None,
            audio: None,
            audio_codec: None,
            talk: None,
            simulcast: false,
            mtu: 1400,
            pacing: Pacing::AtOnce,
        }
    }
}

/// Maximum size of a source file in bytes. The whole file is kept in memory.
pub const FILE_MAX: u64 = 512 << 20;

/// Minimum `mtu`: a time code after the parameter sets still fits.
const MTU_MIN: usize = 256;

impl SourceConfig {
    /// Returns the settings of one simulcast layer. Each layer has a quarter of the bit rate and of
    /// the pixels of the layer above it.
    pub fn layer(&self, layer: u32) -> SourceConfig {
        let mut lower = self.clone();
        if layer == 0 {
            return lower;
        }
        lower.bitrate = Some(BitRate(self.generated_bitrate() >> (2 * layer)));
        // Width and height must be even (4:2:0).
        let side = |length: u32| (length >> layer) & !1;
        lower.size = self.size.map(|size| PictureSize {
            width: side(size.width),
            height: side(size.height),
        });
        lower
    }

    /// Checks the values, for protocols other than WebRTC. [`SourceConfig::check_generated`] checks
    /// whether the bit rate can be met.
    pub fn check(&self) -> Result<(), String> {
        match (self.audio_codec, self.talk) {
            (None, None) if self.simulcast => {
                Err("`simulcast` is supported for WebRTC only; remove it".to_owned())
            }
            (None, None) if self.video_codec.is_some() => {
                Err("`video_codec` is supported for WebRTC only; remove it".to_owned())
            }
            (None, None) => self.check_common(),
            (Some(_), _) => Err("`audio_codec` is supported for WebRTC only; remove it".to_owned()),
            (None, Some(_)) => Err("`talk` is supported for WebRTC only; remove it".to_owned()),
        }
    }

    /// Checks the values, for WebRTC, which allows keys that [`SourceConfig::check`] rejects.
    pub fn check_for_webrtc(&self) -> Result<(), String> {
        if self.audio_codec.is_some() && (self.file.is_some() || self.audio != Some(true)) {
            return Err(
                "`audio_codec` applies to generated audio: set `audio: true` and remove \
                        `file`"
                    .to_owned(),
            );
        }
        if self.profile.is_some() && self.video_codec == Some(VideoCodec::Vp8) {
            return Err("`profile` applies to H.264, but `video_codec` is `vp8`".to_owned());
        }
        if self.simulcast && self.file.is_some() {
            return Err("`simulcast` applies to generated video; remove it or `file`".to_owned());
        }
        if let Some(talk) = self.talk {
            talk.check()?;
            if self.audio_codec != Some(AudioCodec::Opus) {
                return Err("`talk` needs `audio_codec: opus`".to_owned());
            }
        }
        self.check_common()
    }

    fn check_common(&self) -> Result<(), String> {
        if self.mtu < MTU_MIN {
            return Err(format!("`mtu` must be at least {MTU_MIN} bytes"));
        }
        let made = [
            ("bitrate", self.bitrate.is_some()),
            ("frame_rate", self.frame_rate.is_some()),
            ("gop", self.gop.is_some()),
            ("size", self.size.is_some()),
            ("profile", self.profile.is_some()),
            ("video_codec", self.video_codec.is_some()),
        ];
        if self.file.is_some()
            && let Some((key, _)) = made.into_iter().find(|(_, written)| *written)
        {
            return Err(format!(
                "`{key}` applies to generated media; remove it or `file`"
            ));
        }
        if self.gop == Some(0) {
            return Err("`gop` must be at least one picture".to_owned());
        }
        Ok(())
    }
}

/// Settings of generated media, with defaults filled in.
impl SourceConfig {
    /// Checks that the bit rate and the size can be met, for every layer of a simulcast. Takes some
    /// milliseconds.
    ///
    /// # Errors
    /// The settings cannot be met; the message says which values can.
    pub fn check_generated(&self) -> Result<(), String> {
        if self.file.is_some() {
            return Ok(());
        }
        for layer in 0..self.layers() {
            let own = video_settings(&self.layer(layer));
            let checked = match self.video_codec.unwrap_or_default() {
                VideoCodec::H264 => Clip::check_coded_video(&own),
                VideoCodec::Vp8 => Vp8Stream::check(&own),
            };
            checked.map_err(|error| layer_error(&error, layer))?;
        }
        Ok(())
    }

    /// Number of layers of the generated video.
    fn layers(&self) -> u32 {
        if self.simulcast { SIMULCAST_LAYERS } else { 1 }
    }

    pub fn generated_bitrate(&self) -> u64 {
        self.bitrate.unwrap_or(BitRate(1_000_000)).0
    }

    pub fn generated_frame_rate(&self) -> FrameRate {
        self.frame_rate.unwrap_or(FrameRate::whole(25))
    }

    pub fn generated_gop(&self) -> u32 {
        let rate = self.generated_frame_rate();
        let two_seconds = (2 * rate.numerator()).div_ceil(rate.denominator());
        self.gop.unwrap_or(two_seconds.max(1))
    }

    pub fn generated_form(&self) -> PictureForm {
        PictureForm {
            size: self.size.map(|size| (size.width, size.height)),
            profile: self.profile.unwrap_or_default().into(),
        }
    }
}

/// Media to publish, created once and shared by all clients that publish it.
#[derive(Clone, Debug)]
pub struct MediaSource {
    /// All media, in the order of the description. At least one.
    pub clips: Vec<Arc<Clip>>,
    /// The generated video as an encoder produces it, for senders that follow requests for key
    /// frames and bit rates. `None` for a file and for all other senders.
    pub ladder: Option<Arc<Ladder>>,
    /// The further simulcast layers, best first. Empty without simulcast.
    pub lower_layers: Vec<Arc<Ladder>>,
    pub pacing: Pacing,
}

impl MediaSource {
    /// Creates the media. Takes up to some seconds if the bit rate is very high or the file is
    /// large. `file` is the content of the configured file, if any.
    ///
    /// # Errors
    /// No video can be generated with the settings or read from the file; the message says why.
    pub fn new(config: &SourceConfig, file: Option<&[u8]>) -> Result<MediaSource, String> {
        let clips = match file {
            Some(bytes) => file::clips(bytes, config.mtu, config.audio.unwrap_or(true))?,
            None => {
                let video = Clip::coded_video(&video_settings(config));
                let video = video.map_err(|error| error.to_string())?;
                with_audio(Arc::new(video), config)
            }
        };
        Ok(MediaSource::fixed(clips, config))
    }

    /// Media that follows no requests.
    fn fixed(clips: Vec<Arc<Clip>>, config: &SourceConfig) -> MediaSource {
        MediaSource {
            clips,
            ladder: None,
            lower_layers: Vec::new(),
            pacing: config.pacing,
        }
    }

    /// Creates the media for senders that follow requests for key frames and bit rates: generated
    /// video is prepared at several bit rates, which takes four times the memory.
    ///
    /// # Errors
    /// See [`MediaSource::new`].
    pub fn adaptive(config: &SourceConfig, file: Option<&[u8]>) -> Result<MediaSource, String> {
        if let Some(bytes) = file {
            // Other files have AAC audio, which WebRTC does not carry.
            let clips = match file::recorded(bytes, config.mtu, config.audio.unwrap_or(true)) {
                Some(clips) => clips?,
                None => file::clips(bytes, config.mtu, false)
                    .map_err(|error| unsupported_file_error(bytes, error))?,
            };
            if config.audio == Some(true) && clips.iter().all(|clip| clip.media() != "audio") {
                return Err("it holds no audio that can be sent: Opus or G.711".to_owned());
            }
            return Ok(MediaSource::fixed(clips, config));
        }
        let made = |layer| {
            let own = video_settings(&config.layer(layer));
            let ladder = match config.video_codec.unwrap_or_default() {
                VideoCodec::H264 => Ladder::h264(&own),
                VideoCodec::Vp8 => Ladder::vp8(&own),
            };
            ladder.map_err(|error| layer_error(&error, layer))
        };
        let ladder = made(0)?;
        let layers = (1..config.layers()).map(|layer| made(layer).map(Arc::new));
        let layers = layers.collect::<Result<_, _>>()?;
        Ok(MediaSource {
            lower_layers: layers,
            clips: with_audio(ladder.highest().clone(), config),
            ladder: Some(Arc::new(ladder)),
            pacing: config.pacing,
        })
    }
}

/// Error for a file that is not a recording. A file that is neither MP4 nor MPEG-TS gets a message
/// with the WebRTC formats.
fn unsupported_file_error(bytes: &[u8], error: String) -> String {
    let is_known = bytes.first() == Some(&0x47) || bytes.get(4..8) == Some(b"ftyp");
    match is_known {
        true => error,
        false => "it is neither MP4, MPEG-TS, WebM, IVF nor a Janus recording".to_owned(),
    }
}

/// Number of layers in a simulcast.
pub const SIMULCAST_LAYERS: u32 = 3;

/// Error message for a layer that cannot be generated. Without simulcast, layer 0 is the only one.
fn layer_error(error: &SettingsError, layer: u32) -> String {
    let share = 1 << (2 * layer);
    match error {
        _ if layer == 0 => error.to_string(),
        SettingsError::BitRateTooLow { needed, .. } => format!(
            "`bitrate` must be at least {} bit/s: layer {} of the simulcast has 1/{share} of it",
            needed * share,
            layer + 1
        ),
        _ => format!("layer {} of the simulcast: {error}", layer + 1),
    }
}

fn video_settings(config: &SourceConfig) -> VideoSettings {
    VideoSettings {
        bits_per_second: config.generated_bitrate(),
        frame_rate: config.generated_frame_rate(),
        gop: config.generated_gop(),
        mtu: config.mtu,
        form: config.generated_form(),
    }
}

fn with_audio(video: Arc<Clip>, config: &SourceConfig) -> Vec<Arc<Clip>> {
    let mut clips = vec![video];
    if config.audio.unwrap_or(false) {
        clips.push(Arc::new(match config.audio_codec {
            None | Some(AudioCodec::Pcmu) => Clip::audio(),
            Some(AudioCodec::Opus) => Clip::opus(),
        }));
    }
    clips
}
