//! How often to report (RFC 3550, 6.2, 6.3.1 and A.7).

use std::time::Duration;

/// The least time between reports, before it is randomised (RFC 3550, 6.2).
const MINIMUM: Duration = Duration::from_secs(5);

/// The most time between reports that is still of use; a bound against absurd bandwidths.
const MAXIMUM: Duration = Duration::from_secs(3600);

/// Share of RTCP's bandwidth that is the senders', where they are at most so many of the members.
const SENDERS_SHARE: f64 = 0.25;

/// What the time between two reports depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Participants, ourselves included.
    pub members: u32,
    /// Of these, the ones that send media.
    pub senders: u32,
    /// Whether we send media.
    pub we_send: bool,
    /// Bandwidth of all RTCP in bytes per second: 5 % of the session's unless the SDP says
    /// otherwise.
    pub bandwidth: f64,
    /// Mean size of RTCP packets, headers of UDP and IP included, in bytes.
    pub mean_size: f64,
    /// Whether no report was sent yet: the least time is halved then.
    pub first: bool,
}

impl Interval {
    /// A conversation of two: a server that sends, and a client.
    pub fn of_two(we_send: bool, bandwidth: f64, first: bool) -> Interval {
        Interval {
            members: 2,
            senders: 1,
            we_send,
            bandwidth,
            mean_size: 100.0,
            first,
        }
    }

    /// The time between reports, not randomised. Reports to be sent at all need some bandwidth: of
    /// none, or less, it is an hour.
    pub fn deterministic(&self) -> Duration {
        let minimum = if self.first { MINIMUM / 2 } else { MINIMUM };
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
            return MAXIMUM;
        }
        Duration::try_from_secs_f64(seconds)
            .unwrap_or(MAXIMUM)
            .clamp(minimum, MAXIMUM)
    }

    /// The time to the next report; `random` is from 0 (included) to 1 (not), drawn anew for each.
    ///
    /// Without the timer reconsideration of RFC 3550, 6.3.3, which a conversation of two does not
    /// need, and so without the division by `e - 3/2` that makes up for it.
    pub fn next(&self, random: f64) -> Duration {
        randomise(self.deterministic(), random)
    }
}

/// Spreads a time to between a half and one and a half times itself (RFC 3550, 6.2).
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
    fn two_talk_every_five_seconds() {
        let interval = Interval::of_two(false, 6250.0, false);
        assert_eq!(interval.deterministic(), Duration::from_secs(5));
        assert_eq!(interval.next(0.0), Duration::from_millis(2500));
        assert_eq!(interval.next(0.5), Duration::from_secs(5));
        let first = Interval::of_two(false, 6250.0, true);
        assert_eq!(first.deterministic(), Duration::from_millis(2500));
    }

    #[test]
    fn many_share_the_bandwidth() {
        let mut interval = Interval {
            members: 1001,
            senders: 1,
            we_send: false,
            bandwidth: 1000.0,
            mean_size: 100.0,
            first: false,
        };
        // A thousand receivers share three quarters of 1000 bytes a second.
        let seconds = interval.deterministic().as_secs_f64();
        assert!((seconds - 133.333).abs() < 0.01, "{seconds}");
        interval.we_send = true;
        assert_eq!(interval.deterministic(), Duration::from_secs(5));
        interval.bandwidth = 0.0;
        assert_eq!(interval.deterministic(), Duration::from_secs(3600));
    }

    proptest! {
        #[test]
        fn is_never_absurd(
            members in any::<u32>(), senders in any::<u32>(), we_send: bool, first: bool,
            bandwidth in any::<f64>(), mean_size in any::<f64>(), random in any::<f64>(),
        ) {
            let next = Interval { members, senders, we_send, bandwidth, mean_size, first }.next(random);
            prop_assert!(next >= Duration::from_millis(1250) && next <= Duration::from_secs(5400));
        }
    }
}
