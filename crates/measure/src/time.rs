//! A point in time that nobody has to read a clock for.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A point in time, in nanoseconds since the run began.
///
/// Pure code gets it handed in; only the `net` crate reads a clock and converts the kernel's
/// timestamps into it. In virtual-time tests it is simply counted up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// Bytes of a stream that arrived together: those after the run before, up to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where they end, in bytes from the beginning of what is looked at.
    pub end: usize,
    /// When the last of them could be read first.
    pub at: Time,
    /// Whether they came as one segment, or behind a gap that one filled, so that the time is that
    /// of each. Else all that is known is that none came later.
    pub exact: bool,
}

impl Time {
    /// The beginning of the run.
    pub const ZERO: Time = Time(0);
    /// A time that is never reached.
    pub const NEVER: Time = Time(u64::MAX);

    /// The point `nanos` nanoseconds after the beginning of the run.
    pub const fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// The point `duration` after the beginning of the run.
    pub fn from_start(duration: Duration) -> Time {
        Time::ZERO + duration
    }

    /// Nanoseconds since the beginning of the run.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the beginning of the run.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Time since the beginning of the run.
    pub const fn since_start(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// How long after `earlier` this is; zero where it is not after it.
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Nanoseconds from `other` to this point, negative where this is the earlier one.
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
