//! Clips of encoded media from files.

use bytes::Bytes;

use super::{
    Clip, FrameRate, FrameTimes, OPUS_PAYLOAD_TYPE, VIDEO_PAYLOAD_TYPE, add_frame, cut_picture,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Payload type of AAC: the second dynamic one (RFC 3551, 6).
const AUDIO_PAYLOAD_TYPE: u8 = 97;
/// Length of the AU headers section: its size in bits, and one AU header (RFC 3640, 3.2.1 and
/// 3.3.6).
const AU_HEADERS: usize = 4;
/// Maximum length of an access unit: its size field has 13 bits (RFC 3640, 3.3.6).
const AU_MAX: usize = (1 << 13) - 1;

/// Codec of recorded media, with its SDP description.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Coding {
    pub(crate) name: &'static str,
    pub(crate) media: &'static str,
    pub(crate) encoding: &'static str,
    pub(crate) clock_rate: u32,
    pub(crate) payload_type: u8,
    pub(crate) parameters: String,
}

impl Coding {
    /// Returns the codec with this common name, in any case, or `None` if it is unknown.
    pub(crate) fn named(name: &str) -> Option<Coding> {
        let video = |name, encoding, parameters: &str| Coding {
            name,
            media: "video",
            encoding,
            clock_rate: Clip::VIDEO_CLOCK_RATE,
            payload_type: VIDEO_PAYLOAD_TYPE,
            parameters: parameters.to_owned(),
        };
        let audio = |name, encoding, clock_rate, payload_type, parameters: &str| Coding {
            name,
            media: "audio",
            encoding,
            clock_rate,
            payload_type,
            parameters: parameters.to_owned(),
        };
        Some(match &*name.to_ascii_lowercase() {
            "vp8" => video("VP8", "VP8/90000", ""),
            "vp9" => video("VP9", "VP9/90000", "profile-id=0"),
            "h264" => {
                // The actual profile is in the parameter sets, which may be missing.
                let usual = "packetization-mode=1;profile-level-id=42e01f";
                video("H.264", "H264/90000", usual)
            }
            // Always two channels, whatever is sent (RFC 7587, 7).
            "opus" => audio(
                "Opus",
                "opus/48000/2",
                48_000,
                OPUS_PAYLOAD_TYPE,
                "minptime=10",
            ),
            "pcmu" => audio("G.711 mu-law", "PCMU/8000", 8000, 0, ""),
            "pcma" => audio("G.711 A-law", "PCMA/8000", 8000, 8, ""),
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
        let [_, profile, constraints, level, ..] = sps[..] else {
            return Err("the sequence parameter set is truncated".to_owned());
        };
        let mut packets = Vec::new();
        let mut payloads = Vec::new();
        for (frame, nals) in (0..).zip(pictures) {
            let nals: Vec<&[u8]> = nals.iter().map(Vec::as_slice).collect();
            cut_picture(&nals, mtu, true, &mut payloads);
            add_frame(&mut packets, frame, &mut payloads, |last| last);
        }
        Ok(Clip {
            frames: frames_of(pictures)?,
            packets,
            frame_rate: FrameRate::whole(1),
            times: None,
            clock_rate: Clip::VIDEO_CLOCK_RATE,
            payload_type: VIDEO_PAYLOAD_TYPE,
            media: "video",
            encoding: "H264/90000".to_owned(),
            parameters: format!(
                "packetization-mode=1;profile-level-id={profile:02X}{constraints:02X}{level:02X};\
                 sprop-parameter-sets={},{}",
                STANDARD.encode(sps),
                STANDARD.encode(pps)
            ),
            bits_per_second: 0,
            description: "H.264 from a file".to_owned(),
        })
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
        let mut packets = Vec::new();
        let mut payloads = Vec::new();
        for (frame, unit) in (0..).zip(units) {
            if unit.len() > AU_MAX {
                return Err(format!(
                    "an access unit of the AAC track is longer than {AU_MAX} bytes"
                ));
            }
            // A fragment states the size of the whole unit (RFC 3640, 3.2.3.1).
            let [high, low] = ((unit.len() as u16) << 3).to_be_bytes();
            let fragments = unit.chunks(mtu - AU_HEADERS);
            payloads
                .extend(fragments.map(|part| Bytes::from([&[0, 16, high, low], part].concat())));
            add_frame(&mut packets, frame, &mut payloads, |last| last);
        }
        let config: String = config.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Clip {
            frames: frames_of(units)?,
            packets,
            frame_rate: FrameRate::whole(1),
            times: None,
            clock_rate: samples_per_second,
            payload_type: AUDIO_PAYLOAD_TYPE,
            media: "audio",
            encoding: format!("mpeg4-generic/{samples_per_second}/{channels}"),
            parameters: format!(
                "streamtype=5;profile-level-id=1;mode=AAC-hbr;sizelength=13;indexlength=3;\
                 indexdeltalength=3;config={config}"
            ),
            bits_per_second: 0,
            description: format!("AAC from a file, {samples_per_second} Hz"),
        })
    }

    /// Creates a clip from recorded frames that are split into payloads. [`Clip::with_times`] sets
    /// the send times.
    pub(crate) fn recorded(coding: &Coding, frames: Vec<Vec<Bytes>>) -> Result<Clip, String> {
        let mut packets = Vec::new();
        let count = frames_of(&frames)?;
        let is_video = coding.media == "video";
        for (frame, mut payloads) in (0..).zip(frames) {
            add_frame(&mut packets, frame, &mut payloads, |last| is_video && last);
        }
        Ok(Clip {
            frames: count,
            packets,
            frame_rate: FrameRate::whole(1),
            times: None,
            clock_rate: coding.clock_rate,
            payload_type: coding.payload_type,
            media: coding.media,
            encoding: coding.encoding.to_owned(),
            parameters: coding.parameters.clone(),
            bits_per_second: 0,
            description: format!("{} from a file", coding.name),
        })
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

/// Number of frames, which must be at least one.
fn frames_of<T>(frames: &[T]) -> Result<u32, String> {
    match u32::try_from(frames.len()) {
        Ok(frames) if frames > 0 => Ok(frames),
        _ => Err("there are no frames, or too many".to_owned()),
    }
}
