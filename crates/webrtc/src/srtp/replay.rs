//! Replay protection (RFC 3711, 3.3.2).

/// Size of the replay window, in packets. Browsers use the same size.
pub(super) const WINDOW_SIZE: u64 = 1024;

const WORDS: usize = (WINDOW_SIZE / 64) as usize;

/// Replay window of one source, by packet index.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplayWindow {
    /// True if a packet was received.
    has_packets: bool,
    /// Highest index received. 0 if no packet was received.
    pub(super) highest: u64,
    /// One bit for each of the last `WINDOW_SIZE` indices, at the index modulo `WINDOW_SIZE`.
    seen: [u64; WORDS],
}

impl ReplayWindow {
    fn bit_position(index: u64) -> (usize, u64) {
        let offset = index % WINDOW_SIZE;
        ((offset / 64) as usize, 1 << (offset % 64))
    }

    /// Returns true if the packet was not received before and is not too old to tell.
    #[inline]
    pub(super) fn is_new(&self, index: u64) -> bool {
        if !self.has_packets || index > self.highest {
            return true;
        }
        let (word, bit) = ReplayWindow::bit_position(index);
        self.highest - index < WINDOW_SIZE && self.seen[word] & bit == 0
    }

    /// Marks a new packet as received.
    #[inline]
    pub(super) fn mark_received(&mut self, index: u64) {
        if !self.has_packets {
            self.has_packets = true;
            self.highest = index;
        } else if index > self.highest {
            let passed = index - self.highest;
            if passed >= WINDOW_SIZE {
                self.seen = [0; WORDS];
            } else {
                // Skipped indices take the bits of indices that left the window.
                for missing in self.highest + 1..index {
                    let (word, bit) = ReplayWindow::bit_position(missing);
                    self.seen[word] &= !bit;
                }
            }
            self.highest = index;
        }
        let (word, bit) = ReplayWindow::bit_position(index);
        self.seen[word] |= bit;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn replay_window_matches_a_list_of_all_packets(
            steps in prop::collection::vec(prop_oneof![0u64..40, 900u64..1200, 0u64..5000], 1..300),
        ) {
            let (mut window, mut all) = (ReplayWindow::default(), BTreeSet::new());
            let mut centre = 6000u64;
            for step in steps {
                let index = centre + step / 2 - step % 2 * step;
                let highest = all.last().copied();
                let is_new = highest.is_none_or(|highest| index + WINDOW_SIZE > highest)
                    && !all.contains(&index);
                prop_assert_eq!(window.is_new(index), is_new, "{} of {:?}", index, highest);
                if is_new {
                    window.mark_received(index);
                    all.insert(index);
                }
                centre = centre.max(index);
                prop_assert_eq!(Some(window.highest), all.last().copied());
            }
        }
    }
}
