//! The sender of one RTP stream: a schedule of packets, with faults on request.
//!
//! A flow numbers the packets of its clip from 0, in the order in which they were meant to go. What
//! it hands out may leave some out, hold some back and repeat some; what really left is told back
//! through [`RtpFlow::left`], and only that is counted.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use measure::Time;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

pub use super::faults::Faults;
use super::header::Header;
use super::served::{Log, ServedStream, Tally};
use crate::session::{Flow, FlowPacket, Handover, PacketHeader, Tag};
pub use mediagen::clip::Clip;
use mediagen::time_code::TimeCode;

mod course;

pub use course::Course;
use course::{Pace, Segment};

/// How the packets of one frame are spread over time.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Pacing {
    /// Evenly over the time until the next frame.
    #[default]
    Spread,
    /// All when the frame is due, as many servers do.
    AtOnce,
}

/// What a stream is to be.
#[derive(Clone, Debug)]
pub struct FlowSettings {
    /// What is sent, over and over.
    pub clip: Arc<Clip>,
    /// How packets are spread.
    pub pacing: Pacing,
    /// Synchronisation source.
    pub ssrc: u32,
    /// Sequence number of the first packet.
    pub first_seq: u16,
    /// RTP timestamp of the first frame.
    pub first_timestamp: u32,
    /// Length of the stream; endless without one. The frames that begin within it are sent.
    pub length: Option<Duration>,
    /// What is done wrong.
    pub faults: Faults,
    /// Seed of the choices that the faults make.
    pub seed: u64,
    /// Whether each packet that leaves is written down, with its time.
    pub log: bool,
}

impl Flow for RtpFlow {
    #[inline]
    fn next_due(&self) -> Option<Time> {
        RtpFlow::next_due(self)
    }

    #[inline]
    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        RtpFlow::next_packet(self, now)
    }

    #[inline]
    fn left(&mut self, tag: Tag, left: Option<Handover>) {
        RtpFlow::left(self, tag, left);
    }

    #[inline]
    fn wants_times(&self) -> bool {
        RtpFlow::wants_times(self)
    }
}

/// A tag holds the packet's number from 0, and below it what these say.
impl Tag {
    const COPY: u64 = 1;
    const HAS_COPY: u64 = 2;

    fn new(packet: &Planned) -> Tag {
        let copy = if packet.copy { Tag::COPY } else { 0 };
        let doubled = if packet.doubled { Tag::HAS_COPY } else { 0 };
        Tag(packet.number << 2 | doubled | copy)
    }

    /// The packet's number, from 0.
    pub(super) fn number(self) -> u64 {
        self.0 >> 2
    }

    /// Whether it is a second copy.
    pub(super) fn is_copy(self) -> bool {
        self.0 & Tag::COPY != 0
    }

    /// Whether a second copy of it follows, or it is one itself.
    pub(super) fn has_copy(self) -> bool {
        self.0 & Tag::HAS_COPY != 0
    }
}

/// Most packets that wait for their time; where more would, the schedule falls behind instead.
const WAITING_MAX: usize = 1 << 16;

/// A packet that has been thought of, and has not gone yet. Ordered by when it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Planned {
    due: Time,
    number: u64,
    timestamp: u32,
    copy: bool,
    doubled: bool,
    held: bool,
}

/// The schedule without any faults: which packet comes next, and when.
#[derive(Debug)]
struct Schedule {
    /// Frames in the loops that are through.
    frames_before: u64,
    /// The next packet's place in the loop.
    place: usize,
    /// Its number.
    number: u64,
    /// Frames in all.
    frames_end: u64,
    /// Media time after which nothing comes any more.
    stop_after: Duration,
    /// The frame for which what follows was worked out.
    frame: u64,
    /// Media time of that frame.
    at: u64,
    /// How long it lasts, in nanoseconds; nothing where its packets go at once.
    spread: u64,
    /// Its RTP timestamp, less the first.
    ticks: u32,
}

impl Schedule {
    /// Media time of the next packet; `None` after the last.
    fn next(&self) -> Option<Duration> {
        (self.frame < self.frames_end && self.at < nanos(self.stop_after))
            .then(|| Duration::from_nanos(self.at))
    }

    /// Media time of the next packet, its place in the frame included.
    fn next_paced(&self, clip: &Clip) -> Option<u64> {
        let at = nanos(self.next()?);
        let (index, count) = clip.packets[self.place].part;
        Some(at + self.spread * u64::from(index) / u64::from(count))
    }

    fn advance(&mut self, clip: &Clip, pacing: Pacing) {
        self.number += 1;
        self.place += 1;
        if self.place == clip.packets.len() {
            self.place = 0;
            self.frames_before += u64::from(clip.frames);
        }
        let frame = self.frames_before + u64::from(clip.packets[self.place].frame);
        if frame != self.frame {
            self.enter(frame, clip, pacing);
        }
    }

    fn enter(&mut self, frame: u64, clip: &Clip, pacing: Pacing) {
        self.frame = frame;
        self.at = clip.nanos(frame);
        self.ticks = clip.ticks(frame);
        self.spread = match pacing {
            Pacing::Spread => clip.nanos(frame + 1) - self.at,
            Pacing::AtOnce => 0,
        };
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Where a flow stands in its life.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// It has not begun.
    Idle,
    /// It sends.
    Running(Segment),
    /// It pauses, having played for so many nanoseconds by its timestamps.
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
    faults: Option<Box<Faulty>>,
    schedule: Schedule,
    state: State,
    /// When the stream first began: what timestamps are counted from.
    began: Time,
    /// How far a packet's place in the clip is ahead of its number, since it was sought.
    shift: u64,
    pace: Pace,
    /// Where the media ends.
    length: Option<Duration>,
    tally: Tally,
    log: Option<Box<Log>>,
    /// The wall clock at the beginning of time, in nanoseconds since 1970, where time codes are
    /// filled in.
    codes: Option<u64>,
    /// The channel that its packets have in a connection; none where each is a datagram.
    interleaved: Option<u8>,
}

/// What is needed only where something is done wrong.
#[derive(Debug)]
struct Faulty {
    faults: Faults,
    rng: Pcg64,
    /// Packets still to be left out of the running burst.
    burst_left: u32,
    /// When the last packet was due that may not be overtaken by jitter.
    last_due: Time,
    /// Packets by when they go.
    waiting: BinaryHeap<Reverse<Planned>>,
    /// Packets that let others go first, with how many still.
    held: Vec<(Planned, u32)>,
    /// Packets that go right after the last one.
    ready: VecDeque<Planned>,
    /// When the last packet went that was not second to another.
    last_gone: Time,
}

impl RtpFlow {
    /// A stream that has not begun.
    pub fn new(settings: FlowSettings) -> RtpFlow {
        let FlowSettings { clip, faults, .. } = settings;
        let mut schedule = Schedule {
            frames_before: 0,
            place: 0,
            number: 0,
            frames_end: settings
                .length
                .map_or(u64::MAX, |length| clip.frames_within(length)),
            stop_after: faults.stop_after.unwrap_or(Duration::MAX),
            frame: 0,
            at: 0,
            spread: 0,
            ticks: 0,
        };
        schedule.enter(0, &clip, settings.pacing);
        RtpFlow {
            pacing: settings.pacing,
            payload_type: clip.payload_type,
            ssrc: settings.ssrc,
            first_seq: settings.first_seq,
            first_timestamp: settings.first_timestamp,
            faults: (!faults.is_none()).then(|| {
                Box::new(Faulty {
                    faults,
                    rng: Pcg64::seed_from_u64(settings.seed),
                    burst_left: 0,
                    last_due: Time::ZERO,
                    waiting: BinaryHeap::new(),
                    held: Vec::new(),
                    ready: VecDeque::new(),
                    last_gone: Time::ZERO,
                })
            }),
            schedule,
            state: State::Idle,
            began: Time::ZERO,
            shift: 0,
            pace: Pace::USUAL,
            length: settings.length,
            tally: Tally::default(),
            log: settings.log.then(Box::default),
            codes: None,
            interleaved: None,
            clip,
        }
    }

    /// Fills in the time codes that the clip has room for. `wall_clock` is what it showed, since
    /// 1970, when time began.
    pub fn with_time_codes(mut self, wall_clock: Duration) -> RtpFlow {
        self.codes = Some(nanos(wall_clock));
        self
    }

    /// Begins to send at `at`, or goes on after [`RtpFlow::pause`]: where it left off, with
    /// timestamps that have gone on meanwhile. Does nothing while it runs.
    pub fn start(&mut self, at: Time) {
        match self.state {
            State::Idle => self.began = at,
            State::Paused { .. } => {}
            State::Running(_) => return,
        }
        self.state = State::Running(self.segment(at));
    }

    /// Sends nothing for now. What was held back is lost.
    pub fn pause(&mut self) {
        if let State::Running(segment) = self.state {
            let played = self.played_to_next(segment);
            self.state = State::Paused { played };
            if let Some(faulty) = &mut self.faults {
                faulty.waiting.clear();
                faulty.held.clear();
                faulty.ready.clear();
            }
        }
    }

    /// When the next packet is due; `None` where none will follow.
    #[inline]
    pub fn next_due(&self) -> Option<Time> {
        let State::Running(segment) = self.state else {
            return None;
        };
        let next = self
            .schedule
            .next_paced(&self.clip)
            .map(|at| segment.due(at));
        match &self.faults {
            None => next,
            Some(faulty) => faulty.next_due(next),
        }
    }

    /// The next packet that is due by `now`.
    #[inline]
    pub fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        let State::Running(segment) = self.state else {
            return None;
        };
        let packet = if self.faults.is_none() {
            let due = segment.due(self.schedule.next_paced(&self.clip)?);
            (due <= now).then(|| self.take(due, segment))?
        } else {
            self.next_faulty(now, segment)?
        };
        if let Some(log) = &mut self.log {
            log.handed_out(packet.timestamp);
        }
        Some(self.packet(&packet))
    }

    /// Says that a packet has really left, and when; nothing where it has not. The counts are made
    /// from this, not from what was meant to be sent. To be called for each packet, in the order in
    /// which they were handed out.
    #[inline]
    pub fn left(&mut self, tag: Tag, left: Option<Handover>) {
        let place = self.place_of(tag.number());
        let payload = self.clip.packets[place].payload.len();
        self.tally.left(tag, left, payload as u64);
        if let Some(log) = &mut self.log {
            let number = u64::from(self.first_seq) + tag.number();
            log.left(number, left, payload);
        }
    }

    /// Whether it is of any use to tell [`RtpFlow::left`] the time exactly: reading a clock for
    /// each packet costs something.
    #[inline]
    pub fn wants_times(&self) -> bool {
        self.log.is_some() || !self.tally.has_begun()
    }

    /// Takes the next packet off the schedule.
    #[inline]
    fn take(&mut self, due: Time, segment: Segment) -> Planned {
        let planned = Planned {
            due,
            number: self.schedule.number,
            timestamp: segment.base.wrapping_add(self.schedule.ticks),
            copy: false,
            doubled: false,
            held: false,
        };
        self.schedule.advance(&self.clip, self.pacing);
        planned
    }

    /// The place in the clip of the packet of that number.
    #[inline]
    fn place_of(&self, number: u64) -> usize {
        ((number + self.shift) % self.clip.packets.len() as u64) as usize
    }

    fn packet(&self, planned: &Planned) -> FlowPacket {
        let place = self.place_of(planned.number);
        let packet = &self.clip.packets[place];
        let seq = self.first_seq.wrapping_add(planned.number as u16);
        let mut header = Header::new(self.payload_type, seq, planned.timestamp, self.ssrc);
        header.marker = packet.marker;
        let header = header.to_bytes();
        let payload = match (self.codes, packet.code_at) {
            (Some(began), Some(place)) => self.coded(planned, began, place.into()),
            _ => packet.payload.clone(),
        };
        let framing = match self.interleaved {
            Some(channel) => {
                // A clip's packets are no longer than a datagram may be.
                let length = (header.len() + payload.len()) as u16;
                let [high, low] = length.to_be_bytes();
                PacketHeader::EMPTY.with(&[b'$', channel, high, low])
            }
            None => PacketHeader::EMPTY,
        };
        FlowPacket {
            due: planned.due,
            header: framing.with(&header),
            payload,
            tag: Tag::new(planned),
        }
    }

    /// The payload of a packet with its frame's time code in it: a copy of its own, one for each
    /// frame.
    fn coded(&self, planned: &Planned, began: u64, place: usize) -> Bytes {
        let packets = self.clip.packets.len() as u64;
        let packet = &self.clip.packets[self.place_of(planned.number)];
        let whole = (planned.number + self.shift) / packets;
        let whole = whole.wrapping_mul(self.clip.frames.into());
        let code = TimeCode {
            source: self.ssrc,
            number: whole.wrapping_add(packet.frame.into()) as u32,
            nanos: began.wrapping_add(planned.due.as_nanos()),
        };
        code.put_into(&packet.payload, place)
    }

    /// How many frames have been handed out whole.
    pub fn frames(&self) -> u64 {
        self.schedule.frame
    }

    /// The next packet, with all that is done wrong.
    fn next_faulty(&mut self, now: Time, segment: Segment) -> Option<Planned> {
        loop {
            let next = self
                .schedule
                .next_paced(&self.clip)
                .map(|at| segment.due(at));
            let faulty = self.faults.as_mut().expect("only called with faults");
            if faulty.ready.front().is_some_and(|first| first.due <= now) {
                let planned = faulty.ready.pop_front().expect("just looked at");
                return Some(faulty.gone(planned));
            }
            let waiting = faulty.waiting.peek().map(|Reverse(first)| first.due);
            // What is due before all that waits may come before it, so it is looked at first.
            if let Some(due) = next
                && due <= now
                && waiting.is_none_or(|waiting| due <= waiting)
                && faulty.waiting.len() < WAITING_MAX
            {
                let planned = self.take(due, segment);
                let faulty = self.faults.as_mut().expect("only called with faults");
                faulty.plan(planned, self.began);
                continue;
            }
            if waiting.is_some_and(|due| due <= now) {
                let Reverse(planned) = faulty.waiting.pop().expect("just looked at");
                if faulty.hold(planned) {
                    continue;
                }
                return Some(faulty.gone(planned));
            }
            if next.is_some() || waiting.is_some() || faulty.held.is_empty() {
                return None;
            }
            // Nothing comes any more that could overtake them.
            let last_gone = faulty.last_gone;
            let held = faulty.held.drain(..).map(|(mut planned, _)| {
                planned.due = planned.due.max(last_gone);
                planned
            });
            faulty.ready.extend(held);
        }
    }

    /// Whether the stream broke off on purpose before its end.
    pub fn stopped_early(&self) -> bool {
        self.schedule.frame < self.schedule.frames_end
    }

    /// Synchronisation source.
    pub fn ssrc(&self) -> u32 {
        self.ssrc
    }

    /// What is sent.
    pub fn clip(&self) -> &Arc<Clip> {
        &self.clip
    }

    /// Sequence number and RTP timestamp of the next packet of the schedule if it went at `at`:
    /// what RTP-Info says (RFC 2326, 12.33).
    pub fn next_position(&self, at: Time) -> (u16, u32) {
        let seq = self.first_seq.wrapping_add(self.schedule.number as u16);
        let timestamp = match self.state {
            State::Running(_) => self.timestamp_at(at),
            // As `start` and `take` will work it out.
            _ => self.segment(at).base.wrapping_add(self.schedule.ticks),
        };
        (seq, timestamp)
    }

    /// Packets that left, second copies included, and bytes of their payload: what a sender report
    /// says (RFC 3550, 6.4.1).
    pub fn sent(&self) -> (u64, u64) {
        self.tally.sent_with_copies()
    }

    /// How its packets are put where they go: each as a datagram, or in a connection behind `$`,
    /// this channel and its length (RFC 2326, 10.12). To be said before it is started.
    pub fn interleave(&mut self, channel: Option<u8>) {
        self.interleaved = channel;
    }

    /// The channel that its packets have in a connection.
    pub fn interleaved(&self) -> Option<u8> {
        self.interleaved
    }

    /// Packets that were due and not taken by the network stack or the connection, so far.
    pub fn not_taken(&self) -> u64 {
        self.tally.not_taken()
    }

    /// What was really done, so far.
    pub fn served(&self) -> ServedStream {
        let mut served = self
            .tally
            .served(self.ssrc, self.first_seq, self.schedule.number);
        if let Some(log) = &self.log {
            served.departures = log.departures().to_vec();
        }
        served
    }
}

/// A length of time in ticks of a clock; timestamps wrap around.
fn ticks(duration: Duration, clock_rate: u32) -> u32 {
    (duration.as_nanos() * u128::from(clock_rate) / 1_000_000_000) as u32
}

impl Faulty {
    fn next_due(&self, next: Option<Time>) -> Option<Time> {
        if let Some(first) = self.ready.front() {
            return Some(first.due);
        }
        let waiting = self.waiting.peek().map(|Reverse(first)| first.due);
        match (next, waiting) {
            (Some(_), Some(waiting)) if self.waiting.len() >= WAITING_MAX => Some(waiting),
            (Some(next), Some(waiting)) => Some(next.min(waiting)),
            (Some(next), None) => Some(next),
            (None, Some(waiting)) => Some(waiting),
            (None, None) => {
                let (first, _) = self.held.first()?;
                Some(first.due.max(self.last_gone))
            }
        }
    }

    fn chance(&mut self, probability: f64) -> bool {
        // 53 bits, as many as the fraction of an f64 holds.
        let drawn = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        drawn < probability
    }

    /// Decides what becomes of a packet, in an order that does not change: the same seed makes the
    /// same choices.
    fn plan(&mut self, mut planned: Planned, began: Time) {
        if self.burst_left > 0 {
            self.burst_left -= 1;
            return;
        }
        if let Some(burst) = self.faults.loss_burst
            && self.chance(burst.probability)
        {
            self.burst_left = burst.length - 1;
            return;
        }
        if self.faults.loss > 0.0 && self.chance(self.faults.loss) {
            return;
        }
        planned.doubled = self.faults.duplicate > 0.0 && self.chance(self.faults.duplicate);
        planned.held = match self.faults.reorder {
            Some(reorder) => self.chance(reorder.probability),
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
        self.waiting.push(Reverse(planned));
    }

    /// Whether the packet is to let others go first.
    fn hold(&mut self, mut planned: Planned) -> bool {
        let Some(reorder) = self.faults.reorder.filter(|_| planned.held) else {
            return false;
        };
        // With as many held as are to overtake, somebody has to go.
        if self.held.len() >= reorder.distance as usize {
            return false;
        }
        planned.held = false;
        self.held.push((planned, reorder.distance));
        true
    }

    /// A packet goes: who waited for it, or follows it, is next.
    fn gone(&mut self, planned: Planned) -> Planned {
        if planned.copy {
            return planned;
        }
        self.last_gone = planned.due;
        if planned.doubled {
            self.ready.push_back(Planned {
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
                ready.push_back(Planned {
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
