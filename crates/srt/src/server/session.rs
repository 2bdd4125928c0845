//! Session of the reference server: accepts or rejects one caller, and sends media to it or
//! receives what it publishes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use measure::Time;

use super::flow::{PlayerFlow, time_after};
use super::ingest::Ingest;
use super::{ServedClient, ServedMessages, Shared};
use crate::arq::flow::{SourceFlow, SourceSettings};
use crate::arq::liveness::{Liveness, PEER_IDLE_TIMEOUT};
use crate::arq::message_source::MessageSource;
use crate::arq::sender::Bandwidth;
use crate::codec::handshake::{Extension, Rejection};
use crate::codec::packet::{Control, ControlHeader, DataHeader, Packet};
use crate::codec::stream_id::StreamId;
use crate::handshake::{ConclusionRepeater, ConnectionRequest, HandshakeSettings, Negotiated};
use crate::seq::{SeqNumber, SocketClock};
use crate::source_media;
use crate::url;
use kit::published_streams::Refusal;
use session::seeds::derive_seed;
use session::{ChannelId, Context, Datagram, FlowId, Input, Outcome, Output, Record, Session};

/// Channel that a session of an endpoint has from the start.
const CHANNEL: ChannelId = ChannelId(0);

/// Rejection of callers beyond the maximum number of sessions.
pub(super) const TOO_MANY_SESSIONS: Rejection = Rejection::RESOURCE;

/// Additional bandwidth for retransmissions, in percent of the media.
const OVERHEAD: u32 = 25;

/// Messages on the topic of a stream: more media is available, or the stream has ended.
const STREAM_MORE: &str = "more";
const STREAM_ENDED: &str = "over";

/// Interval at which the sender is asked for dropped messages.
const DROPPED_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Additional time after the latency for sent media to be played, at the end.
const DELIVERY_MARGIN: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct ServerSession {
    shared: Arc<Shared>,
    /// `Some` until the caller is accepted or rejected.
    request: Option<Box<ConnectionRequest>>,
    socket_id: u32,
    number: u64,
    clock: SocketClock,
    peer: u32,
    responder: Option<ConclusionRepeater>,
    liveness: Liveness,
    role: Role,
    media_started_at: Time,
    /// `Some` if no more media is sent: the time until which sent media may take to arrive.
    finish_deadline: Option<Time>,
    /// True if a fault has stopped the media.
    stopped: bool,
    is_ended: bool,
    record: ServedClient,
}

/// Role of the session towards the caller.
#[derive(Debug)]
enum Role {
    None,
    Plays(PlayState),
    Ingests(Box<Ingest>),
}

#[derive(Debug)]
struct PlayState {
    flow: FlowId,
    latency: Duration,
    /// Time of the next check for dropped messages, if messages have a TTL.
    dropped_check_at: Time,
    /// Stream that another client publishes: its name and number, and the next payload.
    relay: Option<(String, u64, u64)>,
}

impl ServerSession {
    /// Creates the session of a caller that has proved its address.
    pub(super) fn new(
        shared: Arc<Shared>,
        request: Box<ConnectionRequest>,
        socket_id: u32,
        number: u64,
    ) -> ServerSession {
        ServerSession {
            record: ServedClient {
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
            liveness: Liveness::new(Time::ZERO, PEER_IDLE_TIMEOUT),
            role: Role::None,
            media_started_at: Time::ZERO,
            finish_deadline: None,
            stopped: false,
            is_ended: false,
        }
    }

    fn seed(&self, of: u64) -> u64 {
        derive_seed(&[self.shared.config.seed, 3, self.number, of])
    }

    /// Messages that the server sends in message mode.
    fn messages(&self) -> Option<MessageSource> {
        self.shared.config.messages
    }

    fn stream_id(&self) -> &str {
        self.record.stream_id.as_deref().unwrap_or_default()
    }

    /// Reason to reject the caller, if any.
    fn rejection_for(
        &self,
        published: &Option<Result<usize, Refusal>>,
        name: &str,
    ) -> Option<Rejection> {
        if let Some(rejection) = self.shared.config.faults.reject {
            return Some(rejection);
        }
        match published {
            Some(Err(Refusal::Taken)) => return Some(Rejection::CONFLICT),
            Some(Err(Refusal::Full)) => return Some(TOO_MANY_SESSIONS),
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
    fn accept_or_reject(&mut self, cx: &mut Context<'_>, remote: Option<SocketAddr>) {
        let Some(request) = self.request.take() else {
            return;
        };
        self.record.remote = remote.map(|remote| remote.to_string());
        let name = url::resource(self.stream_id());
        let publishes = url::publishes(self.stream_id());
        let begun = publishes.then(|| self.shared.published.begin(&name));
        if let Some(rejection) = self.rejection_for(&begun, &name) {
            let now = cx.now;
            cx.transmit(CHANNEL, None, |out| request.reject(rejection, now, out));
            if let Some(Ok(_)) = begun {
                self.shared.published.end(&name);
            }
            return self.rejected(cx, rejection);
        }
        self.clock = SocketClock::new(cx.now);
        let ip = remote.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |remote| remote.ip());
        let live = HandshakeSettings {
            receive_latency: self.shared.config.latency,
            send_latency: self.shared.config.latency,
            secret: self.shared.secret(),
            // A listener uses the caller's number.
            ..HandshakeSettings::live(
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
        self.liveness = Liveness::new(cx.now, PEER_IDLE_TIMEOUT);
        self.media_started_at = cx.now;
        match begun {
            Some(Ok(index)) => self.start_ingest(negotiated, name, index),
            _ => self.start_playing(cx, negotiated, name, remote),
        }
    }

    fn rejected(&mut self, cx: &mut Context<'_>, rejection: Rejection) {
        self.record.rejected = Some(rejection.to_string());
        self.end(cx, Outcome::Completed);
    }

    fn start_ingest(&mut self, negotiated: Negotiated, name: String, index: usize) {
        self.record.published = true;
        let messages = self.messages().is_some();
        let ingest = Ingest::new(negotiated, self.clock, messages, name, index);
        self.role = Role::Ingests(Box::new(ingest));
    }

    fn start_playing(
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
            None => shared.media.bandwidth(OVERHEAD),
        };
        let ttl = self.messages().map(|messages| messages.ttl);
        let sender = source_media::new_sender(&mut negotiated, self.clock, bandwidth, ttl);
        let media = match joined {
            Some(_) => SourceFlow::pushed(sender),
            None => {
                let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
                let settings = SourceSettings {
                    address: remote.unwrap_or(nowhere),
                    source: self.seed(2),
                    wall_clock: shared.config.wall_clock,
                    length: shared.config.length,
                };
                let mut flow = shared.media.flow(settings, sender);
                flow.start(cx.now);
                flow
            }
        };
        let faults = shared.config.faults.flow;
        let flow = PlayerFlow::new(media, faults, cx.now, self.seed(3));
        let flow = cx.flows.insert(flow);
        cx.out.push_back(Output::StartFlow {
            flow,
            channel: CHANNEL,
        });
        let relay = joined.map(|joined| {
            let topic = topic(joined.index);
            cx.out.push_back(Output::Subscribe { topic });
            (name, joined.serial, joined.next)
        });
        let ask_at = match ttl {
            Some(Some(_)) => cx.now,
            _ => Time::NEVER,
        };
        self.role = Role::Plays(PlayState {
            flow,
            latency,
            dropped_check_at: ask_at,
            relay,
        });
    }

    fn header(&self, now: Time) -> ControlHeader {
        ControlHeader::sent_at(now, self.clock, self.peer)
    }

    fn datagram(&mut self, cx: &mut Context<'_>, datagram: &Datagram<'_>) {
        let Ok(packet) = Packet::parse(datagram.bytes) else {
            self.record.malformed += 1;
            return;
        };
        self.liveness.record_received(datagram.at);
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
            Role::Plays(sending) => cx.flows.access_as(sending.flow, |flow: &mut PlayerFlow| {
                flow.media().sender().control(control, at);
            }),
            Role::Ingests(ingest) => {
                if let Control::UserDefined {
                    subtype: Extension::KM_REQUEST,
                    cif,
                    ..
                } = *control
                    && let Some(reply) = ingest.key_request(cif)
                {
                    let reply = Control::UserDefined {
                        subtype: Extension::KM_RESPONSE,
                        info: 0,
                        cif: &reply,
                    };
                    cx.transmit(CHANNEL, None, |out| reply.write(header, out));
                }
                let shared = &self.shared;
                let (media, mut wanted) = (&mut self.record.media, false);
                ingest.control(control, timestamp, at, |name, message| {
                    *media += 1;
                    wanted |= shared.published.push(name, message, None);
                });
                if wanted {
                    send_topic_message(cx, ingest.index, STREAM_MORE);
                }
            }
        }
    }

    fn data(&mut self, cx: &mut Context<'_>, header: &DataHeader, payload: &[u8], at: Time) {
        let Role::Ingests(ingest) = &mut self.role else {
            return;
        };
        let shared = &self.shared;
        let (media, mut wanted) = (&mut self.record.media, false);
        let could = ingest.data(header, payload, at, |name, payload| {
            *media += 1;
            wanted |= shared.published.push(name, payload, None);
        });
        self.record.undecryptable += u64::from(!could);
        if wanted {
            send_topic_message(cx, ingest.index, STREAM_MORE);
        }
    }

    /// Handles a message on the topic of a relayed stream: more media is available, or the stream
    /// has ended.
    fn handle_topic_message(&mut self, cx: &mut Context<'_>, message: &str) {
        let Role::Plays(PlayState {
            flow,
            relay: Some((name, _, next)),
            ..
        }) = &mut self.role
        else {
            return;
        };
        let (payloads, end) = self.shared.published.items_from(name, *next);
        *next = end;
        let messages = self.shared.config.messages;
        let (now, media) = (cx.now, &mut self.record.media);
        cx.flows.access_as(*flow, |flow: &mut PlayerFlow| {
            let sender = flow.media().sender();
            for payload in payloads {
                *media += 1;
                // The sender counts refused payloads.
                let _ = match messages {
                    None => sender.push(now, payload),
                    Some(own) => sender.push_message(now, &payload, own.in_order),
                };
            }
        });
        if message == STREAM_ENDED {
            self.finish(cx, Time::NEVER);
        }
    }

    /// Stops sending media, and waits until sent media has been played, but not beyond `until`.
    /// Waits for messages until all of them are acknowledged or dropped. Returns `false` if there
    /// is nothing to wait for.
    fn finish(&mut self, cx: &mut Context<'_>, until: Time) -> bool {
        let Role::Plays(sending) = &self.role else {
            return false;
        };
        if self.finish_deadline.is_none() {
            cx.flows
                .access_as(sending.flow, |flow: &mut PlayerFlow| flow.media().finish());
            self.finish_deadline = Some(match self.messages() {
                None => (cx.now + sending.latency + DELIVERY_MARGIN).min(until),
                Some(_) => until,
            });
        }
        true
    }

    /// Handles the end of the flow: everything that was sent is acknowledged, dropped or too late.
    fn flow_ended(&mut self, cx: &mut Context<'_>) {
        self.finish(cx, Time::NEVER);
        if let (Some(until), Some(_)) = (self.finish_deadline, self.messages()) {
            self.finish_deadline = Some(until.min(cx.now + DELIVERY_MARGIN));
        }
    }

    /// Does the work that is due.
    fn process_due(&mut self, cx: &mut Context<'_>) {
        let (now, faults) = (cx.now, self.shared.config.faults);
        let header = self.header(now);
        match &mut self.role {
            Role::None => return,
            Role::Plays(sending) => {
                let flow = sending.flow;
                if now >= sending.dropped_check_at {
                    sending.dropped_check_at = now + DROPPED_CHECK_INTERVAL;
                }
                loop {
                    let mut answer = Vec::new();
                    let more = cx.flows.access_as(flow, |flow: &mut PlayerFlow| {
                        flow.media().sender().write_next(now, &mut answer)
                    });
                    if !more {
                        break;
                    }
                    cx.transmit(CHANNEL, None, |out| out.extend_from_slice(&answer));
                }
                let stops = time_after(self.media_started_at, faults.stop_after);
                let stops = stops.min(time_after(self.media_started_at, faults.silent_after));
                // Requested retransmissions stop as well.
                if now >= stops && !std::mem::replace(&mut self.stopped, true) {
                    cx.out.push_back(Output::StopFlow { flow });
                }
            }
            Role::Ingests(ingest) => loop {
                let mut more = false;
                cx.transmit(CHANNEL, None, |out| {
                    more = ingest.receiver.write_next(now, out);
                });
                if !more {
                    break;
                }
                self.liveness.record_sent(now);
            },
        }
        let silent = now >= time_after(self.media_started_at, faults.silent_after);
        if self.liveness.take_keepalive_due(now) && !silent {
            cx.transmit(CHANNEL, None, |out| Control::KeepAlive.write(header, out));
        }
        let is_over = now >= time_after(self.media_started_at, faults.close_after)
            || self.finish_deadline.is_some_and(|until| now >= until);
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
            Role::Plays(sending) => {
                let flow = sending.flow;
                cx.out.push_back(Output::StopFlow { flow });
                let mut flow: Box<PlayerFlow> = cx.flows.remove_as(flow);
                self.record.sent = flow.media().departure_counts();
                self.record.delays = flow.delays;
                self.record.wrongs = flow.fault_counts;
                let counted = flow.media().sender().statistics();
                let messages = flow.media().sender().messages();
                if sending.relay.is_none() {
                    let messages = messages.map(|messages| messages.taken);
                    self.record.media = messages.unwrap_or(counted.pkt_sent_unique);
                }
                self.record.messages = messages.map(|sent| ServedMessages {
                    sent: Some(sent),
                    received: None,
                });
                self.record.sender = Some(Box::new(counted));
                if let Some((name, serial, _)) = sending.relay {
                    self.shared.published.leave(&name, serial);
                }
            }
            Role::Ingests(mut ingest) => {
                ingest.receiver.finish(cx.now);
                self.record.messages = ingest.messages().map(|received| ServedMessages {
                    sent: None,
                    received: Some(received),
                });
                self.record.receiver = Some(Box::new(ingest.receiver.statistics()));
                send_topic_message(cx, ingest.index, STREAM_ENDED);
                self.shared.published.end(&ingest.name);
            }
        }
        self.finish_deadline = None;
        self.is_ended = true;
        let done = std::mem::take(&mut self.record);
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
fn send_topic_message(cx: &mut Context<'_>, index: usize, message: &str) {
    cx.out.push_back(Output::Publish {
        topic: topic(index),
        message: message.into(),
    });
}

impl Session for ServerSession {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        match input {
            Input::Opened { remote, .. } => self.accept_or_reject(cx, remote),
            Input::Datagrams { datagrams, .. } => {
                for datagram in datagrams {
                    if matches!(self.role, Role::None) {
                        return;
                    }
                    self.datagram(cx, datagram);
                }
            }
            Input::TopicMessage { message, .. } => self.handle_topic_message(cx, message),
            // All media of a stream with a fixed length is acknowledged or too late.
            Input::FlowEnded { .. } => self.flow_ended(cx),
            Input::Stop { until } => {
                let waits = until > cx.now && self.finish(cx, until);
                if !waits && !self.is_ended {
                    self.shut_down(cx, Outcome::Stopped);
                }
            }
            _ => {}
        }
        self.process_due(cx);
    }

    fn deadline(&self) -> Option<Time> {
        let faults = &self.shared.config.faults;
        let own = match &self.role {
            Role::None => return None,
            Role::Plays(sending) => {
                let over = self.finish_deadline.unwrap_or(Time::NEVER);
                over.min(sending.dropped_check_at)
            }
            Role::Ingests(ingest) => ingest.receiver.due(),
        };
        let due = own.min(self.liveness.due());
        let due = due.min(time_after(self.media_started_at, faults.close_after));
        let stops = time_after(self.media_started_at, faults.stop_after);
        let stops = stops.min(time_after(self.media_started_at, faults.silent_after));
        let sends = matches!(self.role, Role::Plays(_));
        Some(match sends && !self.stopped {
            true => due.min(stops),
            false => due,
        })
    }
}
