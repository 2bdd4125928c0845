//! Programme clock reference, compared with the arrival time (ISO/IEC 13818-1, 2.4.2.2 and 2.7.2;
//! ETSI TR 101 290, annex I).

use measure::{Recorder, Time};

use super::TsCounts;
use crate::media::ts::metrics as m;
use mediagen::ts::packet::PCR_WRAP;

/// Difference between clock and elapsed time that counts as a jump, in nanoseconds.
const JUMP_NANOS: u64 = 1_000_000_000;

/// Clock of a programme.
#[derive(Debug, Default)]
pub(super) struct ProgrammeClock {
    last: Option<(u64, Time)>,
}

impl ProgrammeClock {
    /// Handles a reference that arrived at `at`.
    pub(super) fn reference(
        &mut self,
        pcr: u64,
        announced: bool,
        at: Time,
        counts: &mut TsCounts,
        recorder: &mut Recorder,
    ) {
        let last = self.last.replace((pcr, at));
        let Some((before, came)) = last.filter(|_| !announced) else {
            return;
        };
        let ticks = (pcr + PCR_WRAP - before) % PCR_WRAP;
        // 27 ticks are 1000 ns; a whole cycle is about 10^14 ns.
        let stated = ticks * 1000 / 27;
        let passed = at.since(came).as_nanos() as u64;
        let difference = stated.abs_diff(passed);
        if difference > JUMP_NANOS {
            counts.pcr_jumps += 1;
            return;
        }
        recorder.record(m::PCR_INTERVAL, stated);
        recorder.record(m::PCR_JITTER, difference);
    }
}
