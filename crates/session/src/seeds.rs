//! Pseudo-random numbers derived from other numbers, without the state of a generator.

/// Hashes numbers to a pseudo-random one (finalizer of SplitMix64). Equal inputs give equal
/// outputs.
#[inline]
pub fn derive_seed(numbers: &[u64]) -> u64 {
    numbers
        .iter()
        .fold(0x9e37_79b9_7f4a_7c15, |state, &number| {
            let mut value = (state ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
            value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            value ^ (value >> 31)
        })
}
