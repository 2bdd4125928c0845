//! Detects key frames by the first bytes of a packet's payload.

/// Video codecs with known payload formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VideoCodec {
    /// RFC 6184.
    H264,
    /// RFC 7798.
    H265,
    /// RFC 7741.
    Vp8,
    /// RFC 9628.
    Vp9,
    /// RTP Payload Format For AV1, 1.0 (Alliance for Open Media).
    Av1,
}

/// Maximum number of units of an aggregation packet that are inspected.
const UNITS_MAX: usize = 32;

impl VideoCodec {
    /// Returns the codec with that name in a description.
    pub fn from_name(name: &str) -> Option<VideoCodec> {
        let all = [
            ("h264", VideoCodec::H264),
            ("h265", VideoCodec::H265),
            ("vp8", VideoCodec::Vp8),
            ("vp9", VideoCodec::Vp9),
            ("av1", VideoCodec::Av1),
        ];
        let known = all
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        known.map(|(_, codec)| *codec)
    }

    /// Returns `true` if the payload begins a key frame, or one of its slices.
    pub fn begins_key_frame(self, payload: &[u8]) -> bool {
        match self {
            VideoCodec::H264 => h264(payload),
            VideoCodec::H265 => h265(payload),
            VideoCodec::Vp8 => vp8(payload).unwrap_or(false),
            VideoCodec::Vp9 => vp9(payload).unwrap_or(false),
            // The first packet of a coded video sequence, which begins with a key frame (4.4).
            VideoCodec::Av1 => payload.first().is_some_and(|byte| byte & 0x08 != 0),
        }
    }
}

/// A slice of an IDR picture: alone, in an aggregation packet (STAP-A), or in the first fragment of
/// one (FU-A; RFC 6184, 5.6 to 5.8).
fn h264(payload: &[u8]) -> bool {
    const IDR: u8 = 5;
    let Some((&header, rest)) = payload.split_first() else {
        return false;
    };
    match header & 0x1f {
        IDR => true,
        24 => units(rest).any(|unit| unit.first().is_some_and(|byte| byte & 0x1f == IDR)),
        28 => rest
            .first()
            .is_some_and(|byte| byte & 0x80 != 0 && byte & 0x1f == IDR),
        _ => false,
    }
}

/// A slice of a picture at which decoding may begin (IRAP; ITU-T H.265, table 7-1): alone, in an
/// AP, or in the first FU (RFC 7798, 4.4).
fn h265(payload: &[u8]) -> bool {
    let is_start = |kind: u8| (16..=21).contains(&kind);
    let [header, _, rest @ ..] = payload else {
        return false;
    };
    match header >> 1 & 0x3f {
        48 => units(rest).any(|unit| unit.first().is_some_and(|byte| is_start(byte >> 1 & 0x3f))),
        49 => rest
            .first()
            .is_some_and(|byte| byte & 0x80 != 0 && is_start(byte & 0x3f)),
        kind => is_start(kind),
    }
}

/// Iterates over the units of an aggregation packet, each preceded by its length.
fn units(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    let next = move || {
        let (length, behind) = rest.split_first_chunk::<2>()?;
        let (unit, behind) = behind.split_at_checked(u16::from_be_bytes(*length).into())?;
        rest = behind;
        Some(unit)
    };
    std::iter::from_fn(next).take(UNITS_MAX)
}

/// The beginning of the first partition (RFC 7741, 4.2) of a frame without prediction (RFC 6386,
/// 9.1).
fn vp8(payload: &[u8]) -> Option<bool> {
    let (&first, mut rest) = payload.split_first()?;
    if first & 0x17 != 0x10 {
        return Some(false);
    }
    if first & 0x80 != 0 {
        let (&extensions, behind) = rest.split_first()?;
        rest = behind;
        if extensions & 0x80 != 0 {
            let long = rest.first()? & 0x80 != 0;
            rest = rest.get(1 + usize::from(long)..)?;
        }
        rest = rest.get(usize::from(extensions & 0x40 != 0)..)?;
        rest = rest.get(usize::from(extensions & 0x30 != 0)..)?;
    }
    Some(rest.first()? & 0x01 == 0)
}

/// The beginning of a frame without prediction, in the lowest spatial layer (RFC 9628, 4.2).
fn vp9(payload: &[u8]) -> Option<bool> {
    let (&first, mut rest) = payload.split_first()?;
    if first & 0x48 != 0x08 {
        return Some(false);
    }
    if first & 0x80 != 0 {
        let long = rest.first()? & 0x80 != 0;
        rest = rest.get(1 + usize::from(long)..)?;
    }
    match first & 0x20 != 0 {
        true => Some(rest.first()? >> 1 & 0x07 == 0),
        false => Some(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_frames_are_detected_in_each_payload_format() {
        use VideoCodec::{Av1, H264, H265, Vp8, Vp9};
        let cases: [(VideoCodec, &[u8], bool); 33] = [
            // A slice of an IDR picture, another slice, parameter sets.
            (H264, &[0x65, 0x88], true),
            (H264, &[0x41, 0x9a], false),
            (H264, &[0x67, 0x42], false),
            // STAP-A of SPS, PPS and IDR; of the sets alone; one that is cut off.
            (H264, &[0x78, 0, 2, 0x67, 1, 0, 1, 0x68, 0, 1, 0x65], true),
            (H264, &[0x78, 0, 2, 0x67, 1, 0, 1, 0x68], false),
            (H264, &[0x78, 0, 9, 0x65], false),
            // FU-A: the first fragment, and a later one.
            (H264, &[0x7c, 0x85, 0], true),
            (H264, &[0x7c, 0x05, 0], false),
            (H264, &[0x7c, 0x81, 0], false),
            (H264, &[], false),
            // IDR_W_RADL, CRA, a trailing picture.
            (H265, &[19 << 1, 1, 0], true),
            (H265, &[21 << 1, 1, 0], true),
            (H265, &[1 << 1, 1, 0], false),
            (
                H265,
                &[48 << 1, 1, 0, 2, 32 << 1, 1, 0, 2, 19 << 1, 1],
                true,
            ),
            (H265, &[49 << 1, 1, 0x80 | 19, 0], true),
            (H265, &[49 << 1, 1, 19, 0], false),
            (H265, &[19 << 1], false),
            // Without extensions; not the first partition; not its beginning; predicted.
            (Vp8, &[0x10, 0x00], true),
            (Vp8, &[0x11, 0x00], false),
            (Vp8, &[0x00, 0x00], false),
            (Vp8, &[0x10, 0x01], false),
            // Picture ids of one and two bytes, TL0PICIDX, and TID with KEYIDX.
            (Vp8, &[0x90, 0x80, 0x11, 0x00], true),
            (Vp8, &[0x90, 0x80, 0x91, 0x22, 0x01], false),
            (Vp8, &[0x90, 0xe0, 0x91, 0x22, 0x01, 0x20, 0x00], true),
            (Vp8, &[0x90, 0xe0, 0x91, 0x22, 0x01, 0x20], false),
            // Flexible or not, the lowest layer, a higher one, predicted, not a beginning.
            (Vp9, &[0x88, 0x11], true),
            (Vp9, &[0x08], true),
            (Vp9, &[0xa8, 0x91, 0x22, 0x00], true),
            (Vp9, &[0xa8, 0x91, 0x22, 0x02], false),
            (Vp9, &[0xc8, 0x11], false),
            (Vp9, &[0x80, 0x11], false),
            (Av1, &[0x18, 0], true),
            (Av1, &[0x10, 0], false),
        ];
        for (codec, payload, expected) in cases {
            assert_eq!(
                codec.begins_key_frame(payload),
                expected,
                "{codec:?} {payload:?}"
            );
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_payload_does_not_panic(payload: Vec<u8>) {
            use VideoCodec::{Av1, H264, H265, Vp8, Vp9};
            for codec in [H264, H265, Vp8, Vp9, Av1] {
                codec.begins_key_frame(&payload);
            }
        }
    }
}
