//! Sequence numbers of one source: extension, classification, and bursts of loss.

use measure::Recorder;

use super::metrics::{LOSS_BURST_LENGTH, LOSS_BURSTS};
use crate::mediagen::steps;

/// A sequence number less than this far ahead of the highest belongs to the stream, with all
/// numbers in between missing (RFC 3550, A.1: `MAX_DROPOUT`).
pub(super) const MAX_DROPOUT: u16 = 3000;

/// Number of sequence numbers, the highest included, that are kept to tell first copies from
/// duplicates. Also serves as RFC 3550's `MAX_MISORDER`.
pub(super) const WINDOW: u64 = 2048;

/// Number of different sequence numbers.
const CYCLE: u64 = 1 << 16;

/// A number this far ahead counts as behind (RFC 1982).
const HALF_CYCLE: u16 = 0x8000;

/// Added to the first sequence number, so that lower ones do not go below zero.
const EXTENDED_OFFSET: u64 = 1 << 32;

/// Classification of a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SequenceClass {
    /// Not received before.
    New(NewNumber),
    /// Received before.
    Duplicate,
    /// Too far ahead to belong to the stream.
    TooFarAhead,
    /// Too far behind to tell whether it was received before.
    TooFarBehind,
}

/// A sequence number that was not received before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewNumber {
    /// Sequence number, extended by the wrap-arounds so far.
    pub(super) extended: u64,
    /// Growth of the range from base to highest.
    pub(super) grown: u64,
    /// Distance behind the highest; 0 for a new highest number.
    pub(super) distance: u64,
}

impl NewNumber {
    /// A new highest number, which lets the range grow by `grown`.
    #[inline]
    pub(super) fn highest(extended: u64, grown: u64) -> NewNumber {
        NewNumber {
            extended,
            grown,
            distance: 0,
        }
    }
}

/// State of the sequence numbers from the base to the highest.
#[derive(Debug)]
#[repr(C)]
pub(super) struct SequenceTracker {
    highest: u64,
    base: u64,
    /// Number of consecutive missing numbers directly below the window.
    missing_run: u64,
    /// Bit set of the last [`WINDOW`] numbers that arrived; a number's index is its remainder.
    received: [u64; WINDOW as usize / 64],
}

impl SequenceTracker {
    /// Creates the state of a stream whose first packet has this number.
    pub(super) fn new(first: u16) -> SequenceTracker {
        let first = EXTENDED_OFFSET + u64::from(first);
        let mut sequence = SequenceTracker {
            base: first,
            highest: first,
            missing_run: 0,
            received: [0; WINDOW as usize / 64],
        };
        sequence.set(first);
        sequence
    }

    /// Lowest extended number of the stream.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// Highest extended number that arrived.
    pub(super) fn highest(&self) -> u64 {
        self.highest
    }

    /// Number of sequence numbers from the base to the highest.
    pub(super) fn span(&self) -> u64 {
        self.highest - self.base + 1
    }

    /// Highest number as receiver reports state it (RFC 3550, 6.4.1).
    pub(super) fn reported_highest(&self) -> u32 {
        (self.highest - EXTENDED_OFFSET) as u32
    }

    /// Classifies and records a number.
    #[inline]
    pub(super) fn classify(&mut self, sequence: u16, recorder: &mut Recorder) -> SequenceClass {
        let ahead = sequence.wrapping_sub(self.highest as u16);
        if ahead != 0 && ahead < MAX_DROPOUT {
            let extended = self.highest + u64::from(ahead);
            self.advance_to(extended, recorder);
            return SequenceClass::New(NewNumber::highest(extended, ahead.into()));
        }
        let behind = u64::from(ahead.wrapping_neg());
        if behind < WINDOW {
            let extended = self.highest - behind;
            if self.has(extended) {
                return SequenceClass::Duplicate;
            }
            self.set(extended);
            let grown = self.base.saturating_sub(extended);
            self.base -= grown;
            return SequenceClass::New(NewNumber {
                extended,
                grown,
                distance: behind,
            });
        }
        if ahead < HALF_CYCLE {
            SequenceClass::TooFarAhead
        } else {
            SequenceClass::TooFarBehind
        }
    }

    /// Fast path of [`SequenceTracker::classify`]: records the next number if no burst of loss is
    /// open at the end of the window. Returns `None` if [`SequenceTracker::classify`]
    /// has to handle it.
    #[inline(always)]
    pub(super) fn next_in_order(&mut self, sequence: u16) -> Option<NewNumber> {
        let extended = self.highest + 1;
        // The number that leaves the window has the same index.
        let (word, bit) = bit_of(extended);
        let word = &mut self.received[word];
        let decided = match *word & bit {
            0 => extended - WINDOW < self.base,
            _ => self.missing_run == 0,
        };
        if sequence != extended as u16 || !decided {
            return None;
        }
        *word |= bit;
        self.highest = extended;
        Some(NewNumber::highest(extended, 1))
    }

    /// Advances to a number at any distance, with all numbers in between missing. The distance
    /// is at most one cycle: a number that is already the highest is a whole cycle ahead. The cost
    /// is bounded by the window, whatever the distance.
    #[cold]
    pub(super) fn skip_to(&mut self, to: u16, recorder: &mut Recorder) -> NewNumber {
        let ahead = match to.wrapping_sub(self.highest as u16) {
            0 => CYCLE,
            ahead => u64::from(ahead),
        };
        let extended = self.highest + ahead;
        self.advance_to(extended, recorder);
        NewNumber::highest(extended, ahead)
    }

    /// Advances to a number, with all numbers in between missing. Takes a step for each number,
    /// except for runs of which none had arrived: a sender that skips thousands of numbers with
    /// each packet must not cost thousands of steps per packet.
    #[inline]
    fn advance_to(&mut self, extended: u64, recorder: &mut Recorder) {
        let near = extended.min(self.highest + WINDOW);
        let mut next = self.highest + 1;
        while next <= near {
            steps::count_bytes(1);
            let leaves = next - WINDOW;
            let (word, bit) = bit_of(next);
            if bit == 1 && next + 63 <= near && self.received[word] == 0 {
                // All of these are missing; numbers below the base were never expected.
                self.missing_run += (leaves + 64).saturating_sub(self.base.max(leaves));
                next += 64;
                continue;
            }
            self.decide(leaves, recorder);
            self.clear(next);
            next += 1;
        }
        // Numbers between the old and the new window.
        self.missing_run += extended - near;
        self.highest = extended;
        self.set(extended);
    }

    /// True if a number is just ahead, so that it certainly belongs to the stream.
    #[inline]
    pub(super) fn is_just_ahead(&self, sequence: u16) -> bool {
        let ahead = sequence.wrapping_sub(self.highest as u16);
        ahead != 0 && ahead < MAX_DROPOUT
    }

    /// True if a number is in the window, as far as its low half shows.
    pub(super) fn is_recent(&self, sequence: u16) -> bool {
        u64::from((self.highest as u16).wrapping_sub(sequence)) < WINDOW
    }

    /// True if a number is ahead of the highest rather than behind it.
    pub(super) fn is_ahead(&self, sequence: u16) -> bool {
        (1..HALF_CYCLE).contains(&sequence.wrapping_sub(self.highest as u16))
    }

    /// Lowers the base to a number that has not arrived. Returns the growth of the range, or `None`
    /// if the number is above the base or too far below it to be plausible.
    pub(super) fn lower_base(&mut self, to: u16, recorder: &mut Recorder) -> Option<u64> {
        let below = (self.base as u16).wrapping_sub(to);
        if below >= MAX_DROPOUT {
            return None;
        }
        let below = u64::from(below);
        let (old, new) = (self.base, self.base - below);
        self.base = new;
        // First number that is still in the window.
        let kept = self.highest + 1 - WINDOW;
        if old < kept {
            // The old base arrived and has left the window: the missing numbers are a burst of
            // their own.
            record_burst(below, recorder);
        } else {
            self.missing_run += kept.saturating_sub(new);
        }
        Some(below)
    }

    /// Decides about all numbers that are still in the window. To be called last.
    pub(super) fn finish(&mut self, recorder: &mut Recorder) {
        for number in (self.highest + 1 - WINDOW)..=self.highest {
            self.decide(number, recorder);
        }
    }

    /// Decides about a number that leaves the window: it is lost if it has not arrived.
    #[inline]
    fn decide(&mut self, number: u64, recorder: &mut Recorder) {
        if self.has(number) {
            if self.missing_run > 0 {
                record_burst(std::mem::take(&mut self.missing_run), recorder);
            }
        } else if number >= self.base {
            self.missing_run += 1;
        }
    }

    #[inline]
    fn has(&self, number: u64) -> bool {
        let (word, bit) = bit_of(number);
        self.received[word] & bit != 0
    }

    #[inline]
    fn set(&mut self, number: u64) {
        let (word, bit) = bit_of(number);
        self.received[word] |= bit;
    }

    #[inline]
    fn clear(&mut self, number: u64) {
        let (word, bit) = bit_of(number);
        self.received[word] &= !bit;
    }
}

#[inline]
fn bit_of(number: u64) -> (usize, u64) {
    let index = number % WINDOW;
    ((index / 64) as usize, 1 << (index % 64))
}

fn record_burst(length: u64, recorder: &mut Recorder) {
    if length > 0 {
        recorder.add(LOSS_BURSTS, 1);
        recorder.record(LOSS_BURST_LENGTH, length);
    }
}
