//! Messages of several packets (SRT, 3.1 and 7.1). Packets may arrive in any order; this module
//! finds out which messages are complete. Payloads are kept by [`assembly`], if required.

use std::collections::VecDeque;
use std::time::Duration;

use measure::Time;

use super::codec::packet::{DataHeader, MESSAGE_MAX, Position};
use super::seq::SeqNumber;

pub mod assembly;

/// Maximum number of open messages. The oldest is given up beyond it, because a peer may start any
/// number of messages.
const OPEN_MAX: usize = 1024;

/// Message that arrived whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    pub number: u32,
    /// Sequence number of its first packet.
    pub first: SeqNumber,
    /// Number of its packets.
    pub packets: u32,
    pub bytes: u64,
    /// Time from the first arrival of one of its packets until it could be delivered: it was whole,
    /// and if it must be in order, everything before it was whole or given up.
    pub completion_time: Duration,
    /// True if packets before it were still missing. This is possible only if it need not be in
    /// order.
    pub is_early: bool,
}

/// Result of a packet or of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageOutcome {
    /// A message is whole.
    Whole(Message),
    /// Some packets of a message arrived, and the others will not.
    Incomplete,
    /// Number of consecutive messages of which no packet arrived, derived from the numbers of
    /// others.
    Missing(u32),
    /// A packet contradicts others of its message, and was ignored.
    InconsistentPacket,
}

/// Finds out which messages are whole.
#[derive(Debug, Default)]
pub struct MessageTracker {
    /// Messages with at least one packet, by number, until everything before them is settled.
    open: VecDeque<OpenMessage>,
    /// Number of the last settled message.
    settled: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct OpenMessage {
    number: u32,
    in_order: bool,
    /// Lowest and highest packet that arrived, and whether they are the first and last of the
    /// message.
    lowest: SeqNumber,
    highest: SeqNumber,
    has_first: bool,
    has_last: bool,
    packets: u32,
    bytes: u64,
    began: Time,
    is_reported: bool,
}

impl OpenMessage {
    /// Message of `header`, whose packet must still be added.
    fn new(header: &DataHeader, at: Time) -> OpenMessage {
        OpenMessage {
            number: header.message,
            in_order: header.in_order,
            lowest: header.sequence,
            highest: header.sequence,
            has_first: false,
            has_last: false,
            packets: 0,
            bytes: 0,
            began: at,
            is_reported: false,
        }
    }

    /// Adds a packet. Returns `false` if it contradicts the others.
    fn add(&mut self, header: &DataHeader, length: usize) -> bool {
        let sequence = header.sequence;
        let begins = matches!(header.position, Position::First | Position::Solo);
        let ends = matches!(header.position, Position::Last | Position::Solo);
        let is_lower = self.packets == 0 || sequence.is_before(self.lowest);
        let is_higher = self.packets == 0 || self.highest.is_before(sequence);
        // No packet is before the first or after the last, and each of these exists once.
        let fits = begins <= (is_lower && !self.has_first)
            && ends <= (is_higher && !self.has_last)
            && is_lower <= !self.has_first
            && is_higher <= !self.has_last
            && header.in_order == self.in_order;
        if !fits {
            return false;
        }
        if is_lower {
            self.lowest = sequence;
        }
        if is_higher {
            self.highest = sequence;
        }
        self.has_first |= begins;
        self.has_last |= ends;
        self.packets += 1;
        self.bytes += length as u64;
        true
    }

    fn is_whole(&self) -> bool {
        let span = self.highest.distance_from(self.lowest).unsigned_abs() + 1;
        self.has_first && self.has_last && self.packets == span
    }

    /// Message that is whole, and can be delivered.
    fn whole(&self, at: Time, is_early: bool) -> Message {
        Message {
            number: self.number,
            first: self.lowest,
            packets: self.packets,
            bytes: self.bytes,
            completion_time: at.since(self.began),
            is_early,
        }
    }

    /// True if no more packets will arrive, given that everything before `acknowledged` has arrived
    /// or was given up.
    fn is_finished(&self, acknowledged: SeqNumber) -> bool {
        // Without its last packet, the message may continue after the highest one.
        let end = match self.has_last {
            true => self.highest,
            false => self.highest.next(),
        };
        end.is_before(acknowledged)
    }
}

/// Distance by which a message number is ahead of another, across the wrap of 26 bits; 0 if it is
/// behind.
fn distance_ahead(number: u32, of: u32) -> u32 {
    let ahead = number.wrapping_sub(of) & MESSAGE_MAX;
    if ahead <= MESSAGE_MAX / 2 { ahead } else { 0 }
}

impl MessageTracker {
    /// Adds a packet that arrived for the first time. Everything before `acknowledged` has arrived
    /// or was given up.
    pub fn add_packet(
        &mut self,
        header: &DataHeader,
        length: usize,
        at: Time,
        acknowledged: SeqNumber,
        report: &mut impl FnMut(MessageOutcome),
    ) {
        let number = header.message;
        // Most packets belong to the youngest message.
        let younger = self.open.iter().rev();
        let younger = younger.take_while(|open| distance_ahead(open.number, number) > 0);
        let mut index = self.open.len() - younger.count();
        if index > 0 && self.open[index - 1].number == number {
            index -= 1;
        } else {
            if self.open.len() >= OPEN_MAX {
                self.settle_oldest(report);
                index = index.saturating_sub(1);
            }
            self.open.insert(index, OpenMessage::new(header, at));
        }
        let open = &mut self.open[index];
        if !open.add(header, length) {
            return report(MessageOutcome::InconsistentPacket);
        }
        if !open.in_order && open.is_whole() {
            open.is_reported = true;
            report(MessageOutcome::Whole(
                open.whole(at, acknowledged.is_before(open.lowest)),
            ));
        }
        self.settle(at, acknowledged, report);
    }

    /// Settles messages after everything before `acknowledged` has arrived or was given up.
    pub fn settle(
        &mut self,
        at: Time,
        acknowledged: SeqNumber,
        report: &mut impl FnMut(MessageOutcome),
    ) {
        while let Some(&oldest) = self.open.front() {
            if oldest.is_whole() && !acknowledged.is_before(oldest.lowest) {
                self.pop(report);
                if !oldest.is_reported {
                    report(MessageOutcome::Whole(oldest.whole(at, false)));
                }
            } else if oldest.is_finished(acknowledged) {
                self.settle_oldest(report);
            } else {
                return;
            }
        }
    }

    /// Gives up the missing packets of the oldest message.
    fn settle_oldest(&mut self, report: &mut impl FnMut(MessageOutcome)) {
        if self.open.front().is_some_and(|oldest| !oldest.is_reported) {
            report(MessageOutcome::Incomplete);
        }
        self.pop(report);
    }

    fn pop(&mut self, report: &mut impl FnMut(MessageOutcome)) {
        let Some(oldest) = self.open.pop_front() else {
            return;
        };
        let before = self.settled.unwrap_or(oldest.number);
        let step = distance_ahead(oldest.number, before);
        if step > 1 {
            report(MessageOutcome::Missing(step - 1));
        }
        if step > 0 || self.settled.is_none() {
            self.settled = Some(oldest.number);
        }
    }

    /// Number of the oldest open message. All earlier ones are settled.
    pub fn oldest(&self) -> Option<u32> {
        self.open.front().map(|oldest| oldest.number)
    }

    /// Number of open messages.
    pub fn open_count(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests;
