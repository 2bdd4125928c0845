//! From a sequence number of 16 bits to the index of 48 bits that a packet is protected with (RFC
//! 3711, 3.3.1), as libsrtp finds it.
//!
//! A server may start a receiver's sequence numbers at 1 and then send a packet that comes before
//! them: 65521. The estimate of RFC 3711 takes that for one of a rollover before, which is none.
//! libsrtp, which nearly all servers and browsers use on both sides, takes it for index 65521, and
//! the packets after it for those of the rollover that follows. Whoever finds another index than
//! the sender opens no packet any more.

/// Half of the sequence numbers.
const HALF: u64 = 1 << 15;

/// The index of a packet with that sequence number, after packets up to the index `highest`; 0
/// where there were none.
#[inline]
pub(super) fn estimate(highest: u64, sequence: u16) -> u64 {
    let bare = u64::from(sequence);
    if highest <= HALF {
        return bare;
    }
    let (rollovers, last) = (highest >> 16, highest & 0xffff);
    let rollovers = if last < HALF {
        // There is a rollover before, or `highest` were at most half.
        rollovers - u64::from(bare > last + HALF)
    } else {
        rollovers + u64::from(last - HALF > bare)
    };
    rollovers << 16 | bare
}

/// The index one rollover later: what it is if the sender has gone through one unseen.
pub(super) fn one_rollover_later(index: u64) -> u64 {
    index + (1 << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_packet_at_the_very_beginning_is_taken_literally() {
        assert_eq!(estimate(3, 65521), 65521);
        assert_eq!(estimate(65521, 4), 1 << 16 | 4);
    }

    #[test]
    fn numbers_are_taken_for_the_nearest_index() {
        for (highest, sequence, index) in [
            (0, 0, 0),
            (0, 65535, 65535),
            (40_000, 40_001, 40_001),
            (40_000, 39_999, 39_999),
            (40_000, 7231, 65536 + 7231),
            (40_000, 7232, 7232),
            (65_535, 0, 65_536),
            (65_536, 65_535, 65_535),
            (65_536 + 5, 32_773, 65_536 + 32_773),
            (65_536 + 5, 32_774, 32_774),
            (3 << 16, 65_535, (3 << 16) - 1),
        ] {
            assert_eq!(
                estimate(highest, sequence),
                index,
                "{sequence} after {highest}"
            );
        }
    }
}
