//! Receiver side: receives the media of one client, whose signalling runs elsewhere.
//!
//! A client that proves it knows the secret requests streams. Each stream gets a pair of ports at
//! the address where the client has reached this machine, and the client learns the ports before
//! any server does. The end of the connection, for whatever reason, closes the ports.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use measure::Time;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::messages::{
    ClientMessage, LINE_MAX, LineSplitter, ReceiverMessage, STREAMS_MAX, StreamRequest,
    StreamState, VERSION, to_line,
};
use super::proof::{Secret, challenge_of, is_valid_proof};
use crate::media::rtcp::{self, Packet, ReportInterval};
use crate::media::rtp::{ReceiverConfig, RtpReceiver};
use session::{
    ChannelId, Context, Input, MediaEvent, Open, Outcome, Output, Port, Session, SinkId,
    udp_bind_address,
};

/// Channel of the connection.
const CONTROL: ChannelId = ChannelId(0);

/// Maximum time for a new connection to prove that it knows the secret.
pub const PROOF_TIMEOUT: Duration = Duration::from_secs(3);

/// Minimum of the bound on unproven connections, if fewer streams may be open.
const UNPROVEN_MIN: usize = 64;

/// Share of the unproven connections that is dropped at the bound (1/8): one message then makes
/// room for several new ones.
const DROPPED_SHARE: usize = 8;

/// Topic of the messages that drop unproven sessions. A message is the number of the newest session
/// to drop.
const DROPPED: &str = "unproven connections of a receiver";

/// Maximum length of a line from an unproven connection, in bytes. Its proof may be followed by
/// requests for streams, of some hundred bytes each.
const UNPROVEN_LINE_MAX: usize = 4096;

/// Permitted interval between interim counts.
const INTERIM_INTERVAL: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(50)..=Duration::from_millis(500);

/// Terms under which a receiver accepts clients, shared by all its sessions.
#[derive(Debug)]
pub struct Terms {
    secret: Secret,
    /// Random key of the challenges.
    key: [u8; 32],
    /// Maximum number of open streams.
    streams_max: usize,
    open: AtomicUsize,
    refused: AtomicU64,
    /// Numbers of the connections that have not yet proven that they know the secret. A lower
    /// number is older.
    unproven: Mutex<BTreeSet<u64>>,
}

impl Terms {
    /// Terms for clients that know `secret`, with at most `streams_max` open streams. `key` must be
    /// random and private.
    pub fn new(secret: Secret, key: [u8; 32], streams_max: usize) -> Terms {
        Terms {
            secret,
            key,
            streams_max,
            open: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            unproven: Mutex::default(),
        }
    }

    /// Maximum number of unproven connections: the maximum number of streams, because a run may
    /// start all its clients at once, and at least 64.
    pub fn unproven_max(&self) -> usize {
        self.streams_max.max(UNPROVEN_MIN)
    }

    /// Number of connections that have not yet proven that they know the secret.
    pub fn unproven(&self) -> usize {
        self.numbers().len()
    }

    fn numbers(&self) -> std::sync::MutexGuard<'_, BTreeSet<u64>> {
        // Each change of the set is atomic, so a panic elsewhere leaves no inconsistent state.
        self.unproven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an unproven connection. If it exceeds the bound, the oldest eighth is removed, which
    /// had the most time, and the number of the newest removed connection is returned.
    fn add_unproven(&self, number: u64) -> Option<u64> {
        let mut numbers = self.numbers();
        numbers.insert(number);
        if numbers.len() <= self.unproven_max() {
            return None;
        }
        let last = *numbers
            .iter()
            .nth(self.unproven_max() / DROPPED_SHARE - 1)?;
        *numbers = numbers.split_off(&(last + 1));
        Some(last)
    }

    /// Removes a connection that is proven or closed.
    fn remove_unproven(&self, number: u64) {
        self.numbers().remove(&number);
    }

    /// Number of open streams.
    pub fn streams(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Number of refused connections, for whatever reason: no or a wrong secret, a violation of the
    /// protocol, too many streams.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Counts a refused connection.
    pub fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the challenge of a connection.
    pub fn challenge(&self, number: u64) -> String {
        challenge_of(&self.key, number)
    }

    /// Returns `true` if the proof matches the challenge and the secret.
    pub fn proves(&self, proof: &str, challenge: &str) -> bool {
        is_valid_proof(proof, &self.secret, challenge)
    }

    /// Reserves a stream. Returns `false` if the maximum is reached.
    fn reserve_stream(&self) -> bool {
        let more = |open| (open < self.streams_max).then_some(open + 1);
        self.open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    fn release_stream(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that is received.
#[derive(Debug)]
struct Stream {
    wanted: StreamRequest,
    sink: SinkId,
    channel: ChannelId,
    /// `true` once its ports are open.
    is_open: bool,
    /// The server's port for RTCP; 0 if unknown.
    control_port: u16,
    report: Option<Time>,
    bye: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waiting for the proof, until this time.
    Proof(Time),
    /// Proven: all requests are accepted.
    Open,
    Ended,
}

/// Receives the media of one client.
#[derive(Debug)]
pub struct Receiver {
    terms: Arc<Terms>,
    number: u64,
    challenge: String,
    random: Pcg64Mcg,
    ssrc: u32,
    phase: Phase,
    lines: LineSplitter,
    local: Option<SocketAddr>,
    streams: Vec<Stream>,
    next_channel: u32,
    /// Time of the next interim counts, and their interval.
    interim_at: Option<Time>,
    interim_interval: Duration,
}

impl Receiver {
    /// Creates the session of a connection. Numbers of sessions with the same terms must increase.
    pub fn new(terms: Arc<Terms>, number: u64) -> Receiver {
        let mut random = Pcg64Mcg::seed_from_u64(number);
        Receiver {
            challenge: terms.challenge(number),
            terms,
            number,
            ssrc: random.next_u32(),
            random,
            phase: Phase::Proof(Time::NEVER),
            lines: LineSplitter::default(),
            local: None,
            streams: Vec::new(),
            next_channel: 1,
            interim_at: None,
            interim_interval: *INTERIM_INTERVAL.end(),
        }
    }

    fn send(&self, cx: &mut Context<'_>, message: &ReceiverMessage) {
        cx.out.push_back(Output::Send {
            channel: CONTROL,
            port: Port::Media,
            bytes: to_line(message),
        });
    }

    /// Refuses the client and ends.
    fn refuse(&mut self, cx: &mut Context<'_>, why: &str) {
        if self.phase == Phase::Ended {
            return;
        }
        self.terms.refuse();
        let why = why.to_owned();
        self.send(cx, &ReceiverMessage::Refused { why });
        self.end(cx);
    }

    fn handle_line(&mut self, cx: &mut Context<'_>, text: &[u8]) {
        if self.phase == Phase::Ended {
            return;
        }
        let Ok(asked) = serde_json::from_slice::<ClientMessage>(text) else {
            return self.refuse(cx, "malformed message");
        };
        if let Phase::Proof(_) = self.phase {
            match asked {
                ClientMessage::Proof { proof } if self.terms.proves(&proof, &self.challenge) => {
                    self.phase = Phase::Open;
                    self.terms.remove_unproven(self.number);
                }
                ClientMessage::Proof { .. } => self.refuse(cx, "wrong secret"),
                _ => self.refuse(cx, "proof of the secret expected"),
            }
            return;
        }
        match asked {
            ClientMessage::Proof { .. } => {}
            ClientMessage::Open(wanted) => self.open(cx, wanted),
            ClientMessage::Peer {
                stream,
                media,
                control,
            } => {
                if let Some(stream) = self.stream(stream) {
                    stream.control_port = control.port();
                    let channel = stream.channel;
                    cx.out.push_back(Output::Peer {
                        channel,
                        media,
                        control,
                    });
                }
            }
            ClientMessage::Base {
                stream,
                sequence,
                rtptime,
            } => {
                if let Some(stream) = self.stream(stream) {
                    let receiver = cx.sinks.get::<RtpReceiver>(stream.sink);
                    receiver.set_base(sequence, rtptime, cx.recorder);
                }
            }
            ClientMessage::Close => self.end(cx),
        }
    }

    fn stream(&mut self, number: u8) -> Option<&mut Stream> {
        self.streams
            .iter_mut()
            .find(|stream| stream.wanted.stream == number)
    }

    fn open(&mut self, cx: &mut Context<'_>, wanted: StreamRequest) {
        let Some(local) = self.local else { return };
        let known = self.stream(wanted.stream).is_some();
        if !wanted.is_valid() || known || self.streams.len() >= usize::from(STREAMS_MAX) {
            return self.refuse(cx, "invalid or duplicate stream");
        }
        if !self.terms.reserve_stream() {
            return self.refuse(cx, "no more streams; see --max-streams");
        }
        let receiver = RtpReceiver::new(&ReceiverConfig {
            clock_rate: wanted.clock_rate,
            payload_types: wanted.payload_types.clone(),
            playout_buffer: Duration::from_nanos(wanted.playout_buffer),
        });
        let sink = cx.sinks.insert(receiver);
        let channel = ChannelId(self.next_channel);
        self.next_channel += 1;
        let every = Duration::from_nanos(wanted.every)
            .clamp(*INTERIM_INTERVAL.start(), *INTERIM_INTERVAL.end());
        self.interim_interval = self.interim_interval.min(every);
        self.streams.push(Stream {
            wanted,
            sink,
            channel,
            is_open: false,
            control_port: 0,
            report: None,
            bye: false,
        });
        cx.out.push_back(Output::Open {
            channel,
            open: Open::UdpPair {
                local: udp_bind_address(local.ip()),
                sink: Some(sink),
                shared: false,
            },
        });
    }

    /// The ports of a stream are open.
    fn opened(&mut self, cx: &mut Context<'_>, channel: ChannelId, port: u16) {
        let Some(local) = self.local else { return };
        let stream = self.streams.iter_mut().find(|s| s.channel == channel);
        if let Some(stream) = stream {
            stream.is_open = true;
            let message = ReceiverMessage::Opened {
                stream: stream.wanted.stream,
                address: local.ip(),
                port,
            };
            self.send(cx, &message);
        }
    }

    fn media_event(&mut self, cx: &mut Context<'_>, sink: SinkId, event: MediaEvent) {
        let Some(index) = self.streams.iter().position(|s| s.sink == sink) else {
            return;
        };
        match event {
            MediaEvent::First { at } => {
                let message = ReceiverMessage::First {
                    stream: self.streams[index].wanted.stream,
                    age: age(cx.now, at),
                };
                self.send(cx, &message);
                self.interim_at
                    .get_or_insert(cx.now + self.interim_interval);
                if self.streams[index].wanted.reports {
                    self.streams[index].report = Some(cx.now + self.report_interval(true));
                }
            }
            MediaEvent::SourceChanged { .. } => self.streams[index].bye = false,
            // The receiver is informed of the first position only.
            MediaEvent::Position { .. }
            | MediaEvent::ClockJumped { .. }
            | MediaEvent::FeedbackDue { .. }
            | MediaEvent::Foreign { .. }
            | MediaEvent::FirstTransportNumber => {}
        }
    }

    /// Handles RTCP of a stream. Malformed packets are ignored.
    fn reports(&mut self, cx: &mut Context<'_>, index: usize, bytes: &[u8], at: Time) {
        for packet in rtcp::packets(bytes) {
            let stream = &mut self.streams[index];
            let receiver = cx.sinks.get::<RtpReceiver>(stream.sink);
            match packet {
                Ok(Packet::SenderReport { info, .. }) => {
                    receiver.sender_report(&info, at, cx.recorder);
                }
                // Reported once: a single datagram has room for thousands.
                Ok(Packet::Bye { .. }) if stream.bye => {}
                Ok(Packet::Bye { sources, .. }) => {
                    let ssrc = receiver.ssrc();
                    // VLC's BYE names no source, or source 0.
                    let means = |ssrc| sources.contains(&ssrc) || matches!(sources[..], [] | [0]);
                    if ssrc.is_none_or(means) {
                        if let Some(ssrc) = ssrc {
                            receiver.source_ended(ssrc);
                        }
                        stream.bye = true;
                        let stream = stream.wanted.stream;
                        // The counts before the BYE must arrive first.
                        self.send_interim_counts(cx);
                        let age = age(cx.now, at);
                        self.send(cx, &ReceiverMessage::Bye { stream, age });
                    }
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }

    /// Returns the next report interval, about 5 s (RFC 3550, 6.2).
    fn report_interval(&mut self, first: bool) -> Duration {
        const BANDWIDTH: f64 = 1e6;
        let random = self.random.next_u32() as f64 / (f64::from(u32::MAX) + 1.0);
        ReportInterval::point_to_point(false, BANDWIDTH, first).next(random)
    }

    fn due_reports(&mut self, cx: &mut Context<'_>) {
        for index in 0..self.streams.len() {
            if self.streams[index].report.is_none_or(|due| cx.now < due) {
                continue;
            }
            let next = cx.now + self.report_interval(false);
            let stream = &mut self.streams[index];
            stream.report = Some(next);
            if stream.bye || stream.control_port == 0 {
                continue;
            }
            let block = cx
                .sinks
                .get::<RtpReceiver>(stream.sink)
                .report_block(cx.now);
            let mut bytes = Vec::with_capacity(80);
            rtcp::write_receiver_report(&mut bytes, self.ssrc, &[block]);
            rtcp::write_cname(&mut bytes, self.ssrc, &format!("{:08x}", self.ssrc));
            cx.out.push_back(Output::Send {
                channel: stream.channel,
                port: Port::Control,
                bytes,
            });
        }
    }

    fn state(stream: &Stream, cx: &mut Context<'_>) -> StreamState {
        let receiver = cx.sinks.get::<RtpReceiver>(stream.sink);
        let arrivals = receiver.first_arrival().zip(receiver.last_arrival());
        StreamState {
            stream: stream.wanted.stream,
            ages: arrivals.map(|(first, last)| (age(cx.now, first), age(cx.now, last))),
            counts: *receiver.counts(),
            stalled: u64::try_from(receiver.stalled().as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Sends the counts of all streams that have received packets.
    fn send_interim_counts(&mut self, cx: &mut Context<'_>) {
        for stream in &self.streams {
            let state = Receiver::state(stream, cx);
            if state.ages.is_some() {
                self.send(cx, &ReceiverMessage::Seen(state));
            }
        }
    }

    /// Finishes counting, closes all channels, and sends the final counts.
    fn end(&mut self, cx: &mut Context<'_>) {
        if self.phase == Phase::Ended {
            return;
        }
        let mut states = Vec::new();
        for stream in std::mem::take(&mut self.streams) {
            cx.sinks.get::<RtpReceiver>(stream.sink).finish(cx.recorder);
            states.push(Receiver::state(&stream, cx));
            if stream.is_open {
                let channel = stream.channel;
                cx.out.push_back(Output::Close { channel });
            }
            cx.sinks.remove::<RtpReceiver>(stream.sink);
            self.terms.release_stream();
        }
        if self.phase == Phase::Open {
            self.send(cx, &ReceiverMessage::Closed { streams: states });
        }
        self.phase = Phase::Ended;
        self.terms.remove_unproven(self.number);
        cx.out.push_back(Output::Close { channel: CONTROL });
        cx.out.push_back(Output::Ended(Outcome::Completed));
    }

    fn due_work(&mut self, cx: &mut Context<'_>) {
        match self.phase {
            Phase::Proof(until) if cx.now >= until => self.refuse(cx, "no proof in time"),
            Phase::Open => {
                if self.interim_at.is_some_and(|tell| cx.now >= tell) {
                    self.interim_at = Some(cx.now + self.interim_interval);
                    self.send_interim_counts(cx);
                }
                self.due_reports(cx);
            }
            _ => {}
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.terms.remove_unproven(self.number);
        for _ in &self.streams {
            self.terms.release_stream();
        }
    }
}

impl Session for Receiver {
    fn handle(&mut self, cx: &mut Context<'_>, input: Input<'_>) {
        if self.phase == Phase::Ended {
            return;
        }
        match input {
            Input::Start { .. } => {
                self.phase = Phase::Proof(cx.now + PROOF_TIMEOUT);
                let topic = DROPPED.to_owned();
                cx.out.push_back(Output::Subscribe { topic });
                if let Some(last) = self.terms.add_unproven(self.number) {
                    cx.out.push_back(Output::Publish {
                        topic: DROPPED.to_owned(),
                        message: last.to_string().into(),
                    });
                }
            }
            Input::TopicMessage { message, .. } => {
                let dropped = message.parse().is_ok_and(|last| self.number <= last);
                if dropped && matches!(self.phase, Phase::Proof(_)) {
                    self.refuse(cx, "dropped for newer connections before it was proven");
                }
            }
            Input::Opened {
                channel: CONTROL,
                local,
                ..
            } => {
                // An IPv4 address may be reported as an IPv4-mapped IPv6 address (RFC 4291,
                // 2.5.5.2).
                let ip = local.ip().to_canonical();
                self.local = Some(SocketAddr::new(ip, local.port()));
                let hello = ReceiverMessage::Hello {
                    version: VERSION,
                    challenge: self.challenge.clone(),
                };
                self.send(cx, &hello);
            }
            Input::Opened { channel, local, .. } => self.opened(cx, channel, local.port()),
            Input::OpenFailed { error, .. } => {
                let why = format!("cannot open ports: {error}");
                self.send(cx, &ReceiverMessage::Refused { why });
                self.end(cx);
            }
            Input::Bytes { bytes, .. } => {
                let line_max = match self.phase {
                    Phase::Proof(_) => UNPROVEN_LINE_MAX,
                    _ => LINE_MAX,
                };
                let mut lines = std::mem::take(&mut self.lines);
                let fed = lines.feed(bytes, line_max, |text| self.handle_line(cx, text));
                self.lines = lines;
                if fed.is_err() {
                    self.refuse(cx, "line too long");
                }
            }
            Input::Datagram {
                channel,
                port: Port::Control,
                bytes,
                at,
                ..
            } => {
                if let Some(index) = self.streams.iter().position(|s| s.channel == channel) {
                    self.reports(cx, index, bytes, at);
                }
            }
            Input::Media { sink, event } => self.media_event(cx, sink, event),
            Input::Closed { .. } | Input::Stop { .. } => self.end(cx),
            _ => {}
        }
        self.due_work(cx);
    }

    fn deadline(&self) -> Option<Time> {
        match self.phase {
            Phase::Proof(until) => Some(until),
            Phase::Open => {
                let reports = self.streams.iter().filter_map(|stream| stream.report);
                reports.chain(self.interim_at).min()
            }
            Phase::Ended => None,
        }
    }
}

/// Age of an event in nanoseconds.
fn age(now: Time, at: Time) -> u64 {
    u64::try_from(now.since(at).as_nanos()).unwrap_or(u64::MAX)
}
