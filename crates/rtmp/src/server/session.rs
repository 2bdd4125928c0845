//! Reference server's session of one connection.

use std::sync::Arc;
use std::time::Duration;

use measure::Time;

use super::faults::{AnswerFault, HandshakeFault};
use super::relay::{RelayFlow, message_header};
use super::relayed::{RelayedMessage, topic};
use super::{ServedClient, Shared};
use crate::codec::amf0::Value;
use crate::codec::chunk::INITIAL_CHUNK_SIZE;
use crate::codec::connection::{Connection, DEFAULT_ACK_WINDOW, Received};
use crate::codec::handshake::{Handshake, HandshakeStep, PACKET_BYTES};
use crate::codec::media::{MediaHeader, PacketContent};
use crate::codec::message::{Command, MessageType, UserControlEvent};
use crate::codec::write;
use crate::flow::{FlowConfig, MediaFlow, MessageCategory};
use kit::published_streams::{JoinedPlayer, Refusal};
use session::seeds::derive_seed;
use session::{ChannelId, Context, FlowId, Input, Outcome, Output, Port, Record, Session};

const CHANNEL: ChannelId = ChannelId(0);
/// Time limit until a client plays or publishes: longer than clients wait for answers.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// Message stream ID, of which a connection has only one.
const STREAM: u32 = 1;
/// Messages on the topic of a stream.
const MORE_MESSAGE: &str = "more";
const ENDED_MESSAGE: &str = "over";
/// Number of statuses per batch, and interval of batches, for endless statuses.
const STATUSES_PER_BATCH: usize = 100;
const STATUS_BATCH_INTERVAL: Duration = Duration::from_millis(5);
/// Nesting depth of values that are too deep.
const EXCESSIVE_DEPTH: usize = 1000;

/// State of a session.
#[derive(Debug)]
enum State {
    /// No stream is played or published yet. The session ends at `until`.
    AwaitingRequest {
        until: Time,
    },
    /// Plays generated media.
    Playing {
        flow: FlowId,
    },
    /// Plays a stream that another client publishes.
    Relaying {
        flow: FlowId,
        name: String,
        serial: u64,
    },
    /// The client publishes.
    Publishing {
        name: String,
        index: usize,
    },
    /// Sends endless statuses.
    EndlessStatus {
        next: Time,
    },
    /// Waits for the client to leave.
    Idle,
    Ended,
}

/// Session of one connection with a client.
#[derive(Debug)]
pub(super) struct ServerSession {
    shared: Arc<Shared>,
    seed: u64,
    handshake: Option<Box<Handshake>>,
    connection: Connection,
    state: State,
    chunk_size: u32,
    /// True if messages arrived for the players of the published stream.
    has_new_messages: bool,
    close_at: Option<Time>,
    served: ServedClient,
}

impl ServerSession {
    pub(super) fn new(shared: Arc<Shared>, number: u64) -> ServerSession {
        let seed = derive_seed(&[shared.config.seed, number]);
        ServerSession {
            shared,
            seed,
            handshake: Some(Box::new(Handshake::server(seed))),
            connection: Connection::new(true),
            state: State::Idle,
            chunk_size: INITIAL_CHUNK_SIZE,
            has_new_messages: false,
            close_at: None,
            served: ServedClient {
                connection: number,
                ..ServedClient::default()
            },
        }
    }

    fn has_answer_fault(&self, answer: AnswerFault) -> bool {
        self.shared.config.faults.answer == Some(answer)
    }

    /// Processes received bytes, of which the last arrived at `arrived_at`.
    fn handle_bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8], arrived_at: Time) {
        let mut at = 0;
        while let Some(handshake) = &mut self.handshake {
            match handshake.receive(bytes, &mut at) {
                Ok(HandshakeStep::NeedMore) => return,
                Ok(HandshakeStep::Send(answer)) => self.send_handshake(cx, answer),
                Ok(HandshakeStep::Done) => self.handshake = None,
                Err(malformed) => return self.end_malformed(cx, malformed.to_string()),
            }
            if matches!(self.state, State::Ended) {
                return;
            }
        }
        let handshake_bytes = at;
        let mut out = Vec::new();
        while !matches!(self.state, State::Ended) {
            match self.connection.next(bytes, &mut at, &mut out) {
                Ok(None) => break,
                Ok(Some(Received::Media(media))) => {
                    let (video, timestamp) = (media.video, media.timestamp);
                    let tag = MediaHeader::parse(video, &media.body);
                    let (kind, position) = match video {
                        true => (MessageType::Video, 1),
                        false => (MessageType::Audio, 2),
                    };
                    let content = tag.map(|tag| tag.content);
                    let category = match content {
                        Some(PacketContent::Frame { key }) => MessageCategory::of_frame(video, key),
                        _ => MessageCategory::Other,
                    };
                    let before = (content == Some(PacketContent::Config)).then_some(position);
                    let message = RelayedMessage {
                        kind,
                        category,
                        received_at: arrived_at,
                        timestamp,
                        payload: media.body.into(),
                    };
                    self.publish_message(message, before);
                }
                Ok(Some(Received::Data(timestamp, payload))) => {
                    // The command that makes the server keep metadata is not relayed.
                    let mut kept = Vec::new();
                    Value::string("@setDataFrame").write(&mut kept);
                    let payload = payload.strip_prefix(&kept[..]).unwrap_or(&payload).to_vec();
                    let message = RelayedMessage {
                        kind: MessageType::Data,
                        category: MessageCategory::Other,
                        received_at: arrived_at,
                        timestamp,
                        payload: payload.into(),
                    };
                    self.publish_message(message, Some(0));
                }
                Ok(Some(Received::Command(_, command))) => {
                    self.handle_command(cx, &command, &mut out)
                }
                Ok(Some(Received::Event(_) | Received::Unreadable | Received::Other)) => {}
                Err(malformed) => self.end_malformed(cx, malformed.to_string()),
            }
        }
        self.connection
            .count_received(bytes.len() - handshake_bytes, &mut out);
        if !out.is_empty() {
            send(cx, out);
        }
        if let State::Publishing { index, .. } = self.state
            && std::mem::take(&mut self.has_new_messages)
        {
            cx.out.push_back(Output::Publish {
                topic: topic(index),
                message: MORE_MESSAGE.into(),
            });
        }
    }

    fn send_handshake(&mut self, cx: &mut Context<'_>, mut answer: Vec<u8>) {
        match self.shared.config.faults.handshake {
            None => {}
            Some(HandshakeFault::Silent) => return,
            Some(HandshakeFault::Cut) => {
                answer.truncate(PACKET_BYTES);
                send(cx, answer);
                return self.end(cx, Outcome::Completed);
            }
            Some(HandshakeFault::Version) => {
                if let Some(version) = answer.first_mut() {
                    *version = 6;
                }
            }
            Some(HandshakeFault::Echo) => {
                if let Some(last) = answer.last_mut() {
                    *last = !*last;
                }
            }
            Some(HandshakeFault::Digest) => {
                // The last byte of S1: the digest covers it, but never includes it.
                if let Some(byte) = answer.get_mut(PACKET_BYTES) {
                    *byte = !*byte;
                }
            }
            Some(HandshakeFault::Repeat) => answer.extend_from_within(..),
        }
        send(cx, answer);
    }

    /// Adds a publisher's message to its stream.
    fn publish_message(&mut self, message: RelayedMessage, before: Option<usize>) {
        let State::Publishing { name, .. } = &self.state else {
            return;
        };
        if message.category != MessageCategory::Other {
            self.served.received_frames += 1;
            self.served.received_bytes += message.payload.len() as u64;
        }
        self.has_new_messages |= self.shared.published.push(name, message, before);
    }

    fn handle_command(&mut self, cx: &mut Context<'_>, command: &Command, out: &mut Vec<u8>) {
        if self.has_answer_fault(AnswerFault::Silent) {
            return;
        }
        match command.name.as_str() {
            "connect" => self.handle_connect(command, out),
            "createStream" => self.write_result(command, Value::Number(STREAM.into()), out),
            "releaseStream" | "FCPublish" | "FCUnpublish" | "FCSubscribe" => {
                self.write_result(command, Value::Undefined, out);
            }
            // Generated streams are reported as endless.
            "getStreamLength" => self.write_result(command, Value::Number(0.0), out),
            "play" => self.handle_play(cx, command, out),
            "publish" => self.handle_publish(cx, command, out),
            "deleteStream" | "closeStream" => self.leave_stream(cx),
            _ => {}
        }
    }

    fn write_result(&self, command: &Command, value: Value, out: &mut Vec<u8>) {
        self.write_answer("_result", command, vec![Value::Null, value], out);
    }

    fn write_answer(&self, name: &str, to: &Command, arguments: Vec<Value>, out: &mut Vec<u8>) {
        let answer = Command::new(name, to.transaction, arguments);
        write::command(&answer, 0, self.chunk_size, out);
    }

    fn handle_connect(&mut self, command: &Command, out: &mut Vec<u8>) {
        let object = command.arguments.first();
        let app = object.and_then(|object| object.get("app")?.as_str());
        self.served.app = app.map(str::to_owned);
        let refusal = match self.shared.config.faults.answer {
            Some(AnswerFault::InvalidApp) => Some("NetConnection.Connect.InvalidApp"),
            Some(AnswerFault::Rejected) => Some("NetConnection.Connect.Rejected"),
            Some(AnswerFault::ChunkSizeZero) => return write::set_chunk_size(0, out),
            Some(AnswerFault::ChunkSizeHuge) => return write::set_chunk_size(1 << 31, out),
            _ => None,
        };
        if let Some(code) = refusal {
            let arguments = vec![Value::Null, information("error", code)];
            return self.write_answer("_error", command, arguments, out);
        }
        self.connection.set_window(DEFAULT_ACK_WINDOW, out);
        write::peer_bandwidth(DEFAULT_ACK_WINDOW, out);
        write::set_chunk_size(self.shared.config.chunk_size, out);
        self.chunk_size = self.shared.config.chunk_size;
        let nested = |inner, _| Value::object([("a", inner)]);
        let properties = match self.has_answer_fault(AnswerFault::DeepAmf) {
            true => (0..EXCESSIVE_DEPTH).fold(Value::Null, nested),
            false => Value::object([
                ("fmsVer", Value::string("FMS/3,0,1,123")),
                ("capabilities", Value::Number(31.0)),
            ]),
        };
        let Value::Object(mut about) = information("status", "NetConnection.Connect.Success")
        else {
            return;
        };
        about.push(("objectEncoding".to_owned(), Value::Number(0.0)));
        self.write_answer(
            "_result",
            command,
            vec![properties, Value::Object(about)],
            out,
        );
    }

    fn write_status(&self, level: &str, code: &str, out: &mut Vec<u8>) {
        let arguments = vec![Value::Null, information(level, code)];
        let status = Command::new("onStatus", 0.0, arguments);
        write::command(&status, STREAM, self.chunk_size, out);
    }

    /// Returns the stream that a command refers to: application and name, without the query.
    fn stream_name(&mut self, command: &Command) -> String {
        let stream = command.arguments.get(1).and_then(Value::as_str);
        let stream = stream.unwrap_or_default();
        self.served.stream = Some(stream.to_owned());
        let stream = stream.split('?').next().unwrap_or_default();
        format!(
            "{}/{stream}",
            self.served.app.as_deref().unwrap_or_default()
        )
    }

    fn handle_play(&mut self, cx: &mut Context<'_>, command: &Command, out: &mut Vec<u8>) {
        self.leave_stream(cx);
        let name = self.stream_name(command);
        let (_, stream) = name.rsplit_once('/').unwrap_or_default();
        let number = stream.strip_prefix("stream");
        let number = number.and_then(|number| number.parse::<u32>().ok());
        let exists = match (self.shared.config.streams, number) {
            _ if self.shared.published.is_published(&name) => true,
            (None, _) => true,
            (Some(most), Some(number)) => (1..=most).contains(&number),
            (Some(_), None) => false,
        };
        match self.shared.config.faults.answer {
            Some(AnswerFault::Close) => return self.end(cx, Outcome::Completed),
            Some(AnswerFault::NotFound) => {
                return self.write_status("error", "NetStream.Play.StreamNotFound", out);
            }
            _ if !exists => {
                return self.write_status("error", "NetStream.Play.StreamNotFound", out);
            }
            _ => {}
        }
        write::event(UserControlEvent::StreamBegin(STREAM), out);
        if self.shared.config.length.is_some() && !self.shared.published.is_published(&name) {
            write::event(UserControlEvent::StreamIsRecorded(STREAM), out);
        }
        self.write_status("status", "NetStream.Play.Start", out);
        let faults = self.shared.config.faults;
        self.close_at = faults.close_after.map(|after| cx.now + after);
        match faults.answer {
            Some(AnswerFault::EndlessStatus) => {
                self.state = State::EndlessStatus { next: cx.now };
                return;
            }
            Some(AnswerFault::NoMedia) => {
                self.state = State::Idle;
                return;
            }
            _ => {}
        }
        // The flow's first message may leave before the answers to this read, so these are sent
        // first.
        match self.shared.published.join(&name) {
            Some(JoinedPlayer {
                init_items: before,
                next,
                index,
                serial,
            }) => {
                for message in &before {
                    message_header(message, STREAM).write(
                        &[&message.payload],
                        self.chunk_size,
                        out,
                    );
                }
                send(cx, std::mem::take(out));
                let published = self.shared.published.clone();
                let (faults, seed) = (&faults.flow, self.seed);
                let flow = RelayFlow::new(
                    published,
                    name.clone(),
                    next,
                    STREAM,
                    self.chunk_size,
                    faults,
                    seed,
                );
                let flow = cx.flows.insert(flow);
                self.start_flow(cx, flow);
                cx.out.push_back(Output::Subscribe {
                    topic: topic(index),
                });
                self.state = State::Relaying { flow, name, serial };
            }
            None => {
                let tracks = &self.shared.tracks;
                tracks.write_preamble(STREAM, 0, false, self.chunk_size, out);
                send(cx, std::mem::take(out));
                let mut flow = MediaFlow::new(FlowConfig {
                    tracks: tracks.clone(),
                    stream: STREAM,
                    chunk_size: self.chunk_size,
                    wall_clock: self.shared.config.wall_clock,
                    source: self.seed as u32,
                    drop_after: None,
                    length: self.shared.config.length,
                    faults: faults.flow,
                    seed: self.seed,
                });
                flow.start(cx.now);
                let flow = cx.flows.insert(flow);
                self.start_flow(cx, flow);
                self.state = State::Playing { flow };
            }
        }
    }

    fn start_flow(&mut self, cx: &mut Context<'_>, flow: FlowId) {
        cx.out.push_back(Output::StartFlow {
            flow,
            channel: CHANNEL,
        });
        cx.out.push_back(Output::Playing { at: cx.now });
    }

    fn handle_publish(&mut self, cx: &mut Context<'_>, command: &Command, out: &mut Vec<u8>) {
        self.leave_stream(cx);
        let name = self.stream_name(command);
        self.served.published = true;
        let faults = self.shared.config.faults;
        if faults.answer == Some(AnswerFault::Close) {
            return self.end(cx, Outcome::Completed);
        }
        let taken = match faults.answer {
            Some(AnswerFault::BadName) => Err(Refusal::Taken),
            _ => self.shared.published.begin(&name),
        };
        let index = match taken {
            Ok(index) => index,
            Err(Refusal::Taken) => {
                return self.write_status("error", "NetStream.Publish.BadName", out);
            }
            Err(Refusal::Full) => {
                return self.write_status("error", "NetStream.Publish.Denied", out);
            }
        };
        write::event(UserControlEvent::StreamBegin(STREAM), out);
        self.write_status("status", "NetStream.Publish.Start", out);
        self.close_at = faults.close_after.map(|after| cx.now + after);
        self.state = State::Publishing { name, index };
        cx.out.push_back(Output::Playing { at: cx.now });
    }

    /// Stops playing and publishing.
    fn leave_stream(&mut self, cx: &mut Context<'_>) {
        let idle = State::AwaitingRequest {
            until: cx.now + COMMAND_TIMEOUT,
        };
        match std::mem::replace(&mut self.state, idle) {
            State::Playing { flow } => {
                cx.out.push_back(Output::StopFlow { flow });
                self.served.sent = cx.flows.remove_as::<MediaFlow>(flow).sent();
            }
            State::Relaying { flow, name, serial } => {
                self.shared.published.leave(&name, serial);
                cx.out.push_back(Output::StopFlow { flow });
                self.served.sent = cx.flows.remove_as::<RelayFlow>(flow).sent();
            }
            State::Publishing { name, index } => {
                self.shared.published.end(&name);
                cx.out.push_back(Output::Publish {
                    topic: topic(index),
                    message: ENDED_MESSAGE.into(),
                });
            }
            State::Ended => self.state = State::Ended,
            State::AwaitingRequest { .. } | State::EndlessStatus { .. } | State::Idle => {}
        }
    }

    /// Handles the end of the media that is played.
    fn handle_media_ended(&mut self, cx: &mut Context<'_>) {
        if !matches!(self.state, State::Playing { .. }) {
            return;
        }
        self.leave_stream(cx);
        let mut out = Vec::new();
        write::event(UserControlEvent::StreamEof(STREAM), &mut out);
        self.write_status("status", "NetStream.Play.Stop", &mut out);
        send(cx, out);
    }

    /// Handles a message about a relayed stream: it has more messages, or has ended.
    fn handle_topic_message(&mut self, cx: &mut Context<'_>, message: &str) {
        let State::Relaying { flow, .. } = self.state else {
            return;
        };
        if message == MORE_MESSAGE {
            let now = cx.now;
            cx.flows
                .access_as(flow, |flow: &mut RelayFlow| flow.wake(now));
            return;
        }
        self.leave_stream(cx);
        let mut out = Vec::new();
        write::event(UserControlEvent::StreamEof(STREAM), &mut out);
        self.write_status("status", "NetStream.Play.UnpublishNotify", &mut out);
        send(cx, out);
    }

    fn end_malformed(&mut self, cx: &mut Context<'_>, why: String) {
        self.served.malformed = Some(why);
        self.end(cx, Outcome::Completed);
    }

    fn end(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        if matches!(self.state, State::Ended) {
            return;
        }
        self.leave_stream(cx);
        self.state = State::Ended;
        cx.out.push_back(Output::Close { channel: CHANNEL });
        cx.out
            .push_back(Output::Record(Record::new(self.served.clone())));
        cx.out.push_back(Output::Ended(outcome));
    }

    /// Handles due timers.
    fn handle_timers(&mut self, cx: &mut Context<'_>) {
        if self.close_at.is_some_and(|at| at <= cx.now) {
            return self.end(cx, Outcome::Completed);
        }
        match &mut self.state {
            State::AwaitingRequest { until } if *until <= cx.now => {
                self.end(cx, Outcome::Completed)
            }
            State::EndlessStatus { next } if *next <= cx.now => {
                *next = cx.now + STATUS_BATCH_INTERVAL;
                let mut out = Vec::new();
                for _ in 0..STATUSES_PER_BATCH {
                    self.write_status("status", "NetStream.Play.Reset", &mut out);
                }
                send(cx, out);
            }
            _ => {}
        }
    }
}

fn send(cx: &mut Context<'_>, bytes: Vec<u8>) {
    cx.out.push_back(Output::Send {
        channel: CHANNEL,
        port: Port::Media,
        bytes,
    });
}

/// Information object of a status or response (RTMP, 7.2.2).
fn information(level: &str, code: &str) -> Value {
    Value::object([
        ("level", Value::string(level)),
        ("code", Value::string(code)),
        ("description", Value::string("streamgauge")),
    ])
}

impl Session for ServerSession {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        if matches!(self.state, State::Ended) {
            return;
        }
        match input {
            Input::Opened { remote, .. } => {
                self.served.remote = remote.map(|remote| remote.to_string());
                self.state = State::AwaitingRequest {
                    until: cx.now + COMMAND_TIMEOUT,
                };
            }
            Input::Bytes { bytes, at, .. } => self.handle_bytes(cx, bytes, at),
            Input::TopicMessage { message, .. } => self.handle_topic_message(cx, message),
            Input::FlowEnded { .. } => self.handle_media_ended(cx),
            Input::Closed { .. } => self.end(cx, Outcome::Completed),
            Input::Stop { .. } => self.end(cx, Outcome::Stopped),
            _ => {}
        }
        self.handle_timers(cx);
    }

    fn deadline(&self) -> Option<Time> {
        let own = match self.state {
            State::AwaitingRequest { until } => Some(until),
            State::EndlessStatus { next } => Some(next),
            _ => None,
        };
        own.into_iter().chain(self.close_at).min()
    }
}
