//! Sender reports, and our reception reports (RFC 3550, 6.4).

use measure::{Recorder, Time};

use super::super::metrics as m;
use super::RtpReceiver;
use crate::media::rtcp::{ReportBlock, SenderInfo};

/// State from sender reports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SenderReports {
    pub(super) ssrc: u32,
    /// Arrival of the last report, and the middle 32 bits of its NTP time.
    pub(super) last: Option<(Time, u32)>,
    pub(super) packets: u32,
    /// True if the sender's packet count begins at our base.
    pub(super) comparable: bool,
    pub(super) ended: bool,
}

impl RtpReceiver {
    /// Handles a sender report. A report of a source other than the current one is counted and
    /// otherwise ignored.
    ///
    /// The sender's packet count shows the loss after the last received packet, but only if it
    /// begins at our base: the count of a server that sends one stream to many clients began
    /// earlier. It is assumed to begin at our base if at least one report stated no more packets
    /// than we expected at that time, such as a report directly before the first packet.
    pub fn sender_report(&mut self, report: &SenderInfo, at: Time, recorder: &mut Recorder) {
        recorder.count(&mut self.counts.sender_reports, m::SENDER_REPORTS, 1);
        let expected = match &self.source {
            Some(source) if source.ssrc != report.ssrc => return,
            Some(source) => source.sequence.span(),
            None => 0,
        };
        if self.report.ssrc != report.ssrc {
            self.report = SenderReports::default();
        }
        self.report.ssrc = report.ssrc;
        self.report.last = Some((at, (report.ntp_time >> 16) as u32));
        self.report.packets = report.packet_count;
        // After a restart of the same source the sender's count continues, but our base is new.
        self.report.comparable |= u64::from(report.packet_count) <= expected;
    }

    /// Records the end of the source (RTCP BYE): its last report is then the final one.
    ///
    /// Call [`RtpReceiver::finish`] only after packets in flight had time to arrive; otherwise they
    /// count as lost.
    pub fn source_ended(&mut self, ssrc: u32) {
        if self.source.as_ref().is_some_and(|s| s.ssrc == ssrc) {
            self.report.ended = true;
        }
    }

    /// Returns the reception report about the current source, and begins the interval of the next
    /// report (RFC 3550, 6.4.1 and A.3). The report is empty and about source 0 if no packet has
    /// arrived: check [`RtpReceiver::ssrc`] first.
    pub fn report_block(&mut self, now: Time) -> ReportBlock {
        let Some(source) = &mut self.source else {
            return ReportBlock::default();
        };
        let expected = source.sequence.span();
        let (expected_before, arrived_before) = source.reported;
        source.reported = (expected, source.arrived);
        let interval = expected.saturating_sub(expected_before);
        let lost = interval.saturating_sub(source.arrived - arrived_before);
        let fraction = (lost * 256).checked_div(interval).unwrap_or(0).min(255);
        let cumulative = expected as i64 - source.arrived as i64;
        let (last_sr, delay) = match self.report.last {
            Some((at, middle)) => {
                let delay = now.since(at).as_nanos() * 65_536 / 1_000_000_000;
                (middle, u32::try_from(delay).unwrap_or(u32::MAX))
            }
            None => (0, 0),
        };
        ReportBlock {
            ssrc: source.ssrc,
            fraction_lost: fraction as u8,
            // Duplicates can make this negative. Servers that read the field as unsigned would take
            // a negative count for 16 million lost packets.
            cumulative_lost: cumulative.clamp(0, 0x7f_ffff) as i32,
            extended_highest: source.sequence.reported_highest(),
            jitter: self.jitter.in_clock_units(),
            last_sr,
            delay_since_last_sr: delay,
        }
    }
}
