//! Content of messages whose packets arrive in any order.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};

use super::{Message, MessageTracker, distance_ahead};
use crate::codec::packet::DataHeader;
use crate::seq::SeqNumber;

/// Maximum number of bytes kept of incomplete messages: more than a window of libsrt holds.
const BYTES_MAX: usize = 16 << 20;

/// Keeps the packets of messages until the messages are whole.
#[derive(Debug, Default)]
pub struct MessageAssembly {
    /// Packets by message number.
    packets: BTreeMap<u32, Vec<(SeqNumber, Bytes)>>,
    bytes: usize,
}

impl MessageAssembly {
    /// Keeps a packet that arrived for the first time. A packet beyond the maximum is ignored, and
    /// its message then has no content.
    pub fn add_packet(&mut self, header: &DataHeader, payload: &[u8]) {
        if self.bytes + payload.len() > BYTES_MAX {
            return;
        }
        self.bytes += payload.len();
        let packets = self.packets.entry(header.message).or_default();
        packets.push((header.sequence, Bytes::copy_from_slice(payload)));
    }

    /// Returns the content of a whole message, or `None` if there was not enough space for it.
    pub fn take(&mut self, message: &Message) -> Option<Bytes> {
        let mut packets = self.packets.remove(&message.number)?;
        self.bytes -= bytes_of(&packets);
        // Packets that contradicted others are not part of the message.
        let offset = |sequence: SeqNumber| sequence.distance_from(message.first);
        packets.retain(|&(sequence, _)| {
            u32::try_from(offset(sequence)).is_ok_and(|offset| offset < message.packets)
        });
        packets.sort_unstable_by_key(|&(sequence, _)| offset(sequence));
        let length: usize = packets.iter().map(|(_, payload)| payload.len()).sum();
        if length as u64 != message.bytes {
            return None;
        }
        let mut content = BytesMut::with_capacity(length);
        for (_, payload) in packets {
            content.extend_from_slice(&payload);
        }
        Some(content.freeze())
    }

    /// Forgets messages that will never be whole.
    pub fn discard_settled(&mut self, messages: &MessageTracker) {
        let oldest = messages.oldest();
        let bytes = &mut self.bytes;
        self.packets.retain(|&number, packets| {
            let waits =
                oldest.is_some_and(|oldest| number == oldest || distance_ahead(number, oldest) > 0);
            if !waits {
                *bytes -= bytes_of(packets);
            }
            waits
        });
    }

    /// Number of bytes that are kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

fn bytes_of(packets: &[(SeqNumber, Bytes)]) -> usize {
    packets.iter().map(|(_, payload)| payload.len()).sum()
}
