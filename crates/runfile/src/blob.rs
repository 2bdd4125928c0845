//! Encoding of a distribution as a compact blob.
//!
//! All numbers are unsigned LEB128 varints. The first is the number of buckets. If it is not zero,
//! the exact sum of all values, the exact minimum and the exact maximum follow, then two numbers
//! for each bucket: the difference between its value and the previous bucket's value, and its
//! count.

use measure::Sparse;

/// Maximum number of values in a stored distribution. No window comes close; the limit keeps sums
/// over damaged files from overflowing.
const VALUES_MAX: u64 = 1 << 44;

/// Encodes a distribution.
pub fn encode(sparse: &Sparse) -> Vec<u8> {
    let mut blob = Vec::with_capacity(16 + sparse.buckets.len() * 4);
    write_varint(&mut blob, sparse.buckets.len() as u128);
    if sparse.buckets.is_empty() {
        return blob;
    }
    write_varint(&mut blob, sparse.sum);
    write_varint(&mut blob, u128::from(sparse.min));
    write_varint(&mut blob, u128::from(sparse.max));
    let mut last = 0;
    for &(value, count) in &sparse.buckets {
        write_varint(&mut blob, u128::from(value - last));
        write_varint(&mut blob, u128::from(count));
        last = value;
    }
    blob
}

/// Decodes a distribution. Returns `None` if the blob is damaged.
pub fn decode(mut blob: &[u8]) -> Option<Sparse> {
    let buckets = usize::try_from(read_varint(&mut blob)?).ok()?;
    if buckets == 0 {
        return blob.is_empty().then(Sparse::default);
    }
    let sum = read_varint(&mut blob)?;
    let min = u64::try_from(read_varint(&mut blob)?).ok()?;
    let max = u64::try_from(read_varint(&mut blob)?).ok()?;
    // A bucket takes at least two bytes, so a short blob cannot request a large allocation.
    if buckets > blob.len() / 2 {
        return None;
    }
    let mut sparse = Sparse {
        buckets: Vec::with_capacity(buckets),
        sum,
        min,
        max,
    };
    let (mut value, mut total) = (0u64, 0u64);
    for index in 0..buckets {
        let step = u64::try_from(read_varint(&mut blob)?).ok()?;
        let count = u64::try_from(read_varint(&mut blob)?).ok()?;
        if (step == 0 && index > 0) || count == 0 {
            return None;
        }
        value = value.checked_add(step)?;
        total = total
            .checked_add(count)
            .filter(|total| *total <= VALUES_MAX)?;
        sparse.buckets.push((value, count));
    }
    let possible = u128::from(min) * u128::from(total)..=u128::from(max) * u128::from(total);
    (blob.is_empty() && min <= max && possible.contains(&sum)).then_some(sparse)
}

fn write_varint(blob: &mut Vec<u8>, mut value: u128) {
    while value >= 0x80 {
        blob.push(value as u8 | 0x80);
        value >>= 7;
    }
    blob.push(value as u8);
}

fn read_varint(blob: &mut &[u8]) -> Option<u128> {
    let mut value = 0u128;
    for shift in (0..u128::BITS).step_by(7) {
        let (&byte, rest) = blob.split_first()?;
        *blob = rest;
        let bits = u128::from(byte & 0x7f);
        if bits.leading_zeros() < shift {
            return None;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::Histogram;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decoding_reverses_encoding(values in proptest::collection::vec(0u64..(1 << 45), 0..100)) {
            let mut histogram = Histogram::new();
            for value in values {
                histogram.record(value);
            }
            let sparse = histogram.to_sparse();
            prop_assert_eq!(decode(&encode(&sparse)), Some(sparse));
        }

        #[test]
        fn arbitrary_bytes_are_rejected_or_valid(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            if let Some(sparse) = decode(&bytes) {
                let mut histogram = sparse.to_histogram();
                histogram.merge(&sparse);
                prop_assert_eq!(histogram.count(), 2 * sparse.count());
            }
        }

        #[test]
        fn truncated_blob_is_rejected(
            values in proptest::collection::vec(0u64..(1 << 40), 1..20),
            cut in any::<proptest::sample::Index>(),
        ) {
            let mut histogram = Histogram::new();
            for value in values {
                histogram.record(value);
            }
            let blob = encode(&histogram.to_sparse());
            prop_assert_eq!(decode(&blob[..cut.index(blob.len())]), None);
        }
    }

    #[test]
    fn encoding_is_compact() {
        let mut histogram = Histogram::new();
        for step in 0..1000 {
            histogram.record(20_000_000 + step * 37);
        }
        assert!(encode(&histogram.to_sparse()).len() < 100);
    }
}
