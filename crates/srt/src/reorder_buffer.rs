//! Payloads in order of their sequence numbers. A player delivers media in order, so payloads
//! behind a gap wait here until the gap is filled or given up.

use std::collections::VecDeque;

use bytes::Bytes;
use measure::Time;

use super::seq::SeqNumber;

/// Maximum number of waiting packets, including the gaps among them: libsrt's window. A packet
/// farther ahead causes earlier ones to be given up, because a peer may jump ahead as often as it
/// likes.
const BUFFERED_MAX: usize = 8192;

/// Payloads that wait behind gaps.
#[derive(Debug)]
pub(super) struct ReorderBuffer {
    /// Number of the first packet that was not delivered.
    next: SeqNumber,
    /// Payloads from `next` on, by distance; `None` if missing.
    held: VecDeque<Option<Held>>,
    /// Latest time at which a payload was delivered.
    latest: Time,
}

#[derive(Debug)]
struct Held {
    at: Time,
    payload: Bytes,
}

impl ReorderBuffer {
    pub(super) fn new(first: SeqNumber) -> ReorderBuffer {
        ReorderBuffer {
            next: first,
            held: VecDeque::new(),
            latest: Time::ZERO,
        }
    }

    /// Adds a payload, and delivers all that are now in order. Each is delivered with the time from
    /// which it could be delivered: its arrival, or that of an earlier payload. Payloads that need
    /// not wait are not copied.
    #[inline]
    pub(super) fn insert(
        &mut self,
        sequence: SeqNumber,
        at: Time,
        payload: &[u8],
        deliver: &mut impl FnMut(&[u8], Time),
    ) {
        match usize::try_from(sequence.distance_from(self.next)) {
            Ok(0) => {
                self.latest = self.latest.max(at);
                deliver(payload, self.latest);
                self.next = self.next.next();
                if self.held.pop_front().is_some() {
                    self.deliver_held(deliver);
                }
            }
            Ok(ahead) if ahead < BUFFERED_MAX => self.hold(ahead, at, payload),
            Ok(_) => {
                self.skip(sequence, at, deliver);
                self.insert(sequence, at, payload, deliver);
            }
            // The payload was given up earlier.
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
    fn deliver_held(&mut self, deliver: &mut impl FnMut(&[u8], Time)) {
        while let Some(Some(held)) = self.held.front_mut().map(Option::take) {
            self.held.pop_front();
            self.latest = self.latest.max(held.at);
            deliver(&held.payload, self.latest);
            self.next = self.next.next();
        }
    }

    /// Gives up missing payloads before `before`, at the time `at`, and delivers those behind them.
    #[inline]
    pub(super) fn give_up_before(
        &mut self,
        before: SeqNumber,
        at: Time,
        deliver: &mut impl FnMut(&[u8], Time),
    ) {
        if self.next.is_before(before) {
            self.skip(before, at, deliver);
        }
    }

    #[cold]
    fn skip(&mut self, before: SeqNumber, at: Time, deliver: &mut impl FnMut(&[u8], Time)) {
        self.latest = self.latest.max(at);
        while self.next.is_before(before) {
            let Some(held) = self.held.pop_front() else {
                self.next = before;
                return;
            };
            if let Some(held) = held {
                deliver(&held.payload, self.latest.max(held.at));
            }
            self.next = self.next.next();
        }
        self.deliver_held(deliver);
    }

    /// Number of waiting payloads, including gaps.
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
    fn payloads_behind_a_gap_wait_for_it() {
        let first = SeqNumber::MAX;
        let mut order = ReorderBuffer::new(first);
        let mut handed = Vec::new();
        let mut deliver = |payload: &[u8], at: Time| handed.push((payload[0], at));
        order.insert(first, at(1), b"0", &mut deliver);
        order.insert(first.plus(2), at(2), b"2", &mut deliver);
        order.insert(first.plus(4), at(3), b"4", &mut deliver);
        order.insert(first.plus(1), at(9), b"1", &mut deliver);
        // Packet 3 is given up.
        order.give_up_before(first.plus(3), at(9), &mut deliver);
        order.give_up_before(first.plus(5), at(12), &mut deliver);
        order.insert(first.plus(3), at(13), b"3", &mut deliver);
        order.insert(first.plus(5), at(14), b"5", &mut deliver);
        // Missing packets are given up before a later one arrives.
        order.give_up_before(first.plus(5000), at(15), &mut deliver);
        order.insert(first.plus(5000), at(16), b"6", &mut deliver);
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
    fn repeated_jumps_do_not_grow_the_buffer() {
        let mut order = ReorderBuffer::new(SeqNumber::new(0));
        let mut handed = 0;
        for jump in 1..200 {
            let sequence = SeqNumber::new(jump * 8000);
            order.insert(sequence, at(1), b"x", &mut |_, _| handed += 1);
            assert!(order.waiting() <= BUFFERED_MAX);
        }
        order.give_up_before(SeqNumber::new(200 * 8000), at(2), &mut |_, _| handed += 1);
        assert_eq!(handed, 199);
    }
}
