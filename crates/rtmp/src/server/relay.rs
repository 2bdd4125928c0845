//! Relays a published stream, as fast as the connection takes it.

use std::sync::Arc;

use measure::Time;

use super::relayed::{PublishedStreams, RelayedMessage};
use crate::codec::message::MessageType;
use crate::codec::write::{self, MessageHeader};
use crate::flow::{FlowFaults, FrameFault, MessageCategory, OutgoingMessage, Outlet, Sent};
use session::{Flow, FlowPacket, Handover, Tag};

/// Flow that sends a published stream to a player.
#[derive(Debug)]
pub(super) struct RelayFlow {
    published: Arc<PublishedStreams>,
    name: String,
    /// Number of the next message.
    next: u64,
    stream: u32,
    chunk_size: u32,
    /// Time since which there may be more messages.
    more_since: Option<Time>,
    outlet: Outlet,
}

impl RelayFlow {
    pub(super) fn new(
        published: Arc<PublishedStreams>,
        name: String,
        next: u64,
        stream: u32,
        chunk_size: u32,
        faults: &FlowFaults,
        seed: u64,
    ) -> RelayFlow {
        RelayFlow {
            published,
            name,
            next,
            stream,
            chunk_size,
            more_since: None,
            outlet: Outlet::new(faults, seed),
        }
    }

    /// Notifies the flow that there are more messages.
    pub(super) fn wake(&mut self, now: Time) {
        self.more_since.get_or_insert(now);
    }

    pub(super) fn sent(&self) -> Sent {
        self.outlet.sent
    }

    fn next_message(&mut self) -> Option<OutgoingMessage> {
        self.more_since?;
        let (message, fault) = loop {
            let Some((message, number)) = self.published.get(&self.name, self.next) else {
                self.more_since = None;
                return None;
            };
            self.outlet.sent.not_taken += number - self.next;
            self.next = number + 1;
            let fault = match message.category {
                MessageCategory::Other => FrameFault::Whole,
                category => self.outlet.next_fault(category.is_video()),
            };
            if fault != FrameFault::Dropped {
                break (message, fault);
            }
        };
        let head = message_header(&message, self.stream);
        let (chunk_size, due) = (self.chunk_size, message.received_at);
        let payload = &message.payload[..];
        Some(match fault {
            FrameFault::Malformed => OutgoingMessage::malformed(head, chunk_size, payload, due),
            _ => OutgoingMessage::new(head, chunk_size, payload, None, due, message.category),
        })
    }
}

pub(super) fn message_header(message: &RelayedMessage, stream: u32) -> MessageHeader {
    MessageHeader {
        chunk_stream: match message.kind {
            MessageType::Video => write::VIDEO,
            _ => write::AUDIO,
        },
        kind: message.kind,
        timestamp: message.timestamp,
        stream,
    }
}

impl Flow for RelayFlow {
    fn next_due(&self) -> Option<Time> {
        let next = self.outlet.next_due().or(self.more_since);
        Some(next.unwrap_or(Time::NEVER))
    }

    fn next_packet(&mut self, _: Time) -> Option<FlowPacket> {
        if self.outlet.is_empty() {
            let message = self.next_message();
            self.outlet.put(message);
        }
        self.outlet.next_piece()
    }

    fn packet_sent(&mut self, _: Tag, left: Option<Handover>) {
        self.outlet.piece_sent(left);
    }

    fn needs_send_times(&self) -> bool {
        true
    }

    fn is_byte_stream(&self) -> bool {
        true
    }
}
