//! Generated programmes: H.264 that any decoder accepts, with tables and clock as the standard
//! requires.

use super::looped_stream::{
    ClockMark, LoopedStream, PacketMeta, RATE_MAX, RATE_MIN, TIME_WRAP, rate_for, room, write_time,
};
use super::packet::{PACKET_LEN, PCR_HZ};
use super::stamp::{STAMP_PID, STAMP_STREAM_TYPE};
use super::video::{CODE_UNIT, ROOM, VIDEO_PID, packets_of, picture_unit, tables_with};
use crate::mediagen::aac;
use crate::mediagen::frame_rate::FrameRate;
use crate::mediagen::h264::H264Stream;
use crate::mediagen::time_code::{CODE_BYTES, TimeCode};
use crate::mediagen::video::{PictureForm, SettingsError, VideoSettings};

/// Stream type of AAC in ADTS (ISO/IEC 13818-1, table 2-34), its PID, and the stream ID of its PES
/// packets.
const AAC: u8 = 0x0f;
const AUDIO_PID: u16 = 0x101;
const AUDIO_STREAM: u8 = 0xc0;
/// Bit rate of the generated audio, and duration of a frame.
const AUDIO_RATE: u64 = 192_000;
const AUDIO_FRAME: u64 = PCR_HZ * aac::SAMPLES_PER_FRAME as u64 / aac::SAMPLES_PER_SECOND as u64;
/// Maximum length of a loop with audio: a loop needs whole pictures and whole audio frames.
const LOOP_MAX: u64 = 130 * PCR_HZ;

/// Pictures per second and per GOP: one IDR picture per second, as fast channel changes require.
const FRAMES: u32 = 25;
const GOP: u32 = 25;

/// Maximum video bit rate, in bit/s: that of an HD channel. Null packets fill the rest.
const VIDEO_MAX: u64 = 8_000_000;

/// Maximum share of the available bit rate for video; the rest is for the overhead of PES and byte
/// stream.
const SHARE: f64 = 0.85;

/// Clock value at the beginning: ten seconds, so that no time becomes negative.
const CLOCK: u64 = 10 * PCR_HZ;

/// Reason why no programme can be generated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyntheticError {
    /// The bit rate is outside the supported range.
    #[error("a bit rate of {0} bit/s is outside the range of {min} to {max} Mbit/s", min = RATE_MIN as f64 / 1e6, max = RATE_MAX / 1_000_000)]
    Rate(u64),
    /// The video cannot be generated.
    #[error(transparent)]
    Video(#[from] SettingsError),
    /// Video and audio have no common loop length within the limit.
    #[error(
        "video at {0} pictures per second and audio at 48 kHz have no common loop of two minutes or \
         less: leave the audio out, or use 24, 25, 30, 50 or 60 pictures per second"
    )]
    Audio(FrameRate),
}

/// Settings of a generated programme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Programme {
    /// Bit rate of the transport packets including stamps, in bit/s.
    pub rate: u64,
    /// Pictures per second.
    pub frame_rate: FrameRate,
    /// Number of pictures from one IDR picture to the next.
    pub gop: u32,
    /// Properties of the pictures.
    pub form: PictureForm,
    /// True to include audio: silence in AAC at 192 kb/s.
    pub audio: bool,
}

impl Programme {
    /// Video only: 25 pictures per second, one IDR picture per second, as large as the bit rate
    /// allows.
    pub fn of_rate(rate: u64) -> Programme {
        Programme {
            rate,
            frame_rate: FrameRate::whole(FRAMES),
            gop: GOP,
            form: PictureForm::default(),
            audio: false,
        }
    }
}

impl LoopedStream {
    /// Generates a programme with video only, at a constant bit rate of transport packets including
    /// stamps: [`Programme::of_rate`].
    ///
    /// # Errors
    /// See [`LoopedStream::programme`].
    pub fn synthetic(rate: u64) -> Result<LoopedStream, SyntheticError> {
        LoopedStream::programme(&Programme::of_rate(rate))
    }

    /// Generates a programme at a constant bit rate. The video takes the available bit rate up to 8
    /// Mb/s, and null packets fill the rest. Takes some tenths of a second.
    ///
    /// # Errors
    /// The bit rate is not within [`RATE_MIN`] to [`RATE_MAX`], or video or audio cannot be
    /// generated with these settings.
    pub fn programme(programme: &Programme) -> Result<LoopedStream, SyntheticError> {
        let &Programme {
            rate, frame_rate, ..
        } = programme;
        if !(RATE_MIN..=RATE_MAX).contains(&rate) {
            return Err(SyntheticError::Rate(rate));
        }
        let tables = tables_of(programme.audio);
        let settings = VideoSettings {
            bits_per_second: video_rate(programme, tables.len()),
            frame_rate,
            gop: programme.gop,
            // The stream is not split into RTP packets. If the RTP bit rate is met, that of the
            // stream nearly is.
            mtu: 65_000,
            form: programme.form,
        };
        let stream = H264Stream::new(&settings)?;
        let ticks = |picture: usize| frame_rate.ticks(picture as u64, PCR_HZ as u32);
        let length = ticks(stream.pictures.len());
        let rounds = match programme.audio {
            false => 1,
            true => rounds_with_sound(length).ok_or(SyntheticError::Audio(frame_rate))?,
        };
        let (width, height) = stream.size;
        let mut looped = LoopedStream {
            packets: Vec::new(),
            marks: Vec::new(),
            pids: 1 + usize::from(programme.audio),
            length: length * rounds,
            tables,
            clock: CLOCK,
            clock_pid: (VIDEO_PID, 0),
            delay: 0,
            rate: 0,
            listed: true,
            description: format!(
                "H.264{} {width}x{height}, {frame_rate} frames/s, {:.1} Mbit/s{}",
                programme.form.profile.suffix(),
                settings.bits_per_second as f64 / 1e6,
                if programme.audio {
                    "; AAC, 192 kbit/s"
                } else {
                    ""
                },
            ),
        };
        let ends = looped.pack(&stream);
        // The video is sent evenly, so a large picture ends later than its index suggests. All
        // presentation times are delayed by the maximum.
        let count = looped.packets.len() as u64;
        for (index, mark) in (0u64..).zip(&mut looped.marks) {
            mark.at = length * index / count;
        }
        let late = |(picture, &end): (usize, &usize)| {
            (length * end as u64 / count).saturating_sub(ticks(picture))
        };
        let late = ends.iter().enumerate().map(late).max().unwrap_or(0);
        looped.repeat(length, rounds);
        let mut picture = 0;
        for (packet, mark) in looped.packets.iter_mut().zip(&looped.marks) {
            if let Some((at, _)) = mark.times {
                let shown = CLOCK + late + ticks(picture);
                write_shown(packet, at, shown);
                picture += 1;
            }
        }
        if programme.audio {
            looped.add_sound(late);
        }
        looped.set_rate(rate).map_err(|too_low| {
            // The video takes at most `SHARE` of the available rate, so a rate at which it does not
            // fit has no room for any video.
            let needed = too_low.needs.max(rate_for(0.0, looped.tables.len()));
            SettingsError::BitRateTooLow {
                asked: rate,
                needed,
                frame_rate,
                gop: programme.gop,
            }
        })?;
        Ok(looped)
    }

    /// Repeats the packets, `rounds` times in total.
    fn repeat(&mut self, length: u64, rounds: u64) {
        let (packets, marks) = (self.packets.clone(), self.marks.clone());
        for round in 1..rounds {
            self.packets.extend(&packets);
            self.marks.extend(marks.iter().map(|mark| PacketMeta {
                at: mark.at + length * round,
                ..*mark
            }));
        }
    }

    /// Inserts the audio packets: each frame has a PES packet, sent at the frame's start time.
    fn add_sound(&mut self, late: u64) {
        let video: Vec<_> = self.packets.drain(..).zip(self.marks.drain(..)).collect();
        let unit = aac::silence(sound_bytes());
        for frame in 0..self.length / AUDIO_FRAME {
            let at = frame * AUDIO_FRAME;
            let before = self.packets.len();
            self.pack_unit(&sound_unit(&unit), AUDIO_PID, true);
            for (packet, mark) in self.packets[before..]
                .iter_mut()
                .zip(&mut self.marks[before..])
            {
                (mark.at, mark.pid) = (at, 1);
                if let Some((offset, _)) = mark.times {
                    write_shown(packet, offset, CLOCK + late + at);
                }
            }
        }
        let sound = self.packets.drain(..).zip(self.marks.drain(..));
        let mut all: Vec<_> = video.into_iter().chain(sound).collect();
        // The sort is stable, so the packets of a unit stay in order.
        all.sort_by_key(|(_, mark)| mark.at);
        (self.packets, self.marks) = all.into_iter().unzip();
    }

    /// Splits the pictures into packets. Returns the index of the packet after each picture.
    fn pack(&mut self, stream: &H264Stream) -> Vec<usize> {
        let mut ends = Vec::new();
        for nals in &stream.pictures {
            // The presentation time and the numbers of the time code are set later.
            let (bytes, code_ends) = picture_unit(nals, TimeCode::default(), 0);
            let random_access = nals.len() > 1 && nals[0].first().is_some_and(|nal| nal & 31 == 7);
            let first = self.packets.len();
            let begins_at = self.pack_unit(&bytes, VIDEO_PID, random_access);
            // A NAL unit ends with its trailing bits.
            let code_at = begins_at + code_ends - 1 - CODE_BYTES;
            assert!(
                code_at + CODE_BYTES <= PACKET_LEN,
                "headers and time code fit into the first packet"
            );
            self.marks[first].code = Some(code_at as u8);
            ends.push(self.packets.len());
        }
        ends
    }

    /// Splits a unit into packets. Returns its position in the first one.
    fn pack_unit(&mut self, bytes: &[u8], pid: u16, random_access: bool) -> usize {
        let flags: &[u8] = if random_access { &[0x40] } else { &[] };
        let mut begins_at = None;
        for (packet, payload) in packets_of(bytes, pid, flags) {
            self.packets.push(packet);
            self.marks.push(PacketMeta {
                at: 0,
                pid: 0,
                counts: true,
                clock: ClockMark::None,
                times: begins_at.is_none().then_some(((payload + 9) as u8, false)),
                code: None,
            });
            begins_at.get_or_insert(payload);
        }
        begins_at.unwrap_or(0)
    }
}

fn tables_of(audio: bool) -> Vec<[u8; PACKET_LEN]> {
    let sound = audio.then_some((AAC, AUDIO_PID));
    let stamps = [(STAMP_STREAM_TYPE, STAMP_PID)];
    tables_with(&sound.into_iter().chain(stamps).collect::<Vec<_>>())
}

/// Bit rate that is left for the video, in bit/s.
fn video_rate(programme: &Programme, tables: usize) -> u64 {
    let payload = room(programme.rate, tables) * (8 * ROOM) as f64;
    let frames =
        f64::from(programme.frame_rate.numerator()) / f64::from(programme.frame_rate.denominator());
    // Half a packet per picture is stuffing; headers, delimiter and time code take some more bytes.
    let headers = 40 + CODE_UNIT;
    let per_picture = frames * 8.0 * (PACKET_LEN / 2 + headers) as f64;
    let sound = match programme.audio {
        true => {
            let packets = sound_unit(&aac::silence(sound_bytes()))
                .len()
                .div_ceil(ROOM);
            (packets * 8 * ROOM) as f64 * PCR_HZ as f64 / AUDIO_FRAME as f64
        }
        false => 0.0,
    };
    let video = ((payload - per_picture - sound).max(0.0) * SHARE) as u64;
    video.min(VIDEO_MAX)
}

/// Bytes of an audio frame.
fn sound_bytes() -> usize {
    let bits = AUDIO_RATE * u64::from(aac::SAMPLES_PER_FRAME);
    (bits / (8 * u64::from(aac::SAMPLES_PER_SECOND))) as usize
}

/// Number of repetitions after which video of this length ends together with an audio frame.
fn rounds_with_sound(length: u64) -> Option<u64> {
    (1..=LOOP_MAX / length.max(1)).find(|rounds| (rounds * length).is_multiple_of(AUDIO_FRAME))
}

/// Adds the headers to an audio frame: PES with a presentation time (ISO/IEC 13818-1, 2.4.3.6), and
/// ADTS (ISO/IEC 14496-3, 1.A.2.2) with low complexity, 48 kHz, stereo.
fn sound_unit(unit: &[u8]) -> Vec<u8> {
    let framed = unit.len() + 7;
    let [high, low] = ((framed + 8) as u16).to_be_bytes();
    let mut bytes = vec![0, 0, 1, AUDIO_STREAM, high, low, 0x84, 0x80, 5];
    bytes.extend([0; 5]);
    bytes.extend([
        0xff,
        0xf1,
        0x4c,
        0x80 | (framed >> 11) as u8,
        (framed >> 3) as u8,
        ((framed & 7) << 5) as u8 | 0x1f,
        0xfc,
    ]);
    bytes.extend(unit);
    bytes
}

/// Writes a presentation time, in ticks of 27 MHz, into a packet.
fn write_shown(packet: &mut [u8; PACKET_LEN], at: u8, shown: u64) {
    let at = usize::from(at);
    packet[at..at + 5].copy_from_slice(&write_time(2, shown / 300 % TIME_WRAP));
}
