//! Frames put together from packets, and whether they would have played in time.

use std::time::Duration;

use measure::{Recorder, Time};

use super::metrics::{FRAMES, FRAMES_BROKEN, STALL_TIME, STALLS};

/// How many frames are open at once. Packets reordered over more frames than this break theirs.
const OPEN: usize = 8;

/// A frame of which at least one packet came. Sequence numbers are the low half of extended ones.
#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    timestamp: u32,
    lowest: u32,
    highest: u32,
    packets: u32,
    /// Arrival of its last packet.
    arrived: Time,
    /// Whether its highest packet bears the marker bit.
    marked: bool,
}

impl Frame {
    fn is_contiguous(&self) -> bool {
        self.packets == self.highest.wrapping_sub(self.lowest).wrapping_add(1)
    }
}

/// The packets of a frame as it is taken in: a first copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct FramePacket {
    /// Extended sequence number.
    pub(super) extended: u64,
    pub(super) timestamp: u32,
    pub(super) marker: bool,
    pub(super) at: Time,
}

/// Puts frames together and plays them.
///
/// A frame is all packets with one RTP timestamp. It is whole when no sequence number is missing
/// within it nor between it and the frames beside it, and it ends in the marker bit or at the next
/// frame. So a packet missing just between two frames breaks both: nobody can tell to which of them
/// it belonged. Frames of which nothing came are not seen at all.
///
/// The last few frames stay open, so that reordered packets find theirs. What comes for a frame
/// that is closed already does not mend it. A frame that the end of the stream cut off counts
/// neither as whole nor as broken.
#[derive(Debug)]
pub(super) struct Playout {
    /// Nanoseconds of one unit of the media's clock.
    unit: f64,
    buffer: f64,
    open: [Frame; OPEN],
    opened: usize,
    /// Highest sequence number and timestamp of the frame closed last.
    closed: Option<(u32, u32)>,
    /// Whether any frame ended in the marker bit, so that all of them should.
    marks: bool,
    clock: Option<Clock>,
    needed: f64,
    frames: u64,
    broken: u64,
    stalls: u64,
}

/// When frames play.
#[derive(Debug)]
struct Clock {
    /// Arrival of the first whole frame.
    first_arrived: Time,
    /// Timestamp of the whole frame before, and how far it lies after the first in nanoseconds.
    timestamp: u32,
    position: f64,
    /// How long playing has stood still so far.
    stalled: f64,
}

impl Playout {
    pub(super) fn new(clock_rate: u32, buffer: Duration) -> Playout {
        Playout {
            unit: if clock_rate == 0 {
                0.0
            } else {
                1e9 / f64::from(clock_rate)
            },
            buffer: buffer.as_nanos() as f64,
            open: [Frame::default(); OPEN],
            opened: 0,
            closed: None,
            marks: false,
            clock: None,
            needed: 0.0,
            frames: 0,
            broken: 0,
            stalls: 0,
        }
    }

    /// Frames whole and broken, and stalls, so far.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        (self.frames, self.broken, self.stalls)
    }

    /// The smallest delay with which every whole frame so far would have played in time; `None`
    /// before the first.
    pub(super) fn needed(&self) -> Option<Duration> {
        (self.frames > 0).then(|| Duration::from_nanos(self.needed.round() as u64))
    }

    /// Takes the first copy of a packet in; `base` is the stream's lowest sequence number,
    /// extended.
    #[inline]
    pub(super) fn packet(&mut self, packet: FramePacket, base: u64, recorder: &mut Recorder) {
        let number = packet.extended as u32;
        // Mostly it belongs to the newest frame, which stands last.
        let open = &mut self.open[..self.opened];
        if let Some(frame) = open
            .iter_mut()
            .rev()
            .find(|frame| frame.timestamp == packet.timestamp)
        {
            frame.packets += 1;
            frame.arrived = frame.arrived.max(packet.at);
            if is_after(number, frame.highest) {
                frame.highest = number;
                frame.marked = packet.marker;
            } else if is_after(frame.lowest, number) {
                frame.lowest = number;
            }
            return;
        }
        if let Some((highest, timestamp)) = self.closed
            && (timestamp == packet.timestamp || !is_after(number, highest))
        {
            return;
        }
        if self.opened == OPEN {
            self.close_lowest(base, recorder);
        }
        self.open[self.opened] = Frame {
            timestamp: packet.timestamp,
            lowest: number,
            highest: number,
            packets: 1,
            arrived: packet.at,
            marked: packet.marker,
        };
        self.opened += 1;
    }

    /// Closes all frames, at the end of a stream or before another source begins.
    pub(super) fn finish(&mut self, base: u64, recorder: &mut Recorder) {
        while self.opened > 0 {
            self.close_lowest(base, recorder);
        }
        self.closed = None;
        self.clock = None;
    }

    fn close_lowest(&mut self, base: u64, recorder: &mut Recorder) {
        let open = &self.open[..self.opened];
        let Some(place) = (0..open.len()).reduce(|lowest, other| {
            if is_after(open[lowest].lowest, open[other].lowest) {
                other
            } else {
                lowest
            }
        }) else {
            return;
        };
        let frame = open[place];
        self.open.copy_within(place + 1..self.opened, place);
        self.opened -= 1;

        let begins = match self.closed {
            Some((highest, _)) => highest.wrapping_add(1) == frame.lowest,
            None => frame.lowest == base as u32,
        };
        let next = frame.highest.wrapping_add(1);
        let followed = self.open[..self.opened]
            .iter()
            .any(|other| other.lowest == next);
        let last = self.opened == 0;
        self.closed = Some((frame.highest, frame.timestamp));
        self.marks |= frame.marked;
        let ends = frame.marked || followed || (last && !self.marks);
        if begins && frame.is_contiguous() && ends {
            self.frames += 1;
            recorder.add(FRAMES, 1);
            self.play(&frame, recorder);
        } else if !(begins && frame.is_contiguous() && last) {
            self.broken += 1;
            recorder.add(FRAMES_BROKEN, 1);
        }
    }

    fn play(&mut self, frame: &Frame, recorder: &mut Recorder) {
        let Some(clock) = &mut self.clock else {
            self.clock = Some(Clock {
                first_arrived: frame.arrived,
                timestamp: frame.timestamp,
                position: 0.0,
                stalled: 0.0,
            });
            return;
        };
        // Signed: a frame may be shown before one that was sent before it.
        let step = frame.timestamp.wrapping_sub(clock.timestamp) as i32;
        clock.timestamp = frame.timestamp;
        clock.position += f64::from(step) * self.unit;
        let late = frame.arrived.nanos_from(clock.first_arrived) as f64 - clock.position;
        self.needed = self.needed.max(late);
        let stall = late - self.buffer - clock.stalled;
        // Less than a nanosecond is the rounding of these sums.
        if stall >= 1.0 && self.unit > 0.0 {
            clock.stalled += stall;
            self.stalls += 1;
            recorder.add(STALLS, 1);
            recorder.record(STALL_TIME, stall.round() as u64);
        }
    }
}

/// Whether `a` comes after `b`, over wrap-arounds.
#[inline]
fn is_after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}
