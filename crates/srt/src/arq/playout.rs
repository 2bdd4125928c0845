//! Reorder buffer that keeps packets until they are due.

use std::collections::VecDeque;
use std::fmt;

use measure::Time;

use crate::codec::packet::{DataHeader, KeyFlag};
use crate::seq::SeqNumber;

/// Packet that is due for delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered<'a> {
    pub sequence: SeqNumber,
    pub message: u32,
    /// Time when the media was handed to the peer's sender, by the peer's clock.
    pub timestamp: u32,
    pub due: Time,
    /// Key that the payload is still encrypted with.
    pub key: KeyFlag,
    pub payload: &'a [u8],
}

/// Packets by sequence number. Memory grows with the number of waiting packets, and is reused.
pub(super) struct Playout {
    /// Slots from `next` on.
    slots: VecDeque<Slot>,
    /// Next packet to be delivered.
    next: SeqNumber,
    held: u32,
    /// Payload buffers, and the indices of free ones.
    buffers: Vec<Vec<u8>>,
    free: Vec<u32>,
    /// Buffer of the packet that was delivered last.
    delivered_buffer: Option<u32>,
}

#[derive(Clone, Copy)]
struct Slot {
    /// Index of the payload buffer, or `None` if the packet is missing.
    buffer: Option<u32>,
    message: u32,
    timestamp: u32,
    key: KeyFlag,
    due: Time,
}

const EMPTY: Slot = Slot {
    buffer: None,
    message: 0,
    timestamp: 0,
    key: KeyFlag::None,
    due: Time::NEVER,
};

impl fmt::Debug for Playout {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Playout")
            .field("next", &self.next)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

impl Playout {
    pub(super) fn new(first: SeqNumber) -> Playout {
        Playout {
            slots: VecDeque::new(),
            next: first,
            held: 0,
            buffers: Vec::new(),
            free: Vec::new(),
            delivered_buffer: None,
        }
    }

    pub(super) fn next(&self) -> SeqNumber {
        self.next
    }

    pub(super) fn held(&self) -> u32 {
        self.held
    }

    /// Keeps a packet, which must be within the window. Ignores packets that are already kept or
    /// delivered.
    pub(super) fn insert(&mut self, header: &DataHeader, due: Time, payload: &[u8]) {
        let Ok(index) = usize::try_from(header.sequence.distance_from(self.next)) else {
            return;
        };
        if self.slots.len() <= index {
            self.slots.resize(index + 1, EMPTY);
        }
        if self.slots[index].buffer.is_some() {
            return;
        }
        let buffer = self.free.pop().unwrap_or_else(|| {
            self.buffers.push(Vec::new());
            self.buffers.len() as u32 - 1
        });
        let bytes = &mut self.buffers[buffer as usize];
        bytes.clear();
        bytes.extend_from_slice(payload);
        self.slots[index] = Slot {
            buffer: Some(buffer),
            message: header.message,
            timestamp: header.timestamp,
            key: header.key,
            due,
        };
        self.held += 1;
    }

    /// Skips missing packets before `to`.
    pub(super) fn skip(&mut self, to: SeqNumber) {
        while self.next.is_before(to) && self.due().is_none() {
            self.slots.pop_front();
            self.next = self.next.next();
        }
    }

    /// Due time of the next packet, or `None` if the packet is missing.
    pub(super) fn due(&self) -> Option<Time> {
        let slot = self.slots.front()?;
        slot.buffer.map(|_| slot.due)
    }

    /// Returns the next packet, if it is present and due.
    pub(super) fn deliver(&mut self, now: Time) -> Option<Delivered<'_>> {
        self.free.extend(self.delivered_buffer.take());
        if self.due()? > now {
            return None;
        }
        let slot = self.slots.pop_front()?;
        let buffer = slot.buffer?;
        let sequence = self.next;
        self.next = sequence.next();
        self.held -= 1;
        self.delivered_buffer = Some(buffer);
        Some(Delivered {
            sequence,
            message: slot.message,
            timestamp: slot.timestamp,
            due: slot.due,
            key: slot.key,
            payload: &self.buffers[buffer as usize],
        })
    }

    /// Heap memory in bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let payloads: usize = self.buffers.iter().map(Vec::capacity).sum();
        let lists = self.buffers.capacity() * size_of::<Vec<u8>>() + self.free.capacity() * 4;
        self.slots.capacity() * size_of::<Slot>() + payloads + lists
    }
}
