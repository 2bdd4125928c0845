//! Segments in MPEG-TS (ISO/IEC 13818-1): tables at the beginning of each, a clock reference with
//! each picture, no packets without content.

use super::Picture;
use crate::frame_rate::FrameRate;
use crate::h264::H264Stream;
use crate::time_code::NAL_BYTES;
use crate::ts::looped_stream::{TIME_WRAP, write_time};
use crate::ts::packet::{PACKET_LEN, PCR_HZ, SYNC, write_pcr};
use crate::ts::tables;

const PROGRAMME: u16 = 1;
const MAP_PID: u16 = 0x1000;
const VIDEO_PID: u16 = 0x100;

/// Stream type of H.264 (ISO/IEC 13818-1, table 2-34).
const H264: u8 = 0x1b;

/// Presentation time of the first picture: ten seconds, so that no time becomes negative.
const BEGIN: u64 = 10 * PCR_HZ;
/// Time from the arrival of a picture at a decoder until it is shown.
const BUFFERED: u64 = PCR_HZ / 2;

/// Prefix of a NAL unit in a byte stream (H.264, B.1).
const START_CODE: [u8; 4] = [0, 0, 0, 1];
/// Access unit delimiter, required at the beginning of each picture (ISO/IEC 13818-1, 2.14.1).
const DELIMITER: [u8; 2] = [0x09, 0xf0];

/// Length of the header of a PES packet with a presentation time (ISO/IEC 13818-1, 2.4.3.6).
const PES_HEADER: usize = 14;
/// Bytes for payload in a packet, and in the first one of a picture, which has a clock reference.
const ROOM: usize = PACKET_LEN - 4;
const FIRST_ROOM: usize = ROOM - 8;

/// Writes transport packets.
#[derive(Debug)]
pub(super) struct Writer {
    /// Packets of the tables.
    tables: Vec<[u8; PACKET_LEN]>,
    /// Number of video packets before each picture of the loop, and of all of them.
    before: Vec<u64>,
}

impl Writer {
    pub(super) fn new(stream: &H264Stream) -> Writer {
        let sections = [
            (0, tables::pat(PROGRAMME, MAP_PID)),
            (
                MAP_PID,
                tables::pmt(PROGRAMME, VIDEO_PID, &[(H264, VIDEO_PID)]),
            ),
        ];
        let packets = sections
            .iter()
            .flat_map(|(pid, section)| tables::packets(*pid, section));
        let mut before = vec![0];
        let mut total = 0;
        for nals in &stream.pictures {
            let units: usize = nals.iter().map(|nal| START_CODE.len() + nal.len()).sum();
            let added = 2 * START_CODE.len() + DELIMITER.len() + NAL_BYTES;
            let rest = (PES_HEADER + units + added).saturating_sub(FIRST_ROOM);
            total += 1 + rest.div_ceil(ROOM) as u64;
            before.push(total);
        }
        Writer {
            tables: packets.collect(),
            before,
        }
    }

    /// Appends the tables of a segment.
    pub(super) fn tables(&self, segment: u64, out: &mut Vec<u8>) {
        for table in &self.tables {
            let mut packet = *table;
            // Each table is one packet.
            packet[3] |= (segment % 16) as u8;
            out.extend(packet);
        }
    }

    /// Number of video packets before a picture.
    fn packets_before(&self, picture: u64) -> u64 {
        let (count, total) = match self.before.split_last() {
            Some((total, before)) => (before.len() as u64, *total),
            None => return 0,
        };
        (picture / count) * total + self.before[(picture % count) as usize]
    }

    pub(super) fn picture(&self, picture: &Picture<'_>, rate: FrameRate, out: &mut Vec<u8>) {
        let at = rate.ticks(picture.number, PCR_HZ as u32);
        let shown = BEGIN + at;
        // Unbounded length, data aligned, with a presentation time.
        let mut unit = vec![0, 0, 1, 0xe0, 0, 0, 0x84, 0x80, 5];
        unit.extend(write_time(2, shown / 300 % TIME_WRAP));
        let (headers, slices) = picture.split();
        let code = picture.code.to_nal();
        let nals = [&DELIMITER[..]]
            .into_iter()
            .chain(headers.iter().map(Vec::as_slice))
            .chain([&code[..]])
            .chain(slices.iter().map(Vec::as_slice));
        for nal in nals {
            unit.extend(START_CODE);
            unit.extend(nal);
        }
        let mut continuity = self.packets_before(picture.number);
        let mut rest = &unit[..];
        while !rest.is_empty() {
            let is_first = rest.len() == unit.len();
            let room = if is_first { FIRST_ROOM } else { ROOM };
            let (now, later) = rest.split_at(rest.len().min(room));
            let field = ROOM - now.len();
            let start = if is_first { 0x40 } else { 0 };
            let control = if field > 0 { 0x30 } else { 0x10 };
            let [high, low] = VIDEO_PID.to_be_bytes();
            let mut packet = [0xff; PACKET_LEN];
            packet[..4].copy_from_slice(&[
                SYNC,
                start | high,
                low,
                control | (continuity % 16) as u8,
            ]);
            if field > 0 {
                packet[4] = (field - 1) as u8;
            }
            if field > 1 {
                packet[5] = match (is_first, picture.is_key) {
                    (true, true) => 0x50,
                    (true, false) => 0x10,
                    (false, _) => 0,
                };
            }
            if is_first {
                packet[6..12].copy_from_slice(&write_pcr(shown - BUFFERED));
            }
            packet[4 + field..].copy_from_slice(now);
            out.extend(packet);
            continuity += 1;
            rest = later;
        }
    }
}
