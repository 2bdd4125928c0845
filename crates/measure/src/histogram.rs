//! Distributions that merge without loss.

/// Significant decimal digits kept of every value: quantiles are within 0.1 %.
const DIGITS: u8 = 3;

/// The largest value told apart, in the unit the values are recorded in: with nanoseconds about
/// 73 minutes. Larger ones count as this one, but keep their part in [`Histogram::max`] and
/// [`Histogram::mean`].
const HIGHEST: u64 = 1 << 42;

/// A distribution of unsigned values, with exact count, sum, minimum and maximum beside the buckets.
///
/// Costs about 270 KiB when made, so a [`crate::Recorder`] makes one only when it is first used, and
/// none belongs to a single client. Recording is a few nanoseconds and never allocates.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: hdrhistogram::Histogram<u64>,
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
    /// An empty distribution.
    pub fn new() -> Histogram {
        let buckets = hdrhistogram::Histogram::new_with_bounds(1, HIGHEST, DIGITS)
            .expect("the bounds are constants that the library accepts");
        Histogram {
            buckets,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }

    /// Adds one value.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.buckets.saturating_record(value);
        self.sum += u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// How many values were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// The exact mean, or `None` where nothing was recorded.
    pub fn mean(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.sum as f64 / self.count() as f64)
    }

    /// The exact smallest value.
    pub fn min(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.min)
    }

    /// The exact largest value.
    pub fn max(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.max)
    }

    /// The value below or at which the share `quantile` (0 to 1) of all values lies.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        (!self.is_empty()).then(|| {
            self.buckets
                .value_at_quantile(quantile)
                .clamp(self.min, self.max)
        })
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &Sparse) {
        for &(value, count) in &other.buckets {
            self.buckets.saturating_record_n(value, count);
        }
        self.sum += other.sum;
        if other.count() > 0 {
            self.min = self.min.min(other.min);
            self.max = self.max.max(other.max);
        }
    }

    /// The non-empty buckets, in a form small enough to send and to store.
    pub fn to_sparse(&self) -> Sparse {
        Sparse {
            buckets: self
                .buckets
                .iter_recorded()
                .map(|bucket| {
                    (
                        bucket.value_iterated_to(),
                        bucket.count_since_last_iteration(),
                    )
                })
                .collect(),
            sum: self.sum,
            min: self.min,
            max: self.max,
        }
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.buckets.reset();
        self.sum = 0;
        self.min = u64::MAX;
        self.max = 0;
    }
}

/// The non-empty buckets of a [`Histogram`]: what a window hands over and the run file stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sparse {
    /// Value and count of each non-empty bucket, values ascending.
    pub buckets: Vec<(u64, u64)>,
    /// Exact sum of all values.
    pub sum: u128,
    /// Exact smallest value; `u64::MAX` where there is none.
    pub min: u64,
    /// Exact largest value; 0 where there is none.
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
    /// How many values it holds.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|&(_, count)| count).sum()
    }

    /// Adds all values of `other`; equal to having recorded both into one histogram.
    pub fn merge(&mut self, other: &Sparse) {
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
        self.buckets = merged;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The full histogram of these buckets.
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
        }
    }

    #[test]
    fn empty_has_no_figures() {
        let histogram = Histogram::new();
        assert_eq!(histogram.mean(), None);
        assert_eq!(histogram.quantile(0.5), None);
        assert_eq!(histogram.max(), None);
    }
}
