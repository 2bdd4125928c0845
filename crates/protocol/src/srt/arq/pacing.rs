//! How fast packets may leave (SRT, 5.1: live congestion control).

use std::time::Duration;

use measure::Time;

/// What the headers of IPv4, UDP and SRT take of each packet.
const OVERHEAD: u64 = 44;

/// Over which time the input rate is measured: at first, and later, as in libsrt.
const FIRST_SAMPLE: Duration = Duration::from_millis(500);
const SAMPLE: Duration = Duration::from_secs(1);

/// How much bandwidth a sender may take, headers included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bandwidth {
    /// Packets leave when they are due. libsrt's default is 1 Gbit/s, which comes to that.
    Unlimited,
    /// So many bit/s (`SRTO_MAXBW`).
    Most(u64),
    /// As much as comes in, and a share more for retransmissions (`SRTO_MAXBW` 0).
    Input {
        /// What comes in at least, in bit/s (`SRTO_MININPUTBW`).
        least: u64,
        /// How much more, in percent (`SRTO_OHEADBW`, 25 by default).
        overhead_percent: u32,
    },
}

/// Spaces packets.
#[derive(Debug)]
pub(super) struct Pacing {
    bandwidth: Bandwidth,
    /// Before this nothing leaves.
    free_at: Time,
    /// What has come in since then.
    since: Option<Time>,
    bytes: u64,
    sample: Duration,
    /// The rate that came in, in bit/s; 0 while it is not known.
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

    /// Before this nothing leaves.
    #[inline]
    pub(super) fn free_at(&self) -> Time {
        self.free_at
    }

    /// The bandwidth in bit/s; 0 where it is not bounded.
    pub(super) fn bits_per_second(&self) -> u64 {
        match self.bandwidth {
            Bandwidth::Unlimited => 0,
            Bandwidth::Most(most) => most,
            // Nothing is known, so nothing is held back.
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

    /// A payload came in.
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

    /// A packet leaves that was due then.
    #[inline]
    pub(super) fn leaves(&mut self, due: Time, payload: usize) {
        let rate = self.bits_per_second();
        if rate == 0 {
            return;
        }
        let bits = (payload as u64 + OVERHEAD) * 8;
        let nanos = u128::from(bits) * 1_000_000_000 / u128::from(rate);
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        // From when it was due: who is late catches up.
        self.free_at = self.free_at.max(due) + takes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_at_the_bandwidth() {
        // 1,356 bytes with headers, 1 Mbit/s.
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
    fn the_input_rate_is_measured_and_exceeded_by_the_overhead() {
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
