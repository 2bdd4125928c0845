//! Sender reports about what a flow sends.

use std::time::Duration;

use measure::Time;

use super::RtpFlow;
use crate::media::rtcp::{SenderReportInfo, write_bye, write_cname, write_sender_report};

/// How often a sender report is sent (RFC 3550, 6.2).
pub const REPORT_EVERY: Duration = Duration::from_secs(5);
/// Seconds from 1900, when NTP begins, to 1970.
const NTP_TO_UNIX: u64 = 2_208_988_800;

impl RtpFlow {
    /// A report on what left so far, as a compound of RTCP, which says goodbye where it is the
    /// last. `wall_clock` is what it showed, since 1970, when time began.
    pub fn report(&self, now: Time, wall_clock: Duration, name: &str, goodbye: bool) -> Vec<u8> {
        let about = About {
            ssrc: self.ssrc(),
            timestamp: self.timestamp_at(now),
            sent: self.sent(),
        };
        about.report(wall_clock + now.since_start(), name, goodbye)
    }
}

/// What a report says of a source.
pub(super) struct About {
    pub(super) ssrc: u32,
    /// The RTP timestamp of the report's time.
    pub(super) timestamp: u32,
    /// Packets that left, and bytes of their payload.
    pub(super) sent: (u64, u64),
}

impl About {
    /// The report as a compound. `since_unix` is what the wall clock shows.
    pub(super) fn report(&self, since_unix: Duration, name: &str, goodbye: bool) -> Vec<u8> {
        let (packets, bytes) = self.sent;
        let info = SenderReportInfo {
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

/// A time since 1970 as an NTP timestamp (RFC 3550, 4).
fn ntp(since_unix: Duration) -> u64 {
    let seconds = since_unix.as_secs().wrapping_add(NTP_TO_UNIX) << 32;
    seconds | ((u64::from(since_unix.subsec_nanos()) << 32) / 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ntp_counts_from_1900_in_fractions_of_two_to_the_32() {
        assert_eq!(ntp(Duration::ZERO), 2_208_988_800 << 32);
        let half = ntp(Duration::from_millis(1500));
        assert_eq!(half, 2_208_988_801 << 32 | 1 << 31);
    }
}
