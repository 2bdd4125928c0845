//! Round-trip time and its variance, as used by both sides (SRT, 4.10).

use std::time::Duration;

/// Initial values (SRT, 4.10): 100 ms, with a variance of 50 ms.
const FIRST: (u32, u32) = (100_000, 50_000);

/// Maximum value, in microseconds. Larger values of a peer are reduced to it.
const RTT_MAX_US: u32 = 60_000_000;

/// Smoothed RTT and its variance, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rtt {
    pub(super) smoothed: u32,
    pub(super) variance: u32,
    measured: bool,
}

impl Default for Rtt {
    fn default() -> Rtt {
        Rtt {
            smoothed: FIRST.0,
            variance: FIRST.1,
            measured: false,
        }
    }
}

impl Rtt {
    /// Adds a measurement. The first one replaces the initial values, as in libsrt.
    pub(super) fn measure(&mut self, rtt: Duration) {
        let sample = u32::try_from(rtt.as_micros())
            .unwrap_or(RTT_MAX_US)
            .min(RTT_MAX_US);
        if std::mem::replace(&mut self.measured, true) {
            let off = self.smoothed.abs_diff(sample);
            self.variance = (3 * self.variance + off) / 4;
            self.smoothed = (7 * self.smoothed + sample) / 8;
        } else {
            self.smoothed = sample;
            self.variance = sample / 2;
        }
    }

    /// Adopts the values that the peer measured.
    pub(super) fn adopt(&mut self, smoothed: u32, variance: u32) {
        self.smoothed = smoothed.min(RTT_MAX_US);
        self.variance = variance.min(RTT_MAX_US);
        self.measured = true;
    }

    /// Time after which an answer is overdue: the RTT plus four times its variance.
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_micros(u64::from(self.smoothed) + 4 * u64::from(self.variance))
    }

    /// Time during which an answer is certainly in flight: the RTT less four times its variance.
    pub(super) fn minimum(&self) -> Duration {
        let variance = self.variance.saturating_mul(4);
        Duration::from_micros(self.smoothed.saturating_sub(variance).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_measurement_replaces_the_initial_values() {
        let mut rtt = Rtt::default();
        assert_eq!((rtt.smoothed, rtt.variance), (100_000, 50_000));
        rtt.measure(Duration::from_millis(20));
        assert_eq!((rtt.smoothed, rtt.variance), (20_000, 10_000));
        rtt.measure(Duration::from_millis(28));
        assert_eq!((rtt.smoothed, rtt.variance), (21_000, 9_500));
        assert_eq!(rtt.timeout(), Duration::from_millis(59));
        assert_eq!(rtt.minimum(), Duration::ZERO);
    }

    #[test]
    fn excessive_values_are_limited() {
        let mut rtt = Rtt::default();
        rtt.adopt(u32::MAX, u32::MAX);
        assert_eq!(rtt.smoothed, RTT_MAX_US);
        rtt.measure(Duration::MAX);
        assert_eq!(rtt.smoothed, RTT_MAX_US);
    }
}
