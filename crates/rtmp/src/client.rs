//! RTMP client: connects, performs the handshake, requests its application and stream, and plays or
//! publishes until it is stopped or the stream ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use measure::Time;

use super::codec::amf0::Value;
use super::codec::connection::{Connection, Received, parse_metadata};
use super::codec::handshake::{Handshake, HandshakeStep};
use super::codec::message::{Command, UserControlEvent};
use super::codec::{Malformed, chunk, write};
use super::config::ClientConfig;
use super::failure::Failure;
use super::metrics as m;
use super::url::Url;
use kit::connect_failure::ConnectFailure;
use kit::lifecycle::Addresses;
use kit::metrics as clients;
use kit::publication::Publisher;
use kit::url::UrlError;
use session::{
    AckDelay, ArrivalTimes, ChannelId, CloseReason, Context, Input, Note, Open, Outcome, Output,
    Port, Session, Sinks, StreamRow,
};

mod end;
mod playing;
mod publish;
mod responses;
#[cfg(test)]
mod tests;
mod zap;

pub(super) use playing::COLUMNS;
pub use playing::StreamSummary;
use playing::{Playing, StartTimes};
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
    config: Arc<ClientConfig>,
    url: Url,
    seed: u64,
    phase: Phase,
    open: bool,
    /// Local and remote address of the connection.
    addresses: Option<Addresses>,
    /// Present during the handshake.
    handshake: Option<Box<Handshake>>,
    connection: Connection,
    /// Transaction ID of the last command, and message stream ID assigned by the server.
    last_transaction: u32,
    message_stream: u32,
    /// Another message stream in which media arrived.
    other_stream: Option<u32>,
    /// Number of messages since the last media message.
    messages_without_media: u32,
    /// Number of commands that could not be parsed.
    unreadable_commands: u32,
    /// True after a channel change: the delays of a start are not measured.
    is_later_channel: bool,
    /// True if an earlier stream was played on the connection.
    is_reused: bool,
    /// Planned time of the first request, and actual start of the client.
    planned_start: Time,
    started: Time,
    /// Time of the request whose answer is awaited.
    requested_at: Time,
    play_answered_at: Option<Time>,
    /// Present from `play` on.
    playing: Option<Box<Playing>>,
    /// Present in a publishing client.
    publishing: Option<Box<Publishing>>,
    /// Chunk size of this client.
    chunk_size: u32,
    /// Time of the next timeout check.
    next_check_at: Option<Time>,
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
    pub fn new(
        config: impl Into<Arc<ClientConfig>>,
        url: &str,
        seed: u64,
    ) -> Result<Client, UrlError> {
        let config = config.into();
        Ok(Client {
            url: Url::parse(url, config.app.as_deref())?,
            config,
            seed,
            phase: Phase::Idle,
            open: false,
            addresses: None,
            handshake: None,
            connection: Connection::new(false),
            last_transaction: 0,
            message_stream: 0,
            other_stream: None,
            messages_without_media: 0,
            unreadable_commands: 0,
            is_later_channel: false,
            is_reused: false,
            planned_start: Time::ZERO,
            started: Time::ZERO,
            requested_at: Time::ZERO,
            play_answered_at: None,
            playing: None,
            publishing: None,
            chunk_size: chunk::INITIAL_CHUNK_SIZE,
            next_check_at: None,
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
        self.requested_at = cx.now;
        self.open = true;
        let timeout = self.config.connect_timeout.0;
        let open = Open::server(
            &self.url.host,
            self.url.port,
            timeout,
            self.url.secure,
            &self.config.tls,
        );
        cx.out.push_back(Output::Open {
            channel: CHANNEL,
            open,
        });
    }

    fn opened(&mut self, cx: &mut Context<'_>, local: SocketAddr, remote: Option<SocketAddr>) {
        if self.phase != Phase::Connecting {
            return;
        }
        self.addresses = Some((local, remote));
        if !self.is_later_channel {
            let delay = cx.now.since(self.started);
            cx.recorder.record_duration(clients::CONNECT_DELAY, delay);
        }
        cx.out.push_back(Output::Acknowledge {
            channel: CHANNEL,
            delay: match self.config.acknowledge {
                Some(own) => own.acks(),
                None if self.wall_clock.is_some() => AckDelay::AtOnce,
                None => AckDelay::Soon,
            },
        });
        let handshake = Handshake::client(self.seed).with_variant(self.config.handshake);
        send(cx, handshake.hello());
        self.handshake = Some(Box::new(handshake));
        self.await_answer(cx, Phase::Handshake);
    }

    /// Starts to wait for an answer.
    fn await_answer(&mut self, cx: &Context<'_>, phase: Phase) {
        self.phase = phase;
        self.requested_at = cx.now;
        self.next_check_at = Some(cx.now + self.config.request_timeout.0);
    }

    /// Processes received bytes.
    fn handle_bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8], mut times: ArrivalTimes<'_>) {
        let mut at = 0;
        if self.handshake.is_some() {
            self.handle_handshake(cx, bytes, &mut at, &mut times);
        }
        if matches!(self.phase, Phase::Handshake | Phase::Ended) {
            return;
        }
        let handshake_bytes = at;
        let mut answer = Vec::new();
        while self.phase != Phase::Ended {
            match self.connection.next(bytes, &mut at, &mut answer) {
                Ok(None) => break,
                Ok(Some(Received::Media(media))) => {
                    let Some(playing) = self.playing.as_mut() else {
                        continue;
                    };
                    // Until `play` is answered, this is media of the earlier stream.
                    if self.is_reused && self.phase == Phase::Play {
                        continue;
                    }
                    // A connection has one stream. Servers use any message stream ID, and players
                    // ignore it.
                    if media.stream != self.message_stream {
                        cx.recorder.add(m::OTHER_STREAM_MEDIA, 1);
                        self.other_stream = Some(media.stream);
                    }
                    self.messages_without_media = 0;
                    if let Some(first) = playing.handle_media(&media, at, &mut times, cx.recorder) {
                        self.handle_first_frame(cx, first);
                    }
                }
                Ok(Some(heard)) => {
                    self.messages_without_media += 1;
                    if self.messages_without_media > MESSAGES_WITHOUT_MEDIA_MAX {
                        let count = MESSAGES_WITHOUT_MEDIA_MAX;
                        let detail = format!("{count} messages in a row without media");
                        self.fail(cx, Failure::Flooded, detail);
                        break;
                    }
                    match heard {
                        Received::Command(_, command) => {
                            self.handle_command(cx, &command, times.clone().arrival_of(at).0);
                        }
                        Received::Data(_, payload) => self.handle_metadata(cx, &payload),
                        Received::Unreadable => {
                            cx.recorder.add(m::UNREADABLE_COMMANDS, 1);
                            self.unreadable_commands += 1;
                        }
                        Received::Event(UserControlEvent::StreamEof(stream))
                            if stream == self.message_stream
                                || Some(stream) == self.other_stream =>
                        {
                            self.handle_stream_ended(cx, "StreamEOF");
                        }
                        Received::Event(UserControlEvent::StreamIsRecorded(stream))
                            if stream == self.message_stream
                                || Some(stream) == self.other_stream =>
                        {
                            self.is_recorded = true;
                        }
                        _ => {}
                    }
                }
                Err(malformed) => self.fail_malformed(cx, malformed),
            }
        }
        if self.phase == Phase::Ended {
            return;
        }
        let before = self.connection.acknowledgements();
        self.connection
            .count_received(bytes.len() - handshake_bytes, &mut answer);
        let sent = self.connection.acknowledgements() - before;
        cx.recorder.add(m::ACKNOWLEDGEMENTS, sent);
        if !answer.is_empty() {
            send(cx, answer);
        }
    }

    fn handle_handshake(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        at: &mut usize,
        times: &mut ArrivalTimes<'_>,
    ) {
        while let Some(handshake) = &mut self.handshake {
            match handshake.receive(bytes, at) {
                Ok(HandshakeStep::NeedMore) => return,
                Ok(HandshakeStep::Send(bytes)) => send(cx, bytes),
                Ok(HandshakeStep::Done) => {
                    if !handshake.was_echoed() {
                        cx.recorder.add(m::HANDSHAKES_WITHOUT_ECHO, 1);
                    }
                    self.handshake = None;
                    let delay = times.arrival_of(*at).0.since(self.requested_at);
                    cx.recorder.record_duration(m::HANDSHAKE_DELAY, delay);
                    self.send_connect(cx);
                }
                Err(malformed) => return self.fail_malformed(cx, malformed),
            }
        }
    }

    fn send_connect(&mut self, cx: &mut Context<'_>) {
        // RTMP, 7.2.1.1. All codecs are announced, because the client does not decode.
        let object = [
            ("app", Value::string(&*self.url.app)),
            ("flashVer", Value::string(FLASH_VERSION)),
            ("tcUrl", Value::string(self.url.tc_url())),
            ("fpad", Value::Boolean(false)),
            ("capabilities", Value::Number(15.0)),
            ("audioCodecs", Value::Number(4071.0)),
            ("videoCodecs", Value::Number(252.0)),
            ("videoFunction", Value::Number(1.0)),
            ("objectEncoding", Value::Number(0.0)),
            // Enhanced RTMP, "Enhancing NetConnection connect Command".
            ("fourCcList", Value::Array(vec![Value::string("*")])),
        ];
        let object = object.map(|(name, value)| (name.to_owned(), value));
        let mut object = Vec::from(object);
        for (name, value) in &self.config.connect {
            match object.iter_mut().find(|(own, _)| own == name) {
                Some((_, own)) => *own = value.to_amf0(),
                None => object.push((name.clone(), value.to_amf0())),
            }
        }
        self.send_command(cx, Phase::Connect, CONNECTION, vec![Value::Object(object)]);
    }

    /// Sends the command of this phase and waits for its answer.
    fn send_command(
        &mut self,
        cx: &mut Context<'_>,
        phase: Phase,
        stream: u32,
        arguments: Vec<Value>,
    ) {
        let Some(name) = phase.command() else {
            return;
        };
        self.last_transaction += 1;
        let command = Command::new(name, self.last_transaction, arguments);
        let mut bytes = Vec::new();
        write::command(&command, stream, self.chunk_size, &mut bytes);
        if phase == Phase::Play {
            let buffer = u32::try_from(self.config.buffer.0.as_millis()).unwrap_or(u32::MAX);
            write::event(
                UserControlEvent::SetBufferLength(stream, buffer),
                &mut bytes,
            );
        }
        cx.recorder.add(m::COMMANDS, 1);
        send(cx, bytes);
        self.await_answer(cx, phase);
    }

    fn send_create_stream(&mut self, cx: &mut Context<'_>) {
        self.prepare_to_publish(cx);
        self.send_command(cx, Phase::CreateStream, CONNECTION, vec![Value::Null]);
    }

    fn send_play(&mut self, cx: &mut Context<'_>) {
        self.playing = Some(Box::new(Playing::new(
            StartTimes {
                due: self.planned_start,
                started: self.started,
                asked: cx.now,
                is_later_channel: self.is_later_channel,
            },
            self.config.playout_buffer.0,
            self.wall_clock,
        )));
        // RTMP, 7.2.2.1: -2 requests a live stream, or a recorded one if there is no live one.
        // Servers and players use milliseconds.
        let arguments = vec![
            Value::Null,
            Value::string(&*self.url.stream),
            Value::Number(-2000.0),
        ];
        self.send_command(cx, Phase::Play, self.message_stream, arguments);
    }

    fn handle_first_frame(&mut self, cx: &mut Context<'_>, at: Time) {
        if self.phase == Phase::Play {
            // Some servers send media before they answer `play`.
            self.handle_play_started(cx, at);
        }
        self.next_check_at = Some(at + self.config.silence.0);
        cx.out.push_back(Output::Playing { at });
    }

    /// Handles the answer to `play`.
    fn handle_play_started(&mut self, cx: &mut Context<'_>, at: Time) {
        self.phase = Phase::Playing;
        self.play_answered_at = Some(at);
        self.record_response_delay(cx, m::PLAY_DELAY, at);
        self.next_check_at = Some(cx.now + self.config.no_media.0);
    }

    fn handle_metadata(&mut self, cx: &mut Context<'_>, payload: &[u8]) {
        cx.recorder.add(m::METADATA, 1);
        let (Some(all), Some(playing)) = (parse_metadata(payload), &mut self.playing) else {
            return;
        };
        let side = |name: &str| all.get(name)?.as_number().map(|number| number as u32);
        if let Some(size) = side("width").zip(side("height")) {
            playing.size = Some(size);
        }
    }

    fn fail_malformed(&mut self, cx: &mut Context<'_>, malformed: Malformed) {
        let detail = format!("{malformed} {}", self.describe_progress(cx.now));
        self.fail(cx, Failure::from_malformed(malformed), detail);
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
                self.planned_start = due;
                self.started = cx.now;
                self.connect(cx);
            }
            Input::TopicMessage { message, .. } => self.publisher.handle_message(message, cx.now),
            Input::Opened { local, remote, .. } => self.opened(cx, local, remote),
            Input::OpenFailed { error, .. } => {
                self.open = false;
                self.fail(cx, Failure::Connect(error.into()), error);
            }
            Input::Bytes {
                bytes, at, runs, ..
            } => self.handle_bytes(cx, bytes, ArrivalTimes::new(runs, at)),
            Input::Closed { reason: how, .. } => self.closed(cx, how),
            Input::FlowEnded { .. } => self.handle_flow_ended(cx),
            Input::Stop { .. } => self.stop(cx),
            _ => {}
        }
        self.count_if_due(cx);
        self.check_timeouts(cx);
    }

    fn awaits_input(&self, _now: Time) -> bool {
        self.phase != Phase::Publishing
    }

    fn deadline(&self) -> Option<Time> {
        match self.phase {
            Phase::Idle | Phase::Ended => None,
            Phase::Publishing => self.next_count_at(),
            _ => self.next_check_at,
        }
    }

    fn streams(&self, _sinks: &mut Sinks) -> Vec<StreamRow> {
        self.rows()
    }
}
