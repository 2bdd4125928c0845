//! Division of slots among runners, and of a runner's slots among its workers.

/// Slots that belong to one owner: those whose remainder of a division is in a set.
///
/// The sets of all owners of a division are disjoint and cover every slot, so owners need no
/// coordination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    modulus: u64,
    /// In ascending order, all below `modulus`. Empty if no slot belongs to the owner.
    remainders: Vec<u64>,
}

impl Slots {
    /// Every slot `k` with `k % step == first`. Empty if `first` is not below `step`.
    pub fn every(first: u64, step: u64) -> Slots {
        Slots {
            modulus: step.max(1),
            remainders: (first < step).then_some(first).into_iter().collect(),
        }
    }

    /// The slots of `owner` if slot `k` belongs to `owners[k % owners.len()]`.
    pub fn of_owner(owner: usize, owners: &[usize]) -> Slots {
        let own = (0..).zip(owners).filter(|(_, one)| **one == owner);
        Slots {
            modulus: owners.len().max(1) as u64,
            remainders: own.map(|(remainder, _)| remainder).collect(),
        }
    }

    /// Every `parts`-th of these slots, from number `part` on.
    #[must_use]
    pub fn split(&self, part: u64, parts: u64) -> Slots {
        let parts = parts.max(1);
        let period = self.remainders.len() as u64;
        let numbers = (0..period).map(|number| part + number * parts);
        let own = numbers.filter(|_| part < parts);
        Slots {
            modulus: self.modulus.saturating_mul(parts),
            remainders: own.filter_map(|number| self.nth(number)).collect(),
        }
    }

    /// These slots up to `count`, and repeated after it, unless the division repeats earlier.
    pub(crate) fn repeated_after(&self, count: u64) -> Slots {
        if self.modulus <= count {
            return self.clone();
        }
        let below = self.remainders.iter().filter(|one| **one < count);
        Slots {
            modulus: count.max(1),
            remainders: below.copied().collect(),
        }
    }

    /// Returns `true` if no slot belongs to the owner.
    pub fn is_empty(&self) -> bool {
        self.remainders.is_empty()
    }

    /// Number of own slots below `slot`.
    pub fn count_below(&self, slot: u64) -> u64 {
        let rest = slot % self.modulus;
        let below = self.remainders.partition_point(|one| *one < rest) as u64;
        slot / self.modulus * self.remainders.len() as u64 + below
    }

    /// Number of an own slot among the own ones, counted from 0; `None` if it is another owner's.
    pub(crate) fn number_of(&self, slot: u64) -> Option<u64> {
        let rest = slot % self.modulus;
        let place = self.remainders.binary_search(&rest).ok()? as u64;
        Some(slot / self.modulus * self.remainders.len() as u64 + place)
    }

    /// The own slot with this number; `None` if there is none.
    pub fn nth(&self, number: u64) -> Option<u64> {
        let period = self.remainders.len() as u64;
        let round = number.checked_div(period)?;
        let place = usize::try_from(number % period).ok()?;
        let begin = round.checked_mul(self.modulus)?;
        begin.checked_add(self.remainders[place])
    }

    /// The first own slot from `slot` on.
    pub(crate) fn at_or_after(&self, slot: u64) -> Option<u64> {
        self.nth(self.count_below(slot))
    }

    /// The last own slot up to `slot`.
    pub(crate) fn at_or_before(&self, slot: u64) -> Option<u64> {
        let number = match self.number_of(slot) {
            Some(number) => number,
            None => self.count_below(slot).checked_sub(1)?,
        };
        self.nth(number)
    }
}

/// Maximum sum of the weights of a division.
pub const WEIGHTS_MAX: u64 = 1 << 16;

/// Divides `count` things in a row among owners with integer weights, and returns the owner of
/// each. Of every first `n` things an owner gets its exact share or less than one more or fewer.
///
/// The division repeats after as many things as the sum of the weights, which is at most
/// [`WEIGHTS_MAX`]. Owner `i` is due for its thing `k` from `k * sum / weight` on, and must have it
/// before `(k + 1) * sum / weight`; of those that are due, the one that must have its thing first
/// gets the next (earliest deadline first, Liu and Layland 1973).
///
/// Without a positive weight, all things belong to owner 0.
pub fn divide(weights: &[u32], count: usize) -> Vec<usize> {
    let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    if sum == 0 {
        return vec![0; count];
    }
    let mut given = vec![0_u64; weights.len()];
    (0..count as u64)
        .map(|place| {
            let deadline = |owner: usize| {
                let weight = u64::from(weights[owner]);
                ((given[owner] + 1) * sum).div_ceil(weight.max(1))
            };
            let is_due = |owner: &usize| {
                let weight = u64::from(weights[*owner]);
                weight > 0 && given[*owner] * sum / weight <= place
            };
            let next = (0..weights.len()).filter(is_due);
            let next = next.min_by_key(|owner| deadline(*owner));
            let next = next.unwrap_or_default();
            given[next] += 1;
            next
        })
        .collect()
}

/// Length of the row after which [`divide`] repeats itself.
pub fn period(weights: &[u32]) -> usize {
    let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    usize::try_from(sum.max(1)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_owners_take_turns() {
        assert_eq!(divide(&[1, 1, 1], 5), [0, 1, 2, 0, 1]);
        assert_eq!(divide(&[2, 1], 6), [0, 0, 1, 0, 0, 1]);
        assert_eq!(divide(&[0, 3], 2), [1, 1]);
        assert_eq!(divide(&[], 2), [0, 0]);
    }

    proptest! {
        #[test]
        fn every_prefix_is_divided_exactly(weights in prop::collection::vec(0u32..40, 1..9)) {
            let sum: u32 = weights.iter().sum();
            prop_assume!(sum > 0);
            let owners = divide(&weights, 2 * sum as usize);
            prop_assert_eq!(&owners[..sum as usize], &owners[sum as usize..]);
            for (owner, weight) in weights.iter().enumerate() {
                let mut given = 0_i64;
                for (place, one) in (1_i64..).zip(&owners) {
                    given += i64::from(*one == owner);
                    // Less than one thing away from the exact share.
                    let off = (given * i64::from(sum) - place * i64::from(*weight)).abs();
                    prop_assert!(off < i64::from(sum), "{owner} has {given} of {place}");
                }
            }
        }

        #[test]
        fn parts_of_a_division_are_the_whole(
            weights in prop::collection::vec(1u32..6, 1..6),
            parts in 1u64..5,
        ) {
            let owners = divide(&weights, period(&weights));
            let mut found = vec![0; 200];
            for owner in 0..weights.len() {
                let own = Slots::of_owner(owner, &owners);
                for part in 0..parts {
                    let slots = own.split(part, parts);
                    for number in 0.. {
                        let slot = slots.nth(number).expect("each owner has a weight");
                        if slot >= 200 {
                            prop_assert_eq!(slots.count_below(200), number);
                            break;
                        }
                        found[slot as usize] += 1;
                        prop_assert_eq!(slots.number_of(slot), Some(number));
                        prop_assert_eq!(slots.count_below(slot), number);
                        prop_assert_eq!(owners[slot as usize % owners.len()], owner);
                    }
                }
            }
            prop_assert!(found.iter().all(|times| *times == 1));
        }

        #[test]
        fn nearest_own_slots_are_found(
            weights in prop::collection::vec(0u32..5, 1..6),
            slot in 0u64..100,
        ) {
            let owners = divide(&weights, period(&weights));
            for owner in 0..weights.len() {
                let own = Slots::of_owner(owner, &owners);
                let is_own = |slot: &u64| own.number_of(*slot).is_some();
                prop_assert_eq!(own.at_or_after(slot), (slot..slot + 50).find(is_own));
                prop_assert_eq!(own.at_or_before(slot), (0..=slot).rev().find(is_own));
            }
        }
    }

    #[test]
    fn parts_without_slots_are_empty() {
        assert!(Slots::every(3, 3).is_empty());
        assert!(Slots::every(0, 1).split(2, 2).is_empty());
        assert_eq!(Slots::every(3, 3).nth(0), None);
        assert_eq!(Slots::every(3, 3).count_below(100), 0);
        assert_eq!(Slots::every(0, 1).split(1, 3), Slots::every(1, 3));
        assert_eq!(Slots::every(0, 1).nth(u64::MAX), Some(u64::MAX));
        assert_eq!(Slots::every(0, 2).nth(u64::MAX), None);
    }
}
