//! One loop of VP8 with a given bit rate.

use bytes::Bytes;

use super::picture::{BLOCKS, Grid, Slot, frame};
use crate::mediagen::time_code::{TRAILER_BYTES, TimeCode};
use crate::mediagen::video::{Loop, SettingsError, VideoSettings};

/// Ratio of a key frame's size to that of other frames, if the bit rate allows the choice. Real
/// encoders at a constant bit rate show bursts of about that size.
const KEY_WEIGHT: u64 = 3;
/// Upper bound of the average size of a texture block, in bytes.
const TEXTURE_BYTES: usize = 30;
/// Number of bar positions that are tried to determine its cost.
const BAR_POSITIONS: u64 = 8;

/// One loop of video: GOPs that can be repeated endlessly. Each frame ends with a time code, which
/// the sender fills in and which counts towards the bit rate.
#[derive(Clone, Debug)]
pub struct Vp8Stream {
    /// Frames, in order.
    pub frames: Vec<Vec<u8>>,
    /// Width and height in samples.
    pub size: (u32, u32),
}

impl Vp8Stream {
    /// Generates one loop.
    pub fn new(settings: &VideoSettings) -> Result<Vp8Stream, SettingsError> {
        let whole = Loop::of(settings, false)?;
        let size = choose_size(whole, settings)?;
        Ok(encode(whole, settings, size))
    }

    /// Checks whether a loop can be generated. Takes milliseconds: for each size that is tried,
    /// some frames are generated without texture.
    pub fn check(settings: &VideoSettings) -> Result<(), SettingsError> {
        choose_size(Loop::of(settings, false)?, settings).map(|_| ())
    }

    /// Generates a loop of the same size with another bit rate. A frame of either loop may follow
    /// the preceding frame of the other; its texture then comes from another key frame.
    pub fn at_bit_rate(&self, settings: &VideoSettings) -> Result<Vp8Stream, SettingsError> {
        let whole = Loop::of(settings, false)?;
        whole.has_room_for(
            MinimumBytes::of(settings, self.size).per_gop(settings),
            settings,
        )?;
        Ok(encode(whole, settings, self.size))
    }
}

fn choose_size(whole: Loop, settings: &VideoSettings) -> Result<(u32, u32), SettingsError> {
    whole.choose_size(settings, KEY_WEIGHT, |size| {
        MinimumBytes::of(settings, size).per_gop(settings)
    })
}

/// Maximum payload bytes of frames without texture.
#[derive(Clone, Copy, Debug)]
struct MinimumBytes {
    key: u64,
    inter: u64,
}

impl MinimumBytes {
    fn of(settings: &VideoSettings, size: (u32, u32)) -> MinimumBytes {
        let bytes = |key_index, index| {
            let slot = Slot {
                index,
                key_index,
                texture: (0, 0),
            };
            let length = frame(size, slot).len() + TRAILER_BYTES;
            payload_bytes(length, settings.mtu) as u64
        };
        let columns = Grid::of(size).across as u64;
        // The cost depends slightly on the position of the bar. The smallest pictures, for which it
        // matters, have fewer positions.
        let positions = || 0..columns.min(BAR_POSITIONS);
        MinimumBytes {
            key: positions()
                .map(|position| bytes(position, position))
                .max()
                .unwrap_or(0),
            inter: positions()
                .map(|position| bytes(0, position + 1))
                .max()
                .unwrap_or(0),
        }
    }

    fn per_gop(self, settings: &VideoSettings) -> u64 {
        self.key + self.inter * (u64::from(settings.gop) - 1)
    }
}

fn encode(whole: Loop, settings: &VideoSettings, size: (u32, u32)) -> Vp8Stream {
    let least = MinimumBytes::of(settings, size);
    let gop = u64::from(settings.gop);
    let weights_of_all = u128::from((gop - 1 + KEY_WEIGHT) * whole.gops);
    let (mut spent, mut weights, mut from) = (0, 0, 0);
    let mut frames = Vec::new();
    for index in 0..whole.gops * gop {
        let in_gop = index % gop;
        weights += if in_gop == 0 { KEY_WEIGHT } else { 1 };
        // Bytes that the loop may have spent after this frame; the remainder is carried over. Space
        // is reserved for the following frames.
        let due = u128::from(whole.bytes) * u128::from(weights) / weights_of_all;
        let gops_behind = whole.gops - 1 - index / gop;
        let behind = least.inter * (gop - 1 - in_gop) + least.per_gop(settings) * gops_behind;
        let due = (due as u64).min(whole.bytes.saturating_sub(behind));
        let budget = due.saturating_sub(spent) as usize;
        let slot = Slot {
            index,
            key_index: index - in_gop,
            texture: (from, 0),
        };
        let length = longest_within(budget, settings.mtu);
        let (mut bytes, texture) = fill(size, slot, length.saturating_sub(TRAILER_BYTES));
        let macroblocks = Grid::of(size).macroblocks();
        from = (from + texture.div_ceil(BLOCKS)) % macroblocks;
        let length = length.max(bytes.len() + TRAILER_BYTES);
        bytes.resize(length - TRAILER_BYTES, 0);
        bytes.extend(TimeCode::default().to_trailer());
        spent += payload_bytes(length, settings.mtu) as u64;
        frames.push(bytes);
    }
    Vp8Stream { frames, size }
}

/// Returns a frame with as many texture blocks as fit into `room` bytes, and the number of blocks.
/// A frame without texture is returned even if it does not fit.
fn fill(size: (u32, u32), slot: Slot, room: usize) -> (Vec<u8>, usize) {
    let most = Grid::of(size).macroblocks() * BLOCKS;
    let with = |texture| Slot {
        texture: (slot.texture.0, texture),
        ..slot
    };
    let mut best = (frame(size, slot), 0);
    let further = |best: &(Vec<u8>, usize)| {
        let left = room.saturating_sub(best.0.len()) / TEXTURE_BYTES;
        best.1 + left.max(1)
    };
    // The size of a block varies slightly, so the number is found by iteration.
    let mut least_over = most + 1;
    let mut texture = (further(&best) - 1).min(most);
    while texture > best.1 && texture < least_over {
        let tried = frame(size, with(texture));
        match tried.len() <= room {
            true => best = (tried, texture),
            false => least_over = texture,
        }
        texture = further(&best).min(least_over - 1);
    }
    best
}

/// Bytes of RTP payload of a frame: each packet has a descriptor of one byte (RFC 7741, 4.2).
fn payload_bytes(length: usize, mtu: usize) -> usize {
    length + length.div_ceil(mtu - 1)
}

/// Returns the length of the longest frame that takes at most `payload` bytes of RTP payload.
fn longest_within(payload: usize, mtu: usize) -> usize {
    payload - payload.div_ceil(mtu)
}

/// Splits a frame into RTP payloads (RFC 7741, 4). The last payload contains the whole time code.
pub(crate) fn cut(frame: &[u8], mtu: usize) -> Vec<Bytes> {
    let mut payloads = Vec::new();
    let room = mtu - 1;
    let mut rest = frame;
    // S: start of the partition.
    let mut descriptor = 0x10;
    while !rest.is_empty() {
        let left = rest.len().saturating_sub(room);
        let length = match left {
            0 => rest.len(),
            1..TRAILER_BYTES => rest.len() - TRAILER_BYTES,
            _ => room,
        };
        let (part, behind) = rest.split_at(length);
        payloads.push(Bytes::from([&[descriptor], part].concat()));
        (rest, descriptor) = (behind, 0x00);
    }
    payloads
}

#[cfg(test)]
mod tests;
