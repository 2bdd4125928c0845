//! Generation of programme tables: sections, and the packets that carry them (ISO/IEC 13818-1,
//! 2.4.4).

use super::packet::{PACKET_LEN, SYNC};

/// `table_id` of a programme association table (ISO/IEC 13818-1, 2.4.4).
pub const PAT_TABLE: u8 = 0;
/// `table_id` of a programme map table.
pub const PMT_TABLE: u8 = 2;

/// Checksum of sections: CRC-32 with polynomial 0x04c11db7, most significant bit first, not
/// inverted (annex A).
pub fn crc(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte) << 24, |crc, _| {
            let shifted = crc << 1;
            if crc >> 31 == 1 {
                shifted ^ 0x04c1_1db7
            } else {
                shifted
            }
        })
    })
}

/// Builds a section of version 0, the only one of its table.
fn section(table: u8, number: u16, body: &[u8]) -> Vec<u8> {
    let mut section = vec![table, 0, 0];
    section.extend(number.to_be_bytes());
    // Reserved bits, version 0, current; section 0 of 0.
    section.extend([0xc1, 0, 0]);
    section.extend(body);
    finish(section)
}

/// Sets a section's length and appends its checksum.
pub fn finish(mut section: Vec<u8>) -> Vec<u8> {
    let length = (section.len() - 3 + 4) as u16;
    let [high, low] = length.to_be_bytes();
    section[1] = 0xb0 | high;
    section[2] = low;
    let check = crc(&section);
    section.extend(check.to_be_bytes());
    section
}

/// Builds a programme association table with one programme.
pub fn pat(programme: u16, map_pid: u16) -> Vec<u8> {
    let [a, b] = programme.to_be_bytes();
    let [c, d] = map_pid.to_be_bytes();
    section(PAT_TABLE, 1, &[a, b, 0xe0 | c, d])
}

/// Builds a programme map table with streams by type and PID.
pub fn pmt(programme: u16, clock_pid: u16, streams: &[(u8, u16)]) -> Vec<u8> {
    let [high, low] = clock_pid.to_be_bytes();
    let mut body = vec![0xe0 | high, low, 0xf0, 0];
    for &(kind, pid) in streams {
        body.extend(entry(kind, pid));
    }
    section(PMT_TABLE, programme, &body)
}

/// Encodes a stream entry without descriptors.
pub fn entry(kind: u8, pid: u16) -> [u8; 5] {
    let [high, low] = pid.to_be_bytes();
    [kind, 0xe0 | high, low, 0xf0, 0]
}

/// Splits a section into packets. Their continuity counters are 0.
pub fn packets(pid: u16, section: &[u8]) -> Vec<[u8; PACKET_LEN]> {
    // Pointer field: the section begins immediately.
    let mut bytes = vec![0];
    bytes.extend(section);
    let [high, low] = pid.to_be_bytes();
    let cut = bytes.chunks(PACKET_LEN - 4).enumerate();
    cut.map(|(index, chunk)| {
        let mut packet = [0xff; PACKET_LEN];
        let start = if index == 0 { 0x40 } else { 0 };
        packet[..4].copy_from_slice(&[SYNC, start | high, low, 0x10]);
        packet[4..4 + chunk.len()].copy_from_slice(chunk);
        packet
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_matches_the_standard() {
        // Check value of CRC-32/MPEG-2.
        assert_eq!(crc(b"123456789"), 0x0376_e6e7);
        // A programme association table as written by ffmpeg.
        let known = [
            0x00, 0xb0, 0x0d, 0x00, 0x01, 0xc1, 0x00, 0x00, 0x00, 0x01, 0xf0, 0x00, 0x2a, 0xb1,
            0x04, 0xb2,
        ];
        assert_eq!(pat(1, 0x1000), known);
        assert_eq!(crc(&known), 0);
    }
}
