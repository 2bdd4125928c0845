//! Senders of generated messages, driven by the worker's pacer.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use measure::Time;
use mediagen::ts::mux::Steps;

use super::flow::{DepartureCounts, Departures, flow_packet, next_due};
use super::sender::Sender;
use session::{Flow, FlowPacket, Handover, Tag};

/// Messages of a sender: all of one size, evenly spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageSource {
    /// Size of a message in bytes.
    pub size: usize,
    /// Bit rate of the messages: at least 1.
    pub bits_per_second: u64,
    /// True if messages are to be delivered in order.
    pub in_order: bool,
    /// Time after which an unacknowledged message is dropped. Default: never.
    pub ttl: Option<Duration>,
}

impl MessageSource {
    /// Content of a message: its number, and bytes derived from the number.
    pub fn content(&self, number: u64) -> Bytes {
        let mut content = BytesMut::zeroed(self.size);
        let mut next = number as u8;
        for byte in content.iter_mut() {
            *byte = next;
            next = next.wrapping_add(1);
        }
        let number = number.to_be_bytes();
        let shown = number.len().min(self.size);
        content[..shown].copy_from_slice(&number[number.len() - shown..]);
        content.freeze()
    }

    fn bits(&self) -> u64 {
        8 * self.size as u64
    }
}

/// Sends generated messages.
#[derive(Debug)]
pub struct MessageFlow {
    sender: Sender,
    messages: MessageSource,
    began: Option<Time>,
    /// Time of the next message since `began`, in nanoseconds.
    due: Steps,
    made: u64,
    /// Total number of messages.
    count: u64,
    departures: Departures,
}

impl MessageFlow {
    /// Creates a flow that has not started. It makes the messages that are due within `length`, or
    /// runs endlessly if `length` is `None`.
    pub fn new(messages: MessageSource, length: Option<Duration>, sender: Sender) -> MessageFlow {
        let (bits, rate) = (messages.bits().max(1), messages.bits_per_second.max(1));
        let count = length.map_or(u64::MAX, |length| {
            let all = length.as_nanos() * u128::from(rate) / 1_000_000_000;
            u64::try_from(all.div_ceil(bits.into())).unwrap_or(u64::MAX)
        });
        MessageFlow {
            sender,
            messages,
            began: None,
            due: Steps::new(bits * 1_000_000_000, rate),
            made: 0,
            count,
            departures: Departures::default(),
        }
    }

    /// Starts sending at `at`. Does nothing if the flow has already started.
    pub fn start(&mut self, at: Time) {
        self.began.get_or_insert(at);
    }

    /// Stops making messages. The flow ends when every message is acknowledged or dropped.
    pub fn finish(&mut self) {
        self.count = self.made;
    }

    /// Sender of the flow, which accepts control packets.
    pub fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    /// Number of messages made so far.
    pub fn made(&self) -> u64 {
        self.made
    }

    /// Datagram counts so far.
    pub fn departure_counts(&self) -> DepartureCounts {
        self.departures.counts
    }

    pub(crate) fn departures(&mut self) -> &mut Departures {
        &mut self.departures
    }

    /// Time of the next message. `None` before the start and after the last message.
    fn message_due(&self) -> Option<Time> {
        let began = self.began.filter(|_| self.made < self.count)?;
        Some(began + Duration::from_nanos(self.due.now))
    }
}

impl Flow for MessageFlow {
    fn next_due(&self) -> Option<Time> {
        let sender = next_due(&self.sender, self.made >= self.count);
        sender.into_iter().chain(self.message_due()).min()
    }

    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        while let Some(due) = self.message_due().filter(|&due| due <= now) {
            let message = self.messages.content(self.made);
            self.made += 1;
            self.due.advance();
            // The sender counts refused messages.
            let _ = self
                .sender
                .push_message(due, &message, self.messages.in_order);
            // One message at a time while packets can leave, so that a backlog is not made all at
            // once.
            if self.sender.next_due() <= now {
                break;
            }
        }
        self.sender.next_packet(now).map(flow_packet)
    }

    fn packet_sent(&mut self, tag: Tag, left: Option<Handover>) {
        self.departures.count(&self.sender, tag, left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_differ_between_messages_of_any_size() {
        for size in [1, 7, 8, 5000] {
            let messages = MessageSource {
                size,
                bits_per_second: 1,
                in_order: true,
                ttl: None,
            };
            let (one, next) = (messages.content(258), messages.content(259));
            assert_eq!((one.len(), next.len()), (size, size));
            assert_ne!(one, next);
            assert_eq!(one, messages.content(258));
        }
    }
}
