//! The boolean entropy encoder of VP8 (RFC 6386, 7).

/// Encodes booleans, each with the probability that it is false.
#[derive(Debug)]
pub(super) struct BoolEncoder {
    bytes: Vec<u8>,
    /// Lower end of the interval: 8 bits, preceded by `pending` bits that have not been written.
    low: u64,
    pending: u32,
    /// Length of the interval: 128 to 255, except at the beginning.
    range: u32,
}

impl BoolEncoder {
    pub(super) fn new() -> BoolEncoder {
        BoolEncoder {
            bytes: Vec::new(),
            low: 0,
            pending: 0,
            range: 255,
        }
    }

    /// Encodes a boolean. The probability of `false` is `probability` / 256.
    pub(super) fn flag(&mut self, probability: u8, value: bool) {
        let split = 1 + (((self.range - 1) * u32::from(probability)) >> 8);
        if value {
            self.low += u64::from(split);
            self.range -= split;
        } else {
            self.range = split;
        }
        let shift = self.range.leading_zeros() - 24;
        self.range <<= shift;
        self.low <<= shift;
        self.pending += shift;
        if self.pending >= 8 {
            self.write_byte();
        }
    }

    /// Encodes a number of `bits` bits, most significant bit first.
    pub(super) fn literal(&mut self, value: u32, bits: u32) {
        for bit in (0..bits).rev() {
            self.flag(128, value >> bit & 1 != 0);
        }
    }

    fn write_byte(&mut self) {
        let byte = self.low >> self.pending;
        if byte > 0xff {
            // Propagates the carry.
            for before in self.bytes.iter_mut().rev() {
                *before = before.wrapping_add(1);
                if *before != 0 {
                    break;
                }
            }
        }
        self.bytes.push(byte as u8);
        self.low &= (1 << self.pending) - 1;
        self.pending -= 8;
    }

    /// Returns the encoded bytes. A decoder reads the same values whatever bytes follow, because
    /// the interval is longer than what the last byte leaves open.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.low <<= 8;
        self.pending += 8;
        self.write_byte();
        if self.pending > 0 {
            self.low <<= 8 - self.pending;
            self.pending = 8;
            self.write_byte();
        }
        self.bytes
    }
}
