//! Playout model: whether frames would have played in time.

use std::time::Duration;

use measure::{Recorder, Time};

use super::{SharedMetrics, nanos_per_tick};

/// Plays complete frames by the media clock, starting when the first one arrives.
#[derive(Debug, Default)]
pub(crate) struct PlayoutModel {
    /// Nanoseconds per unit of the media clock.
    nanos_per_tick: f64,
    /// Playout buffer for which stalls are counted, in nanoseconds.
    buffer: f64,
    clock: Option<PlayoutClock>,
    required_delay: f64,
    /// Number of complete frames so far.
    pub(crate) frames: u64,
    pub(crate) stalls: u64,
    /// Total duration of all stalls, also of those before a restart, in nanoseconds.
    stalled: u64,
}

/// Playout schedule.
#[derive(Debug)]
struct PlayoutClock {
    /// Arrival of the first complete frame.
    first_arrived: Time,
    /// Timestamp of the previous complete frame, and its offset from the first one in nanoseconds.
    timestamp: u32,
    position: f64,
    /// Total duration of the stalls so far, in nanoseconds.
    stalled: f64,
}

impl PlayoutModel {
    pub(crate) fn new(clock_rate: u32, buffer: Duration) -> PlayoutModel {
        PlayoutModel {
            nanos_per_tick: nanos_per_tick(clock_rate),
            buffer: buffer.as_nanos() as f64,
            ..PlayoutModel::default()
        }
    }

    /// Total duration of the stalls so far.
    pub(crate) fn stalled(&self) -> Duration {
        Duration::from_nanos(self.stalled)
    }

    /// Smallest playout delay with which every frame so far would have played in time; `None`
    /// before the first frame.
    pub(crate) fn required_delay(&self) -> Option<Duration> {
        (self.frames > 0).then(|| Duration::from_nanos(self.required_delay.round() as u64))
    }

    /// Sets the total duration of the stalls that a receiver on another machine counted.
    pub(crate) fn set_remote_stalls(&mut self, stalled: Duration) {
        self.stalled = u64::try_from(stalled.as_nanos()).unwrap_or(u64::MAX);
    }

    /// Restarts the schedule: the media clock jumped.
    pub(crate) fn restart(&mut self) {
        self.clock = None;
    }

    /// Handles a complete frame.
    pub(crate) fn frame<M: SharedMetrics>(
        &mut self,
        arrived: Time,
        timestamp: u32,
        recorder: &mut Recorder,
    ) {
        recorder.count(&mut self.frames, M::FRAMES, 1);
        let Some(clock) = &mut self.clock else {
            self.clock = Some(PlayoutClock {
                first_arrived: arrived,
                timestamp,
                position: 0.0,
                stalled: 0.0,
            });
            return;
        };
        // Signed: a frame may be shown before a frame that was sent earlier.
        let step = timestamp.wrapping_sub(clock.timestamp) as i32;
        clock.timestamp = timestamp;
        clock.position += f64::from(step) * self.nanos_per_tick;
        let late = arrived.nanos_from(clock.first_arrived) as f64 - clock.position;
        self.required_delay = self.required_delay.max(late);
        let stall = late - self.buffer - clock.stalled;
        if self.nanos_per_tick > 0.0 && is_stall(stall) {
            clock.stalled += stall;
            self.count::<M>(stall, recorder);
        }
    }

    /// Counts the silence up to `until` as one stall, from the time at which the next frame was due
    /// to play. To be called if media was expected and none arrived.
    pub(crate) fn silent_until<M: SharedMetrics>(&mut self, until: Time, recorder: &mut Recorder) {
        let Some(clock) = self.clock.as_ref().filter(|_| self.nanos_per_tick > 0.0) else {
            return;
        };
        // The last frame is shown for the mean duration of the others.
        let shown = clock.position / self.frames.saturating_sub(1).max(1) as f64;
        let late = until.nanos_from(clock.first_arrived) as f64 - clock.position - shown;
        let stall = late - self.buffer - clock.stalled;
        if is_stall(stall) {
            self.count::<M>(stall, recorder);
        }
    }

    /// Counts a stall of this duration.
    #[cold]
    fn count<M: SharedMetrics>(&mut self, nanos: f64, recorder: &mut Recorder) {
        let nanos = nanos.round() as u64;
        self.stalled = self.stalled.saturating_add(nanos);
        recorder.count(&mut self.stalls, M::STALLS, 1);
        recorder.record(M::STALL_TIME, nanos);
    }

    /// Records the figures that are known only at the end of the stream.
    pub(crate) fn finish<M: SharedMetrics>(&self, recorder: &mut Recorder) {
        if let Some(needed) = self.required_delay() {
            let needed = needed.as_nanos();
            recorder.record(M::PLAYOUT_BUFFER, u64::try_from(needed).unwrap_or(u64::MAX));
        }
    }
}

/// True for a stall of at least 1 ns. Shorter ones are rounding errors of the sums.
fn is_stall(nanos: f64) -> bool {
    nanos >= 1.0
}
