//! Index of a packet (48 bits) from its sequence number (16 bits): the estimate of RFC 3711, 3.3.1,
//! as implemented by libsrtp.
//!
//! A server may start a receiver's sequence numbers at 1 and then send an earlier packet: 65521.
//! RFC 3711 assigns that packet to the previous rollover, which does not exist. libsrtp, which
//! nearly all servers and browsers use on both sides, gives it index 65521, and assigns the packets
//! after it to the next rollover. A receiver that finds another index than the sender cannot open
//! any further packet.

/// Half of the sequence number space.
const HALF: u64 = 1 << 15;

/// Estimates the index of a packet. `highest` is the highest index so far, or 0 if there was no
/// packet.
#[inline]
pub(super) fn estimate_index(highest: u64, sequence: u16) -> u64 {
    let bare = u64::from(sequence);
    if highest <= HALF {
        return bare;
    }
    let (rollovers, last) = (highest >> 16, highest & 0xffff);
    let rollovers = if last < HALF {
        // `highest` is more than half of the space, so there is an earlier rollover.
        rollovers - u64::from(bare > last + HALF)
    } else {
        rollovers + u64::from(last - HALF > bare)
    };
    rollovers << 16 | bare
}

/// Index one rollover later: the right one if the sender has passed a rollover unseen.
pub(super) fn one_rollover_later(index: u64) -> u64 {
    index + (1 << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_packet_at_the_start_keeps_its_literal_index() {
        assert_eq!(estimate_index(3, 65521), 65521);
        assert_eq!(estimate_index(65521, 4), 1 << 16 | 4);
    }

    #[test]
    fn sequence_numbers_map_to_the_nearest_index() {
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
                estimate_index(highest, sequence),
                index,
                "{sequence} after {highest}"
            );
        }
    }
}
