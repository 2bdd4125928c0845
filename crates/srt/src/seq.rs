//! Sequence numbers of 31 bits and timestamps of 32 bits, both of which wrap.

use measure::Time;

/// Sequence number of a packet (SRT, 3.1): 31 bits, and 0 follows the maximum. Numbers are compared
/// by their distance, so they have no total order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SeqNumber(u32);

impl SeqNumber {
    pub const MAX: SeqNumber = SeqNumber(0x7fff_ffff);

    /// Creates a number from the low 31 bits of a word.
    #[inline]
    pub const fn new(word: u32) -> SeqNumber {
        SeqNumber(word & SeqNumber::MAX.0)
    }

    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    #[inline]
    #[must_use]
    pub const fn next(self) -> SeqNumber {
        self.plus(1)
    }

    #[inline]
    #[must_use]
    pub const fn plus(self, count: u32) -> SeqNumber {
        SeqNumber::new(self.0.wrapping_add(count))
    }

    #[inline]
    #[must_use]
    pub const fn minus(self, count: u32) -> SeqNumber {
        SeqNumber::new(self.0.wrapping_sub(count))
    }

    /// Distance from `other`, negative if `self` is before it. The shorter way around the wrap
    /// counts.
    #[inline]
    pub const fn distance_from(self, other: SeqNumber) -> i32 {
        // 31-bit distance, shifted left and back to extend its sign.
        (self.0.wrapping_sub(other.0) << 1) as i32 >> 1
    }

    #[inline]
    pub const fn is_before(self, other: SeqNumber) -> bool {
        self.distance_from(other) < 0
    }
}

/// Clock of a socket's timestamps: microseconds since the socket was created, in 32 bits, which
/// wrap after 71 minutes (SRT, 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketClock {
    start: Time,
}

impl SocketClock {
    /// Creates the clock of a socket that was created at `start`.
    pub fn new(start: Time) -> SocketClock {
        SocketClock { start }
    }

    #[inline]
    pub fn timestamp(self, at: Time) -> u32 {
        (at.since(self.start).as_nanos() as u64 / 1000) as u32
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_compared_across_the_wrap() {
        let (zero, max) = (SeqNumber::new(0), SeqNumber::MAX);
        assert_eq!(max.next(), zero);
        assert_eq!(zero.minus(1), max);
        assert_eq!(zero.distance_from(max), 1);
        assert_eq!(max.distance_from(zero), -1);
        assert!(max.is_before(zero) && !zero.is_before(max) && !zero.is_before(zero));
        assert_eq!(SeqNumber::new(0x8000_0005).value(), 5);
    }

    #[test]
    fn timestamps_are_microseconds_and_wrap() {
        let start = Time::from_nanos(5_000);
        let clock = SocketClock::new(start);
        assert_eq!(clock.timestamp(start + Duration::from_micros(7)), 7);
        let wrapped = Duration::from_micros((1 << 32) + 3);
        assert_eq!(clock.timestamp(start + wrapped), 3);
    }

    proptest! {
        #[test]
        fn distance_inverts_plus_and_minus(from in any::<u32>(), distance in 0u32..0x3fff_ffff) {
            let from = SeqNumber::new(from);
            prop_assert_eq!(from.plus(distance).distance_from(from), distance as i32);
            prop_assert_eq!(from.minus(distance).distance_from(from), -(distance as i32));
        }
    }
}
