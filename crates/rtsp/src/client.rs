//! A client that plays or publishes one URL.
//!
//! The client connects, sends OPTIONS and DESCRIBE, sets up each stream of the description in turn,
//! sends PLAY for the aggregate, keeps the session alive while media arrives, and sends TEARDOWN
//! when the media has ended or the engine stops the client. Only one request is outstanding at a
//! time, apart from keep-alives during playback. A client that publishes sends ANNOUNCE instead of
//! DESCRIBE and RECORD instead of PLAY; everything else is the same.
//!
//! * this file: state, and dispatch of inputs;
//! * `conversation`: the connection, and what is known of the server;
//! * `start_times`: times from which the delays of a start are measured;
//! * `request`: outstanding requests, their deadlines and delays;
//! * `answers`: the next step after each answer;
//! * `tunnel`: RTSP over HTTP;
//! * `remote_receiver`: media sent to another address;
//! * `multicast`: streams of a group that other clients receive too;
//! * `publish`: announcing and sending media;
//! * `timeline`: actions during playback;
//! * `media`: streams, reports, and detection of the end of the media;
//! * `silent_streams`: streams that are silent while others play;
//! * `server_hints`: statements of the server that explain the end;
//! * `zap`: the client as one of several channels;
//! * `end`: failure, stop and teardown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use measure::Time;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use self::conversation::{Connection, Conversation, EARLY_BYTES_KEPT};
use self::media::Stream;
use self::publish::Publishing;
use self::remote_receiver::RemoteMedia;
use self::start_times::StartTimes;
use self::timeline::Timeline;
use super::codec::{Decoder, Item, MESSAGES_PER_READ_MAX, Method, Overflow, USELESS_BYTES_MAX};
use super::config::ClientConfig;
use super::failure::Failure;
use super::metrics as m;
use super::url::{Url, UrlError};
use kit::lifecycle;
use kit::media::rtp::StreamSummary;
use kit::media::source::MediaSource;
use kit::metrics as clients;
use kit::publication::Publisher;
use session::{
    ArrivalTimes, ChannelId, CloseReason, Context, Input, MediaEvent, Open, Outcome, Output, Port,
    Session, Sinks, StreamRow,
};

mod answers;
mod conversation;
mod end;
mod media;
mod multicast;
mod publish;
mod remote_receiver;
mod request;
mod server_hints;
mod silent_streams;
mod start_times;
#[cfg(test)]
mod tests;
mod timeline;
mod tunnel;
mod zap;

/// Progress of a client. In a phase named after a method, the answer to that method is outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Connecting,
    Options,
    Describe,
    Announce,
    /// The stream with this index is being set up.
    Setup(usize),
    Play,
    /// Media is expected.
    Playing,
    Record,
    /// Media is being sent.
    Recording,
    TearingDown,
    Ended,
}

/// A client that plays or publishes one URL.
#[derive(Debug)]
pub struct Client {
    config: Arc<ClientConfig>,
    /// Requested URL: the given one, or the target of a redirect.
    url: Url,
    phase: Phase,
    /// True if the client only asks for the description and then leaves.
    describe_only: bool,
    random: Pcg64Mcg,
    /// The given URL.
    given_url: Url,
    conversation: Conversation,
    /// Base URL of the controls.
    base: String,
    /// Control URL of the aggregate.
    aggregate: String,
    streams: Vec<Stream>,
    /// Progress of the actions. `None` without actions.
    timeline: Option<Box<Timeline>>,
    remote: RemoteMedia,
    /// SSRC of our own reports.
    ssrc: u32,
    /// Playing time of the media from the last requested position, if known.
    playing_time: Option<Duration>,
    starts: StartTimes,
    /// Time of the next check whether media still arrives.
    next_check: Option<Time>,
    /// Time of an earlier look at the arrivals, which only postpones `next_check`.
    next_look: Option<Time>,
    /// Outcome after TEARDOWN, and deadline of its answer.
    ending: Option<(Outcome, Time)>,
    /// Media to publish. `None` for a client that plays.
    publishing: Option<Box<Publishing>>,
    /// Topic of messages about the publication of the stream, derived from the given URL.
    publication_topic: String,
    publisher: Publisher,
    /// Wall-clock time at time zero, since 1970. `None` if it was not given.
    wall_clock: Option<Duration>,
    /// Earliest due time, as of the last input that could change it.
    deadline: Option<Time>,
}

/// Maximum number of redirects.
const MAX_REDIRECTS: u32 = 5;

impl Client {
    /// Returns a client that will play `url`. All random choices follow from `seed`.
    pub fn new(
        config: impl Into<Arc<ClientConfig>>,
        url: &str,
        seed: u64,
    ) -> Result<Client, UrlError> {
        let config = config.into();
        let url = Url::parse(url)?;
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        Ok(Client {
            conversation: Conversation::new(&url, random.next_u64()),
            ssrc: random.next_u32(),
            random,
            base: url.as_str().to_owned(),
            aggregate: url.as_str().to_owned(),
            timeline: Timeline::new(&config.actions, seed),
            config,
            publication_topic: url.stream_name(),
            phase: Phase::Idle,
            describe_only: false,
            given_url: url.clone(),
            streams: Vec::new(),
            remote: RemoteMedia::default(),
            playing_time: None,
            starts: StartTimes::default(),
            next_check: None,
            next_look: None,
            ending: None,
            publishing: None,
            publisher: Publisher::default(),
            wall_clock: None,
            deadline: None,
            url,
        })
    }

    /// Returns a client that asks for the description of `url`, reports it, and leaves without
    /// playing.
    pub fn describing(
        config: impl Into<Arc<ClientConfig>>,
        url: &str,
        seed: u64,
    ) -> Result<Client, UrlError> {
        let client = Client::new(config, url, seed)?;
        Ok(Client {
            describe_only: true,
            ..client
        })
    }

    /// Makes the client publish a source instead of playing.
    pub fn with_source(mut self, source: Arc<MediaSource>) -> Client {
        self.publishing = Some(Box::new(Publishing::new(source)));
        self
    }

    /// Sets the wall-clock time at time zero, since 1970, on which time codes and sender reports
    /// are based. Without it, the client does not look for time codes.
    pub fn with_wall_clock(mut self, wall_clock: Duration) -> Client {
        self.wall_clock = Some(wall_clock);
        self
    }

    fn new_channel(&mut self) -> ChannelId {
        let channel = ChannelId(self.conversation.next_channel);
        self.conversation.next_channel += 1;
        channel
    }

    fn connect(&mut self, cx: &mut Context<'_>) {
        self.phase = Phase::Connecting;
        self.conversation.decoder = Decoder::new();
        self.conversation.early_bytes = Some(Box::default());
        self.conversation.connection = Connection {
            channel: self.new_channel(),
            open: true,
            ends: None,
            tunnel: self.new_tunnel(),
        };
        let open = self.server_open();
        cx.out.push_back(Output::Open {
            channel: self.conversation.connection.channel,
            open,
        });
    }

    /// Returns the request for a connection to the server.
    fn server_open(&self) -> Open {
        let timeout = self.config.connect_timeout.0;
        Open::server(
            self.url.host(),
            self.url.port(),
            timeout,
            self.url.is_secure(),
            &self.config.tls,
        )
    }

    /// Describes the addresses of the connection, for failure details.
    fn describe_addresses(&self) -> String {
        lifecycle::describe_addresses(
            self.conversation.connection.ends,
            self.url.host(),
            self.url.port(),
        )
    }

    /// Describes received bytes that are not RTSP, for failure details. Empty if there were none.
    fn describe_useless_bytes(&self) -> String {
        let early = self.conversation.early_bytes.as_ref();
        let Some(instead) = early.filter(|it| it.useless > 0) else {
            return match self.conversation.server_hints.useless_bytes {
                0 => String::new(),
                bytes => format!("; {bytes} bytes received are not RTSP"),
            };
        };
        let line = instead.first.split(|&byte| byte == b'\r' || byte == b'\n');
        let line = line.into_iter().next().unwrap_or_default();
        match line.first() {
            Some(byte) if byte.is_ascii_alphanumeric() && !line.starts_with(b"RTSP/") => {
                let line = line.escape_ascii();
                format!("; the answer is not RTSP: it begins with \"{line}\"")
            }
            _ => format!("; {} bytes received are not RTSP", instead.useless),
        }
    }

    /// Returns the method whose answer the session depends on.
    fn awaited_method(&self) -> Method {
        match self.phase {
            Phase::Idle | Phase::Connecting | Phase::Options => Method::Options,
            Phase::Announce => Method::Announce,
            Phase::Describe => Method::Describe,
            Phase::Setup(_) => Method::Setup,
            Phase::Play | Phase::Playing => Method::Play,
            Phase::Record | Phase::Recording => Method::Record,
            Phase::TearingDown | Phase::Ended => Method::Teardown,
        }
    }

    fn opened(
        &mut self,
        cx: &mut Context<'_>,
        channel: ChannelId,
        local: SocketAddr,
        remote: Option<SocketAddr>,
    ) {
        if let Some(link) = &mut self.remote.link
            && link.channel() == channel
        {
            link.opened(remote);
        } else if channel == self.conversation.connection.channel {
            if self.phase == Phase::Connecting {
                self.conversation.connection.ends = Some((local, remote));
                if !self.send_get(cx) {
                    self.connected(cx);
                }
            }
        } else if self.is_post(channel) {
            if self.phase == Phase::Connecting {
                self.send_post(cx);
                self.connected(cx);
            }
        } else if let Some(publishing) = &self.publishing {
            let index = publishing.stream_of_channel(channel);
            if let Some(index) = index.filter(|&index| self.phase == Phase::Setup(index)) {
                self.on_ports_opened(cx, index, local.port());
            }
        } else if let Phase::Setup(index) = self.phase
            && self.streams[index].channel == Some(channel)
        {
            if self.streams[index].group.is_some() {
                return self.begin_setup(cx, index + 1);
            }
            self.streams[index].local_port = local.port();
            self.ask_setup(cx, index);
        }
    }

    /// Returns whether `channel` is the POST connection of a tunnel.
    fn is_post(&self, channel: ChannelId) -> bool {
        let tunnel = self.conversation.connection.tunnel.as_ref();
        tunnel.is_some_and(|tunnel| tunnel.post == Some(channel))
    }

    /// Records the connect delay and sends OPTIONS.
    fn connected(&mut self, cx: &mut Context<'_>) {
        if self.conversation.redirects == 0 && !self.starts.is_later_channel {
            let delay = cx.now.since(self.starts.started);
            cx.recorder.record_duration(clients::CONNECT_DELAY, delay);
        }
        self.ask_options(cx);
    }

    /// Decodes the bytes of a read. Returns whether they were only media and left the session
    /// unchanged.
    fn bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8], mut times: ArrivalTimes<'_>) -> bool {
        if self.awaits_get_answer() {
            self.on_get_bytes(cx, bytes, times);
            return false;
        }
        // The decoder is moved out while its items are handled. If an item opens a new connection,
        // that connection's decoder stays.
        let channel = self.conversation.connection.channel;
        let early = self.conversation.early_bytes.as_mut();
        if let Some(instead) = early.filter(|it| it.first.is_empty()) {
            instead.first = bytes[..bytes.len().min(EARLY_BYTES_KEPT)].to_vec();
        }
        let mut decoder = std::mem::take(&mut self.conversation.decoder);
        let mut only_media = true;
        let fed = decoder.feed_with_ends(bytes, |item, end| {
            if self.conversation.connection.channel == channel && self.phase != Phase::Ended {
                only_media &= self.item(cx, item, times.arrival_of(end));
            }
        });
        if self.conversation.connection.channel != channel || self.phase == Phase::Ended {
            return false;
        }
        self.conversation.decoder = decoder;
        if let Err(overflow) = fed {
            self.overflowed(cx, overflow);
            return false;
        }
        only_media
    }

    fn overflowed(&mut self, cx: &mut Context<'_>, overflow: Overflow) {
        let (failure, what) = match overflow {
            Overflow::TooLarge(what) => (Failure::MessageTooLarge, what.to_owned()),
            Overflow::Messages => {
                let what = format!("more than {MESSAGES_PER_READ_MAX} messages at once");
                (Failure::Flooded, what)
            }
            Overflow::Useless => {
                let what = format!(
                    "more than {USELESS_BYTES_MAX} bytes that are neither message nor packet"
                );
                (Failure::Garbage, what)
            }
        };
        self.fail_here(cx, failure, what);
    }

    /// Handles an item of the connection. Returns whether it was media that needs no action of the
    /// session.
    #[inline]
    fn item(&mut self, cx: &mut Context<'_>, item: Item<'_>, time: (Time, bool)) -> bool {
        if let Item::Frame {
            channel,
            payload,
            length,
        } = item
        {
            return self.interleaved_frame(cx, channel, payload, length, time);
        }
        self.control_item(cx, item, time.0);
        false
    }

    fn control_item(&mut self, cx: &mut Context<'_>, item: Item<'_>, at: Time) {
        match item {
            Item::Frame { .. } => {}
            Item::Response(response) => {
                self.conversation.early_bytes = None;
                self.conversation.server_hints.answer_was_read();
                self.response(cx, response, at);
            }
            Item::Request(request) => self.on_server_request(cx, &request),
            Item::Garbage { bytes } => {
                cx.recorder.add(m::GARBAGE_BYTES, bytes as u64);
                match &mut self.conversation.early_bytes {
                    Some(instead) => instead.useless += bytes as u64,
                    None => self.conversation.server_hints.useless_bytes += bytes as u64,
                }
            }
            Item::Malformed(malformed) => {
                // An unreadable answer to a keep-alive does not end the session.
                if matches!(self.phase, Phase::Playing | Phase::Recording) {
                    self.remember_unreadable(&malformed);
                } else {
                    let detail = format!(
                        "{} in `{}` (CSeq {:?})",
                        malformed.reason, malformed.start_line, malformed.cseq
                    );
                    self.fail_here(cx, Failure::MalformedResponse, detail);
                }
            }
        }
    }

    fn closed(&mut self, cx: &mut Context<'_>, how: CloseReason) {
        self.conversation.connection.open = false;
        let ends = self.describe_addresses();
        let early = self.describe_early_end(cx);
        self.conversation.connection.ends = None;
        match self.phase {
            Phase::TearingDown => {
                // Many servers close the connection instead of answering.
                self.finish(cx);
            }
            Phase::Playing if self.publisher.has_left() || self.media_is_over(cx) => {
                self.ending = Some((self.end_of_media(cx), cx.now));
                self.finish(cx);
            }
            Phase::Playing if let Some(detail) = early => {
                self.fail(cx, Failure::MediaStopped, detail);
            }
            Phase::Playing if self.last_bye_without_media(cx).is_some() => {
                let detail = format!("BYE without a packet, then the connection closed, {ends}");
                self.fail(cx, self.no_media_failure(), detail);
            }
            _ => {
                let method = self.awaited_method();
                let when = match self.phase {
                    Phase::Playing => "while media played".to_owned(),
                    Phase::Recording => "while media was sent".to_owned(),
                    _ => format!("instead of answering {method}"),
                };
                let useless = self.describe_useless_bytes();
                let detail = match how {
                    CloseReason::End => format!("the server closed the connection {when}"),
                    CloseReason::Reset => format!("the server reset the connection {when}"),
                    CloseReason::SendQueueFull => format!("the server stopped reading {when}"),
                    CloseReason::Tls(error) => format!("{error} {when}"),
                };
                let detail = format!("{detail}{useless} ({ends})");
                let ends = how == CloseReason::End && self.phase == Phase::Playing;
                if !ends || self.playing_time.is_some() || self.arrivals(cx).is_none() {
                    return self.fail(cx, Failure::from_closed(how, &method), detail);
                }
                let failure = match self.conversation.server_hints.is_asked_to_end() {
                    true => Failure::EndedByServer,
                    false => Failure::from_closed(how, &method),
                };
                let outcome = self.ended_by_server(cx.now, failure, &detail);
                self.ending = Some((outcome, cx.now));
                self.finish(cx);
            }
        }
    }
}

impl Session for Client {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        if self.phase == Phase::Ended {
            return;
        }
        match input {
            Input::Start { due } => {
                if self.phase == Phase::Idle {
                    self.starts.due = due;
                    self.starts.started = cx.now;
                    self.connect(cx);
                    self.connect_receiver(cx);
                }
            }
            Input::Opened {
                channel,
                local,
                remote,
            } => self.opened(cx, channel, local, remote),
            Input::OpenFailed { channel, error } => {
                if self.is_link(channel) {
                    self.receiver_lost(cx, &error.to_string());
                } else if channel == self.conversation.connection.channel || self.is_post(channel) {
                    let detail = format!("{error} ({})", self.describe_addresses());
                    self.conversation.connection.open = false;
                    self.fail(cx, Failure::Connect(error.into()), detail);
                } else {
                    let stream = self.streams.iter().find(|s| s.channel == Some(channel));
                    let detail = match stream.and_then(|stream| stream.group.as_ref()) {
                        Some(group) => format!("cannot join {group}: {error}"),
                        None => format!("cannot open a pair of UDP ports: {error}"),
                    };
                    if self.forget_ports(channel) && self.ending.is_none() {
                        self.fail(cx, Failure::from_ports(error), detail);
                    }
                }
            }
            Input::Bytes {
                channel,
                bytes,
                at,
                runs,
            } => {
                if self.is_link(channel) {
                    self.on_receiver_bytes(cx, bytes, at);
                // The hot path of media over TCP.
                } else if channel == self.conversation.connection.channel
                    && self.bytes(cx, bytes, ArrivalTimes::new(runs, at))
                    && self.deadline.is_none_or(|deadline| cx.now < deadline)
                {
                    return;
                }
            }
            Input::Datagram {
                channel,
                port,
                bytes,
                at,
                ..
            } => {
                let index = self.streams.iter().position(|s| s.channel == Some(channel));
                if let (Some(index), Port::Control) = (index, port) {
                    self.on_rtcp(cx, index, bytes, at);
                } else if let Some(publishing) = &self.publishing
                    && let (Some(index), Port::Control) =
                        (publishing.stream_of_channel(channel), port)
                {
                    self.on_receiver_reports(cx, index, bytes);
                }
            }
            Input::Closed {
                channel,
                reason: how,
            } => {
                if self.is_link(channel) {
                    self.receiver_lost(cx, &format!("the connection to it closed ({how:?})"));
                } else if channel == self.conversation.connection.channel || self.is_post(channel) {
                    self.closed(cx, how);
                }
            }
            Input::Media { sink, event } => {
                if let Some(index) = self.streams.iter().position(|s| s.sink == sink) {
                    self.media_event(cx, index, event);
                }
            }
            Input::Stop { until } => self.stop(cx, until),
            Input::Deadline | Input::Datagrams { .. } | Input::ExchangeEnded { .. } => {}
            Input::FlowEnded { flow } => self.sending_failed(cx, flow),
            Input::TopicMessage { message, .. } => self.publisher.handle_message(message, cx.now),
        }
        // Everything that is due is done after any input, so that nothing depends on being called
        // at a particular moment.
        self.run_due(cx);
        self.deadline = self.next_due();
    }

    fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    fn awaits_input(&self, now: Time) -> bool {
        let mut due = self.answers_due().chain(self.next_check);
        due.any(|due| due <= now)
    }

    fn streams(&self, sinks: &mut Sinks) -> Vec<StreamRow> {
        let summaries = self.stream_summaries(sinks).into_iter();
        summaries.map(StreamRow::new).collect()
    }
}

impl Client {
    /// Returns the deadlines of all answers, and of the end.
    fn answers_due(&self) -> impl Iterator<Item = Time> {
        let pending = self.conversation.pending.iter();
        pending
            .map(|pending| pending.deadline)
            .chain(self.ending.as_ref().map(|&(_, until)| until))
            .chain(self.conversation.connection.tunnel_deadline())
            .chain(self.remote.deadline)
    }

    fn next_due(&self) -> Option<Time> {
        if self.phase == Phase::Ended {
            return None;
        }
        let reports = self.streams.iter().filter_map(|stream| stream.report_due);
        let playing = (self.phase == Phase::Playing).then(|| {
            let actions = self.timeline.as_ref().and_then(|timeline| timeline.due());
            reports
                .chain(self.conversation.keep_alive_due)
                .chain(self.next_check)
                .chain(self.next_look)
                .chain(actions)
        });
        let recording = (self.phase == Phase::Recording).then(|| {
            let publishing = self.publishing.as_ref().and_then(|own| own.next_due());
            publishing
                .into_iter()
                .chain(self.conversation.keep_alive_due)
        });
        self.answers_due()
            .chain(recording.into_iter().flatten())
            .chain(playing.into_iter().flatten())
            .min()
    }

    /// Returns the results of each stream so far.
    fn stream_summaries(&self, sinks: &mut Sinks) -> Vec<StreamSummary> {
        let streams = self.streams.iter();
        streams
            .map(|s| StreamSummary::from_receiver(s.kind, s.url.clone(), s.receiver(sinks)))
            .collect()
    }

    /// Does everything that is due.
    fn run_due(&mut self, cx: &mut Context<'_>) {
        if let Some(&(_, until)) = self.ending.as_ref()
            && cx.now >= until
        {
            self.finish(cx);
        }
        if self.phase != Phase::Ended {
            self.overdue_requests(cx);
            self.overdue_tunnel(cx);
            self.overdue_receiver(cx);
        }
        if self.phase == Phase::Recording {
            self.due_keep_alive(cx);
            self.due_publishing(cx);
        }
        if self.phase == Phase::Playing {
            self.due_keep_alive(cx);
            self.due_reports(cx);
            self.due_actions(cx);
            self.check_media(cx);
        }
    }

    /// Handles an event of a stream's receiver, whether its packets arrive over UDP or in the
    /// connection.
    fn media_event(&mut self, cx: &mut Context<'_>, index: usize, event: MediaEvent) {
        match event {
            MediaEvent::First { at } => {
                if self.starts.first_media.is_some() {
                    return;
                }
                self.starts.first_media = Some(at);
                let is_start = !self.starts.is_later_channel;
                let (due, sent) = (self.starts.due, self.starts.started);
                let record = [
                    (clients::STARTUP_DELAY, is_start.then_some(due)),
                    (clients::STARTUP_DELAY_FROM_SENT, is_start.then_some(sent)),
                    (m::PLAY_TO_MEDIA, self.starts.play_sent),
                ];
                for (histogram, from) in record {
                    if let Some(from) = from {
                        cx.recorder.record_duration(histogram, at.since(from));
                    }
                }
                cx.out.push_back(Output::Playing { at });
                if self.phase == Phase::Playing {
                    self.next_check = Some(cx.now);
                }
            }
            MediaEvent::ClockJumped { at } => self.clock_jumped(cx, at),
            MediaEvent::Position { at } => self.arrived_at_position(cx, at),
            // The stream continues after all.
            MediaEvent::SourceChanged { .. } => self.streams[index].bye_at = None,
            // RTSP cannot request retransmissions.
            MediaEvent::FeedbackDue { .. } | MediaEvent::FirstTransportNumber => {}
            MediaEvent::Foreign { from } => {
                self.conversation.server_hints.foreign_source = Some(from)
            }
        }
    }
}
