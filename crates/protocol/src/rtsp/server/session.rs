//! A connection of a client to the reference server.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use measure::Time;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::Shared;
use super::faults::When;
use super::group_streams::{self, Part};
use super::pending::{self, PendingSetup, Played, Published};
use super::streams::{CONTROL, Playing, REPORT_EVERY, Stream};
use crate::media::rtp::RtpFlow;
use crate::rtsp::codec::{Decoder, Item, Method, Overflow, Request, Response};
use crate::session::{
    ChannelError, ChannelId, Closed, Context, Failure, FlowId, Input, Note, Outcome, Output, Port,
    Session,
};

/// Maximum number of requests that wait for an answer. Beyond it, the connection is closed.
const QUEUE_MAX: usize = 64;
/// Reason and detail of that failure.
const TOO_MANY: (&str, &str) = ("too_many_requests", "too many requests at once");
/// Interval at which the server decides whether to send garbage between two frames.
const GARBAGE_EVERY: Duration = Duration::from_secs(1);

/// A received message that is not answered yet.
#[derive(Debug)]
enum Asked {
    Request(Request),
    /// A malformed request, with its `CSeq`.
    Malformed(Option<u32>),
}

/// Event that the next answer waits for.
#[derive(Debug)]
pub(super) enum Gate {
    /// No event: answers are sent at once.
    Open,
    /// A pair of ports for a SETUP.
    Channel(PendingSetup<Played>),
    /// A pair of ports for a SETUP of a published stream.
    Part(PendingSetup<Published>),
    /// The due time of an answer that is delayed on purpose.
    Slow { until: Time, request: Request },
}

/// The RTSP session that PLAY, PAUSE and TEARDOWN refer to.
#[derive(Debug)]
pub(super) struct Conversation {
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
    queue: VecDeque<Asked>,
    pub(super) gate: Gate,
    pub(super) conversation: Option<Conversation>,
    /// Participation in a published stream.
    pub(super) part: Option<pending::Part>,
    pub(super) next_channel: u32,
    /// Time of the client's last sign of life.
    heard: Time,
    /// Time at which the connection is cut on purpose.
    pub(super) cut_at: Option<Time>,
    /// Time of the next decision whether to send garbage between frames.
    pub(super) garbage_at: Option<Time>,
    /// Outputs that follow the answer.
    pub(super) after: Vec<Output>,
    /// True once a stream was played.
    pub(super) played: bool,
    over: bool,
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
            gate: Gate::Open,
            conversation: None,
            part: None,
            next_channel: 1,
            heard: Time::ZERO,
            cut_at: None,
            garbage_at: None,
            after: Vec::new(),
            played: false,
            over: false,
        }
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        if probability <= 0.0 {
            return false;
        }
        let drawn = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        drawn < probability
    }

    fn strikes(&mut self, when: &When, method: &Method) -> bool {
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
        let mut asked = Vec::new();
        let mut frames = Vec::new();
        let takes_in = self.takes_in();
        let mut lives = false;
        let result = self.decoder.feed(bytes, |item| {
            lives |= !matches!(item, Item::Garbage { .. });
            match item {
                Item::Request(request) => asked.push(Asked::Request(request)),
                Item::Malformed(malformed) => asked.push(Asked::Malformed(malformed.cseq)),
                Item::Frame {
                    channel, payload, ..
                } if takes_in => frames.push((channel, payload.to_vec())),
                // Reports of the client, and answers to nothing, only show that the client is
                // alive.
                Item::Frame { .. } | Item::Response(_) | Item::Garbage { .. } => {}
            }
        });
        // Single bytes do not show that the client is alive. Otherwise, a client that sends one
        // byte now and then, and never a complete request, would hold a connection forever.
        if lives {
            self.heard = cx.now;
        }
        if !frames.is_empty() {
            self.frames(cx, frames);
        }
        self.queue.extend(asked);
        self.pump(cx);
        if let Err(overflow) = result
            && !self.over
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
        if self.queue.len() > QUEUE_MAX && !self.over {
            self.end(cx, failed(TOO_MANY.0, TOO_MANY.1));
        }
    }

    /// Answers waiting requests, until an answer must wait for an event.
    fn pump(&mut self, cx: &mut Context<'_>) {
        while !self.over && matches!(self.gate, Gate::Open) {
            match self.queue.pop_front() {
                None => break,
                Some(Asked::Request(request)) => self.request(cx, request),
                Some(Asked::Malformed(cseq)) => {
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
        for slow in &shared.config.faults.control.slow {
            if self.strikes(&slow.when, &request.method) {
                let text = format!("{} answered {:?} late", request.method, slow.delay);
                self.note(cx, "fault_slow", text);
                self.gate = Gate::Slow {
                    until: cx.now + slow.delay,
                    request,
                };
                return;
            }
        }
        self.treat(cx, request);
    }

    /// Handles a request after any delay: injects a fault, or answers it.
    fn treat(&mut self, cx: &mut Context<'_>, request: Request) {
        let shared = self.shared.clone();
        let faults = &shared.config.faults.control;
        let method = &request.method;
        for when in &faults.silent {
            if self.strikes(when, method) {
                self.note(cx, "fault_silent", format!("{method} not answered"));
                return;
            }
        }
        for when in &faults.cut_at {
            if self.strikes(when, method) {
                self.note(cx, "fault_cut", format!("connection closed at {method}"));
                self.end(cx, failed("fault_cut", "closed on purpose"));
                return;
            }
        }
        for refusal in &faults.refuse {
            if self.strikes(&refusal.when, method) {
                let text = format!("{method} refused with {}", refusal.status);
                self.note(cx, "fault_refuse", text);
                let response = Response::new(refusal.status);
                self.respond(cx, &request, response);
                return;
            }
        }
        if let Some(response) = self.answer(cx, &request) {
            self.respond(cx, &request, response);
        }
    }

    /// Sends the answer to a request, and the outputs that follow it.
    pub(super) fn respond(&mut self, cx: &mut Context<'_>, request: &Request, response: Response) {
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
        cx.out.extend(self.after.drain(..));
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

    fn streams(&mut self) -> &mut [Stream] {
        match &mut self.conversation {
            Some(conversation) => &mut conversation.streams,
            None => &mut [],
        }
    }

    /// Returns whether all streams that were set up have played to their end.
    fn all_ended(&mut self) -> bool {
        let streams = self.streams();
        streams
            .iter()
            .all(|stream| stream.playing == Playing::Ended)
    }

    fn flow_ended(&mut self, cx: &mut Context<'_>, flow: FlowId) {
        let wall_clock = self.shared.config.wall_clock;
        let Some(stream) = self
            .streams()
            .iter_mut()
            .find(|stream| stream.flow == flow && stream.playing == Playing::Yes)
        else {
            return;
        };
        if cx.flows.reach(flow, |flow| flow.next_due().is_some()) {
            // A new PLAY has arrived meanwhile.
            return;
        }
        stream.playing = Playing::Ended;
        stream.report_at = None;
        if let Some(part) = &stream.cast {
            part.ended(cx);
        }
        if cx
            .flows
            .with(flow, |flow: &mut RtpFlow| flow.stopped_early())
        {
            let url = stream.url.clone();
            self.note(cx, "fault_stop", format!("{url}: no more packets are sent"));
        } else {
            // The end of a range is not the end of the media: playback may continue from there.
            stream.report(cx, wall_clock, stream.until.is_none());
        }
    }

    /// Handles a message about a stream that is sent once for all clients: it has ended, or this
    /// session must take over sending.
    fn told(&mut self, cx: &mut Context<'_>, topic: &str, message: &str) {
        for stream in self.streams() {
            let Some(part) = stream.cast.as_ref().filter(|part| part.topic() == topic) else {
                continue;
            };
            if stream.playing != Playing::Yes {
                continue;
            }
            if message == group_streams::ENDED && part.has_ended() {
                stream.playing = Playing::Ended;
                stream.report_at = None;
            } else if part.takes_over() {
                let (channel, _) = stream.carrier.path();
                stream.report_at = Some(cx.now + REPORT_EVERY);
                cx.out.push_back(Output::StartFlow {
                    flow: stream.flow,
                    channel,
                });
            }
        }
    }

    /// Does everything that is due.
    fn timers(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        if self.cut_at.is_some_and(|at| at <= now) {
            self.note(cx, "fault_cut", "connection cut during playback".to_owned());
            self.end(cx, failed("fault_cut", "closed on purpose"));
            return;
        }
        if self.heard + self.shared.config.session_timeout <= now {
            let text = format!("client silent for {:?}", self.shared.config.session_timeout);
            self.note(cx, "session_timed_out", text.clone());
            self.end(cx, failed("session_timed_out", &text));
            return;
        }
        let wall_clock = self.shared.config.wall_clock;
        for stream in self.streams() {
            if stream.report_at.is_some_and(|at| at <= now) {
                stream.report(cx, wall_clock, false);
                stream.report_at = Some(now + REPORT_EVERY);
            }
        }
        if self.garbage_at.is_some_and(|at| at <= now) {
            self.garbage_at = Some(now + GARBAGE_EVERY);
            let plays = self
                .streams()
                .iter()
                .any(|stream| stream.playing == Playing::Yes);
            if plays && self.chance(self.shared.config.faults.control.garbage) {
                self.garbage(cx, "between frames");
            }
        }
        if matches!(&self.gate, Gate::Slow { until, .. } if *until <= now)
            && let Gate::Slow { request, .. } = std::mem::replace(&mut self.gate, Gate::Open)
        {
            self.treat(cx, request);
            self.pump(cx);
        }
    }

    /// Ends the session: reports what was done, and closes all channels.
    pub(super) fn end(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        self.end_conversation(cx);
        self.drop_gate(cx);
        cx.out.push_back(Output::Close { channel: CONTROL });
        self.ended(cx, outcome);
    }

    fn ended(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        self.over = true;
        self.queue.clear();
        self.after.clear();
        cx.out.push_back(Output::Ended(outcome));
    }

    /// Ends all streams.
    pub(super) fn end_conversation(&mut self, cx: &mut Context<'_>) {
        self.end_part(cx);
        if let Some(conversation) = self.conversation.take() {
            for stream in conversation.streams {
                stream.finish(cx, &conversation.id);
            }
        }
        self.cut_at = None;
        self.garbage_at = None;
    }

    /// Abandons the event that the next answer waits for.
    fn drop_gate(&mut self, cx: &mut Context<'_>) {
        match std::mem::replace(&mut self.gate, Gate::Open) {
            Gate::Channel(setup) => setup.drop_it(cx),
            Gate::Part(setup) => setup.drop_it(cx),
            Gate::Open | Gate::Slow { .. } => {}
        }
    }

    fn closed(&mut self, cx: &mut Context<'_>, how: Closed) {
        let complete = self.all_ended() || !self.played;
        self.end_conversation(cx);
        self.drop_gate(cx);
        let outcome = match how {
            Closed::End if complete => Outcome::Completed,
            Closed::End => failed("closed_in_play", "the client closed the connection"),
            Closed::Reset if complete => Outcome::Completed,
            Closed::Reset => failed("reset_in_play", "the connection was reset"),
            Closed::Stuck => failed("stuck", "the client did not read from the connection"),
            Closed::Tls(error) => failed("tls", &error.to_string()),
        };
        self.ended(cx, outcome);
    }

    fn opened(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelId,
        result: Result<SocketAddr, ChannelError>,
    ) {
        match std::mem::replace(&mut self.gate, Gate::Open) {
            Gate::Part(setup) if setup.channel == channel => {
                self.finish_part_setup(cx, setup, result);
                self.pump(cx);
            }
            Gate::Channel(setup) if setup.channel == channel => {
                self.finish_setup(cx, setup, result);
                self.pump(cx);
            }
            other => self.gate = other,
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
        if self.over {
            return;
        }
        match input {
            Input::Start { .. } => self.heard = cx.now,
            Input::Opened {
                channel: CONTROL,
                local,
                remote,
            } => {
                self.heard = cx.now;
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
                    self.heard = cx.now;
                    self.datagram(cx, channel, port, bytes);
                }
            }
            Input::Closed {
                channel: CONTROL,
                how,
            } => self.closed(cx, how),
            Input::FlowEnded { flow } => self.flow_ended(cx, flow),
            Input::Deadline => self.timers(cx),
            Input::Stop { .. } => {
                let wall_clock = self.shared.config.wall_clock;
                for stream in self.streams() {
                    let others = stream.cast.as_ref().is_some_and(Part::others_play);
                    if stream.playing == Playing::Yes && !others {
                        stream.report(cx, wall_clock, true);
                    }
                }
                self.end(cx, Outcome::Stopped);
            }
            Input::Told { topic, message } => {
                if !self.told_of_part(cx, topic, message) {
                    self.told(cx, topic, message);
                }
            }
            Input::Closed { .. }
            | Input::Media { .. }
            | Input::Datagrams { .. }
            | Input::Exchanged { .. } => {}
        }
    }

    fn deadline(&self) -> Option<Time> {
        if self.over {
            return None;
        }
        let mut next = self.heard + self.shared.config.session_timeout;
        if let Gate::Slow { until, .. } = self.gate {
            next = next.min(until);
        }
        let reports = self
            .conversation
            .iter()
            .flat_map(|conversation| &conversation.streams)
            .filter_map(|stream| stream.report_at);
        reports
            .chain(self.cut_at)
            .chain(self.garbage_at)
            .fold(next, Time::min)
            .into()
    }
}
