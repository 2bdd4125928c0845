//! Assembles packets into frames, and determines whether the frames would have played in time.

use std::time::Duration;

use measure::{Recorder, Time};

use super::metrics::FRAMES_BROKEN;
use super::{RtpMetrics, VideoCodec};
use crate::media::shared::{PlayoutModel, TimeCodes};

mod padding;

use padding::PaddingNumbers;

/// Number of frames that are open at the same time. A packet that is reordered across more frames
/// breaks its frame.
const OPEN_MAX: usize = 8;
/// Number of open frames except the one that began last.
const OLDER_MAX: usize = OPEN_MAX - 1;

/// A frame of which at least one packet arrived. Sequence numbers are the low half of extended
/// ones.
#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    timestamp: u32,
    lowest: u32,
    highest: u32,
    /// Twice the number of packets, plus one if the highest packet has the marker bit. Combined to
    /// keep the frame small.
    packets_and_marker: u32,
    /// Arrival of the last packet.
    arrived: Time,
}

impl Frame {
    /// Counts a packet. Returns `true` if the frame begins at a lower number than known so far.
    #[inline]
    fn add(&mut self, packet: &FramePacket, number: u32) -> bool {
        self.packets_and_marker = self.packets_and_marker.wrapping_add(2);
        self.arrived = self.arrived.max(packet.at);
        if is_after(number, self.highest) {
            self.highest = number;
            self.packets_and_marker = self.packets_and_marker & !1 | u32::from(packet.marker);
        } else if is_after(self.lowest, number) {
            self.lowest = number;
            return true;
        }
        false
    }

    /// Number of packets that arrived.
    fn packet_count(&self) -> u32 {
        self.packets_and_marker >> 1
    }

    /// Number of sequence numbers from the lowest to the highest.
    fn sequence_span(&self) -> u32 {
        self.highest.wrapping_sub(self.lowest).wrapping_add(1)
    }

    /// True if the highest packet has the marker bit.
    fn is_marked(&self) -> bool {
        self.packets_and_marker & 1 != 0
    }
}

/// The first copy of a packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct FramePacket {
    /// Extended sequence number.
    pub(super) extended: u64,
    pub(super) timestamp: u32,
    pub(super) marker: bool,
    pub(super) at: Time,
}

/// Assembles frames and plays them.
///
/// A frame consists of all packets with the same RTP timestamp. It is complete if no sequence
/// number is missing within it or between it and its neighbours, and it ends with the marker bit or
/// at the next frame. Packets missing between two frames break only the frames that they may have
/// belonged to:
///
/// * The frame before them is complete if it ends with the marker bit.
/// * The frame after them is complete if only one packet is missing and the frame before lacks the
///   marker bit that other frames have: the packet was then the last one of that frame.
/// * Neither is broken in a stream of single-packet frames, such as audio.
///
/// Otherwise both are broken. A frame of which no packet arrived is not noticed. Packets without
/// payload belong to no frame and break none.
///
/// The last few frames stay open for reordered packets. A packet of a closed frame does not repair
/// it. A frame that the end of the stream truncated counts neither as complete nor as broken.
#[derive(Debug, Default)]
// Fields that every packet needs come first and are adjacent: with thousands of streams, the cost
// of a packet is the number of cache lines it touches.
#[repr(C, align(64))]
pub(super) struct FrameAssembler {
    /// The open frame that began last. Nearly all packets belong to it.
    newest: Option<Frame>,
    /// The frame that was closed last.
    closed: Option<ClosedFrame>,
    /// Index of the first of the other open frames in `older`, and their number.
    older_first: u8,
    older_len: u8,
    /// True if the open frames may not be in the order of their lowest numbers.
    unsorted: bool,
    /// Searches of payloads; `None` if there is nothing to find.
    payloads: Option<Box<PayloadSearch>>,
    /// Sequence numbers of packets without payload.
    padding: Option<Box<PaddingNumbers>>,
    /// Timestamps of `older`, adjacent to be searched fast.
    timestamps: [u32; OLDER_MAX],
    /// The other open frames in the order in which they began, as a ring buffer: most frames are
    /// only inserted and removed, and only these are accessed.
    older: [Frame; OLDER_MAX],
    /// Playout of the complete frames so far.
    pub(super) playing: PlayoutModel,
    broken: u64,
    /// True if any frame ended with the marker bit: all frames then should.
    uses_markers: bool,
    /// True if each frame is a single packet. A frame of several packets resets it.
    single_packets: bool,
}

/// Searches of payloads.
#[derive(Debug, Default)]
struct PayloadSearch {
    /// Time codes, if frames may have them.
    codes: Option<TimeCodes>,
    picture: Option<PictureSearch>,
}

/// Search for the first picture of a stream with which a decoder can begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PictureSearch {
    /// No key frame has arrived.
    Awaited(VideoCodec),
    /// Arrival of the first packet of the first key frame.
    Found(Time),
}

impl PictureSearch {
    #[inline]
    fn is_awaited(self) -> bool {
        matches!(self, PictureSearch::Awaited(_))
    }
}

/// Summary of the frame that was closed last.
#[derive(Clone, Copy, Debug)]
struct ClosedFrame {
    highest: u32,
    timestamp: u32,
    /// True if the frame lacks the marker bit with which other frames end.
    lacks_end: bool,
}

impl FrameAssembler {
    pub(super) fn new(clock_rate: u32, buffer: Duration) -> FrameAssembler {
        FrameAssembler {
            playing: PlayoutModel::new(clock_rate, buffer),
            ..FrameAssembler::default()
        }
    }

    /// Treats each packet as a frame, until a frame has several packets.
    pub(super) fn expect_single_packets(&mut self) {
        self.single_packets = true;
    }

    /// Records a packet without payload.
    #[cold]
    pub(super) fn padding(&mut self, extended: u64) {
        self.padding.get_or_insert_default().add(extended as u32);
    }

    /// Enables time codes.
    pub(super) fn expect_codes(&mut self, wall_clock: Duration) {
        self.payloads.get_or_insert_default().codes = Some(TimeCodes::new(wall_clock));
    }

    /// Enables the search for the first picture.
    pub(super) fn expect_picture(&mut self, search: PictureSearch) {
        self.payloads.get_or_insert_default().picture = Some(search);
    }

    /// Search for the first picture, if enabled.
    pub(super) fn picture(&self) -> Option<PictureSearch> {
        self.payloads.as_deref()?.picture
    }

    /// True if something is searched for in payloads.
    #[inline]
    pub(super) fn reads_payloads(&self) -> bool {
        let payloads = self.payloads.as_deref();
        payloads.is_some_and(|payloads| {
            let picture = payloads.picture;
            payloads.codes.is_some() || picture.is_some_and(PictureSearch::is_awaited)
        })
    }

    /// True if time codes are enabled.
    #[inline]
    pub(super) fn expects_codes(&self) -> bool {
        let payloads = self.payloads.as_deref();
        payloads.is_some_and(|payloads| payloads.codes.is_some())
    }

    /// Time codes, if enabled.
    pub(super) fn codes(&mut self) -> Option<&mut TimeCodes> {
        self.payloads.as_deref_mut()?.codes.as_mut()
    }

    /// Number of complete frames, broken frames and stalls so far.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        (self.playing.frames, self.broken, self.playing.stalls)
    }

    /// Handles the first copy of a packet. `base` is the lowest extended sequence number of the
    /// stream.
    #[inline]
    pub(super) fn packet(&mut self, packet: FramePacket, base: u64, recorder: &mut Recorder) {
        let number = packet.extended as u32;
        if let Some(frame) = &mut self.newest
            && frame.timestamp == packet.timestamp
        {
            self.unsorted |= frame.add(&packet, number);
            return;
        }
        self.packet_of_other_frame(packet, number, base, recorder);
    }

    /// Index in `older` of a frame, counted from the one that began first.
    #[inline]
    fn slot(&self, index: u8) -> usize {
        let slot = usize::from(self.older_first + index);
        if slot < OLDER_MAX {
            slot
        } else {
            slot - OLDER_MAX
        }
    }

    /// Index in `older` of the open frame with this timestamp.
    #[inline]
    fn slot_of(&self, timestamp: u32) -> Option<usize> {
        let known = self.timestamps.map(|known| known == timestamp);
        if known == [false; OLDER_MAX] {
            return None;
        }
        let slots = (0..self.older_len).rev().map(|index| self.slot(index));
        slots.into_iter().find(|&slot| known[slot])
    }

    /// Handles a packet that does not belong to the newest frame: it belongs to an older one, or is
    /// the first packet of the next.
    fn packet_of_other_frame(
        &mut self,
        packet: FramePacket,
        number: u32,
        base: u64,
        recorder: &mut Recorder,
    ) {
        if let Some(slot) = self.slot_of(packet.timestamp) {
            self.unsorted |= self.older[slot].add(&packet, number);
            return;
        }
        if let Some(closed) = &self.closed
            && (closed.timestamp == packet.timestamp || !is_after(number, closed.highest))
        {
            return;
        }
        if usize::from(self.older_len) == OLDER_MAX {
            self.close_lowest(base, recorder);
        }
        let newest = self.newest.replace(Frame {
            timestamp: packet.timestamp,
            lowest: number,
            highest: number,
            packets_and_marker: 2 | u32::from(packet.marker),
            arrived: packet.at,
        });
        if let Some(frame) = newest {
            self.unsorted |= is_after(frame.lowest, number);
            let slot = self.slot(self.older_len);
            self.timestamps[slot] = frame.timestamp;
            self.older[slot] = frame;
            self.older_len += 1;
        }
    }

    /// Closes all frames, at the end of a stream or before another source begins.
    pub(super) fn finish(&mut self, base: u64, recorder: &mut Recorder) {
        self.close_all(base, recorder);
        self.closed = None;
        self.playing.restart();
    }

    /// Closes all frames, and counts the silence up to `until` as one stall, from the time at which
    /// the next frame was due to play. To be called if packets were expected and none arrived.
    pub(super) fn silent_until(&mut self, base: u64, until: Time, recorder: &mut Recorder) {
        self.close_all(base, recorder);
        self.playing.silent_until::<RtpMetrics>(until, recorder);
    }

    fn close_all(&mut self, base: u64, recorder: &mut Recorder) {
        while self.newest.is_some() {
            self.close_lowest(base, recorder);
        }
    }

    /// Removes the open frame with the lowest number. Also returns the first number of the next
    /// frame.
    #[inline]
    fn take_lowest(&mut self) -> Option<(Frame, Option<u32>)> {
        if self.unsorted {
            return self.take_lowest_unsorted();
        }
        let frame = match self.older_len {
            0 => self.newest.take()?,
            _ => {
                let frame = self.older[self.slot(0)];
                self.older_first = self.slot(1) as u8;
                self.older_len -= 1;
                frame
            }
        };
        let next = match self.older_len {
            0 => self.newest.as_ref(),
            _ => Some(&self.older[self.slot(0)]),
        };
        // If the next frame begins within this one, this one lacks some of its numbers and is
        // broken either way.
        Some((frame, next.map(|next| next.lowest)))
    }

    /// Like [`FrameAssembler::take_lowest`], for frames in any order: inspects each of them.
    #[cold]
    fn take_lowest_unsorted(&mut self) -> Option<(Frame, Option<u32>)> {
        let mut open = [self.newest?; OPEN_MAX];
        let others = usize::from(self.older_len);
        for (index, frame) in open[..others].iter_mut().enumerate() {
            *frame = self.older[self.slot(index as u8)];
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
        self.unsorted = !left.is_sorted_by(|a, b| !is_after(a.lowest, b.lowest));
        self.newest = left.last().copied();
        (self.older_first, self.older_len) = (0, others.saturating_sub(1) as u8);
        for (slot, frame) in left.iter().take(self.older_len.into()).enumerate() {
            self.timestamps[slot] = frame.timestamp;
            self.older[slot] = *frame;
        }
        Some((frame, next))
    }

    fn close_lowest(&mut self, base: u64, recorder: &mut Recorder) {
        let Some((frame, next)) = self.take_lowest() else {
            return;
        };
        self.single_packets &= frame.packet_count() == 1;
        self.uses_markers |= frame.is_marked();
        let last = self.newest.is_none();
        let contiguous =
            frame.packet_count() == frame.sequence_span() || self.lacks_only_padding(&frame);
        let begins = self.single_packets
            || match &self.closed {
                Some(closed) => match self.missing(closed.highest, frame.lowest) {
                    0 => true,
                    1 => closed.lacks_end,
                    _ => false,
                },
                None => self.missing((base as u32).wrapping_sub(1), frame.lowest) == 0,
            };
        let ends = frame.is_marked()
            || self.single_packets
            || next.is_some_and(|next| self.missing(frame.highest, next) == 0)
            || (last && !self.uses_markers);
        self.closed = Some(ClosedFrame {
            highest: frame.highest,
            timestamp: frame.timestamp,
            lacks_end: self.uses_markers && !frame.is_marked(),
        });
        if let Some(padding) = &mut self.padding {
            padding.forget_up_to(frame.highest);
        }
        if begins && contiguous && ends {
            if self.expects_codes() {
                self.settle_time_code(&frame, true, recorder);
            }
            self.playing
                .frame::<RtpMetrics>(frame.arrived, frame.timestamp, recorder);
        } else if !(begins && contiguous && last) {
            recorder.count(&mut self.broken, FRAMES_BROKEN, 1);
        } else if self.expects_codes() {
            self.settle_time_code(&frame, false, recorder);
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

    /// True if the only packets missing within a frame are packets without payload.
    #[cold]
    fn lacks_only_padding(&self, frame: &Frame) -> bool {
        let padding = self.padding.as_ref();
        let padded = padding.map_or(0, |padding| padding.within(frame.lowest, frame.highest));
        padded > 0 && frame.packet_count().saturating_add(padded) == frame.sequence_span()
    }

    /// Reports the end of a frame to the time codes: complete, or truncated.
    #[cold]
    fn settle_time_code(&mut self, frame: &Frame, whole: bool, recorder: &mut Recorder) {
        let Some(codes) = self.codes() else { return };
        match whole {
            true => codes.frame_complete::<RtpMetrics>(frame.timestamp, frame.arrived, recorder),
            false => codes.frame_truncated::<RtpMetrics>(frame.timestamp, recorder),
        }
    }
}

/// True if `a` comes after `b`. Correct across wrap-arounds.
#[inline]
fn is_after(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}
