//! When to acknowledge, and which acknowledgements are not answered yet.

use std::time::Duration;

use measure::Time;

use super::{ACK_EVERY, LIGHT_ACK_EVERY};
use crate::srt::seq::SeqNumber;

/// So many acknowledgements are remembered until they are answered: 1.2 s of them.
const REMEMBERED: usize = 128;

/// What was acknowledged already is acknowledged again no sooner than this: the answer may have
/// come and not been read.
const AGAIN_MIN: Duration = Duration::from_millis(50);

/// Acknowledgements.
#[derive(Debug)]
pub(super) struct Acks {
    /// The number of the last full one.
    number: u32,
    /// What the last full one acknowledged, and when it was due.
    last: SeqNumber,
    at: Time,
    /// The highest that the peer knows to be acknowledged.
    answered: SeqNumber,
    /// Packets since the last full one, and light ones.
    pub(super) since: u32,
    pub(super) light: u32,
    unanswered: Box<[Unanswered; REMEMBERED]>,
}

#[derive(Clone, Copy, Debug)]
struct Unanswered {
    /// 0 where there is none.
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

    /// After how many packets the next light one is due.
    #[inline]
    pub(super) fn light_at(&self) -> u32 {
        LIGHT_ACK_EVERY * (self.light + 1)
    }

    /// When the next full one is due, if everything before `next` has come: not while the peer
    /// knows that already, and not so soon again while its answer may be under way.
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

    /// A full one is sent: its number.
    pub(super) fn sent(&mut self, next: SeqNumber, now: Time) -> u32 {
        self.number = self.number.checked_add(1).unwrap_or(1);
        // From when it was due: who looks every 10 ms is to find one due each time.
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

    /// One was answered: how long that took. None where that one is not known.
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

    /// Bytes that it takes behind a pointer.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.unanswered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_acknowledged_is_not_again_while_the_answer_may_lie_unread() {
        let at = |millis: u64| Time::from_nanos(1_000_000_000 + millis * 1_000_000);
        let mut acks = Acks::new(SeqNumber::new(0));
        acks.sent(SeqNumber::new(5), at(0));
        let sent = acks.at;
        let soon = Duration::from_millis(1);
        let due = |acks: &Acks, next| acks.due(SeqNumber::new(next), soon).since(sent);
        // What is new is acknowledged as usual.
        assert_eq!(due(&acks, 6), ACK_EVERY);
        assert_eq!(due(&acks, 5), AGAIN_MIN);
        let late = Duration::from_millis(300);
        assert_eq!(acks.due(SeqNumber::new(5), late).since(sent), late);
        acks.answered(1, at(30));
        assert_eq!(acks.due(SeqNumber::new(5), soon), Time::NEVER);
    }
}
