//! Sources: media that clients publish.

use std::path::PathBuf;
use std::sync::Arc;

use measure::units::BitRate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rtp::Pacing;
use super::talk::TalkConfig;
use mediagen::clip::Clip;
use mediagen::file;
use mediagen::frame_rate::FrameRate;
use mediagen::ladder::Ladder;
use mediagen::picture_size::PictureSize;
use mediagen::video::{PictureForm, Profile, SettingsError, VideoSettings};
use mediagen::vp8::Vp8Stream;

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

/// What sound that is made is coded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AudioCodec {
    /// G.711, mu-law: a tone of 64 kb/s.
    Pcmu,
    /// Opus: silence of 32 kb/s, coded at that rate.
    Opus,
}

/// What video that is made is coded with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VideoCodec {
    /// H.264.
    #[default]
    H264,
    /// VP8.
    Vp8,
}

/// What is published: a made video, with a tone beside it where one is wanted; or a file, over and
/// over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SourceConfig {
    /// A file to publish over and over, beginning at once at its end: MP4 or MPEG-TS, with H.264
    /// and, if at all, AAC; of WebRTC also WebM (VP8 or VP9, and Opus), IVF, and recordings of Janus
    /// (.mjr); at most 512 MiB and an hour. As written relative to the scenario file. Default: none,
    /// the media is made.
    pub file: Option<PathBuf>,
    /// Bit rate of the video that is made: RTP payload, without headers. Default: 1Mbps.
    pub bitrate: Option<BitRate>,
    /// Pictures per second of the video that is made. Default: 25.
    pub frame_rate: Option<FrameRate>,
    /// Pictures from one that can be decoded by itself to the next, of the video that is made.
    /// Default: as many as two seconds have.
    pub gop: Option<u32>,
    /// Width and height of the video that is made, such as 1280x720: both even, 48 to 4096.
    /// Default: as large as leaves nine tenths of the bit rate to what is in the pictures, up to
    /// 1920x1080.
    pub size: Option<PictureSize>,
    /// The profile of H.264 that the video that is made keeps to: `baseline` (Constrained Baseline)
    /// or `main` (with CAVLC). Default: baseline.
    pub profile: Option<VideoProfile>,
    /// What video that is made is coded with, of WebRTC: `h264` (default) or `vp8`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub video_codec: Option<VideoCodec>,
    /// Whether there is audio too. Made, it is G.711 mu-law, 64 kb/s beside the video's bit rate:
    /// default false. Of a file it is the file's: default true.
    pub audio: Option<bool>,
    /// What made audio is coded with, of WebRTC: `pcmu` (default) or `opus` (silence that takes
    /// 32 kb/s). Needs `audio: true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub audio_codec: Option<AudioCodec>,
    /// Whether Opus is sent as people talk, such as `{speakers: 1.2, turn: 8s}`, or `{}` for all
    /// defaults: the clients of a population, or of each of its rooms, take turns. Who talks sends
    /// 32 kb/s, with an audio level of -20 to -40 dBov (RFC 6464); who is silent sends a packet
    /// each 400 ms (DTX). Needs `audio_codec: opus`. Default: all send all the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub talk: Option<TalkConfig>,
    /// Whether video that is made is sent in three layers (simulcast), of WebRTC: the first with
    /// the `bitrate`, each other with a quarter of the one before and, where `size` is written, half
    /// of its width and height. Default: false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub simulcast: bool,
    /// The longest RTP payload in bytes. Default: 1400.
    pub mtu: usize,
    /// How the packets of a picture leave: `at_once` when it is due, as from an encoder (default),
    /// or `spread` over the time until the next.
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

/// The largest file that is taken, in bytes: all of it is in memory.
pub const FILE_MAX: u64 = 512 << 20;

/// The shortest payload that is taken: a time code behind parameter sets fits in.
const MTU_MIN: usize = 256;

impl SourceConfig {
    /// What that layer of a simulcast is made by: each with a quarter of the bit rate, and of the
    /// pixels, of the one above it.
    pub(crate) fn layer(&self, layer: u32) -> SourceConfig {
        let mut lower = self.clone();
        if layer == 0 {
            return lower;
        }
        lower.bitrate = Some(BitRate(self.made_bitrate() >> (2 * layer)));
        // Both are even (4:2:0).
        let side = |length: u32| (length >> layer) & !1;
        lower.size = self.size.map(|size| PictureSize {
            width: side(size.width),
            height: side(size.height),
        });
        lower
    }

    /// What is wrong with the values, if anything. Whether the bit rate can be met is another
    /// matter ([`SourceConfig::check_made`]).
    pub fn check(&self) -> Result<(), String> {
        match (self.audio_codec, self.talk) {
            (None, None) if self.simulcast => {
                Err("`simulcast` is of WebRTC; take it out".to_owned())
            }
            (None, None) if self.video_codec.is_some() => {
                Err("`video_codec` is of WebRTC; take it out".to_owned())
            }
            (None, None) => self.check_but_audio_codec(),
            (Some(_), _) => Err("`audio_codec` is of WebRTC; take it out".to_owned()),
            (None, Some(_)) => Err("`talk` is of WebRTC; take it out".to_owned()),
        }
    }

    /// The same where the codec of the audio may be chosen.
    pub(crate) fn check_with_audio_codec(&self) -> Result<(), String> {
        if self.audio_codec.is_some() && (self.file.is_some() || self.audio != Some(true)) {
            return Err(
                "`audio_codec` is of audio that is made: it needs `audio: true`, and no \
                        `file`"
                    .to_owned(),
            );
        }
        if self.profile.is_some() && self.video_codec == Some(VideoCodec::Vp8) {
            return Err("`profile` is of H.264, and `video_codec` is `vp8`".to_owned());
        }
        if self.simulcast && self.file.is_some() {
            return Err("`simulcast` is of video that is made, and there is a `file`".to_owned());
        }
        if let Some(talk) = self.talk {
            talk.check()?;
            if self.audio_codec != Some(AudioCodec::Opus) {
                return Err("`talk` needs `audio_codec: opus`".to_owned());
            }
        }
        self.check_but_audio_codec()
    }

    fn check_but_audio_codec(&self) -> Result<(), String> {
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
                "`{key}` is of media that is made, and there is a `file`"
            ));
        }
        if self.gop == Some(0) {
            return Err("`gop` must be at least one picture".to_owned());
        }
        Ok(())
    }
}

/// Media that is made, with what is usual where nothing is written.
impl SourceConfig {
    /// Whether the bit rate and the size can be met, that of all layers where there are more. Takes
    /// some milliseconds.
    ///
    /// # Errors
    /// They cannot; the text says what would do.
    pub fn check_made(&self) -> Result<(), String> {
        if self.file.is_some() {
            return Ok(());
        }
        let layers = if self.simulcast { 0..LAYERS } else { 0..1 };
        for layer in layers {
            let own = settings(&self.layer(layer));
            let checked = match self.video_codec.unwrap_or_default() {
                VideoCodec::H264 => Clip::check_coded_video(&own),
                VideoCodec::Vp8 => Vp8Stream::check(&own),
            };
            checked.map_err(|error| of_layer(&error, layer))?;
        }
        Ok(())
    }

    pub(crate) fn made_bitrate(&self) -> u64 {
        self.bitrate.unwrap_or(BitRate(1_000_000)).0
    }

    pub(crate) fn made_frame_rate(&self) -> FrameRate {
        self.frame_rate.unwrap_or(FrameRate::whole(25))
    }

    pub(crate) fn made_gop(&self) -> u32 {
        let rate = self.made_frame_rate();
        let two_seconds = (2 * rate.numerator()).div_ceil(rate.denominator());
        self.gop.unwrap_or(two_seconds.max(1))
    }

    pub(crate) fn made_form(&self) -> PictureForm {
        PictureForm {
            size: self.size.map(|size| (size.width, size.height)),
            profile: self.profile.unwrap_or_default().into(),
        }
    }
}

/// Media to publish, made once and shared by all that publish it.
#[derive(Clone, Debug)]
pub struct MediaSource {
    /// Each media, in the order of the description. At least one.
    pub clips: Vec<Arc<Clip>>,
    /// The first of them as encoders give it, where it is made and whoever sends it heeds what is
    /// asked for.
    pub encoded: Option<Arc<Ladder>>,
    /// The other layers of that, the better first, where it is sent as a simulcast.
    pub layers: Vec<Arc<Ladder>>,
    /// How the packets of a frame leave.
    pub pacing: Pacing,
}

impl MediaSource {
    /// Makes the media. Takes up to some seconds where the bit rate is very high, or the file
    /// large. `file` is what the file holds, where there is one.
    ///
    /// # Errors
    /// No video can be made by the settings, or out of the file; the text says why.
    pub fn new(config: &SourceConfig, file: Option<&[u8]>) -> Result<MediaSource, String> {
        let clips = match file {
            Some(bytes) => file::clips(bytes, config.mtu, config.audio.unwrap_or(true))?,
            None => {
                let video = Clip::coded_video(&settings(config));
                let video = video.map_err(|error| error.to_string())?;
                with_audio(Arc::new(video), config)
            }
        };
        Ok(MediaSource {
            clips,
            encoded: None,
            layers: Vec::new(),
            pacing: config.pacing,
        })
    }

    /// The same for those who heed requests for key frames and bit rates: video that is made is
    /// made as encoders give it. It takes four times the memory.
    ///
    /// # Errors
    /// As of [`MediaSource::new`].
    pub fn live(config: &SourceConfig, file: Option<&[u8]>) -> Result<MediaSource, String> {
        if let Some(bytes) = file {
            // The AAC of other files is not carried.
            let clips = match file::recorded(bytes, config.mtu, config.audio.unwrap_or(true)) {
                Some(clips) => clips?,
                None => file::clips(bytes, config.mtu, false)
                    .map_err(|error| of_no_recording(bytes, error))?,
            };
            if config.audio == Some(true) && clips.iter().all(|clip| clip.media() != "audio") {
                return Err("it holds no audio that can be sent: Opus or G.711".to_owned());
            }
            return Ok(MediaSource {
                clips,
                encoded: None,
                layers: Vec::new(),
                pacing: config.pacing,
            });
        }
        let others = if config.simulcast { 1..LAYERS } else { 1..1 };
        let made = |layer| {
            let own = settings(&config.layer(layer));
            let ladder = match config.video_codec.unwrap_or_default() {
                VideoCodec::H264 => Ladder::h264(&own),
                VideoCodec::Vp8 => Ladder::vp8(&own),
            };
            ladder.map_err(|error| of_layer(&error, layer))
        };
        let ladder = made(0)?;
        let layers = others.map(|layer| made(layer).map(Arc::new));
        let layers = layers.collect::<Result<_, _>>()?;
        Ok(MediaSource {
            layers,
            clips: with_audio(ladder.highest().clone(), config),
            encoded: Some(Arc::new(ladder)),
            pacing: config.pacing,
        })
    }
}

/// Why a file is refused, where it is none of those that other protocols take either.
fn of_no_recording(bytes: &[u8], error: String) -> String {
    let is_known = bytes.first() == Some(&0x47) || bytes.get(4..8) == Some(b"ftyp");
    match is_known {
        true => error,
        false => "it is neither MP4, MPEG-TS, WebM, IVF nor a recording of Janus".to_owned(),
    }
}

/// How many layers a simulcast has.
pub(crate) const LAYERS: u32 = 3;

/// Why a layer cannot be made, the first of which is all there is without a simulcast.
fn of_layer(error: &SettingsError, layer: u32) -> String {
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

fn settings(config: &SourceConfig) -> VideoSettings {
    VideoSettings {
        bits_per_second: config.made_bitrate(),
        frame_rate: config.made_frame_rate(),
        gop: config.made_gop(),
        mtu: config.mtu,
        form: config.made_form(),
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
