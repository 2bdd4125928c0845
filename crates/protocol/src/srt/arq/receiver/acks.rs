//! Timing of acknowledgements, and those that wait for their ACKACK.

use std::time::Duration;

use measure::Time;

use super::{ACK_EVERY, LIGHT_ACK_EVERY};
use crate::srt::seq::SeqNumber;

/// Number of acknowledgements remembered until their ACKACK arrives: 1.2 s of them.
const REMEMBERED: usize = 128;

/// Minimum time before an acknowledgement is repeated: its ACKACK may have arrived, but may not
/// have been read.
const AGAIN_MIN: Duration = Duration::from_millis(50);

/// State of acknowledgements.
#[derive(Debug)]
pub(super) struct Acks {
    /// Number of the last full acknowledgement.
    number: u32,
    /// Sequence number and due time of the last full acknowledgement.
    last: SeqNumber,
    at: Time,
    /// Highest sequence number whose acknowledgement was answered by an ACKACK.
    answered: SeqNumber,
    /// Number of packets and of light acknowledgements since the last full one.
    pub(super) since: u32,
    pub(super) light: u32,
    unanswered: Box<[Unanswered; REMEMBERED]>,
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
            at: Time::ZERO,
            answered: first,
            since: 0,
            light: 0,
            unanswered: Box::new([none; REMEMBERED]),
        }
    }

    /// Number of packets after which the next light acknowledgement is due.
    #[inline]
    pub(super) fn light_at(&self) -> u32 {
        LIGHT_ACK_EVERY * (self.light + 1)
    }

    /// Due time of the next full acknowledgement, if everything before `next` has arrived. Never if
    /// the peer has already confirmed it; later if an ACKACK for it may be in flight.
    pub(super) fn due(&self, next: SeqNumber, patience: Duration) -> Time {
        if next == self.answered {
            return Time::NEVER;
        }
        let again = if next == self.last {
            patience.max(AGAIN_MIN)
        } else {
            ACK_EVERY
        };
        self.at + again
    }

    /// Records a full acknowledgement, and returns its number.
    pub(super) fn sent(&mut self, next: SeqNumber, now: Time) -> u32 {
        self.number = self.number.checked_add(1).unwrap_or(1);
        // Counted from the due time, so that polling every 10 ms finds one due each time.
        let planned = (self.at + ACK_EVERY).max(now - ACK_EVERY / 2);
        (self.last, self.at) = (next, planned.min(now));
        (self.since, self.light) = (0, 0);
        let number = self.number;
        self.unanswered[number as usize % REMEMBERED] = Unanswered {
            number,
            next,
            at: now,
        };
        number
    }

    /// Handles an ACKACK. Returns the round-trip time, or `None` if the acknowledgement is unknown.
    pub(super) fn answered(&mut self, number: u32, at: Time) -> Option<Duration> {
        let place = &mut self.unanswered[number as usize % REMEMBERED];
        if number == 0 || place.number != number {
            return None;
        }
        place.number = 0;
        if self.answered.is_before(place.next) {
            self.answered = place.next;
        }
        Some(at.since(place.at))
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
        acks.sent(SeqNumber::new(5), at(0));
        let sent = acks.at;
        let soon = Duration::from_millis(1);
        let due = |acks: &Acks, next| acks.due(SeqNumber::new(next), soon).since(sent);
        // Newly arrived packets are acknowledged as usual.
        assert_eq!(due(&acks, 6), ACK_EVERY);
        assert_eq!(due(&acks, 5), AGAIN_MIN);
        let late = Duration::from_millis(300);
        assert_eq!(acks.due(SeqNumber::new(5), late).since(sent), late);
        acks.answered(1, at(30));
        assert_eq!(acks.due(SeqNumber::new(5), soon), Time::NEVER);
    }
}
