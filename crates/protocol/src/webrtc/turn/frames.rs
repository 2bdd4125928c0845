//! What comes of a TURN server over a connection, cut into messages and channel data (RFC 8656,
//! 12.5).

use super::channel::CHANNEL_HEAD;
use super::message::{COOKIE, HEAD};

/// The first bytes that are needed to know how long what begins is: of a message, which is never
/// shorter, up to its cookie.
const KNOWN_BY: usize = 8;

/// What came is neither STUN nor channel data: nothing after it can be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotTurn;

/// Cuts what comes over a connection. Keeps at most one frame, of 64 KiB.
#[derive(Debug, Default)]
pub struct Frames {
    held: Vec<u8>,
    /// Whether `held` was handed out.
    is_over: bool,
}

impl Frames {
    /// The next frame that ends within `bytes` from `at` on, without the padding behind channel
    /// data, and how long it is with that; `at` is then where it ended. Without one all is taken,
    /// and kept as far as needed.
    ///
    /// # Errors
    /// What begins there is no frame.
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
                // Channel data may be no longer than its head: what is behind it is another frame.
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

/// How long the frame is that begins these bytes, without and with padding; none while too little
/// is there to know.
fn lengths(bytes: &[u8]) -> Result<Option<(usize, usize)>, NotTurn> {
    let Some(&[kind, _, high, low]) = bytes.first_chunk() else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    match kind >> 6 {
        // The shortest is as long as what it is known by.
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

    /// A frame, and the padding behind it.
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
        fn pieces_give_what_the_whole_gives(
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
        fn anything_is_cut_or_refused_and_little_is_kept(
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
    fn what_is_no_turn_is_refused() {
        for bytes in [[0x80; 8], [0; 8]] {
            let mut frames = Frames::default();
            assert_eq!(frames.next(&bytes, &mut 0), Err(NotTurn), "{bytes:?}");
        }
    }
}
