//! The clock of a run: nanoseconds since its start, and the conversion of kernel timestamps.

use std::cell::Cell;

use measure::Time;
use rustix::time::{ClockId, clock_gettime};

/// Reads the monotonic clock, and converts kernel timestamps, which are in real time.
///
/// Copies of a clock ([`Clock::same_start`]) agree on the start of the run. Each has its own offset
/// between the two clocks and measures it again on request ([`Clock::refresh_offset`]), so that an
/// adjustment of the real-time clock shows up as jitter for one window at most.
#[derive(Debug)]
pub struct Clock {
    start: i64,
    /// Real time minus monotonic time, in nanoseconds.
    offset: Cell<i64>,
}

/// Change of the offset between two measurements that counts as a step of the real-time clock, and
/// not as the slow correction made by time daemons (500 ppm of a second).
pub const STEP_NANOS: i64 = 1_000_000;

impl Clock {
    /// Returns a clock whose run begins now.
    pub fn start() -> Clock {
        Clock::starting_at(monotonic_nanos())
    }

    /// Returns a clock whose run begins at this reading of the monotonic clock
    /// ([`monotonic_nanos`]), which may be in the future. Until then it shows the start.
    pub fn starting_at(monotonic: i64) -> Clock {
        Clock {
            start: monotonic,
            offset: Cell::new(offset()),
        }
    }

    /// Returns another clock of the same run, for another thread.
    pub fn same_start(&self) -> Clock {
        Clock {
            start: self.start,
            offset: Cell::new(self.offset.get()),
        }
    }

    /// Current time, measured from the start of the run.
    pub fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(read(ClockId::Monotonic) - self.start).unwrap_or(0))
    }

    /// Converts a kernel timestamp (`CLOCK_REALTIME`, nanoseconds since 1970) to the run's time.
    #[inline]
    pub fn from_realtime(&self, nanos: i64) -> Time {
        Time::from_nanos(u64::try_from(nanos - self.offset.get() - self.start).unwrap_or(0))
    }

    /// Converts `time` to a reading of the monotonic clock, as timers need it.
    pub fn to_monotonic_nanos(&self, time: Time) -> i64 {
        i64::try_from(time.as_nanos())
            .unwrap_or(i64::MAX)
            .saturating_add(self.start)
    }

    /// Start of the run in real time (nanoseconds since 1970).
    pub fn started_at(&self) -> i64 {
        self.start + self.offset.get()
    }

    /// Measures the offset between real time and monotonic time again. Returns its change in
    /// nanoseconds if that is a step ([`STEP_NANOS`]).
    pub fn refresh_offset(&self) -> Option<i64> {
        let new = offset();
        let moved = new - self.offset.replace(new);
        (moved.abs() >= STEP_NANOS).then_some(moved)
    }
}

fn read(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Real time minus monotonic time: of several measurements, the one with the shortest interval
/// between its readings.
fn offset() -> i64 {
    (0..5)
        .map(|_| {
            let before = read(ClockId::Monotonic);
            let real = read(ClockId::Realtime);
            let after = read(ClockId::Monotonic);
            (after - before, real - (before + (after - before) / 2))
        })
        .min()
        .map_or(0, |(_, offset)| offset)
}

/// Reading of the monotonic clock (`CLOCK_MONOTONIC`), in nanoseconds.
pub fn monotonic_nanos() -> i64 {
    read(ClockId::Monotonic)
}

/// Processor time used by the calling thread, in nanoseconds.
pub fn thread_cpu_nanos() -> u64 {
    u64::try_from(read(ClockId::ThreadCPUTime)).unwrap_or(0)
}

/// Processor time used by this process, in nanoseconds.
pub fn process_cpu_nanos() -> u64 {
    u64::try_from(read(ClockId::ProcessCPUTime)).unwrap_or(0)
}

/// Size of a memory page in bytes.
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// Clock ticks per second in which /proc counts time (proc(5), USER_HZ).
pub fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_time_converts_to_the_runs_time() {
        let clock = Clock::start();
        let before = clock.now();
        let converted = clock.from_realtime(read(ClockId::Realtime));
        let after = clock.now();
        let slack = std::time::Duration::from_millis(1);
        assert!(converted + slack >= before && converted <= after + slack);
    }

    #[test]
    fn clock_shows_its_start_until_then() {
        let now = monotonic_nanos();
        let ahead = Clock::starting_at(now + 3_600_000_000_000);
        assert_eq!(ahead.now(), Time::ZERO);
        assert_eq!(
            ahead.to_monotonic_nanos(Time::ZERO),
            now + 3_600_000_000_000
        );
        let behind = Clock::starting_at(now - 1_000_000_000);
        assert!(behind.now() >= Time::from_nanos(1_000_000_000));
    }

    #[test]
    fn copies_agree_about_the_start() {
        let clock = Clock::start();
        let copy = clock.same_start();
        assert!(copy.now() >= clock.from_realtime(clock.started_at()));
        assert_eq!(copy.started_at(), clock.started_at());
    }
}
