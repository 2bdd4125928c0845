//! Streams that come frame by frame, each with a timestamp and a size and without a number: as RTMP
//! has them, and messages of SRT.

use std::time::Duration;

use measure::{Recorder, Time};
use mediagen::time_code::TimeCode;

use crate::media::shared::{Arrivals, Codes, Figures, Jitter, Playing, figures};
use crate::session::MediaEvent;

pub mod metrics;

use metrics as m;

/// What a receiver is to know of its stream beforehand.
#[derive(Clone, Copy, Debug)]
pub struct FrameConfig {
    /// The clock of the timestamps in Hz. With 0 nothing is measured that needs a clock.
    pub clock_rate: u32,
    /// The playout buffer for which stalls are counted.
    pub playout_buffer: Duration,
    /// What the wall clock showed, since 1970, when time began, where frames may bear time codes.
    pub wall_clock: Option<Duration>,
}

/// A frame that has come as a whole.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// When its last byte came.
    pub at: Time,
    /// When it is to be decoded, in the media's clock. Comes round.
    pub timestamp: u32,
    /// How many bytes it has.
    pub payload: usize,
    /// How many it took on the wire.
    pub wire: usize,
    /// The time code in it.
    pub code: Option<TimeCode>,
}

/// What one stream counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// See [`m::FRAMES`].
    pub frames: u64,
    /// See [`m::PAYLOAD_BYTES`].
    pub payload_bytes: u64,
    /// See [`m::WIRE_BYTES`].
    pub wire_bytes: u64,
    /// See [`m::STALLS`].
    pub stalls: u64,
    /// See [`m::CLOCK_JUMPS`].
    pub clock_jumps: u64,
}

/// Receives one stream of frames: counts and measures. Allocates nothing for a frame.
#[derive(Debug)]
pub struct FrameReceiver {
    clock_rate: u32,
    counts: FrameCounts,
    first_arrival: Option<Time>,
    arrivals: Arrivals,
    timestamp: u32,
    jitter: Jitter,
    playing: Playing,
    codes: Option<Box<Codes>>,
    finished: bool,
}

struct Own;

figures!(Own);

impl FrameReceiver {
    /// A receiver that has seen nothing.
    pub fn new(config: &FrameConfig) -> FrameReceiver {
        let codes = |wall_clock| Box::new(Codes::new(wall_clock));
        FrameReceiver {
            clock_rate: config.clock_rate,
            counts: FrameCounts::default(),
            first_arrival: None,
            arrivals: Arrivals::default(),
            timestamp: 0,
            jitter: Jitter::new(config.clock_rate),
            playing: Playing::new(config.clock_rate, config.playout_buffer),
            codes: config.wall_clock.map(codes),
            finished: false,
        }
    }

    /// Whether it looks for time codes: else nobody needs to find them.
    pub fn expects_codes(&self) -> bool {
        self.codes.is_some()
    }

    /// Takes one frame in.
    pub fn frame(&mut self, frame: &Frame, recorder: &mut Recorder) -> Option<MediaEvent> {
        self.counts.payload_bytes += frame.payload as u64;
        self.counts.wire_bytes += frame.wire as u64;
        recorder.add(m::PAYLOAD_BYTES, frame.payload as u64);
        recorder.add(m::WIRE_BYTES, frame.wire as u64);
        let at = frame.at;
        let mut event = None;
        if self.first_arrival.is_none() {
            self.first_arrival = Some(at);
            self.arrivals.begin(at);
            event = Some(MediaEvent::First { at });
        } else if self.has_jumped(frame) {
            self.counts.clock_jumps += 1;
            recorder.add(m::CLOCK_JUMPS, 1);
            self.jitter.restart();
            self.playing.restart();
            event = Some(MediaEvent::ClockJumped { at });
        }
        self.timestamp = frame.timestamp;
        self.arrivals.packet(at);
        self.jitter.packet::<Own>(at, frame.timestamp, recorder);
        self.playing.frame::<Own>(at, frame.timestamp, recorder);
        if let (Some(codes), Some(code)) = (&mut self.codes, frame.code) {
            codes.code::<Own>(frame.timestamp, code, recorder);
            codes.whole::<Own>(frame.timestamp, at, recorder);
        }
        event
    }

    /// Whether the media's clock has gone on otherwise than time may have. A frame that comes late
    /// is none of that: nothing is lost on its way, and it waited.
    fn has_jumped(&self, frame: &Frame) -> bool {
        let second = i64::from(self.clock_rate);
        let passed = frame.at.nanos_from(self.arrivals.last()).max(0);
        let passed = i128::from(passed) * i128::from(second) / 1_000_000_000;
        let stated = i64::from(frame.timestamp.wrapping_sub(self.timestamp) as i32);
        let ahead = i128::from(stated) - passed;
        second > 0 && (stated < -second || ahead > i128::from(second).max(passed / 10))
    }

    /// What was counted so far.
    pub fn counts(&self) -> FrameCounts {
        FrameCounts {
            frames: self.playing.frames(),
            stalls: self.playing.stalls(),
            ..self.counts
        }
    }

    /// When the first frame came.
    pub fn first_arrival(&self) -> Option<Time> {
        self.first_arrival
    }

    /// When the last frame came.
    pub fn last_arrival(&self) -> Option<Time> {
        self.first_arrival.map(|_| self.arrivals.last())
    }

    /// The longest time without a frame so far.
    pub fn longest_gap(&self) -> Duration {
        self.arrivals.longest_gap()
    }

    /// The smallest delay with which every frame so far would have played in time.
    pub fn playout_buffer(&self) -> Option<Duration> {
        self.playing.needed()
    }

    /// Nothing came any more up to `until`, though it was to: that gap counts, and so does the
    /// stall that did not end.
    pub fn fell_silent(&mut self, until: Time, recorder: &mut Recorder) {
        if self.first_arrival.is_some() && !self.finished {
            self.arrivals.silent_until(until);
            self.playing.silent_until::<Own>(until, recorder);
        }
        self.finish(recorder);
    }

    /// Adds what is only known at the end to the population's figures. Only the first call does
    /// anything.
    pub fn finish(&mut self, recorder: &mut Recorder) {
        if std::mem::replace(&mut self.finished, true) || self.first_arrival.is_none() {
            return;
        }
        recorder.record(Own::LONGEST_GAP, self.longest_gap().as_nanos() as u64);
        self.playing.finish::<Own>(recorder);
    }
}

#[cfg(test)]
mod tests;
