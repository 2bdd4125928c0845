//! Payloads in the order of their numbers. A player hands media on in order; so what comes behind a
//! gap waits here until the gap is filled or given up.

use std::collections::VecDeque;

use bytes::Bytes;
use measure::Time;

use super::seq::SeqNumber;

/// The most packets that wait, and gaps among them: libsrt's window. What is farther ahead has
/// those before it given up, because a peer may jump as often as it likes.
const WAITING_MAX: usize = 8192;

/// What waits behind gaps.
#[derive(Debug)]
pub(super) struct InOrder {
    /// The number of the first that was not handed on.
    next: SeqNumber,
    /// What came behind it, by how far.
    held: VecDeque<Option<Held>>,
    /// The latest time that anything was handed on with.
    latest: Time,
}

#[derive(Debug)]
struct Held {
    at: Time,
    payload: Bytes,
}

impl InOrder {
    pub(super) fn new(first: SeqNumber) -> InOrder {
        InOrder {
            next: first,
            held: VecDeque::new(),
            latest: Time::ZERO,
        }
    }

    /// Takes a payload in, and hands on what is in order with it. With each goes the time from
    /// which on it could be handed on: when it came, or what was before it. Nothing is copied that
    /// does not have to wait.
    #[inline]
    pub(super) fn put(
        &mut self,
        sequence: SeqNumber,
        at: Time,
        payload: &[u8],
        hand_on: &mut impl FnMut(&[u8], Time),
    ) {
        match usize::try_from(sequence.since(self.next)) {
            Ok(0) => {
                self.latest = self.latest.max(at);
                hand_on(payload, self.latest);
                self.next = self.next.next();
                if self.held.pop_front().is_some() {
                    self.hand_on_held(hand_on);
                }
            }
            Ok(ahead) if ahead < WAITING_MAX => self.hold(ahead, at, payload),
            Ok(_) => {
                self.skip(sequence, at, hand_on);
                self.put(sequence, at, payload, hand_on);
            }
            // Given up before.
            Err(_) => {}
        }
    }

    #[cold]
    fn hold(&mut self, ahead: usize, at: Time, payload: &[u8]) {
        if self.held.len() <= ahead {
            self.held.resize_with(ahead + 1, || None);
        }
        self.held[ahead] = Some(Held {
            at,
            payload: Bytes::copy_from_slice(payload),
        });
    }

    #[cold]
    fn hand_on_held(&mut self, hand_on: &mut impl FnMut(&[u8], Time)) {
        while let Some(Some(held)) = self.held.front_mut().map(Option::take) {
            self.held.pop_front();
            self.latest = self.latest.max(held.at);
            hand_on(&held.payload, self.latest);
            self.next = self.next.next();
        }
    }

    /// Everything before that number that has not come was given up by `at`: what waits behind it
    /// is handed on.
    #[inline]
    pub(super) fn give_up(
        &mut self,
        before: SeqNumber,
        at: Time,
        hand_on: &mut impl FnMut(&[u8], Time),
    ) {
        if self.next.is_before(before) {
            self.skip(before, at, hand_on);
        }
    }

    #[cold]
    fn skip(&mut self, before: SeqNumber, at: Time, hand_on: &mut impl FnMut(&[u8], Time)) {
        self.latest = self.latest.max(at);
        while self.next.is_before(before) {
            let Some(held) = self.held.pop_front() else {
                self.next = before;
                return;
            };
            if let Some(held) = held {
                hand_on(&held.payload, self.latest.max(held.at));
            }
            self.next = self.next.next();
        }
        self.hand_on_held(hand_on);
    }

    /// How many places wait.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn what_comes_behind_a_gap_waits_for_it() {
        let first = SeqNumber::MAX;
        let mut order = InOrder::new(first);
        let mut handed = Vec::new();
        let mut hand_on = |payload: &[u8], at: Time| handed.push((payload[0], at));
        order.put(first, at(1), b"0", &mut hand_on);
        order.put(first.plus(2), at(2), b"2", &mut hand_on);
        order.put(first.plus(4), at(3), b"4", &mut hand_on);
        order.put(first.plus(1), at(9), b"1", &mut hand_on);
        // The third is given up.
        order.give_up(first.plus(3), at(9), &mut hand_on);
        order.give_up(first.plus(5), at(12), &mut hand_on);
        order.put(first.plus(3), at(13), b"3", &mut hand_on);
        order.put(first.plus(5), at(14), b"5", &mut hand_on);
        // Nothing came, and it is known that nothing will.
        order.give_up(first.plus(5000), at(15), &mut hand_on);
        order.put(first.plus(5000), at(16), b"6", &mut hand_on);
        let expected = [
            (b'0', at(1)),
            (b'1', at(9)),
            (b'2', at(9)),
            (b'4', at(12)),
            (b'5', at(14)),
            (b'6', at(16)),
        ];
        assert_eq!(handed, expected);
        assert_eq!(order.waiting(), 0);
    }

    #[test]
    fn who_jumps_on_and_on_makes_nothing_grow() {
        let mut order = InOrder::new(SeqNumber::new(0));
        let mut handed = 0;
        for jump in 1..200 {
            let sequence = SeqNumber::new(jump * 8000);
            order.put(sequence, at(1), b"x", &mut |_, _| handed += 1);
            assert!(order.waiting() <= WAITING_MAX);
        }
        order.give_up(SeqNumber::new(200 * 8000), at(2), &mut |_, _| handed += 1);
        assert_eq!(handed, 199);
    }
}
