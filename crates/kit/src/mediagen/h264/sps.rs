//! Picture size from a sequence parameter set (H.264, 7.3.2.1.1).

/// Maximum plausible width and height: level 6.2 allows at most 16384 samples per side.
const SIDE_MAX: u32 = 16_384;

/// Bit reader for a NAL unit. It skips emulation prevention bytes.
struct Bits<'a> {
    bytes: &'a [u8],
    /// Position of the next bit, from the first byte on.
    at: usize,
    /// Number of consecutive zero bytes before the current byte.
    zeros: usize,
}

impl Bits<'_> {
    fn bit(&mut self) -> Option<u32> {
        if self.at.is_multiple_of(8) {
            let mut place = self.at / 8;
            if self.zeros >= 2 && *self.bytes.get(place)? == 3 {
                self.at += 8;
                self.zeros = 0;
                place += 1;
            }
            self.zeros = match *self.bytes.get(place)? {
                0 => self.zeros + 1,
                _ => 0,
            };
        }
        let byte = *self.bytes.get(self.at / 8)?;
        let bit = byte >> (7 - self.at % 8) & 1;
        self.at += 1;
        Some(u32::from(bit))
    }

    fn flag(&mut self) -> Option<bool> {
        Some(self.bit()? == 1)
    }

    fn bits(&mut self, count: u32) -> Option<u32> {
        (0..count).try_fold(0, |value, _| Some(value << 1 | self.bit()?))
    }

    /// `ue(v)` (H.264, 9.1).
    fn ue(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while !self.flag()? {
            zeros += 1;
            if zeros > 31 {
                return None;
            }
        }
        Some((1 << zeros) - 1 + self.bits(zeros)?)
    }

    /// `se(v)` (H.264, 9.1.1).
    fn se(&mut self) -> Option<i64> {
        let code = i64::from(self.ue()?);
        Some(if code % 2 == 1 {
            (code + 1) / 2
        } else {
            -code / 2
        })
    }
}

/// Returns width and height of the pictures as displayed, in samples; `None` if this is not a valid
/// sequence parameter set.
pub fn picture_size(nal: &[u8]) -> Option<(u32, u32)> {
    let (&header, rest) = nal.split_first()?;
    if header & 0x1f != 7 {
        return None;
    }
    let mut bits = Bits {
        bytes: rest,
        at: 0,
        zeros: 0,
    };
    let profile = bits.bits(8)?;
    // Constraint flags and level.
    bits.bits(16)?;
    bits.ue()?;
    let mut chroma = 1;
    if let 44 | 83 | 86 | 100 | 110 | 118 | 122 | 128 | 134 | 135 | 138 | 139 | 244 = profile {
        chroma = bits.ue()?;
        // Separately coded planes are cropped like monochrome pictures.
        if chroma == 3 && bits.flag()? {
            chroma = 0;
        }
        // Bit depths, and whether lossless coding bypasses the transform.
        bits.ue()?;
        bits.ue()?;
        bits.bit()?;
        if bits.flag()? {
            let lists = if chroma == 3 { 12 } else { 8 };
            for list in 0..lists {
                if bits.flag()? {
                    skip_scaling_list(&mut bits, if list < 6 { 16 } else { 64 })?;
                }
            }
        }
    }
    bits.ue()?;
    match bits.ue()? {
        0 => {
            bits.ue()?;
        }
        1 => {
            bits.bit()?;
            bits.se()?;
            bits.se()?;
            let cycle = bits.ue()?;
            for _ in 0..cycle.min(255) {
                bits.se()?;
            }
        }
        _ => {}
    }
    // Number of reference frames, and whether gaps in frame numbers are allowed.
    bits.ue()?;
    bits.bit()?;
    let columns = bits.ue()?.checked_add(1)?;
    let rows = bits.ue()?.checked_add(1)?;
    let fields = 2 - bits.bit()?;
    if fields == 2 {
        bits.bit()?;
    }
    bits.bit()?;
    let mut size = (
        columns.checked_mul(16)?,
        rows.checked_mul(16)?.checked_mul(fields)?,
    );
    if bits.flag()? {
        let (across, down) = match chroma {
            1 => (2, 2),
            2 => (2, 1),
            _ => (1, 1),
        };
        let mut cut = |side: u32, unit: u32| {
            let both = bits.ue()?.checked_add(bits.ue()?)?;
            side.checked_sub(both.checked_mul(unit)?)
        };
        size.0 = cut(size.0, across)?;
        size.1 = cut(size.1, down * fields)?;
    }
    let makes_sense = |side: u32| (1..=SIDE_MAX).contains(&side);
    (makes_sense(size.0) && makes_sense(size.1)).then_some(size)
}

/// Skips a scaling list (H.264, 7.3.2.1.1.1).
fn skip_scaling_list(bits: &mut Bits<'_>, length: u32) -> Option<()> {
    let (mut last, mut next) = (8i64, 8i64);
    for _ in 0..length {
        if next != 0 {
            next = (last + bits.se()? + 256).rem_euclid(256);
        }
        if next != 0 {
            last = next;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;

    use super::*;
    use crate::mediagen::frame_rate::FrameRate;
    use crate::mediagen::h264::H264Stream;
    use crate::mediagen::video::{PictureForm, VideoSettings};

    #[test]
    fn sizes_of_real_encoders_are_parsed() {
        for (set, size) in [
            // Written by x264: High with timing; interlaced, cropped from 1088 lines; 4:4:4 with
            // scaling lists; 4:2:2, cropped in both directions; Constrained Baseline.
            ("Z2QAH6zZQFAFuwEQAAADABAAAAMDIPGDGWA=", (1280, 720)),
            ("Z2QAKKzZQHgET94CIAAAAwAgAAAGQ+LFssA=", (1920, 1080)),
            ("Z/QAH5GbKAoAt2AiAAADAAIAAAMAZB4wYyw=", (1280, 720)),
            ("Z3oAHrzZQNg95vARAAADAAEAAAMAMg8WLZY=", (854, 480)),
            ("Z0LAC9kCxOwEQAAAAwBAAAAMg8UKkg==", (176, 144)),
        ] {
            let nal = STANDARD.decode(set).expect("it is base64");
            assert_eq!(picture_size(&nal), Some(size), "{set}");
            // A truncated set gives no size or the right one.
            for end in 0..nal.len() {
                let part = picture_size(&nal[..end]);
                assert!(part.is_none() || part == Some(size), "{end} of {set}");
            }
        }
    }

    #[test]
    fn generated_pictures_have_the_stated_size() {
        for bits_per_second in [64_000, 1_000_000, 20_000_000] {
            let stream = H264Stream::new(&VideoSettings {
                bits_per_second,
                frame_rate: FrameRate::whole(25),
                gop: 25,
                mtu: 1400,
                form: PictureForm::default(),
            })
            .expect("it can be made");
            assert_eq!(picture_size(&stream.sps), Some(stream.size));
        }
        assert_eq!(picture_size(&[0x68, 1, 2, 3]), None, "it is another kind");
        assert_eq!(picture_size(&[]), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn any_bytes_are_parsed_without_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..80), profile in prop::sample::select(vec![66u8, 100, 244])) {
            bytes.splice(0..0, [0x67, profile]);
            if let Some((width, height)) = picture_size(&bytes) {
                prop_assert!((1..=SIDE_MAX).contains(&width) && (1..=SIDE_MAX).contains(&height));
            }
        }
    }
}
