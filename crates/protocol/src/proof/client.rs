//! Client: sends hello, receives media, requests missing packets, says goodbye.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use measure::Time;

use super::codec::{Cookie, Message, NO_COOKIE, WANTED_MAX};
use super::config::ClientConfig;
use super::failure::Failure;
use super::metrics as m;
use super::receiver::Receiver;
use crate::metrics as clients;
use crate::session::{
    ChannelId, Context, Datagram, Input, Open, Outcome, Output, Reading, Session, Sinks, StreamRow,
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
    greeted: Time,
    /// Time of the last media or hello.
    last: Time,
    /// `true` once the server has announced the number of packets.
    all_known: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Opening,
    /// Sends hellos with this cookie.
    Greeting(Cookie),
    Playing,
    Over,
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
            greeted: Time::ZERO,
            last: Time::ZERO,
            all_known: false,
        }
    }

    fn say(cx: &mut Context<'_>, message: &Message<'_>) {
        cx.transmit(CHANNEL, None, |out| message.write(out));
    }

    fn greet(&mut self, cx: &mut Context<'_>, cookie: Cookie) {
        self.phase = Phase::Greeting(cookie);
        self.last = cx.now;
        Client::say(cx, &Message::Hello(cookie));
    }

    fn datagram(&mut self, cx: &mut Context<'_>, datagram: &Datagram<'_>) {
        let at = datagram.at;
        match (self.phase, Message::parse(datagram.bytes)) {
            (Phase::Over, _) => {}
            (Phase::Greeting(NO_COOKIE), Some(Message::Challenge(cookie))) => {
                let delay = at.since(self.greeted).as_nanos() as u64;
                cx.recorder.record(m::CHALLENGE_DELAY, delay);
                self.greet(cx, cookie);
            }
            // Response to a repeated hello.
            (_, Some(Message::Challenge(_))) => {}
            (
                _,
                Some(Message::Media {
                    number,
                    again,
                    payload,
                }),
            ) => {
                self.plays(cx, at);
                let media = (number, again);
                self.receiver.media(media, payload.len(), at, cx.recorder);
            }
            (_, Some(Message::End(count))) => {
                self.last = self.last.max(at);
                if !std::mem::replace(&mut self.all_known, true) {
                    self.phase = Phase::Playing;
                    self.receiver.end(count, at, cx.recorder);
                }
            }
            (_, Some(Message::Hello(_) | Message::Want(_) | Message::Bye) | None) => {
                cx.recorder.add(m::MALFORMED, 1);
            }
        }
    }

    fn plays(&mut self, cx: &mut Context<'_>, at: Time) {
        self.last = self.last.max(at);
        if std::mem::replace(&mut self.phase, Phase::Playing) == Phase::Playing {
            return;
        }
        for (metric, since) in [
            (clients::STARTUP_DELAY, self.due),
            (clients::STARTUP_DELAY_FROM_SENT, self.started),
        ] {
            cx.recorder
                .record(metric, at.since(since).as_nanos() as u64);
        }
        cx.out.push_back(Output::Playing { at });
    }

    /// Handles everything that is due.
    fn look(&mut self, cx: &mut Context<'_>) {
        match self.phase {
            Phase::Idle | Phase::Opening | Phase::Over => {}
            Phase::Greeting(cookie) => {
                if cx.now >= self.greeted + self.config.handshake_timeout.0 {
                    let detail = format!("{} sent no media", self.server);
                    self.end(cx, Outcome::Failed(Failure::HandshakeTimeout.with(detail)));
                } else if cx.now >= self.last + HELLO_EVERY {
                    self.greet(cx, cookie);
                }
            }
            Phase::Playing => {
                let wanted = self.receiver.look(cx.now, cx.recorder);
                for some in wanted.chunks(WANTED_MAX) {
                    Client::say(cx, &Message::Want(some.to_vec()));
                }
                if self.all_known && self.receiver.is_complete() {
                    self.end(cx, Outcome::Completed);
                } else if cx.now >= self.last + self.config.silence.0 {
                    let detail = format!("no more packets from {}", self.server);
                    self.end(cx, Outcome::Failed(Failure::MediaStopped.with(detail)));
                }
            }
        }
    }

    /// Rows of the streams: one if any packet was expected, otherwise none.
    fn rows(&self) -> Vec<StreamRow> {
        let counts = Some(self.receiver.counts()).filter(|counts| counts.expected > 0);
        counts.into_iter().map(StreamRow::new).collect()
    }

    fn end(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        if matches!(self.phase, Phase::Greeting(_) | Phase::Playing) {
            Client::say(cx, &Message::Bye);
        }
        self.phase = Phase::Over;
        self.receiver.finish(cx.recorder);
        cx.out.push_back(Output::Streams(self.rows()));
        cx.out.push_back(Output::Ended(outcome));
    }
}

impl Session for Client {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        match input {
            _ if self.phase == Phase::Over => return,
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
                        reading: Reading::Late,
                        media: None,
                    },
                });
            }
            Input::Opened { .. } => {
                self.greeted = cx.now;
                self.greet(cx, NO_COOKIE);
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
                    _ => Failure::Connect(crate::connect_failure::ConnectFailure::Refused),
                };
                let detail = format!("port unreachable at {}", self.server);
                self.end(cx, Outcome::Failed(failure.with(detail)));
            }
            Input::Stop { .. } => self.end(cx, Outcome::Stopped),
            _ => {}
        }
        self.look(cx);
    }

    fn streams(&self, _sinks: &mut Sinks) -> Vec<StreamRow> {
        self.rows()
    }

    fn deadline(&self) -> Option<Time> {
        match self.phase {
            Phase::Idle | Phase::Opening | Phase::Over => None,
            Phase::Greeting(_) => {
                let give_up = self.greeted + self.config.handshake_timeout.0;
                Some(give_up.min(self.last + HELLO_EVERY))
            }
            Phase::Playing => {
                let silence = self.last + self.config.silence.0;
                let receiver = self.receiver.due().unwrap_or(silence);
                Some(silence.min(receiver))
            }
        }
    }
}
