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
        let asked = match request.headers.get("Range").map(Range::parse) {
            None => None,
            Some(Some(Range::Npt { start, end })) => self.position(start, end)?,
            Some(Some(_)) => return Err(501),
            Some(None) => return Err(400),
        };
        let conversation = self.conversation(request)?;
        let id = conversation.id.clone();
        // What is sent once for all is where it is, as live media is.
        let asked = match asked {
            Some((from, _))
                if conversation
                    .streams
                    .iter()
                    .any(|stream| stream.cast.is_some()) =>
            {
                if !from.is_zero() {
                    return Err(457);
                }
                None
            }
            asked => asked,
        };
        if let Some((from, until)) = asked {
            // Asked for while it plays, it is played at once: RFC 2326, 10.5 would have it wait for the end of
            // what plays, which no client means.
            for &index in &selected {
                let stream = &mut conversation.streams[index];
                if stream.playing == Playing::Yes {
                    cx.out.push_back(Output::StopFlow { flow: stream.flow });
                }
                stream.playing = Playing::No;
                stream.until = until;
                cx.flows.with(stream.flow, |flow| flow.seek(from, until));
            }
        }
        if selected
            .iter()
            .all(|&index| conversation.streams[index].playing == Playing::Ended)
        {
            return Err(457);
        }
        let mut infos = Vec::new();
        let mut position = Duration::MAX;
        let mut until = None;
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
                until = until.or(stream.until);
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
                    end: Some(until.unwrap_or(end)),
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

    /// Where in the media a range begins and ends; `None` where it begins where the media stands. It begins with
    /// the key frame at or before what was asked for, as without one nobody can show anything.
    fn position(
        &self,
        start: Option<NptStart>,
        end: Option<Duration>,
    ) -> Result<Option<(Duration, Option<Duration>)>, u16> {
        let Some(NptStart::At(start)) = start else {
            return Ok(None);
        };
        let Some(length) = self.shared.config.length else {
            // Live: there is no other time than now.
            return if start.is_zero() { Ok(None) } else { Err(457) };
        };
        if start >= length || end.is_some_and(|end| end <= start) {
            return Err(457);
        }
        let from = self.shared.clips[0].key_frame_before(start);
        Ok(Some((from, end.filter(|&end| end < length))))
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
