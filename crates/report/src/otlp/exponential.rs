//! Conversion of a distribution to the buckets of an exponential histogram (OpenTelemetry, "Metrics
//! Data Model", ExponentialHistogram).
//!
//! Bucket `i` at the scale `s` has the values above `b^i` and up to `b^(i+1)`, where `b` is
//! 2^(2^-s). Each bucket of ours is placed as a whole, by its upper bound, or by the largest value
//! if that is lower. This is the value that our own quantiles report, and at most 0.1 % above a
//! value in the bucket. Counts are therefore exact, and each value is in its own bucket, or in the
//! next one if it is within 0.1 % of its bucket's upper bound.

use measure::Sparse;

use super::message::{Buckets, ExponentialPoint};

/// Finest scale, with buckets of 0.27 % width. Prometheus' native histograms have no finer scale.
const SCALE_MAX: i32 = 8;

/// Maximum number of buckets, which is the default of OpenTelemetry's own libraries. The scale is
/// the finest with which the values need no more buckets.
const BUCKETS_MAX: usize = 160;

/// Returns count, sum, extremes and buckets of these values, each multiplied by `unit`.
pub(super) fn exponential(values: &Sparse, unit: f64) -> ExponentialPoint {
    let clamped = |value: u64| value.clamp(values.min.min(values.max), values.max);
    let buckets = values.buckets.iter();
    let buckets = buckets.map(|&(value, count)| (clamped(value), count));
    let zero = buckets.clone().filter(|(value, _)| *value == 0);
    let zero = zero.map(|(_, count)| count).sum();
    let placed = buckets.filter(|(value, count)| *value > 0 && *count > 0);
    let placed: Vec<(i32, u64)> = placed
        .map(|(value, count)| (index(value as f64 * unit), count))
        .collect();
    let (scale, positive) = coarsen(&placed);
    let any = !values.buckets.is_empty();
    ExponentialPoint {
        count: values.count(),
        sum: Some(values.sum as f64 * unit),
        scale,
        zero_count: zero,
        positive,
        min: any.then_some(values.min as f64 * unit),
        max: any.then_some(values.max as f64 * unit),
        ..ExponentialPoint::default()
    }
}

/// Returns the buckets at the finest scale at which there are not too many. Values are in ascending
/// order.
fn coarsen(placed: &[(i32, u64)]) -> (i32, Option<Buckets>) {
    let (Some(first), Some(last)) = (placed.first(), placed.last()) else {
        return (SCALE_MAX, None);
    };
    let mut coarser = 0;
    // Two buckets become one at the next coarser scale.
    let length = |coarser: i32| ((last.0 >> coarser) - (first.0 >> coarser)) as usize + 1;
    while length(coarser) > BUCKETS_MAX {
        coarser += 1;
    }
    let offset = first.0 >> coarser;
    let mut counts = vec![0; length(coarser)];
    for (index, count) in placed {
        counts[((index >> coarser) - offset) as usize] += count;
    }
    let buckets = Buckets {
        offset,
        bucket_counts: counts,
    };
    (SCALE_MAX - coarser, Some(buckets))
}

/// Returns the bucket of a positive value at the finest scale.
fn index(value: f64) -> i32 {
    const FRACTION: u64 = (1 << 52) - 1;
    const ONE: u64 = 1023 << 52;
    let bits = value.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i32 - 1023;
    let fraction = bits & FRACTION;
    if fraction == 0 {
        // A power of two is exactly the upper bound of its bucket.
        return (exponent << SCALE_MAX) - 1;
    }
    let buckets = 1 << SCALE_MAX;
    let within = f64::from_bits(fraction | ONE).log2() * f64::from(buckets);
    let within = (within.ceil() as i32 - 1).clamp(0, buckets - 1);
    (exponent << SCALE_MAX) + within
}

#[cfg(test)]
mod tests {
    use measure::Histogram;
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> Sparse {
        let mut histogram = Histogram::new();
        values.iter().for_each(|&value| histogram.record(value));
        histogram.to_sparse()
    }

    /// Bounds and counts of the buckets that are not empty.
    fn bounds(point: &ExponentialPoint) -> Vec<(f64, f64, u64)> {
        let base = 2f64.powf(2f64.powi(-point.scale));
        let Some(buckets) = &point.positive else {
            return Vec::new();
        };
        let counts = (buckets.offset..).zip(&buckets.bucket_counts);
        counts
            .filter(|(_, count)| **count > 0)
            .map(|(index, &count)| (base.powi(index), base.powi(index + 1), count))
            .collect()
    }

    #[test]
    fn powers_of_two_are_upper_bounds() {
        for (value, bucket) in [(1.0, -1), (2.0, 255), (0.5, -257), (1.001, 0), (4.0, 511)] {
            assert_eq!(index(value), bucket, "{value}");
        }
    }

    #[test]
    fn known_values_are_in_known_buckets() {
        // About 8.6 octaves in at most 160 buckets: 16 buckets per octave.
        let point = exponential(&of(&[0, 0, 1, 2, 3, 400]), 1.0);
        assert_eq!((point.scale, point.zero_count, point.count), (4, 2, 6));
        let buckets = point.positive.as_ref().expect("there are values");
        assert_eq!(buckets.offset, -1);
        let full = buckets.bucket_counts.iter().enumerate();
        let full: Vec<_> = full.filter(|(_, count)| **count > 0).collect();
        // 1 and 2 end an octave; 16 * log2(3) = 25.4; 16 * log2(400) = 138.3.
        assert_eq!(full, [(0, &1), (16, &1), (26, &1), (139, &1)]);
        assert_eq!((point.min, point.max), (Some(0.0), Some(400.0)));
        assert_eq!(point.sum, Some(406.0));
    }

    #[test]
    fn no_values_make_no_buckets() {
        let point = exponential(&Sparse::default(), 1.0);
        assert_eq!((point.count, point.positive, point.min), (0, None, None));
    }

    proptest! {
        #[test]
        fn every_value_is_in_its_bucket(
            values in proptest::collection::vec(0u64..(1 << 42), 1..200),
            small in proptest::collection::vec(0u64..5_000, 0..50),
            is_time in any::<bool>(),
        ) {
            let unit = if is_time { 1e-9 } else { 1.0 };
            let mut values = [values, small].concat();
            let point = exponential(&of(&values), unit);
            let found = bounds(&point);
            let placed: u64 = found.iter().map(|(_, _, count)| count).sum();
            prop_assert_eq!(placed + point.zero_count, values.len() as u64);
            prop_assert_eq!(point.count, values.len() as u64);
            let sum: u128 = values.iter().map(|&value| u128::from(value)).sum();
            prop_assert_eq!(point.sum, Some(sum as f64 * unit));
            if let Some(buckets) = &point.positive {
                prop_assert!(buckets.bucket_counts.len() <= BUCKETS_MAX);
                // The scale is no coarser than necessary.
                prop_assert!(point.scale == SCALE_MAX || buckets.bucket_counts.len() > BUCKETS_MAX / 2);
            }
            values.sort_unstable();
            let mut rest = values.iter().skip(usize::try_from(point.zero_count).unwrap());
            for (low, high, count) in found {
                for value in rest.by_ref().take(usize::try_from(count).unwrap()) {
                    let value = *value as f64 * unit;
                    prop_assert!(value > low * 0.999 - 1e-15, "{value} {low}");
                    prop_assert!(value <= high * (1.0 + 1e-9), "{value} {high}");
                }
            }
        }
    }
}
