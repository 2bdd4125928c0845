//! The run's clock for libraries that count in the standard library's.

use std::sync::LazyLock;
// The one place of this crate that names it: see `origin`.
use std::time::Instant;

use measure::Time;

/// Where the run's time 0 lies on that clock: anywhere. A value of that type can be had from the
/// clock alone, so it is read once in a process, and no time is told by it: what the libraries are
/// given and give back are distances from here.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A time of the run, for a library.
pub(super) fn to_library(time: Time) -> Instant {
    *ORIGIN + time.since_start()
}

/// A time of a library, in the run. One before the run began counts as its beginning.
pub(super) fn from_library(time: Instant) -> Time {
    Time::from_start(time.saturating_duration_since(*ORIGIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_as_they_went() {
        for nanos in [0, 1, 1_000_000_007, 3_600_000_000_000_000] {
            let time = Time::from_nanos(nanos);
            assert_eq!(from_library(to_library(time)), time);
        }
    }
}
