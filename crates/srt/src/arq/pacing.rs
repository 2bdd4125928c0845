//! Pacing of packets (SRT, 5.1: live congestion control).

use std::time::Duration;

use measure::Time;

/// Bytes of the IPv4, UDP and SRT headers of a packet.
const HEADER_BYTES: u64 = 44;

/// Periods over which the input rate is measured: the first one, and later ones, as in libsrt.
const FIRST_SAMPLE: Duration = Duration::from_millis(500);
const SAMPLE: Duration = Duration::from_secs(1);

/// Bandwidth limit of a sender, headers included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bandwidth {
    /// Packets leave when they are due. libsrt's default of 1 Gbit/s has the same effect.
    Unlimited,
    /// Fixed limit in bit/s (`SRTO_MAXBW`).
    Fixed(u64),
    /// Input rate plus a share for retransmissions (`SRTO_MAXBW` 0).
    Input {
        /// Minimum input rate in bit/s (`SRTO_MININPUTBW`).
        rate_min: u64,
        /// Share for retransmissions in percent (`SRTO_OHEADBW`, 25 by default).
        overhead_percent: u32,
    },
}

/// Spaces packets by the bandwidth.
#[derive(Debug)]
pub(super) struct Pacing {
    bandwidth: Bandwidth,
    /// Time before which no packet leaves.
    pub(super) next_departure_at: Time,
    /// Start of the current measuring period, and bytes pushed since then.
    since: Option<Time>,
    bytes: u64,
    sample_period: Duration,
    /// Measured input rate in bit/s; 0 while it is unknown.
    input_rate: u64,
}

impl Pacing {
    pub(super) fn new(bandwidth: Bandwidth) -> Pacing {
        Pacing {
            bandwidth,
            next_departure_at: Time::ZERO,
            since: None,
            bytes: 0,
            sample_period: FIRST_SAMPLE,
            input_rate: 0,
        }
    }

    /// Bandwidth limit in bit/s; 0 if unlimited.
    pub(super) fn bits_per_second(&self) -> u64 {
        match self.bandwidth {
            Bandwidth::Unlimited => 0,
            Bandwidth::Fixed(rate) => rate,
            // Packets are not limited while the input rate is unknown.
            Bandwidth::Input { rate_min: 0, .. } if self.input_rate == 0 => 0,
            Bandwidth::Input {
                rate_min,
                overhead_percent,
            } => {
                let input = u128::from(self.input_rate.max(rate_min));
                let rate = input * u128::from(100 + u64::from(overhead_percent)) / 100;
                u64::try_from(rate).unwrap_or(u64::MAX)
            }
        }
    }

    /// Counts a payload that was pushed at `at`.
    #[inline]
    pub(super) fn record_input(&mut self, at: Time, payload: usize) {
        if !matches!(self.bandwidth, Bandwidth::Input { .. }) {
            return;
        }
        let since = *self.since.get_or_insert(at);
        let span = at.since(since);
        if span >= self.sample_period {
            let nanos = span.as_nanos().max(1);
            let rate = u128::from(self.bytes) * 8_000_000_000 / nanos;
            self.input_rate = u64::try_from(rate).unwrap_or(u64::MAX);
            self.since = Some(at);
            self.bytes = 0;
            self.sample_period = SAMPLE;
        }
        self.bytes += payload as u64 + HEADER_BYTES;
    }

    /// Counts a packet that leaves and was due at `due`.
    #[inline]
    pub(super) fn record_departure(&mut self, due: Time, payload: usize) {
        let rate = self.bits_per_second();
        if rate == 0 {
            return;
        }
        let bits = (payload as u64 + HEADER_BYTES) * 8;
        let nanos = u128::from(bits) * 1_000_000_000 / u128::from(rate);
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        // Counted from the due time, so that a late sender catches up.
        self.next_departure_at = self.next_departure_at.max(due) + takes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_at_the_bandwidth() {
        // 1,356 bytes with headers at 1 Mbit/s.
        let mut pacing = Pacing::new(Bandwidth::Fixed(1_000_000));
        pacing.record_departure(Time::ZERO, 1312);
        assert_eq!(pacing.next_departure_at, Time::from_nanos(10_848_000));
        pacing.record_departure(Time::ZERO, 1312);
        assert_eq!(pacing.next_departure_at, Time::from_nanos(21_696_000));
        let later = Time::from_start(Duration::from_secs(1));
        pacing.record_departure(later, 1312);
        assert_eq!(
            pacing.next_departure_at,
            later + Duration::from_nanos(10_848_000)
        );
    }

    #[test]
    fn bandwidth_is_the_measured_input_rate_plus_overhead() {
        let mut pacing = Pacing::new(Bandwidth::Input {
            rate_min: 0,
            overhead_percent: 25,
        });
        assert_eq!(pacing.bits_per_second(), 0);
        for step in 0..=50 {
            let at = Time::from_start(Duration::from_millis(10 * step));
            pacing.record_input(at, 1206);
        }
        // 1,250 bytes every 10 ms.
        assert_eq!(pacing.bits_per_second(), 1_250_000);
        let mut pacing = Pacing::new(Bandwidth::Input {
            rate_min: 2_000_000,
            overhead_percent: 50,
        });
        assert_eq!(pacing.bits_per_second(), 3_000_000);
        pacing.record_input(Time::ZERO, 1);
        pacing.record_input(Time::NEVER, 1);
        assert_eq!(pacing.bits_per_second(), 3_000_000);
    }
}
