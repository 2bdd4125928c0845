//! Media as RTMP messages: generated once, and shared by all senders.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use kit::mediagen::clip::Clip;
use kit::mediagen::time_code::{CODE_BYTES, TimeCode};
use measure::units::BitRate;

use super::codec::amf0::Value;
use super::codec::chunk::HEAD_BYTES_MAX;
use super::codec::message::MessageType;
use super::codec::write::{self, MessageHeader};
use kit::media::rtp::Pacing;
use kit::media::source::{MediaSource, SourceConfig};

/// Bit rate of generated audio.
const AUDIO_RATE: BitRate = BitRate(192_000);
/// Size of the packets that clips are cut into, and that are reassembled here: the maximum, so that
/// there are few.
const PACKET_MAX: usize = 65_000;
/// NAL unit types that aggregate and fragment others (RFC 6184, 5.7.1 and 5.8).
const STAP_A: u8 = 24;
const FU_A: u8 = 28;
/// NAL unit types of pictures that can be decoded without others, and of parameter sets (H.264,
/// table 7-1).
const IDR: u8 = 5;
const SPS: u8 = 7;
const PPS: u8 = 8;
/// Length of the AU headers before an access unit (RFC 3640, 3.2.1).
const AU_HEADERS: usize = 4;

/// Audio or video of a source.
#[derive(Debug)]
pub struct Track {
    /// True for video, false for audio.
    pub video: bool,
    /// Schedule of the frames.
    pub clip: Arc<Clip>,
    /// Payload of the decoder configuration message.
    pub config: Bytes,
    pub frames: Vec<TrackFrame>,
}

#[derive(Clone, Debug)]
pub struct TrackFrame {
    /// Payload of the message.
    pub payload: Bytes,
    /// Offset of the time code's numbers in the payload; `None` if the frame has no time code.
    pub time_code_offset: Option<usize>,
    /// True if decoding can start here.
    pub key: bool,
}

/// Media sent over one connection.
#[derive(Debug)]
pub struct Tracks {
    /// Video comes first.
    pub tracks: Vec<Track>,
    metadata: Vec<u8>,
}

impl Tracks {
    /// Generates the media, or reads it from `file`. Takes up to some seconds if the bit rate is
    /// very high, or the file large.
    ///
    /// # Errors
    /// The settings or the file yield no media. The text gives the reason.
    pub fn new(config: &SourceConfig, file: Option<&[u8]>) -> Result<Tracks, String> {
        let audio = config.audio.unwrap_or(false);
        let own = SourceConfig {
            mtu: PACKET_MAX,
            // Decoders of RTMP do not support the audio generated for RTP well.
            audio: match file {
                Some(_) => config.audio,
                None => Some(false),
            },
            ..config.clone()
        };
        let mut clips = MediaSource::new(&own, file)?.clips;
        if file.is_none() && audio {
            clips.push(Arc::new(Clip::silence(AUDIO_RATE.0)));
        }
        let tracks = clips.into_iter().map(Track::from_clip);
        let tracks = tracks.collect::<Result<Vec<Track>, String>>()?;
        Ok(Tracks {
            metadata: metadata(&tracks),
            tracks,
        })
    }

    /// Checks that the keys of a source apply to publishing over RTMP.
    ///
    /// # Errors
    /// The text names the wrong key.
    pub fn check(config: &SourceConfig) -> Result<(), String> {
        config.check()?;
        if config.pacing != Pacing::AtOnce {
            return Err("a frame is one message of RTMP; remove `pacing`".to_owned());
        }
        if config.mtu != SourceConfig::default().mtu {
            return Err("RTMP has no packets; write `chunk_size` instead of `mtu`".to_owned());
        }
        Ok(())
    }

    /// Appends the messages before the first frame: metadata and decoder configurations. A
    /// publisher's metadata follows the command `@setDataFrame`, which makes the server keep it.
    pub fn write_preamble(
        &self,
        stream: u32,
        timestamp: u32,
        publishes: bool,
        chunk_size: u32,
        out: &mut Vec<u8>,
    ) {
        let head = |kind, chunk_stream| MessageHeader {
            chunk_stream,
            kind,
            timestamp,
            stream,
        };
        let mut data = Vec::new();
        if publishes {
            Value::string("@setDataFrame").write(&mut data);
        }
        data.extend_from_slice(&self.metadata);
        head(MessageType::Data, write::AUDIO).write(&[&data], chunk_size, out);
        for track in &self.tracks {
            let (kind, chunk_stream) = track.message_type_and_chunk_stream();
            head(kind, chunk_stream).write(&[&track.config], chunk_size, out);
        }
    }

    /// Human-readable description.
    pub fn description(&self) -> String {
        let all: Vec<&str> = self
            .tracks
            .iter()
            .map(|track| track.clip.description())
            .collect();
        all.join("; ")
    }
}

impl Track {
    /// Message type and chunk stream of the track.
    pub fn message_type_and_chunk_stream(&self) -> (MessageType, u8) {
        match self.video {
            true => (MessageType::Video, write::VIDEO),
            false => (MessageType::Audio, write::AUDIO),
        }
    }

    fn from_clip(clip: Arc<Clip>) -> Result<Track, String> {
        let video = clip.media() == "video";
        let mut frames = Vec::with_capacity(clip.frames as usize);
        let config = match video {
            true => avc_config(&clip)?,
            false => aac_config(&clip)?,
        };
        for (number, packets) in
            (0..).zip(clip.packets.chunk_by(|one, next| one.frame == next.frame))
        {
            let payloads = packets.iter().map(|packet| &*packet.payload);
            frames.push(match video {
                true => {
                    let shown_later = composition_offset_ms(&clip, number);
                    avc_frame(payloads, shown_later)?
                }
                false => aac_frame(payloads),
            });
        }
        Ok(Track {
            video,
            clip,
            config,
            frames,
        })
    }

    /// Returns the frame with this number, counted over all loops.
    pub fn frame(&self, number: u64) -> Option<&TrackFrame> {
        let count = self.frames.len() as u64;
        let index = number.checked_rem(count)?;
        self.frames.get(index as usize)
    }

    /// Timestamp of this frame in milliseconds.
    pub fn timestamp(&self, number: u64) -> u32 {
        (self.clip.nanos(number) / 1_000_000) as u32
    }
}

/// Composition time offset of a frame in milliseconds.
fn composition_offset_ms(clip: &Clip, number: u64) -> u32 {
    let decoded = clip.nanos(number) / 1_000_000;
    let shown = u64::from(clip.ticks(number)) * 1000 / u64::from(clip.clock_rate()).max(1);
    shown.saturating_sub(decoded).min(0x7f_ffff) as u32
}

/// Returns SPS and PPS from the parameters of an H.264 clip.
fn parameter_sets(clip: &Clip) -> Option<(Vec<u8>, Vec<u8>)> {
    let (_, sets) = clip.parameters().split_once("sprop-parameter-sets=")?;
    let (sps, pps) = sets.split_once(',')?;
    Some((STANDARD.decode(sps).ok()?, STANDARD.decode(pps).ok()?))
}

/// Builds the AVC sequence header: FLV, E.4.3.1, with ISO/IEC 14496-15, 5.2.4.1.
fn avc_config(clip: &Clip) -> Result<Bytes, String> {
    let sets = parameter_sets(clip).ok_or("its parameter sets cannot be read")?;
    let (sps, pps) = sets;
    let [_, profile, constraints, level, ..] = sps[..] else {
        return Err("its sequence parameter set is cut off".to_owned());
    };
    let mut out = vec![0x17, 0, 0, 0, 0, 1, profile, constraints, level, 0xff, 0xe1];
    for (set, after) in [(&sps, &[1][..]), (&pps, &[])] {
        let length = u16::try_from(set.len()).map_err(|_| "a parameter set is too long")?;
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(set);
        out.extend_from_slice(after);
    }
    Ok(out.into())
}

/// Builds the AAC sequence header: FLV, E.4.2.1, always marked as stereo at 44 kHz, with the
/// AudioSpecificConfig.
fn aac_config(clip: &Clip) -> Result<Bytes, String> {
    let parameters = clip.parameters();
    let hex = parameters.split_once("config=").map_or("", |(_, hex)| hex);
    let digits = hex.bytes().map(|byte| char::from(byte).to_digit(16));
    let digits: Option<Vec<u32>> = digits.collect();
    let digits = digits.filter(|digits| !digits.is_empty() && digits.len() % 2 == 0);
    let digits = digits.ok_or("its audio is not AAC")?;
    let config = digits
        .chunks_exact(2)
        .map(|pair| (pair[0] << 4 | pair[1]) as u8);
    Ok([0xaf, 0].into_iter().chain(config).collect())
}

fn aac_frame<'a>(packets: impl Iterator<Item = &'a [u8]>) -> TrackFrame {
    let mut payload = vec![0xaf, 1];
    for packet in packets {
        payload.extend_from_slice(packet.get(AU_HEADERS..).unwrap_or_default());
    }
    TrackFrame {
        payload: payload.into(),
        time_code_offset: None,
        key: true,
    }
}

/// Reassembles a picture from its packets: each NAL unit follows its length (ISO/IEC 14496-15,
/// 5.3.4.2). Parameter sets are dropped, because the sequence header has them.
fn avc_frame<'a>(
    packets: impl Iterator<Item = &'a [u8]>,
    shown_later: u32,
) -> Result<TrackFrame, String> {
    let mut nals: Vec<Vec<u8>> = Vec::new();
    for packet in packets {
        let cut_off = || "a picture is cut off".to_owned();
        let (first, rest) = packet.split_first().ok_or_else(cut_off)?;
        match first & 0x1f {
            STAP_A => {
                let mut units = rest;
                while let Some((length, after)) = units.split_first_chunk() {
                    let length = usize::from(u16::from_be_bytes(*length));
                    let (nal, after) = after.split_at_checked(length).ok_or_else(cut_off)?;
                    nals.push(nal.to_vec());
                    units = after;
                }
            }
            FU_A => {
                let (header, part) = rest.split_first().ok_or_else(cut_off)?;
                if header & 0x80 != 0 {
                    nals.push(vec![first & 0xe0 | header & 0x1f]);
                }
                nals.last_mut().ok_or_else(cut_off)?.extend_from_slice(part);
            }
            _ => nals.push(packet.to_vec()),
        }
    }
    let nal_type = |nal: &[u8]| nal.first().map_or(0, |first| first & 0x1f);
    let key = nals.iter().any(|nal| nal_type(nal) == IDR);
    nals.retain(|nal| !matches!(nal_type(nal), SPS | PPS));
    let [_, a, b, c] = shown_later.to_be_bytes();
    let mut payload = vec![if key { 0x17 } else { 0x27 }, 1, a, b, c];
    let mut time_code_offset = None;
    for nal in &nals {
        payload.extend_from_slice(&(nal.len() as u32).to_be_bytes());
        if time_code_offset.is_none() {
            // Receivers do not look beyond these bytes.
            time_code_offset = TimeCode::place(nal)
                .map(|position| payload.len() + position)
                .filter(|at| at + CODE_BYTES <= HEAD_BYTES_MAX);
        }
        payload.extend_from_slice(nal);
    }
    Ok(TrackFrame {
        payload: payload.into(),
        time_code_offset,
        key,
    })
}

/// Builds `onMetaData` (FLV, E.5), which players and servers show.
fn metadata(tracks: &[Track]) -> Vec<u8> {
    let number = |name: &str, value: f64| (name.to_owned(), Value::Number(value));
    let mut all = Vec::new();
    for track in tracks {
        let rate = track.clip.bits_per_second() as f64 / 1000.0;
        if track.video {
            let sets = parameter_sets(&track.clip);
            let size = sets.and_then(|(sps, _)| kit::mediagen::h264::sps::picture_size(&sps));
            if let Some((width, height)) = size {
                all.push(number("width", width.into()));
                all.push(number("height", height.into()));
            }
            let frames = track.clip.frame_rate();
            let frames = f64::from(frames.numerator()) / f64::from(frames.denominator());
            all.push(number("framerate", frames));
            all.push(number("videodatarate", rate));
            all.push(number("videocodecid", 7.0));
        } else {
            all.push(number("audiodatarate", rate));
            all.push(number("audiosamplerate", track.clip.clock_rate().into()));
            all.push(("stereo".to_owned(), Value::Boolean(true)));
            all.push(number("audiocodecid", 10.0));
        }
    }
    all.push(("encoder".to_owned(), Value::string("streamgauge")));
    let mut out = Vec::new();
    Value::string("onMetaData").write(&mut out);
    Value::EcmaArray(all).write(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::connection;
    use crate::codec::media::{Codec, MediaHeader, PacketContent, find_time_code};

    fn made(bitrate: u64, audio: bool) -> Tracks {
        let config = SourceConfig {
            bitrate: Some(BitRate(bitrate)),
            audio: Some(audio),
            ..SourceConfig::default()
        };
        Tracks::new(&config, None).expect("it can be made")
    }

    #[test]
    fn generated_frames_are_complete_and_carry_time_codes() {
        for bitrate in [100_000, 2_000_000, 20_000_000] {
            let tracks = made(bitrate, true);
            let [video, audio] = &tracks.tracks[..] else {
                panic!("{}", tracks.tracks.len());
            };
            assert_eq!((video.frames.len(), audio.frames.len()), (50, 3));
            for (number, frame) in video.frames.iter().enumerate() {
                let tag = MediaHeader::parse(true, &frame.payload).expect("it is whole");
                let key = number == 0;
                assert_eq!(
                    (tag.codec, tag.content),
                    (Some(Codec::Avc), PacketContent::Frame { key })
                );
                assert!(find_time_code(&frame.payload[tag.data..]).is_some());
                assert!(frame.time_code_offset.is_some_and(|at| at < 120));
                // Lengths lead from one NAL unit to the next, up to the end.
                let mut rest = &frame.payload[5..];
                while let Some((length, after)) = rest.split_first_chunk() {
                    rest = &after[u32::from_be_bytes(*length) as usize..];
                }
                assert!(rest.is_empty());
            }
            let bytes: usize = video.frames.iter().map(|frame| frame.payload.len()).sum();
            let rate = bytes as u64 * 8 / 2;
            assert!(
                rate.abs_diff(bitrate) < bitrate / 20,
                "{rate} instead of {bitrate}"
            );
            let bytes: usize = audio.frames.iter().map(|frame| frame.payload.len()).sum();
            assert!((bytes * 8 * 1000 / 64).abs_diff(192_000) < 4000, "{bytes}");
            assert_eq!(audio.timestamp(3), 64);
            assert_eq!(audio.timestamp(4), 85);
        }
    }

    #[test]
    fn only_time_codes_near_the_start_are_numbered() {
        // As encoders write files: the first picture begins with encoder information.
        let about = [&[6, 5][..], &[1; 700]].concat();
        let long_buffering = [&[6, 0][..], &[1; 200]].concat();
        let slice = |kind| vec![kind; 300];
        let pictures = [
            vec![about, slice(0x65)],
            vec![slice(0x41)],
            vec![long_buffering, slice(0x41)],
        ];
        let clip = Clip::video_of_file(&[0x67; 20], &[0x68; 4], &pictures, PACKET_MAX);
        let track = Track::from_clip(Arc::new(clip.expect("it is whole"))).expect("it is whole");
        let seen = track.frames.iter().map(|frame| {
            let head = &frame.payload[..HEAD_BYTES_MAX];
            (
                frame.time_code_offset.is_some(),
                find_time_code(&head[5..]).is_some(),
            )
        });
        let seen: Vec<(bool, bool)> = seen.collect();
        assert_eq!(seen, [(true, true), (true, true), (false, false)]);
    }

    #[test]
    fn preamble_describes_the_media() {
        let tracks = made(1_000_000, true);
        let size = connection::parse_metadata(&tracks.metadata).expect("it is metadata");
        assert!(
            size.get("width")
                .and_then(Value::as_number)
                .is_some_and(|width| width > 0.0)
        );
        let configs: Vec<Option<MediaHeader>> = tracks
            .tracks
            .iter()
            .map(|track| MediaHeader::parse(track.video, &track.config))
            .collect();
        assert!(
            configs
                .iter()
                .flatten()
                .all(|tag| tag.content == PacketContent::Config)
        );
        assert_eq!(tracks.tracks[1].config[..], [0xaf, 0, 0x11, 0x90]);
    }

    #[test]
    fn keys_that_do_not_apply_to_rtmp_are_rejected() {
        let check = |text: &str| {
            let config: SourceConfig = serde_json::from_str(text).expect("it is a source");
            Tracks::check(&config)
        };
        assert_eq!(check("{}"), Ok(()));
        assert!(check(r#"{"pacing":"spread"}"#).is_err());
        assert!(check(r#"{"mtu":1000}"#).is_err());
    }
}
