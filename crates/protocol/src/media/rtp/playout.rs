//! Frames put together from packets, and whether they would have played in time.

use std::time::Duration;

use measure::{Recorder, Time};

use super::codes::Codes;
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
    /// Counts a packet in.
    #[inline]
    fn add(&mut self, packet: &FramePacket, number: u32) {
        self.packets += 1;
        self.arrived = self.arrived.max(packet.at);
        if is_after(number, self.highest) {
            self.highest = number;
            self.marked = packet.marker;
        } else if is_after(self.lowest, number) {
            self.lowest = number;
        }
    }

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
// What every packet needs stands first and side by side: with thousands of streams a line of memory more is
// what a packet costs.
#[repr(C, align(64))]
pub(super) struct Playout {
    /// The open frame that began last. Nearly all packets belong to it.
    newest: Option<Frame>,
    /// Highest sequence number and timestamp of the frame closed last.
    closed: Option<(u32, u32)>,
    /// How many of `older` are open.
    opened: usize,
    /// The other open frames, in the order in which they began.
    older: [Frame; OPEN - 1],
    /// Nanoseconds of one unit of the media's clock.
    unit: f64,
    buffer: f64,
    /// Whether any frame ended in the marker bit, so that all of them should.
    marks: bool,
    clock: Option<Clock>,
    needed: f64,
    frames: u64,
    broken: u64,
    stalls: u64,
    /// Where frames may bear time codes.
    codes: Option<Box<Codes>>,
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
            newest: None,
            closed: None,
            opened: 0,
            older: [Frame::default(); OPEN - 1],
            marks: false,
            clock: None,
            needed: 0.0,
            frames: 0,
            broken: 0,
            stalls: 0,
            codes: None,
        }
    }

    /// Looks for time codes from now on.
    pub(super) fn expect_codes(&mut self, wall_clock: Duration) {
        self.codes = Some(Box::new(Codes::new(wall_clock)));
    }

    /// Whether time codes are looked for.
    #[inline]
    pub(super) fn expects_codes(&self) -> bool {
        self.codes.is_some()
    }

    /// The time codes, where they are looked for.
    pub(super) fn codes(&mut self) -> Option<&mut Codes> {
        self.codes.as_deref_mut()
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
        if let Some(frame) = &mut self.newest
            && frame.timestamp == packet.timestamp
        {
            frame.add(&packet, number);
            return;
        }
        self.packet_of_another(packet, number, base, recorder);
    }

    /// Takes in a packet that is not of the newest frame: of an older one, or the first of the next.
    fn packet_of_another(
        &mut self,
        packet: FramePacket,
        number: u32,
        base: u64,
        recorder: &mut Recorder,
    ) {
        let mut older = self.older[..self.opened].iter_mut().rev();
        if let Some(frame) = older.find(|frame| frame.timestamp == packet.timestamp) {
            frame.add(&packet, number);
            return;
        }
        if let Some((highest, timestamp)) = self.closed
            && (timestamp == packet.timestamp || !is_after(number, highest))
        {
            return;
        }
        if self.opened == OPEN - 1 {
            self.close_lowest(base, recorder);
        }
        let newest = self.newest.replace(Frame {
            timestamp: packet.timestamp,
            lowest: number,
            highest: number,
            packets: 1,
            arrived: packet.at,
            marked: packet.marker,
        });
        if let Some(frame) = newest {
            self.older[self.opened] = frame;
            self.opened += 1;
        }
    }

    /// Closes all frames, at the end of a stream or before another source begins.
    pub(super) fn finish(&mut self, base: u64, recorder: &mut Recorder) {
        while self.newest.is_some() {
            self.close_lowest(base, recorder);
        }
        self.closed = None;
        self.clock = None;
    }

    fn close_lowest(&mut self, base: u64, recorder: &mut Recorder) {
        let Some(newest) = self.newest else { return };
        let older = &self.older[..self.opened];
        let lowest = (0..older.len()).reduce(|lowest, other| {
            if is_after(older[lowest].lowest, older[other].lowest) {
                other
            } else {
                lowest
            }
        });
        let frame = match lowest {
            Some(place) if !is_after(older[place].lowest, newest.lowest) => {
                let frame = older[place];
                // No more than six: by hand that is cheaper than by a call.
                for place in place + 1..self.opened {
                    self.older[place - 1] = self.older[place];
                }
                self.opened -= 1;
                frame
            }
            // The one that began last is the lowest: the next to last is the newest now.
            Some(_) => {
                self.opened -= 1;
                self.newest = Some(self.older[self.opened]);
                newest
            }
            None => {
                self.newest = None;
                newest
            }
        };

        let begins = match self.closed {
            Some((highest, _)) => highest.wrapping_add(1) == frame.lowest,
            None => frame.lowest == base as u32,
        };
        let next = frame.highest.wrapping_add(1);
        let mut open = self.older[..self.opened].iter().chain(&self.newest);
        let followed = open.any(|other| other.lowest == next);
        let last = self.newest.is_none();
        self.closed = Some((frame.highest, frame.timestamp));
        self.marks |= frame.marked;
        let ends = frame.marked || followed || (last && !self.marks);
        if begins && frame.is_contiguous() && ends {
            self.frames += 1;
            recorder.add(FRAMES, 1);
            if self.codes.is_some() {
                self.close_code(&frame, true, recorder);
            }
            self.play(&frame, recorder);
        } else if !(begins && frame.is_contiguous() && last) {
            self.broken += 1;
            recorder.add(FRAMES_BROKEN, 1);
        } else if self.codes.is_some() {
            self.close_code(&frame, false, recorder);
        }
    }

    /// Says of a frame's time code that the frame came whole, or was cut off.
    #[cold]
    fn close_code(&mut self, frame: &Frame, whole: bool, recorder: &mut Recorder) {
        let Some(codes) = &mut self.codes else { return };
        match whole {
            true => codes.whole(frame.timestamp, frame.arrived, recorder),
            false => codes.cut_off(frame.timestamp, recorder),
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
