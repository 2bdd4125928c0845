//! AAC made from nothing: silence of a stated bit rate (ISO/IEC 14496-3, 4.4 and 4.6).

/// Samples of one frame.
pub const SAMPLES_PER_FRAME: u32 = 1024;
/// Samples per second.
pub const SAMPLES_PER_SECOND: u32 = 48_000;
/// Channels.
pub const CHANNELS: u16 = 2;
/// What a decoder needs beforehand (ISO/IEC 14496-3, 1.6.2.1): low complexity, 48 kHz, stereo.
pub const CONFIG: [u8; 2] = [0x11, 0x90];

/// Elements of a frame (ISO/IEC 14496-3, table 4.85).
const CHANNEL_PAIR: u32 = 1;
const FILL: u32 = 6;
const END: u32 = 7;
/// The most bytes of one fill element: 14 and 255 (ISO/IEC 14496-3, 4.4.1.1, fill_element).
const FILL_MAX: usize = 14 + 255;
/// What fill bytes are (ISO/IEC 14496-3, 4.4.2.7: `other_bits` of EXT_FILL_DATA).
const FILL_BYTE: u32 = 0xa5;

/// Bits, the first the highest.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    /// How many bits of the last byte are used; 0 where it is full.
    used: u32,
}

impl Bits {
    fn put(&mut self, value: u32, count: u32) {
        for at in (0..count).rev() {
            if self.used == 0 {
                self.bytes.push(0);
            }
            let bit = (value >> at & 1) as u8;
            if let Some(last) = self.bytes.last_mut() {
                *last |= bit << (7 - self.used);
            }
            self.used = (self.used + 1) % 8;
        }
    }

    fn len(&self) -> usize {
        self.bytes.len() * 8 - ((8 - self.used) % 8) as usize
    }
}

/// A frame of silence, filled up to so many bytes; longer where it cannot be that short.
pub fn silence(bytes: usize) -> Vec<u8> {
    let mut bits = Bits::default();
    bits.put(CHANNEL_PAIR, 3);
    // The instance, and no common window.
    bits.put(0, 5);
    for _ in 0..CHANNELS {
        // The gain; then a long window with no band in it, and no pulse, noise shaping or gain
        // control (individual_channel_stream and ics_info).
        bits.put(0, 8);
        bits.put(0, 1 + 2 + 1 + 6 + 1);
        bits.put(0, 3);
    }
    let wanted = (bytes * 8).saturating_sub(3);
    // An element takes 7 bits and its bytes, or 15 and up to 269.
    while bits.len() + 15 <= wanted {
        let room = (wanted - bits.len() - 7) / 8;
        let count = match room {
            0..15 => room,
            _ => ((wanted - bits.len() - 15) / 8).clamp(15, FILL_MAX),
        };
        bits.put(FILL, 3);
        match u32::try_from(count).unwrap_or(0) {
            count @ 0..15 => bits.put(count, 4),
            count => {
                bits.put(15, 4);
                bits.put(count - 14, 8);
            }
        }
        for at in 0..count {
            // The first says what the fill is: four bits of its type, and four of zero.
            bits.put(if at == 0 { 0 } else { FILL_BYTE }, 8);
        }
    }
    bits.put(END, 3);
    bits.bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_as_long_as_was_asked() {
        assert!(silence(0).len() <= 8);
        for bytes in 10..1500 {
            let frame = silence(bytes);
            assert!(frame.len().abs_diff(bytes) <= 1, "{bytes}: {}", frame.len());
        }
    }
}
