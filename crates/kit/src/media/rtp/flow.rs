//! Sender of one RTP stream: a schedule of packets, with optional faults.
//!
//! A flow numbers the packets of its clip from 0, in the planned order. The packets it hands out
//! may omit, delay and repeat some of them. [`RtpFlow::report_departure`] reports the packets that
//! really left, and only those are counted.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use measure::Time;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::faults::Faults;
use super::header::Header;
use super::served_stream::{DepartureCounter, DepartureLog, ServedStream};
use super::tag;
pub use crate::mediagen::clip::Clip;
use crate::mediagen::time_code::TimeCode;
use session::{Flow, FlowPacket, Handover, PacketHeader, Tag};

mod playback;

pub use playback::Playback;
use playback::{MediaPace, SendingPeriod};

/// Send times of the packets of one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pacing {
    /// Spread evenly over the time until the next frame.
    #[default]
    Spread,
    /// All packets when the frame is due, as many servers do.
    AtOnce,
}

/// Settings of an [`RtpFlow`].
#[derive(Clone, Debug)]
pub struct FlowSettings {
    /// Media to send, in an endless loop.
    pub clip: Arc<Clip>,
    pub pacing: Pacing,
    pub ssrc: u32,
    /// Sequence number of the first packet.
    pub first_seq: u16,
    /// RTP timestamp of the first frame.
    pub first_timestamp: u32,
    /// Length of the stream: frames that begin within it are sent. `None` for an endless stream.
    pub length: Option<Duration>,
    pub faults: Faults,
    /// Seed for the choices of the faults.
    pub seed: u64,
    /// True to log each packet that leaves, with its time.
    pub log: bool,
}

/// Maximum number of delayed packets. At this limit the schedule falls behind instead.
const DELAYED_MAX: usize = 1 << 16;

/// A planned packet that has not been sent. Ordered by due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PlannedPacket {
    due: Time,
    number: u64,
    timestamp: u32,
    copy: bool,
    has_copy: bool,
    held: bool,
}

/// The schedule without faults: the next packet, and its time.
#[derive(Debug, Default)]
struct Schedule {
    /// Number of frames in completed loops of the clip.
    frames_before: u64,
    /// Index of the next packet in the clip.
    index: usize,
    /// Number of the next packet.
    number: u64,
    /// Number of the first frame that is not sent.
    frames_end: u64,
    /// Media time from which on nothing is sent.
    stop_after: Duration,
    /// Frame that the fields below describe.
    frame: u64,
    /// Media time of the frame, in nanoseconds.
    frame_nanos: u64,
    /// Duration of the frame in nanoseconds; 0 if its packets are sent at once.
    frame_duration: u64,
    /// RTP timestamp of the frame, relative to the first one.
    ticks: u32,
}

impl Schedule {
    /// Media time of the next packet's frame; `None` after the last packet.
    fn next(&self) -> Option<Duration> {
        (self.frame < self.frames_end && self.frame_nanos < nanos(self.stop_after))
            .then(|| Duration::from_nanos(self.frame_nanos))
    }

    /// Media time of the next packet, including its offset within the frame.
    fn next_paced(&self, clip: &Clip) -> Option<u64> {
        let at = nanos(self.next()?);
        let (index, count) = clip.packets[self.index].part;
        Some(at + self.frame_duration * u64::from(index) / u64::from(count))
    }

    fn advance(&mut self, clip: &Clip, pacing: Pacing) {
        self.number += 1;
        self.index += 1;
        if self.index == clip.packets.len() {
            self.index = 0;
            self.frames_before += u64::from(clip.frames);
        }
        let frame = self.frames_before + u64::from(clip.packets[self.index].frame);
        if frame != self.frame {
            self.begin_frame(frame, clip, pacing);
        }
    }

    fn begin_frame(&mut self, frame: u64, clip: &Clip, pacing: Pacing) {
        self.frame = frame;
        self.frame_nanos = clip.nanos(frame);
        self.ticks = clip.ticks(frame);
        self.frame_duration = match pacing {
            Pacing::Spread => clip.nanos(frame + 1) - self.frame_nanos,
            Pacing::AtOnce => 0,
        };
    }
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// State of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Not started.
    Idle,
    /// Sending.
    Running(SendingPeriod),
    /// Paused after `played` nanoseconds of play by the timestamps.
    Paused { played: u64 },
}

/// Sends one RTP stream.
#[derive(Debug)]
pub struct RtpFlow {
    clip: Arc<Clip>,
    pacing: Pacing,
    payload_type: u8,
    ssrc: u32,
    first_seq: u16,
    first_timestamp: u32,
    faults: Option<Box<FaultInjector>>,
    schedule: Schedule,
    state: State,
    /// First start of the stream: the origin of its timestamps.
    began: Time,
    /// Offset from a packet's number to its index in the clip. Seeks change it.
    clip_offset: u64,
    pace: MediaPace,
    /// End of the media.
    length: Option<Duration>,
    tally: DepartureCounter,
    log: Option<Box<DepartureLog>>,
    /// Wall clock at the start of the run, in nanoseconds since 1970. `None` without time codes.
    wall_clock_origin: Option<u64>,
    /// Interleaved channel of the packets in a connection; `None` for datagrams.
    interleaved_channel: Option<u8>,
}

/// State that only faults need.
#[derive(Debug)]
struct FaultInjector {
    faults: Faults,
    rng: Pcg64,
    /// Number of packets still to drop in the current burst.
    burst_left: u32,
    /// Due time of the last packet, if jitter must keep the order.
    last_due: Time,
    /// Delayed packets, by due time.
    delayed: BinaryHeap<Reverse<PlannedPacket>>,
    /// Packets that let others pass, with the number of packets still to pass.
    held: Vec<(PlannedPacket, u32)>,
    /// Packets to send directly after the previous one.
    ready: VecDeque<PlannedPacket>,
    /// Due time of the last packet sent, second copies excluded.
    last_sent: Time,
}

impl RtpFlow {
    pub fn new(settings: FlowSettings) -> RtpFlow {
        let FlowSettings { clip, faults, .. } = settings;
        let mut schedule = Schedule {
            frames_end: settings
                .length
                .map_or(u64::MAX, |length| clip.frames_within(length)),
            stop_after: faults.stop_after.unwrap_or(Duration::MAX),
            ..Schedule::default()
        };
        schedule.begin_frame(0, &clip, settings.pacing);
        RtpFlow {
            pacing: settings.pacing,
            payload_type: clip.payload_type,
            ssrc: settings.ssrc,
            first_seq: settings.first_seq,
            first_timestamp: settings.first_timestamp,
            faults: (!faults.is_empty()).then(|| {
                Box::new(FaultInjector {
                    faults,
                    rng: Pcg64::seed_from_u64(settings.seed),
                    burst_left: 0,
                    last_due: Time::ZERO,
                    delayed: BinaryHeap::new(),
                    held: Vec::new(),
                    ready: VecDeque::new(),
                    last_sent: Time::ZERO,
                })
            }),
            schedule,
            state: State::Idle,
            began: Time::ZERO,
            clip_offset: 0,
            pace: MediaPace::NORMAL,
            length: settings.length,
            tally: DepartureCounter::default(),
            log: settings.log.then(Box::default),
            wall_clock_origin: None,
            interleaved_channel: None,
            clip,
        }
    }

    /// Fills in the time codes for which the clip has room. `wall_clock` is the wall clock at the
    /// start of the run, since 1970.
    pub fn with_time_codes(mut self, wall_clock: Duration) -> RtpFlow {
        self.wall_clock_origin = Some(nanos(wall_clock));
        self
    }

    /// Starts at `at`, or continues after [`RtpFlow::pause`] from the same position; the timestamps
    /// have advanced in the meantime. No effect while running.
    pub fn start(&mut self, at: Time) {
        match self.state {
            State::Idle => self.began = at,
            State::Paused { .. } => {}
            State::Running(_) => return,
        }
        self.state = State::Running(self.period_from(at));
    }

    /// Stops sending until the next start. Packets that were held back are lost.
    pub fn pause(&mut self) {
        if let State::Running(period) = self.state {
            let played = self.played_to_next(period);
            self.state = State::Paused { played };
            if let Some(faulty) = &mut self.faults {
                faulty.delayed.clear();
                faulty.held.clear();
                faulty.ready.clear();
            }
        }
    }

    /// Reports that a packet has left, and when; `None` if it has not. The counts are based on
    /// these reports, not on the plan. Must be called for every packet, in the order in which the
    /// packets were handed out.
    #[inline]
    pub fn report_departure(&mut self, tag: Tag, left: Option<Handover>) {
        let number = tag::number(tag);
        let index = self.index_of(number);
        let payload = self.clip.packets[index].payload.len();
        self.tally.count_departure(tag, left, payload as u64);
        if let Some(log) = &mut self.log {
            log.record_departure(u64::from(self.first_seq) + number, left, payload);
        }
    }

    /// Due time of the next packet of the schedule.
    #[inline]
    fn next_scheduled(&self, period: SendingPeriod) -> Option<Time> {
        let at = self.schedule.next_paced(&self.clip)?;
        Some(period.due(at))
    }

    /// Takes the next packet from the schedule.
    #[inline]
    fn take_scheduled(&mut self, due: Time, period: SendingPeriod) -> PlannedPacket {
        let planned = PlannedPacket {
            due,
            number: self.schedule.number,
            timestamp: period.base.wrapping_add(self.schedule.ticks),
            copy: false,
            has_copy: false,
            held: false,
        };
        self.schedule.advance(&self.clip, self.pacing);
        planned
    }

    /// Index in the clip of the packet with this number.
    #[inline]
    fn index_of(&self, number: u64) -> usize {
        ((number + self.clip_offset) % self.clip.packets.len() as u64) as usize
    }

    fn packet(&self, planned: &PlannedPacket) -> FlowPacket {
        let index = self.index_of(planned.number);
        let packet = &self.clip.packets[index];
        let seq = self.first_seq.wrapping_add(planned.number as u16);
        let mut header = Header::new(self.payload_type, seq, planned.timestamp, self.ssrc);
        header.marker = packet.marker;
        let header = header.to_bytes();
        let payload = match (self.wall_clock_origin, packet.code_at) {
            (Some(began), Some(offset)) => {
                self.payload_with_time_code(planned, began, offset.into())
            }
            _ => packet.payload.clone(),
        };
        let framing = match self.interleaved_channel {
            Some(channel) => {
                // A packet of a clip is at most as long as a datagram may be.
                let length = (header.len() + payload.len()) as u16;
                let [high, low] = length.to_be_bytes();
                PacketHeader::EMPTY.append(&[b'$', channel, high, low])
            }
            None => PacketHeader::EMPTY,
        };
        FlowPacket {
            due: planned.due,
            header: framing.append(&header),
            payload,
            tag: tag::new(planned.number, planned.copy, planned.has_copy),
        }
    }

    /// Returns the payload of a packet with the time code of its frame. The payload is copied, once
    /// per frame.
    fn payload_with_time_code(&self, planned: &PlannedPacket, began: u64, offset: usize) -> Bytes {
        let packets = self.clip.packets.len() as u64;
        let packet = &self.clip.packets[self.index_of(planned.number)];
        let whole = (planned.number + self.clip_offset) / packets;
        let whole = whole.wrapping_mul(self.clip.frames.into());
        let code = TimeCode {
            source: self.ssrc,
            number: whole.wrapping_add(packet.frame.into()) as u32,
            nanos: began.wrapping_add(planned.due.as_nanos()),
        };
        code.put_into(&packet.payload, offset)
    }

    /// Number of the current frame: the number of completed frames, if the flow never changed its
    /// position.
    pub fn current_frame(&self) -> u64 {
        self.schedule.frame
    }

    /// Returns the next packet, with faults applied.
    fn next_faulty(&mut self, now: Time, period: SendingPeriod) -> Option<PlannedPacket> {
        loop {
            let next = self.next_scheduled(period);
            let faulty = self.faults.as_mut().expect("only called with faults");
            if faulty.ready.front().is_some_and(|first| first.due <= now) {
                let planned = faulty.ready.pop_front().expect("just looked at");
                return Some(faulty.sent_now(planned));
            }
            let waiting = faulty.delayed.peek().map(|Reverse(first)| first.due);
            // A packet due before all delayed ones may have to be sent before them: plan it first.
            if let Some(due) = next
                && due <= now
                && waiting.is_none_or(|waiting| due <= waiting)
                && faulty.delayed.len() < DELAYED_MAX
            {
                let planned = self.take_scheduled(due, period);
                let faulty = self.faults.as_mut().expect("only called with faults");
                faulty.apply_faults(planned, self.began);
                continue;
            }
            if waiting.is_some_and(|due| due <= now) {
                let Reverse(planned) = faulty.delayed.pop().expect("just looked at");
                if faulty.hold_back(planned) {
                    continue;
                }
                return Some(faulty.sent_now(planned));
            }
            if next.is_some() || waiting.is_some() || faulty.held.is_empty() {
                return None;
            }
            // No packet follows that could overtake the held ones.
            let last_gone = faulty.last_sent;
            let held = faulty.held.drain(..).map(|(mut planned, _)| {
                planned.due = planned.due.max(last_gone);
                planned
            });
            faulty.ready.extend(held);
        }
    }

    /// True if the stream has not reached its end. Once nothing more is sent, a fault stopped it.
    pub fn stopped_early(&self) -> bool {
        self.schedule.frame < self.schedule.frames_end
    }

    pub fn ssrc(&self) -> u32 {
        self.ssrc
    }

    pub fn clip(&self) -> &Arc<Clip> {
        &self.clip
    }

    /// Sequence number and RTP timestamp of the next packet of the schedule if it were sent at
    /// `at`, for RTP-Info (RFC 2326, 12.33).
    pub fn next_rtp_info(&self, at: Time) -> (u16, u32) {
        let seq = self.first_seq.wrapping_add(self.schedule.number as u16);
        let timestamp = match self.state {
            State::Running(_) => self.timestamp_at(at),
            // As `start` and `take_scheduled` compute it.
            _ => self.period_from(at).base.wrapping_add(self.schedule.ticks),
        };
        (seq, timestamp)
    }

    /// Number of packets that left, second copies included, and their payload bytes, for sender
    /// reports (RFC 3550, 6.4.1).
    pub fn sent(&self) -> (u64, u64) {
        self.tally.sent_with_copies()
    }

    /// Sets the framing of the packets: datagrams, or in a connection behind `$`, this channel and
    /// the packet length (RFC 2326, 10.12). To be called before the start.
    pub fn set_interleaved_channel(&mut self, channel: Option<u8>) {
        self.interleaved_channel = channel;
    }

    /// Interleaved channel of the packets in a connection.
    pub fn interleaved_channel(&self) -> Option<u8> {
        self.interleaved_channel
    }

    /// Number of due packets so far that the network stack or the connection did not accept.
    pub fn rejected(&self) -> u64 {
        self.tally.not_taken
    }

    /// Statistics of what was really sent so far.
    pub fn statistics(&self) -> ServedStream {
        let mut served = self
            .tally
            .served(self.ssrc, self.first_seq, self.schedule.number);
        if let Some(log) = &self.log {
            served.departures = log.departures.clone();
        }
        served
    }
}

impl Flow for RtpFlow {
    #[inline]
    fn next_due(&self) -> Option<Time> {
        let State::Running(period) = self.state else {
            return None;
        };
        let next = self.next_scheduled(period);
        match &self.faults {
            None => next,
            Some(faulty) => faulty.next_due(next),
        }
    }

    #[inline]
    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        let State::Running(period) = self.state else {
            return None;
        };
        let packet = if self.faults.is_none() {
            let due = self.next_scheduled(period)?;
            (due <= now).then(|| self.take_scheduled(due, period))?
        } else {
            self.next_faulty(now, period)?
        };
        if let Some(log) = &mut self.log {
            log.handed_out(packet.timestamp);
        }
        Some(self.packet(&packet))
    }

    #[inline]
    fn packet_sent(&mut self, tag: Tag, left: Option<Handover>) {
        self.report_departure(tag, left);
    }

    // Reading a clock for each packet has a cost.
    #[inline]
    fn needs_send_times(&self) -> bool {
        self.log.is_some() || !self.tally.has_sent()
    }
}

/// Converts a duration into ticks of a clock. Wraps around, as timestamps do.
pub(super) fn ticks(duration: Duration, clock_rate: u32) -> u32 {
    (duration.as_nanos() * u128::from(clock_rate) / 1_000_000_000) as u32
}

impl FaultInjector {
    fn next_due(&self, next: Option<Time>) -> Option<Time> {
        if let Some(first) = self.ready.front() {
            return Some(first.due);
        }
        let waiting = self.delayed.peek().map(|Reverse(first)| first.due);
        let next = next.filter(|_| self.delayed.len() < DELAYED_MAX);
        next.into_iter().chain(waiting).min().or_else(|| {
            let (first, _) = self.held.first()?;
            Some(first.due.max(self.last_sent))
        })
    }

    fn draw(&mut self, probability: f64) -> bool {
        // 53 bits: the precision of an `f64`.
        let drawn = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        drawn < probability
    }

    /// Applies the faults to a packet. The order of the choices is fixed: the same seed makes the
    /// same choices.
    fn apply_faults(&mut self, mut planned: PlannedPacket, began: Time) {
        if self.burst_left > 0 {
            self.burst_left -= 1;
            return;
        }
        if let Some(burst) = self.faults.loss_burst
            && self.draw(burst.probability)
        {
            self.burst_left = burst.length - 1;
            return;
        }
        if self.faults.loss > 0.0 && self.draw(self.faults.loss) {
            return;
        }
        planned.has_copy = self.faults.duplicate > 0.0 && self.draw(self.faults.duplicate);
        planned.held = match self.faults.reorder {
            Some(reorder) => self.draw(reorder.probability),
            None => false,
        };
        planned.due += self.faults.delay;
        if let Some(jitter) = self.faults.jitter {
            let span = nanos(jitter.max).saturating_add(1);
            planned.due += Duration::from_nanos(self.rng.next_u64() % span);
            if jitter.in_order {
                planned.due = planned.due.max(self.last_due);
                self.last_due = planned.due;
            }
        }
        if let Some(stall) = self.faults.stall {
            let (from, until) = (began + stall.at, began + stall.at + stall.length);
            if planned.due >= from && planned.due < until {
                planned.due = until;
            }
        }
        self.delayed.push(Reverse(planned));
    }

    /// Holds the packet back if others are to be sent first. Returns `false` if it is to be sent
    /// now.
    fn hold_back(&mut self, mut planned: PlannedPacket) -> bool {
        let Some(reorder) = self.faults.reorder.filter(|_| planned.held) else {
            return false;
        };
        // At most `distance` packets are held: further ones must pass them.
        if self.held.len() >= reorder.distance as usize {
            return false;
        }
        planned.held = false;
        self.held.push((planned, reorder.distance));
        true
    }

    /// Handles a packet that is sent now: its copy, and held packets that it was the last to pass,
    /// are next.
    fn sent_now(&mut self, planned: PlannedPacket) -> PlannedPacket {
        if planned.copy {
            return planned;
        }
        self.last_sent = planned.due;
        if planned.has_copy {
            self.ready.push_back(PlannedPacket {
                copy: true,
                ..planned
            });
        }
        let ready = &mut self.ready;
        self.held.retain_mut(|(held, others)| {
            if planned.number > held.number {
                *others -= 1;
            }
            if *others == 0 {
                ready.push_back(PlannedPacket {
                    due: planned.due.max(held.due),
                    ..*held
                });
            }
            *others > 0
        });
        planned
    }
}

#[cfg(test)]
mod tests;
