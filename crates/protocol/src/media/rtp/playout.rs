//! Frames put together from packets, and whether they would have played in time.

use std::time::Duration;

use measure::{Recorder, Time};

use super::Rtp;
use super::metrics::FRAMES_BROKEN;
use crate::media::shared::{Codes, Playing};

mod padding;

use padding::PaddingNumbers;

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

    /// Number of its packets that arrived.
    fn came(&self) -> u32 {
        self.packets >> 1
    }

    /// Number of sequence numbers from its lowest to its highest.
    fn span(&self) -> u32 {
        self.highest.wrapping_sub(self.lowest).wrapping_add(1)
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
/// frame. Packets missing between two frames break only what they may have belonged to:
///
/// * The frame before them is whole if it ends in the marker bit.
/// * The frame behind them is whole if only one is missing and the frame before lacks its marker
///   bit, which the other frames have: then that packet was its last.
/// * Neither is broken in a stream whose frames are one packet each, as those of sound are.
///
/// Where none of this tells, both are broken. Frames of which nothing came are not seen at all.
/// Packets without payload are of no frame, and break none.
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
    /// The frame closed last.
    closed: Option<ClosedFrame>,
    /// Where the first of the other open frames stands in `older`, and how many they are.
    first: u8,
    opened: u8,
    /// Whether the open frames may be in another order than that of their lowest numbers.
    mixed: bool,
    /// Where frames may bear time codes.
    codes: Option<Box<Codes>>,
    /// Sequence numbers of packets without payload.
    padding: Option<Box<PaddingNumbers>>,
    /// Timestamps of `older`, side by side.
    timestamps: [u32; OLDER],
    /// The other open frames in the order in which they began, round and round: most frames are
    /// only put in, and taken out again, so that no more than they are looked at.
    older: [Frame; OLDER],
    playing: Playing,
    broken: u64,
    /// Whether any frame ended in the marker bit, so that all of them should.
    marks: bool,
    /// Whether each frame is one packet. A frame of more shows that this is not so.
    single: bool,
}

/// Summary of the frame that was closed last.
#[derive(Clone, Copy, Debug)]
struct ClosedFrame {
    highest: u32,
    timestamp: u32,
    /// Whether it lacks the marker bit that other frames end in.
    lacks_end: bool,
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
            single: false,
            codes: None,
            padding: None,
        }
    }

    /// Takes each packet for a frame, until a frame of more than one shows otherwise.
    pub(super) fn expect_single_packets(&mut self) {
        self.single = true;
    }

    /// Takes in that a packet has no payload.
    #[cold]
    pub(super) fn padding(&mut self, extended: u64) {
        self.padding.get_or_insert_default().add(extended as u32);
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
        if let Some(closed) = &self.closed
            && (closed.timestamp == packet.timestamp || !is_after(number, closed.highest))
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

    /// Takes the open frame out that has the lowest number, and gives the number with which the
    /// next one behind it begins.
    #[inline]
    fn take_lowest(&mut self) -> Option<(Frame, Option<u32>)> {
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
        // Where it begins within this frame, this one has not all its numbers, and is broken
        // either way.
        Some((frame, next.map(|next| next.lowest)))
    }

    /// The same where each of them has to be looked at.
    #[cold]
    fn take_lowest_of_mixed(&mut self) -> Option<(Frame, Option<u32>)> {
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
        let behind = |other: &Frame| other.lowest.wrapping_sub(frame.highest);
        let later = left
            .iter()
            .filter(|other| is_after(other.lowest, frame.highest));
        let next = later.min_by_key(|other| behind(other));
        let next = next.map(|next| next.lowest);
        self.mixed = !left.is_sorted_by(|a, b| !is_after(a.lowest, b.lowest));
        self.newest = left.last().copied();
        (self.first, self.opened) = (0, others.saturating_sub(1) as u8);
        for (slot, frame) in left.iter().take(self.opened.into()).enumerate() {
            self.timestamps[slot] = frame.timestamp;
            self.older[slot] = *frame;
        }
        Some((frame, next))
    }

    fn close_lowest(&mut self, base: u64, recorder: &mut Recorder) {
        let Some((frame, next)) = self.take_lowest() else {
            return;
        };
        self.single &= frame.came() == 1;
        self.marks |= frame.is_marked();
        let last = self.newest.is_none();
        let contiguous = frame.came() == frame.span() || self.is_padded(&frame);
        let begins = self.single
            || match &self.closed {
                Some(closed) => match self.missing(closed.highest, frame.lowest) {
                    0 => true,
                    1 => closed.lacks_end,
                    _ => false,
                },
                None => self.missing((base as u32).wrapping_sub(1), frame.lowest) == 0,
            };
        let ends = frame.is_marked()
            || self.single
            || next.is_some_and(|next| self.missing(frame.highest, next) == 0)
            || (last && !self.marks);
        self.closed = Some(ClosedFrame {
            highest: frame.highest,
            timestamp: frame.timestamp,
            lacks_end: self.marks && !frame.is_marked(),
        });
        if let Some(padding) = &mut self.padding {
            padding.forget_up_to(frame.highest);
        }
        if begins && contiguous && ends {
            if self.codes.is_some() {
                self.close_code(&frame, true, recorder);
            }
            self.playing
                .frame::<Rtp>(frame.arrived, frame.timestamp, recorder);
        } else if !(begins && contiguous && last) {
            self.broken += 1;
            recorder.add(FRAMES_BROKEN, 1);
        } else if self.codes.is_some() {
            self.close_code(&frame, false, recorder);
        }
    }

    /// Number of media packets missing between two sequence numbers that arrived. If `high` is the
    /// lower one, the result is larger than any frame.
    #[inline]
    fn missing(&self, low: u32, high: u32) -> u32 {
        let between = high.wrapping_sub(low).wrapping_sub(1);
        match &self.padding {
            Some(padding) if between > 0 && is_after(high, low) => {
                let padded = padding.within(low.wrapping_add(1), high.wrapping_sub(1));
                between.saturating_sub(padded)
            }
            _ => between,
        }
    }

    /// Whether all that is missing within a frame is packets without payload.
    #[cold]
    fn is_padded(&self, frame: &Frame) -> bool {
        let padding = self.padding.as_ref();
        let padded = padding.map_or(0, |padding| padding.within(frame.lowest, frame.highest));
        padded > 0 && frame.came().saturating_add(padded) == frame.span()
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
