//! What a player is sent: made media, or what another client publishes; with faults on request,
//! sealed where it leaves.

use std::collections::{BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};
use measure::Time;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::faults::ServerFaults;
use super::served::SentCounts;
use crate::media::rtp::RtpFlow;
use crate::session::{Flow, FlowPacket, Handover, PacketHeader, Tag};
use crate::webrtc::again::Again;
use crate::webrtc::feedback::{HistoryCounts, Retransmissions};
use crate::webrtc::srtp::RtpSealer;
use crate::webrtc::transport_numbers::TransportNumbers;

/// How much memory encrypted packets are made in at a time, and the most bytes that encrypting adds
/// to a packet.
const ROOM: usize = 32 * 1024;
const TRAILER_MAX: usize = 16;

/// The most packets that wait to be passed on: those of half a second of 40 Mb/s. Of more the
/// oldest is lost, and counted.
const WAITING_MAX: usize = 2048;

/// The most packets of which it is remembered that they were left out.
const MISSED_MAX: usize = 4096;

/// Where media comes from.
#[derive(Debug)]
pub(super) enum Media {
    /// It is made.
    Made(Box<RtpFlow>),
    /// Its session pushes it.
    Relayed(Relayed),
}

/// What a publisher sent and is to be passed on.
#[derive(Debug, Default)]
pub(super) struct Relayed {
    waiting: VecDeque<(Time, PacketHeader, Bytes)>,
    /// No more follows.
    finished: bool,
    sent: (u64, u64),
    frames: u64,
    overflown: u64,
}

impl Relayed {
    fn push(&mut self, at: Time, header: PacketHeader, payload: Bytes) {
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_front();
            self.overflown += 1;
        }
        self.waiting.push_back((at, header, payload));
    }

    fn next_due(&self) -> Option<Time> {
        match self.waiting.front() {
            Some((at, ..)) => Some(*at),
            None if self.finished => None,
            None => Some(Time::NEVER),
        }
    }

    fn next_packet(&mut self, now: Time) -> Option<(Time, PacketHeader, Bytes)> {
        self.waiting.front().filter(|(at, ..)| *at <= now)?;
        let packet = self.waiting.pop_front()?;
        self.sent.0 += 1;
        self.sent.1 += packet.2.len() as u64;
        self.frames += u64::from(packet.1[1] & MARKER != 0);
        Some(packet)
    }
}

/// The marker in the second byte of a header (RFC 3550, 5.1): of video, the last packet of a frame.
const MARKER: u8 = 0x80;

/// What a packet is, as its tag says in its lowest bits, below its length and its number. One that
/// leaves for the first time is nothing else, or the last of its frame.
const FIRST: u64 = 0;
const COPY: u64 = 1;
const AGAIN: u64 = 2;
const LAST_OF_FRAME: u64 = 4;

/// A packet on its way out, not sealed.
#[derive(Clone, Debug)]
struct Packet {
    due: Time,
    header: PacketHeader,
    payload: Bytes,
    /// Its sequence number, extended.
    number: u64,
    kind: u64,
}

/// The flow of one media of a player.
#[derive(Debug)]
pub(super) struct ServedFlow {
    media: Media,
    ssrc: u32,
    payload_type: u8,
    faults: ServerFaults,
    burst_left: u32,
    rng: Pcg64,
    /// The highest number that was taken of the media.
    highest: Option<u64>,
    /// What goes next.
    ready: VecDeque<Packet>,
    /// Packets that let others go first, with how many still.
    held: Vec<(Packet, u32)>,
    again: Option<Again>,
    numbers: Option<TransportNumbers>,
    /// Of this stream, and of what is sent again of it.
    sealer: RtpSealer,
    /// Used again when all packets in it have left.
    room: BytesMut,
    /// Numbers of packets that were left out, and have not left again.
    missed: BTreeSet<u64>,
    /// When the frames were due whose last packets are on their way.
    due_frames: VecDeque<Time>,
    counts: SentCounts,
}

/// How the flow of a media is to be.
#[derive(Debug)]
pub(super) struct FlowConfig {
    pub(super) ssrc: u32,
    pub(super) payload_type: u8,
    pub(super) faults: ServerFaults,
    pub(super) seed: u64,
    /// Whether packets are sent again, and in which stream of their own, if in one.
    pub(super) again: Option<Option<Retransmissions>>,
    /// The numbers of the transport, where packets have them.
    pub(super) numbers: Option<TransportNumbers>,
}

impl ServedFlow {
    pub(super) fn new(media: Media, config: FlowConfig, sealer: RtpSealer) -> ServedFlow {
        ServedFlow {
            media,
            ssrc: config.ssrc,
            payload_type: config.payload_type,
            faults: config.faults,
            burst_left: 0,
            rng: Pcg64::seed_from_u64(config.seed),
            highest: None,
            ready: VecDeque::new(),
            held: Vec::new(),
            again: config.again.map(Again::new),
            numbers: config.numbers,
            sealer,
            room: BytesMut::new(),
            missed: BTreeSet::new(),
            due_frames: VecDeque::new(),
            counts: SentCounts::default(),
        }
    }

    /// Has a packet of a publisher passed on: `header` is its own, with the extension that the
    /// player reads.
    pub(super) fn push(&mut self, at: Time, header: &PacketHeader, payload: Bytes) {
        if let Media::Relayed(relayed) = &mut self.media {
            relayed.push(at, *header, payload);
        }
    }

    /// No more of a publisher follows.
    pub(super) fn finish(&mut self) {
        if let Media::Relayed(relayed) = &mut self.media {
            relayed.finished = true;
        }
    }

    /// Packets and bytes of payload that were to leave for the first time: what a sender report
    /// says (RFC 3550, 6.4.1).
    pub(super) fn sent(&self) -> (u64, u64) {
        match &self.media {
            Media::Made(flow) => flow.sent(),
            Media::Relayed(relayed) => relayed.sent,
        }
    }

    /// The made media.
    pub(super) fn made(&self) -> Option<&RtpFlow> {
        match &self.media {
            Media::Made(flow) => Some(flow),
            Media::Relayed(_) => None,
        }
    }

    /// The player asks for packets.
    pub(super) fn ask(&mut self, missing: &[u16], now: Time) {
        if let Some(again) = &mut self.again {
            again.ask(missing, now, None);
        }
    }

    /// What became of its packets so far.
    pub(super) fn counts(&self) -> SentCounts {
        let asked = self.again.as_ref().map(Again::counts);
        let HistoryCounts { asked, unknown, .. } = asked.unwrap_or_default();
        let overflown = match &self.media {
            Media::Made(_) => 0,
            Media::Relayed(relayed) => relayed.overflown,
        };
        SentCounts {
            asked,
            asked_too_late: unknown,
            overflown,
            ..self.counts
        }
        .settled()
    }

    fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.rng.random_bool(share.min(1.0))
    }

    /// Whether a packet is left out.
    fn is_lost(&mut self) -> bool {
        if self.burst_left > 0 {
            self.burst_left -= 1;
            return true;
        }
        if let Some(burst) = self.faults.media.loss_burst
            && self.chance(burst.probability)
        {
            self.burst_left = burst.length - 1;
            return true;
        }
        self.chance(self.faults.media.loss)
    }

    /// The number of a packet, extended: near the highest so far.
    fn extended(&mut self, sequence: u16) -> u64 {
        // Above one turn, so that numbers before the first do not pass below zero.
        let Some(highest) = self.highest else {
            let number = 1 << 16 | u64::from(sequence);
            self.highest = Some(number);
            return number;
        };
        let ahead = sequence.wrapping_sub(highest as u16) as i16;
        let number = highest.saturating_add_signed(ahead.into());
        self.highest = Some(number.max(highest));
        number
    }

    /// Takes the next packet of the media, as this player gets it.
    fn take(&mut self, now: Time) -> Option<Packet> {
        let (due, header, payload) = match &mut self.media {
            Media::Made(flow) => {
                let packet = flow.next_packet(now)?;
                // Whether a network loses it, a sender does not know.
                flow.left(packet.tag, Some(Handover::at(packet.due)));
                (packet.due, packet.header, packet.payload)
            }
            Media::Relayed(relayed) => relayed.next_packet(now)?,
        };
        let number = self.extended(u16::from_be_bytes([header[2], header[3]]));
        let header = PacketHeader::EMPTY
            .with(&[header[0], header[1] & MARKER | self.payload_type])
            .with(&header[2..8])
            .with(&self.ssrc.to_be_bytes())
            .with(&header[12..]);
        Some(Packet {
            due,
            kind: match header[1] & MARKER {
                0 => FIRST,
                _ => LAST_OF_FRAME,
            },
            header,
            payload,
            number,
        })
    }

    /// The header with the next number of the transport, where packets have one: what is left out
    /// has one too, as if the network had lost it.
    fn numbered(&self, header: PacketHeader) -> PacketHeader {
        let numbers = self.numbers.as_ref();
        let numbered = numbers.and_then(|numbers| numbers.number(&header));
        numbered.map_or(header, |(numbered, _)| numbered)
    }

    /// What becomes of a packet that is to leave for the first time.
    fn spoil(&mut self, mut packet: Packet) -> Option<Packet> {
        if let Some(again) = &mut self.again {
            again.sent(&packet.header, &packet.payload);
        }
        packet.header = self.numbered(packet.header);
        self.counts.planned += 1;
        if self.is_lost() {
            self.counts.left_out += 1;
            self.missed.insert(packet.number);
            if self.missed.len() > MISSED_MAX {
                self.missed.pop_first();
            }
            return None;
        }
        let doubled = self.chance(self.faults.media.duplicate);
        if let Some(reorder) = self.faults.media.reorder
            && !doubled
            && self.chance(reorder.probability)
            && self.held.len() < reorder.distance as usize
        {
            self.held.push((packet, reorder.distance));
            return None;
        }
        // Who waited for it follows.
        for (_, others) in &mut self.held {
            *others -= 1;
        }
        if doubled {
            self.ready.push_back(Packet {
                kind: COPY,
                ..packet.clone()
            });
        }
        let mut at = 0;
        while at < self.held.len() {
            match self.held[at].1 {
                0 => self.ready.push_back(self.held.remove(at).0),
                _ => at += 1,
            }
        }
        Some(packet)
    }

    /// A packet that the player asked for, whole, and sealed in the room.
    fn next_again(&mut self, now: Time) -> Option<FlowPacket> {
        loop {
            let again = self.again.as_mut()?;
            again.next_due().filter(|due| *due <= now)?;
            let (header, due, sequence) = again.next(now, &mut self.room)?;
            let number = match self.highest {
                Some(highest) => {
                    let behind = (highest as u16).wrapping_sub(sequence);
                    highest.saturating_sub(behind.into())
                }
                None => 0,
            };
            let header = self.numbered(header);
            if self.chance(self.faults.loss_again) {
                self.room.clear();
                self.counts.left_out_again += 1;
                continue;
            }
            return self.seal(due, &header, number, AGAIN);
        }
    }

    /// Encrypts what is in the room, and takes it out. None where it cannot be encrypted: it must
    /// not leave then.
    fn seal(
        &mut self,
        due: Time,
        header: &PacketHeader,
        number: u64,
        kind: u64,
    ) -> Option<FlowPacket> {
        let length = self.room.len() as u64;
        let tag = self.sealer.seal_parts(header, &mut self.room);
        if let Ok(tag) = &tag {
            self.room.extend_from_slice(tag);
        }
        let payload = self.room.split().freeze();
        if tag.is_err() {
            // Its time is not waited for.
            if kind == LAST_OF_FRAME {
                self.due_frames.pop_back();
            }
            self.counts.not_taken += 1;
            return None;
        }
        Some(FlowPacket {
            due,
            header: *header,
            payload,
            tag: Tag(number << 20 | (length & 0xffff) << 4 | kind),
        })
    }

    fn seal_packet(&mut self, packet: &Packet) -> Option<FlowPacket> {
        let needed = packet.payload.len() + TRAILER_MAX;
        if self.room.capacity() < needed {
            self.room.reserve(ROOM.max(needed));
        }
        self.room.extend_from_slice(&packet.payload);
        if packet.kind == LAST_OF_FRAME {
            self.due_frames.push_back(packet.due);
        }
        self.seal(packet.due, &packet.header, packet.number, packet.kind)
    }

    fn media_due(&self) -> Option<Time> {
        match &self.media {
            Media::Made(flow) => flow.next_due(),
            Media::Relayed(relayed) => relayed.next_due(),
        }
    }

    /// Nothing comes any more that could overtake those that wait for it.
    fn let_go(&mut self, now: Time) {
        let held = self.held.drain(..);
        self.ready.extend(held.map(|(packet, _)| Packet {
            due: packet.due.max(now),
            ..packet
        }));
    }
}

impl Flow for ServedFlow {
    fn next_due(&self) -> Option<Time> {
        if let Some(first) = self.ready.front() {
            return Some(first.due);
        }
        let held = || self.held.first().map(|(packet, _)| packet.due);
        let media = self.media_due().or_else(held);
        let again = self.again.as_ref().and_then(Again::next_due);
        media.into_iter().chain(again).min()
    }

    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        if self.ready.is_empty()
            && let Some(packet) = self.next_again(now)
        {
            return Some(packet);
        }
        loop {
            if let Some(packet) = self.ready.pop_front() {
                return self.seal_packet(&packet);
            }
            match self.take(now) {
                Some(packet) => {
                    if let Some(packet) = self.spoil(packet) {
                        return self.seal_packet(&packet);
                    }
                }
                None if self.media_due().is_none() && !self.held.is_empty() => self.let_go(now),
                None => return None,
            }
        }
    }

    fn left(&mut self, tag: Tag, left: Option<Handover>) {
        let (number, kind) = (tag.0 >> 20, tag.0 & 0xf);
        let payload = tag.0 >> 4 & 0xffff;
        let again = kind & AGAIN != 0;
        let due = match kind {
            LAST_OF_FRAME => self.due_frames.pop_front(),
            _ => None,
        };
        let Some(handover) = left else {
            self.counts.not_taken += u64::from(kind & (COPY | AGAIN) == 0);
            return;
        };
        match (again, kind & COPY != 0) {
            (false, true) => self.counts.duplicated += 1,
            (false, false) => {
                self.counts.first_copy(number, payload, handover.ended);
                self.counts.frame(due, handover.ended);
            }
            (true, _) => {
                self.counts.again += 1;
                // What had left before comes a second time.
                match self.missed.remove(&number) {
                    true => self.counts.recovered += 1,
                    false => self.counts.again_in_vain += 1,
                }
            }
        }
    }

    fn wants_times(&self) -> bool {
        self.counts.first_left_nanos.is_none()
    }
}
