//! Streams of frames that have a timestamp and a size but no sequence number: RTMP streams and SRT
//! messages.

use std::time::Duration;

use crate::mediagen::time_code::TimeCode;
use measure::{Recorder, Time};

use crate::media::shared::{Arrivals, Jitter, PlayoutModel, TimeCodes, figures, stream_counts};
use crate::viewer::Delivery;
use session::MediaEvent;

pub mod metrics;

use metrics as m;

/// Settings of a [`FrameReceiver`].
#[derive(Clone, Copy, Debug)]
pub struct FrameConfig {
    /// Clock rate of the timestamps in Hz. If it is 0, nothing is measured that needs a clock.
    pub clock_rate: u32,
    /// Playout buffer for which stalls are counted.
    pub playout_buffer: Duration,
    /// Wall clock at the start of the run, since 1970. `None` if frames have no time codes.
    pub wall_clock: Option<Duration>,
}

/// A complete frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Arrival of the last byte.
    pub at: Time,
    /// Decoding time, in units of the media clock. Wraps around.
    pub timestamp: u32,
    /// Payload size in bytes.
    pub payload: usize,
    /// Size on the wire in bytes.
    pub wire: usize,
    /// Time code in the frame.
    pub code: Option<TimeCode>,
}

stream_counts! {
    /// Counters of one stream.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    FrameCounts {
        frames: FRAMES,
        payload_bytes: PAYLOAD_BYTES,
        wire_bytes: WIRE_BYTES,
        stalls: STALLS,
        clock_jumps: CLOCK_JUMPS,
    }
}

/// Receives one stream of frames: counts and measures. Allocates nothing per frame.
#[derive(Debug)]
pub struct FrameReceiver {
    clock_rate: u32,
    counts: FrameCounts,
    first_arrival: Option<Time>,
    arrivals: Arrivals,
    timestamp: u32,
    jitter: Jitter,
    playing: PlayoutModel,
    codes: Option<Box<TimeCodes>>,
    finished: bool,
}

struct FrameMetrics;

figures!(FrameMetrics);

impl FrameReceiver {
    pub fn new(config: &FrameConfig) -> FrameReceiver {
        let codes = |wall_clock| Box::new(TimeCodes::new(wall_clock));
        FrameReceiver {
            clock_rate: config.clock_rate,
            counts: FrameCounts::default(),
            first_arrival: None,
            arrivals: Arrivals::default(),
            timestamp: 0,
            jitter: Jitter::new(config.clock_rate),
            playing: PlayoutModel::new(config.clock_rate, config.playout_buffer),
            codes: config.wall_clock.map(codes),
            finished: false,
        }
    }

    /// True if the receiver uses time codes. Otherwise callers need not search for them.
    pub fn uses_time_codes(&self) -> bool {
        self.codes.is_some()
    }

    /// Handles one frame.
    pub fn frame(&mut self, frame: &Frame, recorder: &mut Recorder) -> Option<MediaEvent> {
        let (payload, wire) = (frame.payload as u64, frame.wire as u64);
        recorder.count(&mut self.counts.payload_bytes, m::PAYLOAD_BYTES, payload);
        recorder.count(&mut self.counts.wire_bytes, m::WIRE_BYTES, wire);
        let at = frame.at;
        let mut event = None;
        if self.first_arrival.is_none() {
            self.first_arrival = Some(at);
            self.arrivals.begin(at);
            event = Some(MediaEvent::First { at });
        } else if self.has_jumped(frame) {
            recorder.count(&mut self.counts.clock_jumps, m::CLOCK_JUMPS, 1);
            self.jitter.restart();
            self.playing.restart();
            event = Some(MediaEvent::ClockJumped { at });
        }
        self.timestamp = frame.timestamp;
        self.arrivals.packet(at);
        self.jitter
            .packet::<FrameMetrics>(at, frame.timestamp, recorder);
        self.playing
            .frame::<FrameMetrics>(at, frame.timestamp, recorder);
        if let (Some(codes), Some(code)) = (&mut self.codes, frame.code) {
            codes.frame_code::<FrameMetrics>(frame.timestamp, code, recorder);
            codes.frame_complete::<FrameMetrics>(frame.timestamp, at, recorder);
        }
        event
    }

    /// True if the media clock advanced by more or less than the elapsed time allows. A late frame
    /// is not a jump: frames are only delayed in transit, never lost.
    fn has_jumped(&self, frame: &Frame) -> bool {
        let second = i64::from(self.clock_rate);
        let passed = frame.at.nanos_from(self.arrivals.last()).max(0);
        let passed = i128::from(passed) * i128::from(second) / 1_000_000_000;
        let stated = i64::from(frame.timestamp.wrapping_sub(self.timestamp) as i32);
        let ahead = i128::from(stated) - passed;
        second > 0 && (stated < -second || ahead > i128::from(second).max(passed / 10))
    }

    pub fn counts(&self) -> FrameCounts {
        FrameCounts {
            frames: self.playing.frames,
            stalls: self.playing.stalls,
            ..self.counts
        }
    }

    /// Arrival of the first frame.
    pub fn first_arrival(&self) -> Option<Time> {
        self.first_arrival
    }

    /// Arrival of the last frame.
    pub fn last_arrival(&self) -> Option<Time> {
        self.first_arrival.map(|_| self.arrivals.last())
    }

    /// Longest time without a frame so far.
    pub fn longest_gap(&self) -> Duration {
        self.arrivals.longest_gap()
    }

    /// Smallest playout delay with which every frame so far would have played in time.
    pub fn playout_buffer(&self) -> Option<Duration> {
        self.playing.required_delay()
    }

    /// Media of this stream that reached the viewer. The loss is that of published frames with time
    /// codes.
    pub fn delivery(&self) -> Delivery {
        let (expected, delivered) = self.codes.as_ref().map_or((0, 0), |codes| codes.counts());
        Delivery {
            stalled: self.playing.stalled(),
            expected,
            missing: expected.saturating_sub(delivered),
        }
    }

    /// Finishes a stream in which frames were expected up to `until` and did not arrive. The
    /// silence counts as a gap and as an unfinished stall.
    pub fn finish_silent(&mut self, until: Time, recorder: &mut Recorder) {
        if self.first_arrival.is_some() && !self.finished {
            self.arrivals.silent_until(until);
            self.playing.silent_until::<FrameMetrics>(until, recorder);
        }
        self.finish(recorder);
    }

    /// Records the figures that are known only at the end of the stream. Calls after the first have
    /// no effect.
    pub fn finish(&mut self, recorder: &mut Recorder) {
        if std::mem::replace(&mut self.finished, true) || self.first_arrival.is_none() {
            return;
        }
        recorder.record_duration(m::LONGEST_GAP, self.longest_gap());
        self.playing.finish::<FrameMetrics>(recorder);
    }
}

#[cfg(test)]
mod tests;
