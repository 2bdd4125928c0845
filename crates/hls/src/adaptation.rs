//! Choice of a variant by the measured bandwidth, with the rules and constants of hls.js 1.5.

use std::time::Duration;

/// Half-lives of the two means, in seconds of downloading. The lower one counts.
const HALF_LIVES: [f64; 2] = [3.0, 9.0];

/// Estimate in bit/s before the first download, unless the bandwidth is stated.
const FIRST_ESTIMATE: f64 = 500_000.0;

/// Minimum duration of a download in the estimate: shorter ones say little about the link.
const DOWNLOAD_MIN: f64 = 0.05;

/// Share of the estimate that a variant may need so that the player changes up to it, and so that
/// it stays.
const UP: f64 = 0.7;
const STAY: f64 = 0.95;

/// Estimate of the bandwidth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adaptation {
    means: [Mean; 2],
    /// Bandwidth in bit/s that the player assumes at most.
    limit: Option<f64>,
}

/// A mean in which earlier values count the less the more was downloaded since.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    value: f64,
    weight: f64,
}

impl Adaptation {
    pub(crate) fn new(limit: Option<f64>) -> Adaptation {
        Adaptation {
            means: [Mean::default(); 2],
            limit,
        }
    }

    /// Takes a download of this many bytes.
    pub(crate) fn add(&mut self, bytes: u64, took: Duration) {
        let seconds = took.as_secs_f64().max(DOWNLOAD_MIN);
        let rate = bytes as f64 * 8.0 / seconds;
        for (mean, half_life) in self.means.iter_mut().zip(HALF_LIVES) {
            let kept = 0.5f64.powf(seconds / half_life);
            mean.value = mean.value * kept + rate * (1.0 - kept);
            mean.weight = mean.weight * kept + (1.0 - kept);
        }
    }

    /// Estimate in bit/s.
    fn estimate(&self) -> f64 {
        let limit = self.limit.unwrap_or(f64::INFINITY);
        let means = self.means.iter().filter(|mean| mean.weight > 0.0);
        let least = means
            .map(|mean| mean.value / mean.weight)
            .fold(f64::INFINITY, f64::min);
        match least.is_finite() {
            true => least.min(limit),
            false => self.limit.unwrap_or(FIRST_ESTIMATE),
        }
    }

    /// Chooses among variants with these bit rates, in ascending order. `current` is that which is
    /// played.
    pub(crate) fn choose(&self, rates: &[u64], current: Option<usize>) -> usize {
        let estimate = self.estimate();
        let fits = |(index, rate): &(usize, &u64)| {
            let share = match current.is_some_and(|current| *index <= current) {
                true => STAY,
                false => UP,
            };
            **rate as f64 <= estimate * share
        };
        let found = rates.iter().enumerate().rev().find(fits);
        found.map_or(0, |(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: [u64; 3] = [300_000, 1_000_000, 3_000_000];
    const SECOND: Duration = Duration::from_secs(1);

    fn bytes(rate: u64) -> u64 {
        rate / 8
    }

    #[test]
    fn first_choice_follows_the_stated_bandwidth() {
        for (limit, chosen) in [
            (None, 0),
            (Some(100_000.0), 0),
            (Some(1_400_000.0), 0),
            (Some(1_500_000.0), 1),
            (Some(4_300_000.0), 2),
        ] {
            let adaptation = Adaptation::new(limit);
            assert_eq!(adaptation.choose(&RATES, None), chosen, "{limit:?}");
        }
    }

    #[test]
    fn player_changes_up_with_a_reserve_and_down_without() {
        let mut adaptation = Adaptation::new(None);
        adaptation.add(bytes(1_200_000), SECOND);
        // 1.2 Mbit/s is enough to stay in the second variant, but not to change up to it.
        assert_eq!(adaptation.choose(&RATES, Some(0)), 0);
        assert_eq!(adaptation.choose(&RATES, Some(1)), 1);
        assert_eq!(adaptation.choose(&RATES, Some(2)), 1);
        let mut adaptation = Adaptation::new(None);
        adaptation.add(bytes(1_000_000), SECOND);
        assert_eq!(adaptation.choose(&RATES, Some(1)), 0);
    }

    #[test]
    fn slow_downloads_count_at_once_and_fast_ones_later() {
        let mut adaptation = Adaptation::new(None);
        for _ in 0..20 {
            adaptation.add(bytes(10_000_000), SECOND);
        }
        assert_eq!(adaptation.choose(&RATES, Some(0)), 2);
        // Three seconds of downloading at a tenth: the mean with the half-life of 3 s has halved.
        for _ in 0..3 {
            adaptation.add(bytes(1_000_000), SECOND);
        }
        let estimate = adaptation.estimate();
        assert!((5_400_000.0..5_600_000.0).contains(&estimate), "{estimate}");
        for _ in 0..9 {
            adaptation.add(bytes(1_000_000), SECOND);
        }
        assert_eq!(adaptation.choose(&RATES, Some(2)), 1);
        // The slower mean decides how fast it goes up again.
        for _ in 0..3 {
            adaptation.add(bytes(10_000_000), SECOND);
        }
        assert!(adaptation.estimate() < 5_400_000.0);
    }

    #[test]
    fn stated_bandwidth_is_never_exceeded() {
        let mut adaptation = Adaptation::new(Some(1_500_000.0));
        adaptation.add(bytes(1_000_000_000), Duration::from_micros(10));
        assert_eq!(adaptation.choose(&RATES, Some(1)), 1);
        assert_eq!(adaptation.estimate(), 1_500_000.0);
        // A short download is taken as one of 50 ms.
        let mut adaptation = Adaptation::new(None);
        adaptation.add(6250, Duration::from_micros(10));
        assert!((adaptation.estimate() - 1_000_000.0).abs() < 1.0);
    }
}
