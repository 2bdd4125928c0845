//! Encodes a picture as a slice: content and syntax of its macroblocks (H.264, 7.3.4, 9.2).

use super::bits::BitWriter;

/// Luma quantizer of every slice. At 24 a step of the DC coefficient is 0.625 of a sample value, so
/// every flat level is reached exactly.
pub(super) const QP: i32 = 24;
/// Bits of `frame_num`.
pub(super) const FRAME_NUM_BITS: u32 = 8;
/// Bytes of samples of an `I_PCM` macroblock: 256 luma, 2 x 64 chroma.
const PCM_BYTES: usize = 384;

/// Values of a macroblock that the prediction of later macroblocks needs.
#[derive(Clone, Copy, Debug)]
struct Edges {
    /// Sum of the 16 luma samples of the lowest row.
    bottom: u32,
    /// Sum of the 16 luma samples of the rightmost column.
    right: u32,
}

/// The decoder's picture, as far as prediction needs it.
#[derive(Clone, Debug)]
pub(super) struct Canvas {
    width: usize,
    height: usize,
    edges: Vec<Edges>,
}

/// The picture to be encoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// Index within the loop. It determines the position of the bar.
    pub(super) index: u64,
    /// Index within its GOP; 0 is the IDR picture.
    pub(super) in_gop: u32,
    /// `idr_pic_id` of its GOP.
    pub(super) idr_pic_id: u32,
    /// First macroblock of the texture patch.
    pub(super) texture_from: usize,
}

impl Canvas {
    /// Creates a canvas of this many macroblocks.
    pub(super) fn new(width: usize, height: usize) -> Canvas {
        let grey = Edges {
            bottom: 16 * 128,
            right: 16 * 128,
        };
        Canvas {
            width,
            height,
            edges: vec![grey; width * height],
        }
    }

    pub(super) fn macroblocks(&self) -> usize {
        self.edges.len()
    }

    /// Encodes a picture with `texture` macroblocks of `I_PCM`, and updates the canvas.
    pub(super) fn slice(&mut self, slot: Slot, texture: usize) -> Vec<u8> {
        let mut w = BitWriter::with_capacity(texture * (PCM_BYTES + 4) + self.macroblocks() + 64);
        let intra = slot.in_gop == 0;
        slice_header(&mut w, slot);
        let total = self.macroblocks();
        let bar = (slot.index % self.width as u64) as usize;
        let bar_before = (bar + self.width - 1) % self.width;
        let is_texture = |address: usize| (address + total - slot.texture_from) % total < texture;
        let mut skipped = 0;
        for address in 0..total {
            let (x, y) = (address % self.width, address / self.width);
            let textured = is_texture(address);
            if !intra {
                if !textured && x != bar && x != bar_before {
                    skipped += 1;
                    continue;
                }
                w.ue(skipped);
                skipped = 0;
            }
            // In P slices, intra types follow five inter types (H.264, table 7-13).
            let type_base = if intra { 0 } else { 5 };
            if textured {
                w.ue(type_base + 25);
                w.align_with_zeros();
                self.edges[address] = texture_block(&mut w, x, y, slot.index);
                continue;
            }
            let level = if x == bar {
                225
            } else {
                background(x, y, self.width, self.height)
            };
            // A neighbour of type I_PCM counts as having 16 coefficients. Other macroblocks have
            // none.
            let left = (x > 0).then(|| address - 1);
            let above = (y > 0).then(|| address - self.width);
            let context = coefficient_context(left.map(is_texture), above.map(is_texture));
            w.ue(type_base + 3); // I_16x16_2_0_0: DC prediction, no AC, no chroma residual.
            w.ue(0); // intra_chroma_pred_mode: DC.
            w.se(0); // mb_qp_delta.
            let predicted = self.predict(left, above);
            dc_coefficient(&mut w, level - predicted, context);
            self.edges[address] = Edges {
                bottom: 16 * level as u32,
                right: 16 * level as u32,
            };
        }
        if skipped > 0 {
            w.ue(skipped);
        }
        w.finish()
    }

    /// Intra_16x16_DC prediction (H.264, 8.3.3.3).
    fn predict(&self, left: Option<usize>, above: Option<usize>) -> i32 {
        let left = left.map(|address| self.edges[address].right);
        let above = above.map(|address| self.edges[address].bottom);
        let value = match (left, above) {
            (Some(left), Some(above)) => (left + above + 16) >> 5,
            (Some(only), None) | (None, Some(only)) => (only + 8) >> 4,
            (None, None) => 128,
        };
        value as i32
    }
}

/// Context of the DC block, from whether the neighbours are `I_PCM` (H.264, 9.2.1); `None` if
/// outside the picture. Only two tables occur: the first, and that for `nC` of 8 and more.
fn coefficient_context(left: Option<bool>, above: Option<bool>) -> Context {
    if left == Some(true) || above == Some(true) {
        Context::Many
    } else {
        Context::Few
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Context {
    /// `nC` of 0.
    Few,
    /// `nC` of 8 or 16.
    Many,
}

/// The slice header (H.264, 7.3.3).
fn slice_header(w: &mut BitWriter, slot: Slot) {
    let intra = slot.in_gop == 0;
    w.ue(0); // first_mb_in_slice
    w.ue(if intra { 7 } else { 5 }); // slice_type: all slices of the picture are I, or P.
    w.ue(0); // pic_parameter_set_id
    w.bits(slot.in_gop % (1 << FRAME_NUM_BITS), FRAME_NUM_BITS);
    if intra {
        w.ue(slot.idr_pic_id);
        w.flag(false); // no_output_of_prior_pics_flag
        w.flag(false); // long_term_reference_flag
    } else {
        w.flag(false); // num_ref_idx_active_override_flag
        w.flag(false); // ref_pic_list_modification_flag_l0
        w.flag(false); // adaptive_ref_pic_marking_mode_flag
    }
    w.se(0); // slice_qp_delta
    w.ue(1); // disable_deblocking_filter_idc: off, so that flat areas stay as they are.
}

/// Flat background level of a macroblock.
fn background(x: usize, y: usize, width: usize, height: usize) -> i32 {
    (40 + 140 * (x + y) / (width + height)) as i32
}

/// Writes the samples of a texture macroblock.
fn texture_block(w: &mut BitWriter, x: usize, y: usize, index: u64) -> Edges {
    let mut samples = [128; PCM_BYTES];
    let phase = (index % 220) as usize * 4;
    let mut edges = Edges {
        bottom: 0,
        right: 0,
    };
    for (index, sample) in samples[..256].iter_mut().enumerate() {
        let (column, row) = (index % 16, index / 16);
        // A diagonal gradient over the whole picture. No sample is 0, so emulation prevention never
        // applies.
        let value = 16 + ((x * 16 + column) + (y * 16 + row) * 2 + phase) % 220;
        *sample = value as u8;
        edges.bottom += if row == 15 { value as u32 } else { 0 };
        edges.right += if column == 15 { value as u32 } else { 0 };
    }
    w.whole_bytes(&samples);
    edges
}

/// Returns the DC coefficient that changes every sample by `difference`. With a single coefficient
/// c at QP 24, the residual is (40 c + 32) >> 6 (H.264, 8.5.10 and 8.5.12).
fn dc_level(difference: i32) -> i32 {
    (64 * difference - 32 + 39).div_euclid(40)
}

/// Writes an Intra16x16DCLevel that changes all samples of the macroblock by `difference` relative
/// to the prediction (H.264, 9.2 and 8.5.10).
fn dc_coefficient(w: &mut BitWriter, difference: i32, context: Context) {
    let level = dc_level(difference);
    let token = |w: &mut BitWriter, few: (u32, u32), many: u32| match context {
        Context::Few => w.bits(few.0, few.1),
        Context::Many => w.bits(many, 6),
    };
    match level {
        0 => token(w, (0b1, 1), 0b00_0011),
        1 | -1 => {
            token(w, (0b01, 2), 0b00_0001);
            w.flag(level < 0); // trailing_ones_sign_flag
            w.flag(true); // total_zeros: none
        }
        _ => {
            token(w, (0b00_0101, 6), 0b00_0000);
            // Without trailing ones, the first level is at least 2 in magnitude and coded minus one
            // (9.2.2.1).
            let code = if level > 0 {
                2 * level - 2
            } else {
                -2 * level - 1
            } as u32
                - 2;
            match code {
                0..14 => w.bits(1, code + 1),
                14..30 => {
                    w.bits(1, 15);
                    w.bits(code - 14, 4);
                }
                _ => {
                    w.bits(1, 16);
                    w.bits(code - 30, 12);
                }
            }
            w.flag(true); // total_zeros: none
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flat_level_is_reached_exactly() {
        for difference in -255..=255 {
            assert_eq!((40 * dc_level(difference) + 32) >> 6, difference);
        }
    }
}
