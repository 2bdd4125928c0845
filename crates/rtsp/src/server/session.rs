//! A connection of a client to the reference server.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use measure::Time;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::Shared;
use super::faults::FaultCondition;
use super::group_streams::{self, Participant};
use super::pending::{self, PendingSetup, SetupKind};
use super::streams::{CONTROL, PlayState, REPORT_INTERVAL, Stream};
use crate::codec::{Decoder, Item, Method, Overflow, Request, Response};
use kit::media::rtp::RtpFlow;
use session::{
    ChannelError, ChannelId, CloseReason, Context, Failure, FlowId, Input, Note, Open, Outcome,
    Output, Port, Session,
};

/// Maximum number of requests that wait for an answer. Beyond it, the connection is closed.
const QUEUE_MAX: usize = 64;
/// Reason and detail of that failure.
const TOO_MANY: (&str, &str) = ("too_many_requests", "too many requests at once");
/// Interval at which the server decides whether to send garbage between two frames.
const GARBAGE_EVERY: Duration = Duration::from_secs(1);

/// A received message that is not answered yet.
#[derive(Debug)]
enum QueuedMessage {
    Request(Request),
    /// A malformed request, with its `CSeq`.
    Malformed(Option<u32>),
}

/// Event that the next answer waits for.
#[derive(Debug)]
pub(super) enum AnswerWait {
    /// No event: answers are sent at once.
    Ready,
    /// A pair of ports for a SETUP.
    Setup(PendingSetup),
    /// The due time of an answer that is delayed on purpose.
    Delay { until: Time, request: Request },
}

/// The RTSP session that PLAY, PAUSE and TEARDOWN refer to.
#[derive(Debug)]
pub(super) struct RtspSession {
    pub(super) id: String,
    /// Path of the stream.
    pub(super) path: String,
    pub(super) streams: Vec<Stream>,
}

/// A connection of a client to the reference server.
#[derive(Debug)]
pub(super) struct ServerSession {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u64,
    /// Generator of identifiers and faults.
    pub(super) rng: Pcg64,
    pub(super) nonce: String,
    pub(super) decoder: Decoder,
    pub(super) local: Option<SocketAddr>,
    pub(super) remote: Option<SocketAddr>,
    queue: VecDeque<QueuedMessage>,
    pub(super) answer_wait: AnswerWait,
    pub(super) rtsp_session: Option<RtspSession>,
    /// Participation in a published stream.
    pub(super) relay: Option<pending::RelayParticipant>,
    pub(super) next_channel: u32,
    /// Time of the client's last sign of life.
    last_heard: Time,
    /// Time at which the connection is cut on purpose.
    pub(super) cut_at: Option<Time>,
    /// Time of the next decision whether to send garbage between frames.
    pub(super) garbage_at: Option<Time>,
    /// Outputs that follow the answer.
    pub(super) after_answer: Vec<Output>,
    /// True once a stream was played.
    pub(super) played: bool,
    ended: bool,
}

impl ServerSession {
    pub(super) fn new(shared: Arc<Shared>, number: u64) -> ServerSession {
        let seed = shared.config.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut rng = Pcg64::seed_from_u64(seed);
        let nonce = format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64());
        ServerSession {
            shared,
            number,
            rng,
            nonce,
            decoder: Decoder::new(),
            local: None,
            remote: None,
            queue: VecDeque::new(),
            answer_wait: AnswerWait::Ready,
            rtsp_session: None,
            relay: None,
            next_channel: 1,
            last_heard: Time::ZERO,
            cut_at: None,
            garbage_at: None,
            after_answer: Vec::new(),
            played: false,
            ended: false,
        }
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        if probability <= 0.0 {
            return false;
        }
        let drawn = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        drawn < probability
    }

    fn fault_hits(&mut self, when: &FaultCondition, method: &Method) -> bool {
        when.method.as_ref().is_none_or(|at| at == method) && self.chance(when.probability)
    }

    /// Adds a note to the server's report, such as about an injected fault.
    pub(super) fn note(&self, cx: &mut Context<'_>, kind: &'static str, text: String) {
        let client = match self.remote {
            Some(remote) => format!("connection {} from {remote}", self.number),
            None => format!("connection {}", self.number),
        };
        let text = format!("{client}: {text}");
        cx.out.push_back(Output::Note(Note { kind, text }));
    }

    fn bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8]) {
        let mut messages = Vec::new();
        let mut frames = Vec::new();
        let accepts_media = self.accepts_media();
        let mut is_alive = false;
        let result = self.decoder.feed(bytes, |item| {
            is_alive |= !matches!(item, Item::Garbage { .. });
            match item {
                Item::Request(request) => messages.push(QueuedMessage::Request(request)),
                Item::Malformed(malformed) => {
                    messages.push(QueuedMessage::Malformed(malformed.cseq))
                }
                Item::Frame {
                    channel, payload, ..
                } if accepts_media => frames.push((channel, payload.to_vec())),
                // Reports of the client, and answers to nothing, only show that the client is
                // alive.
                Item::Frame { .. } | Item::Response(_) | Item::Garbage { .. } => {}
            }
        });
        // Single bytes do not show that the client is alive. Otherwise, a client that sends one
        // byte now and then, and never a complete request, would hold a connection forever.
        if is_alive {
            self.last_heard = cx.now;
        }
        if !frames.is_empty() {
            self.relay_frames(cx, frames);
        }
        self.queue.extend(messages);
        self.answer_queued(cx);
        if let Err(overflow) = result
            && !self.ended
        {
            let (reason, detail) = match overflow {
                Overflow::TooLarge(_) => ("malformed", "a message exceeds the size limits"),
                Overflow::Messages => TOO_MANY,
                Overflow::Useless => (
                    "garbage",
                    "too many bytes that are neither message nor packet",
                ),
            };
            self.send(cx, Response::new(400));
            self.end(cx, failed(reason, detail));
        }
        if self.queue.len() > QUEUE_MAX && !self.ended {
            self.end(cx, failed(TOO_MANY.0, TOO_MANY.1));
        }
    }

    /// Answers waiting requests, until an answer must wait for an event.
    fn answer_queued(&mut self, cx: &mut Context<'_>) {
        while !self.ended && matches!(self.answer_wait, AnswerWait::Ready) {
            match self.queue.pop_front() {
                None => break,
                Some(QueuedMessage::Request(request)) => self.request(cx, request),
                Some(QueuedMessage::Malformed(cseq)) => {
                    let mut response = Response::new(400);
                    if let Some(cseq) = cseq {
                        response.headers.push("CSeq", cseq.to_string());
                    }
                    self.send(cx, response);
                }
            }
        }
    }

    /// Handles a request, unless its answer is delayed on purpose.
    fn request(&mut self, cx: &mut Context<'_>, request: Request) {
        let shared = self.shared.clone();
        let mut slow = shared.config.faults.control.slow.iter();
        let Some(slow) = slow.find(|slow| self.fault_hits(&slow.when, &request.method)) else {
            return self.process(cx, request);
        };
        let text = format!("{} answered {:?} late", request.method, slow.delay);
        self.note(cx, "fault_slow", text);
        self.answer_wait = AnswerWait::Delay {
            until: cx.now + slow.delay,
            request,
        };
    }

    /// Handles a request after any delay: injects a fault, or answers it.
    fn process(&mut self, cx: &mut Context<'_>, request: Request) {
        let shared = self.shared.clone();
        let faults = &shared.config.faults.control;
        let method = &request.method;
        let mut hits = |when: &FaultCondition| self.fault_hits(when, method);
        if faults.silent.iter().any(&mut hits) {
            return self.note(cx, "fault_silent", format!("{method} not answered"));
        }
        if faults.cut_at.iter().any(&mut hits) {
            self.note(cx, "fault_cut", format!("connection closed at {method}"));
            return self.end(cx, failed("fault_cut", "closed on purpose"));
        }
        let response = match faults.refuse.iter().find(|refusal| hits(&refusal.when)) {
            Some(refusal) => {
                let text = format!("{method} refused with {}", refusal.status);
                self.note(cx, "fault_refuse", text);
                Some(Response::new(refusal.status))
            }
            None => self.answer(cx, &request),
        };
        if let Some(response) = response {
            self.respond(cx, &request, response);
        }
    }

    /// Opens a pair of ports, for which the answer to a SETUP waits.
    pub(super) fn wait_for_ports(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request,
        media: usize,
        kind: SetupKind,
        open: Open,
    ) {
        let channel = ChannelId(self.next_channel);
        self.next_channel += 1;
        cx.out.push_back(Output::Open { channel, open });
        self.answer_wait = AnswerWait::Setup(PendingSetup {
            request: request.clone(),
            channel,
            media,
            kind,
        });
    }

    /// Sends the answer to a request, and the outputs that follow it.
    fn respond(&mut self, cx: &mut Context<'_>, request: &Request, response: Response) {
        let mut response = response;
        if let Some(cseq) = request.headers.get("CSeq") {
            response.headers.push("CSeq", cseq);
        }
        response.headers.push("Server", "streamgauge");
        if request.method == Method::Describe
            && response.status == 200
            && self.chance(self.shared.config.faults.control.content_length)
        {
            let right = response.body.len();
            let stated = if self.rng.next_u32() & 1 == 0 {
                right / 2
            } else {
                right + right / 2
            };
            response.headers.set("Content-Length", stated.to_string());
            let text = format!("Content-Length of {stated} for {right} bytes");
            self.note(cx, "fault_content_length", text);
        }
        self.send(cx, response);
        cx.out.extend(self.after_answer.drain(..));
    }

    fn send(&mut self, cx: &mut Context<'_>, response: Response) {
        if self.chance(self.shared.config.faults.control.garbage) {
            self.garbage(cx, "before an answer");
        }
        cx.out.push_back(Output::Send {
            channel: CONTROL,
            port: Port::Media,
            bytes: response.encode(),
        });
    }

    /// Sends bytes that are neither message nor frame.
    fn garbage(&mut self, cx: &mut Context<'_>, place: &str) {
        let length = 1 + self.rng.next_u32() % 64;
        let bytes: Vec<u8> = (0..length)
            .map(|_| 0x80 | self.rng.next_u32() as u8)
            .collect();
        self.note(
            cx,
            "fault_garbage",
            format!("{length} bytes of garbage {place}"),
        );
        cx.out.push_back(Output::Send {
            channel: CONTROL,
            port: Port::Media,
            bytes,
        });
    }

    /// Returns the streams that were set up.
    pub(super) fn streams(&self) -> &[Stream] {
        match &self.rtsp_session {
            Some(rtsp_session) => &rtsp_session.streams,
            None => &[],
        }
    }

    fn streams_mut(&mut self) -> &mut [Stream] {
        match &mut self.rtsp_session {
            Some(rtsp_session) => &mut rtsp_session.streams,
            None => &mut [],
        }
    }

    fn flow_ended(&mut self, cx: &mut Context<'_>, flow: FlowId) {
        let wall_clock = self.shared.config.wall_clock;
        let Some(stream) = self
            .streams_mut()
            .iter_mut()
            .find(|stream| stream.flow == flow && stream.playing == PlayState::Sending)
        else {
            return;
        };
        if cx.flows.access(flow, |flow| flow.next_due().is_some()) {
            // A new PLAY has arrived meanwhile.
            return;
        }
        stream.playing = PlayState::Ended;
        stream.report_at = None;
        if let Some(participant) = &stream.group {
            participant.ended(cx);
        }
        let stopped_early = |flow: &mut RtpFlow| flow.stopped_early();
        if cx.flows.access_as(flow, stopped_early) {
            let url = stream.url.clone();
            self.note(cx, "fault_stop", format!("{url}: no more packets are sent"));
        } else {
            // The end of a range is not the end of the media: playback may continue from there.
            stream.report(cx, wall_clock, stream.until.is_none());
        }
    }

    /// Handles a message about a stream that is sent once for all clients: it has ended, or this
    /// session must take over sending.
    fn on_group_message(&mut self, cx: &mut Context<'_>, topic: &str, message: &str) {
        for stream in self.streams_mut() {
            let group = stream.group.as_ref();
            let Some(participant) = group.filter(|own| own.topic() == topic) else {
                continue;
            };
            if stream.playing != PlayState::Sending {
                continue;
            }
            if message == group_streams::ENDED && participant.has_ended() {
                stream.playing = PlayState::Ended;
                stream.report_at = None;
            } else if participant.take_over() {
                let (channel, _) = stream.carrier.path();
                stream.report_at = Some(cx.now + REPORT_INTERVAL);
                cx.out.push_back(Output::StartFlow {
                    flow: stream.flow,
                    channel,
                });
            }
        }
    }

    /// Does everything that is due.
    fn run_due(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        if self.cut_at.is_some_and(|at| at <= now) {
            self.note(cx, "fault_cut", "connection cut during playback".to_owned());
            self.end(cx, failed("fault_cut", "closed on purpose"));
            return;
        }
        if self.last_heard + self.shared.config.session_timeout <= now {
            let text = format!("client silent for {:?}", self.shared.config.session_timeout);
            self.note(cx, "session_timed_out", text.clone());
            self.end(cx, failed("session_timed_out", &text));
            return;
        }
        let wall_clock = self.shared.config.wall_clock;
        for stream in self.streams_mut() {
            if stream.report_at.is_some_and(|at| at <= now) {
                stream.report(cx, wall_clock, false);
                stream.report_at = Some(now + REPORT_INTERVAL);
            }
        }
        if self.garbage_at.is_some_and(|at| at <= now) {
            self.garbage_at = Some(now + GARBAGE_EVERY);
            let mut streams = self.streams().iter();
            let plays = streams.any(|stream| stream.playing == PlayState::Sending);
            if plays && self.chance(self.shared.config.faults.control.garbage) {
                self.garbage(cx, "between frames");
            }
        }
        if matches!(&self.answer_wait, AnswerWait::Delay { until, .. } if *until <= now)
            && let AnswerWait::Delay { request, .. } =
                std::mem::replace(&mut self.answer_wait, AnswerWait::Ready)
        {
            self.process(cx, request);
            self.answer_queued(cx);
        }
    }

    /// Ends the session: reports what was done, and closes all channels.
    pub(super) fn end(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        self.end_rtsp_session(cx);
        self.abandon_wait(cx);
        cx.out.push_back(Output::Close { channel: CONTROL });
        self.ended(cx, outcome);
    }

    fn ended(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        self.ended = true;
        self.queue.clear();
        self.after_answer.clear();
        cx.out.push_back(Output::Ended(outcome));
    }

    /// Ends all streams.
    pub(super) fn end_rtsp_session(&mut self, cx: &mut Context<'_>) {
        self.leave_published(cx);
        if let Some(rtsp_session) = self.rtsp_session.take() {
            for stream in rtsp_session.streams {
                stream.finish(cx, &rtsp_session.id);
            }
        }
        self.cut_at = None;
        self.garbage_at = None;
    }

    /// Abandons the event that the next answer waits for.
    fn abandon_wait(&mut self, cx: &mut Context<'_>) {
        let wait = std::mem::replace(&mut self.answer_wait, AnswerWait::Ready);
        if let AnswerWait::Setup(PendingSetup { channel, .. }) = wait {
            cx.out.push_back(Output::Close { channel });
        }
    }

    fn closed(&mut self, cx: &mut Context<'_>, how: CloseReason) {
        let mut streams = self.streams().iter();
        let complete = !self.played || streams.all(|stream| stream.playing == PlayState::Ended);
        self.end_rtsp_session(cx);
        self.abandon_wait(cx);
        let outcome = match how {
            CloseReason::End if complete => Outcome::Completed,
            CloseReason::End => failed("closed_in_play", "the client closed the connection"),
            CloseReason::Reset if complete => Outcome::Completed,
            CloseReason::Reset => failed("reset_in_play", "the connection was reset"),
            CloseReason::SendQueueFull => {
                failed("stuck", "the client did not read from the connection")
            }
            CloseReason::Tls(error) => failed("tls", &error.to_string()),
        };
        self.ended(cx, outcome);
    }

    fn opened(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelId,
        result: Result<SocketAddr, ChannelError>,
    ) {
        match std::mem::replace(&mut self.answer_wait, AnswerWait::Ready) {
            AnswerWait::Setup(setup) if setup.channel == channel => {
                let response = match (result, self.remote) {
                    (Ok(local), Some(remote)) => self.finish_setup(cx, &setup, local, remote),
                    (Ok(_), None) => unreachable!("an accepted connection has another end"),
                    (Err(error), _) => {
                        self.note(cx, "no_ports", format!("cannot open UDP ports: {error:?}"));
                        Response::new(503)
                    }
                };
                self.respond(cx, &setup.request, response);
                self.answer_queued(cx);
            }
            other => self.answer_wait = other,
        }
    }
}

fn failed(reason: &'static str, detail: &str) -> Outcome {
    Outcome::Failed(Failure {
        reason,
        detail: detail.to_owned(),
    })
}

impl Session for ServerSession {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        if self.ended {
            return;
        }
        match input {
            Input::Start { .. } => self.last_heard = cx.now,
            Input::Opened {
                channel: CONTROL,
                local,
                remote,
            } => {
                self.last_heard = cx.now;
                self.local = Some(local);
                self.remote = remote;
            }
            Input::Opened { channel, local, .. } => self.opened(cx, channel, Ok(local)),
            Input::OpenFailed { channel, error } => self.opened(cx, channel, Err(error)),
            Input::Bytes { bytes, .. } => self.bytes(cx, bytes),
            Input::Datagram {
                channel,
                port,
                from,
                bytes,
                ..
            } => {
                // Datagrams of the client show that it is alive; those of others do not.
                if self.remote.is_some_and(|remote| remote.ip() == from.ip()) {
                    self.last_heard = cx.now;
                    self.relay_datagram(cx, channel, port, bytes);
                }
            }
            Input::Closed {
                channel: CONTROL,
                reason: how,
            } => self.closed(cx, how),
            Input::FlowEnded { flow } => self.flow_ended(cx, flow),
            Input::Deadline => self.run_due(cx),
            Input::Stop { .. } => {
                let wall_clock = self.shared.config.wall_clock;
                for stream in self.streams_mut() {
                    let others = stream.group.as_ref().is_some_and(Participant::others_play);
                    if stream.playing == PlayState::Sending && !others {
                        stream.report(cx, wall_clock, true);
                    }
                }
                self.end(cx, Outcome::Stopped);
            }
            Input::TopicMessage { topic, message } => {
                if !self.on_relay_message(cx, topic, message) {
                    self.on_group_message(cx, topic, message);
                }
            }
            Input::Closed { .. }
            | Input::Media { .. }
            | Input::Datagrams { .. }
            | Input::ExchangeEnded { .. } => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        if self.ended {
            return None;
        }
        let mut next = self.last_heard + self.shared.config.session_timeout;
        if let AnswerWait::Delay { until, .. } = self.answer_wait {
            next = next.min(until);
        }
        let reports = self.streams().iter();
        reports
            .filter_map(|stream| stream.report_at)
            .chain(self.cut_at)
            .chain(self.garbage_at)
            .fold(next, Time::min)
            .into()
    }
}
