//! Generated Opus with an exact bit rate (RFC 6716).

/// Clock rate of Opus RTP timestamps, independent of the sampling rate (RFC 7587, 4.1).
pub(super) const CLOCK_RATE: u32 = 48_000;
/// Frames per second. A frame lasts 20 ms.
pub(super) const FRAMES_PER_SECOND: u32 = 50;
/// Bytes per frame: 32 kb/s.
pub(super) const FRAME_BYTES: usize = 80;

/// Bytes of a frame that keeps a silent stream alive (DTX).
pub(super) const QUIET_BYTES: usize = 3;

/// CELT, full band, 20 ms frames, mono, one frame per packet (RFC 6716, 3.1).
const CELT_FULL_BAND: u8 = 31 << 3;

/// Returns a packet of `bytes` bytes with one frame of silence. The first symbol signals silence,
/// and a decoder reads nothing after it (RFC 6716, 4.3).
pub(super) fn silence(bytes: usize) -> Vec<u8> {
    let mut packet = vec![0xff; bytes];
    packet[0] = CELT_FULL_BAND;
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mediagen::tests::run;

    /// An Ogg page (RFC 3533, 6) with one packet of at most 254 bytes.
    fn page(kind: u8, number: u32, granule: u64, packet: &[u8]) -> Vec<u8> {
        let mut page = b"OggS\0".to_vec();
        page.push(kind);
        page.extend(granule.to_le_bytes());
        page.extend(7u32.to_le_bytes());
        page.extend(number.to_le_bytes());
        page.extend([0; 4]);
        page.extend([1, packet.len() as u8]);
        page.extend(packet);
        let mut sum = 0u32;
        for byte in &page {
            sum ^= u32::from(*byte) << 24;
            for _ in 0..8 {
                let carry = sum >> 31;
                sum = (sum << 1) ^ (carry * 0x04c1_1db7);
            }
        }
        page[22..26].copy_from_slice(&sum.to_le_bytes());
        page
    }

    #[test]
    fn ffmpeg_decodes_all_samples_of_silence() {
        let mut head = b"OpusHead\x01\x01\0\0".to_vec();
        head.extend(CLOCK_RATE.to_le_bytes());
        head.extend([0; 3]);
        let mut file = page(2, 0, 0, &head);
        file.extend(page(0, 1, 0, b"OpusTags\0\0\0\0\0\0\0\0"));
        let packet = silence(FRAME_BYTES);
        let quiet = silence(QUIET_BYTES);
        assert_eq!(packet.len() * 8 * FRAMES_PER_SECOND as usize, 32_000);
        for number in 0..100 {
            let kind = if number == 99 { 4 } else { 0 };
            // A voice that falls silent has short frames in between.
            let packet = if number % 20 == 7 { &quiet } else { &packet };
            file.extend(page(kind, number + 2, u64::from(number + 1) * 960, packet));
        }
        let decode = [
            "-v", "warning", "-f", "ogg", "-i", "-", "-f", "s16le", "-ac", "1", "-",
        ];
        let Some((_, samples, complaints)) = run("ffmpeg", &decode, &file) else {
            return;
        };
        assert_eq!(complaints, "");
        assert_eq!(samples, vec![0; 100 * 960 * 2]);
    }
}
