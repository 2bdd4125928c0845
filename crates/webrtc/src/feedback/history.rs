//! Recently sent packets of a source, kept for retransmission requests.

use std::time::Duration;

use bytes::Bytes;
use measure::Time;

use session::PacketHeader;

/// A sent packet, as it was before encryption.
#[derive(Clone, Debug)]
pub struct SentPacket {
    pub header: PacketHeader,
    /// May be shared with other receivers of the same media.
    pub payload: Bytes,
    sequence: u16,
    /// Time of the last retransmission.
    retransmitted_at: Option<Time>,
}

/// Counts of retransmission requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendHistoryCounts {
    /// Packets requested, counting every request.
    pub requested: u64,
    /// Packets retransmitted.
    pub retransmitted: u64,
    /// Packets requested again before a retransmission could have arrived.
    pub too_soon: u64,
    /// Packets no longer in the history, or never sent.
    pub unknown: u64,
}

/// The most recent packets of a source, up to a fixed number.
#[derive(Debug)]
pub struct SendHistory {
    /// Indexed by sequence number modulo `length`.
    slots: Vec<Option<SentPacket>>,
    length: usize,
    retransmission_interval: Duration,
    counts: SendHistoryCounts,
}

impl SendHistory {
    /// Keeps `length` packets, rounded up to a power of two, at most 4,096.
    pub fn new(length: usize) -> SendHistory {
        SendHistory {
            slots: Vec::new(),
            // A power of two divides the sequence number space, so that each number has one slot.
            length: length.clamp(1, 4096).next_power_of_two(),
            retransmission_interval: Duration::from_millis(5),
            counts: SendHistoryCounts::default(),
        }
    }

    /// Sets the round-trip time, which counts as 5 ms if shorter. Requests for a packet that was
    /// retransmitted less than this time ago are ignored.
    pub fn set_round_trip(&mut self, round_trip: Duration) {
        self.retransmission_interval = round_trip.max(Duration::from_millis(5));
    }

    pub fn counts(&self) -> SendHistoryCounts {
        self.counts
    }

    /// Stores a packet that is sent for the first time.
    pub fn store(&mut self, sequence: u16, header: PacketHeader, payload: Bytes) {
        let slot = usize::from(sequence) % self.length;
        if self.slots.len() <= slot {
            // All slots are allocated at once, with the first packet.
            self.slots.resize_with(self.length, || None);
        }
        self.slots[slot] = Some(SentPacket {
            header,
            payload,
            sequence,
            retransmitted_at: None,
        });
    }

    /// Returns a requested packet if it should be retransmitted, and counts it as retransmitted.
    pub fn retransmit(&mut self, sequence: u16, now: Time) -> Option<&SentPacket> {
        self.counts.requested += 1;
        let slot = usize::from(sequence) % self.length;
        let entry = self.slots.get_mut(slot).and_then(Option::as_mut);
        let Some(sent) = entry.filter(|sent| sent.sequence == sequence) else {
            self.counts.unknown += 1;
            return None;
        };
        // A first request is always answered, however early: the packet did not arrive in time.
        if sent
            .retransmitted_at
            .is_some_and(|at| now.since(at) < self.retransmission_interval)
        {
            self.counts.too_soon += 1;
            return None;
        }
        sent.retransmitted_at = Some(now);
        self.counts.retransmitted += 1;
        Some(sent)
    }
}
