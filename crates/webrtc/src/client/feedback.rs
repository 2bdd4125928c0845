//! RTCP feedback of a client about received media.

use std::time::Duration;

use super::link::PeerLink;
use crate::metrics as m;
use crate::tracks::Tracks;
use kit::media::rtcp;
use session::Context;

/// Interval between transport feedback messages. Browsers send it every 50 to 250 ms.
const FEEDBACK_INTERVAL: Duration = Duration::from_millis(100);

impl PeerLink {
    /// Sends receiver reports, if they are due, in batches that the peer can hold until they are
    /// sent.
    pub(super) fn send_receiver_reports(&mut self, cx: &mut Context<'_>) {
        if self.report_at.is_none_or(|due| due > cx.now) {
            return;
        }
        self.report_at = Some(cx.now + super::REPORT_EVERY);
        let mut from = Some(0);
        // A datagram of its own would cost as much as a report. REMB names the streams that were
        // received lately, and each of them has a report.
        let mut remb = self.remb_with_reports(cx);
        while let Some(first) = from
            && let (Some(peer), Some(sink)) = (&mut self.peer, self.sink)
        {
            let (mut reports, mut rembs) = (0, 0);
            let (ssrc, cname) = (self.setup.ssrc, &self.setup.cname);
            let tracks = cx.sinks.get::<Tracks>(sink);
            from = tracks.write_reports(cx.now, ssrc, cname, first, |compound| {
                let length = compound.len();
                compound.extend_from_slice(&remb);
                let is_sent = peer.send_rtcp(compound);
                reports += u64::from(is_sent);
                if is_sent && compound.len() > length {
                    rembs += 1;
                    remb.clear();
                }
            });
            if from.is_none() {
                tracks.record_requests(cx.recorder);
                self.count(cx);
            }
            cx.recorder.add(m::REPORTS_SENT, reports);
            cx.recorder.add(m::REMBS_SENT, rembs);
            self.send_pending(cx);
        }
    }

    /// Returns the REMB that goes with receiver reports. Empty if none is to be sent, or not with
    /// reports.
    fn remb_with_reports(&self, cx: &mut Context<'_>) -> Vec<u8> {
        let mut remb = Vec::new();
        if let Some(sink) = self.sink.filter(|_| self.has_remb) {
            let tracks = cx.sinks.get::<Tracks>(sink);
            if !tracks.records_arrivals() {
                tracks.write_remb(cx.now, self.setup.ssrc, &mut remb);
            }
        }
        remb
    }

    /// Sends NACKs and requests for key frames, if they are due.
    pub(super) fn send_nacks(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        if self.nack_at.is_none_or(|due| due > now) {
            return;
        }
        self.nack_at = None;
        while let (Some(peer), Some(sink)) = (&mut self.peer, self.sink) {
            let tracks = cx.sinks.get::<Tracks>(sink);
            let mut any = false;
            let (ssrc, round_trip) = (self.setup.ssrc, peer.round_trip());
            let key_frames = tracks.write_requests(now, ssrc, round_trip, |compound| {
                any |= peer.send_rtcp(compound);
            });
            let more = tracks.has_more_requests();
            if tracks.has_requests() {
                self.nack_at = Some(now + super::NACK_CHECK_INTERVAL);
            }
            if any {
                cx.recorder.add(m::PLIS_SENT, key_frames);
                self.send_pending(cx);
            }
            // Each round covers a limited number of streams. If nothing could be sent, no further
            // round follows: the packets are requested again later.
            if !any || !more {
                return;
            }
        }
    }

    /// Starts transport feedback, or REMB if no receiver reports carry it, provided that the server
    /// uses it.
    pub(super) fn start_feedback(&mut self, cx: &mut Context<'_>) {
        let Some(sink) = self.sink else {
            return;
        };
        let arrivals = cx.sinks.get::<Tracks>(sink).records_arrivals();
        let has_feedback = arrivals || (self.has_remb && self.report_at.is_none());
        self.feedback_at = match (has_feedback, self.feedback_at) {
            (false, _) => None,
            (true, known) => known.or(Some(cx.now + FEEDBACK_INTERVAL)),
        };
    }

    /// Sends transport feedback or REMB, if it is due.
    pub(super) fn send_transport_feedback(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        let (Some(peer), Some(sink)) = (&mut self.peer, self.sink) else {
            return;
        };
        if self.feedback_at.is_none_or(|due| due > now) {
            return;
        }
        let tracks = cx.sinks.get::<Tracks>(sink);
        if tracks.records_arrivals() {
            // Checking ten times a second for numbers that do not come took a quarter of a client's
            // processor time. `MediaEvent::FirstTransportNumber` reports the first number.
            self.feedback_at = Some(match tracks.lacks_numbers() {
                true => now + super::REPORT_EVERY,
                false => now + FEEDBACK_INTERVAL,
            });
            let mut messages = 0;
            let packets = tracks.write_arrivals(self.setup.ssrc, |compound| {
                let is_sent = peer.send_rtcp(compound);
                messages += u64::from(is_sent);
                is_sent
            });
            cx.recorder.add(m::ARRIVALS_TOLD, packets);
            cx.recorder.add(m::TRANSPORT_FEEDBACK_SENT, messages);
        } else {
            self.feedback_at = Some(now + super::REPORT_EVERY);
            let mut compound = Vec::new();
            rtcp::write_receiver_report(&mut compound, self.setup.ssrc, &[]);
            let remb = tracks.write_remb(now, self.setup.ssrc, &mut compound);
            let is_sent = remb.is_some() && peer.send_rtcp(&compound);
            cx.recorder.add(m::REMBS_SENT, u64::from(is_sent));
        }
        self.send_pending(cx);
    }

    /// Adds what was counted since the last call to the recorder.
    pub(super) fn count(&mut self, cx: &mut Context<'_>) {
        let Some(peer) = &self.peer else {
            return;
        };
        let counts = peer.counts();
        let turn_dropped = self.relay.as_ref().map_or(0, |relay| relay.dropped());
        let tracks = self.sink.map(|sink| cx.sinks.get::<Tracks>(sink));
        let media = tracks.map(|tracks| tracks.opener_counts());
        let media = media.unwrap_or_default();
        let now = [
            counts.rtcp.unauthentic + media.unauthentic,
            counts.rtcp.replayed + media.replayed,
            media.malformed,
            media.too_many_sources,
            counts.stun_malformed
                + counts.stun_unauthentic
                + counts.stun_of_too_many_addresses
                + turn_dropped,
            counts.foreign + counts.dtls_unexpected + counts.rtcp_without_keys,
        ];
        let counters = [
            m::UNAUTHENTIC,
            m::REPLAYED,
            kit::media::rtp::metrics::MALFORMED,
            m::UNKNOWN_MEDIA,
            m::STUN_REFUSED,
            m::FOREIGN,
        ];
        m::add_new(cx.recorder, counters, &mut self.recorded_counts, now);
    }
}
