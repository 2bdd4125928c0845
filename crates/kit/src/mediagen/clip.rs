//! Media to send: frames split into packets, generated once and shared by all senders.

use std::time::Duration;

use bytes::Bytes;

use super::aac;
use super::audio;
use super::frame_rate::FrameRate;
use super::h264::{H264Stream, packets};
use super::opus;
use super::time_code::{self, TimeCode};
use super::video::{SettingsError, VideoSettings};
use super::vp8::{self, Vp8Stream};

mod from_file;

pub(crate) use from_file::Coding;

/// One packet of a clip.
#[derive(Clone, Debug)]
pub struct ClipPacket {
    /// Bytes after the RTP header.
    pub payload: Bytes,
    /// Index of its frame in the loop.
    pub frame: u32,
    /// Index of the packet in its frame, and number of packets of the frame.
    pub part: (u32, u32),
    /// The marker bit.
    pub marker: bool,
    /// Position of the time code's numbers in the payload, if it has a time code.
    pub code_at: Option<u16>,
}

/// Send times of a loop's frames, if they are not evenly spaced.
#[derive(Debug)]
pub struct FrameTimes {
    /// For each frame: send time in nanoseconds from the beginning of the loop, never decreasing;
    /// and RTP timestamp relative to the beginning of the loop, which is ahead for frames that are
    /// shown later than they are sent.
    pub frames: Vec<(u64, u32)>,
    /// Length of the loop, in nanoseconds.
    pub length: u64,
}

/// Media to send: one loop, split into packets, repeated endlessly.
#[derive(Debug)]
pub struct Clip {
    /// Packets, in order.
    pub packets: Vec<ClipPacket>,
    /// Number of frames.
    pub frames: u32,
    /// Frames per second.
    pub frame_rate: FrameRate,
    /// Send times of the frames; `None` if they are evenly spaced by the frame rate.
    pub times: Option<FrameTimes>,
    /// Ticks per second of the RTP timestamps.
    pub clock_rate: u32,
    /// Payload type of the packets (RFC 3550, 5.1).
    pub payload_type: u8,
    media: &'static str,
    encoding: String,
    parameters: String,
    bits_per_second: u64,
    description: String,
}

impl Clip {
    /// Creates a clip from frames that are split into payloads. It has neither send times nor a bit
    /// rate yet.
    fn of_frames(
        coding: Coding,
        description: String,
        frames: impl Iterator<Item = Vec<Bytes>>,
    ) -> Clip {
        let mut packets = Vec::new();
        let mut count = 0;
        for payloads in frames {
            add_frame(&mut packets, count, payloads, coding.marks_ends);
            count += 1;
        }
        Clip {
            packets,
            frames: count,
            frame_rate: FrameRate::whole(1),
            times: None,
            clock_rate: coding.clock_rate,
            payload_type: coding.payload_type,
            media: coding.media,
            encoding: coding.encoding,
            parameters: coding.parameters,
            bits_per_second: 0,
            description,
        }
    }

    /// Generates H.264 video with a given bit rate, packetized by RFC 6184 in packetization mode 1.
    pub fn video(settings: &VideoSettings) -> Result<Clip, SettingsError> {
        Ok(Clip::of_stream(
            &H264Stream::new(settings)?,
            settings,
            false,
        ))
    }

    /// Like [`Clip::video`], with room for a time code in each picture, which the sender fills in.
    /// The bit rate includes it, except for the overhead of an additional packet in pictures of
    /// several packets.
    pub fn coded_video(settings: &VideoSettings) -> Result<Clip, SettingsError> {
        let stream = H264Stream::new(&without_codes(settings));
        let stream = stream.map_err(|error| with_codes(error, settings))?;
        Ok(Clip::of_stream(&stream, settings, true))
    }

    /// Checks whether [`Clip::coded_video`] can generate a clip.
    pub fn check_coded_video(settings: &VideoSettings) -> Result<(), SettingsError> {
        let checked = H264Stream::check(&without_codes(settings));
        checked.map_err(|error| with_codes(error, settings))
    }

    /// Creates a clip of a stream. If `coded`, the stream was generated with the bit rate that time
    /// codes leave.
    pub(crate) fn of_stream(stream: &H264Stream, settings: &VideoSettings, coded: bool) -> Clip {
        let coding = Coding::h264(&stream.sps, &stream.pps)
            .expect("generated parameter sets are not truncated");
        let (width, height) = stream.size;
        let description = format!(
            "H.264{} {width}x{height}, {} frames/s",
            settings.form.profile.suffix(),
            settings.frame_rate,
        );
        let pictures = stream.pictures.iter();
        let frames = pictures.map(|nals| cut_picture(nals, settings.mtu, coded));
        Clip {
            frame_rate: settings.frame_rate,
            bits_per_second: settings.bits_per_second,
            ..Clip::of_frames(coding, description, frames)
        }
    }

    /// Creates a clip of VP8 video, packetized by RFC 7741, with a time code at the end of each
    /// frame, which the sender fills in.
    pub(crate) fn of_vp8(stream: &Vp8Stream, settings: &VideoSettings) -> Clip {
        let (width, height) = stream.size;
        let description = format!("VP8 {width}x{height}, {} frames/s", settings.frame_rate);
        let frames = stream.frames.iter();
        let frames = frames.map(|frame| vp8::cut(frame, settings.mtu));
        Clip {
            frame_rate: settings.frame_rate,
            bits_per_second: settings.bits_per_second,
            ..Clip::of_frames(Coding::vp8(), description, frames)
        }
    }

    /// Generates a tone at 64 kb/s: G.711 mu-law (RFC 3551, 4.5.14), a packet every 20 ms.
    pub fn audio() -> Clip {
        let tone = audio::tone();
        let samples = tone.chunks(audio::SAMPLES_PER_PACKET);
        let frames = samples.map(|samples| vec![Bytes::copy_from_slice(samples)]);
        Clip {
            frame_rate: FrameRate::whole(audio::CLOCK_RATE / audio::SAMPLES_PER_PACKET as u32),
            bits_per_second: u64::from(audio::CLOCK_RATE) * 8,
            ..Clip::of_frames(Coding::mu_law(), "G.711 mu-law, 440 Hz".to_owned(), frames)
        }
    }

    /// Generates silence in Opus at exactly 32 kb/s, a packet every 20 ms (RFC 7587).
    pub fn opus() -> Clip {
        let coding = Coding::opus("minptime=10;useinbandfec=1");
        let silence = vec![opus::silence(opus::FRAME_BYTES).into()];
        let frames = (0..opus::FRAMES_PER_SECOND).map(|_| silence.clone());
        Clip {
            frame_rate: FrameRate::whole(opus::FRAMES_PER_SECOND),
            bits_per_second: opus::FRAME_BYTES as u64 * 8 * u64::from(opus::FRAMES_PER_SECOND),
            ..Clip::of_frames(coding, "silence in Opus".to_owned(), frames)
        }
    }

    /// Payload of an Opus packet that keeps a silent stream alive (DTX).
    pub fn opus_quiet() -> Bytes {
        opus::silence(opus::QUIET_BYTES).into()
    }

    /// Generates silence in AAC at about this bit rate: stereo at 48 kHz, 1,024 samples per frame.
    pub fn silence(bits_per_second: u64) -> Clip {
        let rate = u64::from(aac::SAMPLES_PER_SECOND);
        let samples = u64::from(aac::SAMPLES_PER_FRAME);
        let bytes = (bits_per_second * samples)
            .div_ceil(rate * 8)
            .min(6144 / 8 * 2);
        let unit = aac::silence(usize::try_from(bytes).unwrap_or(0));
        // Three frames last exactly 64 ms.
        let units = vec![unit; 3];
        let times = (0..3).map(|frame| {
            let ticks = frame * samples;
            (ticks * 1_000_000_000 / rate, ticks as u32)
        });
        let times = FrameTimes {
            frames: times.collect(),
            length: 64_000_000,
        };
        let made = Clip::aac(
            &aac::CONFIG,
            aac::SAMPLES_PER_SECOND,
            aac::CHANNELS,
            &units,
            AU_MTU,
        );
        let mut clip = made
            .expect("the clip has frames, and none is too long")
            .with_times(times);
        clip.description = "silence in AAC, 48000 Hz".to_owned();
        clip
    }

    /// `video` or `audio`, as in the `m=` line of an SDP.
    pub fn media(&self) -> &'static str {
        self.media
    }

    /// RTP payload type.
    pub fn payload_type(&self) -> u8 {
        self.payload_type
    }

    /// Clock rate of the RTP timestamps in Hz.
    pub fn clock_rate(&self) -> u32 {
        self.clock_rate
    }

    /// Value of `a=rtpmap` in an SDP, after the payload type.
    pub fn encoding(&self) -> &str {
        &self.encoding
    }

    /// Value of `a=fmtp` in an SDP, after the payload type; empty if there is none.
    pub fn parameters(&self) -> &str {
        &self.parameters
    }

    /// Bit rate of the payload, in bit/s.
    pub fn bits_per_second(&self) -> u64 {
        self.bits_per_second
    }

    /// Frames per second.
    pub fn frame_rate(&self) -> FrameRate {
        self.frame_rate
    }

    /// Media time of the key frame at the beginning of the loop that `time` is in. Later key frames
    /// of the loop do not count.
    pub fn key_frame_before(&self, time: Duration) -> Duration {
        let before = self.frames_within(time);
        // The first frame at or after `time` may be exactly there.
        let at = |frame| Duration::from_nanos(self.nanos(frame));
        let frame = match at(before) <= time {
            true => before,
            false => before - 1,
        };
        at(frame - frame % u64::from(self.frames))
    }

    /// Send time of a frame, counted over all loops, in nanoseconds from the beginning of the
    /// first.
    #[inline]
    pub fn nanos(&self, frame: u64) -> u64 {
        match &self.times {
            None => self.frame_rate.nanos(frame),
            Some(times) => {
                let (loops, index) = self.loop_position(frame);
                loops
                    .saturating_mul(times.length)
                    .saturating_add(times.frames[index].0)
            }
        }
    }

    /// RTP timestamp of a frame, counted over all loops. It wraps around.
    #[inline]
    pub fn ticks(&self, frame: u64) -> u32 {
        match &self.times {
            None => self.frame_rate.ticks(frame, self.clock_rate) as u32,
            Some(times) => {
                let (loops, index) = self.loop_position(frame);
                let before = u128::from(loops) * u128::from(times.length);
                let before = before * u128::from(self.clock_rate) / 1_000_000_000;
                (before as u32).wrapping_add(times.frames[index].1)
            }
        }
    }

    /// Number of loops before a frame, and its index in its loop.
    fn loop_position(&self, frame: u64) -> (u64, usize) {
        let frames = u64::from(self.frames);
        (frame / frames, (frame % frames) as usize)
    }

    /// Number of frames that begin within `length`.
    pub fn frames_within(&self, length: Duration) -> u64 {
        let Some(times) = &self.times else {
            return self.frame_rate.frames_within(length);
        };
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        let rest = nanos % times.length;
        let begun = times.frames.partition_point(|&(due, _)| due < rest);
        (nanos / times.length)
            .saturating_mul(self.frames.into())
            .saturating_add(begun as u64)
    }

    /// Description for people.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Bytes of payload of the whole loop.
    pub fn loop_bytes(&self) -> u64 {
        self.packets
            .iter()
            .map(|packet| packet.payload.len() as u64)
            .sum()
    }
}

/// Bit rate of the time codes.
fn code_bit_rate(settings: &VideoSettings) -> u64 {
    let pictures = settings.frame_rate.frames_within(Duration::from_secs(1));
    pictures * (time_code::NAL_BYTES as u64 + 2) * 8
}

/// Returns the settings with the bit rate that time codes leave.
pub(crate) fn without_codes(settings: &VideoSettings) -> VideoSettings {
    VideoSettings {
        bits_per_second: settings
            .bits_per_second
            .saturating_sub(code_bit_rate(settings)),
        ..*settings
    }
}

/// Adjusts an error to bit rates that include time codes.
pub(crate) fn with_codes(error: SettingsError, settings: &VideoSettings) -> SettingsError {
    match error {
        SettingsError::BitRateTooLow {
            needed,
            frame_rate,
            gop,
            ..
        } => SettingsError::BitRateTooLow {
            asked: settings.bits_per_second,
            needed: needed.saturating_add(code_bit_rate(settings)),
            frame_rate,
            gop,
        },
        error => error,
    }
}

/// Maximum length of generated audio packets, which is longer than any access unit.
const AU_MTU: usize = 9000;

/// Maximum number of bytes before a time code in a packet, so that a truncated packet still
/// contains it.
const BEFORE_CODE_MAX: usize = 40;

/// Splits the NAL units of a picture into packets. With `coded`, there is room for a time code
/// before the first NAL unit that may follow it (H.264, 7.4.1.2.3).
fn cut_picture(nals: &[impl AsRef<[u8]>], mtu: usize, coded: bool) -> Vec<Bytes> {
    let nal = TimeCode::default().to_nal();
    let mut nals: Vec<&[u8]> = nals.iter().map(AsRef::as_ref).collect();
    if coded && let Some(at) = nals.iter().position(|nal| may_follow_code(nal)) {
        nals.insert(at, &nal);
    }
    let mut payloads = Vec::new();
    // If much precedes it, such as an encoder's own SEI, the code begins a packet, so that it is
    // within the first bytes of one.
    let at = nals.iter().position(|other| *other == &nal[..]);
    let before = at.map_or(0, |at| packets::aggregate_bytes(&nals[..at]));
    if let Some(at) = at.filter(|_| before > BEFORE_CODE_MAX) {
        packets::cut(&nals[..at], mtu, &mut payloads);
        nals.drain(..at);
    }
    packets::cut(&nals, mtu, &mut payloads);
    payloads
}

/// True if a time code may precede this NAL unit: a slice, or an SEI that does not begin with a
/// buffering period, which must be the first SEI message of its picture (H.264, 7.4.1.2.3). The
/// code comes as early as possible, because receivers over RTMP examine only the first bytes of a
/// picture, and encoders write some hundred bytes of SEI about themselves.
fn may_follow_code(nal: &[u8]) -> bool {
    match nal {
        [first, payload_type, ..] if first & 0x1f == 6 => *payload_type != 0,
        [first, ..] => (1..=5).contains(&(first & 0x1f)),
        [] => false,
    }
}

/// Adds the packets of a frame. `marks_end` sets the marker bit of the last one.
fn add_frame(packets: &mut Vec<ClipPacket>, frame: u32, payloads: Vec<Bytes>, marks_end: bool) {
    let count = payloads.len() as u32;
    for (index, payload) in (0..).zip(payloads) {
        let code_at = TimeCode::place(&payload).and_then(|position| u16::try_from(position).ok());
        packets.push(ClipPacket {
            code_at,
            payload,
            frame,
            part: (index, count),
            marker: marks_end && index + 1 == count,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mediagen::video::PictureForm;

    #[test]
    fn time_code_precedes_sei_of_the_encoder() {
        let about = [&[6, 5][..], &[1; 700]].concat();
        let (sps, buffering, slice) = ([0x67u8; 20], [6u8, 0, 1, 0x80], [0x65u8; 300]);
        let nals = [&sps[..], &buffering, &about, &slice];
        let payloads = cut_picture(&nals, 65_000, true);
        let all = payloads.concat();
        let code = TimeCode::place(&payloads[0]).expect("it is in the first packet");
        assert!(code < 60, "{code}");
        let at = |nal: &[u8]| all.windows(nal.len()).position(|bytes| bytes == nal);
        assert!(at(&buffering) < Some(code) && Some(code) < at(&about));
    }

    #[test]
    fn reported_minimum_bit_rate_includes_time_codes() {
        let settings = |rate| VideoSettings {
            bits_per_second: rate,
            frame_rate: FrameRate::whole(25),
            gop: 50,
            mtu: 1400,
            form: PictureForm::default(),
        };
        let error = Clip::check_coded_video(&settings(9_000)).expect_err("it is too low");
        let SettingsError::BitRateTooLow { asked, needed, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(asked, 9_000);
        assert!(Clip::check_coded_video(&settings(needed)).is_ok());
        assert!(Clip::coded_video(&settings(needed)).is_ok());
        assert!(Clip::check_coded_video(&settings(needed - 200)).is_err());
    }

    #[test]
    fn video_is_cut_into_packets() {
        let clip = Clip::video(&VideoSettings {
            bits_per_second: 1_000_000,
            frame_rate: FrameRate::whole(25),
            gop: 50,
            mtu: 1400,
            form: PictureForm::default(),
        })
        .unwrap();
        assert!(
            clip.loop_bytes().abs_diff(250_000) <= 8,
            "{}",
            clip.loop_bytes()
        );
        assert_eq!(clip.frames, 50);
        assert!(
            clip.packets
                .iter()
                .all(|packet| packet.payload.len() <= 1400)
        );
        let markers = clip.packets.iter().filter(|packet| packet.marker).count();
        assert_eq!(markers, 50);
        assert_eq!(clip.packets[0].payload[0] & 0x1f, 24);
        assert!(clip.parameters().contains("profile-level-id=42C0"));
    }

    #[test]
    fn small_frames_are_one_packet_each() {
        for (bits_per_second, frames, gop) in [(100_000, 25, 50), (250_000, 30, 1), (30_000, 10, 5)]
        {
            let clip = Clip::video(&VideoSettings {
                bits_per_second,
                frame_rate: FrameRate::whole(frames),
                gop,
                mtu: 1400,
                form: PictureForm::default(),
            })
            .unwrap();
            assert_eq!(
                clip.packets.len(),
                clip.frames as usize,
                "{bits_per_second}"
            );
            assert!(clip.packets.iter().all(|packet| packet.part == (0, 1)));
            let wanted = bits_per_second * u64::from(clip.frames) / u64::from(frames) / 8;
            assert!(
                clip.loop_bytes().abs_diff(wanted) <= 8,
                "{}",
                clip.loop_bytes()
            );
        }
    }

    #[test]
    fn audio_has_50_packets_a_second() {
        let clip = Clip::audio();
        assert_eq!(clip.loop_bytes(), 8000);
        assert_eq!(clip.packets.len(), 50);
        assert_eq!(clip.frame_rate(), FrameRate::whole(50));
    }

    #[test]
    fn each_coded_picture_has_room_for_one_code() {
        for bits_per_second in [100_000, 1_000_000, 8_000_000] {
            let settings = VideoSettings {
                bits_per_second,
                frame_rate: FrameRate::whole(25),
                gop: 50,
                mtu: 1400,
                form: PictureForm::default(),
            };
            let clip = Clip::coded_video(&settings).unwrap();
            assert_eq!(clip.bits_per_second(), bits_per_second);
            let wanted = bits_per_second * u64::from(clip.frames) / 25 / 8;
            assert!(
                clip.loop_bytes().abs_diff(wanted) <= 3 * u64::from(clip.frames),
                "{} instead of {wanted}",
                clip.loop_bytes()
            );
            let coded: Vec<u32> = clip
                .packets
                .iter()
                .filter(|packet| packet.code_at.is_some())
                .map(|packet| packet.frame)
                .collect();
            assert_eq!(coded, (0..clip.frames).collect::<Vec<u32>>());
            let plain = Clip::video(&settings).unwrap();
            assert!(plain.packets.iter().all(|packet| packet.code_at.is_none()));
        }
    }

    #[test]
    fn listed_times_continue_from_loop_to_loop() {
        let mut clip = Clip::audio();
        clip.frames = 3;
        clip.packets.truncate(3);
        clip.times = Some(FrameTimes {
            frames: vec![(0, 160), (10_000_000, 0), (30_000_000, 400)],
            length: 100_000_000,
        });
        let times: Vec<(u64, u32)> = (0..5)
            .map(|frame| (clip.nanos(frame) / 1_000_000, clip.ticks(frame)))
            .collect();
        assert_eq!(
            times,
            [(0, 160), (10, 0), (30, 400), (100, 960), (110, 800)]
        );
        let within = |millis| clip.frames_within(Duration::from_millis(millis));
        assert_eq!((within(0), within(1), within(30), within(31)), (0, 1, 2, 3));
        assert_eq!((within(100), within(101)), (3, 4));
    }
}
