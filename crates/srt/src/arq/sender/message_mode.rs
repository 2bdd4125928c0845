//! Message mode of a sender (`SRTT_FILE` with `SRTO_MESSAGEAPI`): it retransmits unacknowledged
//! packets, and drops whole messages when their time to live has passed.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use measure::Time;
use serde::Serialize;

use super::{CIPHER_TAG_MAX, Part, PendingControl, PushError, Sender, next_message};
use crate::codec::packet::{LossRange, PAYLOAD_MAX, Position};
use crate::seq::SeqNumber;

/// Time that an acknowledgement may take in addition to the round trip: two periods of the peer's
/// timer.
const ACK_TIMERS: Duration = Duration::from_millis(20);

/// Minimum time from the last progress to a repetition.
const REPEAT_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Maximum number of dropped messages that are remembered for a peer that has not acknowledged
/// them.
const DROPPED_MAX: usize = 1024;

/// Message counts of a sender. Each accepted message is acknowledged, dropped or still waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SentMessageCounts {
    /// Messages accepted for sending.
    pub taken: u64,
    /// Messages refused because the send buffer had no space for them.
    pub refused: u64,
    /// Accepted messages that the peer acknowledged up to the last packet.
    pub acknowledged: u64,
    /// Accepted messages dropped because their time to live passed before the peer acknowledged all
    /// packets.
    pub dropped: u64,
}

/// State of message mode.
#[derive(Debug)]
pub(super) struct MessageMode {
    /// Time when the peer last acknowledged a new packet, or when packets started to be in flight.
    progress_at: Time,
    /// Number of full retransmissions since then, plus one.
    tries: u32,
    /// Dropped messages that the peer has not acknowledged.
    dropped: VecDeque<Dropped>,
    /// Time of the last repeated drop requests.
    drop_requests_repeated_at: Time,
    counted: SentMessageCounts,
}

#[derive(Clone, Copy, Debug)]
struct Dropped {
    message: u32,
    range: LossRange,
}

impl Default for MessageMode {
    fn default() -> MessageMode {
        MessageMode {
            progress_at: Time::ZERO,
            tries: 1,
            dropped: VecDeque::new(),
            drop_requests_repeated_at: Time::ZERO,
            counted: SentMessageCounts::default(),
        }
    }
}

impl Sender {
    /// Pushes a message of any length, in as many packets as it needs.
    ///
    /// # Errors
    /// The buffer has no space for the whole message.
    pub fn push_message(
        &mut self,
        at: Time,
        message: &Bytes,
        in_order: bool,
    ) -> Result<SeqNumber, PushError> {
        let payload_max = match self.cipher {
            None => PAYLOAD_MAX,
            Some(_) => PAYLOAD_MAX - CIPHER_TAG_MAX,
        };
        let count = message.len().div_ceil(payload_max).max(1);
        self.drop_late(at);
        if self.slots.len() + count > self.packets_max {
            self.statistics.pkt_snd_refused += count as u64;
            if let Some(mode) = &mut self.message_mode {
                mode.counted.refused += 1;
            }
            return Err(PushError::Full);
        }
        let first = self.next_sequence();
        let number = next_message(self.message);
        for index in 0..count {
            let begin = index * payload_max;
            let end = message.len().min(begin + payload_max);
            let position = match (index, count - 1 - index) {
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
            self.enqueue(at, message.slice(begin..end), part);
        }
        if let Some(mode) = &mut self.message_mode {
            mode.counted.taken += 1;
        }
        Ok(first)
    }

    /// Message counts, or `None` in live mode.
    pub fn messages(&self) -> Option<SentMessageCounts> {
        self.message_mode.as_ref().map(|mode| mode.counted)
    }

    /// Drops the rest of the oldest message, and informs the peer.
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
            let sent = self.pop_first();
            self.statistics.pkt_snd_drop += 1;
            self.statistics.pkt_snd_drop_unsent += u64::from(!sent);
        }
        let range = LossRange {
            first,
            last: self.first.minus(1),
        };
        if let Some(mode) = &mut self.message_mode {
            mode.counted.dropped += 1;
            if mode.dropped.len() >= DROPPED_MAX {
                mode.dropped.pop_front();
            }
            mode.dropped.push_back(Dropped { message, range });
        }
        self.queue_control(PendingControl::Drop(message, range));
    }

    /// Records that the peer acknowledged everything before `next`, and with it `whole` more
    /// messages.
    pub(super) fn record_progress(&mut self, next: SeqNumber, whole: u64, is_new: bool, at: Time) {
        let Some(mode) = &mut self.message_mode else {
            return;
        };
        mode.counted.acknowledged += whole;
        if is_new {
            (mode.progress_at, mode.tries) = (at, 1);
        }
        let dropped = &mut mode.dropped;
        while dropped
            .front()
            .is_some_and(|old| old.range.last.is_before(next))
        {
            dropped.pop_front();
        }
    }

    /// Records that the first packet in flight left at `at`.
    pub(super) fn record_first_departure(&mut self, at: Time) {
        if let Some(mode) = &mut self.message_mode {
            (mode.progress_at, mode.tries) = (at, 1);
        }
    }

    /// Answers a NAK with drop requests for the dropped messages in `range`. Returns `false` if
    /// there are none.
    pub(super) fn answer_dropped(&mut self, range: LossRange) -> bool {
        let Some(mode) = &self.message_mode else {
            return false;
        };
        let dropped = mode.dropped.iter().filter(|one| {
            let (begins, ends) = (one.range.first, one.range.last);
            !range.last.is_before(begins) && !ends.is_before(range.first)
        });
        let answers: Vec<PendingControl> = dropped
            .map(|one| PendingControl::Drop(one.message, one.range))
            .collect();
        let any = !answers.is_empty();
        for answer in answers {
            self.queue_control(answer);
        }
        any
    }

    /// Time without an acknowledgement after which the sender repeats packets.
    fn repeat_interval(&self) -> Duration {
        (self.rtt.timeout() + ACK_TIMERS).max(REPEAT_INTERVAL_MIN)
    }

    /// Time at which all packets in flight are retransmitted, unless an acknowledgement or a NAK
    /// arrives earlier (libsrt's `SRM_LATEREXMIT`). [`Time::NEVER`] if none is in flight, or in
    /// live mode.
    pub(super) fn retransmit_all_at(&self) -> Time {
        match &self.message_mode {
            Some(mode) if self.sent > 0 && self.retransmit_count == 0 => {
                mode.progress_at + self.repeat_interval() * mode.tries
            }
            _ => Time::NEVER,
        }
    }

    /// Marks all packets in flight for retransmission, if that is due.
    pub(super) fn retransmit_all(&mut self, now: Time) {
        if self.retransmit_all_at() > now {
            return;
        }
        for slot in self.slots.range_mut(..self.sent) {
            slot.needs_retransmission = true;
        }
        (
            self.retransmit_count,
            self.retransmit_from,
            self.retransmit_requested_at,
        ) = (self.sent, 0, now);
        if let Some(mode) = &mut self.message_mode {
            mode.progress_at = now;
            mode.tries = mode.tries.saturating_add(1);
        }
    }

    /// Time at which drop requests are repeated; [`Time::NEVER`] if the peer has acknowledged all
    /// dropped messages.
    pub(super) fn repeat_drop_requests_at(&self) -> Time {
        match &self.message_mode {
            Some(mode) if !mode.dropped.is_empty() => {
                mode.drop_requests_repeated_at + self.repeat_interval()
            }
            _ => Time::NEVER,
        }
    }

    /// Repeats drop requests, if they are due.
    pub(super) fn repeat_drop_requests(&mut self, now: Time) {
        if self.repeat_drop_requests_at() > now {
            return;
        }
        let Some(mode) = &mut self.message_mode else {
            return;
        };
        mode.drop_requests_repeated_at = now;
        // The oldest ones are enough: the peer acknowledges nothing behind them before it has
        // handled them.
        let room = super::PENDING_CONTROL_MAX.saturating_sub(self.pending_control.len());
        let dropped = mode.dropped.iter().take(room);
        let again = dropped.map(|one| PendingControl::Drop(one.message, one.range));
        self.pending_control.extend(again);
    }
}
