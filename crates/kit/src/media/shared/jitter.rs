//! Interarrival jitter of one source (RFC 3550, 6.4.1 and A.8).

use measure::{Recorder, Time};

use super::{SharedMetrics, nanos_per_tick};

/// Jitter estimator, in nanoseconds.
///
/// Every data packet of the source counts, in order of arrival, including duplicates and late
/// packets: the RFC says "each data packet received". RFC 3550 keeps the estimate in whole units of
/// the media clock; this estimator keeps fractions, so that it does not depend on the resolution of
/// that clock.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Jitter {
    /// Nanoseconds per unit of the media clock.
    nanos_per_tick: f64,
    previous: Option<(Time, u32)>,
    /// Current estimate, in nanoseconds.
    pub(crate) estimate: f64,
    sum: f64,
    count: u64,
}

impl Jitter {
    pub(crate) fn new(clock_rate: u32) -> Jitter {
        Jitter {
            nanos_per_tick: nanos_per_tick(clock_rate),
            ..Jitter::default()
        }
    }

    /// Restarts the estimate with another source. The mean continues across all sources.
    pub(crate) fn restart(&mut self) {
        self.previous = None;
        self.estimate = 0.0;
    }

    #[inline(always)]
    pub(crate) fn packet<M: SharedMetrics>(
        &mut self,
        at: Time,
        timestamp: u32,
        recorder: &mut Recorder,
    ) {
        let previous = self.previous.replace((at, timestamp));
        let Some((previous_at, previous_timestamp)) = previous else {
            return;
        };
        if self.nanos_per_tick == 0.0 {
            return;
        }
        // Signed, so that it is correct across a wrap-around of the timestamp and for frames sent
        // out of order.
        let sent =
            f64::from(timestamp.wrapping_sub(previous_timestamp) as i32) * self.nanos_per_tick;
        let difference = at.nanos_from(previous_at) as f64 - sent;
        let size = difference.abs();
        self.estimate += (size - self.estimate) / 16.0;
        self.sum += self.estimate;
        self.count += 1;
        recorder.record_batched(M::JITTER, round(self.estimate));
        let side = if difference < 0.0 {
            M::EARLY
        } else {
            M::LATENESS
        };
        recorder.record_batched(side, round(size));
    }

    /// Mean of the estimates after each packet, in nanoseconds. `None` before the second packet.
    pub(crate) fn mean_nanos(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    /// Current estimate, in units of the media clock.
    pub(crate) fn in_clock_units(&self) -> u32 {
        if self.nanos_per_tick == 0.0 {
            return 0;
        }
        (self.estimate / self.nanos_per_tick) as u32
    }
}

/// Rounds a non-negative number. Adding one half and truncating is cheaper than rounding, and
/// processors convert to signed integers.
#[inline]
fn round(number: f64) -> u64 {
    (number + 0.5) as i64 as u64
}
