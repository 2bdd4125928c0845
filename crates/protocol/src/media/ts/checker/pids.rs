//! Continuity counters, of each PID by itself (ISO/IEC 13818-1, 2.4.3.3).

use serde::Serialize;

use super::TsCounts;
use mediagen::ts::packet::Header;

/// Of how many PIDs continuity is looked at. A programme has some five, a whole transponder some
/// fifty.
const MOST: usize = 32;

/// One PID of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PidCounts {
    /// Its number.
    pub pid: u16,
    /// How many packets of it came.
    pub packets: u64,
    /// How many of them did not go on where the one before left off.
    pub continuity_errors: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pid {
    packets: u64,
    errors: u32,
    counter: u8,
    /// Whether the last packet with payload came twice already.
    twice: bool,
}

/// The PIDs of a stream, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Pids {
    /// Their numbers, side by side: the search is the hot path.
    numbers: Vec<u16>,
    states: Vec<Pid>,
    /// Where the one of the last packet stands: most packets follow one of their own.
    last: usize,
}

impl Pids {
    /// Takes in a packet with payload alone, if it goes on where the last one of its PID left off;
    /// says whether it does.
    #[inline]
    pub(super) fn goes_on(&mut self, number: u16, continuity: u8) -> bool {
        if self.numbers.get(self.last) != Some(&number) {
            let Some(place) = self.numbers.iter().position(|&other| other == number) else {
                return false;
            };
            self.last = place;
        }
        let pid = &mut self.states[self.last];
        if continuity != pid.counter.wrapping_add(1) & 0x0f {
            return false;
        }
        pid.packets += 1;
        pid.counter = continuity;
        pid.twice = false;
        true
    }

    #[inline]
    pub(super) fn packet(&mut self, header: &Header, counts: &mut TsCounts) {
        if self.numbers.get(self.last) != Some(&header.pid) {
            match self.numbers.iter().position(|&number| number == header.pid) {
                Some(place) => self.last = place,
                None => return self.first(header, counts),
            }
        }
        let pid = &mut self.states[self.last];
        pid.packets += 1;
        let before = std::mem::replace(&mut pid.counter, header.continuity);
        // Packets without payload do not count on.
        let next = before.wrapping_add(u8::from(header.has_payload)) & 0x0f;
        if header.continuity == next || header.discontinuity {
            pid.twice &= !header.has_payload;
            return;
        }
        if header.has_payload && header.continuity == before && !pid.twice {
            pid.twice = true;
            counts.ts_duplicates += 1;
            return;
        }
        pid.twice = false;
        pid.errors = pid.errors.saturating_add(1);
        counts.continuity_errors += 1;
        counts.continuity_lost += u64::from(match header.continuity == before {
            // More than twice, rather than all but one of sixteen lost.
            true => 0,
            false => header.continuity.wrapping_sub(next) & 0x0f,
        });
    }

    #[cold]
    fn first(&mut self, header: &Header, counts: &mut TsCounts) {
        if self.numbers.len() >= MOST {
            counts.untracked_packets += 1;
            return;
        }
        self.last = self.numbers.len();
        self.numbers.push(header.pid);
        self.states.push(Pid {
            packets: 1,
            errors: 0,
            counter: header.continuity,
            twice: false,
        });
    }

    pub(super) fn counts(&self) -> impl Iterator<Item = PidCounts> {
        self.numbers
            .iter()
            .zip(&self.states)
            .map(|(&pid, state)| PidCounts {
                pid,
                packets: state.packets,
                continuity_errors: state.errors.into(),
            })
    }
}
