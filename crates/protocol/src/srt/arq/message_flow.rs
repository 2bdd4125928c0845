//! Senders of made messages, as the worker's pacer drives them.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use measure::Time;
use mediagen::ts::mux::Steps;

use super::flow::{Departures, Left, next_due, packet};
use super::sender::Sender;
use crate::session::{Flow, FlowPacket, Handover, Tag};

/// The messages of a sender: all of one size, evenly spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadeMessages {
    /// How long each is, in bytes.
    pub size: usize,
    /// How many bits of them there are in a second: at least 1.
    pub bits_per_second: u64,
    /// Whether they are to be handed on in order.
    pub in_order: bool,
    /// After how long one is dropped that is not acknowledged. Default: never.
    pub ttl: Option<Duration>,
}

impl MadeMessages {
    /// The content of a message: its number, and bytes that follow from it.
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

/// Sends made messages.
#[derive(Debug)]
pub struct MessageFlow {
    sender: Sender,
    messages: MadeMessages,
    began: Option<Time>,
    /// When the next message is due, from there, in nanoseconds.
    due: Steps,
    made: u64,
    /// How many there are in all.
    count: u64,
    departures: Departures,
}

impl MessageFlow {
    /// A flow that has not begun. It makes the messages that are due within `length`; without one
    /// it has no end.
    pub fn new(messages: MadeMessages, length: Option<Duration>, sender: Sender) -> MessageFlow {
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

    /// Begins to send at `at`. Does nothing where it has begun.
    pub fn start(&mut self, at: Time) {
        self.began.get_or_insert(at);
    }

    /// Makes no more messages: the flow ends when everything is acknowledged, or dropped.
    pub fn finish(&mut self) {
        self.count = self.made;
    }

    /// The sender, which takes control packets.
    pub fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    /// How many messages were made so far.
    pub fn made(&self) -> u64 {
        self.made
    }

    /// What became of its datagrams.
    pub fn left_so_far(&self) -> Left {
        self.departures.left
    }

    pub(in crate::srt) fn departures(&mut self) -> &mut Departures {
        &mut self.departures
    }

    /// When the next message is due; none before it has begun, and where none will follow.
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
            // The sender counts what it does not take.
            let _ = self
                .sender
                .push_message(due, &message, self.messages.in_order);
            // One at a time, unless it cannot leave: what is late is not made all at once.
            if self.sender.next_due() <= now {
                break;
            }
        }
        self.sender.next_packet(now).map(packet)
    }

    fn left(&mut self, tag: Tag, left: Option<Handover>) {
        self.departures.count(&self.sender, tag, left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_tell_messages_apart_whatever_their_size() {
        for size in [1, 7, 8, 5000] {
            let messages = MadeMessages {
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
