//! Client: calls a listener or meets its peer in a rendezvous, and plays or publishes until it is
//! stopped or the stream ends.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use measure::Time;

use super::arq::liveness::Liveness;
use super::codec::packet::{Control, ControlHeader, PAYLOAD_MAX, Packet};
use super::codec::stream_id::StreamId;
use super::config::{ClientConfig, Mode};
use super::crypto::{Passphrase, Secret};
use super::failure::Failure;
use super::handshake::{HandshakeSettings, Negotiated};
use super::metrics as m;
use super::seq::{SeqNumber, SocketClock};
use super::source_media::SourceMedia;
use super::url::Url;
use kit::connect_failure::ConnectFailure;
use kit::lifecycle::{Addresses, MediaTimes};
use kit::metrics as clients;
use kit::publication::{self, Publisher};
use kit::url::{UrlError, UrlProblem};
use session::seeds::derive_seed;
use session::{
    ChannelId, Context, Datagram, Input, MediaEvent, Open, Output, ReadTiming, Session, SinkId,
    Sinks, SocketMedia, StreamRow,
};

mod ack_schedule;
mod connecting;
mod end;
mod media_receiver;
mod message_counter;
pub(super) mod player_sink;
mod publish;
#[cfg(test)]
mod tests;
mod zap;

use ack_schedule::AckSchedule;
use connecting::ClientHandshake;
use media_receiver::MediaReceiver;
use player_sink::PlayerSink;
use publish::PublishState;

/// Number of consecutive malformed packets after which the client gives up: the server speaks
/// another protocol.
const MALFORMED_MAX: u32 = 1000;

/// Grid of wake-ups: deferred work is done up to this much later, so that all clients of a worker
/// wake up together. A wake-up costs more than the acknowledgements that are then sent.
const WAKEUP_GRID: Duration = Duration::from_millis(5);

/// Interval of reads from sockets. libsrt sends a NAK within 0.1 ms of a gap.
const MEDIA_READ_INTERVAL: Duration = Duration::from_micros(500);

/// Interval at which the RTT is sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// State of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// The socket is being opened.
    Opening,
    Handshake,
    /// Media arrives, or is expected.
    Playing,
    Publishing,
    /// No more media is sent, but sent media must still arrive.
    Finishing,
    Ended,
}

/// A client of one URL.
#[derive(Debug)]
pub struct Client {
    config: Arc<ClientConfig>,
    url: Url,
    seed: u64,
    phase: Phase,
    /// Local address and that of the server, once the socket is open.
    addresses: Option<Addresses>,
    /// Source of datagrams from another address than the server's.
    foreign_source: Option<IpAddr>,
    clock: SocketClock,
    socket_id: u32,
    /// Current socket. A rendezvous opens a new one whenever the peer's port is unreachable.
    channel: ChannelId,
    /// Handshake. A rendezvous keeps it while the connection is open.
    handshake: Option<ClientHandshake>,
    /// Socket id of the peer, and keep-alive state, once the handshake is complete.
    peer: u32,
    liveness: Liveness,
    /// True after a channel change: the delays of a start are not measured.
    is_later_channel: bool,
    /// Planned and actual start of the client.
    planned_start: Time,
    started: Time,
    /// Start of the current wait, for the handshake or for media.
    waiting_since: Time,
    /// Sink that counts media, if the client plays; its media at the last check; and the times of
    /// the checks.
    player: Option<SinkId>,
    media_times: Option<MediaTimes>,
    ack_schedule: AckSchedule,
    /// Time of the next periodic NAK of a player.
    periodic_nak_at: Time,
    publishing: Option<Box<PublishState>>,
    malformed: u32,
    /// Time of the next check whether awaited media has arrived.
    check: Option<Time>,
    /// Time of the next sample.
    sample_at: Time,
    /// Wall clock time since 1970 at [`Time::ZERO`].
    wall_clock: Option<Duration>,
    publisher: Publisher,
}

impl Client {
    /// Creates a client that plays `url`.
    ///
    /// # Errors
    /// The URL is invalid.
    pub fn new(
        config: impl Into<Arc<ClientConfig>>,
        url: &str,
        seed: u64,
    ) -> Result<Client, UrlError> {
        let config = config.into();
        let mut url = Url::parse(url)?;
        if url.messages && !config.messages {
            let why = "the query requests messages; add `messages: true` to the clients";
            return Err(UrlProblem::Other(why.to_owned()).error_for(&url.to_string()));
        }
        if url.stream_id.is_none() {
            url.stream_id = config
                .stream_id
                .as_ref()
                .and_then(|id| StreamId::new(id).ok());
        }
        Ok(Client {
            config,
            url,
            seed,
            phase: Phase::Idle,
            addresses: None,
            foreign_source: None,
            clock: SocketClock::new(Time::ZERO),
            // Not 0, and of 30 bits, like those of libsrt.
            socket_id: (derive_seed(&[seed, 1]) as u32 & 0x3fff_ffff).max(1),
            channel: ChannelId(0),
            handshake: None,
            peer: 0,
            liveness: Liveness::new(Time::ZERO, Duration::MAX / 4),
            is_later_channel: false,
            planned_start: Time::ZERO,
            started: Time::ZERO,
            waiting_since: Time::ZERO,
            player: None,
            media_times: None,
            ack_schedule: AckSchedule::new(seed),
            periodic_nak_at: Time::NEVER,
            publishing: None,
            malformed: 0,
            check: None,
            sample_at: Time::NEVER,
            wall_clock: None,
            publisher: Publisher::default(),
        })
    }

    /// Sets the wall clock time since 1970 at [`Time::ZERO`], from which the delay of stamped media
    /// is computed.
    pub fn with_wall_clock(mut self, wall_clock: Duration) -> Client {
        self.wall_clock = Some(wall_clock);
        self
    }

    /// Makes the client publish `media` instead of playing.
    pub fn publishing(mut self, media: impl Into<SourceMedia>) -> Client {
        self.publishing = Some(Box::new(PublishState::new(media.into())));
        self
    }

    fn open(&mut self, cx: &mut Context<'_>) {
        self.waiting_since = cx.now;
        self.check = None;
        self.open_socket(cx);
    }

    fn open_socket(&mut self, cx: &mut Context<'_>) {
        self.phase = Phase::Opening;
        if self.publishing.is_none() && self.player.is_none() {
            self.player = Some(cx.sinks.insert(PlayerSink::new(self.socket_id)));
        }
        // In a rendezvous, media of a peer that is already connected completes the handshake, so
        // the session must receive it.
        let sink = self.player.filter(|_| self.mode() == Mode::Caller);
        cx.out.push_back(Output::Open {
            channel: self.channel,
            open: Open::UdpToHost {
                host: self.url.host.clone(),
                port: self.url.port,
                local_port: self.local_port(),
                timeout: self.connect_timeout(),
                // The session waits for the handshake.
                reading: ReadTiming::AtOnce,
                media: sink.map(|sink| SocketMedia {
                    sink,
                    filter: player_sink::MARK,
                }),
            },
        });
    }

    fn connect_timeout(&self) -> Duration {
        let written = self.url.connect_timeout;
        written.unwrap_or(self.config.connect_timeout.0)
    }

    fn carries_messages(&self) -> bool {
        self.config.messages
    }

    fn latency(&self) -> Duration {
        self.url.latency.unwrap_or(self.config.latency.0)
    }

    fn secret(&self) -> Option<Secret> {
        let own = self.config.passphrase.as_ref();
        let own = || own.and_then(|text| Passphrase::new(text).ok());
        let passphrase = self.url.passphrase.clone().or_else(own)?;
        Some(Secret {
            passphrase,
            key_length: self.url.key_length.unwrap_or(self.config.key_length),
            cipher: self.url.cipher.unwrap_or(self.config.cipher),
        })
    }

    fn opened(&mut self, cx: &mut Context<'_>, local: SocketAddr, remote: Option<SocketAddr>) {
        if self.phase != Phase::Opening {
            return;
        }
        self.addresses = Some((local, remote));
        self.phase = Phase::Handshake;
        // The handshake continues over the new socket.
        if self.handshake.is_some() {
            return;
        }
        self.clock = SocketClock::new(cx.now);
        let ip = remote.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |remote| remote.ip());
        let first = SeqNumber::new(derive_seed(&[self.seed, 2]) as u32);
        let waited = cx.now.since(self.waiting_since);
        let settings = HandshakeSettings {
            receive_latency: self.latency(),
            send_latency: match self.publishing {
                Some(_) => self.url.peer_latency.unwrap_or(self.config.latency.0),
                None => self.url.peer_latency.unwrap_or_default(),
            },
            secret: self.secret(),
            timeout: self.connect_timeout().saturating_sub(waited),
            ..HandshakeSettings::live(
                self.socket_id,
                first,
                self.clock,
                ip,
                derive_seed(&[self.seed, 3]),
            )
        };
        let settings = match self.carries_messages() {
            true => settings.messages(),
            false => settings,
        };
        let handshake =
            ClientHandshake::new(self.mode(), settings, self.url.stream_id.clone(), cx.now);
        self.handshake = Some(handshake);
    }

    /// Time at which the RTT and the send buffer are sampled next, and sent packets are counted.
    fn next_sample(&self, now: Time) -> Time {
        match self.publishing {
            Some(_) => publication::next_count(now),
            None => now + SAMPLE_INTERVAL,
        }
    }

    /// Starts to publish or play over the established connection.
    fn connected(&mut self, cx: &mut Context<'_>, negotiated: Negotiated, at: Time) {
        self.handshake = self
            .handshake
            .take()
            .and_then(ClientHandshake::retained_when_connected);
        self.peer = negotiated.peer_socket_id;
        let idle = self.url.peer_idle.unwrap_or(self.config.peer_idle.0);
        self.liveness = Liveness::new(cx.now, idle);
        self.sample_at = self.next_sample(cx.now);
        if !self.is_later_channel {
            let delay = at.since(self.started);
            cx.recorder.record_duration(clients::CONNECT_DELAY, delay);
        }
        self.waiting_since = at;
        if self.publishing.is_some() {
            return self.publish(cx, negotiated);
        }
        if negotiated.tsbpd_receiving {
            cx.recorder
                .record_duration(m::AGREED_LATENCY, negotiated.receive_latency);
        }
        self.phase = Phase::Playing;
        self.check = Some(cx.now + self.config.no_media.0);
        let six = self.addresses.is_some_and(|(local, _)| local.is_ipv6());
        let receiver = MediaReceiver::new(
            negotiated,
            self.clock,
            self.planned_start,
            self.wall_clock,
            self.config.playout_buffer.0,
            six,
        );
        let receiver = match self.carries_messages() {
            true => receiver.counting_messages(),
            false => receiver,
        };
        if let Some(sink) = self.player {
            cx.sinks
                .get::<PlayerSink>(sink)
                .begin(receiver, cx.recorder);
        }
        // After the handshake, one wake-up serves all clients.
        cx.out.push_back(Output::SetReadTiming {
            channel: self.channel,
            reading: ReadTiming::MediaSoon(MEDIA_READ_INTERVAL),
        });
    }

    fn datagram(&mut self, cx: &mut Context<'_>, datagram: &Datagram<'_>) {
        let packet = Packet::parse(datagram.bytes);
        let is_handshake = matches!(packet, Ok(Packet::Control(_, Control::Handshake(_))));
        if self.handshake.is_some() && self.handle_handshake_datagram(cx, datagram, is_handshake) {
            return;
        }
        let packet = match packet {
            Ok(packet) if packet_is_for(&packet, self.socket_id) => packet,
            _ => {
                cx.recorder.add(m::PKT_MALFORMED, 1);
                self.malformed += 1;
                return self.check_malformed(cx, self.malformed);
            }
        };
        self.malformed = 0;
        self.liveness.record_received(datagram.at);
        match packet {
            Packet::Data(header, payload) => {
                if let Some(sink) = self.player {
                    let player = cx.sinks.get::<PlayerSink>(sink);
                    player.data(&header, payload, datagram.at, cx.recorder);
                }
            }
            Packet::Control(_, Control::Shutdown) => {
                self.check_media(cx);
                self.peer_shut_down(cx, datagram.at);
            }
            Packet::Control(header, control) => {
                let at = datagram.at;
                let (own, channel) = (self.header(cx.now), self.channel);
                if let Some(receiver) = self.receiver(cx.sinks) {
                    let reply = receiver.control(&control, header.timestamp, at, cx.recorder);
                    if let Some(reply) = reply {
                        let write = |out: &mut Vec<u8>| reply.write(own, out);
                        cx.outbox.add(cx.out, channel, None, write);
                    }
                } else if let Some(publishing) = &mut self.publishing {
                    publishing.control(cx, &control, at);
                }
            }
        }
    }

    /// Header of a control packet that is sent at `now`.
    fn header(&self, now: Time) -> ControlHeader {
        ControlHeader::sent_at(now, self.clock, self.peer)
    }

    /// Receiver of a client that plays, once the connection is established.
    fn receiver<'a>(&self, sinks: &'a mut Sinks) -> Option<&'a mut MediaReceiver> {
        sinks.get::<PlayerSink>(self.player?).receiver.as_mut()
    }

    /// Checks the media that has arrived so far.
    fn check_media(&mut self, cx: &mut Context<'_>) {
        let Some(sink) = self.player else { return };
        let player = cx.sinks.get::<PlayerSink>(sink);
        self.liveness.record_received(player.last_arrival_at);
        let malformed = player.malformed;
        let Some(receiver) = &mut player.receiver else {
            return;
        };
        receiver.settle(cx.now, cx.recorder);
        let before = std::mem::replace(&mut self.media_times, receiver.media_times());
        let no_stream = receiver.no_stream_detail();
        let undecryptable = receiver.is_undecryptable();
        if let (None, Some(MediaTimes { first: at, .. })) = (before, self.media_times) {
            self.check = Some(at + self.config.silence.0);
            self.record_startup(cx, at);
            cx.out.push_back(Output::Playing { at });
        }
        if let Some(detail) = no_stream {
            return self.fail(cx, Failure::NotTs, detail);
        }
        if undecryptable {
            return self.fail(cx, Failure::Undecryptable, "no packet could be decrypted");
        }
        self.check_malformed(cx, malformed);
    }

    /// Fails after too many consecutive malformed packets.
    fn check_malformed(&mut self, cx: &mut Context<'_>, in_a_row: u32) {
        if in_a_row >= MALFORMED_MAX {
            let detail = format!("{MALFORMED_MAX} consecutive malformed packets");
            self.fail(cx, Failure::MalformedPackets, detail);
        }
    }

    /// Sends the control packets that are due: acknowledgements, loss reports and keep-alives.
    fn send_due(&mut self, cx: &mut Context<'_>) {
        let now = cx.now;
        let channel = self.channel;
        let sent = match (self.player, &mut self.publishing) {
            (Some(sink), _) => {
                let Some(receiver) = &mut cx.sinks.get::<PlayerSink>(sink).receiver else {
                    return;
                };
                receiver.write(now, |write| cx.outbox.add(cx.out, channel, None, write))
            }
            (None, Some(publishing)) => publishing.write(cx, channel),
            (None, None) => return,
        };
        if self.liveness.is_lost(now) {
            let idle = self.url.peer_idle.unwrap_or(self.config.peer_idle.0);
            let last = u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX);
            let last = Time::from_nanos(now.as_nanos().saturating_sub(last));
            let detail = format!(
                "nothing received for {:.3} s, {}",
                idle.as_secs_f64(),
                self.describe_progress(last)
            );
            return self.fail(cx, Failure::PeerIdle, detail);
        }
        if sent {
            self.liveness.record_sent(now);
        } else if self.liveness.take_keepalive_due(now) {
            let header = self.header(now);
            cx.transmit(self.channel, None, |out| {
                Control::KeepAlive.write(header, out)
            });
        }
        if now >= self.sample_at {
            self.sample_at = self.next_sample(now);
            if let Some(receiver) = self.receiver(cx.sinks) {
                receiver.sample(cx.recorder);
            } else if let Some(publishing) = &mut self.publishing {
                publishing.count(cx, true);
            }
        }
    }
}

fn packet_is_for(packet: &Packet<'_>, socket_id: u32) -> bool {
    match packet {
        Packet::Data(header, payload) => {
            header.destination == socket_id && payload.len() <= PAYLOAD_MAX
        }
        Packet::Control(header, _) => header.destination == socket_id,
    }
}

/// Next time on the grid.
fn on_grid(at: Time) -> Time {
    let grid = WAKEUP_GRID.as_nanos() as u64;
    match at {
        Time::NEVER => at,
        at => Time::from_nanos(at.as_nanos().div_ceil(grid).saturating_mul(grid)),
    }
}

impl Session for Client {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        if self.phase == Phase::Ended {
            return;
        }
        match input {
            Input::Start { due } if self.phase == Phase::Idle => {
                (self.planned_start, self.started) = (due, cx.now);
                self.open(cx);
            }
            Input::Opened { local, remote, .. } => self.opened(cx, local, remote),
            Input::OpenFailed { error, .. } => {
                self.fail(cx, Failure::Connect(error.into()), error);
            }
            Input::Datagrams { datagrams, .. } => {
                for datagram in datagrams {
                    self.datagram(cx, datagram);
                    if self.phase == Phase::Ended {
                        return;
                    }
                }
            }
            Input::Closed { .. } if self.retry_rendezvous(cx) => {}
            Input::Closed { .. } => {
                let failure = match self.phase {
                    Phase::Handshake => Failure::Connect(ConnectFailure::Refused),
                    _ => Failure::Reset,
                };
                let detail = format!("port unreachable, {}", self.describe_progress(cx.now));
                self.fail(cx, failure, detail);
            }
            Input::Media {
                event: MediaEvent::Foreign { from },
                ..
            } => self.foreign_source = Some(from),
            Input::TopicMessage { message, .. } => self.publisher.handle_message(message, cx.now),
            Input::FlowEnded { .. } => self.handle_flow_end(cx),
            Input::Stop { until } => self.stop(cx, until),
            _ => {}
        }
        if self.phase == Phase::Handshake {
            self.advance_handshake(cx, cx.now);
        }
        self.check_media(cx);
        self.send_due(cx);
        self.check_timeouts(cx);
        if let Some(receiver) = self.receiver(cx.sinks) {
            receiver.plan(&mut self.ack_schedule, cx.now);
            self.periodic_nak_at = receiver.periodic_nak_at();
        }
    }

    fn deadline(&self) -> Option<Time> {
        let own = self.check.unwrap_or(Time::NEVER);
        let due = match self.phase {
            Phase::Idle | Phase::Opening | Phase::Ended => return None,
            Phase::Handshake => {
                let handshake = self.handshake.as_ref();
                handshake.map_or(own, |handshake| handshake.due())
            }
            // The other work that is due is done at the same time.
            Phase::Playing => self.ack_schedule.next_at.min(self.periodic_nak_at),
            Phase::Publishing | Phase::Finishing => {
                let publishing = self.publishing.as_ref();
                let asks =
                    publishing.map_or(Time::NEVER, |publishing| publishing.dropped_check_at());
                let due = self.liveness.due().min(self.sample_at);
                on_grid(due.min(own).min(asks))
            }
        };
        (due != Time::NEVER).then_some(due)
    }

    fn streams(&self, sinks: &mut Sinks) -> Vec<StreamRow> {
        self.rows(sinks)
    }
}
