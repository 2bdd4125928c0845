//! What a sender of messages does beyond one of live media (`SRTT_FILE` with `SRTO_MESSAGEAPI`): it
//! sends again what nobody acknowledges, and drops messages whole when their time is over.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use measure::Time;
use serde::Serialize;

use super::{Answer, Part, Refused, Sender, TAG, next_message};
use crate::srt::codec::packet::{LossRange, PAYLOAD_MAX, Position};
use crate::srt::seq::SeqNumber;

/// How much longer than the round trip an acknowledgement may take: two of the peer's timers.
const TIMERS: Duration = Duration::from_millis(20);

/// Nothing is said again sooner than this after the last progress.
const AGAIN_MIN: Duration = Duration::from_millis(100);

/// The most dropped messages that are remembered for a peer that does not know of them.
const DROPPED_MAX: usize = 1024;

/// What became of the messages of a sender. Each that was taken is acknowledged, dropped or still
/// waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SentMessages {
    /// Messages that were taken to be sent.
    pub taken: u64,
    /// Messages that were not taken, because the send buffer had no room for them.
    pub refused: u64,
    /// Of those taken, the ones that the peer acknowledged to their last packet.
    pub acknowledged: u64,
    /// Of those taken, the ones that were dropped when their time was over, before all of them was
    /// acknowledged.
    pub dropped: u64,
}

/// What is kept for it.
#[derive(Debug)]
pub(super) struct Reliable {
    /// When the peer last acknowledged something new, or packets began to be under way.
    progress_at: Time,
    /// How often all was sent again since then, and one.
    tries: u32,
    /// Messages that were dropped, as long as the peer has not acknowledged them.
    dropped: VecDeque<Dropped>,
    /// When the peer was last told of these.
    said_at: Time,
    counted: SentMessages,
}

#[derive(Clone, Copy, Debug)]
struct Dropped {
    message: u32,
    range: LossRange,
}

impl Default for Reliable {
    fn default() -> Reliable {
        Reliable {
            progress_at: Time::ZERO,
            tries: 1,
            dropped: VecDeque::new(),
            said_at: Time::ZERO,
            counted: SentMessages::default(),
        }
    }
}

impl Sender {
    /// Takes a message of any length to be sent, in as many packets as it needs.
    ///
    /// # Errors
    /// If the buffer has no room for all of it.
    pub fn push_message(
        &mut self,
        at: Time,
        message: &Bytes,
        in_order: bool,
    ) -> Result<SeqNumber, Refused> {
        let most = match self.cipher {
            None => PAYLOAD_MAX,
            Some(_) => PAYLOAD_MAX - TAG,
        };
        let count = message.len().div_ceil(most).max(1);
        self.drop_late(at);
        if self.slots.len() + count > self.packets_max {
            self.statistics.pkt_snd_refused += count as u64;
            if let Some(reliable) = &mut self.reliable {
                reliable.counted.refused += 1;
            }
            return Err(Refused::Full);
        }
        let first = self.next_sequence();
        let number = next_message(self.message);
        for place in 0..count {
            let begin = place * most;
            let end = message.len().min(begin + most);
            let position = match (place, count - 1 - place) {
                (0, 0) => Position::Solo,
                (0, _) => Position::First,
                (_, 0) => Position::Last,
                _ => Position::Middle,
            };
            let part = Part {
                message: number,
                position,
                in_order,
            };
            self.take(at, message.slice(begin..end), part);
        }
        if let Some(reliable) = &mut self.reliable {
            reliable.counted.taken += 1;
        }
        Ok(first)
    }

    /// What became of its messages; none of live media.
    pub fn messages(&self) -> Option<SentMessages> {
        self.reliable.as_ref().map(|reliable| reliable.counted)
    }

    /// Drops all that is left of the oldest message, and tells the peer.
    pub(super) fn drop_message(&mut self) {
        let Some(message) = self.slots.front().map(|slot| slot.part.message) else {
            return;
        };
        let first = self.first;
        while self
            .slots
            .front()
            .is_some_and(|slot| slot.part.message == message)
        {
            let sent = self.forget_first();
            self.statistics.pkt_snd_drop += 1;
            self.statistics.pkt_snd_drop_unsent += u64::from(!sent);
        }
        let range = LossRange {
            first,
            last: self.first.minus(1),
        };
        if let Some(reliable) = &mut self.reliable {
            reliable.counted.dropped += 1;
            if reliable.dropped.len() >= DROPPED_MAX {
                reliable.dropped.pop_front();
            }
            reliable.dropped.push_back(Dropped { message, range });
        }
        self.answer(Answer::Drop(message, range));
    }

    /// The peer acknowledged everything before `next`; `whole` messages ended in what is new of it.
    pub(super) fn progressed(&mut self, next: SeqNumber, whole: u64, is_new: bool, at: Time) {
        let Some(reliable) = &mut self.reliable else {
            return;
        };
        reliable.counted.acknowledged += whole;
        if is_new {
            (reliable.progress_at, reliable.tries) = (at, 1);
        }
        let dropped = &mut reliable.dropped;
        while dropped
            .front()
            .is_some_and(|old| old.range.last.is_before(next))
        {
            dropped.pop_front();
        }
    }

    /// The first packet that is under way left at that time.
    pub(super) fn sets_out(&mut self, at: Time) {
        if let Some(reliable) = &mut self.reliable {
            (reliable.progress_at, reliable.tries) = (at, 1);
        }
    }

    /// Tells the peer which messages of that range were dropped; says whether any was.
    pub(super) fn answer_dropped(&mut self, range: LossRange) -> bool {
        let Some(reliable) = &self.reliable else {
            return false;
        };
        let dropped = reliable.dropped.iter().filter(|one| {
            let (begins, ends) = (one.range.first, one.range.last);
            !range.last.is_before(begins) && !ends.is_before(range.first)
        });
        let answers: Vec<Answer> = dropped
            .map(|one| Answer::Drop(one.message, one.range))
            .collect();
        let any = !answers.is_empty();
        for answer in answers {
            self.answer(answer);
        }
        any
    }

    /// How long nothing may be acknowledged before something is said again.
    fn patience(&self) -> Duration {
        (self.rtt.patience() + TIMERS).max(AGAIN_MIN)
    }

    /// When everything that is under way is sent again, unless something is acknowledged or asked
    /// for before (libsrt's `SRM_LATEREXMIT`); [`Time::NEVER`] where that is not done.
    pub(super) fn repeats_at(&self) -> Time {
        match &self.reliable {
            Some(own) if self.sent > 0 && self.wanted == 0 => {
                own.progress_at + self.patience() * own.tries
            }
            _ => Time::NEVER,
        }
    }

    /// Sends all again that is under way, where that is due.
    pub(super) fn repeat(&mut self, now: Time) {
        if self.repeats_at() > now {
            return;
        }
        for slot in self.slots.range_mut(..self.sent) {
            slot.wanted = true;
        }
        (self.wanted, self.wanted_from, self.wanted_since) = (self.sent, 0, now);
        if let Some(reliable) = &mut self.reliable {
            reliable.progress_at = now;
            reliable.tries = reliable.tries.saturating_add(1);
        }
    }

    /// When the peer is told again of dropped messages; [`Time::NEVER`] where it knows of all.
    pub(super) fn says_dropped_at(&self) -> Time {
        match &self.reliable {
            Some(own) if !own.dropped.is_empty() => own.said_at + self.patience(),
            _ => Time::NEVER,
        }
    }

    /// Tells the peer again of dropped messages, where that is due.
    pub(super) fn say_dropped(&mut self, now: Time) {
        if self.says_dropped_at() > now {
            return;
        }
        let Some(reliable) = &mut self.reliable else {
            return;
        };
        reliable.said_at = now;
        // The oldest are enough: the peer acknowledges nothing behind them before.
        let room = super::ANSWERS_MAX.saturating_sub(self.answers.len());
        let dropped = reliable.dropped.iter().take(room);
        let again = dropped.map(|one| Answer::Drop(one.message, one.range));
        self.answers.extend(again);
    }
}
