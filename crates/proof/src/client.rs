//! Client: sends hello, receives media, requests missing packets, says goodbye.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use measure::Time;

use super::codec::{Cookie, Message, NO_COOKIE, REQUESTED_MAX};
use super::config::ClientConfig;
use super::failure::Failure;
use super::metrics as m;
use super::receiver::Receiver;
use kit::lifecycle;
use session::{
    ChannelId, Context, Datagram, Input, Open, Outcome, Output, ReadTiming, Session, Sinks,
    StreamRow,
};

const CHANNEL: ChannelId = ChannelId(0);

/// Interval between hellos until media arrives.
const HELLO_EVERY: Duration = Duration::from_millis(250);

/// A client that plays the media of one address.
#[derive(Debug)]
pub(super) struct Client {
    config: ClientConfig,
    server: SocketAddr,
    phase: Phase,
    receiver: Receiver,
    /// Planned start, actual start, and time of the first hello.
    due: Time,
    started: Time,
    hello_at: Time,
    /// Time of the last media or hello.
    last_activity: Time,
    /// `true` once the server has announced the number of packets.
    count_known: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Opening,
    /// Sends hellos with this cookie.
    Greeting(Cookie),
    Playing,
    Ended,
}

impl Client {
    pub(super) fn new(config: ClientConfig, server: SocketAddr) -> Client {
        Client {
            receiver: Receiver::new(&config),
            config,
            server,
            phase: Phase::Idle,
            due: Time::ZERO,
            started: Time::ZERO,
            hello_at: Time::ZERO,
            last_activity: Time::ZERO,
            count_known: false,
        }
    }

    fn send(cx: &mut Context<'_>, message: &Message<'_>) {
        cx.transmit(CHANNEL, None, |out| message.write(out));
    }

    fn send_hello(&mut self, cx: &mut Context<'_>, cookie: Cookie) {
        self.phase = Phase::Greeting(cookie);
        self.last_activity = cx.now;
        Client::send(cx, &Message::Hello(cookie));
    }

    fn datagram(&mut self, cx: &mut Context<'_>, datagram: &Datagram<'_>) {
        let at = datagram.at;
        match (self.phase, Message::parse(datagram.bytes)) {
            (Phase::Ended, _) => {}
            (Phase::Greeting(NO_COOKIE), Some(Message::Challenge(cookie))) => {
                cx.recorder
                    .record_duration(m::CHALLENGE_DELAY, at.since(self.hello_at));
                self.send_hello(cx, cookie);
            }
            // Response to a repeated hello.
            (_, Some(Message::Challenge(_))) => {}
            (
                _,
                Some(Message::Media {
                    number,
                    is_retransmission: again,
                    payload,
                }),
            ) => {
                self.note_first_media(cx, at);
                self.receiver
                    .media(number, again, payload.len(), at, cx.recorder);
            }
            (_, Some(Message::End(count))) => {
                self.last_activity = self.last_activity.max(at);
                if !std::mem::replace(&mut self.count_known, true) {
                    self.phase = Phase::Playing;
                    self.receiver.end(count, at, cx.recorder);
                }
            }
            (_, Some(Message::Hello(_) | Message::Request(_) | Message::Bye) | None) => {
                cx.recorder.add(m::MALFORMED, 1);
            }
        }
    }

    fn note_first_media(&mut self, cx: &mut Context<'_>, at: Time) {
        self.last_activity = self.last_activity.max(at);
        if std::mem::replace(&mut self.phase, Phase::Playing) == Phase::Playing {
            return;
        }
        lifecycle::record_startup(cx.recorder, at, self.due, self.started);
        cx.out.push_back(Output::Playing { at });
    }

    /// Handles everything that is due.
    fn run_due(&mut self, cx: &mut Context<'_>) {
        match self.phase {
            Phase::Idle | Phase::Opening | Phase::Ended => {}
            Phase::Greeting(cookie) => {
                if cx.now >= self.hello_at + self.config.handshake_timeout.0 {
                    let detail = format!("{} sent no media", self.server);
                    self.end(cx, Outcome::Failed(Failure::HandshakeTimeout.with(detail)));
                } else if cx.now >= self.last_activity + HELLO_EVERY {
                    self.send_hello(cx, cookie);
                }
            }
            Phase::Playing => {
                let wanted = self.receiver.run_due(cx.now, cx.recorder);
                for some in wanted.chunks(REQUESTED_MAX) {
                    Client::send(cx, &Message::Request(some.to_vec()));
                }
                if self.count_known && self.receiver.is_complete() {
                    self.end(cx, Outcome::Completed);
                } else if cx.now >= self.last_activity + self.config.silence.0 {
                    let detail = format!("no more packets from {}", self.server);
                    self.end(cx, Outcome::Failed(Failure::MediaStopped.with(detail)));
                }
            }
        }
    }

    /// Rows of the streams: one if any packet was expected, otherwise none.
    fn rows(&self) -> Vec<StreamRow> {
        let counts = Some(self.receiver.counts).filter(|counts| counts.expected > 0);
        counts.into_iter().map(StreamRow::new).collect()
    }

    fn end(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        if matches!(self.phase, Phase::Greeting(_) | Phase::Playing) {
            Client::send(cx, &Message::Bye);
        }
        self.phase = Phase::Ended;
        self.receiver.finish(cx.recorder);
        cx.out.push_back(Output::Streams(self.rows()));
        cx.out.push_back(Output::Ended(outcome));
    }
}

impl Session for Client {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        match input {
            _ if self.phase == Phase::Ended => return,
            Input::Start { due } => {
                (self.due, self.started, self.phase) = (due, cx.now, Phase::Opening);
                let any: IpAddr = match self.server {
                    SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                };
                cx.out.push_back(Output::Open {
                    channel: CHANNEL,
                    open: Open::Udp {
                        local: SocketAddr::new(any, 0),
                        peer: Some(self.server),
                        reading: ReadTiming::Late,
                        media: None,
                    },
                });
            }
            Input::Opened { .. } => {
                self.hello_at = cx.now;
                self.send_hello(cx, NO_COOKIE);
            }
            Input::OpenFailed { error, .. } => {
                let failure = Failure::Connect(error.into());
                self.end(cx, Outcome::Failed(failure.with(error.to_string())));
            }
            Input::Datagrams { datagrams, .. } => {
                for datagram in datagrams {
                    self.datagram(cx, datagram);
                }
            }
            Input::Closed { .. } => {
                let failure = match std::mem::replace(&mut self.phase, Phase::Opening) {
                    Phase::Playing => Failure::Reset,
                    _ => Failure::Connect(kit::connect_failure::ConnectFailure::Refused),
                };
                let detail = format!("port unreachable at {}", self.server);
                self.end(cx, Outcome::Failed(failure.with(detail)));
            }
            Input::Stop { .. } => self.end(cx, Outcome::Stopped),
            _ => {}
        }
        self.run_due(cx);
    }

    fn streams(&self, _sinks: &mut Sinks) -> Vec<StreamRow> {
        self.rows()
    }

    fn deadline(&self) -> Option<Time> {
        match self.phase {
            Phase::Idle | Phase::Opening | Phase::Ended => None,
            Phase::Greeting(_) => {
                let give_up = self.hello_at + self.config.handshake_timeout.0;
                Some(give_up.min(self.last_activity + HELLO_EVERY))
            }
            Phase::Playing => {
                let silence = self.last_activity + self.config.silence.0;
                let receiver = self.receiver.due.unwrap_or(silence);
                Some(silence.min(receiver))
            }
        }
    }
}
