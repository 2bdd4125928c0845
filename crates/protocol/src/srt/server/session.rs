//! Session of the reference server: accepts or rejects one caller, and sends media to it or
//! receives what it publishes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use measure::Time;

use super::flow::{Media, ServedFlow, after};
use super::taking::Taking;
use super::{ServedClient, ServedMessages, Shared};
use crate::mix::mix;
use crate::published_streams::Refusal;
use crate::session::{
    ChannelId, Context, Datagram, FlowId, Input, Outcome, Output, Record, Session,
};
use crate::srt::arq::flow::SrtFlow;
use crate::srt::arq::liveness::{Liveness, PEER_IDLE};
use crate::srt::arq::message_flow::MadeMessages;
use crate::srt::arq::sender::Bandwidth;
use crate::srt::codec::handshake::{Extension, Rejection};
use crate::srt::codec::packet::{Control, ControlHeader, DataHeader, Packet};
use crate::srt::codec::stream_id::StreamId;
use crate::srt::handshake::{Negotiated, Request, Responder, Settings};
use crate::srt::made::{self, Place};
use crate::srt::seq::{SeqNumber, SocketClock};
use crate::srt::url;

/// Channel that a session of an endpoint has from the start.
const CHANNEL: ChannelId = ChannelId(0);

/// Rejection of callers beyond the maximum number of sessions.
pub(super) const NO_ROOM: Rejection = Rejection::RESOURCE;

/// Additional bandwidth for retransmissions, in percent of the media.
const OVERHEAD: u32 = 25;

/// Messages on the topic of a stream: more media is available, or the stream has ended.
const MORE: &str = "more";
const OVER: &str = "over";

/// Interval at which the sender is asked for dropped messages.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Additional time after the latency for sent media to be played, at the end.
const REST: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct ServerSession {
    shared: Arc<Shared>,
    /// `Some` until the caller is accepted or rejected.
    request: Option<Box<Request>>,
    socket_id: u32,
    number: u64,
    clock: SocketClock,
    peer: u32,
    responder: Option<Responder>,
    liveness: Liveness,
    role: Role,
    /// Start of the media.
    began: Time,
    /// `Some` if no more media is sent: the time until which sent media may take to arrive.
    finishing: Option<Time>,
    /// True if a fault has stopped the media.
    stopped: bool,
    over: bool,
    done: ServedClient,
}

/// Role of the session towards the caller.
#[derive(Debug)]
enum Role {
    None,
    Sends(Sending),
    TakesIn(Box<Taking>),
}

#[derive(Debug)]
struct Sending {
    flow: FlowId,
    latency: Duration,
    /// Time of the next check for dropped messages, if messages have a TTL.
    ask_at: Time,
    /// Stream that another client publishes: its name and number, and the next payload.
    relay: Option<(String, u64, u64)>,
}

impl ServerSession {
    /// Creates the session of a caller that has proved its address.
    pub(super) fn new(
        shared: Arc<Shared>,
        request: Box<Request>,
        socket_id: u32,
        number: u64,
    ) -> ServerSession {
        ServerSession {
            done: ServedClient {
                connection: number,
                stream_id: request.stream_id().map(StreamId::to_string),
                ..ServedClient::default()
            },
            shared,
            request: Some(request),
            socket_id,
            number,
            clock: SocketClock::new(Time::ZERO),
            peer: 0,
            responder: None,
            liveness: Liveness::new(Time::ZERO, PEER_IDLE),
            role: Role::None,
            began: Time::ZERO,
            finishing: None,
            stopped: false,
            over: false,
        }
    }

    fn seed(&self, of: u64) -> u64 {
        mix(&[self.shared.config.seed, 3, self.number, of])
    }

    /// Messages that the server sends in message mode.
    fn messages(&self) -> Option<MadeMessages> {
        self.shared.config.messages
    }

    fn stream_id(&self) -> &str {
        self.done.stream_id.as_deref().unwrap_or_default()
    }

    /// Reason to reject the caller, if any.
    fn refusal(&self, published: &Option<Result<usize, Refusal>>, name: &str) -> Option<Rejection> {
        if let Some(rejection) = self.shared.config.faults.reject {
            return Some(rejection);
        }
        match published {
            Some(Err(Refusal::Taken)) => return Some(Rejection::CONFLICT),
            Some(Err(Refusal::Full)) => return Some(NO_ROOM),
            Some(Ok(_)) => return None,
            None => {}
        }
        let streams = self.shared.config.streams?;
        let number = name.strip_prefix("stream").and_then(|n| n.parse().ok());
        let is_one = number.is_some_and(|number: u32| (1..=streams).contains(&number));
        let is_there = is_one || self.shared.published.is_published(name);
        (!is_there).then_some(Rejection::NOTFOUND)
    }

    /// Accepts or rejects the caller.
    fn decide(&mut self, cx: &mut Context<'_>, remote: Option<SocketAddr>) {
        let Some(request) = self.request.take() else {
            return;
        };
        self.done.remote = remote.map(|remote| remote.to_string());
        let name = url::resource(self.stream_id());
        let publishes = url::publishes(self.stream_id());
        let begun = publishes.then(|| self.shared.published.begin(&name));
        if let Some(rejection) = self.refusal(&begun, &name) {
            let now = cx.now;
            cx.transmit(CHANNEL, None, |out| request.reject(rejection, now, out));
            if let Some(Ok(_)) = begun {
                self.shared.published.end(&name);
            }
            return self.rejected(cx, rejection);
        }
        self.clock = SocketClock::new(cx.now);
        let ip = remote.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |remote| remote.ip());
        let live = Settings {
            receive_latency: self.shared.config.latency,
            send_latency: self.shared.config.latency,
            secret: self.shared.secret(),
            // A listener uses the caller's number.
            ..Settings::live(
                self.socket_id,
                SeqNumber::new(0),
                self.clock,
                ip,
                self.seed(1),
            )
        };
        let settings = match self.messages() {
            Some(_) => live.messages(),
            None => live,
        };
        let mut answer = Vec::new();
        let accepted = request.accept(&settings, cx.now, &mut answer);
        cx.transmit(CHANNEL, None, |out| out.extend_from_slice(&answer));
        let (negotiated, responder) = match accepted {
            Ok(accepted) => accepted,
            Err(failure) => {
                if let Some(Ok(_)) = begun {
                    self.shared.published.end(&name);
                }
                return self.rejected(cx, failure.rejection());
            }
        };
        self.peer = negotiated.peer_socket_id;
        self.responder = Some(responder);
        self.liveness = Liveness::new(cx.now, PEER_IDLE);
        self.began = cx.now;
        match begun {
            Some(Ok(index)) => self.take_in(negotiated, name, index),
            _ => self.send(cx, negotiated, name, remote),
        }
    }

    fn rejected(&mut self, cx: &mut Context<'_>, rejection: Rejection) {
        self.done.rejected = Some(rejection.to_string());
        self.end(cx, Outcome::Completed);
    }

    fn take_in(&mut self, negotiated: Negotiated, name: String, index: usize) {
        self.done.published = true;
        let messages = self.messages().is_some();
        let taking = Taking::new(negotiated, self.clock, messages, (name, index));
        self.role = Role::TakesIn(Box::new(taking));
    }

    fn send(
        &mut self,
        cx: &mut Context<'_>,
        mut negotiated: Negotiated,
        name: String,
        remote: Option<SocketAddr>,
    ) {
        let shared = self.shared.clone();
        let joined = shared.published.join(&name);
        let latency = negotiated.send_latency;
        let bandwidth = match joined {
            Some(_) => Bandwidth::Unlimited,
            None => shared.made.bandwidth(OVERHEAD),
        };
        let ttl = self.messages().map(|messages| messages.ttl);
        let sender = made::sender(&mut negotiated, self.clock, bandwidth, ttl);
        let media = match joined {
            Some(_) => Media::Relayed(Box::new(SrtFlow::new(sender))),
            None => {
                let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
                let place = Place {
                    address: remote.unwrap_or(nowhere),
                    source: self.seed(2),
                    wall_clock: shared.config.wall_clock,
                    length: shared.config.length,
                };
                let mut flow = shared.made.flow(place, sender);
                flow.start(cx.now);
                Media::Made(Box::new(flow))
            }
        };
        let faults = shared.config.faults.flow;
        let flow = ServedFlow::new(media, faults, cx.now, self.seed(3));
        let flow = cx.flows.insert(flow);
        cx.out.push_back(Output::StartFlow {
            flow,
            channel: CHANNEL,
        });
        let relay = joined.map(|joined| {
            let topic = topic(joined.index);
            cx.out.push_back(Output::Listen { topic });
            (name, joined.serial, joined.next)
        });
        let ask_at = match ttl {
            Some(Some(_)) => cx.now,
            _ => Time::NEVER,
        };
        self.role = Role::Sends(Sending {
            flow,
            latency,
            ask_at,
            relay,
        });
    }

    fn header(&self, now: Time) -> ControlHeader {
        ControlHeader {
            timestamp: self.clock.timestamp(now),
            destination: self.peer,
        }
    }

    fn datagram(&mut self, cx: &mut Context<'_>, datagram: &Datagram<'_>) {
        let Ok(packet) = Packet::parse(datagram.bytes) else {
            self.done.malformed += 1;
            return;
        };
        self.liveness.heard(datagram.at);
        match packet {
            Packet::Data(header, payload) => self.data(cx, &header, payload, datagram.at),
            Packet::Control(_, Control::Shutdown) => self.end(cx, Outcome::Completed),
            Packet::Control(_, Control::Handshake(_)) => {
                let mut answer = Vec::new();
                if let Some(responder) = &self.responder {
                    responder.handle(datagram.bytes, cx.now, &mut answer);
                }
                cx.transmit(CHANNEL, None, |out| out.extend_from_slice(&answer));
            }
            Packet::Control(header, control) => {
                self.control(cx, &control, header.timestamp, datagram.at);
            }
        }
    }

    fn control(&mut self, cx: &mut Context<'_>, control: &Control<'_>, timestamp: u32, at: Time) {
        let header = self.header(cx.now);
        match &mut self.role {
            Role::None => {}
            Role::Sends(sending) => cx.flows.with(sending.flow, |flow: &mut ServedFlow| {
                flow.sender().control(control, at);
            }),
            Role::TakesIn(taking) => {
                if let Control::UserDefined {
                    subtype: Extension::KM_REQUEST,
                    cif,
                    ..
                } = *control
                    && let Some(reply) = taking.key_request(cif)
                {
                    let reply = Control::UserDefined {
                        subtype: Extension::KM_RESPONSE,
                        info: 0,
                        cif: &reply,
                    };
                    cx.transmit(CHANNEL, None, |out| reply.write(header, out));
                }
                let shared = &self.shared;
                let (media, mut wanted) = (&mut self.done.media, false);
                taking.control(control, timestamp, at, |name, message| {
                    *media += 1;
                    wanted |= shared.published.push(name, message, None);
                });
                if wanted {
                    say(cx, taking.index, MORE);
                }
            }
        }
    }

    fn data(&mut self, cx: &mut Context<'_>, header: &DataHeader, payload: &[u8], at: Time) {
        let Role::TakesIn(taking) = &mut self.role else {
            return;
        };
        let shared = &self.shared;
        let (media, mut wanted) = (&mut self.done.media, false);
        let could = taking.data(header, payload, at, |name, payload| {
            *media += 1;
            wanted |= shared.published.push(name, payload, None);
        });
        self.done.undecryptable += u64::from(!could);
        if wanted {
            say(cx, taking.index, MORE);
        }
    }

    /// Handles a message on the topic of a relayed stream: more media is available, or the stream
    /// has ended.
    fn told(&mut self, cx: &mut Context<'_>, message: &str) {
        let Role::Sends(Sending {
            flow,
            relay: Some((name, _, next)),
            ..
        }) = &mut self.role
        else {
            return;
        };
        let (payloads, end) = self.shared.published.take(name, *next);
        *next = end;
        let messages = self.shared.config.messages;
        let (now, media) = (cx.now, &mut self.done.media);
        cx.flows.with(*flow, |flow: &mut ServedFlow| {
            let sender = flow.sender();
            for payload in payloads {
                *media += 1;
                // The sender counts refused payloads.
                let _ = match messages {
                    None => sender.push(now, payload),
                    Some(own) => sender.push_message(now, &payload, own.in_order),
                };
            }
        });
        if message == OVER {
            self.finish(cx, Time::NEVER);
        }
    }

    /// Stops sending media, and waits until sent media has been played, but not beyond `until`.
    /// Waits for messages until all of them are acknowledged or dropped. Returns `false` if there
    /// is nothing to wait for.
    fn finish(&mut self, cx: &mut Context<'_>, until: Time) -> bool {
        let Role::Sends(sending) = &self.role else {
            return false;
        };
        if self.finishing.is_none() {
            cx.flows
                .with(sending.flow, |flow: &mut ServedFlow| flow.finish());
            self.finishing = Some(match self.messages() {
                None => (cx.now + sending.latency + REST).min(until),
                Some(_) => until,
            });
        }
        true
    }

    /// Handles the end of the flow: everything that was sent is acknowledged, dropped or too late.
    fn flow_ended(&mut self, cx: &mut Context<'_>) {
        self.finish(cx, Time::NEVER);
        if let (Some(until), Some(_)) = (self.finishing, self.messages()) {
            self.finishing = Some(until.min(cx.now + REST));
        }
    }

    /// Does the work that is due.
    fn look(&mut self, cx: &mut Context<'_>) {
        let (now, faults) = (cx.now, self.shared.config.faults);
        let header = self.header(now);
        match &mut self.role {
            Role::None => return,
            Role::Sends(sending) => {
                let flow = sending.flow;
                if now >= sending.ask_at {
                    sending.ask_at = now + ASK_EVERY;
                }
                loop {
                    let mut answer = Vec::new();
                    let more = cx.flows.with(flow, |flow: &mut ServedFlow| {
                        flow.sender().write_next(now, &mut answer)
                    });
                    if !more {
                        break;
                    }
                    cx.transmit(CHANNEL, None, |out| out.extend_from_slice(&answer));
                }
                let stops = after(self.began, faults.stop_after);
                let stops = stops.min(after(self.began, faults.silent_after));
                // Requested retransmissions stop as well.
                if now >= stops && !std::mem::replace(&mut self.stopped, true) {
                    cx.out.push_back(Output::StopFlow { flow });
                }
            }
            Role::TakesIn(taking) => loop {
                let mut more = false;
                cx.transmit(CHANNEL, None, |out| {
                    more = taking.receiver.write_next(now, out);
                });
                if !more {
                    break;
                }
                self.liveness.said(now);
            },
        }
        let silent = now >= after(self.began, faults.silent_after);
        if self.liveness.keepalive(now) && !silent {
            cx.transmit(CHANNEL, None, |out| Control::KeepAlive.write(header, out));
        }
        let is_over = now >= after(self.began, faults.close_after)
            || self.finishing.is_some_and(|until| now >= until);
        if self.liveness.is_lost(now) {
            self.end(cx, Outcome::Completed);
        } else if is_over {
            self.shut_down(cx, Outcome::Completed);
        }
    }

    fn shut_down(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        if !matches!(self.role, Role::None) {
            let header = self.header(cx.now);
            cx.transmit(CHANNEL, None, |out| Control::Shutdown.write(header, out));
        }
        self.end(cx, outcome);
    }

    fn end(&mut self, cx: &mut Context<'_>, outcome: Outcome) {
        match std::mem::replace(&mut self.role, Role::None) {
            Role::None => {}
            Role::Sends(sending) => {
                let flow = sending.flow;
                cx.out.push_back(Output::StopFlow { flow });
                let mut flow: Box<ServedFlow> = cx.flows.take(flow);
                self.done.sent = flow.left_so_far();
                self.done.wrongs = flow.wrongs();
                let counted = flow.sender().statistics();
                let messages = flow.sender().messages();
                if sending.relay.is_none() {
                    let messages = messages.map(|messages| messages.taken);
                    self.done.media = messages.unwrap_or(counted.pkt_sent_unique);
                }
                self.done.messages = messages.map(|sent| ServedMessages {
                    sent: Some(sent),
                    received: None,
                });
                self.done.sender = Some(Box::new(counted));
                if let Some((name, serial, _)) = sending.relay {
                    self.shared.published.leave(&name, serial);
                }
            }
            Role::TakesIn(mut taking) => {
                taking.receiver.finish(cx.now);
                self.done.messages = taking.messages().map(|received| ServedMessages {
                    sent: None,
                    received: Some(received),
                });
                self.done.receiver = Some(Box::new(taking.receiver.statistics()));
                say(cx, taking.index, OVER);
                self.shared.published.end(&taking.name);
            }
        }
        self.finishing = None;
        self.over = true;
        let done = std::mem::take(&mut self.done);
        cx.out.push_back(Output::Record(Record::new(done)));
        cx.out.push_back(Output::Ended(outcome));
        self.responder = None;
        self.peer = 0;
    }
}

/// Topic of the messages on a stream.
fn topic(index: usize) -> String {
    format!("srt-server/{index}")
}

/// Sends a message to the sessions that relay a stream.
fn say(cx: &mut Context<'_>, index: usize, message: &str) {
    cx.out.push_back(Output::Tell {
        topic: topic(index),
        message: message.into(),
    });
}

impl Session for ServerSession {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        match input {
            Input::Opened { remote, .. } => self.decide(cx, remote),
            Input::Datagrams { datagrams, .. } => {
                for datagram in datagrams {
                    if matches!(self.role, Role::None) {
                        return;
                    }
                    self.datagram(cx, datagram);
                }
            }
            Input::Told { message, .. } => self.told(cx, message),
            // All media of a stream with a fixed length is acknowledged or too late.
            Input::FlowEnded { .. } => self.flow_ended(cx),
            Input::Stop { until } => {
                let waits = until > cx.now && self.finish(cx, until);
                if !waits && !self.over {
                    self.shut_down(cx, Outcome::Stopped);
                }
            }
            _ => {}
        }
        self.look(cx);
    }

    fn deadline(&self) -> Option<Time> {
        let faults = &self.shared.config.faults;
        let own = match &self.role {
            Role::None => return None,
            Role::Sends(sending) => {
                let over = self.finishing.unwrap_or(Time::NEVER);
                over.min(sending.ask_at)
            }
            Role::TakesIn(taking) => taking.receiver.due(),
        };
        let due = own.min(self.liveness.due());
        let due = due.min(after(self.began, faults.close_after));
        let stops = after(self.began, faults.stop_after);
        let stops = stops.min(after(self.began, faults.silent_after));
        let sends = matches!(self.role, Role::Sends(_));
        Some(match sends && !self.stopped {
            true => due.min(stops),
            false => due,
        })
    }
}
