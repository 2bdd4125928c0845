//! Conversion between the run's clock and `Instant`, for libraries that use `Instant`.

use std::sync::LazyLock;
// The only use of `Instant` in this crate: see `ORIGIN`.
use std::time::Instant;

use measure::Time;

/// Arbitrary `Instant` that corresponds to time 0 of the run. An `Instant` can only be obtained
/// from the clock, which is read once per process. The value does not measure time: libraries
/// receive and return distances from it.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Converts a time of the run for a library.
pub(super) fn to_instant(time: Time) -> Instant {
    *ORIGIN + time.since_start()
}

/// Converts a library's time. A time before the run becomes its start.
pub(super) fn from_instant(time: Instant) -> Time {
    Time::from_start(time.saturating_duration_since(*ORIGIN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converted_times_convert_back() {
        for nanos in [0, 1, 1_000_000_007, 3_600_000_000_000_000] {
            let time = Time::from_nanos(nanos);
            assert_eq!(from_instant(to_instant(time)), time);
        }
    }
}
