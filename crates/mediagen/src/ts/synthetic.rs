//! A made programme: H.264 that any decoder decodes, and tables and clock as the standard wants
//! them.

use super::looped_stream::{
    ClockMark, LoopedStream, Mark, RATE_MAX, RATE_MIN, TIME_WRAP, rate_for, room, write_time,
};
use super::packet::{PACKET, PCR_HZ, SYNC};
use super::stamp::{STAMP_PID, STAMP_STREAM_TYPE};
use super::tables;
use crate::frame_rate::FrameRate;
use crate::h264::{H264Settings, H264Stream, PictureForm, SettingsError};

/// Number of the programme, and PIDs of its map and its video.
const PROGRAMME: u16 = 1;
const MAP_PID: u16 = 0x1000;
const VIDEO_PID: u16 = 0x100;

/// The stream type of H.264 (ISO/IEC 13818-1, table 2-34).
const H264: u8 = 0x1b;

/// Pictures a second, and from one IDR picture to the next: one a second, as zapping wants it.
const FRAMES: u32 = 25;
const GOP: u32 = 25;

/// The most that is spent on video, in bit/s: as much as a channel in HD has. Null packets are the
/// rest.
const VIDEO_MAX: u64 = 8_000_000;

/// What the video takes of the room that there is, at most; the rest is for what PES and byte
/// stream add.
const SHARE: f64 = 0.85;

/// What the clock shows at the beginning: ten seconds, so that no time before it is below zero.
const CLOCK: u64 = 10 * PCR_HZ;

/// An access unit delimiter, which a picture in a transport stream begins with (ISO/IEC 13818-1,
/// 2.14.1; H.264, 7.3.2.4).
const DELIMITER: [u8; 2] = [0x09, 0xf0];

/// Why no programme can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyntheticError {
    /// Outside of what a stream can have.
    #[error("a bit rate of {0} bit/s: there must be between {min} and {max} Mb/s", min = RATE_MIN as f64 / 1e6, max = RATE_MAX / 1_000_000)]
    Rate(u64),
    /// No video can be made so.
    #[error(transparent)]
    Video(#[from] SettingsError),
}

impl LoopedStream {
    /// A programme of video alone, at a constant bit rate of transport packets, stamps included.
    /// Null packets fill it up. The video takes what there is, up to 8 Mb/s. Takes some tenths of a
    /// second.
    ///
    /// # Errors
    /// The bit rate is not one of [`RATE_MIN`] to [`RATE_MAX`].
    pub fn synthetic(rate: u64) -> Result<LoopedStream, SyntheticError> {
        if !(RATE_MIN..=RATE_MAX).contains(&rate) {
            return Err(SyntheticError::Rate(rate));
        }
        let sections = [
            (0, tables::pat(PROGRAMME, MAP_PID)),
            (
                MAP_PID,
                tables::pmt(
                    PROGRAMME,
                    VIDEO_PID,
                    &[(H264, VIDEO_PID), (STAMP_STREAM_TYPE, STAMP_PID)],
                ),
            ),
        ];
        let sections = sections.iter();
        let tables: Vec<_> = sections
            .flat_map(|(pid, section)| tables::packets(*pid, section))
            .collect();
        let payload = room(rate, tables.len()) * (8 * (PACKET - 4)) as f64;
        // Half a packet of each picture is stuffing; headers and the delimiter are some bytes more.
        let per_picture = f64::from(FRAMES * 8) * (PACKET / 2 + 40) as f64;
        let video = ((payload - per_picture).max(0.0) * SHARE) as u64;
        let settings = H264Settings {
            bits_per_second: video.min(VIDEO_MAX),
            frame_rate: FrameRate::whole(FRAMES),
            gop: GOP,
            // It is not cut into packets of RTP; where the bit rate of those is met, that of the
            // stream is nearly so.
            mtu: 65_000,
            form: PictureForm::default(),
        };
        let stream = H264Stream::new(&settings)?;
        let length = stream.pictures.len() as u64 * PCR_HZ / u64::from(FRAMES);
        let (width, height) = stream.size;
        let mut looped = LoopedStream {
            packets: Vec::new(),
            marks: Vec::new(),
            pids: 1,
            length,
            tables,
            clock: CLOCK,
            clock_pid: (VIDEO_PID, 0),
            delay: 0,
            rate: 0,
            listed: true,
            description: format!(
                "H.264 {width}x{height}, {FRAMES} frames/s, {:.1} Mb/s",
                settings.bits_per_second as f64 / 1e6
            ),
        };
        let ends = looped.pack(&stream);
        // The video leaves evenly. So a picture that is larger than others is late by its number,
        // and all are shown so much later that none is.
        let count = looped.packets.len() as u64;
        for (index, mark) in (0u64..).zip(&mut looped.marks) {
            mark.at = length * index / count;
        }
        let usual = |picture: usize| picture as u64 * PCR_HZ / u64::from(FRAMES);
        let late = |(picture, &end): (usize, &usize)| {
            (length * end as u64 / count).saturating_sub(usual(picture))
        };
        let late = ends.iter().enumerate().map(late).max().unwrap_or(0);
        let mut picture = 0;
        for (packet, mark) in looped.packets.iter_mut().zip(&looped.marks) {
            if let Some((at, _)) = mark.times {
                let at = usize::from(at);
                let shown = (CLOCK + late + usual(picture)) / 300 % TIME_WRAP;
                packet[at..at + 5].copy_from_slice(&write_time(2, shown));
                picture += 1;
            }
        }
        looped.set_rate(rate).map_err(|no_room| {
            // It takes so little of the room that this is no rate at which there would be video
            // either.
            let needed = no_room.needs.max(rate_for(0.0, looped.tables.len()));
            SettingsError::BitRateTooLow {
                asked: rate,
                needed,
                frame_rate: settings.frame_rate,
                gop: GOP,
            }
        })?;
        Ok(looped)
    }

    /// Puts pictures into packets. Says where each ends.
    fn pack(&mut self, stream: &H264Stream) -> Vec<usize> {
        let mut ends = Vec::new();
        for nals in &stream.pictures {
            // A PES packet of video (2.4.3.6): of any length, data aligned, with a time of
            // presentation, filled in later.
            let mut bytes = vec![0, 0, 1, 0xe0, 0, 0, 0x84, 0x80, 5];
            bytes.extend([0; 5]);
            for nal in [&DELIMITER[..]]
                .into_iter()
                .chain(nals.iter().map(Vec::as_slice))
            {
                bytes.extend([0, 0, 0, 1]);
                bytes.extend(nal);
            }
            let random_access = nals.len() > 1 && nals[0].first().is_some_and(|nal| nal & 31 == 7);
            self.pack_unit(&bytes, random_access);
            ends.push(self.packets.len());
        }
        ends
    }

    fn pack_unit(&mut self, bytes: &[u8], random_access: bool) {
        let mut rest = bytes;
        let mut first = true;
        while !rest.is_empty() {
            let [high, low] = VIDEO_PID.to_be_bytes();
            let mut packet = [0xff; PACKET];
            // An adaptation field says where a decoder can begin, and fills the last packet up.
            let flags = first && random_access;
            let room = PACKET - 4 - if flags { 2 } else { 0 };
            let taken = rest.len().min(room);
            let field = PACKET - 4 - taken;
            let start = if first { 0x40 } else { 0 };
            let control = if field > 0 { 0x30 } else { 0x10 };
            packet[..4].copy_from_slice(&[SYNC, start | high, low, control]);
            if field > 0 {
                packet[4] = (field - 1) as u8;
            }
            if field > 1 {
                packet[5] = if flags { 0x40 } else { 0 };
            }
            let (now, later) = rest.split_at(taken);
            packet[4 + field..].copy_from_slice(now);
            self.packets.push(packet);
            self.marks.push(Mark {
                at: 0,
                pid: 0,
                counts: true,
                clock: ClockMark::None,
                times: first.then_some(((4 + field + 9) as u8, false)),
            });
            rest = later;
            first = false;
        }
    }
}
