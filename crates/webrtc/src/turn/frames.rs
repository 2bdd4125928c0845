//! Splits the byte stream of a TURN server into STUN messages and channel data (RFC 8656, 12.5).

use super::channel::CHANNEL_HEADER_LENGTH;
use super::message::{COOKIE, HEADER_LENGTH};

/// Number of bytes that determine the length of a STUN message: its header up to the cookie. No
/// message is shorter.
const LENGTH_KNOWN_AFTER: usize = 8;

/// Error: the bytes are neither STUN nor channel data, so nothing after them can be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidFrame;

/// Splitter of a byte stream. It holds at most one frame of 64 KiB.
#[derive(Debug, Default)]
pub struct FrameSplitter {
    held: Vec<u8>,
    /// True if `held` has been returned as a frame.
    held_returned: bool,
}

impl FrameSplitter {
    /// Returns the next frame that ends in `bytes` after position `at`, without the padding after
    /// channel data, and the frame's length with padding. `at` then points behind the frame. If no
    /// frame ends there, all bytes are consumed, and those of an incomplete frame are held.
    ///
    /// # Errors
    /// The bytes at this position are not a frame.
    pub fn next<'a>(
        &'a mut self,
        bytes: &'a [u8],
        at: &mut usize,
    ) -> Result<Option<(&'a [u8], usize)>, InvalidFrame> {
        if std::mem::take(&mut self.held_returned) {
            self.held.clear();
        }
        if self.held.is_empty() {
            let rest = &bytes[*at..];
            if let Some((length, padded)) = frame_lengths(rest)?
                && padded <= rest.len()
            {
                *at += padded;
                return Ok(Some((&rest[..length], padded)));
            }
        }
        loop {
            let wanted = match frame_lengths(&self.held)? {
                Some((length, padded)) if padded <= self.held.len() => {
                    self.held_returned = true;
                    return Ok(Some((&self.held[..length], padded)));
                }
                Some((_, padded)) => padded,
                // Channel data may consist of its header alone, so the bytes after it may belong to
                // another frame.
                None if self.held.len() < CHANNEL_HEADER_LENGTH => CHANNEL_HEADER_LENGTH,
                None => LENGTH_KNOWN_AFTER,
            };
            let rest = &bytes[*at..];
            let more = rest.len().min(wanted - self.held.len());
            if more == 0 {
                return Ok(None);
            }
            self.held.extend_from_slice(&rest[..more]);
            *at += more;
        }
    }
}

/// Returns the length of the frame at the start of these bytes, without and with padding. `None` if
/// more bytes are needed to tell.
fn frame_lengths(bytes: &[u8]) -> Result<Option<(usize, usize)>, InvalidFrame> {
    let Some(&[kind, _, high, low]) = bytes.first_chunk() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    match kind >> 6 {
        // No message is shorter than the bytes that determine its length.
        0 => match bytes.get(4..LENGTH_KNOWN_AFTER) {
            None => Ok(None),
            Some(cookie) if cookie == COOKIE => {
                Ok(Some((HEADER_LENGTH + length, HEADER_LENGTH + length)))
            }
            Some(_) => Err(InvalidFrame),
        },
        1 => {
            let length = CHANNEL_HEADER_LENGTH + length;
            Ok(Some((length, length.next_multiple_of(4))))
        }
        _ => Err(InvalidFrame),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Frame, and the length of its padding.
    fn frame() -> impl Strategy<Value = (Vec<u8>, usize)> {
        let stun = (0..60_usize).prop_map(|words| {
            let mut bytes = vec![1, 4, 0, (words * 4) as u8];
            bytes.extend_from_slice(&COOKIE);
            bytes.resize(HEADER_LENGTH + words * 4, 9);
            (bytes, 0)
        });
        let channel = prop_oneof![0..6_u16, 0..1300_u16].prop_map(|length| {
            let [high, low] = length.to_be_bytes();
            let mut bytes = vec![0x40, 0, high, low];
            bytes.resize(CHANNEL_HEADER_LENGTH + usize::from(length), 7);
            let padding = bytes.len().next_multiple_of(4) - bytes.len();
            (bytes, padding)
        });
        prop_oneof![stun, channel]
    }

    proptest! {
        #[test]
        fn frames_do_not_depend_on_how_the_stream_is_split(
            all in proptest::collection::vec(frame(), 0..12),
            piece in 1..900_usize,
        ) {
            let mut stream = Vec::new();
            for (bytes, padding) in &all {
                stream.extend_from_slice(bytes);
                stream.resize(stream.len() + padding, 0);
            }
            let (mut frames, mut found) = (FrameSplitter::default(), Vec::new());
            for bytes in stream.chunks(piece) {
                let mut at = 0;
                while let Some(frame) = frames.next(bytes, &mut at).expect("they are frames") {
                    found.push((frame.0.to_vec(), frame.1 - frame.0.len()));
                }
                prop_assert_eq!(at, bytes.len());
            }
            prop_assert_eq!(found, all);
        }

        #[test]
        fn arbitrary_bytes_split_or_fail_within_bounded_memory(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            piece in 1..50_usize,
        ) {
            let mut frames = FrameSplitter::default();
            for bytes in bytes.chunks(piece) {
                let mut at = 0;
                loop {
                    match frames.next(bytes, &mut at) {
                        Ok(Some((frame, _))) => prop_assert!(!frame.is_empty()),
                        Ok(None) => break,
                        Err(InvalidFrame) => return Ok(()),
                    }
                }
                prop_assert!(frames.held.len() <= HEADER_LENGTH + usize::from(u16::MAX));
            }
        }
    }

    #[test]
    fn bytes_that_are_not_turn_are_refused() {
        for bytes in [[0x80; 8], [0; 8]] {
            let mut frames = FrameSplitter::default();
            assert_eq!(frames.next(&bytes, &mut 0), Err(InvalidFrame), "{bytes:?}");
        }
    }
}
