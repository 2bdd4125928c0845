//! Distributions that merge without loss.

use std::ops::Range;

/// Values below twice this have a bucket each. Above, each doubling of the value has this many
/// buckets. This keeps three significant decimal digits, so quantiles are within 0.1 %: the layout
/// of HdrHistogram (hdrhistogram.org).
const HALF: u64 = 1 << HALF_BITS;
const HALF_BITS: u32 = 10;

/// Largest value that has its own bucket, in the recorded unit: with nanoseconds about 73 minutes.
/// Larger values go into its bucket; [`Histogram::max`] and [`Histogram::mean`] stay exact.
const HIGHEST: u64 = (1 << 42) - 1;

/// Number of buckets.
const BUCKETS: usize = bucket_of(HIGHEST) + 1;

/// Returns the bucket of a value, which must be at most [`HIGHEST`].
#[inline]
const fn bucket_of(value: u64) -> usize {
    // Number of low bits that the bucket does not distinguish.
    let dropped = (2 * HALF - 1).leading_zeros() - (value | (2 * HALF - 1)).leading_zeros();
    ((dropped as u64) * HALF + (value >> dropped)) as usize
}

/// Returns the largest value of a bucket.
fn highest_in(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let dropped = (bucket / HALF).saturating_sub(1);
    ((bucket - dropped * HALF + 1) << dropped) - 1
}

/// Returns the index of the first bucket, in ascending order of values, that contains the
/// `quantile` of `count` values.
fn bucket_at(quantile: f64, count: u64, counts: impl IntoIterator<Item = u64>) -> Option<usize> {
    // At least one value lies at or below any quantile.
    let wanted = ((quantile * count as f64).ceil() as u64).clamp(1, count.max(1));
    let mut below = 0;
    counts.into_iter().position(|count| {
        below += count;
        below >= wanted
    })
}

/// Distribution of unsigned values, with exact count, sum, minimum and maximum in addition to the
/// buckets.
///
/// A histogram takes about 270 KiB, so a [`crate::Recorder`] allocates one on first use, and no
/// single client has one. Recording takes a few nanoseconds and never allocates.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: Box<[u64; BUCKETS]>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

impl Histogram {
    /// Creates an empty distribution.
    pub fn new() -> Histogram {
        let buckets = vec![0; BUCKETS].into_boxed_slice();
        Histogram {
            buckets: buckets.try_into().expect("the vector has BUCKETS elements"),
            count: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }

    /// Records one value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        let bucket = &mut self.buckets[bucket_of(value.min(HIGHEST))];
        *bucket += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    fn record_many(&mut self, value: u64, count: u64) {
        let bucket = &mut self.buckets[bucket_of(value.min(HIGHEST))];
        *bucket = bucket.saturating_add(count);
        self.count = self.count.saturating_add(count);
    }

    /// Number of recorded values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// True if no value was recorded.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Exact mean, or `None` if no value was recorded.
    pub fn mean(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.sum as f64 / self.count() as f64)
    }

    /// Exact smallest value, or `None` if no value was recorded.
    pub fn min(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.min)
    }

    /// Exact largest value, or `None` if no value was recorded.
    pub fn max(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.max)
    }

    /// Returns the smallest bucketed value such that at least the share `quantile` (0 to 1) of all
    /// values is at or below it, or `None` if no value was recorded.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        let used = self.used()?;
        let counts = self.buckets[used.clone()].iter().copied();
        let index = bucket_at(quantile, self.count, counts)?;
        Some(highest_in(used.start + index).clamp(self.min, self.max))
    }

    /// Range of the buckets that may have values, or `None` if no value was recorded.
    fn used(&self) -> Option<Range<usize>> {
        (!self.is_empty())
            .then(|| bucket_of(self.min.min(HIGHEST))..bucket_of(self.max.min(HIGHEST)) + 1)
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &Sparse) {
        for &(value, count) in &other.buckets {
            self.record_many(value, count);
        }
        self.sum += other.sum;
        if other.count() > 0 {
            self.min = self.min.min(other.min);
            self.max = self.max.max(other.max);
        }
    }

    /// Returns the non-empty buckets: a form that is small enough to send and to store.
    pub fn to_sparse(&self) -> Sparse {
        let used = self.used().unwrap_or_default();
        let buckets = used.clone().zip(&self.buckets[used]);
        Sparse {
            buckets: buckets
                .filter(|&(_, &count)| count > 0)
                .map(|(bucket, &count)| (highest_in(bucket), count))
                .collect(),
            sum: self.sum,
            min: self.min,
            max: self.max,
        }
    }

    /// Removes all values but keeps the memory.
    pub fn clear(&mut self) {
        if let Some(used) = self.used() {
            self.buckets[used].fill(0);
        }
        self.count = 0;
        self.sum = 0;
        self.min = u64::MAX;
        self.max = 0;
    }
}

/// Non-empty buckets of a [`Histogram`], as windows carry them and the run file stores them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sparse {
    /// Value and count of each non-empty bucket, values ascending.
    pub buckets: Vec<(u64, u64)>,
    /// Exact sum of all values.
    pub sum: u128,
    /// Exact smallest value; `u64::MAX` if there are no values.
    pub min: u64,
    /// Exact largest value; 0 if there are no values.
    pub max: u64,
}

impl Default for Sparse {
    fn default() -> Sparse {
        Sparse {
            buckets: Vec::new(),
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }
}

impl Sparse {
    /// Number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|&(_, count)| count).sum()
    }

    /// Exact mean, or `None` if there are no values.
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum as f64 / count as f64)
    }

    /// Returns the quantile (0 to 1), with the same result as [`Histogram::quantile`].
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        let counts = self.buckets.iter().map(|&(_, count)| count);
        let index = bucket_at(quantile, self.count(), counts)?;
        Some(self.buckets[index].0.clamp(self.min, self.max))
    }

    /// Number of values that are at most `value`, to the accuracy of the buckets.
    pub fn at_most(&self, value: u64) -> u64 {
        let buckets = self
            .buckets
            .iter()
            .take_while(|(bucket, _)| *bucket <= value);
        buckets.map(|&(_, count)| count).sum()
    }

    /// Adds all values of `other`. Equal to recording both into one histogram.
    pub fn merge(&mut self, other: &Sparse) {
        if self.buckets.is_empty() {
            *self = other.clone();
            return;
        }
        let mut merged = Vec::with_capacity(self.buckets.len() + other.buckets.len());
        let (mut ours, mut theirs) = (
            self.buckets.iter().peekable(),
            other.buckets.iter().peekable(),
        );
        loop {
            match (ours.peek(), theirs.peek()) {
                (Some(a), Some(b)) if a.0 == b.0 => {
                    merged.push((a.0, a.1 + b.1));
                    ours.next();
                    theirs.next();
                }
                (Some(a), Some(b)) if a.0 < b.0 => {
                    merged.push(**a);
                    ours.next();
                }
                (_, Some(b)) => {
                    merged.push(**b);
                    theirs.next();
                }
                (Some(a), None) => {
                    merged.push(**a);
                    ours.next();
                }
                (None, None) => break,
            }
        }
        // Most buckets are in both.
        merged.shrink_to_fit();
        self.buckets = merged;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Expands the buckets into a full histogram.
    pub fn to_histogram(&self) -> Histogram {
        let mut histogram = Histogram::new();
        histogram.merge(self);
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_up_to_a_bound_are_counted() {
        let mut histogram = Histogram::new();
        for value in [1, 2, 2, 30, 1_000_000] {
            histogram.record(value);
        }
        let sparse = histogram.to_sparse();
        let counted = [0, 1, 2, 29, 30, u64::MAX].map(|bound| sparse.at_most(bound));
        assert_eq!(counted, [0, 1, 3, 3, 4, 5]);
    }

    proptest! {
        #[test]
        fn merging_equals_recording_together(
            a in proptest::collection::vec(0u64..(1 << 43), 0..60),
            b in proptest::collection::vec(0u64..100_000, 0..60),
        ) {
            let (mut left, mut right, mut both) = (Histogram::new(), Histogram::new(), Histogram::new());
            for &value in &a { left.record(value); both.record(value); }
            for &value in &b { right.record(value); both.record(value); }
            let mut sparse = left.to_sparse();
            sparse.merge(&right.to_sparse());
            prop_assert_eq!(&sparse, &both.to_sparse());
            prop_assert_eq!(sparse.to_histogram().to_sparse(), both.to_sparse());
            prop_assert_eq!(both.count(), (a.len() + b.len()) as u64);
        }

        #[test]
        fn quantiles_are_within_a_thousandth(mut values in proptest::collection::vec(1u64..(1 << 40), 1..200)) {
            let mut histogram = Histogram::new();
            for &value in &values { histogram.record(value); }
            values.sort_unstable();
            let exact = values[(values.len() * 95).div_ceil(100) - 1] as f64;
            let found = histogram.quantile(0.95).expect("not empty") as f64;
            prop_assert!((found - exact).abs() <= exact * 0.001 + 1.0, "{} for {}", found, exact);
            let sparse = histogram.to_sparse();
            for quantile in [0.0, 0.3, 0.5, 0.95, 0.999, 1.0] {
                prop_assert_eq!(sparse.quantile(quantile), histogram.quantile(quantile));
            }
            prop_assert_eq!(sparse.mean(), histogram.mean());
            histogram.clear();
            prop_assert_eq!(histogram.to_sparse(), Sparse::default());
            prop_assert!(histogram.buckets.iter().all(|&count| count == 0));
        }
    }

    #[test]
    fn buckets_are_no_wider_than_a_thousandth() {
        let around = (0..64).map(|bits| 1u64 << bits).flat_map(|value| {
            [
                value - 1,
                value,
                value + 1,
                value / 3 * 2 + 7,
                value.saturating_mul(3) / 2,
            ]
        });
        for value in around.filter(|&value| value <= HIGHEST) {
            let bucket = bucket_of(value);
            let highest = highest_in(bucket);
            assert!(
                value <= highest && (highest - value) * 1000 <= value,
                "{value}: {highest}"
            );
            assert_eq!(bucket_of(highest), bucket, "{value}");
            assert!(
                highest == HIGHEST || bucket_of(highest + 1) == bucket + 1,
                "{value}"
            );
        }
    }

    #[test]
    fn quantiles_count_values() {
        let mut histogram = Histogram::new();
        for value in 1..=10 {
            histogram.record(value * 100);
        }
        let quantiles = [0.0, 0.05, 0.5, 0.51, 0.9, 0.99, 1.0].map(|at| histogram.quantile(at));
        assert_eq!(quantiles, [100, 100, 500, 600, 900, 1000, 1000].map(Some));
        histogram.record(u64::MAX);
        assert_eq!(histogram.quantile(1.0), Some(highest_in(BUCKETS - 1)));
        assert_eq!(histogram.max(), Some(u64::MAX));
    }

    #[test]
    fn empty_distribution_has_no_figures() {
        let histogram = Histogram::new();
        assert_eq!(histogram.mean(), None);
        assert_eq!(histogram.quantile(0.5), None);
        assert_eq!(histogram.max(), None);
        assert_eq!(Sparse::default().mean(), None);
        assert_eq!(Sparse::default().quantile(0.5), None);
    }
}
