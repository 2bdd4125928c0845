//! Reference server's session of one connection.

use std::sync::Arc;
use std::time::Duration;

use measure::Time;

use super::faults::{Answer, HandshakeFault};
use super::published::{Relayed, topic};
use super::relay::{RelayFlow, head};
use super::{ServedClient, Shared};
use crate::mix::mix;
use crate::published_streams::{Joined, Refusal};
use crate::rtmp::codec::amf0::Value;
use crate::rtmp::codec::chunk::FIRST_CHUNK_SIZE;
use crate::rtmp::codec::handshake::{Handshake, PACKET, Step};
use crate::rtmp::codec::link::{Heard, Link, WINDOW};
use crate::rtmp::codec::media::{Content, Tag};
use crate::rtmp::codec::message::{Command, Event, Kind};
use crate::rtmp::codec::write;
use crate::rtmp::flow::{FlowConfig, MediaFlow, What};
use crate::session::{ChannelId, Context, FlowId, Input, Outcome, Output, Port, Record, Session};

const CHANNEL: ChannelId = ChannelId(0);
/// Time limit until a client plays or publishes: longer than clients wait for answers.
const PATIENCE: Duration = Duration::from_secs(30);
/// Message stream ID, of which a connection has only one.
const STREAM: u32 = 1;
/// Messages on the topic of a stream.
const MORE: &str = "more";
const OVER: &str = "over";
/// Number of statuses per batch, and interval of batches, for endless statuses.
const STATUSES: usize = 100;
const STATUSES_EVERY: Duration = Duration::from_millis(5);
/// Nesting depth of values that are too deep.
const DEEP: usize = 1000;

/// State of a session.
#[derive(Debug)]
enum State {
    /// No stream is played or published yet. The session ends at `until`.
    Asking {
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
    Endless {
        next: Time,
    },
    /// Waits for the client to leave.
    Idle,
    Over,
}

/// Session of one connection with a client.
#[derive(Debug)]
pub(super) struct ServerSession {
    shared: Arc<Shared>,
    seed: u64,
    handshake: Option<Box<Handshake>>,
    link: Link,
    state: State,
    chunk_size: u32,
    /// True if messages arrived for the players of the published stream.
    has_more: bool,
    close_at: Option<Time>,
    account: ServedClient,
}

impl ServerSession {
    pub(super) fn new(shared: Arc<Shared>, number: u64) -> ServerSession {
        let seed = mix(&[shared.config.seed, number]);
        ServerSession {
            shared,
            seed,
            handshake: Some(Box::new(Handshake::server(seed))),
            link: Link::new(true),
            state: State::Idle,
            chunk_size: FIRST_CHUNK_SIZE,
            has_more: false,
            close_at: None,
            account: ServedClient {
                connection: number,
                ..ServedClient::default()
            },
        }
    }

    fn does(&self, answer: Answer) -> bool {
        self.shared.config.faults.answer == Some(answer)
    }

    /// Processes received bytes, of which the last arrived at `came`.
    fn bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8], came: Time) {
        let mut at = 0;
        while let Some(handshake) = &mut self.handshake {
            match handshake.take(bytes, &mut at) {
                Ok(Step::More) => return,
                Ok(Step::Send(answer)) => self.shake_hands(cx, answer),
                Ok(Step::Done) => self.handshake = None,
                Err(malformed) => return self.malformed(cx, malformed.to_string()),
            }
            if matches!(self.state, State::Over) {
                return;
            }
        }
        let shaken = at;
        let mut out = Vec::new();
        while !matches!(self.state, State::Over) {
            match self.link.next(bytes, &mut at, &mut out) {
                Ok(None) => break,
                Ok(Some(Heard::Media(media))) => {
                    let (video, timestamp) = (media.video, media.timestamp);
                    let tag = match video {
                        true => Tag::of_video(&media.body),
                        false => Tag::of_audio(&media.body),
                    };
                    let payload = media.body;
                    let (kind, place) = match video {
                        true => (Kind::Video, 1),
                        false => (Kind::Audio, 2),
                    };
                    let content = tag.map(|tag| tag.content);
                    let what = match content {
                        Some(Content::Frame { key }) => What::of_frame(video, key),
                        _ => What::Other,
                    };
                    let before = (content == Some(Content::Config)).then_some(place);
                    let message = Relayed {
                        kind,
                        what,
                        at: came,
                        timestamp,
                        payload: payload.into(),
                    };
                    self.take_in(message, before);
                }
                Ok(Some(Heard::Data(timestamp, payload))) => {
                    // The command that makes the server keep metadata is not relayed.
                    let mut kept = Vec::new();
                    Value::text("@setDataFrame").write(&mut kept);
                    let payload = payload.strip_prefix(&kept[..]).unwrap_or(&payload).to_vec();
                    let message = Relayed {
                        kind: Kind::Data,
                        what: What::Other,
                        at: came,
                        timestamp,
                        payload: payload.into(),
                    };
                    self.take_in(message, Some(0));
                }
                Ok(Some(Heard::Command(_, command))) => self.command(cx, &command, &mut out),
                Ok(Some(Heard::Event(_) | Heard::Unreadable | Heard::Other)) => {}
                Err(malformed) => self.malformed(cx, malformed.to_string()),
            }
        }
        self.link.came(bytes.len() - shaken, &mut out);
        if !out.is_empty() {
            send(cx, out);
        }
        if let State::Publishing { index, .. } = self.state
            && std::mem::take(&mut self.has_more)
        {
            cx.out.push_back(Output::Tell {
                topic: topic(index),
                message: MORE.into(),
            });
        }
    }

    fn shake_hands(&mut self, cx: &mut Context<'_>, mut answer: Vec<u8>) {
        match self.shared.config.faults.handshake {
            None => {}
            Some(HandshakeFault::Silent) => return,
            Some(HandshakeFault::Cut) => {
                answer.truncate(PACKET);
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
                if let Some(byte) = answer.get_mut(PACKET) {
                    *byte = !*byte;
                }
            }
            Some(HandshakeFault::Repeat) => answer.extend_from_within(..),
        }
        send(cx, answer);
    }

    /// Adds a publisher's message to its stream.
    fn take_in(&mut self, message: Relayed, before: Option<usize>) {
        let State::Publishing { name, .. } = &self.state else {
            return;
        };
        if message.what != What::Other {
            self.account.received_frames += 1;
            self.account.received_bytes += message.payload.len() as u64;
        }
        self.has_more |= self.shared.published.push(name, message, before);
    }

    fn command(&mut self, cx: &mut Context<'_>, command: &Command, out: &mut Vec<u8>) {
        if self.does(Answer::Silent) {
            return;
        }
        match command.name.as_str() {
            "connect" => self.connect(command, out),
            "createStream" => self.result(command, Value::Number(STREAM.into()), out),
            "releaseStream" | "FCPublish" | "FCUnpublish" | "FCSubscribe" => {
                self.result(command, Value::Undefined, out);
            }
            // Generated streams are reported as endless.
            "getStreamLength" => self.result(command, Value::Number(0.0), out),
            "play" => self.play(cx, command, out),
            "publish" => self.publish(cx, command, out),
            "deleteStream" | "closeStream" => self.leave_stream(cx),
            _ => {}
        }
    }

    fn result(&self, command: &Command, value: Value, out: &mut Vec<u8>) {
        let answer = Command {
            name: "_result".to_owned(),
            transaction: command.transaction,
            arguments: vec![Value::Null, value],
        };
        write::command(&answer, 0, self.chunk_size, out);
    }

    fn connect(&mut self, command: &Command, out: &mut Vec<u8>) {
        let object = command.arguments.first();
        let app = object.and_then(|object| object.get("app")?.as_str());
        self.account.app = app.map(str::to_owned);
        let refusal = match self.shared.config.faults.answer {
            Some(Answer::InvalidApp) => Some("NetConnection.Connect.InvalidApp"),
            Some(Answer::Rejected) => Some("NetConnection.Connect.Rejected"),
            Some(Answer::ChunkSizeZero) => return write::set_chunk_size(0, out),
            Some(Answer::ChunkSizeHuge) => return write::set_chunk_size(1 << 31, out),
            _ => None,
        };
        if let Some(code) = refusal {
            let answer = Command {
                name: "_error".to_owned(),
                transaction: command.transaction,
                arguments: vec![Value::Null, information("error", code)],
            };
            return write::command(&answer, 0, self.chunk_size, out);
        }
        self.link.set_window(WINDOW, out);
        write::peer_bandwidth(WINDOW, out);
        write::set_chunk_size(self.shared.config.chunk_size, out);
        self.chunk_size = self.shared.config.chunk_size;
        let deep = || {
            let nested = |inner, _| Value::Object(vec![("a".to_owned(), inner)]);
            (0..DEEP).fold(Value::Null, nested)
        };
        let properties = match self.does(Answer::DeepAmf) {
            true => deep(),
            false => Value::Object(vec![
                ("fmsVer".to_owned(), Value::text("FMS/3,0,1,123")),
                ("capabilities".to_owned(), Value::Number(31.0)),
            ]),
        };
        let Value::Object(mut about) = information("status", "NetConnection.Connect.Success")
        else {
            return;
        };
        about.push(("objectEncoding".to_owned(), Value::Number(0.0)));
        let answer = Command {
            name: "_result".to_owned(),
            transaction: command.transaction,
            arguments: vec![properties, Value::Object(about)],
        };
        write::command(&answer, 0, self.chunk_size, out);
    }

    fn status(&self, level: &str, code: &str, out: &mut Vec<u8>) {
        let status = Command {
            name: "onStatus".to_owned(),
            transaction: 0.0,
            arguments: vec![Value::Null, information(level, code)],
        };
        write::command(&status, STREAM, self.chunk_size, out);
    }

    /// Returns the stream that a command refers to: application and name, without the query.
    fn name_of(&mut self, command: &Command) -> String {
        let stream = command.arguments.get(1).and_then(Value::as_str);
        let stream = stream.unwrap_or_default();
        self.account.stream = Some(stream.to_owned());
        let stream = stream.split('?').next().unwrap_or_default();
        format!(
            "{}/{stream}",
            self.account.app.as_deref().unwrap_or_default()
        )
    }

    fn play(&mut self, cx: &mut Context<'_>, command: &Command, out: &mut Vec<u8>) {
        self.leave_stream(cx);
        let name = self.name_of(command);
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
            Some(Answer::Close) => return self.end(cx, Outcome::Completed),
            Some(Answer::NotFound) => {
                return self.status("error", "NetStream.Play.StreamNotFound", out);
            }
            _ if !exists => {
                return self.status("error", "NetStream.Play.StreamNotFound", out);
            }
            _ => {}
        }
        write::event(Event::StreamBegin(STREAM), out);
        if self.shared.config.length.is_some() && !self.shared.published.is_published(&name) {
            write::event(Event::StreamIsRecorded(STREAM), out);
        }
        self.status("status", "NetStream.Play.Start", out);
        let faults = self.shared.config.faults;
        self.close_at = faults.close_after.map(|after| cx.now + after);
        match faults.answer {
            Some(Answer::EndlessStatus) => {
                self.state = State::Endless { next: cx.now };
                return;
            }
            Some(Answer::NoMedia) => {
                self.state = State::Idle;
                return;
            }
            _ => {}
        }
        // The flow's first message may leave before the answers to this read, so these are sent
        // first.
        match self.shared.published.join(&name) {
            Some(Joined {
                before,
                next,
                index,
                serial,
            }) => {
                for message in &before {
                    head(message, STREAM).write(&[&message.payload], self.chunk_size, out);
                }
                send(cx, std::mem::take(out));
                let published = self.shared.published.clone();
                let way = (STREAM, self.chunk_size);
                let (faults, seed) = (&faults.flow, self.seed);
                let flow = RelayFlow::new(published, name.clone(), next, way, faults, seed);
                let flow = cx.flows.insert(flow);
                self.start(cx, flow);
                cx.out.push_back(Output::Listen {
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
                self.start(cx, flow);
                self.state = State::Playing { flow };
            }
        }
    }

    fn start(&mut self, cx: &mut Context<'_>, flow: FlowId) {
        cx.out.push_back(Output::StartFlow {
            flow,
            channel: CHANNEL,
        });
        cx.out.push_back(Output::Playing { at: cx.now });
    }

    fn publish(&mut self, cx: &mut Context<'_>, command: &Command, out: &mut Vec<u8>) {
        self.leave_stream(cx);
        let name = self.name_of(command);
        self.account.published = true;
        let faults = self.shared.config.faults;
        if faults.answer == Some(Answer::Close) {
            return self.end(cx, Outcome::Completed);
        }
        let taken = match faults.answer {
            Some(Answer::BadName) => Err(Refusal::Taken),
            _ => self.shared.published.begin(&name),
        };
        let index = match taken {
            Ok(index) => index,
            Err(Refusal::Taken) => {
                return self.status("error", "NetStream.Publish.BadName", out);
            }
            Err(Refusal::Full) => {
                return self.status("error", "NetStream.Publish.Denied", out);
            }
        };
        write::event(Event::StreamBegin(STREAM), out);
        self.status("status", "NetStream.Publish.Start", out);
        self.close_at = faults.close_after.map(|after| cx.now + after);
        self.state = State::Publishing { name, index };
        cx.out.push_back(Output::Playing { at: cx.now });
    }

    /// Stops playing and publishing.
    fn leave_stream(&mut self, cx: &mut Context<'_>) {
        let idle = State::Asking {
            until: cx.now + PATIENCE,
        };
        match std::mem::replace(&mut self.state, idle) {
            State::Playing { flow } => {
                cx.out.push_back(Output::StopFlow { flow });
                self.account.sent = cx.flows.take::<MediaFlow>(flow).sent();
            }
            State::Relaying { flow, name, serial } => {
                self.shared.published.leave(&name, serial);
                cx.out.push_back(Output::StopFlow { flow });
                self.account.sent = cx.flows.take::<RelayFlow>(flow).sent();
            }
            State::Publishing { name, index } => {
                self.shared.published.end(&name);
                cx.out.push_back(Output::Tell {
                    topic: topic(index),
                    message: OVER.into(),
                });
            }
            State::Over => self.state = State::Over,
            State::Asking { .. } | State::Endless { .. } | State::Idle => {}
        }
    }

    /// Handles the end of the media that is played.
    fn played(&mut self, cx: &mut Context<'_>) {
        if !matches!(self.state, State::Playing { .. }) {
            return;
        }
        self.leave_stream(cx);
        let mut out = Vec::new();
        write::event(Event::StreamEof(STREAM), &mut out);
        self.status("status", "NetStream.Play.Stop", &mut out);
        send(cx, out);
    }

    /// Handles a message about a relayed stream: it has more messages, or has ended.
    fn told(&mut self, cx: &mut Context<'_>, message: &str) {
        let State::Relaying { flow, .. } = self.state else {
            return;
        };
        if message == MORE {
            let now = cx.now;
            cx.flows.with(flow, |flow: &mut RelayFlow| flow.wake(now));
            return;
        }
        self.leave_stream(cx);
        let mut out = Vec::new();
        write::event(Event::StreamEof(STREAM), &mut out);
        self.status("status", "NetStream.Play.UnpublishNotify", &mut out);
        send(cx, out);
    }

    fn malformed(&mut self, cx: &mut Context<'_>, why: String) {
        self.account.malformed = Some(why);
        self.end(cx, Outcome::Completed);
    }

    fn end(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        if matches!(self.state, State::Over) {
            return;
        }
        self.leave_stream(cx);
        self.state = State::Over;
        cx.out.push_back(Output::Close { channel: CHANNEL });
        cx.out
            .push_back(Output::Record(Record::new(self.account.clone())));
        cx.out.push_back(Output::Ended(outcome));
    }

    /// Handles due timers.
    fn look(&mut self, cx: &mut Context<'_>) {
        if self.close_at.is_some_and(|at| at <= cx.now) {
            return self.end(cx, Outcome::Completed);
        }
        match &mut self.state {
            State::Asking { until } if *until <= cx.now => self.end(cx, Outcome::Completed),
            State::Endless { next } if *next <= cx.now => {
                *next = cx.now + STATUSES_EVERY;
                let mut out = Vec::new();
                for _ in 0..STATUSES {
                    self.status("status", "NetStream.Play.Reset", &mut out);
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
    Value::Object(vec![
        ("level".to_owned(), Value::text(level)),
        ("code".to_owned(), Value::text(code)),
        ("description".to_owned(), Value::text("streamgauge")),
    ])
}

impl Session for ServerSession {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        if matches!(self.state, State::Over) {
            return;
        }
        match input {
            Input::Opened { remote, .. } => {
                self.account.remote = remote.map(|remote| remote.to_string());
                self.state = State::Asking {
                    until: cx.now + PATIENCE,
                };
            }
            Input::Bytes { bytes, at, .. } => self.bytes(cx, bytes, at),
            Input::Told { message, .. } => self.told(cx, message),
            Input::FlowEnded { .. } => self.played(cx),
            Input::Closed { .. } => self.end(cx, Outcome::Completed),
            Input::Stop { .. } => self.end(cx, Outcome::Stopped),
            _ => {}
        }
        self.look(cx);
    }

    fn deadline(&self) -> Option<Time> {
        let own = match self.state {
            State::Asking { until } => Some(until),
            State::Endless { next } => Some(next),
            _ => None,
        };
        own.into_iter().chain(self.close_at).min()
    }
}
