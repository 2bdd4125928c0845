//! The receiver's side: takes the media of one client, whose signalling is elsewhere.
//!
//! A client that shows it knows the secret asks for streams; each gets a pair of ports at the
//! address where the client has reached this machine, and is told it before any server is. Whatever
//! ends the connection closes the ports.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use measure::Time;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::messages::{
    Asked, LINE_MAX, Lines, STREAMS_MAX, Said, StreamOrder, StreamState, VERSION, line,
};
use super::proof::{Secret, challenge_of, proves};
use crate::media::rtcp::{self, Interval, Packet};
use crate::media::rtp::{ReceiverConfig, RtpReceiver};
use crate::session::{
    ChannelId, Context, Input, MediaEvent, Open, Outcome, Output, Port, Session, SinkId,
    bind_beside,
};

/// The connection.
const CONTROL: ChannelId = ChannelId(0);

/// How long a new connection may take to show that it knows the secret.
pub const PROOF_WITHIN: Duration = Duration::from_secs(3);

/// How many connections may be unproven at a time where fewer streams than this may be open.
const UNPROVEN_MIN: usize = 64;

/// What share of the unproven connections is dropped when there are too many: one message then
/// makes room for several newcomers.
const DROPPED_SHARE: usize = 8;

/// On which topic unproven sessions hear that they are dropped. The message is the number of the
/// newest that is.
const DROPPED: &str = "unproven connections of a receiver";

/// The longest line of somebody who has not shown it. As he does, he may ask for streams: some
/// hundred bytes each.
const STRANGERS_LINE_MAX: usize = 4096;

/// How often the state of streams is said at the least, and at the most.
const EVERY: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(50)..=Duration::from_millis(500);

/// Under which terms a receiver takes media. Shared by all its sessions.
#[derive(Debug)]
pub struct Terms {
    secret: Secret,
    /// What challenges are made from.
    key: [u8; 32],
    /// Most streams at a time.
    most: usize,
    open: AtomicUsize,
    refused: AtomicU64,
    /// The numbers of connections that have not yet shown that they know the secret. A lower number
    /// is older.
    unproven: Mutex<BTreeSet<u64>>,
}

impl Terms {
    /// Media is taken for those who know `secret`, of `most` streams at a time. `key` is random,
    /// and known to nobody else.
    pub fn new(secret: Secret, key: [u8; 32], most: usize) -> Terms {
        Terms {
            secret,
            key,
            most,
            open: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            unproven: Mutex::default(),
        }
    }

    /// How many connections may be unproven at a time: as many as streams may be open, because a
    /// run may start all its clients at once, and at least 64.
    pub fn unproven_max(&self) -> usize {
        self.most.max(UNPROVEN_MIN)
    }

    /// How many connections have not yet shown that they know the secret.
    pub fn unproven(&self) -> usize {
        self.numbers().len()
    }

    fn numbers(&self) -> std::sync::MutexGuard<'_, BTreeSet<u64>> {
        // A set is whole between any two calls, so a panic elsewhere leaves nothing half done.
        self.unproven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an unproven connection. Where that is one too many, it returns the number of the
    /// newest of those that have to go: an eighth of all, and the oldest, which had the most time.
    fn arrived(&self, number: u64) -> Option<u64> {
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

    /// A connection is proven, or gone.
    fn no_longer_unproven(&self, number: u64) {
        self.numbers().remove(&number);
    }

    /// How many streams are open.
    pub fn streams(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// How many connections were refused, because whoever made them did not know the secret, or
    /// spoke another language.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Counts one more that was refused.
    pub fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// The challenge for the connection of that number.
    pub fn challenge(&self, number: u64) -> String {
        challenge_of(&self.key, number)
    }

    /// Whether that proves that one knows the secret.
    pub fn proves(&self, proof: &str, challenge: &str) -> bool {
        proves(proof, &self.secret, challenge)
    }

    /// Takes a stream's place, if there is one.
    fn take(&self) -> bool {
        let more = |open| (open < self.most).then_some(open + 1);
        self.open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    fn give_back(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One stream that is received.
#[derive(Debug)]
struct Stream {
    wanted: StreamOrder,
    sink: SinkId,
    channel: ChannelId,
    /// Whether its ports stand.
    stands: bool,
    /// The server's port for RTCP; 0 where it is not known.
    control_port: u16,
    report: Option<Time>,
    bye: bool,
}

/// What a session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Until then, to hear who it is.
    Proof(Time),
    /// Anything.
    Open,
    /// Nothing any more.
    Ended,
}

/// Takes the media of one client.
#[derive(Debug)]
pub struct Receiver {
    terms: Arc<Terms>,
    number: u64,
    challenge: String,
    random: Pcg64Mcg,
    ssrc: u32,
    phase: Phase,
    lines: Lines,
    local: Option<SocketAddr>,
    streams: Vec<Stream>,
    next_channel: u32,
    /// When it is next said how the streams stand, and how often that is.
    tell: Option<Time>,
    every: Duration,
}

impl Receiver {
    /// For the connection of that number. Numbers of sessions with the same terms must grow.
    pub fn new(terms: Arc<Terms>, number: u64) -> Receiver {
        let mut random = Pcg64Mcg::seed_from_u64(number);
        Receiver {
            challenge: terms.challenge(number),
            terms,
            number,
            ssrc: random.next_u32(),
            random,
            phase: Phase::Proof(Time::NEVER),
            lines: Lines::default(),
            local: None,
            streams: Vec::new(),
            next_channel: 1,
            tell: None,
            every: *EVERY.end(),
        }
    }

    fn say(&self, cx: &mut Context<'_>, said: &Said) {
        cx.out.push_back(Output::Send {
            channel: CONTROL,
            port: Port::Media,
            bytes: line(said),
        });
    }

    /// Refuses, and ends.
    fn refuse(&mut self, cx: &mut Context<'_>, why: &str) {
        if self.phase == Phase::Ended {
            return;
        }
        self.terms.refuse();
        let why = why.to_owned();
        self.say(cx, &Said::Refused { why });
        self.end(cx);
    }

    fn heard(&mut self, cx: &mut Context<'_>, text: &[u8]) {
        if self.phase == Phase::Ended {
            return;
        }
        let Ok(asked) = serde_json::from_slice::<Asked>(text) else {
            return self.refuse(cx, "that is no message of this language");
        };
        match (self.phase, asked) {
            (Phase::Ended, _) => {}
            (Phase::Proof(_), Asked::Proof { proof }) => {
                match self.terms.proves(&proof, &self.challenge) {
                    true => {
                        self.phase = Phase::Open;
                        self.terms.no_longer_unproven(self.number);
                    }
                    false => self.refuse(cx, "the secret is another"),
                }
            }
            (Phase::Proof(_), _) => self.refuse(cx, "first show that you know the secret"),
            (Phase::Open, Asked::Proof { .. }) => {}
            (Phase::Open, Asked::Open(wanted)) => self.open(cx, wanted),
            (
                Phase::Open,
                Asked::Peer {
                    stream,
                    media,
                    control,
                },
            ) => {
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
            (
                Phase::Open,
                Asked::Base {
                    stream,
                    sequence,
                    rtptime,
                },
            ) => {
                if let Some(stream) = self.stream(stream) {
                    let receiver = cx.sinks.get::<RtpReceiver>(stream.sink);
                    receiver.set_base(sequence, rtptime, cx.recorder);
                }
            }
            (Phase::Open, Asked::Close) => self.end(cx),
        }
    }

    fn stream(&mut self, number: u8) -> Option<&mut Stream> {
        self.streams
            .iter_mut()
            .find(|stream| stream.wanted.stream == number)
    }

    fn open(&mut self, cx: &mut Context<'_>, wanted: StreamOrder) {
        let Some(local) = self.local else { return };
        let known = self.stream(wanted.stream).is_some();
        if !wanted.is_sound() || known || self.streams.len() >= usize::from(STREAMS_MAX) {
            return self.refuse(cx, "such a stream cannot be meant");
        }
        if !self.terms.take() {
            return self.refuse(cx, "it takes no more streams; see its --max-streams");
        }
        let receiver = RtpReceiver::new(&ReceiverConfig {
            clock_rate: wanted.clock_rate,
            payload_types: wanted.payload_types.clone(),
            playout_buffer: Duration::from_nanos(wanted.playout_buffer),
        });
        let sink = cx.sinks.insert(receiver);
        let channel = ChannelId(self.next_channel);
        self.next_channel += 1;
        let every = Duration::from_nanos(wanted.every).clamp(*EVERY.start(), *EVERY.end());
        self.every = self.every.min(every);
        self.streams.push(Stream {
            wanted,
            sink,
            channel,
            stands: false,
            control_port: 0,
            report: None,
            bye: false,
        });
        cx.out.push_back(Output::Open {
            channel,
            open: Open::UdpPair {
                local: bind_beside(local.ip()),
                sink: Some(sink),
                shared: false,
            },
        });
    }

    /// Ports of a stream stand.
    fn opened(&mut self, cx: &mut Context<'_>, channel: ChannelId, port: u16) {
        let Some(local) = self.local else { return };
        let stream = self.streams.iter_mut().find(|s| s.channel == channel);
        if let Some(stream) = stream {
            stream.stands = true;
            let said = Said::Opened {
                stream: stream.wanted.stream,
                address: local.ip(),
                port,
            };
            self.say(cx, &said);
        }
    }

    fn media_event(&mut self, cx: &mut Context<'_>, sink: SinkId, event: MediaEvent) {
        let Some(index) = self.streams.iter().position(|s| s.sink == sink) else {
            return;
        };
        match event {
            MediaEvent::First { at } => {
                let said = Said::First {
                    stream: self.streams[index].wanted.stream,
                    age: age(cx.now, at),
                };
                self.say(cx, &said);
                self.tell.get_or_insert(cx.now + self.every);
                if self.streams[index].wanted.reports {
                    self.streams[index].report = Some(cx.now + self.report_interval(true));
                }
            }
            MediaEvent::SourceChanged { .. } => self.streams[index].bye = false,
            // It is told of no other position than the first.
            MediaEvent::Position { .. }
            | MediaEvent::ClockJumped { .. }
            | MediaEvent::FeedbackDue { .. }
            | MediaEvent::Foreign { .. }
            | MediaEvent::Numbered => {}
        }
    }

    /// RTCP of a stream. What cannot be read is let go: nothing hangs on it.
    fn reports(&mut self, cx: &mut Context<'_>, index: usize, bytes: &[u8], at: Time) {
        for packet in rtcp::packets(bytes) {
            let stream = &mut self.streams[index];
            let receiver = cx.sinks.get::<RtpReceiver>(stream.sink);
            match packet {
                Ok(Packet::SenderReport { info, .. }) => {
                    receiver.sender_report(&info, at, cx.recorder);
                }
                // Said once, however many come: one datagram has room for thousands.
                Ok(Packet::Bye { .. }) if stream.bye => {}
                Ok(Packet::Bye { sources, .. }) => {
                    let ssrc = receiver.ssrc();
                    // VLC's names no source, but 0.
                    let means = |ssrc| sources.contains(&ssrc) || matches!(sources[..], [] | [0]);
                    if ssrc.is_none_or(means) {
                        if let Some(ssrc) = ssrc {
                            receiver.source_ended(ssrc);
                        }
                        stream.bye = true;
                        let stream = stream.wanted.stream;
                        // What came before it is to be known first.
                        self.tell_all(cx);
                        let age = age(cx.now, at);
                        self.say(cx, &Said::Bye { stream, age });
                    }
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }

    /// About 5 s (RFC 3550, 6.2).
    fn report_interval(&mut self, first: bool) -> Duration {
        const BANDWIDTH: f64 = 1e6;
        let random = self.random.next_u32() as f64 / (f64::from(u32::MAX) + 1.0);
        Interval::of_two(false, BANDWIDTH, first).next(random)
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
        }
    }

    /// Says how all streams stand of which anything has come.
    fn tell_all(&mut self, cx: &mut Context<'_>) {
        for stream in &self.streams {
            let state = Receiver::state(stream, cx);
            if state.ages.is_some() {
                self.say(cx, &Said::Seen(state));
            }
        }
    }

    /// Counts to the end, closes all, and says what came.
    fn end(&mut self, cx: &mut Context<'_>) {
        if self.phase == Phase::Ended {
            return;
        }
        let mut states = Vec::new();
        for stream in std::mem::take(&mut self.streams) {
            cx.sinks.get::<RtpReceiver>(stream.sink).finish(cx.recorder);
            states.push(Receiver::state(&stream, cx));
            if stream.stands {
                let channel = stream.channel;
                cx.out.push_back(Output::Close { channel });
            }
            cx.sinks.remove::<RtpReceiver>(stream.sink);
            self.terms.give_back();
        }
        if self.phase == Phase::Open {
            self.say(cx, &Said::Closed { streams: states });
        }
        self.phase = Phase::Ended;
        self.terms.no_longer_unproven(self.number);
        cx.out.push_back(Output::Close { channel: CONTROL });
        cx.out.push_back(Output::Ended(Outcome::Completed));
    }

    fn due_work(&mut self, cx: &mut Context<'_>) {
        match self.phase {
            Phase::Proof(until) if cx.now >= until => self.refuse(cx, "that took too long"),
            Phase::Open => {
                if self.tell.is_some_and(|tell| cx.now >= tell) {
                    self.tell = Some(cx.now + self.every);
                    self.tell_all(cx);
                }
                self.due_reports(cx);
            }
            _ => {}
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.terms.no_longer_unproven(self.number);
        for _ in &self.streams {
            self.terms.give_back();
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
                self.phase = Phase::Proof(cx.now + PROOF_WITHIN);
                let topic = DROPPED.to_owned();
                cx.out.push_back(Output::Listen { topic });
                if let Some(last) = self.terms.arrived(self.number) {
                    cx.out.push_back(Output::Tell {
                        topic: DROPPED.to_owned(),
                        message: last.to_string().into(),
                    });
                }
            }
            Input::Told { message, .. } => {
                let dropped = message.parse().is_ok_and(|last| self.number <= last);
                if dropped && matches!(self.phase, Phase::Proof(_)) {
                    self.refuse(cx, "newer connections took its place before it was proven");
                }
            }
            Input::Opened {
                channel: CONTROL,
                local,
                ..
            } => {
                // An address of IPv4 may come as one of IPv6 (RFC 4291, 2.5.5.2).
                let ip = local.ip().to_canonical();
                self.local = Some(SocketAddr::new(ip, local.port()));
                let hello = Said::Hello {
                    version: VERSION,
                    challenge: self.challenge.clone(),
                };
                self.say(cx, &hello);
            }
            Input::Opened { channel, local, .. } => self.opened(cx, channel, local.port()),
            Input::OpenFailed { error, .. } => {
                let why = format!("ports cannot be had: {error}");
                self.say(cx, &Said::Refused { why });
                self.end(cx);
            }
            Input::Bytes { bytes, .. } => {
                let most = match self.phase {
                    Phase::Proof(_) => STRANGERS_LINE_MAX,
                    _ => LINE_MAX,
                };
                let mut lines = std::mem::take(&mut self.lines);
                let fed = lines.feed(bytes, most, |text| self.heard(cx, text));
                self.lines = lines;
                if fed.is_err() {
                    self.refuse(cx, "a line is too long");
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
                reports.chain(self.tell).min()
            }
            Phase::Ended => None,
        }
    }
}

/// How long ago that was, in nanoseconds.
fn age(now: Time, at: Time) -> u64 {
    u64::try_from(now.since(at).as_nanos()).unwrap_or(u64::MAX)
}
