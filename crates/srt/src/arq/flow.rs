//! Sender driven by the worker's pacer: [`SourceFlow`] sends media that it makes, or the payloads
//! that its session pushes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use measure::Time;
use serde::Serialize;

use super::message_source::MessageSource;
use super::sender::{Outgoing, Sender};
use crate::seq::SeqNumber;
use kit::media::ts::stamped_stream::StampedStream;
use kit::mediagen::ts::looped_stream::{DATAGRAM_BITS, LoopedStream};
use kit::mediagen::ts::mux::Steps;
use session::{Flow, FlowPacket, Handover, PacketHeader, Tag};

/// Number of payloads for which memory is allocated at once. Each of thousands of streams holds one
/// or two chunks, because unacknowledged payloads keep the previous one: large chunks cost more
/// than frequent allocations.
const TOGETHER: usize = 4;

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

#[inline]
fn flow_packet(packet: Outgoing) -> FlowPacket {
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

/// Identity of a stream in its stamps, and its length.
#[derive(Clone, Copy, Debug)]
pub struct SourceSettings {
    /// Address in the stamps: that of the stream's consumer, or where the stream is published.
    pub address: SocketAddr,
    /// Number in the stamps that distinguishes the runs of a source.
    pub source: u64,
    /// Wall clock time since 1970 at [`Time::ZERO`].
    pub wall_clock: Duration,
    /// Length of the media: payloads or messages due within it are sent. Default: endless.
    pub length: Option<Duration>,
}

/// Content of a flow.
#[derive(Debug)]
enum Content {
    /// Payloads that the session pushes to the sender.
    Pushed,
    Stream(Box<StampedStream>),
    Messages(MessageSource),
}

/// Sends a transport stream in a loop, generated messages, or the payloads of its session.
#[derive(Debug)]
pub struct SourceFlow {
    sender: Sender,
    content: Content,
    began: Option<Time>,
    /// Time of the next payload or message since `began`, in nanoseconds.
    due: Steps,
    made: u64,
    /// Total number of payloads or messages.
    count: u64,
    departed: DepartureCounts,
    /// Time that each packet spent in the send buffer before it was first sent, in nanoseconds.
    /// `None` if delays are not collected.
    delays: Option<Vec<u64>>,
}

impl SourceFlow {
    /// Creates a flow that has not started, of units of `bits` bits at `rate` bit/s.
    fn new(
        content: Content,
        (bits, rate): (u64, u64),
        length: Option<Duration>,
        sender: Sender,
    ) -> SourceFlow {
        let count = length.map_or(u64::MAX, |length| {
            let all = length.as_nanos() * u128::from(rate) / 1_000_000_000;
            u64::try_from(all.div_ceil(bits.into())).unwrap_or(u64::MAX)
        });
        SourceFlow {
            sender,
            content,
            began: None,
            due: Steps::new(bits * 1_000_000_000, rate),
            made: 0,
            count,
            departed: DepartureCounts::default(),
            delays: None,
        }
    }

    /// Creates a flow that sends the payloads pushed to its sender.
    pub fn pushed(sender: Sender) -> SourceFlow {
        SourceFlow::new(Content::Pushed, (1, 1), None, sender)
    }

    /// Creates a flow that sends a stream in a loop, 1,316 bytes in a packet. It has not started.
    pub fn stream(
        looped: Arc<LoopedStream>,
        settings: SourceSettings,
        sender: Sender,
    ) -> SourceFlow {
        let rate = looped.bits_per_second();
        let identity = (settings.address, settings.source);
        let stream = StampedStream::new(looped, identity, settings.wall_clock, TOGETHER);
        let content = Content::Stream(Box::new(stream));
        SourceFlow::new(content, (DATAGRAM_BITS, rate), settings.length, sender)
    }

    /// Creates a flow that sends generated messages. It has not started.
    pub fn messages(
        messages: MessageSource,
        length: Option<Duration>,
        sender: Sender,
    ) -> SourceFlow {
        let pace = (messages.bits().max(1), messages.bits_per_second.max(1));
        SourceFlow::new(Content::Messages(messages), pace, length, sender)
    }

    /// Starts making media at `at`. Does nothing if the flow has already started.
    pub fn start(&mut self, at: Time) {
        self.began.get_or_insert(at);
    }

    /// Stops making media; nothing may be pushed afterwards. The flow ends when everything is
    /// acknowledged, dropped or too late.
    pub fn finish(&mut self) {
        self.count = self.made;
    }

    /// Sender of the flow, which accepts control packets, and payloads if they are pushed.
    pub fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    /// Number of payloads or messages made so far. The stamps of payloads are numbered from 0.
    pub fn made(&self) -> u64 {
        self.made
    }

    /// Datagram counts so far.
    pub fn departure_counts(&self) -> DepartureCounts {
        self.departed
    }

    /// Starts to collect the time that packets wait in the send buffer.
    pub fn collect_delays(&mut self) {
        self.delays.get_or_insert_default();
    }

    /// Appends the delays collected since the last call to `into`, in nanoseconds.
    pub fn take_delays(&mut self, into: &mut Vec<u64>) {
        if let Some(delays) = &mut self.delays {
            into.append(delays);
        }
    }

    #[inline]
    fn is_finished(&self) -> bool {
        self.made >= self.count
    }

    /// Time of the next payload or message. `None` before the start and after the last one.
    #[inline]
    fn media_due(&self) -> Option<Time> {
        let began = self.began.filter(|_| !self.is_finished())?;
        if matches!(self.content, Content::Pushed) {
            return None;
        }
        Some(began + Duration::from_nanos(self.due.now))
    }

    /// Makes the payload or message that is due at `due`, and pushes it to the sender, which counts
    /// those that it refuses.
    fn make(&mut self, due: Time) {
        let _ = match &mut self.content {
            Content::Pushed => return,
            Content::Stream(stream) => self.sender.push_owned(due, stream.next(due)),
            Content::Messages(messages) => {
                let message = messages.content(self.made);
                self.sender.push_message(due, &message, messages.in_order)
            }
        };
        self.made += 1;
        self.due.advance();
    }
}

impl Flow for SourceFlow {
    #[inline]
    fn next_due(&self) -> Option<Time> {
        let due = self.sender.next_due();
        let sender = match self.sender.unacknowledged() {
            _ if !self.is_finished() => Some(due),
            0 => None,
            _ => Some(self.sender.drops_at().map_or(due, |drops| drops.min(due))),
        };
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
        match left {
            None => self.departed.not_taken += 1,
            Some(left) if tag.0 & RETRANSMISSION_TAG == 0 => {
                self.departed.first += 1;
                if let Some(delays) = &mut self.delays
                    && delays.len() < DELAYS_MAX
                    && let Some(since) = self.sender.pushed_at(SeqNumber::new(tag.0 as u32))
                {
                    delays.push(left.ended.since(since).as_nanos() as u64);
                }
            }
            Some(_) => self.departed.again += 1,
        }
    }
}

#[cfg(test)]
mod tests;
