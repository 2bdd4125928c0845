//! Due times of packets: timestamp-based packet delivery (SRT, 4.5).

use std::time::Duration;

use measure::Time;

/// Period before and after the wrap in which timestamps from both sides of it may arrive, in
/// microseconds (SRT, 4.5.1).
const WRAP_PERIOD: u32 = 30_000_000;

/// Number of samples over which the drift is averaged, and the drift in nanoseconds beyond which
/// the base moves, as in libsrt (SRT, 4.7).
const DRIFT_SAMPLES: i64 = 1000;
const DRIFT_MAX: i64 = 5_000_000;

/// Relation of the peer's clock to ours.
#[derive(Clone, Copy, Debug)]
pub struct TsbpdConfig {
    /// Arrival time of the peer's HSREQ or HSRSP.
    pub reference: Time,
    /// Timestamp in the header of the handshake that contained it.
    pub timestamp: u32,
    /// Negotiated latency.
    pub latency: Duration,
}

/// Computes due times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tsbpd {
    /// Estimated time at which the peer's clock showed 0, in nanoseconds from the start of the run.
    /// May be negative.
    base: i64,
    wrapping: bool,
    latency: i64,
    drift: i64,
    sum: i64,
    samples: i64,
    first_rtt: Option<Duration>,
}

/// Duration in nanoseconds.
fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

/// Time, at the earliest the start of the run.
fn point(nanos: i64) -> Time {
    Time::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

fn micros(timestamp: u32) -> i64 {
    i64::from(timestamp) * 1000
}

/// Period of the timestamps, in nanoseconds.
const TIMESTAMP_PERIOD: i64 = (1 << 32) * 1000;

impl Tsbpd {
    pub(super) fn new(config: &TsbpdConfig) -> Tsbpd {
        let reference = i64::try_from(config.reference.as_nanos()).unwrap_or(i64::MAX);
        Tsbpd {
            base: reference - micros(config.timestamp),
            // A handshake shortly before the wrap starts the wrapping period, as in libsrt.
            wrapping: config.timestamp > u32::MAX - WRAP_PERIOD,
            latency: nanos(config.latency),
            drift: 0,
            sum: 0,
            samples: 0,
            first_rtt: None,
        }
    }

    /// Detects the wrap of timestamps. Must be called with the timestamp of each data packet.
    #[inline]
    pub(super) fn detect_wrap(&mut self, timestamp: u32) {
        if self.wrapping {
            if (WRAP_PERIOD..=2 * WRAP_PERIOD).contains(&timestamp) {
                self.wrapping = false;
                self.base = self.base.saturating_add(TIMESTAMP_PERIOD);
            }
        } else if timestamp > u32::MAX - WRAP_PERIOD {
            self.wrapping = true;
        }
    }

    /// Local time at which a packet with that timestamp arrives, if it takes as long as the
    /// handshake.
    #[inline]
    fn base_time(&self, timestamp: u32) -> i64 {
        let wrapped = self.wrapping && timestamp <= 2 * WRAP_PERIOD;
        let round = if wrapped { TIMESTAMP_PERIOD } else { 0 };
        self.base.saturating_add(round + micros(timestamp))
    }

    /// Due time of a packet.
    #[inline]
    pub(super) fn due(&self, timestamp: u32) -> Time {
        let due = self.base_time(timestamp).saturating_add(self.latency);
        point(due.saturating_add(self.drift))
    }

    /// Adds the arrival time of an ACKACK, and the RTT that it measured. Half of the change of the
    /// RTT is due to the network, and does not count as drift.
    pub(super) fn add_drift_sample(&mut self, timestamp: u32, at: Time, rtt: Duration) {
        let first = *self.first_rtt.get_or_insert(rtt);
        let by_network = (nanos(rtt) - nanos(first)) / 2;
        let at = i64::try_from(at.as_nanos()).unwrap_or(i64::MAX);
        let off = at.saturating_sub(self.base_time(timestamp));
        self.sum = self.sum.saturating_add(off.saturating_sub(by_network));
        self.samples += 1;
        if self.samples < DRIFT_SAMPLES {
            return;
        }
        self.drift = self.sum / self.samples;
        (self.sum, self.samples) = (0, 0);
        if self.drift.saturating_abs() > DRIFT_MAX {
            let moved = DRIFT_MAX * self.drift.signum();
            self.drift -= moved;
            self.base = self.base.saturating_add(moved);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: Duration = Duration::from_millis(120);

    fn tsbpd(reference: Time, timestamp: u32) -> Tsbpd {
        Tsbpd::new(&TsbpdConfig {
            reference,
            timestamp,
            latency: LATENCY,
        })
    }

    #[test]
    fn packet_is_due_one_latency_after_it_was_sent() {
        let reference = Time::from_start(Duration::from_secs(9));
        let tsbpd = tsbpd(reference, 5_000);
        assert_eq!(tsbpd.due(5_000), reference + LATENCY);
        let later = Duration::from_micros(777);
        assert_eq!(tsbpd.due(5_777), reference + later + LATENCY);
    }

    #[test]
    fn peer_may_be_older_than_the_run() {
        let tsbpd = tsbpd(Time::ZERO, 50_000_000);
        assert_eq!(tsbpd.due(50_000_000), Time::ZERO + LATENCY);
        assert_eq!(tsbpd.due(0), Time::ZERO);
    }

    #[test]
    fn timestamps_wrap_despite_late_packets() {
        // Ten hours of packets every 10 ms, some of them 40 ms late.
        let start = u64::from(u32::MAX) - 100_000_000;
        let mut tsbpd = tsbpd(Time::ZERO, start as u32);
        for step in 0..3_600_000u64 {
            let late = if step % 7 == 0 { 4 } else { 0 };
            let sent = step.saturating_sub(late) * 10_000;
            let timestamp = (start + sent) as u32;
            tsbpd.detect_wrap(timestamp);
            let due = Time::from_start(Duration::from_micros(sent)) + LATENCY;
            assert_eq!(tsbpd.due(timestamp), due, "{step}");
        }
    }

    #[test]
    fn drift_is_averaged_over_1000_samples() {
        let mut tsbpd = tsbpd(Time::ZERO, 0);
        let rtt = Duration::from_millis(10);
        let due = |tsbpd: &Tsbpd| tsbpd.due(1_000_000).nanos_from(Time::ZERO) - 1_120_000_000;
        // The peer's clock is 3 ms behind the estimate of the handshake.
        for step in 0..1000u32 {
            assert_eq!(due(&tsbpd), 0);
            let timestamp = step * 10_000;
            let at = Time::from_start(Duration::from_micros(u64::from(timestamp) + 3_000));
            tsbpd.add_drift_sample(timestamp, at, rtt);
        }
        assert_eq!(due(&tsbpd), 3_000_000);
        // A longer network delay is not drift: 8 ms per round trip.
        for step in 0..1000u32 {
            let timestamp = step * 10_000;
            let at = Time::from_start(Duration::from_micros(u64::from(timestamp) + 7_000));
            tsbpd.add_drift_sample(timestamp, at, rtt + Duration::from_millis(8));
        }
        assert_eq!(due(&tsbpd), 3_000_000);
        // Beyond 5 ms the base moves, and the remainder stays drift.
        for _ in 0..2 {
            for step in 0..1000u32 {
                let timestamp = step * 10_000;
                let at = Time::from_start(Duration::from_micros(u64::from(timestamp) + 7_000));
                tsbpd.add_drift_sample(timestamp, at, rtt);
            }
            assert_eq!(due(&tsbpd), 7_000_000);
        }
    }

    #[test]
    fn no_timestamp_causes_an_overflow() {
        let mut tsbpd = tsbpd(Time::NEVER, 0);
        for timestamp in [0, 1, u32::MAX, 30_000_000, u32::MAX, 60_000_000] {
            tsbpd.detect_wrap(timestamp);
            tsbpd.due(timestamp);
            tsbpd.add_drift_sample(timestamp, Time::ZERO, Duration::MAX);
            tsbpd.add_drift_sample(timestamp, Time::NEVER, Duration::ZERO);
        }
    }
}
