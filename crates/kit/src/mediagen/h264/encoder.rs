//! One loop of H.264 with a given bit rate.

use super::bits::{BitWriter, nal_unit};
use super::packets::{aggregate_bytes, cut_bytes, longest_within, payload_bytes};
use super::picture::{Canvas, FRAME_NUM_BITS, QP, Slot};
use crate::mediagen::video::{Loop, Profile, SettingsError, VideoSettings};

/// Ratio of an IDR picture's size to that of other pictures, if the bit rate allows the choice.
/// Real encoders at a constant bit rate show bursts of about that size.
const IDR_WEIGHT: u64 = 3;
/// Maximum size of a texture macroblock, in bytes.
const TEXTURE_BYTES: usize = 388;
/// One loop of video: closed GOPs that can be repeated endlessly.
#[derive(Clone, Debug)]
pub struct H264Stream {
    /// Sequence parameter set, as a NAL unit.
    pub sps: Vec<u8>,
    /// Picture parameter set, as a NAL unit.
    pub pps: Vec<u8>,
    /// NAL units of each picture, in order. Those of an IDR picture begin with the parameter sets.
    pub pictures: Vec<Vec<Vec<u8>>>,
    /// Width and height in samples.
    pub size: (u32, u32),
}

impl H264Stream {
    /// Generates one loop.
    pub fn new(settings: &VideoSettings) -> Result<H264Stream, SettingsError> {
        let plan = Plan::new(settings)?;
        let size = plan.choose_size()?;
        Ok(plan.encode(size))
    }

    /// Checks whether a loop can be generated. Takes milliseconds: for each size that is tried, one
    /// GOP is generated without texture.
    pub fn check(settings: &VideoSettings) -> Result<(), SettingsError> {
        Plan::new(settings)?.choose_size().map(|_| ())
    }

    /// Generates a loop of the same size and parameter sets with another bit rate. A picture of
    /// either loop may follow the preceding picture of the other; predicted levels are then
    /// slightly off until the next IDR picture.
    pub fn at_bit_rate(&self, settings: &VideoSettings) -> Result<H264Stream, SettingsError> {
        let plan = Plan {
            parameter_sets: Some((self.sps.clone(), self.pps.clone())),
            ..Plan::new(settings)?
        };
        let needed = plan.least_bytes_per_gop(self.size);
        plan.whole.has_room_for(needed, settings)?;
        Ok(plan.encode(self.size))
    }

    /// Returns the loop as a byte stream (H.264, annex B), as in files.
    pub fn annex_b(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for nal in self.pictures.iter().flatten() {
            bytes.extend_from_slice(&[0, 0, 0, 1]);
            bytes.extend_from_slice(nal);
        }
        bytes
    }
}

/// Parameters of the loop to be generated.
#[derive(Debug)]
struct Plan<'a> {
    settings: &'a VideoSettings,
    whole: Loop,
    /// Parameter sets of another stream, to be reused.
    parameter_sets: Option<(Vec<u8>, Vec<u8>)>,
}

impl Plan<'_> {
    fn new(settings: &VideoSettings) -> Result<Plan<'_>, SettingsError> {
        // Consecutive IDR pictures must differ in idr_pic_id (H.264, 7.4.3). With an even number of
        // GOPs it can alternate, also from the end of the loop to its beginning.
        let is_even = true;
        Ok(Plan {
            settings,
            whole: Loop::of(settings, is_even)?,
            parameter_sets: None,
        })
    }

    fn choose_size(&self) -> Result<(u32, u32), SettingsError> {
        let least = |size| self.least_bytes_per_gop(size);
        self.whole.choose_size(self.settings, IDR_WEIGHT, least)
    }

    fn parameter_sets(&self, size: (u32, u32)) -> (Vec<u8>, Vec<u8>) {
        let given = self.parameter_sets.clone();
        given.unwrap_or_else(|| parameter_sets(self.settings, size))
    }

    /// Bytes of payload of a GOP without texture.
    fn least_bytes_per_gop(&self, size: (u32, u32)) -> u64 {
        let mut canvas = canvas(size);
        let mut slot = Slot {
            index: 0,
            in_gop: 0,
            idr_pic_id: 0,
            texture_from: 0,
        };
        let (sps, pps) = self.parameter_sets(size);
        let mtu = self.settings.mtu;
        let idr = cut_bytes(&[&sps, &pps, &vcl(slot, &canvas.slice(slot, 0))], mtu);
        // The cost depends slightly on the column of the bar. The smallest picture, which decides
        // whether a bit rate is possible at all, has only four columns.
        let columns = u64::from(size.0 / 16)
            .min(8)
            .min(u64::from(self.settings.gop) - 1);
        let mut moving = 0;
        for index in 1..=columns {
            slot.index = index;
            slot.in_gop = index as u32;
            moving = moving.max(payload_bytes(vcl(slot, &canvas.slice(slot, 0)).len(), mtu));
        }
        idr as u64 + moving as u64 * (u64::from(self.settings.gop) - 1)
    }

    fn encode(&self, size: (u32, u32)) -> H264Stream {
        let (sps, pps) = self.parameter_sets(size);
        let mut canvas = canvas(size);
        let mut pictures = Vec::new();
        let mut texture_from = 0;
        let mut spent = 0;
        let weights_per_gop = u64::from(self.settings.gop) - 1 + IDR_WEIGHT;
        let mut weights = 0;
        for gop in 0..self.whole.gops {
            for in_gop in 0..self.settings.gop {
                // Bytes that the loop may have spent after this picture; the remainder is carried
                // over.
                weights += if in_gop == 0 { IDR_WEIGHT } else { 1 };
                let target = u128::from(self.whole.bytes) * u128::from(weights)
                    / u128::from(weights_per_gop * self.whole.gops);
                let budget = (target as u64).saturating_sub(spent) as usize;
                let budget = self.whole_packet(budget, in_gop);
                let slot = Slot {
                    index: pictures.len() as u64,
                    in_gop,
                    idr_pic_id: (gop % 2) as u32,
                    texture_from,
                };
                let mut nals = Vec::new();
                let mut room = budget;
                if in_gop == 0 {
                    // If the picture shares the packet of the parameter sets, its length takes two
                    // bytes.
                    room = room.saturating_sub(aggregate_bytes(&[&sps, &pps]) + 2);
                    nals.extend([sps.clone(), pps.clone()]);
                }
                let (nal, texture) = self.fill(&mut canvas, slot, room);
                texture_from = (texture_from + texture) % canvas.macroblocks();
                nals.push(nal);
                nals.extend(self.filler_for(&nals, budget));
                spent += cut_bytes(&slices(&nals), self.settings.mtu) as u64;
                pictures.push(nals);
            }
        }
        H264Stream {
            sps,
            pps,
            pictures,
            size,
        }
    }

    /// Returns the budget of a picture. An IDR picture that would slightly exceed a packet is
    /// limited to one, and the rest is left to the following pictures.
    fn whole_packet(&self, budget: usize, in_gop: u32) -> usize {
        let mtu = self.settings.mtu;
        let spills = in_gop == 0 && self.settings.gop > 1 && budget > mtu;
        if spills && budget <= mtu + mtu / 2 {
            mtu
        } else {
            budget
        }
    }

    /// Returns the filler that extends a picture to `budget` bytes of payload: in the same packet
    /// if all fits into one, otherwise in packets of its own.
    fn filler_for(&self, nals: &[Vec<u8>], budget: usize) -> Option<Vec<u8>> {
        let mtu = self.settings.mtu;
        let nals = slices(nals);
        let length = if budget <= mtu {
            budget.saturating_sub(aggregate_bytes(&nals) + 2)
        } else {
            longest_within(budget.saturating_sub(cut_bytes(&nals, mtu)), mtu)
        };
        (length >= FILLER_MIN).then(|| filler(length))
    }

    /// Encodes a picture with as much texture as fits into `room` bytes of payload.
    fn fill(&self, canvas: &mut Canvas, slot: Slot, room: usize) -> (Vec<u8>, usize) {
        let mtu = self.settings.mtu;
        let mut plain = canvas.clone();
        let nal = vcl(slot, &plain.slice(slot, 0));
        let least = payload_bytes(nal.len(), mtu);
        let mut texture =
            (room.saturating_sub(least) / (TEXTURE_BYTES - 3)).min(canvas.macroblocks());
        while texture > 0 {
            let mut tried = canvas.clone();
            let nal = vcl(slot, &tried.slice(slot, texture));
            let over = payload_bytes(nal.len(), mtu).saturating_sub(room);
            if over == 0 {
                *canvas = tried;
                return (nal, texture);
            }
            texture = texture.saturating_sub(over.div_ceil(TEXTURE_BYTES));
        }
        *canvas = plain;
        (nal, 0)
    }
}

fn slices(nals: &[Vec<u8>]) -> Vec<&[u8]> {
    nals.iter().map(Vec::as_slice).collect()
}

fn canvas((width, height): (u32, u32)) -> Canvas {
    Canvas::new(width.div_ceil(16) as usize, height.div_ceil(16) as usize)
}

/// Wraps a coded slice in a NAL unit. Every picture is a reference picture.
fn vcl(slot: Slot, payload: &[u8]) -> Vec<u8> {
    let unit_type = if slot.in_gop == 0 { 5 } else { 1 };
    nal_unit(3, unit_type, payload)
}

/// Minimum length of filler data: header and stop bit.
const FILLER_MIN: usize = 2;

/// Returns filler data of `length` bytes (H.264, 7.3.2.7).
fn filler(length: usize) -> Vec<u8> {
    let mut nal = vec![0xff; length];
    nal[0] = 12;
    nal[length - 1] = 0x80;
    nal
}

/// `level_idc` and limits of each level: macroblocks per second, macroblocks per picture, and 1000
/// bit/s (H.264, table A-1).
const LEVELS: [(u32, u64, u64, u64); 16] = [
    (10, 1_485, 99, 64),
    (11, 3_000, 396, 192),
    (12, 6_000, 396, 384),
    (13, 11_880, 396, 768),
    (20, 11_880, 396, 2_000),
    (21, 19_800, 792, 4_000),
    (22, 20_250, 1_620, 4_000),
    (30, 40_500, 1_620, 10_000),
    (31, 108_000, 3_600, 14_000),
    (32, 216_000, 5_120, 20_000),
    (40, 245_760, 8_192, 20_000),
    (41, 245_760, 8_192, 50_000),
    (42, 522_240, 8_704, 50_000),
    (50, 589_824, 22_080, 135_000),
    (51, 983_040, 36_864, 240_000),
    (52, 2_073_600, 36_864, 240_000),
];

/// Returns sequence and picture parameter set as NAL units (H.264, 7.3.2.1, 7.3.2.2, E.1.1).
fn parameter_sets(settings: &VideoSettings, (width, height): (u32, u32)) -> (Vec<u8>, Vec<u8>) {
    let (across, down) = (width.div_ceil(16), height.div_ceil(16));
    let macroblocks = u64::from(across * down);
    let (numerator, denominator) = (
        settings.frame_rate.numerator(),
        settings.frame_rate.denominator(),
    );
    let per_second = (macroblocks * u64::from(numerator)).div_ceil(denominator.into());
    let level = LEVELS
        .iter()
        .find(|&&(_, speed, size, kilobits)| {
            per_second <= speed
                && macroblocks <= size
                && settings.bits_per_second <= kilobits * 1000
        })
        .map_or(62, |&(level, ..)| level);

    let mut w = BitWriter::default();
    let (profile, constraints) = match settings.form.profile {
        // Constrained Baseline is also Main (H.264, A.2.1.1).
        Profile::Baseline => (66, 0b1100_0000),
        Profile::Main => (77, 0b0100_0000),
    };
    w.bits(profile, 8); // profile_idc
    w.bits(constraints, 8); // constraint_set flags
    w.bits(level, 8);
    w.ue(0); // seq_parameter_set_id
    w.ue(FRAME_NUM_BITS - 4); // log2_max_frame_num_minus4
    w.ue(2); // pic_order_cnt_type: output order is decoding order.
    w.ue(1); // max_num_ref_frames
    w.flag(false); // gaps_in_frame_num_value_allowed_flag
    w.ue(across - 1);
    w.ue(down - 1);
    w.flag(true); // frame_mbs_only_flag
    w.flag(true); // direct_8x8_inference_flag
    let (right, bottom) = ((across * 16 - width) / 2, (down * 16 - height) / 2);
    w.flag(right + bottom > 0); // frame_cropping_flag
    if right + bottom > 0 {
        [0, right, 0, bottom]
            .into_iter()
            .for_each(|crop| w.ue(crop));
    }
    w.flag(true); // vui_parameters_present_flag
    w.bits(0, 4); // No aspect ratio, overscan, video signal type, chroma location.
    w.flag(true); // timing_info_present_flag
    w.bits(denominator, 32); // num_units_in_tick
    w.bits(numerator * 2, 32); // time_scale, in fields.
    w.flag(true); // fixed_frame_rate_flag
    w.bits(0, 3); // No HRD parameters of either kind, no pic_struct.
    w.flag(true); // bitstream_restriction_flag
    w.flag(true); // motion_vectors_over_pic_boundaries_flag
    w.ue(0); // max_bytes_per_pic_denom: no limit.
    w.ue(0); // max_bits_per_mb_denom: no limit.
    w.ue(0); // log2_max_mv_length_horizontal: no motion vectors.
    w.ue(0); // log2_max_mv_length_vertical
    w.ue(0); // max_num_reorder_frames
    w.ue(1); // max_dec_frame_buffering
    let sps = nal_unit(3, 7, &w.finish());

    let mut w = BitWriter::default();
    w.ue(0); // pic_parameter_set_id
    w.ue(0); // seq_parameter_set_id
    w.flag(false); // entropy_coding_mode_flag: CAVLC.
    w.flag(false); // bottom_field_pic_order_in_frame_present_flag
    w.ue(0); // num_slice_groups_minus1
    w.ue(0); // num_ref_idx_l0_default_active_minus1
    w.ue(0); // num_ref_idx_l1_default_active_minus1
    w.flag(false); // weighted_pred_flag
    w.bits(0, 2); // weighted_bipred_idc
    w.se(QP - 26); // pic_init_qp_minus26
    w.se(0); // pic_init_qs_minus26
    w.se(0); // chroma_qp_index_offset
    w.flag(true); // deblocking_filter_control_present_flag
    w.flag(false); // constrained_intra_pred_flag
    w.flag(false); // redundant_pic_cnt_present_flag
    (sps, nal_unit(3, 8, &w.finish()))
}

#[cfg(test)]
mod tests;
