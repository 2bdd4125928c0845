//! The streams of a session: packets in the connection, reports, and how the media's end is known.

use std::time::Duration;

use measure::Time;
use rand::Rng;

use super::multicast::{Described, Group};
use super::{Client, Phase};
use crate::media::rtcp::{self, Interval, Packet};
use crate::media::rtp::RtpReceiver;
use crate::media::rtp::metrics as rtp;
use crate::media::sdp::MediaKind;
use crate::rtsp::failure::Failure;
use crate::rtsp::headers::Ports;
use crate::session::{Arrival, ChannelId, Context, Outcome, Output, Port, SinkId};

/// One stream of the description.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) kind: MediaKind,
    /// Its control URL, and as the description has it.
    pub(super) url: String,
    pub(super) control: String,
    pub(super) sink: SinkId,
    /// Its pair of UDP ports, and the even one's number.
    pub(super) channel: Option<ChannelId>,
    pub(super) local_port: u16,
    /// Its channels in the connection.
    pub(super) interleaved: Option<Ports<u8>>,
    /// The server's port for RTCP; 0 where it is not known.
    pub(super) control_port: u16,
    /// Whether reports are sent, and when the next is due.
    pub(super) wants_reports: bool,
    pub(super) report: Option<Time>,
    /// When the server said that the source has ended.
    pub(super) bye: Option<Time>,
    /// What the description says of a multicast group.
    pub(super) described: Described,
    /// The group it comes from, where it does.
    pub(super) group: Option<Box<Group>>,
}

impl Stream {
    /// Whether each of its packets has a timestamp of its own: a frame of sound is a packet, a
    /// picture is many.
    pub(super) fn has_own_times(&self) -> bool {
        self.kind == MediaKind::Audio
    }
}

/// How long after the last BYE packets may still be on their way: they come through other queues.
const BYE_LINGER: Duration = Duration::from_millis(200);

/// How long after its time a packet near the media's end is waited for before it is looked at how
/// far the media has come.
const LATE: Duration = Duration::from_millis(200);

/// How long before silence would have lasted too long a client looks whether media still flows,
/// which puts the check off. Nothing hangs on the moment of the look, so it comes when the loop is
/// awake anyway: to be woken for each of thousands of clients at a moment of its own cost more than
/// all their packets. Longer than what has come may be unknown.
const EARLY: Duration = Duration::from_secs(1);

/// Bytes of framing before each packet in the connection (RFC 2326, 10.12).
const FRAMING: usize = 4;

/// The media may be over by so much before its stated end: servers stop at a frame's beginning,
/// and round.
fn slack(length: Duration) -> Duration {
    (length / 10).min(Duration::from_secs(1))
}

/// The media has come to its end where it came to so much before it and then stayed silent for
/// long: stated lengths are those of the longest stream, and estimates often.
fn end_slack(length: Duration) -> Duration {
    (length / 20).max(Duration::from_secs(1))
}

/// With a BYE it has come to its end where it came to so much before it: VLC never sends the last
/// 1.4 s, which it holds in its buffer when it says goodbye.
fn bye_slack(length: Duration) -> Duration {
    end_slack(length).max(Duration::from_secs(2))
}

/// Whether media of this length has come to its end when so much of it has come.
fn reached_end(length: Duration, came: Duration) -> bool {
    came >= length.saturating_sub(end_slack(length))
}

impl Client {
    /// A packet in the connection, `length` bytes long, and as much of it as is there. The hot path
    /// of media over TCP: nothing is allocated. Says whether it was media that the session needs to
    /// do nothing about.
    #[inline]
    pub(super) fn frame(
        &mut self,
        cx: &mut Context<'_>,
        channel: u8,
        payload: &[u8],
        length: usize,
        (at, exact): (Time, bool),
    ) -> bool {
        let mut found = None;
        for (index, stream) in self.streams.iter().enumerate() {
            match stream.interleaved {
                Some(channels) if channels.media == channel => found = Some((index, true)),
                Some(channels) if channels.control == channel => found = Some((index, false)),
                _ => continue,
            }
            break;
        }
        match found {
            Some((index, true)) => {
                let arrival = Arrival {
                    at,
                    bytes: payload,
                    length,
                    overhead: FRAMING,
                };
                let sink = self.streams[index].sink;
                if !exact {
                    cx.recorder.add(rtp::TIMED_BY_READING, 1);
                }
                let event = cx.sinks.packet(sink, &arrival, cx.recorder);
                if let Some(event) = event {
                    self.media_event(cx, index, event);
                }
                event.is_none()
            }
            // What is there in part is no RTCP.
            Some((index, false)) if payload.len() == length => {
                self.reports(cx, index, payload, at);
                false
            }
            Some((_, false)) => true,
            None if self.publishes() => {
                if payload.len() == length {
                    self.frame_while_publishing(cx, channel, payload);
                }
                false
            }
            // A channel that nobody set up.
            None => true,
        }
    }

    /// Takes in RTCP of a stream. What cannot be read is let go: nothing hangs on it.
    pub(super) fn reports(&mut self, cx: &mut Context<'_>, index: usize, bytes: &[u8], at: Time) {
        let own = self.ssrc;
        let stream = &mut self.streams[index];
        let receiver = cx.sinks.get::<RtpReceiver>(stream.sink);
        for packet in rtcp::packets(bytes) {
            match packet {
                Ok(Packet::SenderReport { info, .. }) => {
                    receiver.sender_report(&info, at, cx.recorder);
                }
                Ok(Packet::Bye { sources, .. }) => {
                    let ssrc = receiver.ssrc();
                    // VLC's names no source, but 0.
                    let means = |ssrc| sources.contains(&ssrc) || matches!(sources[..], [] | [0]);
                    // In a group others leave as well.
                    let is_its = match &stream.group {
                        Some(_) => ssrc.is_some_and(|ssrc| sources.contains(&ssrc)),
                        None => ssrc.is_none_or(means),
                    };
                    if is_its {
                        if let Some(ssrc) = ssrc {
                            receiver.source_ended(ssrc);
                        }
                        stream.bye.get_or_insert(at);
                        self.check = Some(cx.now);
                    }
                }
                Ok(Packet::ReceiverReport { ssrc, .. }) => {
                    // Our own come back as well.
                    if let Some(group) = stream.group.as_mut().filter(|_| ssrc != own) {
                        group.others.heard(ssrc);
                    }
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }

    /// Sets the times of the first reports.
    pub(super) fn plan_reports(&mut self, now: Time) {
        for index in 0..self.streams.len() {
            if self.streams[index].wants_reports {
                self.streams[index].report = Some(now + self.report_interval(index, true));
            }
        }
    }

    /// The time to the next report: about 5 s (RFC 3550, 6.2), whatever the bandwidth, which is
    /// more than the few bytes of a conversation of two need. In a group it is more where many
    /// others report.
    fn report_interval(&mut self, index: usize, first: bool) -> Duration {
        const BANDWIDTH: f64 = 1e6;
        let random = self.random.next_u32() as f64 / (f64::from(u32::MAX) + 1.0);
        let interval = match &mut self.streams[index].group {
            Some(group) => group.interval(first),
            None => Interval::of_two(false, BANDWIDTH, first),
        };
        interval.next(random)
    }

    /// Sends the reports that are due.
    pub(super) fn due_reports(&mut self, cx: &mut Context<'_>) {
        for index in 0..self.streams.len() {
            if self.streams[index].report.is_none_or(|due| cx.now < due) {
                continue;
            }
            let next = cx.now + self.report_interval(index, false);
            let stream = &mut self.streams[index];
            stream.report = Some(next);
            let receiver = cx.sinks.get::<RtpReceiver>(stream.sink);
            if receiver.ssrc().is_none() || stream.bye.is_some() {
                continue;
            }
            let block = receiver.report_block(cx.now);
            let mut report = Vec::with_capacity(80);
            rtcp::write_receiver_report(&mut report, self.ssrc, &[block]);
            rtcp::write_cname(&mut report, self.ssrc, &format!("{:08x}", self.ssrc));
            match (stream.interleaved, stream.channel) {
                (Some(channels), _) => {
                    // Some dozens of bytes.
                    let mut frame = vec![b'$', channels.control, 0, report.len() as u8];
                    frame.extend_from_slice(&report);
                    self.put(cx, frame);
                }
                (None, Some(channel)) if stream.control_port != 0 => {
                    cx.out.push_back(Output::Send {
                        channel,
                        port: Port::Control,
                        bytes: report,
                    });
                }
                _ => {}
            }
        }
    }

    /// When the first and the last packet of any stream arrived, of the position that plays.
    pub(super) fn arrivals(&self, cx: &mut Context<'_>) -> Option<(Time, Time)> {
        let mut arrivals = None;
        for stream in &self.streams {
            let receiver = cx.sinks.get::<RtpReceiver>(stream.sink);
            if let (Some(first), Some(last)) =
                (receiver.position_arrival(), receiver.last_arrival())
            {
                let (from, to) = arrivals.unwrap_or((first, last));
                arrivals = Some((first.min(from), last.max(to)));
            }
        }
        arrivals
    }

    /// When the last BYE came, where every stream had one and none ever brought a packet.
    pub(super) fn ended_without_media(&self, cx: &mut Context<'_>) -> Option<Time> {
        if self.arrivals(cx).is_some() || self.streams.iter().any(|s| s.bye.is_none()) {
            return None;
        }
        self.streams.iter().filter_map(|stream| stream.bye).max()
    }

    /// When every stream that brought anything had its BYE; `None` where one had not.
    fn all_ended(&self, cx: &mut Context<'_>) -> Option<Time> {
        let mut last = None;
        for stream in &self.streams {
            match stream.bye {
                Some(at) => last = last.max(Some(at)),
                None if cx
                    .sinks
                    .get::<RtpReceiver>(stream.sink)
                    .first_arrival()
                    .is_some() =>
                {
                    return None;
                }
                None => {}
            }
        }
        last
    }

    /// Whether all that the server had to send has come, as far as one can tell without waiting.
    pub(super) fn media_is_over(&self, cx: &mut Context<'_>) -> bool {
        self.arrivals(cx).is_some_and(|(first, last)| {
            (self.all_ended(cx).is_some() && self.ended_early(cx).is_none())
                || self
                    .length
                    .is_some_and(|length| reached_end(length, last.since(first)))
        })
    }

    /// What is wrong with media whose streams all had their BYE: by how much that came before the
    /// known end. Both clocks must say so, because servers send ahead, and timestamps may be wrong.
    pub(super) fn ended_early(&self, cx: &mut Context<'_>) -> Option<String> {
        self.all_ended(cx)?;
        let length = self.length?;
        let (first, last) = self.arrivals(cx)?;
        let mut came = last.since(first);
        for stream in &self.streams {
            let receiver = cx.sinks.get::<RtpReceiver>(stream.sink);
            if receiver.last_arrival().is_some() {
                // Of what another machine receives the timestamps are not known.
                came = came.max(receiver.played()?);
            }
        }
        (came < length.saturating_sub(bye_slack(length))).then(|| {
            format!(
                "BYE {:.1} s before the media's known end ({})",
                length.saturating_sub(came).as_secs_f64(),
                self.ends()
            )
        })
    }

    /// Looks whether media still arrives, and sets the time to look again.
    pub(super) fn check_media(&mut self, cx: &mut Context<'_>) {
        if self.phase != Phase::Playing {
            return;
        }
        if self.check.is_none_or(|check| cx.now < check) {
            if self.look.take_if(|look| *look <= cx.now).is_some()
                && let Some((first, last)) = self.arrivals(cx)
            {
                self.schedule_check(cx.now, first, last);
            }
            return;
        }
        self.look = None;
        if self
            .timeline
            .as_ref()
            .is_some_and(|timeline| !timeline.plays())
        {
            // Nothing is to come; whatever plays on looks again.
            self.check = None;
            return;
        }
        let arrivals = self.arrivals(cx);
        let lingered = |bye: Time| bye.max(self.play_answered.unwrap_or(bye)) + BYE_LINGER;
        if arrivals.is_some()
            && let Some(bye) = self.all_ended(cx)
        {
            let over = lingered(bye);
            if cx.now >= over {
                return match self.ended_early(cx) {
                    Some(detail) => self.fail(cx, Failure::MediaStopped, detail),
                    None => self.complete(cx),
                };
            }
            self.check = Some(over);
            return;
        }
        let Some((first, last)) = arrivals else {
            let answered = self.play_answered.unwrap_or(cx.now);
            let mut until = answered + self.config.no_media.0;
            if let Some(bye) = self.ended_without_media(cx) {
                until = until.min(lingered(bye));
                if cx.now >= until {
                    let detail = format!(
                        "BYE of {} streams without a packet of any, {}",
                        self.streams.len(),
                        self.ends()
                    );
                    return self.fail(cx, self.no_media(), detail);
                }
            }
            if cx.now >= until {
                let detail = format!(
                    "no packet of {} streams within {} after PLAY, {}",
                    self.streams.len(),
                    self.config.no_media,
                    self.ends()
                );
                return self.fail(cx, self.no_media(), detail);
            }
            self.check = Some(until);
            return;
        };
        let silent = last + self.config.silence.0;
        let reached = self.has_reached_end(first, last);
        let over = self.over(first, last);
        if over.is_some_and(|over| cx.now >= over) || (reached && cx.now >= silent) {
            return self.complete(cx);
        }
        if cx.now >= silent {
            let came = last.since(first);
            let when = match self.length {
                Some(length) => format!(
                    "{:.3} s before the media's known end",
                    length.saturating_sub(came).as_secs_f64()
                ),
                None => "and no BYE".to_owned(),
            };
            let silence = self.config.silence;
            let detail = format!("no packet for {silence}, {when}, {}", self.ends());
            if self.said.is_asked_to_end() {
                let detail = format!("{detail}{}", self.said.hints());
                let outcome = Outcome::EndedByServer {
                    at: last,
                    in_order: true,
                    failure: Failure::EndedByServer.with(detail),
                };
                return self.tear_down(cx, outcome, None);
            }
            return self.fail(cx, Failure::MediaStopped, detail);
        }
        self.schedule_check(cx.now, first, last);
    }

    /// Whether the media had come to its end with its last packet. What time it is now does not
    /// count: silence brings no media to its end. Live media has none but that of its publisher, or
    /// a BYE: those of other streams may be lost.
    fn has_reached_end(&self, first: Time, last: Time) -> bool {
        match self.length {
            Some(length) => reached_end(length, last.since(first)),
            None => {
                self.publisher.has_left() || self.streams.iter().any(|stream| stream.bye.is_some())
            }
        }
    }

    /// When media is over that has come to its end.
    fn over(&self, first: Time, last: Time) -> Option<Time> {
        let length = self.length.filter(|_| self.has_reached_end(first, last))?;
        let end = first + (length - slack(length));
        Some(end.max(last + self.config.end_silence.0))
    }

    /// Sets the time of the next check, and before it of a look, by the first and the last packet
    /// that have come.
    fn schedule_check(&mut self, now: Time, first: Time, last: Time) {
        let silence = self.config.silence.0;
        // The end is due before silence would tell.
        let planned = || {
            let length = self.length?;
            let reached = first + (length - slack(length)) + LATE;
            let ended = first + length + self.config.end_silence.0;
            [reached, ended].into_iter().find(|&planned| planned > now)
        };
        let end = self.over(first, last).or_else(planned);
        let next = end.unwrap_or(Time::NEVER).min(last + silence);
        let early = last + silence.saturating_sub(EARLY);
        self.look = (now < early && early < next).then_some(early);
        // A look may find that it is time: what has come then is heard first.
        self.check = Some(next.max(now + Duration::from_nanos(1)));
    }

    fn complete(&mut self, cx: &mut Context<'_>) {
        if self.goes_on(cx) {
            self.check = None;
            return self.due_actions(cx);
        }
        let outcome = self.end_of_media(cx);
        self.tear_down(cx, outcome, None);
    }

    /// The outcome after the end of the media.
    pub(super) fn end_of_media(&self, cx: &mut Context<'_>) -> Outcome {
        if self.length.is_some() || self.publisher.has_left() {
            return Outcome::Completed;
        }
        let (first, last) = self.arrivals(cx).unwrap_or((cx.now, cx.now));
        let seconds = last.since(first).as_secs_f64();
        let hints = self.said.hints();
        let detail = format!(
            "the server ended the stream after {seconds:.3} s of media: BYE ({}){hints}",
            self.ends()
        );
        Outcome::EndedByServer {
            at: last,
            in_order: true,
            failure: Failure::EndedByServer.with(detail),
        }
    }
}
