//! Frames put together from packets, and whether they would have played in time.

use std::time::Duration;

use measure::{Recorder, Time};

use super::Rtp;
use super::metrics::FRAMES_BROKEN;
use crate::media::shared::{Codes, Playing};

/// How many frames are open at once. Packets reordered over more frames than this break theirs.
const OPEN: usize = 8;
/// All but the one that began last.
const OLDER: usize = OPEN - 1;

/// A frame of which at least one packet came. Sequence numbers are the low half of extended ones.
#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    timestamp: u32,
    lowest: u32,
    highest: u32,
    /// Twice the number of its packets, and one more if its highest bears the marker bit: a frame
    /// is to be small.
    packets: u32,
    /// Arrival of its last packet.
    arrived: Time,
}

impl Frame {
    /// Counts a packet in. Gives whether the frame begins lower than was known.
    #[inline]
    fn add(&mut self, packet: &FramePacket, number: u32) -> bool {
        self.packets = self.packets.wrapping_add(2);
        self.arrived = self.arrived.max(packet.at);
        if is_after(number, self.highest) {
            self.highest = number;
            self.packets = self.packets & !1 | u32::from(packet.marker);
        } else if is_after(self.lowest, number) {
            self.lowest = number;
            return true;
        }
        false
    }

    fn is_contiguous(&self) -> bool {
        self.packets >> 1 == self.highest.wrapping_sub(self.lowest).wrapping_add(1)
    }

    /// Whether its highest packet bears the marker bit.
    fn is_marked(&self) -> bool {
        self.packets & 1 != 0
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
// What every packet needs stands first and side by side: with thousands of streams a line of memory
// more is what a packet costs.
#[repr(C, align(64))]
pub(super) struct Playout {
    /// The open frame that began last. Nearly all packets belong to it.
    newest: Option<Frame>,
    /// Highest sequence number and timestamp of the frame closed last.
    closed: Option<(u32, u32)>,
    /// Where the first of the other open frames stands in `older`, and how many they are.
    first: u8,
    opened: u8,
    /// Whether the open frames may be in another order than that of their lowest numbers.
    mixed: bool,
    /// Where frames may bear time codes.
    codes: Option<Box<Codes>>,
    /// Timestamps of `older`, side by side.
    timestamps: [u32; OLDER],
    /// The other open frames in the order in which they began, round and round: most frames are
    /// only put in, and taken out again, so that no more than they are looked at.
    older: [Frame; OLDER],
    playing: Playing,
    broken: u64,
    /// Whether any frame ended in the marker bit, so that all of them should.
    marks: bool,
}

impl Playout {
    pub(super) fn new(clock_rate: u32, buffer: Duration) -> Playout {
        Playout {
            playing: Playing::new(clock_rate, buffer),
            broken: 0,
            newest: None,
            closed: None,
            first: 0,
            opened: 0,
            mixed: false,
            timestamps: [0; OLDER],
            older: [Frame::default(); OLDER],
            marks: false,
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
        (self.playing.frames(), self.broken, self.playing.stalls())
    }

    /// How the whole frames so far play.
    pub(super) fn playing(&self) -> &Playing {
        &self.playing
    }

    /// Takes the first copy of a packet in; `base` is the stream's lowest sequence number,
    /// extended.
    #[inline]
    pub(super) fn packet(&mut self, packet: FramePacket, base: u64, recorder: &mut Recorder) {
        let number = packet.extended as u32;
        if let Some(frame) = &mut self.newest
            && frame.timestamp == packet.timestamp
        {
            self.mixed |= frame.add(&packet, number);
            return;
        }
        self.packet_of_another(packet, number, base, recorder);
    }

    /// Where one of the older frames stands, the one that began first being 0.
    #[inline]
    fn slot(&self, place: u8) -> usize {
        let slot = usize::from(self.first + place);
        if slot < OLDER { slot } else { slot - OLDER }
    }

    /// Where the open frame of a timestamp stands that is not the newest.
    #[inline]
    fn slot_of(&self, timestamp: u32) -> Option<usize> {
        let known = self.timestamps.map(|known| known == timestamp);
        if known == [false; OLDER] {
            return None;
        }
        let slots = (0..self.opened).rev().map(|place| self.slot(place));
        slots.into_iter().find(|&slot| known[slot])
    }

    /// Takes in a packet that is not of the newest frame: of an older one, or the first of the
    /// next.
    fn packet_of_another(
        &mut self,
        packet: FramePacket,
        number: u32,
        base: u64,
        recorder: &mut Recorder,
    ) {
        if let Some(slot) = self.slot_of(packet.timestamp) {
            self.mixed |= self.older[slot].add(&packet, number);
            return;
        }
        if let Some((highest, timestamp)) = self.closed
            && (timestamp == packet.timestamp || !is_after(number, highest))
        {
            return;
        }
        if usize::from(self.opened) == OLDER {
            self.close_lowest(base, recorder);
        }
        let newest = self.newest.replace(Frame {
            timestamp: packet.timestamp,
            lowest: number,
            highest: number,
            packets: 2 | u32::from(packet.marker),
            arrived: packet.at,
        });
        if let Some(frame) = newest {
            self.mixed |= is_after(frame.lowest, number);
            let slot = self.slot(self.opened);
            self.timestamps[slot] = frame.timestamp;
            self.older[slot] = frame;
            self.opened += 1;
        }
    }

    /// Closes all frames, at the end of a stream or before another source begins.
    pub(super) fn finish(&mut self, base: u64, recorder: &mut Recorder) {
        while self.newest.is_some() {
            self.close_lowest(base, recorder);
        }
        self.closed = None;
        self.playing.restart();
    }

    /// Nothing came any more up to `until`, though it was to: that is one stall, from the time at
    /// which the next frame was to play. All frames are closed.
    pub(super) fn silent_until(&mut self, base: u64, until: Time, recorder: &mut Recorder) {
        while self.newest.is_some() {
            self.close_lowest(base, recorder);
        }
        self.playing.silent_until::<Rtp>(until, recorder);
    }

    /// Takes the open frame out that has the lowest number, and says whether another begins right
    /// behind it.
    #[inline]
    fn take_lowest(&mut self) -> Option<(Frame, bool)> {
        if self.mixed {
            return self.take_lowest_of_mixed();
        }
        let frame = match self.opened {
            0 => self.newest.take()?,
            _ => {
                let frame = self.older[self.slot(0)];
                self.first = self.slot(1) as u8;
                self.opened -= 1;
                frame
            }
        };
        let next = match self.opened {
            0 => self.newest.as_ref(),
            _ => Some(&self.older[self.slot(0)]),
        };
        // Where one further on begins there, the frame has not all its numbers, and is broken
        // either way.
        let next = next.is_some_and(|next| next.lowest == frame.highest.wrapping_add(1));
        Some((frame, next))
    }

    /// The same where each of them has to be looked at.
    #[cold]
    fn take_lowest_of_mixed(&mut self) -> Option<(Frame, bool)> {
        let mut open = [self.newest?; OPEN];
        let others = usize::from(self.opened);
        for (place, frame) in open[..others].iter_mut().enumerate() {
            *frame = self.older[self.slot(place as u8)];
        }
        let open = &mut open[..=others];
        let lowest = (0..open.len()).reduce(|lowest, other| {
            if is_after(open[lowest].lowest, open[other].lowest) {
                other
            } else {
                lowest
            }
        })?;
        let frame = open[lowest];
        open[lowest..].rotate_left(1);
        let left = &open[..others];
        let next = frame.highest.wrapping_add(1);
        let followed = left.iter().any(|other| other.lowest == next);
        self.mixed = !left.is_sorted_by(|a, b| !is_after(a.lowest, b.lowest));
        self.newest = left.last().copied();
        (self.first, self.opened) = (0, others.saturating_sub(1) as u8);
        for (slot, frame) in left.iter().take(self.opened.into()).enumerate() {
            self.timestamps[slot] = frame.timestamp;
            self.older[slot] = *frame;
        }
        Some((frame, followed))
    }

    fn close_lowest(&mut self, base: u64, recorder: &mut Recorder) {
        let Some((frame, followed)) = self.take_lowest() else {
            return;
        };
        let begins = match self.closed {
            Some((highest, _)) => highest.wrapping_add(1) == frame.lowest,
            None => frame.lowest == base as u32,
        };
        let last = self.newest.is_none();
        self.closed = Some((frame.highest, frame.timestamp));
        self.marks |= frame.is_marked();
        let ends = frame.is_marked() || followed || (last && !self.marks);
        if begins && frame.is_contiguous() && ends {
            if self.codes.is_some() {
                self.close_code(&frame, true, recorder);
            }
            self.playing
                .frame::<Rtp>(frame.arrived, frame.timestamp, recorder);
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
            true => codes.whole::<Rtp>(frame.timestamp, frame.arrived, recorder),
            false => codes.cut_off::<Rtp>(frame.timestamp, recorder),
        }
    }
}

/// Whether `a` comes after `b`, over wrap-arounds.
#[inline]
fn is_after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}
