//! When packets arrived, until it is said.

use std::collections::VecDeque;

use measure::Time;

use super::transport_cc::{TICK, TICKS_OF_REFERENCE, TransportCc};

/// The most packets that are kept: at 25,000 packets a
/// second those of 80 ms.
const KEPT_MAX: usize = 2000;

/// The most packets of which one message says something, so that it fits into a datagram of 1,200
/// bytes whatever it says.
const SAID_MAX: usize = 450;

/// How far back it is known which packets were said to have arrived, and how many of the others may
/// come late between two messages.
const SAID_KEPT: u16 = 512;
const LATE_MAX: usize = 16;

/// What became of arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrivalsCounts {
    /// Packets whose arrival was said.
    pub said: u64,
    /// Packets that came too late to be said, came before, or jumped too far ahead.
    pub left_out: u64,
    /// Messages.
    pub messages: u64,
}

/// The arrivals of a transport's packets. Nothing is allocated for a packet once there is room.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// The number of the first packet that is kept, once one came.
    base: Option<u16>,
    kept: VecDeque<Option<Time>>,
    /// Packets that came after it was said that those behind them had, in the order in which they
    /// came.
    late: VecDeque<(u16, Time)>,
    /// Of the last packets before `base`, which have come: a bit for each, at its number's
    /// remainder.
    said: [u64; SAID_KEPT as usize / 64],
    number: u8,
    counts: ArrivalsCounts,
}

impl Arrivals {
    /// What became of arrivals so far.
    pub fn counts(&self) -> ArrivalsCounts {
        self.counts
    }

    /// The packet of that number has arrived.
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

    /// One that was said already, or so far ahead that the other side began anew.
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
        // Nothing is known of those before, so that none of them is late.
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

    /// Whether a packet ever came.
    pub fn has_begun(&self) -> bool {
        self.base.is_some()
    }

    /// Whether anything is there to be said.
    pub fn is_empty(&self) -> bool {
        self.late.is_empty() && self.kept.iter().all(Option::is_none)
    }

    /// Appends a message with what is kept, which is then forgotten. Says whether there was
    /// anything. What differs by more than 8 s from the packet before it begins another message,
    /// and so does each that came late: call again until there is nothing.
    pub fn write(&mut self, sender: u32, media: u32, out: &mut Vec<u8>) -> bool {
        let (Some(base), Some(place)) = (self.base, self.kept.iter().position(Option::is_some))
        else {
            let late = self.late.pop_front();
            if let Some((number, at)) = late {
                self.write_late(sender, media, number, at, out);
            }
            return late.is_some();
        };
        // What is missing before the first that came is said with the next one's message, if any.
        let first = self.kept[place].map_or(0, ticks);
        let reference = first / TICKS_OF_REFERENCE;
        let mut message = TransportCc {
            sender,
            media,
            base,
            // 24 bits with a sign go around after 12 days.
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
        // Trailing ones that are missing may still come.
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

    /// Writes that one packet has arrived of which it was said that it had not.
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
