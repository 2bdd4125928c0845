//! Streams of a session: interleaved packets, reports, and detection of the end of the media.

use std::time::Duration;

use measure::Time;
use rand::Rng;

use super::multicast::{Group, MulticastDescription};
use super::{Client, Phase};
use crate::codec;
use crate::failure::Failure;
use crate::headers::Ports;
use kit::media::rtcp::{self, Packet, ReportInterval};
use kit::media::rtp::RtpReceiver;
use kit::media::rtp::metrics as rtp;
use kit::media::sdp::MediaKind;
use session::{Arrival, ChannelId, Context, Outcome, Output, Port, SinkId, Sinks};

/// A stream of the description.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) kind: MediaKind,
    /// Control URL, absolute and as written in the description.
    pub(super) url: String,
    pub(super) control: String,
    pub(super) sink: SinkId,
    /// Channel of the pair of UDP ports, and number of the even port.
    pub(super) channel: Option<ChannelId>,
    pub(super) local_port: u16,
    /// Interleaved channels.
    pub(super) interleaved: Option<Ports<u8>>,
    /// Server's RTCP port; 0 if unknown.
    pub(super) control_port: u16,
    /// Whether reports are sent, and due time of the next one.
    pub(super) wants_reports: bool,
    pub(super) report_due: Option<Time>,
    /// Time of the server's BYE.
    pub(super) bye_at: Option<Time>,
    /// Multicast parameters of the description.
    pub(super) multicast_description: MulticastDescription,
    /// Multicast group of the stream.
    pub(super) group: Option<Box<Group>>,
}

impl Stream {
    /// Returns whether each packet has a timestamp of its own: an audio frame is one packet, a
    /// video frame is many.
    pub(super) fn has_packet_timestamps(&self) -> bool {
        self.kind == MediaKind::Audio
    }

    /// Returns the receiver of the stream's packets.
    pub(super) fn receiver<'a>(&self, sinks: &'a mut Sinks) -> &'a mut RtpReceiver {
        sinks.get::<RtpReceiver>(self.sink)
    }
}

/// Time after the last BYE during which packets may still arrive, because they pass through other
/// queues.
const BYE_LINGER: Duration = Duration::from_millis(200);

/// Time to wait for late packets near the end of the media before its progress is checked.
const LATE_PACKET_WAIT: Duration = Duration::from_millis(200);

/// Time before the silence limit at which a client looks for new packets, which postpones its
/// check. Nothing depends on the exact moment of the look, so it happens when the worker is awake
/// anyway: waking up for each of thousands of clients separately cost more than all their packets.
/// Longer than the delay with which packets are read.
const EARLY_LOOK: Duration = Duration::from_secs(1);

/// Length of the framing before each interleaved packet (RFC 2326, 10.12).
const FRAMING: usize = 4;

/// Returns how much earlier than stated the media may end: servers stop at the start of a frame,
/// and round.
fn slack(length: Duration) -> Duration {
    (length / 10).min(Duration::from_secs(1))
}

/// Returns how much earlier than stated the last packet may arrive if a long silence follows: a
/// stated length is that of the longest stream, and often an estimate.
fn end_slack(length: Duration) -> Duration {
    (length / 20).max(Duration::from_secs(1))
}

/// Returns how much earlier than stated a BYE may arrive. VLC never sends the last 1.4 s, which are
/// in its buffer when it sends BYE.
fn bye_slack(length: Duration) -> Duration {
    end_slack(length).max(Duration::from_secs(2))
}

/// Returns whether media of this length has ended if this much of it has arrived.
fn reached_end(length: Duration, played: Duration) -> bool {
    played >= length.saturating_sub(end_slack(length))
}

impl Client {
    /// Handles an interleaved packet of `length` bytes, of which `payload` may be only the
    /// beginning. This is the hot path of media over TCP: it does not allocate. Returns whether it
    /// was media that needs no action of the session.
    #[inline]
    pub(super) fn interleaved_frame(
        &mut self,
        cx: &mut Context<'_>,
        channel: u8,
        payload: &[u8],
        length: usize,
        (at, exact): (Time, bool),
    ) -> bool {
        let mut streams = self.streams.iter().enumerate();
        let found = streams.find_map(|(index, stream)| {
            let channels = stream.interleaved?;
            let is_media = channels.media == channel;
            (is_media || channels.control == channel).then_some((index, is_media))
        });
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
            // RTCP is never delivered in part.
            Some((index, false)) if payload.len() == length => {
                self.on_rtcp(cx, index, payload, at);
                false
            }
            Some((_, false)) => true,
            None if let Some(publishing) = &self.publishing => {
                let index = publishing.stream_of_control(channel);
                if let Some(index) = index.filter(|_| payload.len() == length) {
                    self.on_receiver_reports(cx, index, payload);
                }
                false
            }
            // A channel that was not set up.
            None => true,
        }
    }

    /// Handles RTCP of a stream. Unreadable packets are ignored, because nothing depends on them.
    pub(super) fn on_rtcp(&mut self, cx: &mut Context<'_>, index: usize, bytes: &[u8], at: Time) {
        let own = self.ssrc;
        let stream = &mut self.streams[index];
        let receiver = stream.receiver(cx.sinks);
        for packet in rtcp::packets(bytes) {
            match packet {
                Ok(Packet::SenderReport { info, .. }) => {
                    receiver.sender_report(&info, at, cx.recorder);
                }
                Ok(Packet::Bye { sources, .. }) => {
                    let ssrc = receiver.ssrc();
                    // VLC's BYE names source 0.
                    let means = |ssrc| sources.contains(&ssrc) || matches!(sources[..], [] | [0]);
                    // In a group, other participants leave too.
                    let is_its = match &stream.group {
                        Some(_) => ssrc.is_some_and(|ssrc| sources.contains(&ssrc)),
                        None => ssrc.is_none_or(means),
                    };
                    if is_its {
                        if let Some(ssrc) = ssrc {
                            receiver.source_ended(ssrc);
                        }
                        stream.bye_at.get_or_insert(at);
                        self.next_check = Some(cx.now);
                    }
                }
                Ok(Packet::ReceiverReport { ssrc, .. }) => {
                    // Our own reports come back too.
                    if let Some(group) = stream.group.as_mut().filter(|_| ssrc != own) {
                        group.others.add(ssrc);
                    }
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }

    /// Schedules the first reports.
    pub(super) fn plan_reports(&mut self, now: Time) {
        for index in 0..self.streams.len() {
            if self.streams[index].wants_reports {
                self.streams[index].report_due = Some(now + self.report_interval(index, true));
            }
        }
    }

    /// Returns the time to the next report: about 5 s (RFC 3550, 6.2). The assumed bandwidth
    /// exceeds what a session of two participants needs. In a group, the time grows with the number
    /// of other receivers.
    fn report_interval(&mut self, index: usize, first: bool) -> Duration {
        const BANDWIDTH: f64 = 1e6;
        let random = self.random.next_u32() as f64 / (f64::from(u32::MAX) + 1.0);
        let interval = match &mut self.streams[index].group {
            Some(group) => group.interval(first),
            None => ReportInterval::point_to_point(false, BANDWIDTH, first),
        };
        interval.next(random)
    }

    /// Sends the reports that are due.
    pub(super) fn due_reports(&mut self, cx: &mut Context<'_>) {
        for index in 0..self.streams.len() {
            let due = self.streams[index].report_due;
            if due.is_none_or(|due| cx.now < due) {
                continue;
            }
            let next = cx.now + self.report_interval(index, false);
            let stream = &mut self.streams[index];
            stream.report_due = Some(next);
            let receiver = stream.receiver(cx.sinks);
            if receiver.ssrc().is_none() || stream.bye_at.is_some() {
                continue;
            }
            let block = receiver.report_block(cx.now);
            let mut report = Vec::with_capacity(80);
            rtcp::write_receiver_report(&mut report, self.ssrc, &[block]);
            rtcp::write_cname(&mut report, self.ssrc, &format!("{:08x}", self.ssrc));
            let channel = stream.channel.filter(|_| stream.control_port != 0);
            let interleaved = stream.interleaved;
            self.send_rtcp(cx, interleaved, channel, report);
        }
    }

    /// Sends RTCP on its interleaved channel, or else from this pair of ports.
    pub(super) fn send_rtcp(
        &self,
        cx: &mut Context<'_>,
        interleaved: Option<Ports<u8>>,
        channel: Option<ChannelId>,
        bytes: Vec<u8>,
    ) {
        if let Some(channels) = interleaved {
            self.send_bytes(cx, codec::frame(channels.control, &bytes));
        } else if let Some(channel) = channel {
            cx.out.push_back(Output::Send {
                channel,
                port: Port::Control,
                bytes,
            });
        }
    }

    /// Returns the arrival times of the first and the last packet of any stream, at the current
    /// position.
    pub(super) fn arrivals(&self, cx: &mut Context<'_>) -> Option<(Time, Time)> {
        let mut arrivals = None;
        for stream in &self.streams {
            let receiver = stream.receiver(cx.sinks);
            if let (Some(first), Some(last)) =
                (receiver.position_arrival(), receiver.last_arrival())
            {
                let (from, to) = arrivals.unwrap_or((first, last));
                arrivals = Some((first.min(from), last.max(to)));
            }
        }
        arrivals
    }

    /// Returns the time of the last BYE if every stream had one and none received a packet.
    pub(super) fn last_bye_without_media(&self, cx: &mut Context<'_>) -> Option<Time> {
        if self.arrivals(cx).is_some() || self.streams.iter().any(|s| s.bye_at.is_none()) {
            return None;
        }
        self.streams.iter().filter_map(|stream| stream.bye_at).max()
    }

    /// Returns the time of the last BYE if every stream that received packets had one.
    fn last_bye(&self, cx: &mut Context<'_>) -> Option<Time> {
        let mut last = None;
        for stream in &self.streams {
            match stream.bye_at {
                Some(at) => last = last.max(Some(at)),
                None if stream.receiver(cx.sinks).first_arrival().is_some() => return None,
                None => {}
            }
        }
        last
    }

    /// Returns whether all media has arrived, as far as this is known without waiting.
    pub(super) fn media_is_over(&self, cx: &mut Context<'_>) -> bool {
        self.arrivals(cx).is_some_and(|(first, last)| {
            (self.last_bye(cx).is_some() && self.describe_early_end(cx).is_none())
                || self
                    .playing_time
                    .is_some_and(|length| reached_end(length, last.since(first)))
        })
    }

    /// Describes an early end: every stream had its BYE before the known end of the media. Both
    /// arrival times and timestamps must show it, because servers send ahead and timestamps may be
    /// wrong.
    pub(super) fn describe_early_end(&self, cx: &mut Context<'_>) -> Option<String> {
        self.last_bye(cx)?;
        let length = self.playing_time?;
        let (first, last) = self.arrivals(cx)?;
        let mut played = last.since(first);
        for stream in &self.streams {
            let receiver = stream.receiver(cx.sinks);
            if receiver.last_arrival().is_some() {
                // The timestamps at a remote receiver are unknown.
                played = played.max(receiver.played()?);
            }
        }
        (played < length.saturating_sub(bye_slack(length))).then(|| {
            format!(
                "BYE {:.1} s before the media's known end ({})",
                length.saturating_sub(played).as_secs_f64(),
                self.describe_addresses()
            )
        })
    }

    /// Checks whether media still arrives, and schedules the next check.
    pub(super) fn check_media(&mut self, cx: &mut Context<'_>) {
        if self.phase != Phase::Playing {
            return;
        }
        if self.next_check.is_none_or(|check| cx.now < check) {
            if self.next_look.take_if(|look| *look <= cx.now).is_some()
                && let Some((first, last)) = self.arrivals(cx)
            {
                self.schedule_check(cx.now, first, last);
            }
            return;
        }
        self.next_look = None;
        if !self.expects_media() {
            // No media is expected. Resuming schedules a new check.
            self.next_check = None;
            return;
        }
        let arrivals = self.arrivals(cx);
        let lingered = |bye: Time| bye.max(self.starts.play_answered.unwrap_or(bye)) + BYE_LINGER;
        if arrivals.is_some()
            && let Some(bye) = self.last_bye(cx)
        {
            let over = lingered(bye);
            if cx.now >= over {
                return match self.describe_early_end(cx) {
                    Some(detail) => self.fail(cx, Failure::MediaStopped, detail),
                    None => self.complete(cx),
                };
            }
            self.next_check = Some(over);
            return;
        }
        let Some((first, last)) = arrivals else {
            let answered = self.starts.play_answered.unwrap_or(cx.now);
            let mut until = answered + self.config.no_media.0;
            let bye = self.last_bye_without_media(cx);
            if let Some(bye) = bye {
                until = until.min(lingered(bye));
            }
            if cx.now >= until {
                let (all, bound) = (self.streams.len(), self.config.no_media);
                let detail = match bye {
                    Some(_) => format!("BYE of all {all} streams without a packet"),
                    None => format!("no media packet within {bound} after PLAY"),
                };
                return self.fail_here(cx, self.no_media_failure(), detail);
            }
            self.next_check = Some(until);
            return;
        };
        let silent = last + self.config.silence.0;
        let reached = self.has_reached_end(first, last);
        let over = self.end_time(first, last);
        if over.is_some_and(|over| cx.now >= over) || (reached && cx.now >= silent) {
            return self.complete(cx);
        }
        if cx.now >= silent {
            let played = last.since(first);
            let when = match self.playing_time {
                Some(length) => format!(
                    "{:.3} s before the media's known end",
                    length.saturating_sub(played).as_secs_f64()
                ),
                None => "and no BYE".to_owned(),
            };
            let silence = self.config.silence;
            let detail = format!(
                "no packet for {silence}, {when}, {}",
                self.describe_addresses()
            );
            if self.conversation.server_hints.is_asked_to_end() {
                let outcome = self.ended_by_server(last, Failure::EndedByServer, &detail);
                return self.tear_down(cx, outcome, None);
            }
            return self.fail(cx, Failure::MediaStopped, detail);
        }
        self.schedule_check(cx.now, first, last);
    }

    /// Returns whether the media had ended with its last packet. The current time does not matter,
    /// because silence does not end media. Live media ends only when its publisher leaves or with a
    /// BYE of any stream: the BYE of other streams may be lost.
    fn has_reached_end(&self, first: Time, last: Time) -> bool {
        match self.playing_time {
            Some(length) => reached_end(length, last.since(first)),
            None => {
                self.publisher.has_left()
                    || self.streams.iter().any(|stream| stream.bye_at.is_some())
            }
        }
    }

    /// Returns the time at which media that has reached its end counts as over.
    fn end_time(&self, first: Time, last: Time) -> Option<Time> {
        let length = self
            .playing_time
            .filter(|_| self.has_reached_end(first, last))?;
        let end = first + (length - slack(length));
        Some(end.max(last + self.config.end_silence.0))
    }

    /// Schedules the next check, and an earlier look, from the arrival times of the first and the
    /// last packet.
    fn schedule_check(&mut self, now: Time, first: Time, last: Time) {
        let silence = self.config.silence.0;
        // The expected end is checked before the silence limit.
        let planned = || {
            let length = self.playing_time?;
            let reached = first + (length - slack(length)) + LATE_PACKET_WAIT;
            let ended = first + length + self.config.end_silence.0;
            [reached, ended].into_iter().find(|&planned| planned > now)
        };
        let end = self.end_time(first, last).or_else(planned);
        let next = end.unwrap_or(Time::NEVER).min(last + silence);
        let early = last + silence.saturating_sub(EARLY_LOOK);
        self.next_look = (now < early && early < next).then_some(early);
        // If a look finds that the check is due, packets that have arrived are handled first.
        self.next_check = Some(next.max(now + Duration::from_nanos(1)));
    }

    fn complete(&mut self, cx: &mut Context<'_>) {
        if self.continue_actions(cx) {
            self.next_check = None;
            return self.due_actions(cx);
        }
        let outcome = self.end_of_media(cx);
        self.tear_down(cx, outcome, None);
    }

    /// Returns the outcome after the end of the media.
    pub(super) fn end_of_media(&self, cx: &mut Context<'_>) -> Outcome {
        if self.playing_time.is_some() || self.publisher.has_left() {
            return Outcome::Completed;
        }
        let (first, last) = self.arrivals(cx).unwrap_or((cx.now, cx.now));
        let seconds = last.since(first).as_secs_f64();
        let detail = format!(
            "the server ended the stream after {seconds:.3} s of media: BYE ({})",
            self.describe_addresses()
        );
        self.ended_by_server(last, Failure::EndedByServer, &detail)
    }
}
