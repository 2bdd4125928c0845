//! When the packets of a stream came.

use std::time::Duration;

use measure::Time;

/// When the last packet came, and the longest time without any. It means nothing before
/// [`Arrivals::begin`]: whoever holds it knows whether the first packet has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Arrivals {
    last: Time,
    /// In nanoseconds.
    longest_gap: u64,
}

impl Arrivals {
    /// The first packet came, or the first after a time in which none was to come.
    #[inline]
    pub(crate) fn begin(&mut self, at: Time) {
        self.last = at;
    }

    /// A packet came. It may be one that came before others: then there is no gap.
    #[inline(always)]
    pub(crate) fn packet(&mut self, at: Time) {
        self.silent_until(at);
        self.last = self.last.max(at);
    }

    /// Nothing came up to `until`, though it was to: that gap counts.
    #[inline(always)]
    pub(crate) fn silent_until(&mut self, until: Time) {
        let gap = until.nanos_from(self.last).max(0) as u64;
        self.longest_gap = self.longest_gap.max(gap);
    }

    /// When the last packet came.
    #[inline]
    pub(crate) fn last(&self) -> Time {
        self.last
    }

    /// The longest time without a packet.
    pub(crate) fn longest_gap(&self) -> Duration {
        Duration::from_nanos(self.longest_gap)
    }
}
