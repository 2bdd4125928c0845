//! Programme clock reference, compared with the arrival time (ISO/IEC 13818-1, 2.4.2.2 and 2.7.2;
//! ETSI TR 101 290, annex I), and playback by this clock.

use std::time::Duration;

use measure::{Recorder, Time};

use super::TsCounts;
use crate::media::ts::metrics as m;
use crate::mediagen::ts::packet::PCR_WRAP;

/// Difference between clock and elapsed time that counts as a jump, in nanoseconds.
const JUMP_NANOS: u64 = 1_000_000_000;

/// Longest permitted time from one reference to the next (ISO/IEC 13818-1, 2.7.2), in nanoseconds.
const INTERVAL_NANOS_MAX: u64 = 100_000_000;

/// Clock of a programme.
#[derive(Debug)]
pub(super) struct ProgrammeClock {
    last: Option<(u64, Time)>,
    playback: Playback,
}

/// Playback that begins at the first reference, with a playout buffer. Times are in nanoseconds.
#[derive(Debug)]
struct Playback {
    buffer: u64,
    /// Lateness of the last reference, compared with the first. Negative if media arrives faster
    /// than it plays.
    late: i64,
    /// Total duration of the stalls.
    stalled: u64,
}

impl Playback {
    /// Advances to a reference that arrived `passed` after the previous one and whose media plays
    /// `stated` after it. Counts a stall if that is too late.
    fn advance(&mut self, passed: u64, stated: u64, recorder: &mut Recorder) {
        let passed = i64::try_from(passed).unwrap_or(i64::MAX);
        let stated = i64::try_from(stated).unwrap_or(i64::MAX);
        self.late = self.late.saturating_add(passed.saturating_sub(stated));
        let in_time = self.buffer.saturating_add(self.stalled);
        let late = u64::try_from(self.late).unwrap_or(0);
        if let Some(stall @ 1..) = late.checked_sub(in_time) {
            self.stalled += stall;
            recorder.add(m::STALLS, 1);
            recorder.record(m::STALL_TIME, stall);
        }
    }
}

impl ProgrammeClock {
    /// Creates a clock. Playback has this playout buffer.
    pub(super) fn new(playout_buffer: Duration) -> ProgrammeClock {
        ProgrammeClock {
            last: None,
            playback: Playback {
                buffer: u64::try_from(playout_buffer.as_nanos()).unwrap_or(u64::MAX),
                late: 0,
                stalled: 0,
            },
        }
    }

    /// Total duration of the stalls so far.
    pub(super) fn stalled(&self) -> Duration {
        Duration::from_nanos(self.playback.stalled)
    }

    /// Counts the stall up to `until`. To be called if media was expected and none arrived.
    pub(super) fn silent_until(&mut self, until: Time, recorder: &mut Recorder) {
        if let Some((_, last)) = self.last {
            let passed = until.since(last).as_nanos() as u64;
            self.playback.advance(passed, INTERVAL_NANOS_MAX, recorder);
        }
    }

    /// Handles a reference that arrived at `at`.
    pub(super) fn reference(
        &mut self,
        pcr: u64,
        announced: bool,
        at: Time,
        counts: &mut TsCounts,
        recorder: &mut Recorder,
    ) {
        let Some((before, came)) = self.last.replace((pcr, at)) else {
            return;
        };
        let ticks = (pcr + PCR_WRAP - before) % PCR_WRAP;
        // 27 ticks are 1000 ns; a whole cycle is about 10^14 ns.
        let stated = ticks * 1000 / 27;
        let passed = at.since(came).as_nanos() as u64;
        // Without a common clock, the media is assumed to continue without a gap.
        let plays = match announced || stated > passed + JUMP_NANOS {
            true => passed.min(INTERVAL_NANOS_MAX),
            false => stated,
        };
        self.playback.advance(passed, plays, recorder);
        if announced {
            return;
        }
        let difference = stated.abs_diff(passed);
        if difference > JUMP_NANOS {
            counts.pcr_jumps += 1;
            return;
        }
        recorder.record(m::PCR_INTERVAL, stated);
        recorder.record(m::PCR_JITTER, difference);
    }
}
