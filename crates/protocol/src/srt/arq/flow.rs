//! Senders as the worker's pacer drives them: of a transport stream that they make, and of what
//! their session gives them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use measure::Time;
use serde::Serialize;

use super::sender::{Outgoing, Sender};
use crate::session::{Flow, FlowPacket, Handover, PacketHeader, Tag};
use crate::srt::seq::SeqNumber;
use mediagen::ts::looped_stream::{DATAGRAM, DATAGRAM_BITS, LoopedStream, PACKETS};
use mediagen::ts::mux::{Mux, Steps};
use mediagen::ts::packet::PACKET;
use mediagen::ts::stamp::Stamp;

/// Memory is taken for so many payloads at once. Each of thousands of streams holds one or two such
/// pieces, because what is unacknowledged keeps the one before: large ones cost more than the
/// taking.
const CHUNK: usize = 4 * DATAGRAM;

/// Of a tag: set where the packet was sent before.
pub(in crate::srt) const AGAIN: u64 = 1 << 32;

/// What became of the datagrams of a flow. Together they are `pktSent`, once all have left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Left {
    /// Packets that left for the first time.
    pub first: u64,
    /// Packets that left again.
    pub again: u64,
    /// Packets that the network stack did not take.
    pub not_taken: u64,
}

/// The most delays that are kept until they are asked for. Senders are asked every 50 ms, or once a
/// second if nothing comes from the peer: that is enough for 500 Mb/s.
const DELAYS_MAX: usize = 65_536;

/// What became of the datagrams of a flow, and how long each waited.
#[derive(Debug, Default)]
pub(in crate::srt) struct Departures {
    pub(super) left: Left,
    /// Where these are wanted: how long packets waited in the send buffer until they left for the
    /// first time, in nanoseconds.
    delays: Option<Vec<u64>>,
}

impl Departures {
    /// What became of a packet of that sender.
    #[inline]
    pub(super) fn count(&mut self, sender: &Sender, tag: Tag, left: Option<Handover>) {
        match left {
            None => self.left.not_taken += 1,
            Some(left) if tag.0 & AGAIN == 0 => {
                self.left.first += 1;
                if let Some(delays) = &mut self.delays
                    && delays.len() < DELAYS_MAX
                    && let Some(since) = sender.handed_in(SeqNumber::new(tag.0 as u32))
                {
                    delays.push(left.ended.since(since).as_nanos() as u64);
                }
            }
            Some(_) => self.left.again += 1,
        }
    }

    /// Keeps from now on how long packets wait.
    pub(in crate::srt) fn keep_delays(&mut self) {
        self.delays.get_or_insert_default();
    }

    /// Moves the delays since the last time behind those there.
    pub(in crate::srt) fn take_delays(&mut self, into: &mut Vec<u64>) {
        if let Some(delays) = &mut self.delays {
            into.append(delays);
        }
    }
}

#[inline]
pub(super) fn packet(packet: Outgoing) -> FlowPacket {
    let again = if packet.retransmitted { AGAIN } else { 0 };
    FlowPacket {
        due: packet.due,
        header: PacketHeader::EMPTY.with(&packet.header),
        payload: packet.payload,
        tag: Tag(u64::from(packet.sequence.value()) | again),
    }
}

/// Sends what its session hands to the sender within, and again what the peer asks for.
#[derive(Debug)]
pub struct SrtFlow {
    sender: Sender,
    finished: bool,
    departures: Departures,
}

impl SrtFlow {
    /// A flow without anything to send yet.
    pub fn new(sender: Sender) -> SrtFlow {
        SrtFlow {
            sender,
            finished: false,
            departures: Departures::default(),
        }
    }

    /// The sender, which takes payloads and control packets.
    pub fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    /// Nothing more will be pushed: the flow ends when everything is acknowledged, or too late.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// What became of its datagrams.
    pub fn left_so_far(&self) -> Left {
        self.departures.left
    }
}

/// When a sender has something to do next; none once it has finished.
pub(super) fn next_due(sender: &Sender, finished: bool) -> Option<Time> {
    let due = sender.next_due();
    if !finished {
        return Some(due);
    }
    match sender.unacknowledged() {
        0 => None,
        _ => Some(sender.drops_at().map_or(due, |drops| drops.min(due))),
    }
}

impl Flow for SrtFlow {
    #[inline]
    fn next_due(&self) -> Option<Time> {
        next_due(&self.sender, self.finished)
    }

    #[inline]
    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        self.sender.next_packet(now).map(packet)
    }

    #[inline]
    fn left(&mut self, tag: Tag, left: Option<Handover>) {
        self.departures.count(&self.sender, tag, left);
    }
}

/// What a flow of made media sends.
#[derive(Clone, Debug)]
pub struct TsFlowSettings {
    /// What is sent, over and over, 1,316 bytes in a packet.
    pub looped: Arc<LoopedStream>,
    /// Which address the stamps name: that of the stream's consumer, or where it is published.
    pub place: SocketAddr,
    /// By which number the stamps tell runs of a source apart.
    pub source: u64,
    /// What the wall clock showed, since 1970, when time began.
    pub wall_clock: Duration,
    /// How long it sends: the payloads that are due within it. Endless without.
    pub length: Option<Duration>,
}

/// Sends a made transport stream, each packet of which bears a stamp.
#[derive(Debug)]
pub struct SrtTsFlow {
    sender: Sender,
    mux: Mux,
    stamp: Stamp,
    began: Option<Time>,
    /// When the next payload is due, from there, in nanoseconds.
    due: Steps,
    count: u64,
    wall_clock: u64,
    room: BytesMut,
    departures: Departures,
}

impl SrtTsFlow {
    /// A flow that has not begun.
    pub fn new(settings: TsFlowSettings, sender: Sender) -> SrtTsFlow {
        let rate = settings.looped.bits_per_second();
        let count = settings.length.map_or(u64::MAX, |length| {
            let bits = length.as_nanos() * u128::from(rate) / 1_000_000_000;
            u64::try_from(bits.div_ceil(DATAGRAM_BITS.into())).unwrap_or(u64::MAX)
        });
        SrtTsFlow {
            sender,
            mux: Mux::new(settings.looped),
            stamp: Stamp {
                packets: PACKETS as u8,
                group: settings.place,
                source: settings.source,
                number: 0,
                due: 0,
                check: 0,
            },
            began: None,
            due: Steps::new(DATAGRAM_BITS * 1_000_000_000, rate),
            count,
            wall_clock: u64::try_from(settings.wall_clock.as_nanos()).unwrap_or(u64::MAX),
            room: BytesMut::new(),
            departures: Departures::default(),
        }
    }

    /// Begins to send at `at`. Does nothing where it has begun.
    pub fn start(&mut self, at: Time) {
        self.began.get_or_insert(at);
    }

    /// Makes no more media: the flow ends when everything is acknowledged, or too late.
    pub fn finish(&mut self) {
        self.count = self.stamp.number;
    }

    /// The sender, which takes control packets.
    pub fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    pub(in crate::srt) fn departures(&mut self) -> &mut Departures {
        &mut self.departures
    }

    /// How many payloads were made so far: their stamps are numbered from 0.
    pub fn made(&self) -> u64 {
        self.stamp.number
    }

    /// What became of its datagrams.
    pub fn left_so_far(&self) -> Left {
        self.departures.left
    }

    /// When the next payload is due; none before it has begun, and where none will follow.
    #[inline]
    fn media_due(&self) -> Option<Time> {
        let began = self.began.filter(|_| !self.is_finished())?;
        Some(began + Duration::from_nanos(self.due.now))
    }

    #[inline]
    fn is_finished(&self) -> bool {
        self.stamp.number >= self.count
    }

    /// Makes the next payload, which is due then, and hands it to the sender.
    fn make(&mut self, due: Time) {
        if self.room.capacity() < DATAGRAM {
            self.room.reserve(CHUNK);
        }
        // Room for the stamp, which bears a check of what follows it.
        self.room.extend_from_slice(&[0; PACKET]);
        for _ in 1..PACKETS {
            let room = &mut self.room;
            self.mux.next(|packet| room.extend_from_slice(packet));
        }
        self.stamp.check = libdeflater::crc32(&self.room[PACKET..]);
        self.stamp.due = self.wall_clock + due.as_nanos();
        self.room[..PACKET].copy_from_slice(&self.stamp.write());
        let payload = self.room.split();
        self.stamp.number += 1;
        self.due.advance();
        // The sender counts what it does not take.
        let _ = self.sender.push_made(due, payload);
    }
}

impl Flow for SrtTsFlow {
    #[inline]
    fn next_due(&self) -> Option<Time> {
        let sender = next_due(&self.sender, self.is_finished());
        sender.into_iter().chain(self.media_due()).min()
    }

    #[inline]
    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        while let Some(due) = self.media_due().filter(|&due| due <= now) {
            self.make(due);
            // One at a time, unless it cannot leave: what is late is not made all at once.
            if self.sender.next_due() <= now {
                break;
            }
        }
        self.sender.next_packet(now).map(packet)
    }

    #[inline]
    fn left(&mut self, tag: Tag, left: Option<Handover>) {
        self.departures.count(&self.sender, tag, left);
    }
}

#[cfg(test)]
mod tests;
