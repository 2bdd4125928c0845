//! Messages of several packets (SRT, 3.1 and 7.1): what came of each is found as the packets come,
//! in whatever order. Nothing of a payload is kept here; [`assembly`] does where it is wanted.

use std::collections::VecDeque;
use std::time::Duration;

use measure::Time;

use super::codec::packet::{DataHeader, MESSAGE_MAX, Position};
use super::seq::SeqNumber;

pub mod assembly;

/// The most messages that are looked after at a time. Where more would be, the oldest is given up:
/// a peer may begin as many as it likes.
const OPEN_MAX: usize = 1024;

/// A message that came whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its number.
    pub number: u32,
    /// Its first packet.
    pub first: SeqNumber,
    /// How many packets it has.
    pub packets: u32,
    /// Its bytes.
    pub bytes: u64,
    /// How long after its first packet that came it could be handed on: it was whole, and where it
    /// is to be in order, so was all before it, or given up.
    pub took: Duration,
    /// Whether packets before it were still missing. That is only so where it need not be in order.
    pub is_early: bool,
}

/// What became of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// One came whole.
    Whole(Message),
    /// Of one something came, and the rest will not.
    Incomplete,
    /// Of so many in a row nothing came, as the numbers of others tell.
    Missing(u32),
    /// A packet contradicts the others of its message, and was passed over.
    Contradiction,
}

/// Puts messages together.
#[derive(Debug, Default)]
pub struct Messages {
    /// Those of which something has come, by their numbers, until all before them is settled.
    open: VecDeque<Open>,
    /// The number of the last one that is settled.
    settled: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    number: u32,
    in_order: bool,
    /// The packets farthest behind and ahead of those that came; whether these are the first and
    /// the last of all.
    lowest: SeqNumber,
    highest: SeqNumber,
    has_first: bool,
    has_last: bool,
    packets: u32,
    bytes: u64,
    began: Time,
    was_told: bool,
}

impl Open {
    /// Of its first packet that came, which is still to be added.
    fn new(header: &DataHeader, at: Time) -> Open {
        Open {
            number: header.message,
            in_order: header.in_order,
            lowest: header.sequence,
            highest: header.sequence,
            has_first: false,
            has_last: false,
            packets: 0,
            bytes: 0,
            began: at,
            was_told: false,
        }
    }

    /// Adds a packet; says whether it goes with the others.
    fn add(&mut self, header: &DataHeader, length: usize) -> bool {
        let sequence = header.sequence;
        let begins = matches!(header.position, Position::First | Position::Solo);
        let ends = matches!(header.position, Position::Last | Position::Solo);
        let is_lower = self.packets == 0 || sequence.is_before(self.lowest);
        let is_higher = self.packets == 0 || self.highest.is_before(sequence);
        // None is before the first, none behind the last, and there is one of each.
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
        let span = self.highest.since(self.lowest).unsigned_abs() + 1;
        self.has_first && self.has_last && self.packets == span
    }

    /// What it is once it is whole, and can be handed on.
    fn whole(&self, at: Time, is_early: bool) -> Message {
        Message {
            number: self.number,
            first: self.lowest,
            packets: self.packets,
            bytes: self.bytes,
            took: at.since(self.began),
            is_early,
        }
    }

    /// Whether nothing more comes of it, where everything before `acknowledged` has come or was
    /// given up.
    fn is_over(&self, acknowledged: SeqNumber) -> bool {
        // Without its last packet it could go on behind the highest.
        let end = match self.has_last {
            true => self.highest,
            false => self.highest.next(),
        };
        end.is_before(acknowledged)
    }
}

/// How far a message's number is ahead of another's, around the end of the 26 bits: 0 where it is
/// behind.
fn ahead(number: u32, of: u32) -> u32 {
    let ahead = number.wrapping_sub(of) & MESSAGE_MAX;
    if ahead <= MESSAGE_MAX / 2 { ahead } else { 0 }
}

impl Messages {
    /// Takes a packet in that came for the first time. Everything before `acknowledged` has come,
    /// or was given up.
    pub fn packet(
        &mut self,
        header: &DataHeader,
        length: usize,
        at: Time,
        acknowledged: SeqNumber,
        told: &mut impl FnMut(Outcome),
    ) {
        let number = header.message;
        // Most are of the youngest.
        let younger = self.open.iter().rev();
        let younger = younger.take_while(|open| ahead(open.number, number) > 0);
        let mut place = self.open.len() - younger.count();
        if place > 0 && self.open[place - 1].number == number {
            place -= 1;
        } else {
            if self.open.len() >= OPEN_MAX {
                self.settle_oldest(told);
                place = place.saturating_sub(1);
            }
            self.open.insert(place, Open::new(header, at));
        }
        let open = &mut self.open[place];
        if !open.add(header, length) {
            return told(Outcome::Contradiction);
        }
        if !open.in_order && open.is_whole() {
            open.was_told = true;
            told(Outcome::Whole(
                open.whole(at, acknowledged.is_before(open.lowest)),
            ));
        }
        self.settle(at, acknowledged, told);
    }

    /// Everything before `acknowledged` has come, or was given up: settles what waited for it.
    pub fn settle(&mut self, at: Time, acknowledged: SeqNumber, told: &mut impl FnMut(Outcome)) {
        while let Some(&oldest) = self.open.front() {
            if oldest.is_whole() && !acknowledged.is_before(oldest.lowest) {
                self.pop(told);
                if !oldest.was_told {
                    told(Outcome::Whole(oldest.whole(at, false)));
                }
            } else if oldest.is_over(acknowledged) {
                self.settle_oldest(told);
            } else {
                return;
            }
        }
    }

    /// Expects nothing more of the oldest.
    fn settle_oldest(&mut self, told: &mut impl FnMut(Outcome)) {
        if self.open.front().is_some_and(|oldest| !oldest.was_told) {
            told(Outcome::Incomplete);
        }
        self.pop(told);
    }

    fn pop(&mut self, told: &mut impl FnMut(Outcome)) {
        let Some(oldest) = self.open.pop_front() else {
            return;
        };
        let before = self.settled.unwrap_or(oldest.number);
        let step = ahead(oldest.number, before);
        if step > 1 {
            told(Outcome::Missing(step - 1));
        }
        if step > 0 || self.settled.is_none() {
            self.settled = Some(oldest.number);
        }
    }

    /// The number of the oldest that is looked after: all before it are settled.
    pub fn oldest(&self) -> Option<u32> {
        self.open.front().map(|oldest| oldest.number)
    }

    /// How many are looked after.
    pub fn open(&self) -> usize {
        self.open.len()
    }
}

#[cfg(test)]
mod tests;
