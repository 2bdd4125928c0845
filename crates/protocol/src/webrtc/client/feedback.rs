//! What a client tells the server of what it receives.

use super::Client;
use crate::session::Context;
use crate::webrtc::metrics as m;
use crate::webrtc::tracks::Tracks;

impl Client {
    /// Reports on what came, in pieces that the peer can keep until they are sent.
    pub(super) fn report_received(&mut self, cx: &mut Context<'_>, at: usize) {
        let mut from = Some(0);
        while let Some(first) = from
            && !self.is_leaving()
            && let Some(link) = self.links.get_mut(at)
            && let (Some(peer), Some(sink)) = (&mut link.peer, link.sink)
        {
            let mut said = 0;
            let names = (self.ssrc, &*self.cname);
            let tracks = cx.sinks.get::<Tracks>(sink);
            from = tracks.write_reports(cx.now, names, first, |compound| {
                said += u64::from(peer.send_rtcp(compound));
            });
            if from.is_none() {
                tracks.count_questions(cx.recorder);
                self.count_link(cx, at);
            }
            cx.recorder.add(m::REPORTS_SENT, said);
            self.drain(cx, at);
        }
    }

    /// Asks for what is missing, where it is time to look.
    pub(super) fn ask_for_missing(&mut self, cx: &mut Context<'_>, at: usize) {
        let now = cx.now;
        let link = &mut self.links[at];
        if link.ask_at.is_none_or(|due| due > now) {
            return;
        }
        link.ask_at = Some(now + super::ASK_EVERY);
        let (Some(peer), Some(sink)) = (&mut link.peer, link.sink) else {
            return;
        };
        let tracks = cx.sinks.get::<Tracks>(sink);
        let mut any = false;
        let pictures = tracks.write_questions(now, self.ssrc, |compound| {
            any |= peer.send_rtcp(compound);
        });
        if any {
            cx.recorder.add(m::PLIS_SENT, pictures);
            self.drain(cx, at);
        }
    }

    /// Adds what was counted since the last time.
    pub(super) fn count_link(&mut self, cx: &mut Context<'_>, at: usize) {
        let link = &mut self.links[at];
        let Some(peer) = &link.peer else {
            return;
        };
        let counts = peer.counts();
        let opened = link.opener.as_ref().map(|opener| opener.counts());
        let media = opened.unwrap_or_default();
        let now = [
            counts.rtcp.unauthentic + media.unauthentic,
            counts.rtcp.replayed + media.replayed,
            media.malformed,
            media.of_too_many_sources,
        ];
        let before = std::mem::replace(&mut link.counted, now);
        let counters = [
            m::UNAUTHENTIC,
            m::REPLAYED,
            crate::media::rtp::metrics::MALFORMED,
            m::UNKNOWN_MEDIA,
        ];
        for (at, counter) in counters.into_iter().enumerate() {
            cx.recorder.add(counter, now[at] - before[at]);
        }
    }
}
