//! Continuity counters, per PID (ISO/IEC 13818-1, 2.4.3.3).

use serde::Serialize;

use super::TsCounts;
use crate::mediagen::ts::packet::Header;

/// Maximum number of PIDs whose continuity is checked. A programme has about five, a whole
/// transponder about fifty.
const TRACKED_MAX: usize = 32;

/// Counts of one PID of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PidCounts {
    pub pid: u16,
    /// Number of packets that arrived.
    pub packets: u64,
    /// Number of packets that did not continue the counter of the packet before.
    pub continuity_errors: u64,
}

#[derive(Clone, Copy, Debug)]
struct PidState {
    packets: u64,
    errors: u32,
    counter: u8,
    /// True if the last packet with payload has already arrived twice.
    is_duplicated: bool,
}

/// PIDs of a stream, in the order in which they arrived.
#[derive(Debug, Default)]
pub(super) struct Pids {
    /// PID numbers, adjacent because the search is the hot path.
    numbers: Vec<u16>,
    states: Vec<PidState>,
    /// Index of the last packet's PID: most packets have the PID of the packet before.
    last: usize,
}

impl Pids {
    /// Handles a packet with payload only, if it continues the counter of its PID. Returns `false`
    /// if it does not.
    #[inline]
    pub(super) fn continues(&mut self, number: u16, continuity: u8) -> bool {
        if self.numbers.get(self.last) != Some(&number) {
            let Some(index) = self.numbers.iter().position(|&other| other == number) else {
                return false;
            };
            self.last = index;
        }
        let pid = &mut self.states[self.last];
        if continuity != pid.counter.wrapping_add(1) & 0x0f {
            return false;
        }
        pid.packets += 1;
        pid.counter = continuity;
        pid.is_duplicated = false;
        true
    }

    /// Returns the PID of the last packet, and the counter of a packet with payload that continues
    /// it.
    #[inline]
    pub(super) fn expected(&self) -> Option<(u16, u8)> {
        let state = self.states.get(self.last)?;
        let number = self.numbers.get(self.last)?;
        Some((*number, state.counter.wrapping_add(1) & 0x0f))
    }

    /// Handles a number of packets of the last PID, with payload only, that continue its counter.
    #[inline]
    pub(super) fn continued(&mut self, packets: u64) {
        if let Some(pid) = self.states.get_mut(self.last).filter(|_| packets > 0) {
            pid.packets += packets;
            pid.counter = (u64::from(pid.counter) + packets) as u8 & 0x0f;
            pid.is_duplicated = false;
        }
    }

    #[inline]
    pub(super) fn packet(&mut self, header: &Header, counts: &mut TsCounts) {
        if self.numbers.get(self.last) != Some(&header.pid) {
            match self.numbers.iter().position(|&number| number == header.pid) {
                Some(index) => self.last = index,
                None => return self.track(header, counts),
            }
        }
        let pid = &mut self.states[self.last];
        pid.packets += 1;
        let before = std::mem::replace(&mut pid.counter, header.continuity);
        // Packets without payload do not increment the counter.
        let next = before.wrapping_add(u8::from(header.has_payload)) & 0x0f;
        if header.continuity == next || header.discontinuity {
            pid.is_duplicated &= !header.has_payload;
            return;
        }
        if header.has_payload && header.continuity == before && !pid.is_duplicated {
            pid.is_duplicated = true;
            counts.ts_duplicates += 1;
            return;
        }
        pid.is_duplicated = false;
        pid.errors = pid.errors.saturating_add(1);
        counts.continuity_errors += 1;
        counts.continuity_lost += u64::from(match header.continuity == before {
            // More than two copies, which is more likely than a loss of all but one of sixteen
            // packets.
            true => 0,
            false => header.continuity.wrapping_sub(next) & 0x0f,
        });
    }

    #[cold]
    fn track(&mut self, header: &Header, counts: &mut TsCounts) {
        if self.numbers.len() >= TRACKED_MAX {
            counts.untracked_packets += 1;
            return;
        }
        self.last = self.numbers.len();
        self.numbers.push(header.pid);
        self.states.push(PidState {
            packets: 1,
            errors: 0,
            counter: header.continuity,
            is_duplicated: false,
        });
    }

    /// Number of continuity errors of a PID so far.
    pub(super) fn errors(&self, number: u16) -> u64 {
        let index = self.numbers.iter().position(|&other| other == number);
        index.map_or(0, |index| self.states[index].errors.into())
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
