//! Authentication tag of a protected packet.

use std::ops::Deref;

/// Authentication tag: 10 or 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    bytes: [u8; Tag::LENGTH_MAX],
    length: u8,
}

impl Tag {
    /// Maximum length, in bytes.
    pub const LENGTH_MAX: usize = 16;

    /// Takes the first bytes of a digest.
    ///
    /// # Panics
    /// `length` is above [`Tag::LENGTH_MAX`], or the digest is shorter.
    pub(super) fn from_digest(digest: &[u8], length: usize) -> Tag {
        let mut bytes = [0; Tag::LENGTH_MAX];
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
