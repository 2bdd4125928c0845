//! Which packets of a source are missing and are to be asked for.

use std::collections::VecDeque;
use std::time::Duration;

use measure::Time;

/// The most packets that are waited for. With more missing, only a key frame helps.
const MISSING_MAX: usize = 1000;

/// How far behind the highest a packet may be and still be waited for.
const AGE_MAX: u16 = 10_000;

/// How often a packet is asked for, as browsers do.
const ASKED_MAX: u8 = 10;

/// A round trip where none is known, and the least that is waited between two questions.
const ROUND_TRIP: Duration = Duration::from_millis(100);
const PAUSE_MIN: Duration = Duration::from_millis(5);

/// What became of missing packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissingCounts {
    /// Packets that were missing when later ones came.
    pub missing: u64,
    /// Questions: packets that were asked for, each time.
    pub asked: u64,
    /// Packets that came after they had been asked for.
    pub recovered: u64,
    /// Packets that came by themselves before they were asked for.
    pub reordered: u64,
    /// Packets that were asked for in vain, and those that were too many or too old.
    pub given_up: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    sequence: u16,
    asked: u8,
    next: Time,
}

/// The missing packets of one source. What comes in order costs a comparison.
#[derive(Debug, Default)]
pub struct Missing {
    highest: Option<u16>,
    /// In order.
    entries: VecDeque<Entry>,
    round_trip: Option<Duration>,
    /// How long a packet may be late before it is asked for.
    tolerance: Duration,
    /// The next number and the highest, where one came that is far behind: two in a row, and none
    /// that is ahead between them, are those of a source that begins anew (RFC 3550, A.1).
    anew: Option<(u16, u16)>,
    key_frame_needed: bool,
    counts: MissingCounts,
}

impl Missing {
    /// One that asks for a packet as soon as a later one has come by `tolerance` ago. Browsers wait
    /// for nothing.
    pub fn new(tolerance: Duration) -> Missing {
        Missing {
            tolerance,
            ..Missing::default()
        }
    }

    /// How long an answer takes: a packet is asked for again after that.
    pub fn set_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = Some(round_trip);
    }

    /// What became of missing packets so far.
    pub fn counts(&self) -> MissingCounts {
        self.counts
    }

    /// A packet has come. Says whether it was asked for before.
    #[inline]
    pub fn packet(&mut self, sequence: u16, at: Time) -> bool {
        let Some(highest) = self.highest else {
            self.highest = Some(sequence);
            return false;
        };
        let ahead = sequence.wrapping_sub(highest);
        if ahead == 1 {
            self.highest = Some(sequence);
            return false;
        }
        self.out_of_order(sequence, ahead, at)
    }

    fn out_of_order(&mut self, sequence: u16, ahead: u16, at: Time) -> bool {
        if ahead == 0 {
            return false;
        }
        if ahead >= 1 << 15 {
            return self.late(sequence);
        }
        let highest = sequence.wrapping_sub(ahead);
        self.highest = Some(sequence);
        let gap = u64::from(ahead) - 1;
        self.counts.missing += gap;
        if gap as usize > MISSING_MAX {
            // The source began anew, or so much is lost that asking is of no use.
            self.counts.given_up += gap + self.entries.len() as u64;
            self.entries.clear();
            self.key_frame_needed = true;
            return false;
        }
        for step in 1..ahead {
            self.entries.push_back(Entry {
                sequence: highest.wrapping_add(step),
                asked: 0,
                next: at + self.tolerance,
            });
        }
        while self.entries.len() > MISSING_MAX {
            self.entries.pop_front();
            self.counts.given_up += 1;
            self.key_frame_needed = true;
        }
        while let Some(first) = self.entries.front()
            && sequence.wrapping_sub(first.sequence) > AGE_MAX
        {
            self.entries.pop_front();
            self.counts.given_up += 1;
        }
        false
    }

    fn late(&mut self, sequence: u16) -> bool {
        let mut entries = self.entries.iter();
        let Some(place) = entries.position(|entry| entry.sequence == sequence) else {
            self.behind(sequence);
            return false;
        };
        let was_asked = self
            .entries
            .remove(place)
            .is_some_and(|entry| entry.asked > 0);
        match was_asked {
            true => self.counts.recovered += 1,
            false => self.counts.reordered += 1,
        }
        was_asked
    }

    /// One came that is not waited for, and is behind.
    fn behind(&mut self, sequence: u16) {
        let Some(highest) = self.highest else {
            return;
        };
        if usize::from(highest.wrapping_sub(sequence)) <= MISSING_MAX {
            return;
        }
        let next = (sequence.wrapping_add(1), highest);
        if self.anew.replace(next) == Some((sequence, highest)) {
            self.counts.given_up += self.entries.len() as u64;
            self.entries.clear();
            self.highest = Some(sequence);
            self.anew = None;
        }
    }

    /// Whether there is something to ask for, now or later.
    #[inline]
    pub fn has_questions(&self) -> bool {
        !self.entries.is_empty() || self.key_frame_needed
    }

    /// The oldest packet that was asked for and has not come: the one that an answer is of if it
    /// does not say so itself.
    pub fn oldest_asked(&self) -> Option<u16> {
        let mut entries = self.entries.iter();
        entries
            .find(|entry| entry.asked > 0)
            .map(|entry| entry.sequence)
    }

    /// When something is next to be asked for.
    pub fn due(&self) -> Option<Time> {
        self.entries.iter().map(|entry| entry.next).min()
    }

    /// Adds to `out` what is to be asked for now, in order; it counts as asked for.
    pub fn take_due(&mut self, now: Time, out: &mut Vec<u16>) {
        let pause = self.round_trip.unwrap_or(ROUND_TRIP).max(PAUSE_MIN);
        let counts = &mut self.counts;
        self.entries.retain_mut(|entry| {
            if entry.next > now {
                return true;
            }
            if entry.asked >= ASKED_MAX {
                counts.given_up += 1;
                return false;
            }
            entry.asked += 1;
            entry.next = now + pause;
            counts.asked += 1;
            out.push(entry.sequence);
            true
        });
    }

    /// Whether so much was missing that a key frame should be asked for; says so once.
    pub fn take_key_frame_needed(&mut self) -> bool {
        std::mem::take(&mut self.key_frame_needed)
    }
}
