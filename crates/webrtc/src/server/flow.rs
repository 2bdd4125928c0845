//! Media flow to a player: generated or forwarded packets, with injected faults, encrypted just
//! before they are sent.

use std::collections::{BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};
use measure::Time;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::faults::ServerFaults;
use super::records::SentCounts;
use crate::feedback::{RtxStream, SendHistoryCounts};
use crate::retransmitter::Retransmitter;
use crate::srtp::RtpSealer;
use crate::transport_sequence::TransportSequence;
use kit::media::rtp::RtpFlow;
use session::{Flow, FlowPacket, Handover, PacketHeader, Tag};

/// Size of a buffer for encrypted packets, and maximum number of bytes that encryption adds to a
/// packet.
const BUFFER_SIZE: usize = 32 * 1024;
const TRAILER_MAX: usize = 16;

/// Maximum number of packets queued for forwarding: half a second at 40 Mb/s. If the queue is full,
/// the oldest packet is dropped and counted.
const QUEUE_MAX: usize = 2048;

/// Maximum number of dropped packets that are remembered.
const DROPPED_MAX: usize = 4096;

/// Source of a flow's media.
#[derive(Debug)]
pub(super) enum PlayerMedia {
    /// Generated media.
    Generated(Box<RtpFlow>),
    /// Forwarded media, which the session pushes.
    Forwarded(ForwardQueue),
}

/// Queue of a publisher's packets to be forwarded.
#[derive(Debug, Default)]
pub(super) struct ForwardQueue {
    packets: VecDeque<(Time, PacketHeader, Bytes)>,
    /// True if no more packets follow.
    finished: bool,
    sent: (u64, u64),
    frames: u64,
    overflown: u64,
}

impl ForwardQueue {
    fn push(&mut self, at: Time, header: PacketHeader, payload: Bytes) {
        if self.packets.len() >= QUEUE_MAX {
            self.packets.pop_front();
            self.overflown += 1;
        }
        self.packets.push_back((at, header, payload));
    }

    fn next_due(&self) -> Option<Time> {
        match self.packets.front() {
            Some((at, ..)) => Some(*at),
            None if self.finished => None,
            None => Some(Time::NEVER),
        }
    }

    fn next_packet(&mut self, now: Time) -> Option<(Time, PacketHeader, Bytes)> {
        self.packets.front().filter(|(at, ..)| *at <= now)?;
        let packet = self.packets.pop_front()?;
        self.sent.0 += 1;
        self.sent.1 += packet.2.len() as u64;
        self.frames += u64::from(packet.1[1] & MARKER != 0);
        Some(packet)
    }
}

/// Marker bit in the second byte of a header (RFC 3550, 5.1). In video it marks a frame's last
/// packet.
const MARKER: u8 = 0x80;

/// Kind of a packet, in the lowest bits of its tag, below its length and its number. A first
/// transmission is either `FIRST` or `LAST_OF_FRAME`.
const FIRST: u64 = 0;
const DUPLICATE: u64 = 1;
const RETRANSMISSION: u64 = 2;
const LAST_OF_FRAME: u64 = 4;

/// Packet to be sent, not yet encrypted.
#[derive(Clone, Debug)]
struct OutgoingPacket {
    due: Time,
    header: PacketHeader,
    payload: Bytes,
    /// Extended sequence number.
    number: u64,
    kind: u64,
}

/// Flow of one track to a player.
#[derive(Debug)]
pub(super) struct PlayerFlow {
    media: PlayerMedia,
    ssrc: u32,
    payload_type: u8,
    faults: ServerFaults,
    burst_left: u32,
    rng: Pcg64,
    /// Highest extended sequence number taken from the media.
    highest: Option<u64>,
    /// Packets to be sent next.
    ready: VecDeque<OutgoingPacket>,
    /// Packets held back for reordering, each with the number of packets that are still to overtake
    /// it.
    held: Vec<(OutgoingPacket, u32)>,
    retransmitter: Option<Retransmitter>,
    transport_numbers: Option<TransportSequence>,
    /// Encrypts the stream and its retransmissions.
    sealer: RtpSealer,
    /// Buffer for encrypted packets, reused once all packets in it have been sent.
    buffer: BytesMut,
    /// Numbers of packets that were dropped on purpose and not yet retransmitted.
    dropped: BTreeSet<u64>,
    /// Due times of the frames whose last packet is being sent.
    frame_due_times: VecDeque<Time>,
    counts: SentCounts,
}

/// Settings of a flow.
#[derive(Debug)]
pub(super) struct FlowConfig {
    pub(super) ssrc: u32,
    pub(super) payload_type: u8,
    pub(super) faults: ServerFaults,
    pub(super) seed: u64,
    /// `None` if packets are not retransmitted; `Some(None)` if they are retransmitted in the
    /// stream itself instead of an RTX stream.
    pub(super) retransmissions: Option<Option<RtxStream>>,
    /// Transport-wide sequence numbers, if negotiated.
    pub(super) transport_numbers: Option<TransportSequence>,
}

impl PlayerFlow {
    pub(super) fn new(media: PlayerMedia, config: FlowConfig, sealer: RtpSealer) -> PlayerFlow {
        PlayerFlow {
            media,
            ssrc: config.ssrc,
            payload_type: config.payload_type,
            faults: config.faults,
            burst_left: 0,
            rng: Pcg64::seed_from_u64(config.seed),
            highest: None,
            ready: VecDeque::new(),
            held: Vec::new(),
            retransmitter: config.retransmissions.map(Retransmitter::new),
            transport_numbers: config.transport_numbers,
            sealer,
            buffer: BytesMut::new(),
            dropped: BTreeSet::new(),
            frame_due_times: VecDeque::new(),
            counts: SentCounts::default(),
        }
    }

    /// Queues a publisher's packet for forwarding. `header` is the publisher's header, with the
    /// extension for this player.
    pub(super) fn push(&mut self, at: Time, header: &PacketHeader, payload: Bytes) {
        if let PlayerMedia::Forwarded(queue) = &mut self.media {
            queue.push(at, *header, payload);
        }
    }

    /// Marks the end of a publisher's media.
    pub(super) fn finish(&mut self) {
        if let PlayerMedia::Forwarded(queue) = &mut self.media {
            queue.finished = true;
        }
    }

    /// Returns the numbers of packets and payload bytes that were due for their first transmission,
    /// as sender reports contain them (RFC 3550, 6.4.1).
    pub(super) fn sent(&self) -> (u64, u64) {
        match &self.media {
            PlayerMedia::Generated(flow) => flow.sent(),
            PlayerMedia::Forwarded(queue) => queue.sent,
        }
    }

    /// Returns the generated media, or `None` if the media is forwarded.
    pub(super) fn generated(&self) -> Option<&RtpFlow> {
        match &self.media {
            PlayerMedia::Generated(flow) => Some(flow),
            PlayerMedia::Forwarded(_) => None,
        }
    }

    /// Queues retransmissions of packets that the player requested.
    pub(super) fn request_retransmissions(&mut self, missing: &[u16], now: Time) {
        if let Some(retransmitter) = &mut self.retransmitter {
            retransmitter.queue_requested(missing, now, None);
        }
    }

    /// Returns the counts of the packets so far.
    pub(super) fn counts(&self) -> SentCounts {
        let asked = self.retransmitter.as_ref().map(Retransmitter::counts);
        let SendHistoryCounts {
            requested: asked,
            unknown,
            ..
        } = asked.unwrap_or_default();
        let overflown = match &self.media {
            PlayerMedia::Generated(_) => 0,
            PlayerMedia::Forwarded(queue) => queue.overflown,
        };
        SentCounts {
            asked,
            asked_too_late: unknown,
            overflown,
            ..self.counts
        }
        .with_totals()
    }

    fn draw(&mut self, share: f64) -> bool {
        share > 0.0 && self.rng.random_bool(share.min(1.0))
    }

    /// Decides whether a packet is dropped.
    fn draw_loss(&mut self) -> bool {
        if self.burst_left > 0 {
            self.burst_left -= 1;
            return true;
        }
        if let Some(burst) = self.faults.media.loss_burst
            && self.draw(burst.probability)
        {
            self.burst_left = burst.length - 1;
            return true;
        }
        self.draw(self.faults.media.loss)
    }

    /// Returns the extended sequence number of a packet: the one nearest to the highest so far.
    fn extend_sequence(&mut self, sequence: u16) -> u64 {
        // The first number is above one cycle, so that earlier packets do not underflow.
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

    /// Takes the next packet of the media, with the payload type and SSRC for this player.
    fn next_media_packet(&mut self, now: Time) -> Option<OutgoingPacket> {
        let (due, header, payload) = match &mut self.media {
            PlayerMedia::Generated(flow) => {
                let packet = flow.next_packet(now)?;
                // A sender does not know which packets the network loses.
                flow.report_departure(packet.tag, Some(Handover::at(packet.due)));
                (packet.due, packet.header, packet.payload)
            }
            PlayerMedia::Forwarded(queue) => queue.next_packet(now)?,
        };
        let number = self.extend_sequence(u16::from_be_bytes([header[2], header[3]]));
        let header = PacketHeader::EMPTY
            .append(&[header[0], header[1] & MARKER | self.payload_type])
            .append(&header[2..8])
            .append(&self.ssrc.to_be_bytes())
            .append(&header[12..]);
        Some(OutgoingPacket {
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

    /// Returns the header with the next transport-wide sequence number, if negotiated. A dropped
    /// packet takes a number too, as if the network had lost it.
    fn numbered(&self, header: PacketHeader) -> PacketHeader {
        let numbers = self.transport_numbers.as_ref();
        let numbered = numbers.and_then(|numbers| numbers.add_number(&header));
        numbered.map_or(header, |(numbered, _)| numbered)
    }

    /// Applies faults to a packet that is due for its first transmission.
    fn apply_faults(&mut self, mut packet: OutgoingPacket) -> Option<OutgoingPacket> {
        if let Some(retransmitter) = &mut self.retransmitter {
            retransmitter.store(&packet.header, &packet.payload);
        }
        packet.header = self.numbered(packet.header);
        self.counts.planned += 1;
        if self.draw_loss() {
            self.counts.left_out += 1;
            self.dropped.insert(packet.number);
            if self.dropped.len() > DROPPED_MAX {
                self.dropped.pop_first();
            }
            return None;
        }
        let is_duplicated = self.draw(self.faults.media.duplicate);
        if let Some(reorder) = self.faults.media.reorder
            && !is_duplicated
            && self.draw(reorder.probability)
            && self.held.len() < reorder.distance as usize
        {
            self.held.push((packet, reorder.distance));
            return None;
        }
        // This packet overtakes those held back. Packets that waited for it follow.
        for (_, others) in &mut self.held {
            *others -= 1;
        }
        if is_duplicated {
            self.ready.push_back(OutgoingPacket {
                kind: DUPLICATE,
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

    /// Returns the next requested retransmission, encrypted.
    fn next_retransmission(&mut self, now: Time) -> Option<FlowPacket> {
        loop {
            let retransmitter = self.retransmitter.as_mut()?;
            retransmitter.next_due().filter(|due| *due <= now)?;
            let (header, due, sequence) =
                retransmitter.next_retransmission(now, &mut self.buffer)?;
            let number = match self.highest {
                Some(highest) => {
                    let behind = (highest as u16).wrapping_sub(sequence);
                    highest.saturating_sub(behind.into())
                }
                None => 0,
            };
            let header = self.numbered(header);
            if self.draw(self.faults.retransmission_loss) {
                self.buffer.clear();
                self.counts.left_out_again += 1;
                continue;
            }
            return self.seal(due, &header, number, RETRANSMISSION);
        }
    }

    /// Encrypts the packet in the buffer and takes it out. Returns `None` if encryption fails,
    /// because the packet must not be sent then.
    fn seal(
        &mut self,
        due: Time,
        header: &PacketHeader,
        number: u64,
        kind: u64,
    ) -> Option<FlowPacket> {
        let length = self.buffer.len() as u64;
        let tag = self.sealer.seal_parts(header, &mut self.buffer);
        if let Ok(tag) = &tag {
            self.buffer.extend_from_slice(tag);
        }
        let payload = self.buffer.split().freeze();
        if tag.is_err() {
            // No packet will report when this frame was sent.
            if kind == LAST_OF_FRAME {
                self.frame_due_times.pop_back();
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

    fn seal_packet(&mut self, packet: &OutgoingPacket) -> Option<FlowPacket> {
        let needed = packet.payload.len() + TRAILER_MAX;
        if self.buffer.capacity() < needed {
            self.buffer.reserve(BUFFER_SIZE.max(needed));
        }
        self.buffer.extend_from_slice(&packet.payload);
        if packet.kind == LAST_OF_FRAME {
            self.frame_due_times.push_back(packet.due);
        }
        self.seal(packet.due, &packet.header, packet.number, packet.kind)
    }

    fn media_due(&self) -> Option<Time> {
        match &self.media {
            PlayerMedia::Generated(flow) => flow.next_due(),
            PlayerMedia::Forwarded(queue) => queue.next_due(),
        }
    }

    /// Releases all packets held back, because nothing follows that could overtake them.
    fn release_held(&mut self, now: Time) {
        let held = self.held.drain(..);
        self.ready.extend(held.map(|(packet, _)| OutgoingPacket {
            due: packet.due.max(now),
            ..packet
        }));
    }
}

impl Flow for PlayerFlow {
    fn next_due(&self) -> Option<Time> {
        if let Some(first) = self.ready.front() {
            return Some(first.due);
        }
        let held = || self.held.first().map(|(packet, _)| packet.due);
        let media = self.media_due().or_else(held);
        let retransmission = self
            .retransmitter
            .as_ref()
            .and_then(Retransmitter::next_due);
        media.into_iter().chain(retransmission).min()
    }

    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        if self.ready.is_empty()
            && let Some(packet) = self.next_retransmission(now)
        {
            return Some(packet);
        }
        loop {
            if let Some(packet) = self.ready.pop_front() {
                return self.seal_packet(&packet);
            }
            match self.next_media_packet(now) {
                Some(packet) => {
                    if let Some(packet) = self.apply_faults(packet) {
                        return self.seal_packet(&packet);
                    }
                }
                None if self.media_due().is_none() && !self.held.is_empty() => {
                    self.release_held(now)
                }
                None => return None,
            }
        }
    }

    fn packet_sent(&mut self, tag: Tag, left: Option<Handover>) {
        let (number, kind) = (tag.0 >> 20, tag.0 & 0xf);
        let payload = tag.0 >> 4 & 0xffff;
        let is_retransmission = kind & RETRANSMISSION != 0;
        let due = match kind {
            LAST_OF_FRAME => self.frame_due_times.pop_front(),
            _ => None,
        };
        let Some(handover) = left else {
            self.counts.not_taken += u64::from(kind & (DUPLICATE | RETRANSMISSION) == 0);
            return;
        };
        match (is_retransmission, kind & DUPLICATE != 0) {
            (false, true) => self.counts.duplicated += 1,
            (false, false) => {
                self.counts
                    .count_first_copy(number, payload, handover.ended);
                self.counts.count_frame(due, handover.ended);
            }
            (true, _) => {
                self.counts.again += 1;
                // A packet that had been sent before arrives a second time.
                match self.dropped.remove(&number) {
                    true => self.counts.recovered += 1,
                    false => self.counts.again_in_vain += 1,
                }
            }
        }
    }

    fn needs_send_times(&self) -> bool {
        self.counts.first_left_nanos.is_none()
    }
}
