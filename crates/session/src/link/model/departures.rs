//! Packets under way on a link, in the order in which they leave.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use measure::Time;

/// A packet that leaves a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<T> {
    /// The packet.
    pub packet: T,
    /// Number of packets that were sent before it.
    pub number: u64,
    /// Time at which it was sent into the link.
    pub sent_at: Time,
    /// Time at which it leaves the link.
    pub due: Time,
    /// True for the second copy of a packet.
    pub copy: bool,
    /// Position of a wrong bit: a random number whose remainder by the packet's number of bits is
    /// the index.
    pub wrong_bit: Option<u64>,
}

/// Packets under way. Nearly all leave in the order in which they were sent and are kept in a
/// queue; reordered ones are kept in a heap. With 5,000 packets under way, a heap for all would
/// cost as much as the rest of the model.
#[derive(Debug)]
pub(super) struct Departures<T> {
    in_order: VecDeque<Departure<T>>,
    reordered: BinaryHeap<Reverse<Departure<T>>>,
}

/// A packet that leaves, with its length in bytes.
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
            in_order: VecDeque::new(),
            reordered: BinaryHeap::new(),
        }
    }

    /// Number of packets under way.
    pub(super) fn len(&self) -> usize {
        self.in_order.len() + self.reordered.len()
    }

    #[inline]
    pub(super) fn push(&mut self, departure: Departure<T>) {
        match self.in_order.back() {
            Some(last) if departure < *last => self.reordered.push(Reverse(departure)),
            _ => self.in_order.push_back(departure),
        }
    }

    /// True if the next packet to leave is the first of `in_order`.
    #[inline]
    fn next_is_in_order(&self) -> bool {
        match (self.in_order.front(), self.reordered.peek()) {
            (Some(first), Some(Reverse(other))) => first < other,
            (first, _) => first.is_some(),
        }
    }

    /// Time at which the next packet leaves.
    #[inline]
    pub(super) fn next(&self) -> Option<Time> {
        let next = match self.next_is_in_order() {
            true => self.in_order.front(),
            false => self.reordered.peek().map(|Reverse(other)| other),
        };
        next.map(|next| next.delivery.due)
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Departure<T>> {
        match self.next_is_in_order() {
            true => self.in_order.pop_front(),
            false => self.reordered.pop().map(|Reverse(other)| other),
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
                sent_at: Time::ZERO,
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
