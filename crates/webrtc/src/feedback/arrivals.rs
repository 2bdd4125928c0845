//! Arrival times of packets that have not been reported yet.

use std::collections::VecDeque;

use measure::Time;

use super::transport_cc::{TICK, TICKS_PER_REFERENCE, TransportCc};

/// Maximum number of pending arrivals: 80 ms at 25,000 packets per second.
const PENDING_MAX: usize = 2000;

/// Maximum number of packet statuses in one message, so that any message fits into a datagram of
/// 1,200 bytes.
const STATUSES_MAX: usize = 450;

/// Number of packets before `base` whose reported status is remembered, and maximum number of late
/// arrivals between two messages.
const REPORTED_WINDOW: u16 = 512;
const LATE_MAX: usize = 16;

/// Counts of reported and unreported arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrivalsCounts {
    /// Packets whose arrival was reported.
    pub reported: u64,
    /// Duplicates, packets that arrived too late to be reported, and pending packets discarded at a
    /// jump of the sequence numbers.
    pub unreported: u64,
}

/// Pending arrivals of one transport. A packet causes no allocation once the queue has grown to its
/// working size.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// Sequence number of the first entry of `pending`; `None` before the first packet.
    base: Option<u16>,
    pending: VecDeque<Option<Time>>,
    /// Packets that arrived after they had been reported as not received, in order of arrival.
    late: VecDeque<(u16, Time)>,
    /// Status reported for the last packets before `base`: one bit per packet, set if it was
    /// received, indexed by sequence number modulo `REPORTED_WINDOW`.
    reported: [u64; REPORTED_WINDOW as usize / 64],
    feedback_count: u8,
    counts: ArrivalsCounts,
}

impl Arrivals {
    pub fn counts(&self) -> ArrivalsCounts {
        self.counts
    }

    /// Records the arrival of a packet.
    #[inline]
    pub fn record_arrival(&mut self, number: u16, at: Time) {
        let base = *self.base.get_or_insert(number);
        let index = usize::from(number.wrapping_sub(base));
        if index >= PENDING_MAX {
            self.packet_outside_window(number, at);
            return;
        }
        while self.pending.len() <= index {
            self.pending.push_back(None);
        }
        match &mut self.pending[index] {
            Some(_) => self.counts.unreported += 1,
            arrival => *arrival = Some(at),
        }
    }

    /// Handles a packet that an earlier message covered, or one so far ahead that the sender must
    /// have restarted.
    fn packet_outside_window(&mut self, number: u16, at: Time) {
        let base = self.base.unwrap_or(number);
        if number.wrapping_sub(base) >= 1 << 15 {
            let is_new = base.wrapping_sub(number) <= REPORTED_WINDOW && !self.was_reported(number);
            match is_new && self.late.len() < LATE_MAX {
                true => {
                    self.set_reported(number, true);
                    self.late.push_back((number, at));
                }
                false => self.counts.unreported += 1,
            }
            return;
        }
        let discarded = self.pending.iter().flatten().count() + self.late.len();
        self.counts.unreported += discarded as u64;
        self.pending.clear();
        self.late.clear();
        // The status of earlier packets is unknown, so none of them may count as late.
        self.reported = [u64::MAX; REPORTED_WINDOW as usize / 64];
        self.base = Some(number);
        self.pending.push_back(Some(at));
    }

    fn bit(number: u16) -> (usize, u64) {
        let offset = number % REPORTED_WINDOW;
        (usize::from(offset / 64), 1 << (offset % 64))
    }

    fn was_reported(&self, number: u16) -> bool {
        let (word, bit) = Arrivals::bit(number);
        self.reported[word] & bit != 0
    }

    fn set_reported(&mut self, number: u16, is_received: bool) {
        let (word, bit) = Arrivals::bit(number);
        match is_received {
            true => self.reported[word] |= bit,
            false => self.reported[word] &= !bit,
        }
    }

    /// Returns `true` once a packet has arrived.
    pub fn has_arrivals(&self) -> bool {
        self.base.is_some()
    }

    /// Returns `true` if no arrivals are pending.
    pub fn is_empty(&self) -> bool {
        self.late.is_empty() && self.pending.iter().all(Option::is_none)
    }

    /// Appends a message with pending arrivals and removes them. Returns `false` if there were
    /// none.
    ///
    /// An arrival that differs by more than 8 s from the one before it begins another message, and
    /// each late arrival has a message of its own: call again until the result is `false`.
    pub fn write(&mut self, sender: u32, media: u32, out: &mut Vec<u8>) -> bool {
        let (Some(base), Some(index)) = (self.base, self.pending.iter().position(Option::is_some))
        else {
            let late = self.late.pop_front();
            if let Some((number, at)) = late {
                self.write_late(sender, media, number, at, out);
            }
            return late.is_some();
        };
        // Packets missing before the first arrival are reported in the message of that arrival.
        let first = self.pending[index].map_or(0, ticks);
        let mut message = self.next_message(sender, media, base, first);
        message.receive_deltas = vec![None; index];
        let mut previous = first - first % TICKS_PER_REFERENCE;
        let mut reported = 0;
        let capacity = STATUSES_MAX.saturating_sub(index).max(1);
        for arrival in self.pending.iter().skip(index).take(capacity) {
            let delta = match arrival {
                None => None,
                Some(at) => {
                    let at = ticks(*at);
                    let Ok(delta) = i16::try_from(at - previous) else {
                        break;
                    };
                    previous = at;
                    reported += 1;
                    Some(delta)
                }
            };
            message.receive_deltas.push(delta);
        }
        // Missing packets at the end may still arrive.
        while message.receive_deltas.last() == Some(&None) {
            message.receive_deltas.pop();
        }
        let length = message.receive_deltas.len();
        self.pending.drain(..length);
        for (index, arrival) in (0..).zip(&message.receive_deltas) {
            self.set_reported(base.wrapping_add(index), arrival.is_some());
        }
        self.base = Some(base.wrapping_add(length as u16));
        self.counts.reported += reported;
        message.write(out);
        true
    }

    /// Writes a message for one packet that was reported earlier as not received.
    fn write_late(&mut self, sender: u32, media: u32, number: u16, at: Time, out: &mut Vec<u8>) {
        let mut message = self.next_message(sender, media, number, ticks(at));
        message.receive_deltas = vec![Some((ticks(at) % TICKS_PER_REFERENCE) as i16)];
        self.counts.reported += 1;
        message.write(out);
    }

    /// Returns the next message, without arrivals. `first` is the time of the first one, in ticks.
    fn next_message(&mut self, sender: u32, media: u32, base: u16, first: i64) -> TransportCc {
        let feedback_count = self.feedback_count;
        self.feedback_count = feedback_count.wrapping_add(1);
        TransportCc {
            sender,
            media,
            base_sequence: base,
            // 24 signed bits wrap around after 12 days.
            reference_time: (((first / TICKS_PER_REFERENCE) << 40) >> 40) as i32,
            feedback_count,
            receive_deltas: Vec::new(),
        }
    }
}

fn ticks(at: Time) -> i64 {
    (u128::from(at.as_nanos()) / TICK.as_nanos()) as i64
}
