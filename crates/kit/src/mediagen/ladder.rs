//! One video at several bit rates, and an encoder that selects the best-fitting version of each
//! picture.
//!
//! All rungs of a ladder have the same pictures with more or less texture. A picture of any rung
//! can follow any preceding picture, so an encoder meets every bit rate between the highest and the
//! lowest exactly, picture by picture, from media that all encoders share.

use std::sync::Arc;
use std::time::Duration;

use crate::mediagen::clip::{Clip, ClipPacket, with_codes, without_codes};
use crate::mediagen::h264::H264Stream;
use crate::mediagen::video::{SettingsError, VideoSettings};
use crate::mediagen::vp8::Vp8Stream;

/// Ratio of a rung's bit rate to that of the rung above: three quarters.
const STEP: (u64, u64) = (3, 4);
/// Maximum number of rungs: the lowest has a 32nd of the highest bit rate.
const RUNGS_MAX: usize = 13;
/// Minimum distance between key frames, unless the GOP itself is shorter.
const KEY_FRAME_INTERVAL_MIN: Duration = Duration::from_millis(250);
/// Fixed-point scale: fractions of a byte are counted in this many parts.
const PARTS: i64 = 1 << 16;

/// Position of a picture in a rung.
#[derive(Clone, Copy, Debug)]
struct PictureRange {
    /// Index of its first packet, and number of packets.
    first: u32,
    count: u32,
    /// Bytes of payload.
    bytes: u32,
}

#[derive(Debug)]
struct Rung {
    clip: Arc<Clip>,
    pictures: Vec<PictureRange>,
    /// Mean bytes per picture, in parts.
    mean: i64,
}

impl Rung {
    fn new(clip: Clip) -> Rung {
        let mut pictures = Vec::with_capacity(clip.frames as usize);
        for (at, packet) in (0..).zip(&clip.packets) {
            let bytes = packet.payload.len() as u32;
            match (packet.part.0, pictures.last_mut()) {
                (1.., Some(PictureRange { bytes: before, .. })) => *before += bytes,
                _ => pictures.push(PictureRange {
                    first: at,
                    count: packet.part.1,
                    bytes,
                }),
            }
        }
        let mean = clip.loop_bytes() as i64 * PARTS / i64::from(clip.frames);
        Rung {
            clip: Arc::new(clip),
            pictures,
            mean,
        }
    }
}

/// The same video at several bit rates, generated once and shared by all encoders.
#[derive(Debug)]
pub struct Ladder {
    /// Sorted from the highest to the lowest bit rate.
    rungs: Vec<Rung>,
    gop: u32,
    /// Minimum distance between requested key frames, in pictures.
    key_distance_min: u32,
}

impl Ladder {
    /// Generates H.264 with room for a time code in each picture: at the bit rate of the settings,
    /// and at lower bit rates down to pictures without texture.
    pub fn h264(settings: &VideoSettings) -> Result<Ladder, SettingsError> {
        let top = H264Stream::new(&without_codes(settings));
        let top = top.map_err(|error| with_codes(error, settings))?;
        let clip = Clip::of_stream(&top, settings, true);
        Ok(Ladder::below(clip, settings, |lower| {
            let stream = top.at_bit_rate(&without_codes(lower))?;
            Ok(Clip::of_stream(&stream, lower, true))
        }))
    }

    /// Generates VP8 with a time code in each frame, at the bit rate of the settings and at lower
    /// bit rates.
    pub fn vp8(settings: &VideoSettings) -> Result<Ladder, SettingsError> {
        let top = Vp8Stream::new(settings)?;
        let clip = Clip::of_vp8(&top, settings);
        Ok(Ladder::below(clip, settings, |lower| {
            Ok(Clip::of_vp8(&top.at_bit_rate(lower)?, lower))
        }))
    }

    /// Combines a clip with clips of the same pictures at lower bit rates, as low as `lower` can
    /// make them.
    fn below(
        top: Clip,
        settings: &VideoSettings,
        lower: impl Fn(&VideoSettings) -> Result<Clip, SettingsError>,
    ) -> Ladder {
        let distance = top.frame_rate.frames_within(KEY_FRAME_INTERVAL_MIN);
        let mut rungs = vec![Rung::new(top)];
        let mut below = *settings;
        while rungs.len() < RUNGS_MAX {
            below.bits_per_second = below.bits_per_second * STEP.0 / STEP.1;
            let Ok(clip) = lower(&below) else {
                break;
            };
            rungs.push(Rung::new(clip));
        }
        Ladder {
            rungs,
            gop: settings.gop,
            // Consecutive IDR pictures need different IDs (H.264, 7.4.3), which a loop of one GOP
            // does not have.
            key_distance_min: u32::try_from(distance).unwrap_or(u32::MAX).max(2),
        }
    }

    /// The clip with the highest bit rate.
    pub fn highest(&self) -> &Arc<Clip> {
        &self.rungs[0].clip
    }

    /// Lowest bit rate of an encoder, in bit/s.
    pub fn lowest_bitrate(&self) -> u64 {
        self.rungs[self.rungs.len() - 1].clip.bits_per_second()
    }
}

/// A picture of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    /// True if this and all following pictures can be decoded without earlier ones.
    pub is_key: bool,
    rung: usize,
    first: u32,
    count: u32,
}

impl Picture {
    /// Number of packets.
    pub fn packets(&self) -> u32 {
        self.count
    }
}

/// Simulated encoder: returns picture after picture, starts a GOP early when a key frame is
/// requested, and keeps a bit rate that may change.
#[derive(Debug)]
pub struct Encoder {
    ladder: Arc<Ladder>,
    bitrate: u64,
    /// Lowest rung that reaches the bit rate, and how far the bit rate lies on the way from there
    /// to the next lower rung, in parts.
    rung: usize,
    rung_fraction: i64,
    /// Position of the next picture in the loop.
    next: u32,
    /// Number of pictures since the last key frame, including it.
    since_key: u32,
    key_requested: bool,
    /// Bytes sent beyond the bit rate, in parts.
    debt: i64,
    /// Bytes by which the current GOP is above its mean so far, because GOPs begin with a larger
    /// picture, in parts.
    gop_excess: i64,
    early: u64,
}

impl Encoder {
    /// Creates an encoder at the highest bit rate.
    pub fn new(ladder: Arc<Ladder>) -> Encoder {
        Encoder {
            bitrate: ladder.highest().bits_per_second(),
            ladder,
            rung: 0,
            rung_fraction: 0,
            next: 0,
            since_key: 0,
            key_requested: false,
            debt: 0,
            gop_excess: 0,
            early: 0,
        }
    }

    /// Requests a key frame. The next picture is one, or the first picture that comes at least 250
    /// ms after the last key frame.
    pub fn key_frame(&mut self) {
        self.key_requested = true;
    }

    /// Sets the bit rate from the next picture on, limited to the range from
    /// [`Ladder::lowest_bitrate`] to the bit rate of the settings. Returns the actual bit rate in
    /// bit/s.
    pub fn set_bitrate(&mut self, bits_per_second: u64) -> u64 {
        let rungs = &self.ladder.rungs;
        let rate = |rung: usize| rungs[rung].clip.bits_per_second();
        let last = rungs.len() - 1;
        self.bitrate = bits_per_second.clamp(rate(last), rate(0));
        let reaches = |rung: &Rung| rung.clip.bits_per_second() >= self.bitrate;
        self.rung = rungs.partition_point(reaches).saturating_sub(1);
        self.rung_fraction = match self.rung < last {
            true => {
                let (above, under) = (rate(self.rung), rate(self.rung + 1));
                let share = u128::from(above - self.bitrate) * PARTS as u128;
                (share / u128::from((above - under).max(1))) as i64
            }
            false => 0,
        };
        self.bitrate
    }

    /// Current bit rate, in bit/s.
    pub fn bitrate(&self) -> u64 {
        self.bitrate
    }

    /// Number of key frames that came before their turn.
    pub fn early_key_frames(&self) -> u64 {
        self.early
    }

    /// Interpolates a value of the two rungs around the bit rate, in parts.
    fn due(&self, of: impl Fn(&Rung) -> i64) -> i64 {
        let above = of(&self.ladder.rungs[self.rung]);
        match self.ladder.rungs.get(self.rung + 1) {
            Some(under) => above - (above - of(under)) * self.rung_fraction / PARTS,
            None => above,
        }
    }

    /// Returns the next picture.
    pub fn next_picture(&mut self) -> Picture {
        let ladder = &*self.ladder;
        let gop = ladder.gop;
        let frames = ladder.rungs[0].clip.frames;
        let mut is_key = self.next.is_multiple_of(gop);
        if self.key_requested && !is_key && self.since_key >= ladder.key_distance_min {
            self.next = self.next.next_multiple_of(gop) % frames;
            self.early += 1;
            is_key = true;
        }
        if is_key {
            self.key_requested = false;
            self.since_key = 0;
            // Charges the excess of an interrupted GOP to this one.
            self.debt += std::mem::take(&mut self.gop_excess);
        }
        self.since_key = self.since_key.saturating_add(1);
        let index = self.next as usize;
        let bytes = |rung: &Rung| i64::from(rung.pictures[index].bytes) * PARTS;
        let (due, mean) = (self.due(bytes), self.due(|rung| rung.mean));
        // The debt is bounded because it may be impossible to pay: at the lowest rung, or if fewer
        // bytes were sent than allowed.
        let debt_max = mean.saturating_mul(gop.into());
        self.debt = self.debt.clamp(-2 * mean, debt_max);
        let wanted = due - self.debt;
        let candidates = self.rung..ladder.rungs.len();
        let nearest = candidates.min_by_key(|&rung| bytes(&ladder.rungs[rung]).abs_diff(wanted));
        let rung = nearest.unwrap_or(self.rung);
        let PictureRange { first, count, .. } = ladder.rungs[rung].pictures[index];
        self.debt += bytes(&ladder.rungs[rung]) - due;
        self.gop_excess += due - mean;
        self.next = (self.next + 1) % frames;
        Picture {
            is_key,
            rung,
            first,
            count,
        }
    }

    /// Returns a packet of a picture, by index from 0.
    pub fn packet(&self, picture: &Picture, index: u32) -> &ClipPacket {
        &self.ladder.rungs[picture.rung].clip.packets[(picture.first + index) as usize]
    }

    /// The clip with the highest bit rate.
    pub fn clip(&self) -> &Arc<Clip> {
        self.ladder.highest()
    }
}

#[cfg(test)]
mod tests;
