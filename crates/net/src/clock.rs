//! The one clock: nanoseconds since the run began, and what the kernel's timestamps are in it.

use std::cell::Cell;

use measure::Time;
use rustix::time::{ClockId, clock_gettime};

/// Reads the monotonic clock, and converts the kernel's timestamps, which are in real time.
///
/// Copies of one clock (see [`Clock::same_start`]) agree about when the run began; each keeps its
/// own difference between the two clocks, and renews it when told to, so that an adjustment of the
/// real-time clock is noticed and does not show up as jitter for longer than one window.
#[derive(Debug)]
pub struct Clock {
    start: i64,
    /// Real time less monotonic time, in nanoseconds.
    offset: Cell<i64>,
}

/// How far the real-time clock may move against the monotonic one between two looks before it
/// counts as a step and not as the slow correction that time daemons make (500 ppm of a second).
pub const STEP_NANOS: i64 = 1_000_000;

impl Clock {
    /// A clock whose run begins now.
    pub fn start() -> Clock {
        Clock {
            start: read(ClockId::Monotonic),
            offset: Cell::new(offset()),
        }
    }

    /// Another clock of the same run, for another thread.
    pub fn same_start(&self) -> Clock {
        Clock {
            start: self.start,
            offset: Cell::new(self.offset.get()),
        }
    }

    /// The time now.
    pub fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(read(ClockId::Monotonic) - self.start).unwrap_or(0))
    }

    /// A kernel timestamp (`CLOCK_REALTIME`, nanoseconds since 1970) in the run's time.
    #[inline]
    pub fn from_realtime(&self, nanos: i64) -> Time {
        Time::from_nanos(u64::try_from(nanos - self.offset.get() - self.start).unwrap_or(0))
    }

    /// The monotonic clock's reading at that time, as timers want it.
    pub fn to_monotonic_nanos(&self, time: Time) -> i64 {
        i64::try_from(time.as_nanos())
            .unwrap_or(i64::MAX)
            .saturating_add(self.start)
    }

    /// The real time (nanoseconds since 1970) at which the run began.
    pub fn started_at(&self) -> i64 {
        self.start + self.offset.get()
    }

    /// Looks again how far real time is from monotonic time; says by how many nanoseconds it has
    /// moved, if that was a step ([`STEP_NANOS`]).
    pub fn renew(&self) -> Option<i64> {
        let new = offset();
        let moved = new - self.offset.replace(new);
        (moved.abs() >= STEP_NANOS).then_some(moved)
    }
}

fn read(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Real time less monotonic time: of several looks the one with the least time between the
/// readings.
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

/// Processor time that the calling thread has used, in nanoseconds.
pub fn thread_cpu_nanos() -> u64 {
    u64::try_from(read(ClockId::ThreadCPUTime)).unwrap_or(0)
}

/// Processor time that this process has used, in nanoseconds.
pub fn process_cpu_nanos() -> u64 {
    u64::try_from(read(ClockId::ProcessCPUTime)).unwrap_or(0)
}

/// How many bytes a page of memory has.
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// How many of the clock ticks in which /proc counts time make a second (proc(5), USER_HZ).
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
    fn copies_agree_about_the_start() {
        let clock = Clock::start();
        let copy = clock.same_start();
        assert!(copy.now() >= clock.from_realtime(clock.started_at()));
        assert_eq!(copy.started_at(), clock.started_at());
    }
}
