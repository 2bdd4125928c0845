//! What is under way on a link, in the order in which it leaves.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use measure::Time;

/// A packet that leaves a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<T> {
    /// What was sent.
    pub packet: T,
    /// Its number: how many came before it.
    pub number: u64,
    /// When it came.
    pub came: Time,
    /// When it is to leave.
    pub due: Time,
    /// Whether it is the second copy of a packet.
    pub copy: bool,
    /// Where a bit of it is wrong: a random number, of which the remainder by the number of its
    /// bits is the bit.
    pub wrong_bit: Option<u64>,
}

/// Packets under way. Nearly all leave in the order in which they were sent, so these stand in a
/// line; those that are overtaken, or overtake, are in a heap. With 5,000 packets under way the
/// heap alone costs as much as all the rest of the model.
#[derive(Debug)]
pub(super) struct Departures<T> {
    line: VecDeque<Departure<T>>,
    others: BinaryHeap<Reverse<Departure<T>>>,
}

/// A packet that leaves, and how many bytes it has.
#[derive(Debug)]
pub(super) struct Departure<T> {
    pub(super) bytes: usize,
    pub(super) delivery: Delivery<T>,
}

impl<T> Departure<T> {
    fn key(&self) -> (Time, u64, bool) {
        (self.delivery.due, self.delivery.number, self.delivery.copy)
    }
}

impl<T> PartialEq for Departure<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Departure<T> {}

impl<T> PartialOrd for Departure<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Departure<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl<T> Departures<T> {
    pub(super) fn new() -> Departures<T> {
        Departures {
            line: VecDeque::new(),
            others: BinaryHeap::new(),
        }
    }

    /// How many are under way.
    pub(super) fn len(&self) -> usize {
        self.line.len() + self.others.len()
    }

    #[inline]
    pub(super) fn push(&mut self, departure: Departure<T>) {
        match self.line.back() {
            Some(last) if departure < *last => self.others.push(Reverse(departure)),
            _ => self.line.push_back(departure),
        }
    }

    /// Whether the next one is one of the line.
    #[inline]
    fn is_of_line(&self) -> bool {
        match (self.line.front(), self.others.peek()) {
            (Some(first), Some(Reverse(other))) => first < other,
            (first, _) => first.is_some(),
        }
    }

    /// When the next one leaves.
    #[inline]
    pub(super) fn next(&self) -> Option<Time> {
        let next = match self.is_of_line() {
            true => self.line.front(),
            false => self.others.peek().map(|Reverse(other)| other),
        };
        next.map(|next| next.delivery.due)
    }

    /// Takes the next one out.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Departure<T>> {
        match self.is_of_line() {
            true => self.line.pop_front(),
            false => self.others.pop().map(|Reverse(other)| other),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn departure(due: u64, number: u64) -> Departure<()> {
        Departure {
            bytes: 0,
            delivery: Delivery {
                packet: (),
                number,
                came: Time::ZERO,
                due: Time::from_nanos(due),
                copy: false,
                wrong_bit: None,
            },
        }
    }

    proptest! {
        #[test]
        fn packets_leave_in_order_of_their_times(
            steps in prop::collection::vec((0u64..50, any::<bool>()), 1..200),
        ) {
            let mut departures = Departures::new();
            let mut expected = std::collections::BTreeSet::new();
            for (number, (due, takes)) in steps.into_iter().enumerate() {
                let number = number as u64;
                departures.push(departure(due, number));
                expected.insert((due, number));
                prop_assert_eq!(departures.len(), expected.len());
                let first = expected.first().copied();
                let next = departures.next().map(|due| due.as_nanos());
                prop_assert_eq!(next, first.map(|(due, _)| due));
                if takes {
                    let left = departures.pop().map(|left| left.delivery);
                    let left = left.map(|left| (left.due.as_nanos(), left.number));
                    prop_assert_eq!(left, expected.pop_first());
                }
            }
        }
    }
}
