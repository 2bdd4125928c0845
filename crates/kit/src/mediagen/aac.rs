//! Generated AAC: silence with a given bit rate (ISO/IEC 14496-3, 4.4 and 4.6).

use crate::mediagen::h264::BitWriter;

/// Samples per frame and channel.
pub const SAMPLES_PER_FRAME: u32 = 1024;
/// Sampling rate in Hz.
pub const SAMPLES_PER_SECOND: u32 = 48_000;
/// Number of channels.
pub const CHANNELS: u16 = 2;
/// AudioSpecificConfig (ISO/IEC 14496-3, 1.6.2.1): low complexity, 48 kHz, stereo.
pub const CONFIG: [u8; 2] = [0x11, 0x90];

/// Elements of a frame (ISO/IEC 14496-3, table 4.85).
const CHANNEL_PAIR: u32 = 1;
const FILL: u32 = 6;
const END: u32 = 7;
/// Maximum size of a fill element in bytes: 14 and 255 (ISO/IEC 14496-3, 4.4.1.1, fill_element).
const FILL_MAX: usize = 14 + 255;
/// Value of fill bytes (ISO/IEC 14496-3, 4.4.2.7: `other_bits` of EXT_FILL_DATA).
const FILL_BYTE: u32 = 0xa5;

/// Returns a frame of silence, padded to `bytes` bytes, or longer if it cannot be that short.
pub fn silence(bytes: usize) -> Vec<u8> {
    let mut bits = BitWriter::default();
    bits.bits(CHANNEL_PAIR, 3);
    // Instance tag, and no common window.
    bits.bits(0, 5);
    for _ in 0..CHANNELS {
        // Gain, then a long window without bands, and no pulse data, noise shaping or gain control
        // (individual_channel_stream and ics_info).
        bits.bits(0, 8);
        bits.bits(0, 1 + 2 + 1 + 6 + 1);
        bits.bits(0, 3);
    }
    let wanted = (bytes * 8).saturating_sub(3);
    // A fill element takes 7 bits and its bytes, or 15 bits and up to 269 bytes.
    while bits.length() + 15 <= wanted {
        let room = (wanted - bits.length() - 7) / 8;
        let count = match room {
            0..15 => room,
            _ => ((wanted - bits.length() - 15) / 8).clamp(15, FILL_MAX),
        };
        bits.bits(FILL, 3);
        match u32::try_from(count).unwrap_or(0) {
            count @ 0..15 => bits.bits(count, 4),
            count => {
                bits.bits(15, 4);
                bits.bits(count - 14, 8);
            }
        }
        for at in 0..count {
            // The first byte has the extension type and four zero bits.
            bits.bits(if at == 0 { 0 } else { FILL_BYTE }, 8);
        }
    }
    bits.bits(END, 3);
    bits.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_requested_length() {
        assert!(silence(0).len() <= 8);
        for bytes in 10..1500 {
            let frame = silence(bytes);
            assert!(frame.len().abs_diff(bytes) <= 1, "{bytes}: {}", frame.len());
        }
    }
}
