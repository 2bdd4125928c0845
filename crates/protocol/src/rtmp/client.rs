//! RTMP client: connects, performs the handshake, requests its application and stream, and plays or
//! publishes until it is stopped or the stream ends.

use std::net::SocketAddr;
use std::time::Duration;

use measure::Time;

use super::codec::amf0::Value;
use super::codec::handshake::{Handshake, Step};
use super::codec::link::{Heard, Link, metadata};
use super::codec::message::{Command, Event};
use super::codec::{Malformed, chunk, write};
use super::config::ClientConfig;
use super::failure::Failure;
use super::metrics as m;
use super::url::Url;
use crate::connect_failure::ConnectFailure;
use crate::media::silence;
use crate::metrics as clients;
use crate::publication::Publisher;
use crate::session::{
    Acks, ChannelId, Closed, Context, Input, Note, Open, Outcome, Output, Port, Session, Sinks,
    StreamRow, Times,
};
use crate::url::UrlError;

mod answers;
mod end;
mod playing;
mod publish;
#[cfg(test)]
mod tests;

pub(super) use playing::COLUMNS;
pub use playing::StreamSummary;
use playing::{Dues, Playing};
use publish::Publishing;

const CHANNEL: ChannelId = ChannelId(0);
/// Message stream of connection commands (RTMP, 7.2.1).
const CONNECTION: u32 = 0;

/// Number of messages in a row without media after which the client assumes an endless flood.
const MESSAGES_WITHOUT_MEDIA_MAX: u32 = 1000;

/// Version string of the client, which most servers know: that of ffmpeg when playing.
const FLASH_VERSION: &str = "LNX 9,0,124,2";

/// Progress of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// The connection is being opened.
    Connecting,
    /// The handshake is in progress.
    Handshake,
    /// Waits for the answer to `connect`.
    Connect,
    /// Waits for the answer to `createStream`.
    CreateStream,
    /// Waits for the answer to `publish`.
    Publish,
    /// Sends media.
    Publishing,
    /// Waits for the answer to `play`.
    Play,
    /// Receives media, or waits for it.
    Playing,
    Ended,
}

impl Phase {
    /// Returns the command whose answer is awaited.
    fn command(self) -> Option<&'static str> {
        match self {
            Phase::Connect => Some("connect"),
            Phase::CreateStream => Some("createStream"),
            Phase::Play => Some("play"),
            Phase::Publish => Some("publish"),
            _ => None,
        }
    }
}

/// RTMP client of one URL.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    url: Url,
    seed: u64,
    phase: Phase,
    open: bool,
    /// Local and remote address of the connection.
    ends: Option<(SocketAddr, Option<SocketAddr>)>,
    /// Present during the handshake.
    handshake: Option<Box<Handshake>>,
    link: Link,
    /// Transaction ID of the last command, and message stream ID assigned by the server.
    transaction: u32,
    stream: u32,
    /// Another message stream in which media arrived.
    other_stream: Option<u32>,
    /// Number of messages since the last media message.
    without_media: u32,
    /// Number of commands that could not be parsed.
    unreadable: u32,
    /// Planned time of the first request, and actual start of the client.
    due: Time,
    started: Time,
    /// Time of the request whose answer is awaited.
    asked: Time,
    /// Time of the answer to `play`.
    answered: Option<Time>,
    /// Present from `play` on.
    playing: Option<Box<Playing>>,
    /// Present in a publishing client.
    publishing: Option<Box<Publishing>>,
    /// Chunk size of this client.
    chunk_size: u32,
    /// Time of the next timeout check.
    check: Option<Time>,
    /// True if the server reports that the stream is a file.
    is_recorded: bool,
    /// Present while the live stream is not published but may come back.
    unpublished: Option<end::Unpublished>,
    /// Wall-clock time since 1970 at [`Time::ZERO`]; `None` if frames carry no time codes.
    wall_clock: Option<Duration>,
    publisher: Publisher,
}

impl Client {
    /// Creates a client that plays `url`. Its random choices derive from `seed`.
    ///
    /// # Errors
    /// The URL is invalid.
    pub fn new(config: ClientConfig, url: &str, seed: u64) -> Result<Client, UrlError> {
        Ok(Client {
            url: Url::parse(url, config.app.as_deref())?,
            config,
            seed,
            phase: Phase::Idle,
            open: false,
            ends: None,
            handshake: None,
            link: Link::new(false),
            transaction: 0,
            stream: 0,
            other_stream: None,
            without_media: 0,
            unreadable: 0,
            due: Time::ZERO,
            started: Time::ZERO,
            asked: Time::ZERO,
            answered: None,
            playing: None,
            publishing: None,
            chunk_size: chunk::FIRST_CHUNK_SIZE,
            check: None,
            is_recorded: false,
            unpublished: None,
            wall_clock: None,
            publisher: Publisher::default(),
        })
    }

    /// Sets the wall-clock time since 1970 at [`Time::ZERO`], to which time codes refer. Without
    /// it, the client does not look for time codes.
    pub fn with_wall_clock(mut self, wall_clock: Duration) -> Client {
        self.wall_clock = Some(wall_clock);
        self
    }

    fn connect(&mut self, cx: &mut Context<'_>) {
        self.phase = Phase::Connecting;
        self.asked = cx.now;
        self.open = true;
        let (host, port) = (self.url.host().to_owned(), self.url.port());
        let timeout = self.config.connect_timeout.0;
        let open = match self.url.is_secure() {
            true => Open::Tls {
                host,
                port,
                timeout,
                server_name: self.config.tls.server_name.clone(),
            },
            false => Open::Tcp {
                host,
                port,
                timeout,
            },
        };
        cx.out.push_back(Output::Open {
            channel: CHANNEL,
            open,
        });
    }

    fn opened(&mut self, cx: &mut Context<'_>, local: SocketAddr, remote: Option<SocketAddr>) {
        if self.phase != Phase::Connecting {
            return;
        }
        self.ends = Some((local, remote));
        let delay = cx.now.since(self.started);
        cx.recorder
            .record(clients::CONNECT_DELAY, delay.as_nanos() as u64);
        cx.out.push_back(Output::Acknowledge {
            channel: CHANNEL,
            acks: match self.config.acknowledge {
                Some(own) => own.acks(),
                None if self.wall_clock.is_some() => Acks::AtOnce,
                None => Acks::Soon,
            },
        });
        let style = self.config.handshake.style();
        let handshake = Handshake::client(self.seed).of_style(style);
        send(cx, handshake.hello());
        self.handshake = Some(Box::new(handshake));
        self.await_answer(cx, Phase::Handshake);
    }

    /// Starts to wait for an answer.
    fn await_answer(&mut self, cx: &Context<'_>, phase: Phase) {
        self.phase = phase;
        self.asked = cx.now;
        self.check = Some(cx.now + self.config.request_timeout.0);
    }

    /// Processes received bytes.
    fn bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8], mut times: Times<'_>) {
        let mut at = 0;
        if self.handshake.is_some() {
            self.shake_hands(cx, bytes, &mut at, &mut times);
        }
        if matches!(self.phase, Phase::Handshake | Phase::Ended) {
            return;
        }
        let shaken = at;
        let mut answer = Vec::new();
        while self.phase != Phase::Ended {
            match self.link.next(bytes, &mut at, &mut answer) {
                Ok(None) => break,
                Ok(Some(Heard::Media(media))) => {
                    let Some(playing) = self.playing.as_mut() else {
                        continue;
                    };
                    // A connection has one stream. Servers use any message stream ID, and players
                    // ignore it.
                    if media.stream != self.stream {
                        cx.recorder.add(m::OTHER_STREAM_MEDIA, 1);
                        self.other_stream = Some(media.stream);
                    }
                    self.without_media = 0;
                    if let Some(first) = playing.media(&media, at, &mut times, cx.recorder) {
                        self.begin(cx, first);
                    }
                }
                Ok(Some(heard)) => {
                    self.without_media += 1;
                    if self.without_media > MESSAGES_WITHOUT_MEDIA_MAX {
                        let detail = format!(
                            "{MESSAGES_WITHOUT_MEDIA_MAX} messages in a row without media ({})",
                            self.ends()
                        );
                        self.fail(cx, Failure::Flooded, detail);
                        break;
                    }
                    match heard {
                        Heard::Command(_, command) => {
                            self.command(cx, &command, times.clone().of(at).0);
                        }
                        Heard::Data(_, payload) => self.data(cx, &payload),
                        Heard::Unreadable => {
                            cx.recorder.add(m::UNREADABLE_COMMANDS, 1);
                            self.unreadable += 1;
                        }
                        Heard::Event(Event::StreamEof(stream))
                            if stream == self.stream || Some(stream) == self.other_stream =>
                        {
                            self.stream_over(cx, "StreamEOF");
                        }
                        Heard::Event(Event::StreamIsRecorded(stream))
                            if stream == self.stream || Some(stream) == self.other_stream =>
                        {
                            self.is_recorded = true;
                        }
                        _ => {}
                    }
                }
                Err(malformed) => self.malformed(cx, malformed),
            }
        }
        if self.phase == Phase::Ended {
            return;
        }
        let before = self.link.acknowledgements();
        self.link.came(bytes.len() - shaken, &mut answer);
        let sent = self.link.acknowledgements() - before;
        cx.recorder.add(m::ACKNOWLEDGEMENTS, sent);
        if !answer.is_empty() {
            send(cx, answer);
        }
    }

    fn shake_hands(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        at: &mut usize,
        times: &mut Times<'_>,
    ) {
        while let Some(handshake) = &mut self.handshake {
            match handshake.take(bytes, at) {
                Ok(Step::More) => return,
                Ok(Step::Send(bytes)) => send(cx, bytes),
                Ok(Step::Done) => {
                    if !handshake.was_echoed() {
                        cx.recorder.add(m::HANDSHAKES_WITHOUT_ECHO, 1);
                    }
                    self.handshake = None;
                    let delay = times.of(*at).0.since(self.asked);
                    cx.recorder
                        .record(m::HANDSHAKE_DELAY, delay.as_nanos() as u64);
                    self.ask_connect(cx);
                }
                Err(malformed) => return self.malformed(cx, malformed),
            }
        }
    }

    fn ask_connect(&mut self, cx: &mut Context<'_>) {
        let text = |name: &str, value: &str| (name.to_owned(), Value::text(value));
        let number = |name: &str, value: f64| (name.to_owned(), Value::Number(value));
        // RTMP, 7.2.1.1. All codecs are announced, because the client does not decode.
        let mut object = vec![
            text("app", self.url.app()),
            text("flashVer", FLASH_VERSION),
            text("tcUrl", &self.url.of_app()),
            ("fpad".to_owned(), Value::Boolean(false)),
            number("capabilities", 15.0),
            number("audioCodecs", 4071.0),
            number("videoCodecs", 252.0),
            number("videoFunction", 1.0),
            number("objectEncoding", 0.0),
            // Enhanced RTMP, "Enhancing NetConnection connect Command".
            (
                "fourCcList".to_owned(),
                Value::Array(vec![Value::text("*")]),
            ),
        ];
        for (name, value) in &self.config.connect {
            match object.iter_mut().find(|(own, _)| own == name) {
                Some((_, own)) => *own = value.value(),
                None => object.push((name.clone(), value.value())),
            }
        }
        self.ask(cx, Phase::Connect, CONNECTION, vec![Value::Object(object)]);
    }

    /// Sends the command of this phase and waits for its answer.
    fn ask(&mut self, cx: &mut Context<'_>, phase: Phase, stream: u32, arguments: Vec<Value>) {
        let Some(name) = phase.command() else {
            return;
        };
        self.transaction += 1;
        let command = Command {
            name: name.to_owned(),
            transaction: self.transaction.into(),
            arguments,
        };
        let mut bytes = Vec::new();
        write::command(&command, stream, self.chunk_size, &mut bytes);
        if phase == Phase::Play {
            let buffer = u32::try_from(self.config.buffer.0.as_millis()).unwrap_or(u32::MAX);
            write::event(Event::SetBufferLength(stream, buffer), &mut bytes);
        }
        cx.recorder.add(m::COMMANDS, 1);
        send(cx, bytes);
        self.await_answer(cx, phase);
    }

    fn ask_create_stream(&mut self, cx: &mut Context<'_>) {
        self.prepare_to_publish(cx);
        self.ask(cx, Phase::CreateStream, CONNECTION, vec![Value::Null]);
    }

    fn ask_play(&mut self, cx: &mut Context<'_>) {
        self.playing = Some(Box::new(Playing::new(
            Dues {
                due: self.due,
                started: self.started,
                asked: cx.now,
            },
            self.config.playout_buffer.0,
            self.wall_clock,
        )));
        // RTMP, 7.2.2.1: -2 requests a live stream, or a recorded one if there is no live one.
        // Servers and players use milliseconds.
        let arguments = vec![
            Value::Null,
            Value::text(self.url.stream()),
            Value::Number(-2000.0),
        ];
        self.ask(cx, Phase::Play, self.stream, arguments);
    }

    /// Handles the first frame.
    fn begin(&mut self, cx: &mut Context<'_>, at: Time) {
        if self.phase == Phase::Play {
            // Some servers send media before they answer `play`.
            self.plays(cx, at);
        }
        self.check = Some(at + self.config.silence.0);
        cx.out.push_back(Output::Playing { at });
    }

    /// Handles the answer to `play`.
    fn plays(&mut self, cx: &mut Context<'_>, at: Time) {
        self.phase = Phase::Playing;
        self.answered = Some(at);
        let delay = at.since(self.asked).as_nanos() as u64;
        cx.recorder.record(m::PLAY_DELAY, delay);
        self.check = Some(cx.now + self.config.no_media.0);
    }

    fn data(&mut self, cx: &mut Context<'_>, payload: &[u8]) {
        cx.recorder.add(m::METADATA, 1);
        let (Some(all), Some(playing)) = (metadata(payload), &mut self.playing) else {
            return;
        };
        let side = |name: &str| all.get(name)?.as_number().map(|number| number as u32);
        if let Some(size) = side("width").zip(side("height")) {
            playing.size = Some(size);
        }
    }

    fn malformed(&mut self, cx: &mut Context<'_>, malformed: Malformed) {
        let detail = format!("{malformed} {} ({})", self.when(cx.now), self.ends());
        self.fail(cx, Failure::of_malformed(malformed), detail);
    }
}

fn send(cx: &mut Context<'_>, bytes: Vec<u8>) {
    cx.out.push_back(Output::Send {
        channel: CHANNEL,
        port: Port::Media,
        bytes,
    });
}

impl Session for Client {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        if self.phase == Phase::Ended {
            return;
        }
        match input {
            Input::Start { due } if self.phase == Phase::Idle => {
                self.due = due;
                self.started = cx.now;
                self.connect(cx);
            }
            Input::Told { message, .. } => self.publisher.hear(message, cx.now),
            Input::Opened { local, remote, .. } => self.opened(cx, local, remote),
            Input::OpenFailed { error, .. } => {
                self.open = false;
                let detail = format!("{error} ({})", self.ends());
                self.fail(cx, Failure::Connect(error.into()), detail);
            }
            Input::Bytes {
                bytes, at, runs, ..
            } => self.bytes(cx, bytes, Times::new(runs, at)),
            Input::Closed { how, .. } => self.closed(cx, how),
            Input::FlowEnded { .. } => self.sending_failed(cx),
            Input::Stop { .. } => self.stop(cx),
            _ => {}
        }
        self.due_publishing(cx);
        self.look(cx);
    }

    fn awaits(&self, _now: Time) -> bool {
        self.phase != Phase::Publishing
    }

    fn deadline(&self) -> Option<Time> {
        match self.phase {
            Phase::Idle | Phase::Ended => None,
            Phase::Publishing => self.counts_at(),
            _ => self.check,
        }
    }

    fn streams(&self, _sinks: &mut Sinks) -> Vec<StreamRow> {
        self.rows()
    }
}
