//! Time codes: each frame of generated video contains its planned send time, so that any receiver
//! can measure the delay, whatever path the frame took.
//!
//! In H.264 a code is an SEI message, "unregistered user data" (H.264, D.1.6): decoders ignore it,
//! and servers that repacketize RTP forward it. It precedes the picture and is therefore in the
//! first bytes of the frame's first packet, which is all that a packet ring keeps. Its numbers are
//! written with seven bits per byte and the eighth bit set, so they never need emulation prevention
//! (H.264, 7.4.1).
//!
//! A VP8 frame has no room for user data. The code follows the data that decoders read, at the end
//! of the frame's last packet, and is found only if whole packets are read.

use bytes::Bytes;

/// Identifies streamgauge's codes among other user data.
const UUID: [u8; 16] = [
    0x9b, 0x1e, 0x5a, 0xc4, 0x73, 0x8d, 0x4f, 0x26, 0xb0, 0xe9, 0x52, 0x67, 0x61, 0x75, 0x67, 0x65,
];

/// Bytes of a code's numbers: five each for source and number, nine for the time.
pub const CODE_BYTES: usize = 5 + 5 + 9;
/// Bytes of the NAL unit that holds a code: header, SEI type and size, UUID, numbers, and the
/// trailing bits.
pub const NAL_BYTES: usize = 3 + 16 + CODE_BYTES + 1;

/// Bytes of a code at the end of a frame: UUID and numbers.
pub const TRAILER_BYTES: usize = 16 + CODE_BYTES;

/// NAL unit type of an SEI message (H.264, table 7-1).
const SEI: u8 = 6;
/// Payload type of unregistered user data (H.264, D.1.1).
const USER_DATA_UNREGISTERED: u8 = 5;
/// NAL unit type of an aggregation packet (RFC 6184, 5.7.1).
const STAP_A: u8 = 24;
/// Maximum number of NAL units that are examined in an aggregation packet: a code follows parameter
/// sets and a delimiter.
const UNITS_MAX: usize = 8;

/// A time code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeCode {
    /// Identifies the sender: random for each published stream.
    pub source: u32,
    /// Sequence number.
    pub number: u32,
    /// Planned send time in nanoseconds since 1970. 63 bits are kept.
    pub nanos: u64,
}

impl TimeCode {
    /// Encodes the numbers.
    pub fn to_bytes(self) -> [u8; CODE_BYTES] {
        let mut bytes = [0; CODE_BYTES];
        let (numbers, nanos) = bytes.split_at_mut(10);
        let (source, number) = numbers.split_at_mut(5);
        write(source, self.source.into());
        write(number, self.number.into());
        write(nanos, self.nanos);
        bytes
    }

    /// Returns a copy of a payload in which the numbers are written at `position`.
    ///
    /// # Panics
    /// If the payload is too short.
    pub fn put_into(self, payload: &[u8], position: usize) -> Bytes {
        let mut coded = payload.to_vec();
        coded[position..position + CODE_BYTES].copy_from_slice(&self.to_bytes());
        coded.into()
    }

    fn from_bytes(bytes: &[u8]) -> Option<TimeCode> {
        Some(TimeCode {
            source: u32::try_from(read(bytes.get(..5)?)?).ok()?,
            number: u32::try_from(read(bytes.get(5..10)?)?).ok()?,
            nanos: read(bytes.get(10..CODE_BYTES)?)?,
        })
    }

    /// Encodes the code as a NAL unit.
    pub fn to_nal(self) -> [u8; NAL_BYTES] {
        let mut nal = [0; NAL_BYTES];
        nal[0] = SEI;
        nal[1] = USER_DATA_UNREGISTERED;
        nal[2] = (UUID.len() + CODE_BYTES) as u8;
        nal[3..19].copy_from_slice(&UUID);
        nal[19..19 + CODE_BYTES].copy_from_slice(&self.to_bytes());
        nal[NAL_BYTES - 1] = 0x80;
        nal
    }

    fn from_nal(nal: &[u8]) -> Option<TimeCode> {
        let [header, kind, _, rest @ ..] = nal else {
            return None;
        };
        if header & 0x1f != SEI || *kind != USER_DATA_UNREGISTERED {
            return None;
        }
        TimeCode::from_bytes(rest.strip_prefix(&UUID)?)
    }

    /// Encodes the code for the end of a frame that has no room for a NAL unit.
    pub fn to_trailer(self) -> [u8; TRAILER_BYTES] {
        let mut trailer = [0; TRAILER_BYTES];
        trailer[..UUID.len()].copy_from_slice(&UUID);
        trailer[UUID.len()..].copy_from_slice(&self.to_bytes());
        trailer
    }

    fn from_trailer(payload: &[u8]) -> Option<TimeCode> {
        let trailer = payload.last_chunk::<TRAILER_BYTES>()?;
        TimeCode::from_bytes(trailer.strip_prefix(&UUID)?)
    }

    /// Finds the code in an RTP payload: H.264 (RFC 6184), of which the first bytes are sufficient,
    /// or VP8 (RFC 7741), which must be complete.
    #[inline]
    pub fn find(payload: &[u8]) -> Option<TimeCode> {
        match payload.first()? & 0x1f {
            SEI => TimeCode::from_nal(payload),
            STAP_A => TimeCode::find_in_aggregate(&payload[1..]),
            // A VP8 descriptor of the first partition, with or without the start bit. H.264 does
            // not use these NAL unit types.
            0 | 16 => TimeCode::from_trailer(payload),
            _ => None,
        }
    }

    /// Finds the code in the beginning of a picture in byte stream format (H.264, annex B), behind
    /// headers of any length.
    pub fn find_in_stream(bytes: &[u8]) -> Option<TimeCode> {
        let is_user_data = |&at: &usize| {
            bytes[at..].starts_with(&UUID)
                && at >= 3
                && bytes[at - 3] & 0x1f == SEI
                && bytes[at - 2] == USER_DATA_UNREGISTERED
        };
        let last = bytes.len().checked_sub(UUID.len() + CODE_BYTES)?;
        let at = (0..=last).find(is_user_data)?;
        TimeCode::from_bytes(&bytes[at + UUID.len()..])
    }

    fn find_in_aggregate(mut units: &[u8]) -> Option<TimeCode> {
        for _ in 0..UNITS_MAX {
            let [high, low, rest @ ..] = units else {
                return None;
            };
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            if let Some(code) = TimeCode::from_nal(&rest[..length.min(rest.len())]) {
                return Some(code);
            }
            units = rest.get(length..)?;
        }
        None
    }

    /// Returns the position of the numbers of a code in a payload, or `None` if it has no code.
    pub fn place(payload: &[u8]) -> Option<usize> {
        TimeCode::find(payload)?;
        if TimeCode::from_trailer(payload).is_some() {
            return Some(payload.len() - CODE_BYTES);
        }
        let position = payload
            .windows(UUID.len())
            .position(|bytes| bytes == UUID)?;
        Some(position + UUID.len())
    }
}

fn write(bytes: &mut [u8], mut number: u64) {
    for byte in bytes.iter_mut().rev() {
        *byte = 0x80 | (number & 0x7f) as u8;
        number >>= 7;
    }
}

fn read(bytes: &[u8]) -> Option<u64> {
    bytes.iter().try_fold(0u64, |number, byte| {
        (byte & 0x80 != 0).then_some(number << 7 | u64::from(byte & 0x7f))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mediagen::h264::packets;

    fn code() -> impl Strategy<Value = TimeCode> {
        (any::<u32>(), any::<u32>(), 0..1u64 << 63).prop_map(|(source, number, nanos)| TimeCode {
            source,
            number,
            nanos,
        })
    }

    proptest! {
        #[test]
        fn code_is_found_alone_and_after_parameter_sets(code in code()) {
            let nal = code.to_nal();
            prop_assert_eq!(TimeCode::find(&nal), Some(code));
            let together = packets::aggregate(&[&[0x67; 20], &[0x68; 5], &nal, &[0x65; 100]]);
            prop_assert_eq!(TimeCode::find(&together), Some(code));
            let position = TimeCode::place(&together).expect("it is there");
            prop_assert_eq!(&together[position..position + CODE_BYTES], &code.to_bytes()[..]);
            let stream = [&[0, 0, 0, 1, 9, 0xf0, 0, 0, 1][..], &nal, &[0, 0, 1, 0x65]].concat();
            prop_assert_eq!(TimeCode::find_in_stream(&stream), Some(code));
            prop_assert_eq!(TimeCode::find_in_stream(&stream[..40]), None);
            // At the end of a frame only.
            let trailer = code.to_trailer();
            for descriptor in [0x00, 0x10, 0x90] {
                let frame = [&[descriptor][..], &[7; 100], &trailer].concat();
                prop_assert_eq!(TimeCode::find(&frame), Some(code));
                let position = TimeCode::place(&frame).expect("it is there");
                prop_assert_eq!(&frame[position..], &code.to_bytes()[..]);
                prop_assert_eq!(TimeCode::find(&frame[..frame.len() - 1]), None);
                prop_assert_eq!(TimeCode::find(&[&frame[..], &[0]].concat()), None);
            }
            prop_assert_eq!(TimeCode::find(&[&[0x41][..], &trailer].concat()), None);
            // No bytes in it need emulation prevention.
            prop_assert!(nal.windows(2).all(|pair| pair != [0, 0]));
        }

        #[test]
        fn any_bytes_are_parsed_without_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            cut in 0usize..200,
            code in code(),
        ) {
            let _ = TimeCode::find(&bytes);
            let mut aggregate = vec![STAP_A];
            aggregate.extend_from_slice(&bytes);
            let _ = TimeCode::find(&aggregate);
            // A truncated code is not accepted.
            let nal = code.to_nal();
            let part = &nal[..cut.min(nal.len())];
            prop_assert_eq!(TimeCode::find(part).is_some(), part.len() >= NAL_BYTES - 1);
        }
    }
}
