//! Arrival times of packets that have not been reported yet.

use std::collections::VecDeque;

use measure::Time;

use super::transport_cc::{TICK, TICKS_OF_REFERENCE, TransportCc};

/// Maximum number of pending arrivals: 80 ms at 25,000 packets per second.
const KEPT_MAX: usize = 2000;

/// Maximum number of packet statuses in one message, so that any message fits into a datagram of
/// 1,200 bytes.
const SAID_MAX: usize = 450;

/// Number of packets before `base` whose reported status is remembered, and maximum number of late
/// arrivals between two messages.
const SAID_KEPT: u16 = 512;
const LATE_MAX: usize = 16;

/// Counts of reported and unreported arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrivalsCounts {
    /// Packets whose arrival was reported.
    pub said: u64,
    /// Duplicates, packets that arrived too late to be reported, and pending packets discarded at a
    /// jump of the sequence numbers.
    pub left_out: u64,
    /// Messages written.
    pub messages: u64,
}

/// Pending arrivals of one transport. A packet causes no allocation once the queue has grown to its
/// working size.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// Sequence number of the first entry of `kept`; `None` before the first packet.
    base: Option<u16>,
    kept: VecDeque<Option<Time>>,
    /// Packets that arrived after they had been reported as not received, in order of arrival.
    late: VecDeque<(u16, Time)>,
    /// Status reported for the last packets before `base`: one bit per packet, set if it was
    /// received, indexed by sequence number modulo `SAID_KEPT`.
    said: [u64; SAID_KEPT as usize / 64],
    number: u8,
    counts: ArrivalsCounts,
}

impl Arrivals {
    pub fn counts(&self) -> ArrivalsCounts {
        self.counts
    }

    /// Records the arrival of a packet.
    #[inline]
    pub fn packet(&mut self, number: u16, at: Time) {
        let base = *self.base.get_or_insert(number);
        let place = usize::from(number.wrapping_sub(base));
        if place >= KEPT_MAX {
            self.jumped(number, at);
            return;
        }
        while self.kept.len() <= place {
            self.kept.push_back(None);
        }
        match &mut self.kept[place] {
            Some(_) => self.counts.left_out += 1,
            arrival => *arrival = Some(at),
        }
    }

    /// Handles a packet that an earlier message covered, or one so far ahead that the sender must
    /// have restarted.
    fn jumped(&mut self, number: u16, at: Time) {
        let base = self.base.unwrap_or(number);
        if number.wrapping_sub(base) >= 1 << 15 {
            let is_new = base.wrapping_sub(number) <= SAID_KEPT && !self.was_said(number);
            match is_new && self.late.len() < LATE_MAX {
                true => {
                    self.say(number, true);
                    self.late.push_back((number, at));
                }
                false => self.counts.left_out += 1,
            }
            return;
        }
        let kept = self.kept.iter().flatten().count() + self.late.len();
        self.counts.left_out += kept as u64;
        self.kept.clear();
        self.late.clear();
        // The status of earlier packets is unknown, so none of them may count as late.
        self.said = [u64::MAX; SAID_KEPT as usize / 64];
        self.base = Some(number);
        self.kept.push_back(Some(at));
    }

    fn bit(number: u16) -> (usize, u64) {
        let place = number % SAID_KEPT;
        (usize::from(place / 64), 1 << (place % 64))
    }

    fn was_said(&self, number: u16) -> bool {
        let (word, bit) = Arrivals::bit(number);
        self.said[word] & bit != 0
    }

    fn say(&mut self, number: u16, came: bool) {
        let (word, bit) = Arrivals::bit(number);
        match came {
            true => self.said[word] |= bit,
            false => self.said[word] &= !bit,
        }
    }

    /// Returns `true` once a packet has arrived.
    pub fn has_begun(&self) -> bool {
        self.base.is_some()
    }

    /// Returns `true` if no arrivals are pending.
    pub fn is_empty(&self) -> bool {
        self.late.is_empty() && self.kept.iter().all(Option::is_none)
    }

    /// Appends a message with pending arrivals and removes them. Returns `false` if there were
    /// none.
    ///
    /// An arrival that differs by more than 8 s from the one before it begins another message, and
    /// each late arrival has a message of its own: call again until the result is `false`.
    pub fn write(&mut self, sender: u32, media: u32, out: &mut Vec<u8>) -> bool {
        let (Some(base), Some(place)) = (self.base, self.kept.iter().position(Option::is_some))
        else {
            let late = self.late.pop_front();
            if let Some((number, at)) = late {
                self.write_late(sender, media, number, at, out);
            }
            return late.is_some();
        };
        // Packets missing before the first arrival are reported in the message of that arrival.
        let first = self.kept[place].map_or(0, ticks);
        let reference = first / TICKS_OF_REFERENCE;
        let mut message = TransportCc {
            sender,
            media,
            base,
            // 24 signed bits wrap around after 12 days.
            reference: ((reference << 40) >> 40) as i32,
            number: self.number,
            arrivals: vec![None; place],
        };
        let mut before = reference * TICKS_OF_REFERENCE;
        let mut said = 0;
        let room = SAID_MAX.saturating_sub(place).max(1);
        for arrival in self.kept.iter().skip(place).take(room) {
            let delta = match arrival {
                None => None,
                Some(at) => {
                    let at = ticks(*at);
                    let Ok(delta) = i16::try_from(at - before) else {
                        break;
                    };
                    before = at;
                    said += 1;
                    Some(delta)
                }
            };
            message.arrivals.push(delta);
        }
        // Missing packets at the end may still arrive.
        while message.arrivals.last() == Some(&None) {
            message.arrivals.pop();
        }
        let length = message.arrivals.len();
        self.kept.drain(..length);
        for (place, arrival) in (0..).zip(&message.arrivals) {
            self.say(base.wrapping_add(place), arrival.is_some());
        }
        self.base = Some(base.wrapping_add(length as u16));
        self.number = self.number.wrapping_add(1);
        self.counts.said += said;
        self.counts.messages += 1;
        message.write(out);
        true
    }

    /// Writes a message for one packet that was reported earlier as not received.
    fn write_late(&mut self, sender: u32, media: u32, number: u16, at: Time, out: &mut Vec<u8>) {
        let ticks = ticks(at);
        let reference = ticks / TICKS_OF_REFERENCE;
        let message = TransportCc {
            sender,
            media,
            base: number,
            reference: ((reference << 40) >> 40) as i32,
            number: self.number,
            arrivals: vec![Some((ticks - reference * TICKS_OF_REFERENCE) as i16)],
        };
        self.number = self.number.wrapping_add(1);
        self.counts.said += 1;
        self.counts.messages += 1;
        message.write(out);
    }
}

fn ticks(at: Time) -> i64 {
    (u128::from(at.as_nanos()) / TICK.as_nanos()) as i64
}
