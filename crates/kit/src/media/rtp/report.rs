//! Sender reports about the packets of a flow.

use std::time::Duration;

use measure::Time;

use super::RtpFlow;
use crate::media::rtcp::{SenderInfo, write_bye, write_cname, write_sender_report};

/// Interval between sender reports (RFC 3550, 6.2).
pub const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// Seconds from the NTP epoch, 1900, to 1970.
const NTP_TO_UNIX: u64 = 2_208_988_800;

impl RtpFlow {
    /// Returns a sender report on the packets that left so far, as an RTCP compound packet, with a
    /// BYE if `goodbye` is true. `wall_clock` is the wall clock at the start of the run, since
    /// 1970.
    pub fn report(&self, now: Time, wall_clock: Duration, name: &str, goodbye: bool) -> Vec<u8> {
        let about = ReportedSource {
            ssrc: self.ssrc(),
            timestamp: self.timestamp_at(now),
            sent: self.sent(),
        };
        about.report(wall_clock + now.since_start(), name, goodbye)
    }
}

/// Content of a sender report about one source.
pub(super) struct ReportedSource {
    pub(super) ssrc: u32,
    /// RTP timestamp at the time of the report.
    pub(super) timestamp: u32,
    /// Number of packets that left, and their payload bytes.
    pub(super) sent: (u64, u64),
}

impl ReportedSource {
    /// Returns the report as a compound packet. `since_unix` is the current wall clock.
    pub(super) fn report(&self, since_unix: Duration, name: &str, goodbye: bool) -> Vec<u8> {
        let (packets, bytes) = self.sent;
        let info = SenderInfo {
            ssrc: self.ssrc,
            ntp_time: ntp(since_unix),
            rtp_time: self.timestamp,
            // Both wrap around (RFC 3550, 6.4.1).
            packet_count: packets as u32,
            octet_count: bytes as u32,
        };
        let mut compound = Vec::with_capacity(96);
        write_sender_report(&mut compound, &info, &[]);
        write_cname(&mut compound, info.ssrc, name);
        if goodbye {
            write_bye(&mut compound, &[info.ssrc], None);
        }
        compound
    }
}

/// Converts a time since 1970 into an NTP timestamp (RFC 3550, 4).
fn ntp(since_unix: Duration) -> u64 {
    let seconds = since_unix.as_secs().wrapping_add(NTP_TO_UNIX) << 32;
    seconds | ((u64::from(since_unix.subsec_nanos()) << 32) / 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ntp_timestamp_counts_from_1900() {
        assert_eq!(ntp(Duration::ZERO), 2_208_988_800 << 32);
        let half = ntp(Duration::from_millis(1500));
        assert_eq!(half, 2_208_988_801 << 32 | 1 << 31);
    }
}
