//! Authentication tag of a protected packet.

use std::ops::Deref;

/// Authentication tag: 10 or 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    bytes: [u8; Tag::ROOM],
    length: u8,
}

impl Tag {
    /// Maximum length, in bytes.
    pub const ROOM: usize = 16;

    /// Takes the first bytes of a digest.
    ///
    /// # Panics
    /// `length` is above [`Tag::ROOM`], or the digest is shorter.
    pub(super) fn of(digest: &[u8], length: usize) -> Tag {
        let mut bytes = [0; Tag::ROOM];
        bytes[..length].copy_from_slice(&digest[..length]);
        Tag {
            bytes,
            length: length as u8,
        }
    }
}

impl Deref for Tag {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}
