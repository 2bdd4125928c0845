//! Segments in MPEG-TS (ISO/IEC 13818-1): tables at the beginning of each, a clock reference with
//! each picture, no packets without content.

use super::Picture;
use crate::mediagen::frame_rate::FrameRate;
use crate::mediagen::h264::H264Stream;
use crate::mediagen::ts::packet::{PACKET_LEN, PCR_HZ, write_pcr};
use crate::mediagen::ts::video::{
    ROOM, VIDEO_PID, packets_of, picture_bytes, picture_unit, tables_with,
};

/// Presentation time of the first picture: ten seconds, so that no time becomes negative.
const BEGIN: u64 = 10 * PCR_HZ;
/// Time from the arrival of a picture at a decoder until it is shown.
const BUFFERED: u64 = PCR_HZ / 2;

/// Bytes for payload in the first packet of a picture, which has a clock reference.
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
        let mut before = vec![0];
        let mut total = 0;
        for nals in &stream.pictures {
            let rest = picture_bytes(nals).saturating_sub(FIRST_ROOM);
            total += 1 + rest.div_ceil(ROOM) as u64;
            before.push(total);
        }
        Writer {
            tables: tables_with(&[]),
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
        let (unit, _) = picture_unit(picture.nals, picture.code, shown);
        // A clock reference; decoding can begin with a key picture.
        let mut flags = [if picture.is_key { 0x50 } else { 0x10 }; 7];
        flags[1..].copy_from_slice(&write_pcr(shown - BUFFERED));
        let before = self.packets_before(picture.number);
        for (index, (mut packet, _)) in (0..).zip(packets_of(&unit, VIDEO_PID, &flags)) {
            packet[3] |= ((before + index) % 16) as u8;
            out.extend(packet);
        }
    }
}
