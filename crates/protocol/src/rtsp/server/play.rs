//! PLAY and PAUSE (RFC 2326, 10.5 and 10.6).

use std::time::Duration;

use measure::Time;

use super::casts::Part;
use super::sdp;
use super::session::ServerSession;
use super::streams::{Carrier, Playing, REPORT_EVERY};
use crate::media::rtp::RtpFlow;
use crate::rtsp::codec::{Headers, Request, Response};
use crate::rtsp::headers::{NptStart, Range, RtpInfo};
use crate::session::{Context, Output};

impl ServerSession {
    pub(super) fn play(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request,
    ) -> Result<Response, u16> {
        let selected = self.selected(request)?;
        let shared = self.shared.clone();
        let now = cx.now;
        match request.headers.get("Range").map(Range::parse) {
            None => {}
            Some(Some(Range::Npt { start, .. })) => {
                let after_end = matches!((start, shared.config.length),
                    (Some(NptStart::At(start)), Some(length)) if start >= length);
                if after_end {
                    return Err(457);
                }
            }
            Some(Some(_)) => return Err(501),
            Some(None) => return Err(400),
        }
        let conversation = self.conversation(request)?;
        let id = conversation.id.clone();
        if selected
            .iter()
            .all(|&index| conversation.streams[index].playing == Playing::Ended)
        {
            return Err(457);
        }
        let mut infos = Vec::new();
        let mut position = Duration::MAX;
        let mut begun = Vec::new();
        for index in selected {
            let stream = &mut conversation.streams[index];
            if stream.cast.as_ref().is_some_and(Part::has_ended) {
                stream.playing = Playing::Ended;
            }
            if stream.playing == Playing::No {
                // What others play already is sent already.
                let starts = stream.cast.as_ref().is_none_or(Part::play);
                let ((seq, rtptime), at) = cx.flows.with(stream.flow, |flow| {
                    let begins = (flow.next_position(now), flow.position());
                    flow.start(now);
                    begins
                });
                infos.push(RtpInfo {
                    url: stream.url.clone(),
                    seq: Some(seq),
                    rtptime: Some(rtptime),
                });
                position = position.min(at);
                stream.playing = Playing::Yes;
                stream.base_told |= shared.config.rtp_info;
                if !starts {
                    continue;
                }
                stream.report_at = Some(now + REPORT_EVERY);
                let (channel, framing) = stream.carrier.path();
                begun.push((
                    stream.carrier,
                    Output::StartFlow {
                        flow: stream.flow,
                        channel,
                        framing,
                    },
                ));
            }
        }
        let mut headers = Headers::new();
        headers.push("Session", id);
        if !infos.is_empty() {
            let range = match sdp::range(&shared) {
                Range::Npt { end: Some(end), .. } => Range::Npt {
                    start: Some(NptStart::At(position)),
                    end: Some(end),
                },
                live => live,
            };
            headers.push("Range", range.to_string());
            if shared.config.rtp_info {
                let infos: Vec<String> = infos.iter().map(RtpInfo::to_string).collect();
                headers.push("RTP-Info", infos.join(","));
            }
            self.begin(now, &begun);
            self.after.extend(begun.into_iter().map(|(_, start)| start));
        }
        let mut response = Response::new(200);
        response.headers = headers;
        Ok(response)
    }

    /// The first play sets the clocks of what is done wrong later.
    fn begin(&mut self, now: Time, begun: &[(Carrier, Output)]) {
        let faults = &self.shared.config.faults.control;
        if !self.played
            && let Some(after) = faults.cut_after
        {
            self.cut_at = Some(now + after);
        }
        let interleaved =
            |(carrier, _): &(Carrier, Output)| matches!(carrier, Carrier::Interleaved(..));
        if faults.garbage > 0.0 && begun.iter().any(interleaved) {
            self.garbage_at = Some(now + Duration::from_secs(1));
        }
        self.played = true;
    }

    pub(super) fn pause(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request,
    ) -> Result<Response, u16> {
        let selected = self.selected(request)?;
        let conversation = self.conversation(request)?;
        let mut response = Response::new(200);
        response.headers.push("Session", conversation.id.clone());
        let mut paused = false;
        for index in selected {
            let stream = &mut conversation.streams[index];
            if stream.playing == Playing::Yes {
                paused = true;
                stream.playing = Playing::No;
                stream.report_at = None;
                if stream
                    .cast
                    .as_ref()
                    .is_none_or(|part| part.pause(cx, stream.flow))
                {
                    cx.flows.with(stream.flow, RtpFlow::pause);
                    cx.out.push_back(Output::StopFlow { flow: stream.flow });
                }
            }
        }
        if paused { Ok(response) } else { Err(455) }
    }
}
