//! Clips of encoded media from files.

use bytes::Bytes;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Clip, FrameRate, FrameTimes, audio, cut_picture, opus};

/// Payload type of video: the first dynamic one (RFC 3551, 6).
const VIDEO_PAYLOAD_TYPE: u8 = 96;
/// Payload type of Opus: the one that browsers use.
const OPUS_PAYLOAD_TYPE: u8 = 111;
/// Payload type of AAC: the second dynamic one (RFC 3551, 6).
const AUDIO_PAYLOAD_TYPE: u8 = 97;
/// Length of the AU headers section: its size in bits, and one AU header (RFC 3640, 3.2.1 and
/// 3.3.6).
const AU_HEADERS: usize = 4;
/// Maximum length of an access unit: its size field has 13 bits (RFC 3640, 3.3.6).
const AU_MAX: usize = (1 << 13) - 1;

/// Codec of media, with its SDP description.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Coding {
    pub(crate) name: &'static str,
    pub(crate) media: &'static str,
    pub(crate) encoding: String,
    pub(crate) clock_rate: u32,
    pub(crate) payload_type: u8,
    pub(crate) parameters: String,
    /// True if the marker bit marks the last packet of each frame.
    pub(crate) marks_ends: bool,
}

impl Coding {
    fn video(name: &'static str, encoding: &str, parameters: &str) -> Coding {
        Coding {
            name,
            media: "video",
            encoding: encoding.to_owned(),
            clock_rate: Clip::VIDEO_CLOCK_RATE,
            payload_type: VIDEO_PAYLOAD_TYPE,
            parameters: parameters.to_owned(),
            marks_ends: true,
        }
    }

    /// The marker begins a talkspurt (RFC 3551, 4.1); each audio stream is a single endless one.
    fn audio(name: &'static str, encoding: &str, clock_rate: u32, payload_type: u8) -> Coding {
        Coding {
            name,
            media: "audio",
            encoding: encoding.to_owned(),
            clock_rate,
            payload_type,
            parameters: String::new(),
            marks_ends: false,
        }
    }

    pub(super) fn vp8() -> Coding {
        Coding::video("VP8", "VP8/90000", "")
    }

    /// Returns `None` if the sequence parameter set is truncated.
    pub(super) fn h264(sps: &[u8], pps: &[u8]) -> Option<Coding> {
        let [_, profile, constraints, level, ..] = sps[..] else {
            return None;
        };
        let parameters = format!(
            "packetization-mode=1;profile-level-id={profile:02X}{constraints:02X}{level:02X};\
             sprop-parameter-sets={},{}",
            STANDARD.encode(sps),
            STANDARD.encode(pps)
        );
        Some(Coding::video("H.264", "H264/90000", &parameters))
    }

    pub(super) fn mu_law() -> Coding {
        let (rate, payload_type) = (audio::CLOCK_RATE, audio::PAYLOAD_TYPE);
        Coding::audio("G.711 mu-law", "PCMU/8000", rate, payload_type)
    }

    pub(super) fn opus(parameters: &str) -> Coding {
        Coding {
            parameters: parameters.to_owned(),
            // Always two channels, whatever is sent (RFC 7587, 7).
            ..Coding::audio("Opus", "opus/48000/2", opus::CLOCK_RATE, OPUS_PAYLOAD_TYPE)
        }
    }

    /// Returns the codec with this common name, in any case, or `None` if it is unknown.
    pub(crate) fn named(name: &str) -> Option<Coding> {
        Some(match &*name.to_ascii_lowercase() {
            "vp8" => Coding::vp8(),
            "vp9" => Coding::video("VP9", "VP9/90000", "profile-id=0"),
            "h264" => {
                // The actual profile is in the parameter sets, which may be missing.
                let usual = "packetization-mode=1;profile-level-id=42e01f";
                Coding::video("H.264", "H264/90000", usual)
            }
            "opus" => Coding::opus("minptime=10"),
            "pcmu" => Coding::mu_law(),
            "pcma" => Coding::audio("G.711 A-law", "PCMA/8000", 8000, 8),
            _ => return None,
        })
    }
}

impl Clip {
    /// The clock of video in Hz (RFC 6184, 8.1).
    pub const VIDEO_CLOCK_RATE: u32 = 90_000;

    /// Creates H.264 video from the NAL units of its pictures, with room for a time code in each
    /// picture. [`Clip::with_times`] sets the send times.
    pub fn video_of_file(
        sps: &[u8],
        pps: &[u8],
        pictures: &[Vec<Vec<u8>>],
        mtu: usize,
    ) -> Result<Clip, String> {
        let coding = Coding::h264(sps, pps).ok_or("the sequence parameter set is truncated")?;
        check_count(pictures)?;
        let frames = pictures.iter().map(|nals| cut_picture(nals, mtu, true));
        let description = "H.264 from a file".to_owned();
        Ok(Clip::of_frames(coding, description, frames))
    }

    /// Creates AAC from its access units. Each has a packet of its own, or several fragments if it
    /// is too long for one packet (RFC 3640, mode AAC-hbr).
    pub fn aac(
        config: &[u8],
        samples_per_second: u32,
        channels: u16,
        units: &[Vec<u8>],
        mtu: usize,
    ) -> Result<Clip, String> {
        if samples_per_second == 0 {
            return Err("the AAC track has no sampling frequency".to_owned());
        }
        if units.iter().any(|unit| unit.len() > AU_MAX) {
            return Err(format!(
                "an access unit of the AAC track is longer than {AU_MAX} bytes"
            ));
        }
        check_count(units)?;
        let frames = units.iter().map(|unit| {
            // A fragment states the size of the whole unit (RFC 3640, 3.2.3.1).
            let [high, low] = ((unit.len() as u16) << 3).to_be_bytes();
            let fragments = unit.chunks(mtu - AU_HEADERS);
            let payloads = fragments.map(|part| [&[0, 16, high, low], part].concat().into());
            payloads.collect()
        });
        let config: String = config.iter().map(|byte| format!("{byte:02x}")).collect();
        let coding = Coding {
            parameters: format!(
                "streamtype=5;profile-level-id=1;mode=AAC-hbr;sizelength=13;indexlength=3;\
                 indexdeltalength=3;config={config}"
            ),
            marks_ends: true,
            ..Coding::audio(
                "AAC",
                &format!("mpeg4-generic/{samples_per_second}/{channels}"),
                samples_per_second,
                AUDIO_PAYLOAD_TYPE,
            )
        };
        let description = format!("AAC from a file, {samples_per_second} Hz");
        Ok(Clip::of_frames(coding, description, frames))
    }

    /// Creates a clip from recorded frames that are split into payloads. [`Clip::with_times`] sets
    /// the send times.
    pub(crate) fn recorded(coding: Coding, frames: Vec<Vec<Bytes>>) -> Result<Clip, String> {
        check_count(&frames)?;
        let description = format!("{} from a file", coding.name);
        Ok(Clip::of_frames(coding, description, frames.into_iter()))
    }

    /// Sets the send times and timestamps, one for each frame.
    pub fn with_times(mut self, times: FrameTimes) -> Clip {
        let nanos = u128::from(times.length.max(1));
        let bits = u128::from(self.loop_bytes()) * 8 * 1_000_000_000 / nanos;
        self.bits_per_second = u64::try_from(bits).unwrap_or(u64::MAX);
        // The stated frame rate is the mean from the first to the last frame, to a thousandth.
        let due = |frame: Option<&(u64, u32)>| frame.map_or(0, |&(due, _)| due);
        let span = due(times.frames.last()).saturating_sub(due(times.frames.first()));
        let steps = times.frames.len().saturating_sub(1) as u128;
        let frames = (steps * 1_000_000_000_000).checked_div(u128::from(span));
        let frames = frames.unwrap_or(1000);
        self.frame_rate = FrameRate {
            numerator: frames.clamp(100, 1_000_000) as u32,
            denominator: 1000,
        };
        self.times = Some(times);
        self
    }
}

/// Checks the number of frames, which must be at least one.
fn check_count<T>(frames: &[T]) -> Result<(), String> {
    match u32::try_from(frames.len()) {
        Ok(1..) => Ok(()),
        _ => Err("there are no frames, or too many".to_owned()),
    }
}
