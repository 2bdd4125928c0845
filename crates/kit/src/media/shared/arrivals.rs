//! Arrival times of the packets of a stream.

use std::time::Duration;

use measure::Time;

/// Arrival of the last packet, and the longest gap so far. Meaningless before [`Arrivals::begin`]:
/// the owner knows whether the first packet has arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Arrivals {
    last: Time,
    /// In nanoseconds.
    longest_gap: u64,
}

impl Arrivals {
    /// Handles the first packet, or the first one after a time in which none was expected.
    #[inline]
    pub fn begin(&mut self, at: Time) {
        self.last = at;
    }

    /// Handles a packet. A packet that arrived before an earlier handled one makes no gap.
    #[inline(always)]
    pub fn packet(&mut self, at: Time) {
        self.silent_until(at);
        self.last = self.last.max(at);
    }

    /// Counts the gap up to `until`. To be called if packets were expected and none arrived.
    #[inline(always)]
    pub fn silent_until(&mut self, until: Time) {
        let gap = until.nanos_from(self.last).max(0) as u64;
        self.longest_gap = self.longest_gap.max(gap);
    }

    #[inline]
    pub fn last(&self) -> Time {
        self.last
    }

    /// Longest time without a packet.
    pub fn longest_gap(&self) -> Duration {
        Duration::from_nanos(self.longest_gap)
    }
}
