//! Encodes a picture as a VP8 frame: content and syntax of its macroblocks (RFC 6386, 9 and 19).
//!
//! In a key frame each column of macroblocks has a flat level. All other frames are predicted from
//! the last key frame, which is the golden frame, with the bar at another position. No frame
//! depends on the frames in between, and texture never affects the prediction of other macroblocks.

use super::bool_encoder::BoolEncoder;
use super::tables::{DEFAULT, NO_UPDATE};

/// Quantizer index of every frame. At 35 a step of a macroblock's Y2 DC coefficient is 64, which
/// the inverse transforms scale by 1/8 twice to one level, so every flat level is reached exactly
/// (RFC 6386, 14.1, 14.3 and 14.4).
const QUANTIZER: u32 = 35;
/// Maximum texture coefficient. The quantizer step is 39, and no sum in an inverse transform
/// exceeds 16 bits.
const TEXTURE_MAX: u32 = 16;
/// Number of blocks of a macroblock that can have texture: 9 of luma, one of each chroma plane.
pub(super) const BLOCKS: usize = 9 + 2;
/// Level of the bar.
const BAR: i32 = 225;

/// The picture to be encoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Index within the loop. It determines the position of the bar.
    pub(super) index: u64,
    /// Index of the preceding key frame, or of the picture itself.
    pub(super) key_index: u64,
    /// First macroblock of the texture patch, and its number of blocks.
    pub(super) texture: (usize, usize),
}

/// Width and height in macroblocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    pub(super) across: usize,
    pub(super) down: usize,
}

impl Grid {
    pub(super) fn of((width, height): (u32, u32)) -> Grid {
        Grid {
            across: width.div_ceil(16) as usize,
            down: height.div_ceil(16) as usize,
        }
    }

    pub(super) fn macroblocks(self) -> usize {
        self.across * self.down
    }

    /// Level of a column in the picture with this index.
    pub(super) fn level(self, column: usize, index: u64) -> i32 {
        match index % self.across as u64 == column as u64 {
            true => BAR,
            false => (40 + 140 * column / self.across) as i32,
        }
    }
}

/// Flags of the neighbouring blocks: true if a block has coefficients. Four luma blocks, two of
/// each chroma plane, and the Y2 block.
type NeighbourFlags = [bool; 9];

/// Encodes a picture.
pub(super) fn frame(size: (u32, u32), slot: Slot) -> Vec<u8> {
    let grid = Grid::of(size);
    let total = grid.macroblocks();
    let is_key = slot.index == slot.key_index;
    let (from, textured) = slot.texture;
    // Number of texture blocks of a macroblock.
    let texture = |address: usize| {
        let before = (address + total - from) % total * BLOCKS;
        textured.saturating_sub(before).min(BLOCKS)
    };
    // Difference between the level of a macroblock and its prediction.
    let lighter = |x: usize, y: usize| {
        let level = grid.level(x, slot.index);
        match (is_key, x, y) {
            // Predicted from the golden frame, which is the key frame.
            (false, ..) => level - grid.level(x, slot.key_index),
            // Predicted from nothing, from the left, or from above.
            (true, 0, 0) => level - 128,
            (true, _, 0) => level - grid.level(x - 1, slot.index),
            (true, ..) => 0,
        }
    };
    let is_coded = |x: usize, y: usize| texture(y * grid.across + x) > 0 || lighter(x, y) != 0;
    let all = (0..total).map(|address| (address % grid.across, address / grid.across));
    let coded = all.clone().filter(|&(x, y)| is_coded(x, y)).count();
    let probability = (256 * (total - coded) / total).clamp(1, 255) as u8;
    // Converts to the probability of having coefficients.
    let has_coefficients = (256 - u32::from(probability)) as u8;

    let mut modes = header(is_key, has_coefficients);
    let mut tokens = BoolEncoder::new();
    let mut above: Vec<NeighbourFlags> = vec![NeighbourFlags::default(); grid.across];
    let mut left = NeighbourFlags::default();
    for (x, y) in all {
        if x == 0 {
            left = NeighbourFlags::default();
        }
        let coded = is_coded(x, y);
        modes.flag(has_coefficients, !coded);
        match is_key {
            true => intra_modes(&mut modes, y > 0),
            false => golden_zero_motion(&mut modes, x, y),
        }
        if coded {
            let address = y * grid.across + x;
            let mut noise = Noise::new(slot.index, address, texture(address));
            let neighbours = (&mut above[x], &mut left);
            coefficients(&mut tokens, neighbours, lighter(x, y), &mut noise);
        } else {
            above[x] = NeighbourFlags::default();
            left = NeighbourFlags::default();
        }
    }
    let modes = modes.finish();
    let tag = u32::from(!is_key) | 1 << 4 | (modes.len() as u32) << 5;
    let mut bytes = tag.to_le_bytes()[..3].to_vec();
    if is_key {
        bytes.extend([0x9d, 0x01, 0x2a]);
        bytes.extend((size.0 as u16).to_le_bytes());
        bytes.extend((size.1 as u16).to_le_bytes());
    }
    bytes.extend(modes);
    bytes.extend(tokens.finish());
    bytes
}

/// Probabilities that a motion vector probability is not updated (RFC 6386, 17.2).
const MOTION_NO_UPDATE: [[u8; 19]; 2] = [
    [
        237, 246, 253, 253, 254, 254, 254, 254, 254, 254, 254, 254, 254, 254, 250, 250, 252, 254,
        254,
    ],
    [
        231, 243, 245, 253, 254, 254, 254, 254, 254, 254, 254, 254, 254, 254, 251, 251, 254, 254,
        254,
    ],
];

/// Encodes the frame header (RFC 6386, 9.2 to 9.11 and 19.2).
fn header(is_key: bool, has_coefficients: u8) -> BoolEncoder {
    let mut w = BoolEncoder::new();
    if is_key {
        w.literal(0, 2); // color_space, clamping_type
    }
    w.literal(0, 1); // segmentation_enabled
    w.literal(0, 1 + 6 + 3); // filter_type, loop_filter_level: off; sharpness_level
    w.literal(0, 1); // loop_filter_adj_enable
    w.literal(0, 2); // log2_nbr_of_dct_partitions
    w.literal(QUANTIZER, 7); // y_ac_qi
    w.literal(0, 5); // no quantizer deltas
    if !is_key {
        w.literal(0, 2); // refresh_golden_frame, refresh_alternate_frame
        w.literal(0, 4); // copy_buffer_to_golden, copy_buffer_to_alternate
        w.literal(0, 2); // sign_bias_golden, sign_bias_alternate
    }
    w.literal(1, 1); // refresh_entropy_probs
    if !is_key {
        w.literal(1, 1); // refresh_last
    }
    for &probability in NO_UPDATE.as_flattened().as_flattened().as_flattened() {
        w.flag(probability, false); // coeff_prob_update_flag
    }
    w.literal(1, 1); // mb_no_coeff_skip
    w.literal(has_coefficients.into(), 8); // prob_skip_false
    if !is_key {
        w.literal(1, 8); // prob_intra: no macroblock is intra.
        w.literal(1, 8); // prob_last: no macroblock refers to the last frame.
        w.literal(255, 8); // prob_gf
        w.literal(0, 2); // intra_16x16_prob_update_flag, intra_chroma_prob_update_flag
        for probability in MOTION_NO_UPDATE.as_flattened() {
            w.flag(*probability, false);
        }
    }
    w
}

/// Prediction modes of a macroblock of a key frame (RFC 6386, 11.2 to 11.4): from above, or DC.
/// Chroma always uses DC, because it is constant.
fn intra_modes(w: &mut BoolEncoder, from_above: bool) {
    w.flag(145, true); // Not B_PRED.
    w.flag(156, false); // DC_PRED or V_PRED.
    w.flag(163, from_above);
    w.flag(142, false); // DC_PRED of chroma.
}

/// Modes of a macroblock that is predicted from the golden frame without motion (RFC 6386, 16.3).
fn golden_zero_motion(w: &mut BoolEncoder, x: usize, y: usize) {
    w.flag(1, true); // is_inter_mb
    w.flag(1, true); // not the last frame
    w.flag(255, false); // golden frame
    // The probability of zero motion depends on the neighbours, all of which have zero motion:
    // above and left count twice, above left once. Neighbours outside the frame do not count.
    let count = 2 * usize::from(y > 0) + 2 * usize::from(x > 0) + usize::from(x > 0 && y > 0);
    w.flag([7, 14, 135, 60, 159, 234][count], false); // mv_zero
}

/// Generator of texture coefficients.
struct Noise {
    state: u64,
    /// Number of blocks left to fill.
    blocks: usize,
}

impl Noise {
    fn new(index: u64, address: usize, blocks: usize) -> Noise {
        Noise {
            state: (index << 32 | address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            blocks,
        }
    }

    /// Returns a non-zero coefficient.
    fn next(&mut self) -> i32 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let value = (self.state >> 33) as u32 % TEXTURE_MAX + 1;
        match self.state >> 40 & 1 {
            0 => value as i32,
            _ => -(value as i32),
        }
    }

    fn fill(&mut self, levels: &mut [i32]) {
        if self.blocks > 0 {
            self.blocks -= 1;
            levels.fill_with(|| self.next());
        }
    }
}

/// Encodes the coefficients of a macroblock (RFC 6386, 13). The bottom and the rightmost blocks
/// have no texture, because neighbours are predicted from their flat level.
fn coefficients(
    w: &mut BoolEncoder,
    (above, left): (&mut NeighbourFlags, &mut NeighbourFlags),
    lighter: i32,
    noise: &mut Noise,
) {
    let mut write = |kind, first: usize, column: usize, row: usize, levels: &[i32; 16]| {
        let context = usize::from(above[column]) + usize::from(left[row]);
        let any = block(w, kind, context, first, levels);
        above[column] = any;
        left[row] = any;
    };
    let mut levels = [0; 16];
    levels[0] = lighter;
    write(1, 0, 8, 8, &levels);
    for (row, column) in (0..16).map(|block| (block / 4, block % 4)) {
        let mut levels = [0; 16];
        if row < 3 && column < 3 {
            noise.fill(&mut levels[1..]);
        }
        write(0, 1, column, row, &levels);
    }
    for plane in [4, 6] {
        for (row, column) in (0..4).map(|block| (block / 2, block % 2)) {
            let mut levels = [0; 16];
            if row + column == 0 {
                noise.fill(&mut levels);
            }
            write(2, 0, plane + column, plane + row, &levels);
        }
    }
}

/// Band of a coefficient, by position (RFC 6386, 13.3).
const BANDS: [usize; 16] = [0, 1, 2, 3, 6, 4, 5, 6, 6, 6, 6, 6, 6, 6, 6, 7];

/// Token categories: smallest value, and probabilities of the extra bits (RFC 6386, 13.2).
const CATEGORIES: [(u32, &[u8]); 6] = [
    (5, &[159]),
    (7, &[165, 145]),
    (11, &[173, 148, 140]),
    (19, &[176, 155, 140, 135]),
    (35, &[180, 157, 141, 134, 130]),
    (67, &[254, 254, 243, 230, 196, 177, 153, 140, 133, 130, 129]),
];

/// Encodes the coefficients of a block from `first` on. Returns whether there are any.
fn block(
    w: &mut BoolEncoder,
    kind: usize,
    mut context: usize,
    first: usize,
    levels: &[i32; 16],
) -> bool {
    let end = levels
        .iter()
        .rposition(|level| *level != 0)
        .map_or(first, |last| last + 1);
    let mut after_zero = false;
    for (index, &level) in levels.iter().enumerate().skip(first) {
        let p = &DEFAULT[kind][BANDS[index]][context];
        if !after_zero {
            w.flag(p[0], index < end);
            if index >= end {
                break;
            }
        }
        let size = level.unsigned_abs();
        w.flag(p[1], size > 0);
        after_zero = size == 0;
        context = size.min(2) as usize;
        if size == 0 {
            continue;
        }
        w.flag(p[2], size > 1);
        if size > 1 {
            w.flag(p[3], size > 4);
            if size > 4 {
                category(w, p, size);
            } else {
                w.flag(p[4], size > 2);
                if size > 2 {
                    w.flag(p[5], size > 3);
                }
            }
        }
        w.flag(128, level < 0);
    }
    end > first
}

fn category(w: &mut BoolEncoder, p: &[u8; 11], size: u32) {
    let number = CATEGORIES.partition_point(|(from, _)| *from <= size) - 1;
    let (from, bits) = CATEGORIES[number];
    w.flag(p[6], number >= 2);
    if number < 2 {
        w.flag(p[7], number == 1);
    } else {
        w.flag(p[8], number >= 4);
        w.flag(p[9 + usize::from(number >= 4)], number % 2 == 1);
    }
    for (shift, probability) in (0..bits.len()).rev().zip(bits) {
        w.flag(*probability, (size - from) >> shift & 1 != 0);
    }
}
