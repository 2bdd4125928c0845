//! PLAY and PAUSE (RFC 2326, 10.5 and 10.6).

use std::time::Duration;

use measure::Time;

use super::faults::FalseStatement;
use super::group_streams::Participant;
use super::sdp;
use super::session::ServerSession;
use super::streams::{Carrier, PlayState, REPORT_INTERVAL};
use crate::codec::{Request, Response};
use crate::headers::{NptStart, Range, RtpInfo, format_number};
use kit::media::rtp::{Playback, RtpFlow};
use session::{Context, Output};

/// Maximum of `Scale` and `Speed`; the minimum is its inverse. A value outside is limited to this
/// range.
const FACTOR_MAX: f64 = 16.0;

/// Returns the effective value of `Scale` or `Speed`. A missing header means 1.
fn effective_factor(request: &Request, name: &str) -> Result<f64, u16> {
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

impl ServerSession {
    pub(super) fn play(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request,
    ) -> Result<Response, u16> {
        let selected = self.selected_streams(request)?;
        let shared = self.shared.clone();
        let now = cx.now;
        let change = self.requested_change(cx, request, &selected)?;
        let pretends = |what| shared.config.faults.control.pretend.contains(&what);
        let rtsp_session = self.rtsp_session(request)?;
        let id = rtsp_session.id.clone();
        if let Some(change) = change {
            // A PLAY during playback takes effect at once. By RFC 2326, 10.5 it would wait for the
            // end of the current range, which no client intends.
            let mut playback = change;
            if pretends(FalseStatement::Range) {
                playback.start = None;
            }
            if pretends(FalseStatement::Scale) {
                playback.scale = 1.0;
            }
            if pretends(FalseStatement::Speed) {
                playback.speed = 1.0;
            }
            for &index in &selected {
                let stream = &mut rtsp_session.streams[index];
                if stream.playing == PlayState::Sending {
                    cx.out.push_back(Output::StopFlow { flow: stream.flow });
                }
                stream.playing = PlayState::Stopped;
                stream.until = match playback.scale < 0.0 {
                    true => playback.end.or(Some(Duration::ZERO)),
                    false => playback.end,
                };
                cx.flows.access_as(stream.flow, |flow: &mut RtpFlow| {
                    flow.set_playback(playback)
                });
            }
        }
        if selected
            .iter()
            .all(|&index| rtsp_session.streams[index].playing == PlayState::Ended)
        {
            return Err(457);
        }
        let mut infos = Vec::new();
        let mut position: Option<Duration> = None;
        let mut until = None;
        let mut pace = (1.0, 1.0);
        let mut started = Vec::new();
        for index in selected {
            let stream = &mut rtsp_session.streams[index];
            if stream.group.as_ref().is_some_and(Participant::has_ended) {
                stream.playing = PlayState::Ended;
            }
            if stream.playing == PlayState::Stopped {
                // A stream that other clients play is sent already.
                let starts = stream.group.as_ref().is_none_or(Participant::play);
                let (channel, interleaved) = stream.carrier.path();
                let ((seq, rtptime), at, paced) =
                    cx.flows.access_as(stream.flow, |flow: &mut RtpFlow| {
                        flow.set_interleaved_channel(interleaved);
                        let begins = (
                            flow.next_rtp_info(now),
                            flow.position(),
                            flow.scale_and_speed(),
                        );
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
                stream.playing = PlayState::Sending;
                stream.base_told |= shared.config.rtp_info;
                if !starts {
                    continue;
                }
                stream.report_at = Some(now + REPORT_INTERVAL);
                started.push((
                    stream.carrier,
                    Output::StartFlow {
                        flow: stream.flow,
                        channel,
                    },
                ));
            }
        }
        let mut response = Response::new(200).with("Session", id);
        if !infos.is_empty() {
            if let Some(change) = change {
                if pretends(FalseStatement::Range) {
                    position = change.start.or(position);
                }
                if pretends(FalseStatement::Scale) {
                    pace.0 = change.scale;
                }
                if pretends(FalseStatement::Speed) {
                    pace.1 = change.speed;
                }
            }
            for (name, actual) in [("Scale", pace.0), ("Speed", pace.1)] {
                // Stated if it is not 1, or was requested.
                if actual != 1.0 || request.headers.get(name).is_some() {
                    response = response.with(name, format_number(actual, 4));
                }
            }
            let range = match sdp::range(&shared) {
                Range::Npt { end: Some(end), .. } => Range::Npt {
                    start: position.map(NptStart::At),
                    end: Some(until.unwrap_or(end)),
                },
                live => live,
            };
            response = response.with("Range", range.to_string());
            if shared.config.rtp_info {
                let infos: Vec<String> = infos.iter().map(RtpInfo::to_string).collect();
                response = response.with("RTP-Info", infos.join(","));
            }
            self.start_fault_timers(now, &started);
            self.after_answer
                .extend(started.into_iter().map(|(_, start)| start));
        }
        Ok(response)
    }

    /// Returns the change of playback that a PLAY requests, or `None` if playback just continues.
    /// Media begins with the key frame at or before the requested position, because nothing can be
    /// shown without a key frame.
    fn requested_change(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request,
        selected: &[usize],
    ) -> Result<Option<Playback>, u16> {
        let (start, end) = match request.headers.get("Range").map(Range::parse) {
            None => (None, None),
            Some(Some(Range::Npt { start, end })) => (start.and_then(NptStart::at), end),
            Some(Some(_)) => return Err(501),
            Some(None) => return Err(400),
        };
        let scale = effective_factor(request, "Scale")?;
        let speed = effective_factor(request, "Speed")?;
        if speed < 0.0 {
            return Err(400);
        }
        let length = self.shared.config.length;
        let clip = self.shared.clips[0].clone();
        let rtsp_session = self.rtsp_session(request)?;
        // A stream that is sent once for all clients is, like live media, only available at its
        // current position.
        let shared = rtsp_session
            .streams
            .iter()
            .any(|stream| stream.group.is_some());
        let Some(length) = length.filter(|_| !shared) else {
            return match start {
                Some(start) if !start.is_zero() => Err(457),
                _ => Ok(None),
            };
        };
        let Some(stream) = selected.first().map(|&index| &rtsp_session.streams[index]) else {
            return Ok(None);
        };
        let (at, pace) = cx.flows.access_as(stream.flow, |flow: &mut RtpFlow| {
            (flow.position(), flow.scale_and_speed())
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
        Ok(Some(Playback {
            start: start.map(|start| clip.key_frame_before(start)),
            end: end.filter(|&end| end < length),
            scale,
            speed,
        }))
    }

    /// Starts the timers of faults that follow the first PLAY.
    fn start_fault_timers(&mut self, now: Time, started: &[(Carrier, Output)]) {
        let faults = &self.shared.config.faults.control;
        if !self.played
            && let Some(after) = faults.cut_after
        {
            self.cut_at = Some(now + after);
        }
        let interleaved =
            |(carrier, _): &(Carrier, Output)| matches!(carrier, Carrier::Interleaved(..));
        if faults.garbage > 0.0 && started.iter().any(interleaved) {
            self.garbage_at = Some(now + Duration::from_secs(1));
        }
        self.played = true;
    }

    pub(super) fn pause(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request,
    ) -> Result<Response, u16> {
        let selected = self.selected_streams(request)?;
        let rtsp_session = self.rtsp_session(request)?;
        let response = Response::new(200).with("Session", &rtsp_session.id);
        let mut paused = false;
        for index in selected {
            let stream = &mut rtsp_session.streams[index];
            if stream.playing == PlayState::Sending {
                paused = true;
                stream.playing = PlayState::Stopped;
                stream.report_at = None;
                let group = stream.group.as_ref();
                if group.is_none_or(|participant| participant.pause(cx, stream.flow)) {
                    cx.flows.access_as(stream.flow, RtpFlow::pause);
                    cx.out.push_back(Output::StopFlow { flow: stream.flow });
                }
            }
        }
        if paused { Ok(response) } else { Err(455) }
    }
}
