//! Numbers that look random and follow from others, where a generator's state would be too much.

/// Several numbers to one that looks random (SplitMix64's finisher), the same for the same numbers.
#[inline]
pub fn mix(numbers: &[u64]) -> u64 {
    numbers
        .iter()
        .fold(0x9e37_79b9_7f4a_7c15, |state, &number| {
            let mut value = (state ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
            value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            value ^ (value >> 31)
        })
}
