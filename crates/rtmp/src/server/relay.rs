//! Relays a published stream, as fast as the connection takes it.

use std::sync::Arc;

use measure::Time;

use super::relayed::{PublishedStreams, RelayedMessage};
use crate::codec::message::MessageType;
use crate::codec::write::{self, MessageHeader};
use crate::flow::{FlowFaults, FrameFault, FrameFaults, MessageCategory, OutgoingMessage, Sent};
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
    message: Option<OutgoingMessage>,
    piece_pending: bool,
    frame_faults: FrameFaults,
    sent: Sent,
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
            message: None,
            piece_pending: false,
            frame_faults: FrameFaults::new(faults, seed),
            sent: Sent::default(),
        }
    }

    /// Notifies the flow that there are more messages.
    pub(super) fn wake(&mut self, now: Time) {
        self.more_since.get_or_insert(now);
    }

    pub(super) fn sent(&self) -> Sent {
        self.sent
    }

    fn next_message(&mut self) -> Option<OutgoingMessage> {
        self.more_since?;
        let (message, fault) = loop {
            let Some((message, number)) = self.published.get(&self.name, self.next) else {
                self.more_since = None;
                return None;
            };
            self.sent.not_taken += number - self.next;
            self.next = number + 1;
            let fault = match message.category {
                MessageCategory::Other => FrameFault::Whole,
                category => self.frame_faults.next(category.is_video(), &mut self.sent),
            };
            if fault != FrameFault::Dropped {
                break (message, fault);
            }
        };
        let head = message_header(&message, self.stream);
        let due = message.received_at;
        let payload = &message.payload[..];
        if fault == FrameFault::Malformed {
            return Some(OutgoingMessage::malformed(
                head,
                self.chunk_size,
                payload,
                due,
            ));
        }
        let mut out = Vec::with_capacity(head.wire_bytes(payload.len(), self.chunk_size));
        head.write(&[payload], self.chunk_size, &mut out);
        Some(OutgoingMessage::new(
            head,
            self.chunk_size,
            out.into(),
            due,
            message.category,
            payload.len(),
        ))
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
        Some(match (&self.message, self.piece_pending) {
            (_, true) => Time::NEVER,
            (Some(message), false) => message.due(),
            (None, false) => self.more_since.unwrap_or(Time::NEVER),
        })
    }

    fn next_packet(&mut self, _: Time) -> Option<FlowPacket> {
        if self.piece_pending {
            return None;
        }
        if self.message.is_none() {
            self.message = self.next_message();
        }
        let packet = self.message.as_mut()?.next_piece();
        self.piece_pending = true;
        Some(packet)
    }

    fn packet_sent(&mut self, _: Tag, left: Option<Handover>) {
        self.piece_pending = false;
        let (Some(message), Some(left)) = (&mut self.message, left) else {
            return;
        };
        if !message.confirm_piece() {
            return;
        }
        if message.is_video() {
            self.frame_faults.record_video_sent(&mut self.sent);
        }
        message.add_to(&mut self.sent, left);
        self.message = None;
    }

    fn needs_send_times(&self) -> bool {
        true
    }

    fn is_byte_stream(&self) -> bool {
        true
    }
}
