//! Splits the byte stream of a TURN server into STUN messages and channel data (RFC 8656, 12.5).

use super::channel::CHANNEL_HEAD;
use super::message::{COOKIE, HEAD};

/// Number of bytes that determine the length of a STUN message: its header up to the cookie. No
/// message is shorter.
const KNOWN_BY: usize = 8;

/// Error: the bytes are neither STUN nor channel data, so nothing after them can be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotTurn;

/// Splitter of a byte stream. It holds at most one frame of 64 KiB.
#[derive(Debug, Default)]
pub struct Frames {
    held: Vec<u8>,
    /// True if `held` has been returned as a frame.
    is_over: bool,
}

impl Frames {
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
    ) -> Result<Option<(&'a [u8], usize)>, NotTurn> {
        if std::mem::take(&mut self.is_over) {
            self.held.clear();
        }
        if self.held.is_empty() {
            let rest = &bytes[*at..];
            if let Some((length, padded)) = lengths(rest)?
                && padded <= rest.len()
            {
                *at += padded;
                return Ok(Some((&rest[..length], padded)));
            }
        }
        loop {
            let wanted = match lengths(&self.held)? {
                Some((length, padded)) if padded <= self.held.len() => {
                    self.is_over = true;
                    return Ok(Some((&self.held[..length], padded)));
                }
                Some((_, padded)) => padded,
                // Channel data may consist of its header alone, so the bytes after it may belong to
                // another frame.
                None if self.held.len() < CHANNEL_HEAD => CHANNEL_HEAD,
                None => KNOWN_BY,
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
fn lengths(bytes: &[u8]) -> Result<Option<(usize, usize)>, NotTurn> {
    let Some(&[kind, _, high, low]) = bytes.first_chunk() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    match kind >> 6 {
        // No message is shorter than the bytes that determine its length.
        0 => match bytes.get(4..KNOWN_BY) {
            None => Ok(None),
            Some(cookie) if cookie == COOKIE => Ok(Some((HEAD + length, HEAD + length))),
            Some(_) => Err(NotTurn),
        },
        1 => {
            let length = CHANNEL_HEAD + length;
            Ok(Some((length, length.next_multiple_of(4))))
        }
        _ => Err(NotTurn),
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
            bytes.resize(HEAD + words * 4, 9);
            (bytes, 0)
        });
        let channel = prop_oneof![0..6_u16, 0..1300_u16].prop_map(|length| {
            let [high, low] = length.to_be_bytes();
            let mut bytes = vec![0x40, 0, high, low];
            bytes.resize(CHANNEL_HEAD + usize::from(length), 7);
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
            let (mut frames, mut found) = (Frames::default(), Vec::new());
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
            let mut frames = Frames::default();
            for bytes in bytes.chunks(piece) {
                let mut at = 0;
                loop {
                    match frames.next(bytes, &mut at) {
                        Ok(Some((frame, _))) => prop_assert!(!frame.is_empty()),
                        Ok(None) => break,
                        Err(NotTurn) => return Ok(()),
                    }
                }
                prop_assert!(frames.held.len() <= HEAD + usize::from(u16::MAX));
            }
        }
    }

    #[test]
    fn bytes_that_are_not_turn_are_refused() {
        for bytes in [[0x80; 8], [0; 8]] {
            let mut frames = Frames::default();
            assert_eq!(frames.next(&bytes, &mut 0), Err(NotTurn), "{bytes:?}");
        }
    }
}
