//! Bit writer, mainly for H.264: fixed-length codes, Exp-Golomb codes, emulation prevention.

/// Writes a raw byte sequence payload bit by bit, most significant bit first.
#[derive(Debug, Default)]
pub(crate) struct BitWriter {
    bytes: Vec<u8>,
    /// Bits that do not fill a byte yet, in the low end.
    pending: u64,
    /// Number of pending bits: fewer than 8 between calls.
    count: u32,
}

impl BitWriter {
    pub(super) fn with_capacity(bytes: usize) -> BitWriter {
        BitWriter {
            bytes: Vec::with_capacity(bytes),
            ..BitWriter::default()
        }
    }

    /// `u(n)`: the low `width` bits of `value`; at most 32.
    pub(crate) fn bits(&mut self, value: u32, width: u32) {
        debug_assert!(width <= 32 && (width == 32 || u64::from(value) < 1 << width));
        self.pending = self.pending << width | u64::from(value);
        self.count += width;
        while self.count >= 8 {
            self.count -= 8;
            self.bytes.push((self.pending >> self.count) as u8);
        }
        self.pending &= (1 << self.count) - 1;
    }

    /// One bit.
    pub(super) fn flag(&mut self, value: bool) {
        self.bits(u32::from(value), 1);
    }

    /// `ue(v)`: unsigned Exp-Golomb (H.264, 9.1). `value` is below 2^31.
    pub(super) fn ue(&mut self, value: u32) {
        let code = value + 1;
        let width = 32 - code.leading_zeros();
        self.bits(0, width - 1);
        self.bits(code, width);
    }

    /// `se(v)`: signed Exp-Golomb (H.264, 9.1.1).
    pub(super) fn se(&mut self, value: i32) {
        let magnitude = value.unsigned_abs();
        self.ue(if value > 0 {
            2 * magnitude - 1
        } else {
            2 * magnitude
        });
    }

    /// Writes zero bits up to the next byte boundary.
    pub(super) fn align_with_zeros(&mut self) {
        if self.count > 0 {
            self.bits(0, 8 - self.count);
        }
    }

    /// Writes whole bytes, at a byte boundary.
    pub(super) fn whole_bytes(&mut self, bytes: &[u8]) {
        debug_assert_eq!(self.count, 0, "only at a byte boundary");
        self.bytes.extend_from_slice(bytes);
    }

    /// Ends the payload with its stop bit (H.264, 7.3.2.11).
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.flag(true);
        self.into_bytes()
    }

    /// Ends the payload without a stop bit.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        self.align_with_zeros();
        self.bytes
    }

    /// Number of bits.
    pub(crate) fn length(&self) -> usize {
        self.bytes.len() * 8 + self.count as usize
    }
}

/// Builds a NAL unit: the header byte, then the payload with an emulation prevention byte wherever
/// it would resemble a start code (H.264, 7.3.1 and 7.4.1).
pub(super) fn nal_unit(ref_idc: u8, unit_type: u8, payload: &[u8]) -> Vec<u8> {
    let mut nal = Vec::with_capacity(payload.len() + payload.len() / 64 + 8);
    nal.push(ref_idc << 5 | unit_type);
    let mut zeros = 0;
    for &byte in payload {
        if zeros == 2 && byte <= 3 {
            nal.push(3);
            zeros = 0;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        nal.push(byte);
    }
    nal
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut BitWriter)) -> Vec<u8> {
        let mut writer = BitWriter::default();
        write(&mut writer);
        writer.finish()
    }

    #[test]
    fn exp_golomb_codes_match_table_9_2() {
        // 1 010 011 00100 00101 and the stop bit.
        let bytes = written(|w| (0..5).for_each(|value| w.ue(value)));
        assert_eq!(bytes, [0b1010_0110, 0b0100_0010, 0b1100_0000]);
        // se: 0, 1, -1, 2 are ue: 0, 1, 2, 3.
        let signed = written(|w| [0, 1, -1, 2].into_iter().for_each(|value| w.se(value)));
        let unsigned = written(|w| (0..4).for_each(|value| w.ue(value)));
        assert_eq!(signed, unsigned);
    }

    #[test]
    fn wide_values_and_alignment() {
        let bytes = written(|w| {
            w.flag(true);
            w.bits(u32::MAX, 32);
            w.align_with_zeros();
            w.whole_bytes(&[7]);
        });
        assert_eq!(bytes, [255, 255, 255, 255, 128, 7, 128]);
    }

    #[test]
    fn start_codes_are_prevented() {
        assert_eq!(
            nal_unit(3, 5, &[0, 0, 0, 0, 1, 9, 0, 0, 4, 0, 0, 3]),
            [0x65, 0, 0, 3, 0, 0, 3, 1, 9, 0, 0, 4, 0, 0, 3, 3]
        );
    }
}
