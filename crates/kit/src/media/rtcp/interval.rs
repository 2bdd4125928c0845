//! Interval between RTCP reports (RFC 3550, 6.2, 6.3.1 and A.7).

use std::time::Duration;

/// Minimum time between reports, before randomisation (RFC 3550, 6.2).
const INTERVAL_MIN: Duration = Duration::from_secs(5);

/// Maximum time between reports that is still useful: a bound against absurd bandwidths.
const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// Share of the RTCP bandwidth for senders, if they are at most this share of the members.
const SENDERS_SHARE: f64 = 0.25;

/// Parameters of the report interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReportInterval {
    /// Number of participants, ourselves included.
    pub members: u32,
    /// Number of participants that send media.
    pub senders: u32,
    /// True if we send media.
    pub we_send: bool,
    /// Bandwidth of all RTCP in bytes per second: 5 % of the session bandwidth unless the SDP
    /// states otherwise.
    pub bandwidth: f64,
    /// Mean size of RTCP packets in bytes, UDP and IP headers included.
    pub mean_size: f64,
    /// True before the first report: the minimum time is then halved.
    pub first: bool,
}

impl ReportInterval {
    /// A session of two participants: a sending server and a client.
    pub fn point_to_point(we_send: bool, bandwidth: f64, first: bool) -> ReportInterval {
        ReportInterval {
            members: 2,
            senders: 1,
            we_send,
            bandwidth,
            mean_size: 100.0,
            first,
        }
    }

    /// Returns the time between reports, without randomisation. Reports need bandwidth: without
    /// any, the time is one hour.
    pub fn deterministic(&self) -> Duration {
        let minimum = INTERVAL_MIN / if self.first { 2 } else { 1 };
        let (members, senders) = (f64::from(self.members), f64::from(self.senders));
        let mut bandwidth = self.bandwidth;
        let mut share = members;
        if senders <= members * SENDERS_SHARE {
            if self.we_send {
                bandwidth *= SENDERS_SHARE;
                share = senders;
            } else {
                bandwidth *= 1.0 - SENDERS_SHARE;
                share -= senders;
            }
        }
        let seconds = self.mean_size * share / bandwidth;
        if !(seconds >= 0.0 && bandwidth > 0.0) {
            return INTERVAL_MAX;
        }
        Duration::try_from_secs_f64(seconds)
            .unwrap_or(INTERVAL_MAX)
            .clamp(minimum, INTERVAL_MAX)
    }

    /// Returns the time until the next report. `random` is from 0 (inclusive) to 1 (exclusive),
    /// drawn for each report.
    ///
    /// Leaves out the timer reconsideration of RFC 3550, 6.3.3, which a session of two does not
    /// need, and therefore also the division by `e - 3/2` that compensates for it.
    pub fn next(&self, random: f64) -> Duration {
        randomise(self.deterministic(), random)
    }
}

/// Randomises a time to between half and one and a half times its value (RFC 3550, 6.2).
pub fn randomise(time: Duration, random: f64) -> Duration {
    let random = if random.is_finite() {
        random.clamp(0.0, 1.0)
    } else {
        0.5
    };
    time.mul_f64(0.5 + random)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn two_participants_report_every_five_seconds() {
        let interval = ReportInterval::point_to_point(false, 6250.0, false);
        assert_eq!(interval.deterministic(), Duration::from_secs(5));
        assert_eq!(interval.next(0.0), Duration::from_millis(2500));
        assert_eq!(interval.next(0.5), Duration::from_secs(5));
        let first = ReportInterval::point_to_point(false, 6250.0, true);
        assert_eq!(first.deterministic(), Duration::from_millis(2500));
    }

    #[test]
    fn many_receivers_share_the_bandwidth() {
        let mut interval = ReportInterval {
            members: 1001,
            senders: 1,
            we_send: false,
            bandwidth: 1000.0,
            mean_size: 100.0,
            first: false,
        };
        // A thousand receivers share three quarters of 1000 bytes per second.
        let seconds = interval.deterministic().as_secs_f64();
        assert!((seconds - 133.333).abs() < 0.01, "{seconds}");
        interval.we_send = true;
        assert_eq!(interval.deterministic(), Duration::from_secs(5));
        interval.bandwidth = 0.0;
        assert_eq!(interval.deterministic(), Duration::from_secs(3600));
    }

    proptest! {
        #[test]
        fn interval_stays_within_bounds(
            members in any::<u32>(), senders in any::<u32>(), we_send: bool, first: bool,
            bandwidth in any::<f64>(), mean_size in any::<f64>(), random in any::<f64>(),
        ) {
            let next = ReportInterval { members, senders, we_send, bandwidth, mean_size, first }.next(random);
            prop_assert!(next >= Duration::from_millis(1250) && next <= Duration::from_secs(5400));
        }
    }
}
