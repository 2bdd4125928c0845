//! PLAY and PAUSE (RFC 2326, 10.5 and 10.6).

use std::time::Duration;

use measure::Time;

use super::faults::Pretence;
use super::group_streams::Part;
use super::sdp;
use super::session::ServerSession;
use super::streams::{Carrier, Playing, REPORT_EVERY};
use crate::media::rtp::{Course, RtpFlow};
use crate::rtsp::codec::{Headers, Request, Response};
use crate::rtsp::headers::{NptStart, Range, RtpInfo};
use crate::session::{Context, Output};

/// Maximum of `Scale` and `Speed`; the minimum is its inverse. A value outside is limited to this
/// range.
const FACTOR_MAX: f64 = 16.0;

/// Returns the effective value of `Scale` or `Speed`. A missing header means 1.
fn factor(request: &Request, name: &str) -> Result<f64, u16> {
    let Some(text) = request.headers.get(name) else {
        return Ok(1.0);
    };
    let asked: f64 = text.trim().parse().map_err(|_| 400u16)?;
    if asked == 0.0 || !asked.is_finite() {
        return Err(400);
    }
    let size = asked.abs().clamp(1.0 / FACTOR_MAX, FACTOR_MAX);
    Ok(size.copysign(asked))
}

/// Formats a number for a header.
fn number(value: f64) -> String {
    let text = format!("{value:.4}");
    let short = text.trim_end_matches('0');
    match short.ends_with('.') {
        true => format!("{short}0"),
        false => short.to_owned(),
    }
}

impl ServerSession {
    pub(super) fn play(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request,
    ) -> Result<Response, u16> {
        let selected = self.selected(request)?;
        let shared = self.shared.clone();
        let now = cx.now;
        let wanted = self.wanted(cx, request, &selected)?;
        let pretends = |what| shared.config.faults.control.pretend.contains(&what);
        let conversation = self.conversation(request)?;
        let id = conversation.id.clone();
        if let Some(wanted) = wanted {
            // A PLAY during playback takes effect at once. By RFC 2326, 10.5 it would wait for the
            // end of the current range, which no client intends.
            let mut course = wanted;
            if pretends(Pretence::Range) {
                course.from = None;
            }
            if pretends(Pretence::Scale) {
                course.scale = 1.0;
            }
            if pretends(Pretence::Speed) {
                course.speed = 1.0;
            }
            for &index in &selected {
                let stream = &mut conversation.streams[index];
                if stream.playing == Playing::Yes {
                    cx.out.push_back(Output::StopFlow { flow: stream.flow });
                }
                stream.playing = Playing::No;
                stream.until = match course.scale < 0.0 {
                    true => course.until.or(Some(Duration::ZERO)),
                    false => course.until,
                };
                cx.flows
                    .with(stream.flow, |flow: &mut RtpFlow| flow.direct(course));
            }
        }
        if selected
            .iter()
            .all(|&index| conversation.streams[index].playing == Playing::Ended)
        {
            return Err(457);
        }
        let mut infos = Vec::new();
        let mut position: Option<Duration> = None;
        let mut until = None;
        let mut pace = (1.0, 1.0);
        let mut begun = Vec::new();
        for index in selected {
            let stream = &mut conversation.streams[index];
            if stream.cast.as_ref().is_some_and(Part::has_ended) {
                stream.playing = Playing::Ended;
            }
            if stream.playing == Playing::No {
                // A stream that other clients play is sent already.
                let starts = stream.cast.as_ref().is_none_or(Part::play);
                let (channel, interleaved) = stream.carrier.path();
                let ((seq, rtptime), at, paced) =
                    cx.flows.with(stream.flow, |flow: &mut RtpFlow| {
                        flow.interleave(interleaved);
                        let begins = (flow.next_position(now), flow.position(), flow.pace());
                        flow.start(now);
                        begins
                    });
                infos.push(RtpInfo {
                    url: stream.url.clone(),
                    seq: Some(seq),
                    rtptime: Some(rtptime),
                });
                let back = paced.0 < 0.0;
                let first = |other: Duration| if back { other.max(at) } else { other.min(at) };
                position = Some(position.map_or(at, first));
                pace = paced;
                until = until.or(stream.until);
                stream.playing = Playing::Yes;
                stream.base_told |= shared.config.rtp_info;
                if !starts {
                    continue;
                }
                stream.report_at = Some(now + REPORT_EVERY);
                begun.push((
                    stream.carrier,
                    Output::StartFlow {
                        flow: stream.flow,
                        channel,
                    },
                ));
            }
        }
        let mut headers = Headers::new();
        headers.push("Session", id);
        if !infos.is_empty() {
            if let Some(wanted) = wanted {
                if pretends(Pretence::Range) {
                    position = wanted.from.or(position);
                }
                if pretends(Pretence::Scale) {
                    pace.0 = wanted.scale;
                }
                if pretends(Pretence::Speed) {
                    pace.1 = wanted.speed;
                }
            }
            for (name, actual) in [("Scale", pace.0), ("Speed", pace.1)] {
                // Stated if it is not 1, or was requested.
                if actual != 1.0 || request.headers.get(name).is_some() {
                    headers.push(name, number(actual));
                }
            }
            let range = match sdp::range(&shared) {
                Range::Npt { end: Some(end), .. } => Range::Npt {
                    start: position.map(NptStart::At),
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

    /// Returns the change of playback that a PLAY requests, or `None` if playback just continues.
    /// Media begins with the key frame at or before the requested position, because nothing can be
    /// shown without a key frame.
    fn wanted(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request,
        selected: &[usize],
    ) -> Result<Option<Course>, u16> {
        let (start, end) = match request.headers.get("Range").map(Range::parse) {
            None => (None, None),
            Some(Some(Range::Npt { start, end })) => (start, end),
            Some(Some(_)) => return Err(501),
            Some(None) => return Err(400),
        };
        let start = match start {
            Some(NptStart::At(start)) => Some(start),
            _ => None,
        };
        let scale = factor(request, "Scale")?;
        let speed = factor(request, "Speed")?;
        if speed < 0.0 {
            return Err(400);
        }
        let length = self.shared.config.length;
        let clip = self.shared.clips[0].clone();
        let conversation = self.conversation(request)?;
        // A stream that is sent once for all clients is, like live media, only available at its
        // current position.
        let shared = conversation
            .streams
            .iter()
            .any(|stream| stream.cast.is_some());
        let Some(length) = length.filter(|_| !shared) else {
            return match start {
                Some(start) if !start.is_zero() => Err(457),
                _ => Ok(None),
            };
        };
        let Some(stream) = selected.first().map(|&index| &conversation.streams[index]) else {
            return Ok(None);
        };
        let (at, pace) = cx.flows.with(stream.flow, |flow: &mut RtpFlow| {
            (flow.position(), flow.pace())
        });
        if start.is_none() && end.is_none() && (scale, speed) == pace {
            return Ok(None);
        }
        let begin = start.unwrap_or(at);
        let nothing = match scale < 0.0 {
            true => begin.is_zero() || begin > length || end.is_some_and(|end| end >= begin),
            false => begin >= length || end.is_some_and(|end| end <= begin),
        };
        if nothing {
            return Err(457);
        }
        Ok(Some(Course {
            from: start.map(|start| clip.key_frame_before(start)),
            until: end.filter(|&end| end < length),
            scale,
            speed,
        }))
    }

    /// Starts the timers of faults that follow the first PLAY.
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
