//! One video at several bit rates, and an encoder that takes each picture from the one that fits.
//!
//! All rungs of a ladder have the same pictures, with more or less texture. A picture of any rung
//! may follow on any picture before it, so an encoder meets every bit rate between the highest and
//! the lowest exactly, picture by picture, out of media that all encoders share.

use std::sync::Arc;
use std::time::Duration;

use crate::clip::{Clip, ClipPacket, with_codes, without_codes};
use crate::h264::H264Stream;
use crate::video::{SettingsError, VideoSettings};
use crate::vp8::Vp8Stream;

/// Each rung has three quarters of the bit rate of the one above it.
const STEP: (u64, u64) = (3, 4);
/// The most rungs: the lowest has a 32nd of the bit rate of the highest.
const RUNGS_MAX: usize = 13;
/// How far key frames are apart at least, unless the GOP itself is shorter.
const KEY_FRAMES_APART: Duration = Duration::from_millis(250);
/// Shares of bytes are counted in so many parts of a byte.
const PARTS: i64 = 1 << 16;

/// Where a picture of a rung is.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The first of its packets, and how many they are.
    first: u32,
    count: u32,
    /// Bytes of payload.
    bytes: u32,
}

#[derive(Debug)]
struct Rung {
    clip: Arc<Clip>,
    pictures: Vec<Place>,
    /// Bytes of a picture in the mean, in parts.
    mean: i64,
}

impl Rung {
    fn new(clip: Clip) -> Rung {
        let mut pictures = Vec::with_capacity(clip.frames as usize);
        for (at, packet) in (0..).zip(&clip.packets) {
            let bytes = packet.payload.len() as u32;
            match (packet.part.0, pictures.last_mut()) {
                (1.., Some(Place { bytes: before, .. })) => *before += bytes,
                _ => pictures.push(Place {
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

/// The same video at several bit rates, made once and shared by all encoders.
#[derive(Debug)]
pub struct Ladder {
    /// The highest bit rate first.
    rungs: Vec<Rung>,
    gop: u32,
    /// How many pictures apart key frames are at least that are asked for.
    apart: u32,
}

impl Ladder {
    /// H.264 with room for a time code in each picture: at the bit rate of the settings, and at
    /// lower ones down to where the pictures have no more texture.
    pub fn h264(settings: &VideoSettings) -> Result<Ladder, SettingsError> {
        let top = H264Stream::new(&without_codes(settings));
        let top = top.map_err(|error| with_codes(error, settings))?;
        let mut clips = vec![Clip::of_stream(&top, settings, true)];
        let mut lower = *settings;
        while clips.len() < RUNGS_MAX {
            lower.bits_per_second = lower.bits_per_second * STEP.0 / STEP.1;
            let Ok(stream) = top.alike(&without_codes(&lower)) else {
                break;
            };
            clips.push(Clip::of_stream(&stream, &lower, true));
        }
        Ok(Ladder::of_clips(clips, settings.gop))
    }

    /// The same of VP8.
    pub fn vp8(settings: &VideoSettings) -> Result<Ladder, SettingsError> {
        let top = Vp8Stream::new(settings)?;
        let mut clips = vec![Clip::of_vp8(&top, settings)];
        let mut lower = *settings;
        while clips.len() < RUNGS_MAX {
            lower.bits_per_second = lower.bits_per_second * STEP.0 / STEP.1;
            let Ok(stream) = top.alike(&lower) else {
                break;
            };
            clips.push(Clip::of_vp8(&stream, &lower));
        }
        Ok(Ladder::of_clips(clips, settings.gop))
    }

    /// Clips of the same pictures, the highest bit rate first, of which each `gop`-th is a key
    /// frame.
    fn of_clips(clips: Vec<Clip>, gop: u32) -> Ladder {
        let apart = clips[0].frame_rate.frames_within(KEY_FRAMES_APART);
        Ladder {
            rungs: clips.into_iter().map(Rung::new).collect(),
            gop,
            // Two IDR pictures in a row need different numbers (H.264, 7.4.3), which a loop of one
            // GOP does not have.
            apart: u32::try_from(apart).unwrap_or(u32::MAX).max(2),
        }
    }

    /// The video at its highest bit rate.
    pub fn highest(&self) -> &Arc<Clip> {
        &self.rungs[0].clip
    }

    /// The lowest bit rate that an encoder goes down to, in bit/s.
    pub fn lowest_bitrate(&self) -> u64 {
        self.rungs[self.rungs.len() - 1].clip.bits_per_second()
    }
}

/// A picture that an encoder gives out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Whether all after it can be decoded with nothing before it.
    pub is_key: bool,
    rung: usize,
    first: u32,
    count: u32,
}

impl Picture {
    /// How many packets it has.
    pub fn packets(&self) -> u32 {
        self.count
    }
}

/// Encodes for one who sends: gives picture after picture, begins a GOP early when it is asked for
/// a key frame, and keeps to a bit rate that may change.
#[derive(Debug)]
pub struct Encoder {
    ladder: Arc<Ladder>,
    bitrate: u64,
    /// The lowest rung that reaches the bit rate, and how much of the way down to the next it is
    /// below that, in parts.
    rung: usize,
    below: i64,
    /// The next picture's place in the loop.
    next: u32,
    /// Pictures since the last key frame, itself included.
    since_key: u32,
    wanted: bool,
    /// Bytes that went beyond what a GOP is due, in parts.
    debt: i64,
    /// How far ahead of its mean the GOP is, as GOPs are at their beginning, in parts.
    ahead: i64,
    early: u64,
}

impl Encoder {
    /// An encoder at the highest bit rate.
    pub fn new(ladder: Arc<Ladder>) -> Encoder {
        Encoder {
            bitrate: ladder.highest().bits_per_second(),
            ladder,
            rung: 0,
            below: 0,
            next: 0,
            since_key: 0,
            wanted: false,
            debt: 0,
            ahead: 0,
            early: 0,
        }
    }

    /// Asks for a key frame: the next picture is one, unless one came less than 250 ms before; then
    /// the first after that.
    pub fn key_frame(&mut self) {
        self.wanted = true;
    }

    /// Keeps to that bit rate from the next picture on, or to the nearest there is: not above that
    /// of the settings, not below [`Ladder::lowest_bitrate`]. Returns it, in bit/s.
    pub fn set_bitrate(&mut self, bits_per_second: u64) -> u64 {
        let rungs = &self.ladder.rungs;
        let rate = |rung: usize| rungs[rung].clip.bits_per_second();
        let last = rungs.len() - 1;
        self.bitrate = bits_per_second.clamp(rate(last), rate(0));
        let reaches = |rung: &Rung| rung.clip.bits_per_second() >= self.bitrate;
        self.rung = rungs.partition_point(reaches).saturating_sub(1);
        self.below = match self.rung < last {
            true => {
                let (above, under) = (rate(self.rung), rate(self.rung + 1));
                let share = u128::from(above - self.bitrate) * PARTS as u128;
                (share / u128::from((above - under).max(1))) as i64
            }
            false => 0,
        };
        self.bitrate
    }

    /// The bit rate that it keeps to, in bit/s.
    pub fn bitrate(&self) -> u64 {
        self.bitrate
    }

    /// Key frames so far that came before their turn.
    pub fn early_key_frames(&self) -> u64 {
        self.early
    }

    /// What a picture takes at the bit rate, in parts: what `of` says of the rungs around it.
    fn due(&self, of: impl Fn(&Rung) -> i64) -> i64 {
        let above = of(&self.ladder.rungs[self.rung]);
        match self.ladder.rungs.get(self.rung + 1) {
            Some(under) => above - (above - of(under)) * self.below / PARTS,
            None => above,
        }
    }

    /// The next picture.
    pub fn next_picture(&mut self) -> Picture {
        let ladder = &*self.ladder;
        let gop = ladder.gop;
        let frames = ladder.rungs[0].clip.frames;
        let mut is_key = self.next.is_multiple_of(gop);
        if self.wanted && !is_key && self.since_key >= ladder.apart {
            self.next = self.next.next_multiple_of(gop) % frames;
            self.early += 1;
            is_key = true;
        }
        if is_key {
            self.wanted = false;
            self.since_key = 0;
            // What the GOP before was ahead is made good by this one.
            self.debt += std::mem::take(&mut self.ahead);
        }
        self.since_key = self.since_key.saturating_add(1);
        let place = self.next as usize;
        let bytes = |rung: &Rung| i64::from(rung.pictures[place].bytes) * PARTS;
        let (due, mean) = (self.due(bytes), self.due(|rung| rung.mean));
        // The debt is bounded where it cannot be paid: at the lowest rung, and where less was sent
        // than might have been.
        let debt_max = mean.saturating_mul(gop.into());
        self.debt = self.debt.clamp(-2 * mean, debt_max);
        let wanted = due - self.debt;
        let candidates = self.rung..ladder.rungs.len();
        let nearest = candidates.min_by_key(|&rung| bytes(&ladder.rungs[rung]).abs_diff(wanted));
        let rung = nearest.unwrap_or(self.rung);
        let Place { first, count, .. } = ladder.rungs[rung].pictures[place];
        self.debt += bytes(&ladder.rungs[rung]) - due;
        self.ahead += due - mean;
        self.next = (self.next + 1) % frames;
        Picture {
            is_key,
            rung,
            first,
            count,
        }
    }

    /// One of the packets of a picture, which it counts from 0.
    pub fn packet(&self, picture: &Picture, index: u32) -> &ClipPacket {
        &self.ladder.rungs[picture.rung].clip.packets[(picture.first + index) as usize]
    }

    /// The video.
    pub fn clip(&self) -> &Arc<Clip> {
        self.ladder.highest()
    }
}

#[cfg(test)]
mod tests;
