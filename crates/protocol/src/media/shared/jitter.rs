//! Interarrival jitter of one source (RFC 3550, 6.4.1 and A.8).

use measure::{Recorder, Time};

use super::{Figures, unit};

/// The estimator, in nanoseconds.
///
/// Every data packet of the source counts, in order of arrival: duplicates and late ones too, as
/// the RFC says "each data packet received". RFC 3550 keeps the estimate in whole units of the
/// media's clock; this one keeps fractions, so that it does not depend on how coarse that clock is.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Jitter {
    /// Nanoseconds of one unit of the media's clock.
    unit: f64,
    previous: Option<(Time, u32)>,
    estimate: f64,
    sum: f64,
    count: u64,
}

impl Jitter {
    pub(crate) fn new(clock_rate: u32) -> Jitter {
        Jitter {
            unit: unit(clock_rate),
            previous: None,
            estimate: 0.0,
            sum: 0.0,
            count: 0,
        }
    }

    /// Begins anew with another source; the mean goes on over all.
    pub(crate) fn restart(&mut self) {
        self.previous = None;
        self.estimate = 0.0;
    }

    #[inline(always)]
    pub(crate) fn packet<M: Figures>(&mut self, at: Time, timestamp: u32, recorder: &mut Recorder) {
        let previous = self.previous.replace((at, timestamp));
        let Some((previous_at, previous_timestamp)) = previous else {
            return;
        };
        if self.unit == 0.0 {
            return;
        }
        // Signed, so that it holds over a wrap-around of the timestamp and for frames sent out of
        // order.
        let sent = f64::from(timestamp.wrapping_sub(previous_timestamp) as i32) * self.unit;
        let difference = at.nanos_from(previous_at) as f64 - sent;
        let size = difference.abs();
        self.estimate += (size - self.estimate) / 16.0;
        self.sum += self.estimate;
        self.count += 1;
        recorder.record_together(M::JITTER, rounded(self.estimate));
        let side = if difference < 0.0 {
            M::EARLY
        } else {
            M::LATENESS
        };
        recorder.record_together(side, rounded(size));
    }

    /// The estimate now, in nanoseconds.
    pub(crate) fn nanos(&self) -> f64 {
        self.estimate
    }

    /// Mean of the estimates after each packet, in nanoseconds.
    pub(crate) fn mean_nanos(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    /// The estimate now, in units of the media's clock.
    pub(crate) fn in_clock(&self) -> u32 {
        if self.unit == 0.0 {
            return 0;
        }
        (self.estimate / self.unit) as u32
    }
}

/// A number that is not negative, as a whole one. Adding a half and cutting off is cheaper than
/// rounding, and signed numbers are what processors convert to.
#[inline]
fn rounded(number: f64) -> u64 {
    (number + 0.5) as i64 as u64
}
