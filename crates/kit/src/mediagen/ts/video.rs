//! Programmes of generated H.264: their tables, and their pictures as PES packets.

use super::looped_stream::{TIME_WRAP, write_time};
use super::packet::{PACKET_LEN, SYNC};
use super::tables;
use crate::mediagen::h264::before_slices;
use crate::mediagen::time_code::{NAL_BYTES, TimeCode};

/// Number of the programme, and PIDs of its map and of its video.
const PROGRAMME: u16 = 1;
const MAP_PID: u16 = 0x1000;
pub(crate) const VIDEO_PID: u16 = 0x100;

/// The stream type of H.264 (ISO/IEC 13818-1, table 2-34).
const H264: u8 = 0x1b;

/// Prefix of a NAL unit in a byte stream (H.264, B.1).
const START_CODE: [u8; 4] = [0, 0, 0, 1];
/// Access unit delimiter, required at the beginning of each picture in a transport stream (ISO/IEC
/// 13818-1, 2.14.1; H.264, 7.3.2.4).
const DELIMITER: [u8; 2] = [0x09, 0xf0];

/// Length of the header of a PES packet with a presentation time (ISO/IEC 13818-1, 2.4.3.6).
const PES_HEADER: usize = 14;
/// Bytes of a time code in a picture.
pub(crate) const CODE_UNIT: usize = START_CODE.len() + NAL_BYTES;
/// Bytes for payload in a packet without adaptation field.
pub(crate) const ROOM: usize = PACKET_LEN - 4;

/// Packets of the tables of a programme with video and these other streams, by type and PID.
pub(crate) fn tables_with(others: &[(u8, u16)]) -> Vec<[u8; PACKET_LEN]> {
    let streams = [&[(H264, VIDEO_PID)], others].concat();
    let sections = [
        (0, tables::pat(PROGRAMME, MAP_PID)),
        (MAP_PID, tables::pmt(PROGRAMME, VIDEO_PID, &streams)),
    ];
    let packets = sections
        .iter()
        .flat_map(|(pid, section)| tables::packets(*pid, section));
    packets.collect()
}

/// Length of a picture as a PES packet.
pub(crate) fn picture_bytes(nals: &[Vec<u8>]) -> usize {
    let units: usize = nals.iter().map(|nal| START_CODE.len() + nal.len()).sum();
    PES_HEADER + START_CODE.len() + DELIMITER.len() + CODE_UNIT + units
}

/// Writes a picture as a PES packet (ISO/IEC 13818-1, 2.4.3.6): unbounded length, data aligned,
/// presented at `shown` ticks of 27 MHz. The time code follows the parameter sets. Returns the
/// packet, and the position after the time code.
pub(crate) fn picture_unit(nals: &[Vec<u8>], code: TimeCode, shown: u64) -> (Vec<u8>, usize) {
    let mut unit = vec![0, 0, 1, 0xe0, 0, 0, 0x84, 0x80, 5];
    unit.extend(write_time(2, shown / 300 % TIME_WRAP));
    let (before, slices) = before_slices(nals);
    let mut add = |nal: &[u8]| {
        unit.extend(START_CODE);
        unit.extend(nal);
        unit.len()
    };
    add(&DELIMITER);
    for nal in before {
        add(nal);
    }
    let code_ends = add(&code.to_nal());
    for nal in slices {
        add(nal);
    }
    (unit, code_ends)
}

/// Splits a PES packet into transport packets with the continuity counter 0, each with the position
/// of its payload. The adaptation field of the first begins with `flags`: the flags, and what they
/// announce. Stuffing fills the last.
pub(crate) fn packets_of<'a>(
    unit: &'a [u8],
    pid: u16,
    flags: &'a [u8],
) -> impl Iterator<Item = ([u8; PACKET_LEN], usize)> + 'a {
    let [high, low] = pid.to_be_bytes();
    let (mut rest, mut flags, mut start) = (unit, flags, 0x40);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let reserved = match flags.len() {
            0 => 0,
            length => 1 + length,
        };
        let (now, later) = rest.split_at(rest.len().min(ROOM - reserved));
        let field = ROOM - now.len();
        let control = if field > 0 { 0x30 } else { 0x10 };
        let mut packet = [0xff; PACKET_LEN];
        packet[..4].copy_from_slice(&[SYNC, start | high, low, control]);
        if field > 0 {
            packet[4] = (field - 1) as u8;
        }
        if field > 1 {
            packet[5] = 0;
        }
        packet[5..5 + flags.len()].copy_from_slice(flags);
        packet[4 + field..].copy_from_slice(now);
        (rest, flags, start) = (later, &[], 0);
        Some((packet, 4 + field))
    })
}
