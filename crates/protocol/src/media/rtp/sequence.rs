//! Sequence numbers of one source: extended, told apart, looked for.

use measure::Recorder;

use super::metrics::{LOSS_BURST_LENGTH, LOSS_BURSTS};
use mediagen::steps;

/// How far ahead of the highest a sequence number may be and still belong to the stream, with all
/// between missing (RFC 3550, A.1: `MAX_DROPOUT`).
pub(super) const MAX_DROPOUT: u16 = 3000;

/// How many sequence numbers, the highest included, are kept to tell first copies from duplicates.
/// It stands in the place of RFC 3550's `MAX_MISORDER` too.
pub(super) const WINDOW: u64 = 2048;

/// How many sequence numbers there are.
const TURN: u64 = 1 << 16;

/// Numbers so far ahead are rather behind (RFC 1982).
const HALF: u16 = 0x8000;

/// Added to the first sequence number, so that lower ones can follow without passing below zero.
const START: u64 = 1 << 32;

/// What a sequence number turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It was not there before.
    First {
        /// Extended by the wraps-around so far.
        extended: u64,
        /// By how much the span from base to highest grew.
        grown: u64,
        /// How far behind the highest; 0 where it is the highest now.
        distance: u64,
    },
    /// It was there before.
    Duplicate,
    /// Too far ahead to belong to the stream.
    Ahead,
    /// Too far behind to tell.
    Behind,
}

/// What is known of the sequence numbers from the base to the highest.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Sequence {
    highest: u64,
    base: u64,
    /// Numbers that never came, in a row, just below those in the window.
    run: u64,
    /// Which of the last [`WINDOW`] came; the place of a number is its remainder.
    came: [u64; WINDOW as usize / 64],
}

impl Sequence {
    /// A stream whose first packet has this number.
    pub(super) fn new(first: u16) -> Sequence {
        let first = START + u64::from(first);
        let mut sequence = Sequence {
            base: first,
            highest: first,
            run: 0,
            came: [0; WINDOW as usize / 64],
        };
        sequence.set(first);
        sequence
    }

    /// The lowest extended number of the stream.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// The highest extended number that came.
    pub(super) fn highest(&self) -> u64 {
        self.highest
    }

    /// How many numbers there are from base to highest.
    pub(super) fn span(&self) -> u64 {
        self.highest - self.base + 1
    }

    /// The highest number as receiver reports state it (RFC 3550, 6.4.1).
    pub(super) fn reported_highest(&self) -> u32 {
        (self.highest - START) as u32
    }

    /// Puts a number in its place.
    #[inline]
    pub(super) fn place(&mut self, sequence: u16, recorder: &mut Recorder) -> Place {
        let ahead = sequence.wrapping_sub(self.highest as u16);
        if ahead != 0 && ahead < MAX_DROPOUT {
            let extended = self.highest + u64::from(ahead);
            self.go_to(extended, recorder);
            return Place::First {
                extended,
                grown: u64::from(ahead),
                distance: 0,
            };
        }
        let behind = u64::from(ahead.wrapping_neg());
        if behind < WINDOW {
            let extended = self.highest - behind;
            if self.has(extended) {
                return Place::Duplicate;
            }
            self.set(extended);
            let grown = self.base.saturating_sub(extended);
            self.base -= grown;
            return Place::First {
                extended,
                grown,
                distance: behind,
            };
        }
        if ahead < HALF {
            Place::Ahead
        } else {
            Place::Behind
        }
    }

    /// Puts a number in its place that is the next one, where none is missing at the end of the
    /// window: then there is nothing to tell, and nothing to do but to go on. Else it is
    /// [`Sequence::place`]'s.
    #[inline(always)]
    pub(super) fn next(&mut self, sequence: u16) -> Option<u64> {
        let extended = self.highest + 1;
        // The number that leaves the window has the same place.
        let (word, bit) = place_of(extended);
        let word = &mut self.came[word];
        let decided = match *word & bit {
            0 => extended - WINDOW < self.base,
            _ => self.run == 0,
        };
        if sequence != extended as u16 || !decided {
            return None;
        }
        *word |= bit;
        self.highest = extended;
        Some(extended)
    }

    /// Goes forward to a number, however far ahead, with all between missing; gives it extended,
    /// and by how much the span grew. The way is never longer than once around: a number that is
    /// the highest already is a whole turn ahead. Costs what the window costs, however far it goes.
    #[cold]
    pub(super) fn skip(&mut self, to: u16, recorder: &mut Recorder) -> (u64, u64) {
        let ahead = match to.wrapping_sub(self.highest as u16) {
            0 => TURN,
            ahead => u64::from(ahead),
        };
        let extended = self.highest + ahead;
        self.go_to(extended, recorder);
        (extended, ahead)
    }

    /// Goes forward to a number, with all between missing. Costs a step for each number, but for
    /// those in a row of which none had come: a sender that leaves out thousands with each packet
    /// must not cost thousands of steps a packet.
    #[inline]
    fn go_to(&mut self, extended: u64, recorder: &mut Recorder) {
        let near = extended.min(self.highest + WINDOW);
        let mut next = self.highest + 1;
        while next <= near {
            steps::took(1);
            let leaves = next - WINDOW;
            let (word, bit) = place_of(next);
            if bit == 1 && next + 63 <= near && self.came[word] == 0 {
                // None of these came; those below the base were never expected.
                self.run += (leaves + 64).saturating_sub(self.base.max(leaves));
                next += 64;
                continue;
            }
            self.leave(leaves, recorder);
            self.clear(next);
            next += 1;
        }
        // What lies between the window that was and the one that is.
        self.run += extended - near;
        self.highest = extended;
        self.set(extended);
    }

    /// Whether a number is just ahead, so that it belongs to the stream without further question.
    #[inline]
    pub(super) fn is_next(&self, sequence: u16) -> bool {
        let ahead = sequence.wrapping_sub(self.highest as u16);
        ahead != 0 && ahead < MAX_DROPOUT
    }

    /// Whether a number is one of those still in the window, so far as its low half tells.
    pub(super) fn is_recent(&self, sequence: u16) -> bool {
        u64::from((self.highest as u16).wrapping_sub(sequence)) < WINDOW
    }

    /// Whether a number is rather ahead of the highest than behind it.
    pub(super) fn is_forward(&self, sequence: u16) -> bool {
        (1..HALF).contains(&sequence.wrapping_sub(self.highest as u16))
    }

    /// Lowers the base to a number that never came as yet, and gives by how much; `None` where that
    /// number is above the base or too far below it to be believed.
    pub(super) fn lower_base(&mut self, to: u16, recorder: &mut Recorder) -> Option<u64> {
        let below = (self.base as u16).wrapping_sub(to);
        if below >= MAX_DROPOUT {
            return None;
        }
        let below = u64::from(below);
        let (old, new) = (self.base, self.base - below);
        self.base = new;
        // The first number that is still in the window.
        let kept = self.highest + 1 - WINDOW;
        if old < kept {
            // The old base came, and has left the window: a burst by itself.
            burst(below, recorder);
        } else {
            self.run += kept.saturating_sub(new);
        }
        Some(below)
    }

    /// Decides about all numbers that are still in the window. The last thing done.
    pub(super) fn finish(&mut self, recorder: &mut Recorder) {
        for number in (self.highest + 1 - WINDOW)..=self.highest {
            self.leave(number, recorder);
        }
    }

    /// Decides about a number: if it has not come by now it never will.
    #[inline]
    fn leave(&mut self, number: u64, recorder: &mut Recorder) {
        if self.has(number) {
            if self.run > 0 {
                burst(std::mem::take(&mut self.run), recorder);
            }
        } else if number >= self.base {
            self.run += 1;
        }
    }

    #[inline]
    fn has(&self, number: u64) -> bool {
        let (word, bit) = place_of(number);
        self.came[word] & bit != 0
    }

    #[inline]
    fn set(&mut self, number: u64) {
        let (word, bit) = place_of(number);
        self.came[word] |= bit;
    }

    #[inline]
    fn clear(&mut self, number: u64) {
        let (word, bit) = place_of(number);
        self.came[word] &= !bit;
    }
}

#[inline]
fn place_of(number: u64) -> (usize, u64) {
    let place = number % WINDOW;
    ((place / 64) as usize, 1 << (place % 64))
}

fn burst(length: u64, recorder: &mut Recorder) {
    if length > 0 {
        recorder.add(LOSS_BURSTS, 1);
        recorder.record(LOSS_BURST_LENGTH, length);
    }
}
