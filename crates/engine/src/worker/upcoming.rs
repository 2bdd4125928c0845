//! Datagrams out of a ring, some at a time.
//!
//! With thousands of streams what is known of one is out of the processor's caches when its next packet comes, and
//! to wait for it, line after line, takes several times as long as to count the packet. So some packets are
//! gathered, what all of them need is asked for at once, and only then are they counted, in their order.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use measure::Time;
use net::ring::{self, WANTED_BYTES};
use protocol::session::{Arrival, Sinks};

use super::ring::Target;

/// How many are gathered: enough for all that a processor can wait for at a time, few enough to stay in its
/// nearest cache themselves. 8 to 32 measured the same within a tenth.
const AT_ONCE: usize = 16;

/// Datagrams that are yet to be counted.
pub(super) struct Upcoming {
    entries: Box<[Entry; AT_ONCE]>,
    filled: usize,
}

/// What is needed of a datagram: its memory goes back to the kernel before it is counted.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    /// Which target's.
    pub(super) place: usize,
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    at: Time,
    length: usize,
    overhead: usize,
    kept: usize,
    bytes: [u8; WANTED_BYTES],
}

impl Entry {
    const NONE: Entry = Entry {
        place: 0,
        from: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        to: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        at: Time::ZERO,
        length: 0,
        overhead: 0,
        kept: 0,
        bytes: [0; WANTED_BYTES],
    };

    /// As its sink wants it.
    #[inline]
    pub(super) fn arrival(&self) -> Arrival<'_> {
        Arrival {
            at: self.at,
            bytes: &self.bytes[..self.kept],
            length: self.length,
            overhead: self.overhead,
        }
    }
}

impl Upcoming {
    pub(super) fn new() -> Upcoming {
        Upcoming {
            entries: Box::new([Entry::NONE; AT_ONCE]),
            filled: 0,
        }
    }

    /// Adds a datagram for that target. There has to be room.
    #[inline]
    pub(super) fn push(&mut self, place: usize, datagram: &ring::Datagram<'_>) {
        let entry = &mut self.entries[self.filled];
        entry.place = place;
        entry.from = datagram.from.ip();
        entry.to = datagram.to.ip();
        entry.at = datagram.at;
        entry.length = datagram.length;
        entry.overhead = datagram.overhead;
        entry.kept = datagram.bytes.len().min(WANTED_BYTES);
        entry.bytes[..entry.kept].copy_from_slice(&datagram.bytes[..entry.kept]);
        self.filled += 1;
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.filled == AT_ONCE
    }

    /// Takes all out, in the order in which they came, with what they need on its way into the caches.
    #[inline]
    pub(super) fn take(&mut self, targets: &[Option<Target>], sinks: &Sinks) -> &[Entry] {
        let entries = &self.entries[..std::mem::take(&mut self.filled)];
        // Each loop's loads depend on none of its own: the processor waits for all of them at once.
        for entry in entries {
            black_box(
                targets
                    .get(entry.place)
                    .and_then(Option::as_ref)
                    .map(Target::touch),
            );
        }
        for entry in entries {
            if let Some(Some(target)) = targets.get(entry.place) {
                black_box(sinks.touch(target.sink));
            }
        }
        entries
    }
}
