//! Missing packets of a receiver: ranges, each with the time at which it is given up.

use std::collections::VecDeque;

use measure::Time;

use crate::codec::packet::LossRange;
use crate::seq::SeqNumber;

/// Consecutive missing packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) range: LossRange,
    /// Time at which the packets are given up: the due time of the packet behind them, which has
    /// arrived.
    pub(super) deadline: Time,
    /// True if a NAK has requested the packets.
    pub(super) requested: bool,
}

/// All gaps, in order of sequence numbers.
#[derive(Debug)]
pub(super) struct Gaps {
    gaps: VecDeque<Gap>,
    /// Maximum number of gaps.
    gaps_max: usize,
    /// Number of missing packets.
    pub(super) missing: u32,
}

impl Gaps {
    pub(super) fn new(gaps_max: usize) -> Gaps {
        Gaps {
            gaps: VecDeque::new(),
            gaps_max,
            missing: 0,
        }
    }

    pub(super) fn first(&self) -> Option<&Gap> {
        self.gaps.front()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Gap> {
        self.gaps.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Gap> {
        self.gaps.iter_mut()
    }

    /// Heap memory in bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.gaps.capacity() * size_of::<Gap>()
    }

    /// Adds a gap behind all others. If there are too many gaps, gives up the oldest ones, and
    /// returns the number of their packets.
    pub(super) fn push(&mut self, gap: Gap) -> u32 {
        self.missing += gap.range.count();
        self.gaps.push_back(gap);
        self.bound()
    }

    fn bound(&mut self) -> u32 {
        let mut given_up = 0;
        while self.gaps.len() > self.gaps_max {
            given_up += self.pop();
        }
        given_up
    }

    fn pop(&mut self) -> u32 {
        let count = self.gaps.pop_front().map_or(0, |gap| gap.range.count());
        self.missing -= count;
        count
    }

    /// Gives up packets whose deadline has passed, and returns their number.
    pub(super) fn expire(&mut self, now: Time) -> u32 {
        let mut given_up = 0;
        while self.gaps.front().is_some_and(|gap| gap.deadline < now) {
            given_up += self.pop();
        }
        given_up
    }

    /// Gives up all missing packets, and returns their number.
    pub(super) fn clear(&mut self) -> u32 {
        self.gaps.clear();
        std::mem::take(&mut self.missing)
    }

    /// Index of the first gap that does not end before `sequence`.
    fn find(&self, sequence: SeqNumber) -> usize {
        self.gaps
            .partition_point(|gap| gap.range.last.is_before(sequence))
    }

    /// Removes an arrived packet, which is due at `due`, from its gap. Returns the number of
    /// packets given up because the split made too many gaps, or `None` if the packet was not
    /// missing.
    pub(super) fn fill(&mut self, sequence: SeqNumber, due: Time) -> Option<u32> {
        let index = self.find(sequence);
        let gap = self.gaps.get_mut(index)?;
        let LossRange { first, last } = gap.range;
        if sequence.is_before(first) {
            return None;
        }
        let was = *gap;
        self.missing -= 1;
        // Packets before it are given up as soon as it is due.
        let before = Gap {
            range: LossRange {
                first,
                last: sequence.minus(1),
            },
            deadline: was.deadline.min(due),
            ..was
        };
        let behind = LossRange {
            first: sequence.next(),
            last,
        };
        match (sequence == first, sequence == last) {
            (true, true) => {
                self.gaps.remove(index);
            }
            (true, false) => gap.range = behind,
            (false, true) => *gap = before,
            (false, false) => {
                gap.range = behind;
                self.gaps.insert(index, before);
            }
        }
        // Earlier gaps must not keep a later deadline. The parts of a gap that `drop_range` split
        // still have the deadline of the whole.
        let later = |gap: &&mut Gap| gap.deadline > due;
        for gap in self.gaps.range_mut(..index).rev().take_while(later) {
            gap.deadline = due;
        }
        Some(self.bound())
    }

    /// Gives up the missing packets of a range, and returns their number.
    pub(super) fn drop_range(&mut self, range: LossRange) -> u32 {
        let mut given_up = 0;
        let mut index = self.find(range.first);
        while let Some(gap) = self.gaps.get_mut(index) {
            let LossRange { first, last } = gap.range;
            if range.last.is_before(first) {
                break;
            }
            let (keeps_before, keeps_behind) =
                (first.is_before(range.first), range.last.is_before(last));
            let before = LossRange {
                first,
                last: range.first.minus(1),
            };
            let behind = LossRange {
                first: range.last.next(),
                last,
            };
            let count = gap.range.count();
            match (keeps_before, keeps_behind) {
                (false, false) => {
                    given_up += count;
                    self.gaps.remove(index);
                    continue;
                }
                (true, false) => {
                    gap.range = before;
                    given_up += count - before.count();
                }
                (false, true) => {
                    gap.range = behind;
                    given_up += count - behind.count();
                }
                (true, true) => {
                    given_up += range.count();
                    let whole = *gap;
                    gap.range = before;
                    let range = behind;
                    self.gaps.insert(index + 1, Gap { range, ..whole });
                }
            }
            index += 1;
        }
        self.missing -= given_up;
        given_up + self.bound()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const START: SeqNumber = SeqNumber::new(0x7fff_fff0);

    fn seq(offset: u32) -> SeqNumber {
        START.plus(offset)
    }

    fn listed(gaps: &Gaps) -> BTreeMap<u32, Time> {
        let each = gaps.iter().flat_map(|gap| {
            let first = gap.range.first.distance_from(START) as u32;
            (first..first + gap.range.count()).map(move |offset| (offset, gap.deadline))
        });
        each.collect()
    }

    proptest! {
        /// Compares the gaps with a map of all packets, across the wrap of sequence numbers.
        #[test]
        fn gaps_match_a_map_of_all_packets(
            steps in prop::collection::vec((0u8..4, 0u32..40, 1u32..6), 1..80),
        ) {
            let mut gaps = Gaps::new(usize::MAX);
            let mut map: BTreeMap<u32, Time> = BTreeMap::new();
            let mut next = 0;
            for (kind, offset, count) in steps {
                let first = next + offset % 3 + 1;
                let deadline = |offset: u32| Time::from_nanos(u64::from(offset) * 10);
                match kind {
                    0 => {
                        let range = LossRange { first: seq(first), last: seq(first + count - 1) };
                        next = first + count;
                        let due = deadline(next);
                        let gap = Gap { range, deadline: due, requested: false };
                        prop_assert_eq!(gaps.push(gap), 0);
                        map.extend((first..next).map(|offset| (offset, deadline(next))));
                    }
                    1 => {
                        let was = map.remove(&offset);
                        let filled = gaps.fill(seq(offset), deadline(offset));
                        prop_assert_eq!(filled.is_some(), was.is_some());
                        if was.is_some() {
                            for (_, due) in map.range_mut(..offset) {
                                *due = (*due).min(deadline(offset));
                            }
                        }
                    }
                    2 => {
                        let range = LossRange { first: seq(offset), last: seq(offset + count - 1) };
                        let before = map.len();
                        map.retain(|at, _| !(offset..offset + count).contains(at));
                        prop_assert_eq!(gaps.drop_range(range) as usize, before - map.len());
                    }
                    _ => {
                        let now = deadline(offset);
                        let before = map.len();
                        map.retain(|_, due| *due >= now);
                        prop_assert_eq!(gaps.expire(now) as usize, before - map.len());
                    }
                }
                prop_assert_eq!(gaps.missing as usize, map.len());
                prop_assert_eq!(&listed(&gaps), &map);
            }
        }
    }

    #[test]
    fn gaps_before_an_arrived_packet_expire_when_it_is_due() {
        let at = |offset: u64| Time::from_nanos(offset * 10);
        let mut gaps = Gaps::new(10);
        gaps.push(Gap {
            range: LossRange {
                first: seq(31),
                last: seq(35),
            },
            deadline: at(36),
            requested: false,
        });
        let dropped = LossRange {
            first: seq(32),
            last: seq(32),
        };
        assert_eq!(gaps.drop_range(dropped), 1);
        assert!(gaps.fill(seq(34), at(34)).is_some());
        // 31 and 33 expire, 35 does not.
        assert_eq!(gaps.expire(at(35)), 2);
        assert_eq!((gaps.missing, gaps.expire(at(37))), (1, 1));
    }

    #[test]
    fn oldest_gaps_are_given_up_beyond_the_maximum() {
        let mut gaps = Gaps::new(2);
        let gap = |first, last| Gap {
            range: LossRange {
                first: seq(first),
                last: seq(last),
            },
            deadline: Time::NEVER,
            requested: false,
        };
        assert_eq!(gaps.push(gap(1, 3)), 0);
        assert_eq!(gaps.push(gap(5, 9)), 0);
        assert_eq!(gaps.push(gap(11, 11)), 3);
        // One gap becomes two.
        assert_eq!(gaps.fill(seq(7), Time::NEVER), Some(2));
        assert_eq!(gaps.missing, 3);
    }
}
