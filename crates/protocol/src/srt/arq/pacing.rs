//! Pacing of packets (SRT, 5.1: live congestion control).

use std::time::Duration;

use measure::Time;

/// Bytes of the IPv4, UDP and SRT headers of a packet.
const OVERHEAD: u64 = 44;

/// Periods over which the input rate is measured: the first one, and later ones, as in libsrt.
const FIRST_SAMPLE: Duration = Duration::from_millis(500);
const SAMPLE: Duration = Duration::from_secs(1);

/// Bandwidth limit of a sender, headers included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bandwidth {
    /// Packets leave when they are due. libsrt's default of 1 Gbit/s has the same effect.
    Unlimited,
    /// Fixed limit in bit/s (`SRTO_MAXBW`).
    Most(u64),
    /// Input rate plus a share for retransmissions (`SRTO_MAXBW` 0).
    Input {
        /// Minimum input rate in bit/s (`SRTO_MININPUTBW`).
        least: u64,
        /// Share for retransmissions in percent (`SRTO_OHEADBW`, 25 by default).
        overhead_percent: u32,
    },
}

/// Spaces packets by the bandwidth.
#[derive(Debug)]
pub(super) struct Pacing {
    bandwidth: Bandwidth,
    /// Time before which no packet leaves.
    free_at: Time,
    /// Start of the current measuring period, and bytes pushed since then.
    since: Option<Time>,
    bytes: u64,
    sample: Duration,
    /// Measured input rate in bit/s; 0 while it is unknown.
    input: u64,
}

impl Pacing {
    pub(super) fn new(bandwidth: Bandwidth) -> Pacing {
        Pacing {
            bandwidth,
            free_at: Time::ZERO,
            since: None,
            bytes: 0,
            sample: FIRST_SAMPLE,
            input: 0,
        }
    }

    /// Time before which no packet leaves.
    #[inline]
    pub(super) fn free_at(&self) -> Time {
        self.free_at
    }

    /// Bandwidth limit in bit/s; 0 if unlimited.
    pub(super) fn bits_per_second(&self) -> u64 {
        match self.bandwidth {
            Bandwidth::Unlimited => 0,
            Bandwidth::Most(most) => most,
            // Packets are not limited while the input rate is unknown.
            Bandwidth::Input { least: 0, .. } if self.input == 0 => 0,
            Bandwidth::Input {
                least,
                overhead_percent,
            } => {
                let input = u128::from(self.input.max(least));
                let most = input * u128::from(100 + u64::from(overhead_percent)) / 100;
                u64::try_from(most).unwrap_or(u64::MAX)
            }
        }
    }

    /// Counts a payload that was pushed at `at`.
    #[inline]
    pub(super) fn input(&mut self, at: Time, payload: usize) {
        if !matches!(self.bandwidth, Bandwidth::Input { .. }) {
            return;
        }
        let since = *self.since.get_or_insert(at);
        let span = at.since(since);
        if span >= self.sample {
            let nanos = span.as_nanos().max(1);
            let rate = u128::from(self.bytes) * 8_000_000_000 / nanos;
            self.input = u64::try_from(rate).unwrap_or(u64::MAX);
            self.since = Some(at);
            self.bytes = 0;
            self.sample = SAMPLE;
        }
        self.bytes += payload as u64 + OVERHEAD;
    }

    /// Counts a packet that leaves and was due at `due`.
    #[inline]
    pub(super) fn leaves(&mut self, due: Time, payload: usize) {
        let rate = self.bits_per_second();
        if rate == 0 {
            return;
        }
        let bits = (payload as u64 + OVERHEAD) * 8;
        let nanos = u128::from(bits) * 1_000_000_000 / u128::from(rate);
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        // Counted from the due time, so that a late sender catches up.
        self.free_at = self.free_at.max(due) + takes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_at_the_bandwidth() {
        // 1,356 bytes with headers at 1 Mbit/s.
        let mut pacing = Pacing::new(Bandwidth::Most(1_000_000));
        pacing.leaves(Time::ZERO, 1312);
        assert_eq!(pacing.free_at(), Time::from_nanos(10_848_000));
        pacing.leaves(Time::ZERO, 1312);
        assert_eq!(pacing.free_at(), Time::from_nanos(21_696_000));
        let later = Time::from_start(Duration::from_secs(1));
        pacing.leaves(later, 1312);
        assert_eq!(pacing.free_at(), later + Duration::from_nanos(10_848_000));
    }

    #[test]
    fn bandwidth_is_the_measured_input_rate_plus_overhead() {
        let mut pacing = Pacing::new(Bandwidth::Input {
            least: 0,
            overhead_percent: 25,
        });
        assert_eq!(pacing.bits_per_second(), 0);
        for step in 0..=50 {
            let at = Time::from_start(Duration::from_millis(10 * step));
            pacing.input(at, 1206);
        }
        // 1,250 bytes every 10 ms.
        assert_eq!(pacing.bits_per_second(), 1_250_000);
        let mut pacing = Pacing::new(Bandwidth::Input {
            least: 2_000_000,
            overhead_percent: 50,
        });
        assert_eq!(pacing.bits_per_second(), 3_000_000);
        pacing.input(Time::ZERO, 1);
        pacing.input(Time::NEVER, 1);
        assert_eq!(pacing.bits_per_second(), 3_000_000);
    }
}
