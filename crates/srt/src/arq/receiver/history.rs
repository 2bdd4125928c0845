//! Record of recently arrived packets.

use crate::seq::SeqNumber;

/// Bitmap of recent packets.
#[derive(Debug)]
pub(super) struct History {
    words: Box<[u64]>,
}

impl History {
    /// Creates a history of at least `packets` packets.
    pub(super) fn new(packets: u32) -> History {
        let words = (packets.next_power_of_two() / 64).max(1);
        History {
            words: vec![0; words as usize].into(),
        }
    }

    fn packets(&self) -> u32 {
        self.words.len() as u32 * 64
    }

    #[inline]
    fn bit(&self, sequence: SeqNumber) -> (usize, u64) {
        // The size is a power of two, so that positions stay continuous across the wrap of numbers.
        let position = sequence.value() & (self.packets() - 1);
        ((position / 64) as usize, 1 << (position % 64))
    }

    #[inline]
    pub(super) fn insert(&mut self, sequence: SeqNumber) {
        let (word, bit) = self.bit(sequence);
        self.words[word] |= bit;
    }

    /// Marks `count` packets from `from` on as missing: their bits belonged to older packets.
    #[inline]
    pub(super) fn forget(&mut self, from: SeqNumber, count: u32) {
        if count >= self.packets() {
            return self.words.fill(0);
        }
        for offset in 0..count {
            let (word, bit) = self.bit(from.plus(offset));
            self.words[word] &= !bit;
        }
    }

    /// True if a packet before `next` has arrived, as far as it is remembered.
    pub(super) fn contains(&self, sequence: SeqNumber, next: SeqNumber) -> bool {
        let age = next.distance_from(sequence).unsigned_abs();
        let (word, bit) = self.bit(sequence);
        age <= self.packets() && self.words[word] & bit != 0
    }

    /// Heap memory in bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_packets_are_remembered_across_the_wrap() {
        let mut history = History::new(100);
        assert_eq!(history.packets(), 128);
        let start = SeqNumber::MAX.minus(60);
        let mut next = start;
        for step in 0..400u32 {
            history.forget(next, 1);
            if step % 3 == 0 {
                history.insert(next);
            }
            next = next.next();
            for back in 1..=step.min(127) {
                let sequence = next.minus(back);
                let came = (step + 1 - back) % 3 == 0;
                assert_eq!(history.contains(sequence, next), came, "{step} {back}");
            }
        }
        assert!(!history.contains(next.minus(129), next));
        history.forget(next, 1000);
        assert!((1..128).all(|back| !history.contains(next.minus(back), next)));
    }
}
