//! The fixed header of an RTP packet (RFC 3550, 5.1).

use thiserror::Error;

/// Length of the fixed header in bytes, without contributing sources and extension.
pub const FIXED_LENGTH: usize = 12;

/// First byte of a packet with nothing but the fixed header before its payload.
const VERSION_2: u8 = 0x80;

/// Mask of the payload type, a field of seven bits.
const PAYLOAD_TYPE_MASK: u8 = 0x7f;

/// Reasons why bytes are not an RTP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum HeaderError {
    /// Fewer bytes than the header needs.
    #[error("shorter than its header")]
    TooShort,
    #[error("version {0} instead of 2")]
    Version(u8),
    /// The padding length is 0 or exceeds the space after the header.
    #[error("more padding than payload")]
    Padding,
}

/// Fields of the fixed header, and the location of the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// True if the packet ends with padding.
    pub padding: bool,
    /// True if an extension follows the contributing sources.
    pub extension: bool,
    /// Number of contributing sources after the fixed header, 0 to 15.
    pub csrc_count: u8,
    /// Marker bit, defined by the payload format: in video mostly the last packet of a frame.
    pub marker: bool,
    /// Payload type, 0 to 127.
    pub payload_type: u8,
    pub sequence: u16,
    /// Timestamp in the media clock.
    pub timestamp: u32,
    pub ssrc: u32,
    /// Start of the payload, in bytes from the start of the packet.
    pub payload_offset: usize,
    /// Bytes of payload, without padding. The padding of a partially captured packet is unknown and
    /// counts as payload.
    pub payload_length: usize,
}

impl Header {
    /// Creates the header of a packet without contributing sources, extension and padding.
    pub const fn new(payload_type: u8, sequence: u16, timestamp: u32, ssrc: u32) -> Header {
        Header {
            padding: false,
            extension: false,
            csrc_count: 0,
            marker: false,
            payload_type: payload_type & PAYLOAD_TYPE_MASK,
            sequence,
            timestamp,
            ssrc,
            payload_offset: FIXED_LENGTH,
            payload_length: 0,
        }
    }

    /// Parses the header of a packet of `length` bytes, of which `bytes` were captured.
    ///
    /// If a packet was captured partially and the header of its extension is missing, the length of
    /// the extension is unknown: only the four bytes of its header are counted.
    #[inline]
    pub fn parse(bytes: &[u8], length: usize) -> Result<Header, HeaderError> {
        let bytes = &bytes[..bytes.len().min(length)];
        let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED_LENGTH>() else {
            return Err(HeaderError::TooShort);
        };
        let [first, second, s0, s1, t0, t1, t2, t3, c0, c1, c2, c3] = *fixed;
        if first >> 6 != 2 {
            return Err(HeaderError::Version(first >> 6));
        }
        let (padding, extension, csrc_count) = (first & 0x20 != 0, first & 0x10 != 0, first & 0x0f);
        let payload_offset = match first & 0x1f {
            0 => FIXED_LENGTH,
            _ => FIXED_LENGTH + variable_part(csrc_count, extension, rest),
        };
        let Some(body) = length.checked_sub(payload_offset) else {
            return Err(HeaderError::TooShort);
        };
        let mut payload_length = body;
        if padding && bytes.len() == length {
            let padding = usize::from(bytes[length - 1]);
            if padding == 0 || padding > body {
                return Err(HeaderError::Padding);
            }
            payload_length = body - padding;
        }
        Ok(Header {
            padding,
            extension,
            csrc_count,
            marker: second & 0x80 != 0,
            payload_type: second & PAYLOAD_TYPE_MASK,
            sequence: u16::from_be_bytes([s0, s1]),
            timestamp: u32::from_be_bytes([t0, t1, t2, t3]),
            ssrc: u32::from_be_bytes([c0, c1, c2, c3]),
            payload_offset,
            payload_length,
        })
    }

    /// Returns the header of a packet that has neither contributing sources nor extension nor
    /// padding; `None` for any other packet.
    #[inline]
    pub(super) fn plain(fixed: &[u8; FIXED_LENGTH], payload_length: usize) -> Option<Header> {
        let [first, second, s0, s1, t0, t1, t2, t3, c0, c1, c2, c3] = *fixed;
        (first == VERSION_2).then(|| Header {
            marker: second & 0x80 != 0,
            payload_length,
            ..Header::new(
                second,
                u16::from_be_bytes([s0, s1]),
                u32::from_be_bytes([t0, t1, t2, t3]),
                u32::from_be_bytes([c0, c1, c2, c3]),
            )
        })
    }

    /// Writes the fixed header in place. Contributing sources, extension and padding, if announced,
    /// are written by the caller.
    #[inline]
    pub fn write(&self, out: &mut [u8; FIXED_LENGTH]) {
        out[0] = VERSION_2
            | u8::from(self.padding) << 5
            | u8::from(self.extension) << 4
            | (self.csrc_count & 0x0f);
        out[1] = u8::from(self.marker) << 7 | (self.payload_type & PAYLOAD_TYPE_MASK);
        out[2..4].copy_from_slice(&self.sequence.to_be_bytes());
        out[4..8].copy_from_slice(&self.timestamp.to_be_bytes());
        out[8..12].copy_from_slice(&self.ssrc.to_be_bytes());
    }

    /// Returns the fixed header as bytes; see [`Header::write`].
    #[inline]
    pub fn to_bytes(&self) -> [u8; FIXED_LENGTH] {
        let mut bytes = [0; FIXED_LENGTH];
        self.write(&mut bytes);
        bytes
    }
}

/// Size of contributing sources and extension in bytes. `rest` follows the fixed header.
// Not inlined: most packets have neither.
#[inline(never)]
fn variable_part(csrc_count: u8, extension: bool, rest: &[u8]) -> usize {
    let sources = usize::from(csrc_count) * 4;
    if !extension {
        return sources;
    }
    let words = rest.get(sources + 2..sources + 4).map_or(0, |word| {
        usize::from(u16::from_be_bytes([word[0], word[1]]))
    });
    sources + 4 + words * 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(header: &Header, extension_words: u16, payload: &[u8], padding: u8) -> Vec<u8> {
        let mut bytes = header.to_bytes().to_vec();
        for source in 0..u32::from(header.csrc_count) {
            bytes.extend_from_slice(&source.to_be_bytes());
        }
        if header.extension {
            bytes.extend_from_slice(&[0xbe, 0xde]);
            bytes.extend_from_slice(&extension_words.to_be_bytes());
            bytes.resize(bytes.len() + usize::from(extension_words) * 4, 7);
        }
        bytes.extend_from_slice(payload);
        if header.padding {
            bytes.resize(bytes.len() + usize::from(padding) - 1, 0);
            bytes.push(padding);
        }
        bytes
    }

    prop_compose! {
        fn any_header()(
            flags in any::<(bool, bool, bool)>(), csrc_count in 0u8..16, payload_type in 0u8..128,
            sequence in any::<u16>(), timestamp in any::<u32>(), ssrc in any::<u32>(),
        ) -> Header {
            Header {
                padding: flags.0, extension: flags.1, marker: flags.2, csrc_count,
                ..Header::new(payload_type, sequence, timestamp, ssrc)
            }
        }
    }

    proptest! {
        #[test]
        fn written_headers_are_parsed_back(
            header in any_header(), words in 0u16..20, padding in 1u8..=255,
            payload in proptest::collection::vec(any::<u8>(), 0..60), cut in 0usize..400,
        ) {
            let bytes = packet(&header, words, &payload, padding);
            let read = Header::parse(&bytes, bytes.len()).unwrap();
            let expected = Header {
                payload_offset: read.payload_offset, payload_length: payload.len(), ..header
            };
            prop_assert_eq!(read, expected);
            prop_assert_eq!(&bytes[read.payload_offset..][..read.payload_length], &payload[..]);
            prop_assert_eq!(&bytes[..12], &read.to_bytes()[..]);

            // Captured partially: as exact as possible, and never beyond the packet.
            let captured = &bytes[..cut.min(bytes.len())];
            match Header::parse(captured, bytes.len()) {
                Ok(part) => {
                    prop_assert!(part.payload_offset + part.payload_length <= bytes.len());
                    if captured.len() >= read.payload_offset && captured.len() < bytes.len() {
                        let unseen = if header.padding { usize::from(padding) } else { 0 };
                        prop_assert_eq!(part.payload_length, payload.len() + unseen);
                    }
                }
                Err(error) => prop_assert_eq!((error, captured.len() < 12), (HeaderError::TooShort, true)),
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..100), length in 0usize..200,
        ) {
            if let Ok(header) = Header::parse(&bytes, length) {
                prop_assert!(header.payload_offset + header.payload_length <= length);
            }
        }
    }

    #[test]
    fn rejects_bytes_that_are_not_rtp() {
        assert_eq!(Header::parse(&[0x80; 11], 11), Err(HeaderError::TooShort));
        assert_eq!(Header::parse(&[0x40; 12], 12), Err(HeaderError::Version(1)));
        // Fifteen contributing sources are announced, none is present.
        assert_eq!(Header::parse(&[0x8f; 12], 12), Err(HeaderError::TooShort));
        let mut padded = [0u8; 16];
        padded[0] = 0xa0;
        assert_eq!(Header::parse(&padded, 16), Err(HeaderError::Padding));
        padded[15] = 5;
        assert_eq!(Header::parse(&padded, 16), Err(HeaderError::Padding));
        padded[15] = 4;
        assert_eq!(Header::parse(&padded, 16).unwrap().payload_length, 0);
    }
}
