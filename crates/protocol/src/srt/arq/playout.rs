//! Packets that wait until they are due, each in its place.

use std::collections::VecDeque;
use std::fmt;

use measure::Time;

use crate::srt::codec::packet::{DataHeader, Key};
use crate::srt::seq::SeqNumber;

/// A packet whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered<'a> {
    /// Its sequence number.
    pub sequence: SeqNumber,
    /// The number of its message.
    pub message: u32,
    /// When its media was handed to the peer, by the peer's clock.
    pub timestamp: u32,
    /// When it was due.
    pub due: Time,
    /// With which key it is encrypted still.
    pub key: Key,
    /// Its payload.
    pub payload: &'a [u8],
}

/// Packets by sequence number. Memory grows with what waits at a time, and is used again.
pub(super) struct Playout {
    /// From the next packet on.
    slots: VecDeque<Slot>,
    /// The packet that is delivered next.
    next: SeqNumber,
    held: u32,
    /// Payload buffers, and which of them are free.
    buffers: Vec<Vec<u8>>,
    free: Vec<u32>,
    /// The buffer that was delivered last.
    out: Option<u32>,
}

#[derive(Clone, Copy)]
struct Slot {
    /// Which buffer; none where the packet is not there.
    buffer: Option<u32>,
    message: u32,
    timestamp: u32,
    key: Key,
    due: Time,
}

const EMPTY: Slot = Slot {
    buffer: None,
    message: 0,
    timestamp: 0,
    key: Key::None,
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
            out: None,
        }
    }

    pub(super) fn next(&self) -> SeqNumber {
        self.next
    }

    pub(super) fn held(&self) -> u32 {
        self.held
    }

    /// Keeps a packet that is not delivered yet, and is within the window from the next one.
    pub(super) fn keep(&mut self, header: &DataHeader, due: Time, payload: &[u8]) {
        let Ok(place) = usize::try_from(header.sequence.since(self.next)) else {
            return;
        };
        if self.slots.len() <= place {
            self.slots.resize(place + 1, EMPTY);
        }
        if self.slots[place].buffer.is_some() {
            return;
        }
        let buffer = self.free.pop().unwrap_or_else(|| {
            self.buffers.push(Vec::new());
            self.buffers.len() as u32 - 1
        });
        let bytes = &mut self.buffers[buffer as usize];
        bytes.clear();
        bytes.extend_from_slice(payload);
        self.slots[place] = Slot {
            buffer: Some(buffer),
            message: header.message,
            timestamp: header.timestamp,
            key: header.key,
            due,
        };
        self.held += 1;
    }

    /// Passes over packets that will not come, up to that one.
    pub(super) fn skip(&mut self, to: SeqNumber) {
        while self.next.is_before(to) && self.due().is_none() {
            self.slots.pop_front();
            self.next = self.next.next();
        }
    }

    /// When the next packet is due, where it is there.
    pub(super) fn due(&self) -> Option<Time> {
        let slot = self.slots.front()?;
        slot.buffer.map(|_| slot.due)
    }

    /// The next packet, where it is there and due.
    pub(super) fn deliver(&mut self, now: Time) -> Option<Delivered<'_>> {
        self.free.extend(self.out.take());
        if self.due()? > now {
            return None;
        }
        let slot = self.slots.pop_front()?;
        let buffer = slot.buffer?;
        let sequence = self.next;
        self.next = sequence.next();
        self.held -= 1;
        self.out = Some(buffer);
        Some(Delivered {
            sequence,
            message: slot.message,
            timestamp: slot.timestamp,
            due: slot.due,
            key: slot.key,
            payload: &self.buffers[buffer as usize],
        })
    }

    /// Bytes that it takes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let payloads: usize = self.buffers.iter().map(Vec::capacity).sum();
        let lists = self.buffers.capacity() * size_of::<Vec<u8>>() + self.free.capacity() * 4;
        self.slots.capacity() * size_of::<Slot>() + payloads + lists
    }
}
