//! Generated audio: a tone in G.711.

/// Samples per second, and the clock of the RTP timestamps (RFC 3551, table 4).
pub(super) const CLOCK_RATE: u32 = 8000;
/// The static payload type of PCMU (RFC 3551, table 4).
pub(super) const PAYLOAD_TYPE: u8 = 0;
/// Samples of a packet of 20 ms, the default (RFC 3551, 4.2).
pub(super) const SAMPLES_PER_PACKET: usize = 160;

/// One second of 440 Hz in mu-law. It consists of whole waves and can therefore be looped.
pub(super) fn tone() -> Vec<u8> {
    (0..CLOCK_RATE)
        .map(|index| {
            let phase = f64::from(index * 440 % CLOCK_RATE) / f64::from(CLOCK_RATE);
            mu_law(((phase * std::f64::consts::TAU).sin() * 8000.0) as i16)
        })
        .collect()
}

/// Encodes a sample in mu-law (ITU-T G.711): sign, three bits of exponent, four of mantissa,
/// inverted.
fn mu_law(sample: i16) -> u8 {
    /// Offset that makes every segment begin at a power of two.
    const BIAS: u16 = 0x84;
    let magnitude = sample.unsigned_abs().min(32_635) + BIAS;
    let exponent = 8 - magnitude.leading_zeros() as u16;
    let mantissa = magnitude >> (exponent + 3) & 0x0f;
    let sign = if sample < 0 { 0x80 } else { 0 };
    !(sign | (exponent << 4) as u8 | mantissa as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mu_law_matches_the_extremes_of_the_table() {
        assert_eq!(mu_law(0), 0xff);
        assert_eq!(mu_law(i16::MAX), 0x80);
        assert_eq!(mu_law(i16::MIN), 0x00);
        assert_eq!(mu_law(-1), 0x7f);
        // Each segment is twice as coarse as the one below.
        assert_eq!(mu_law(1000), 0xce);
    }

    #[test]
    fn tone_repeats_without_a_step() {
        let tone = tone();
        assert_eq!(tone.len(), 8000);
        assert_eq!(tone[0], mu_law(0));
        let crossings = tone
            .windows(2)
            .filter(|w| w[0] & 0x80 != 0 && w[1] & 0x80 == 0)
            .count();
        assert_eq!(crossings, 440);
    }
}
