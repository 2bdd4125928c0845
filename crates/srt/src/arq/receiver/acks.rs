//! Timing of acknowledgements, and those that wait for their ACKACK.

use std::time::Duration;

use measure::Time;

use super::{FULL_ACK_INTERVAL, LIGHT_ACK_PACKETS};
use crate::seq::SeqNumber;

/// Number of acknowledgements remembered until their ACKACK arrives: 1.2 s of them.
const UNANSWERED_MAX: usize = 128;

/// Minimum time before an acknowledgement is repeated: its ACKACK may have arrived, but may not
/// have been read.
const REPEAT_INTERVAL_MIN: Duration = Duration::from_millis(50);

/// State of acknowledgements.
#[derive(Debug)]
pub(super) struct Acks {
    /// Number of the last full acknowledgement.
    number: u32,
    /// Sequence number and due time of the last full acknowledgement.
    last: SeqNumber,
    last_due_at: Time,
    /// Highest sequence number whose acknowledgement was answered by an ACKACK.
    confirmed: SeqNumber,
    /// Number of packets and of light acknowledgements since the last full one.
    pub(super) packets_since_full: u32,
    pub(super) light_since_full: u32,
    unanswered: Box<[Unanswered; UNANSWERED_MAX]>,
}

#[derive(Clone, Copy, Debug)]
struct Unanswered {
    /// 0 if the entry is unused.
    number: u32,
    next: SeqNumber,
    at: Time,
}

impl Acks {
    pub(super) fn new(first: SeqNumber) -> Acks {
        let none = Unanswered {
            number: 0,
            next: first,
            at: Time::ZERO,
        };
        Acks {
            number: 0,
            last: first,
            last_due_at: Time::ZERO,
            confirmed: first,
            packets_since_full: 0,
            light_since_full: 0,
            unanswered: Box::new([none; UNANSWERED_MAX]),
        }
    }

    /// Number of packets after which the next light acknowledgement is due.
    #[inline]
    pub(super) fn next_light_at_packets(&self) -> u32 {
        LIGHT_ACK_PACKETS * (self.light_since_full + 1)
    }

    /// Due time of the next full acknowledgement, if everything before `next` has arrived. Never if
    /// the peer has already confirmed it; later if an ACKACK for it may be in flight.
    pub(super) fn due(&self, next: SeqNumber, timeout: Duration) -> Time {
        if next == self.confirmed {
            return Time::NEVER;
        }
        let again = if next == self.last {
            timeout.max(REPEAT_INTERVAL_MIN)
        } else {
            FULL_ACK_INTERVAL
        };
        self.last_due_at + again
    }

    /// Records a full acknowledgement, and returns its number.
    pub(super) fn record_full(&mut self, next: SeqNumber, now: Time) -> u32 {
        self.number = self.number.checked_add(1).unwrap_or(1);
        // Counted from the due time, so that polling every 10 ms finds one due each time.
        let planned = (self.last_due_at + FULL_ACK_INTERVAL).max(now - FULL_ACK_INTERVAL / 2);
        (self.last, self.last_due_at) = (next, planned.min(now));
        (self.packets_since_full, self.light_since_full) = (0, 0);
        let number = self.number;
        self.unanswered[number as usize % UNANSWERED_MAX] = Unanswered {
            number,
            next,
            at: now,
        };
        number
    }

    /// Handles an ACKACK. Returns the round-trip time, or `None` if the acknowledgement is unknown.
    pub(super) fn handle_ackack(&mut self, number: u32, at: Time) -> Option<Duration> {
        let entry = &mut self.unanswered[number as usize % UNANSWERED_MAX];
        if number == 0 || entry.number != number {
            return None;
        }
        entry.number = 0;
        if self.confirmed.is_before(entry.next) {
            self.confirmed = entry.next;
        }
        Some(at.since(entry.at))
    }

    /// Heap memory in bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.unanswered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_ack_waits_while_its_ackack_may_be_unread() {
        let at = |millis: u64| Time::from_nanos(1_000_000_000 + millis * 1_000_000);
        let mut acks = Acks::new(SeqNumber::new(0));
        acks.record_full(SeqNumber::new(5), at(0));
        let sent = acks.last_due_at;
        let soon = Duration::from_millis(1);
        let due = |acks: &Acks, next| acks.due(SeqNumber::new(next), soon).since(sent);
        // Newly arrived packets are acknowledged as usual.
        assert_eq!(due(&acks, 6), FULL_ACK_INTERVAL);
        assert_eq!(due(&acks, 5), REPEAT_INTERVAL_MIN);
        let late = Duration::from_millis(300);
        assert_eq!(acks.due(SeqNumber::new(5), late).since(sent), late);
        acks.handle_ackack(1, at(30));
        assert_eq!(acks.due(SeqNumber::new(5), soon), Time::NEVER);
    }
}
