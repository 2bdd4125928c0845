//! Senders driven by the worker's pacer: [`SrtTsFlow`] sends a transport stream that it makes,
//! [`PushedFlow`] sends the payloads of its session.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use measure::Time;
use serde::Serialize;

use super::sender::{Outgoing, Sender};
use crate::seq::SeqNumber;
use mediagen::ts::looped_stream::{DATAGRAM, DATAGRAM_BITS, LoopedStream, PACKETS_PER_DATAGRAM};
use mediagen::ts::mux::{Mux, Steps};
use mediagen::ts::packet::PACKET_LEN;
use mediagen::ts::stamp::Stamp;
use session::{Flow, FlowPacket, Handover, PacketHeader, Tag};

/// Payload memory is allocated in chunks of this size. Each of thousands of streams holds one or
/// two chunks, because unacknowledged payloads keep the previous one: large chunks cost more than
/// frequent allocations.
const CHUNK: usize = 4 * DATAGRAM;

/// Bit of a tag that marks a retransmission.
pub(crate) const RETRANSMISSION_TAG: u64 = 1 << 32;

/// Datagram counts of a flow. Their sum is `pktSent` once all datagrams have left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DepartureCounts {
    /// Packets sent for the first time.
    pub first: u64,
    /// Packets retransmitted.
    pub again: u64,
    /// Packets that the network stack did not accept.
    pub not_taken: u64,
}

/// Maximum number of delays kept until they are collected. Delays are collected every 50 ms, or
/// once a second if no packet arrives from the peer: that is enough for 500 Mb/s.
const DELAYS_MAX: usize = 65_536;

/// Datagram counts of a flow, and the delay of each datagram.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    pub(super) counts: DepartureCounts,
    /// Time that each packet spent in the send buffer before it was first sent, in nanoseconds.
    /// `None` if delays are not collected.
    delays: Option<Vec<u64>>,
}

impl Departures {
    /// Counts a packet of `sender`: `left` is `None` if the network stack did not accept it.
    #[inline]
    pub(super) fn count(&mut self, sender: &Sender, tag: Tag, left: Option<Handover>) {
        match left {
            None => self.counts.not_taken += 1,
            Some(left) if tag.0 & RETRANSMISSION_TAG == 0 => {
                self.counts.first += 1;
                if let Some(delays) = &mut self.delays
                    && delays.len() < DELAYS_MAX
                    && let Some(since) = sender.pushed_at(SeqNumber::new(tag.0 as u32))
                {
                    delays.push(left.ended.since(since).as_nanos() as u64);
                }
            }
            Some(_) => self.counts.again += 1,
        }
    }

    /// Starts to collect the time that packets wait.
    pub(crate) fn collect_delays(&mut self) {
        self.delays.get_or_insert_default();
    }

    /// Appends the delays collected since the last call to `into`.
    pub(crate) fn take_delays(&mut self, into: &mut Vec<u64>) {
        if let Some(delays) = &mut self.delays {
            into.append(delays);
        }
    }
}

#[inline]
pub(super) fn flow_packet(packet: Outgoing) -> FlowPacket {
    let again = if packet.retransmitted {
        RETRANSMISSION_TAG
    } else {
        0
    };
    FlowPacket {
        due: packet.due,
        header: PacketHeader::EMPTY.append(&packet.header),
        payload: packet.payload,
        tag: Tag(u64::from(packet.sequence.value()) | again),
    }
}

/// Sends the payloads that a session pushes to its sender, and their retransmissions.
#[derive(Debug)]
pub struct PushedFlow {
    sender: Sender,
    finished: bool,
    departures: Departures,
}

impl PushedFlow {
    /// Creates a flow with nothing to send.
    pub fn new(sender: Sender) -> PushedFlow {
        PushedFlow {
            sender,
            finished: false,
            departures: Departures::default(),
        }
    }

    /// Sender of the flow, which accepts payloads and control packets.
    pub fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    /// Ends the flow when every payload is acknowledged or too late. Nothing may be pushed
    /// afterwards.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Datagram counts so far.
    pub fn departure_counts(&self) -> DepartureCounts {
        self.departures.counts
    }
}

/// Returns when the sender has to act next, or `None` once it has finished.
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

impl Flow for PushedFlow {
    #[inline]
    fn next_due(&self) -> Option<Time> {
        next_due(&self.sender, self.finished)
    }

    #[inline]
    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        self.sender.next_packet(now).map(flow_packet)
    }

    #[inline]
    fn packet_sent(&mut self, tag: Tag, left: Option<Handover>) {
        self.departures.count(&self.sender, tag, left);
    }
}

/// Configuration of an [`SrtTsFlow`].
#[derive(Clone, Debug)]
pub struct TsFlowSettings {
    /// Stream that is sent in a loop, 1,316 bytes in a packet.
    pub looped: Arc<LoopedStream>,
    /// Address in the stamps: that of the stream's consumer, or where the stream is published.
    pub stamp_address: SocketAddr,
    /// Number in the stamps that distinguishes the runs of a source.
    pub source: u64,
    /// Wall clock time since 1970 at [`Time::ZERO`].
    pub wall_clock: Duration,
    /// Duration of the flow: payloads due within it are sent. Default: endless.
    pub length: Option<Duration>,
}

/// Sends a looped transport stream. The payload of each packet starts with a stamp.
#[derive(Debug)]
pub struct SrtTsFlow {
    sender: Sender,
    mux: Mux,
    stamp: Stamp,
    began: Option<Time>,
    /// Time of the next payload since `began`, in nanoseconds.
    due: Steps,
    count: u64,
    wall_clock: u64,
    buffer: BytesMut,
    departures: Departures,
}

impl SrtTsFlow {
    /// Creates a flow that has not started.
    pub fn new(settings: TsFlowSettings, sender: Sender) -> SrtTsFlow {
        let rate = settings.looped.bits_per_second();
        let count = settings.length.map_or(u64::MAX, |length| {
            let bits = length.as_nanos() * u128::from(rate) / 1_000_000_000;
            u64::try_from(bits.div_ceil(DATAGRAM_BITS.into())).unwrap_or(u64::MAX)
        });
        SrtTsFlow {
            sender,
            mux: Mux::new(settings.looped, settings.source as u32),
            stamp: Stamp {
                packets: PACKETS_PER_DATAGRAM as u8,
                group: settings.stamp_address,
                source: settings.source,
                number: 0,
                due: 0,
                check: 0,
            },
            began: None,
            due: Steps::new(DATAGRAM_BITS * 1_000_000_000, rate),
            count,
            wall_clock: u64::try_from(settings.wall_clock.as_nanos()).unwrap_or(u64::MAX),
            buffer: BytesMut::new(),
            departures: Departures::default(),
        }
    }

    /// Starts sending at `at`. Does nothing if the flow has already started.
    pub fn start(&mut self, at: Time) {
        self.began.get_or_insert(at);
    }

    /// Stops making media. The flow ends when every payload is acknowledged or too late.
    pub fn finish(&mut self) {
        self.count = self.stamp.number;
    }

    /// Sender of the flow, which accepts control packets.
    pub fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    pub(crate) fn departures(&mut self) -> &mut Departures {
        &mut self.departures
    }

    /// Number of payloads made so far. Their stamps are numbered from 0.
    pub fn made(&self) -> u64 {
        self.stamp.number
    }

    /// Datagram counts so far.
    pub fn departure_counts(&self) -> DepartureCounts {
        self.departures.counts
    }

    /// Time of the next payload. `None` before the start and after the last payload.
    #[inline]
    fn media_due(&self) -> Option<Time> {
        let began = self.began.filter(|_| !self.is_finished())?;
        Some(began + Duration::from_nanos(self.due.now))
    }

    #[inline]
    fn is_finished(&self) -> bool {
        self.stamp.number >= self.count
    }

    /// Makes the payload that is due at `due`, and pushes it to the sender.
    fn make(&mut self, due: Time) {
        if self.buffer.capacity() < DATAGRAM {
            self.buffer.reserve(CHUNK);
        }
        let due_nanos = self.wall_clock + due.as_nanos();
        self.mux.set_due(due_nanos);
        // Space for the stamp, which contains a checksum of the bytes after it.
        self.buffer.extend_from_slice(&[0; PACKET_LEN]);
        for _ in 1..PACKETS_PER_DATAGRAM {
            let room = &mut self.buffer;
            self.mux.next(|packet| room.extend_from_slice(packet));
        }
        self.stamp.check = libdeflater::crc32(&self.buffer[PACKET_LEN..]);
        self.stamp.due = due_nanos;
        self.buffer[..PACKET_LEN].copy_from_slice(&self.stamp.write());
        let payload = self.buffer.split();
        self.stamp.number += 1;
        self.due.advance();
        // The sender counts refused payloads.
        let _ = self.sender.push_owned(due, payload);
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
            // One payload at a time while packets can leave, so that a backlog is not made all at
            // once.
            if self.sender.next_due() <= now {
                break;
            }
        }
        self.sender.next_packet(now).map(flow_packet)
    }

    #[inline]
    fn packet_sent(&mut self, tag: Tag, left: Option<Handover>) {
        self.departures.count(&self.sender, tag, left);
    }
}

#[cfg(test)]
mod tests;
