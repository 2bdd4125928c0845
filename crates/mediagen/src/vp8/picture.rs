//! One picture as a frame of VP8: what its macroblocks show, and how they are written (RFC 6386, 9
//! and 19).
//!
//! A key frame has a flat level for each column of macroblocks. Every other frame is the last key
//! frame, which is the golden frame, with the bar elsewhere: so none depends on a frame between
//! them. Texture never touches what another macroblock is predicted from.

use super::bool_encoder::BoolEncoder;
use super::tables::{DEFAULT, STAYS};

/// Index of the quantizer of every frame. With 35 one step of the first coefficient of a macroblock
/// is 64, an eighth of an eighth of which is one level: so every flat level is reached exactly
/// (RFC 6386, 14.1, 14.3 and 14.4).
const QUANTIZER: u32 = 35;
/// The largest coefficient of texture. The step is 39: no sum of an inverse transform leaves 16
/// bits.
const TEXTURE_MAX: u32 = 16;
/// How many blocks of a macroblock can have texture: 9 of luma, one of each chroma.
pub(super) const BLOCKS: usize = 9 + 2;
/// The level of the bar.
const BAR: i32 = 225;

/// Which picture is to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Its number within the whole loop: where the bar stands.
    pub(super) index: u64,
    /// The number of the key frame before it, or its own.
    pub(super) key_index: u64,
    /// Where the patch of texture begins, as a macroblock address, and how many blocks it has.
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

    /// The level of a column in the picture of that number.
    pub(super) fn level(self, column: usize, index: u64) -> i32 {
        match index % self.across as u64 == column as u64 {
            true => BAR,
            false => (40 + 140 * column / self.across) as i32,
        }
    }
}

/// What is known of the blocks beside the one that is written: whether each has coefficients. Four
/// of luma, two of each chroma, and that of the first coefficients.
type Beside = [bool; 9];

/// Writes one picture.
pub(super) fn frame(size: (u32, u32), slot: Slot) -> Vec<u8> {
    let grid = Grid::of(size);
    let total = grid.macroblocks();
    let is_key = slot.index == slot.key_index;
    let (from, textured) = slot.texture;
    // How many blocks of a macroblock have texture.
    let texture = |address: usize| {
        let before = (address + total - from) % total * BLOCKS;
        textured.saturating_sub(before).min(BLOCKS)
    };
    // How much lighter a macroblock is than what it is predicted from.
    let lighter = |x: usize, y: usize| {
        let level = grid.level(x, slot.index);
        match (is_key, x, y) {
            // By the golden frame, which is the key frame.
            (false, ..) => level - grid.level(x, slot.key_index),
            // Of nothing, from the left, and from above.
            (true, 0, 0) => level - 128,
            (true, _, 0) => level - grid.level(x - 1, slot.index),
            (true, ..) => 0,
        }
    };
    let is_coded = |x: usize, y: usize| texture(y * grid.across + x) > 0 || lighter(x, y) != 0;
    let all = (0..total).map(|address| (address % grid.across, address / grid.across));
    let coded = all.clone().filter(|&(x, y)| is_coded(x, y)).count();
    let probability = (256 * (total - coded) / total).clamp(1, 255) as u8;
    // The probability is that of having coefficients.
    let has_coefficients = (256 - u32::from(probability)) as u8;

    let mut modes = header(is_key, has_coefficients);
    let mut tokens = BoolEncoder::new();
    let mut above: Vec<Beside> = vec![Beside::default(); grid.across];
    let mut left = Beside::default();
    for (x, y) in all {
        if x == 0 {
            left = Beside::default();
        }
        let coded = is_coded(x, y);
        modes.flag(has_coefficients, !coded);
        match is_key {
            true => intra_modes(&mut modes, y > 0),
            false => golden_as_it_was(&mut modes, x, y),
        }
        if coded {
            let address = y * grid.across + x;
            let mut noise = Noise::new(slot.index, address, texture(address));
            let beside = (&mut above[x], &mut left);
            coefficients(&mut tokens, beside, lighter(x, y), &mut noise);
        } else {
            above[x] = Beside::default();
            left = Beside::default();
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

/// How probable it is that the parts of a motion vector's probabilities stay (RFC 6386, 17.2).
const MOTION_STAYS: [[u8; 19]; 2] = [
    [
        237, 246, 253, 253, 254, 254, 254, 254, 254, 254, 254, 254, 254, 254, 250, 250, 252, 254,
        254,
    ],
    [
        231, 243, 245, 253, 254, 254, 254, 254, 254, 254, 254, 254, 254, 254, 251, 251, 254, 254,
        254,
    ],
];

/// The header of a frame (RFC 6386, 9.2 to 9.11 and 19.2).
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
    w.literal(0, 5); // No other quantizer differs.
    if !is_key {
        w.literal(0, 2); // refresh_golden_frame, refresh_alternate_frame
        w.literal(0, 4); // copy_buffer_to_golden, copy_buffer_to_alternate
        w.literal(0, 2); // sign_bias_golden, sign_bias_alternate
    }
    w.literal(1, 1); // refresh_entropy_probs
    if !is_key {
        w.literal(1, 1); // refresh_last
    }
    for &stays in STAYS.as_flattened().as_flattened().as_flattened() {
        w.flag(stays, false); // coeff_prob_update_flag
    }
    w.literal(1, 1); // mb_no_coeff_skip
    w.literal(has_coefficients.into(), 8); // prob_skip_false
    if !is_key {
        w.literal(1, 8); // prob_intra: nothing is.
        w.literal(1, 8); // prob_last: nothing is predicted from it.
        w.literal(255, 8); // prob_gf
        w.literal(0, 2); // intra_16x16_prob_update_flag, intra_chroma_prob_update_flag
        for stays in MOTION_STAYS.as_flattened() {
            w.flag(*stays, false);
        }
    }
    w
}

/// How a macroblock of a key frame is predicted (RFC 6386, 11.2 to 11.4): from above, or by the
/// mean of what is beside it; chroma always by the mean, which never changes.
fn intra_modes(w: &mut BoolEncoder, from_above: bool) {
    w.flag(145, true); // Not B_PRED.
    w.flag(156, false); // DC_PRED or V_PRED.
    w.flag(163, from_above);
    w.flag(142, false); // DC_PRED of chroma.
}

/// A macroblock is as it was in the golden frame (RFC 6386, 16.3).
fn golden_as_it_was(w: &mut BoolEncoder, x: usize, y: usize) {
    w.flag(1, true); // is_inter_mb
    w.flag(1, true); // Not the last frame,
    w.flag(255, false); // but the golden one.
    // How probable it is that something moves, by those beside it, of which none moves: above and
    // left count twice, and that between them once. Outside of the frame there are none.
    let count = 2 * usize::from(y > 0) + 2 * usize::from(x > 0) + usize::from(x > 0 && y > 0);
    w.flag([7, 14, 135, 60, 159, 234][count], false); // mv_zero
}

/// What texture is made of.
struct Noise {
    state: u64,
    /// How many blocks it is to fill.
    blocks: usize,
}

impl Noise {
    fn new(index: u64, address: usize, blocks: usize) -> Noise {
        Noise {
            state: (index << 32 | address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            blocks,
        }
    }

    /// A coefficient that is not 0.
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

/// Writes the coefficients of a macroblock (RFC 6386, 13). Texture leaves out the lowest and the
/// rightmost blocks: what lies beside is predicted from the flat level.
fn coefficients(
    w: &mut BoolEncoder,
    (above, left): (&mut Beside, &mut Beside),
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

/// Which band a coefficient is in, by its place (RFC 6386, 13.3).
const BANDS: [usize; 16] = [0, 1, 2, 3, 6, 4, 5, 6, 6, 6, 6, 6, 6, 6, 6, 7];

/// What is written of a coefficient beyond its token: from where the token counts, and the
/// probabilities of its further bits (RFC 6386, 13.2).
const CATEGORIES: [(u32, &[u8]); 6] = [
    (5, &[159]),
    (7, &[165, 145]),
    (11, &[173, 148, 140]),
    (19, &[176, 155, 140, 135]),
    (35, &[180, 157, 141, 134, 130]),
    (67, &[254, 254, 243, 230, 196, 177, 153, 140, 133, 130, 129]),
];

/// Writes the coefficients of a block from `first` on, and says whether there are any.
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
    for (place, &level) in levels.iter().enumerate().skip(first) {
        let p = &DEFAULT[kind][BANDS[place]][context];
        if !after_zero {
            w.flag(p[0], place < end);
            if place >= end {
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
