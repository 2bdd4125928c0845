//! Time on the run's clock, without access to a real clock.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point in time, in nanoseconds since the run began.
///
/// Pure code receives times from its caller. Only the `net` crate reads a clock and converts the
/// kernel's timestamps. Virtual-time tests advance it themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A run of bytes of a stream that arrived together, from the end of the previous run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivalRun {
    /// End of the run, in bytes from the beginning of the examined bytes.
    pub end: usize,
    /// Time at which the last byte of the run first became readable.
    pub at: Time,
    /// True if the time holds for every byte of the run: they arrived in one segment, or one
    /// segment filled the gap before them. Otherwise `at` is only an upper bound.
    pub exact: bool,
}

impl Time {
    /// Start of the run.
    pub const ZERO: Time = Time(0);
    /// A time that is never reached.
    pub const NEVER: Time = Time(u64::MAX);

    /// Returns the time `nanos` nanoseconds after the start of the run.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Returns the time `duration` after the start of the run.
    pub fn from_start(duration: Duration) -> Time {
        Time::ZERO + duration
    }

    /// Nanoseconds since the start of the run.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the start of the run.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Duration since the start of the run.
    pub const fn since_start(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Duration since `earlier`; zero if `earlier` is not earlier.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Nanoseconds from `other` to this time; negative if this time is earlier.
    pub const fn nanos_from(self, other: Time) -> i64 {
        self.0.wrapping_sub(other.0) as i64
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, duration: Duration) -> Time {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Time(self.0.saturating_add(nanos))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Time {
    type Output = Time;

    fn sub(self, duration: Duration) -> Time {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Time(self.0.saturating_sub(nanos))
    }
}
