//! RTCP feedback of a client about received media.

use std::time::Duration;

use super::Client;
use crate::metrics as m;
use crate::tracks::Tracks;
use kit::media::rtcp;
use session::Context;

/// Interval between transport feedback messages. Browsers send it every 50 to 250 ms.
const FEEDBACK_INTERVAL: Duration = Duration::from_millis(100);

impl Client {
    /// Sends receiver reports, in batches that the peer can hold until they are sent.
    pub(super) fn send_receiver_reports(&mut self, cx: &mut Context<'_>, at: usize) {
        let mut from = Some(0);
        // A datagram of its own would cost as much as a report. REMB names the streams that were
        // received lately, and each of them has a report.
        let mut remb = self.remb_with_reports(cx, at);
        while let Some(first) = from
            && !self.is_leaving()
            && let Some(link) = self.links.get_mut(at)
            && let (Some(peer), Some(sink)) = (&mut link.peer, link.sink)
        {
            let (mut reports, mut rembs) = (0, 0);
            let names = (self.setup.ssrc, &*self.setup.cname);
            let tracks = cx.sinks.get::<Tracks>(sink);
            from = tracks.write_reports(cx.now, names, first, |compound| {
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
                self.count_link(cx, at);
            }
            cx.recorder.add(m::REPORTS_SENT, reports);
            cx.recorder.add(m::REMBS_SENT, rembs);
            self.flush_peer(cx, at);
        }
    }

    /// Returns the REMB that goes with receiver reports. Empty if none is to be sent, or not with
    /// reports.
    fn remb_with_reports(&self, cx: &mut Context<'_>, at: usize) -> Vec<u8> {
        let mut remb = Vec::new();
        if let Some(link) = self.links.get(at).filter(|link| link.has_remb)
            && let Some(sink) = link.sink
        {
            let tracks = cx.sinks.get::<Tracks>(sink);
            if !tracks.records_arrivals() {
                tracks.write_remb(cx.now, self.setup.ssrc, &mut remb);
            }
        }
        remb
    }

    /// Sends NACKs and requests for key frames, if they are due.
    pub(super) fn send_nacks(&mut self, cx: &mut Context<'_>, at: usize) {
        let now = cx.now;
        let link = &mut self.links[at];
        if link.nack_at.is_none_or(|due| due > now) {
            return;
        }
        link.nack_at = None;
        loop {
            let link = &mut self.links[at];
            let (Some(peer), Some(sink)) = (&mut link.peer, link.sink) else {
                return;
            };
            let tracks = cx.sinks.get::<Tracks>(sink);
            let mut any = false;
            let sender = (self.setup.ssrc, peer.round_trip());
            let key_frames = tracks.write_requests(now, sender, |compound| {
                any |= peer.send_rtcp(compound);
            });
            let more = tracks.has_more_requests();
            if tracks.has_requests() {
                link.nack_at = Some(now + super::NACK_CHECK_INTERVAL);
            }
            if any {
                cx.recorder.add(m::PLIS_SENT, key_frames);
                self.flush_peer(cx, at);
            }
            // Each round covers a limited number of streams. If nothing could be sent, no further
            // round follows: the packets are requested again later.
            if !any || !more || self.is_leaving() || at >= self.links.len() {
                return;
            }
        }
    }

    /// Starts transport feedback, or REMB if no receiver reports carry it, provided that the server
    /// uses it.
    pub(super) fn start_feedback(&mut self, cx: &mut Context<'_>, at: usize) {
        let link = &mut self.links[at];
        let Some(sink) = link.sink else {
            return;
        };
        let arrivals = cx.sinks.get::<Tracks>(sink).records_arrivals();
        let has_feedback = arrivals || (link.has_remb && link.report_at.is_none());
        link.feedback_at = match (has_feedback, link.feedback_at) {
            (false, _) => None,
            (true, known) => known.or(Some(cx.now + FEEDBACK_INTERVAL)),
        };
    }

    /// Sends transport feedback or REMB, if it is due.
    pub(super) fn send_transport_feedback(&mut self, cx: &mut Context<'_>, at: usize) {
        let now = cx.now;
        let link = &mut self.links[at];
        let (Some(peer), Some(sink)) = (&mut link.peer, link.sink) else {
            return;
        };
        if link.feedback_at.is_none_or(|due| due > now) {
            return;
        }
        let tracks = cx.sinks.get::<Tracks>(sink);
        let (mut messages, mut rembs) = (0, 0);
        if tracks.records_arrivals() {
            // Checking ten times a second for numbers that do not come took a quarter of a client's
            // processor time. `MediaEvent::FirstTransportNumber` reports the first number.
            link.feedback_at = Some(match tracks.lacks_numbers() {
                true => now + super::REPORT_EVERY,
                false => now + FEEDBACK_INTERVAL,
            });
            let packets = tracks.write_arrivals(self.setup.ssrc, |compound| {
                let is_sent = peer.send_rtcp(compound);
                messages += u64::from(is_sent);
                is_sent
            });
            cx.recorder.add(m::ARRIVALS_TOLD, packets);
            cx.recorder.add(m::TRANSPORT_FEEDBACK_SENT, messages);
        } else {
            link.feedback_at = Some(now + super::REPORT_EVERY);
            let mut compound = Vec::new();
            rtcp::write_receiver_report(&mut compound, self.setup.ssrc, &[]);
            if tracks
                .write_remb(now, self.setup.ssrc, &mut compound)
                .is_some()
            {
                rembs += u64::from(peer.send_rtcp(&compound));
            }
            cx.recorder.add(m::REMBS_SENT, rembs);
        }
        if messages + rembs > 0 {
            self.flush_peer(cx, at);
        }
    }

    /// Adds what was counted since the last call to the recorder.
    pub(super) fn count_link(&mut self, cx: &mut Context<'_>, at: usize) {
        let link = &mut self.links[at];
        let Some(peer) = &link.peer else {
            return;
        };
        let counts = peer.counts();
        let turn_dropped = link.relay.as_ref().map_or(0, |relay| relay.dropped());
        let tracks = link.sink.map(|sink| cx.sinks.get::<Tracks>(sink));
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
        let before = std::mem::replace(&mut link.recorded_counts, now);
        let counters = [
            m::UNAUTHENTIC,
            m::REPLAYED,
            kit::media::rtp::metrics::MALFORMED,
            m::UNKNOWN_MEDIA,
            m::STUN_REFUSED,
            m::FOREIGN,
        ];
        for (at, counter) in counters.into_iter().enumerate() {
            cx.recorder.add(counter, now[at] - before[at]);
        }
    }
}
