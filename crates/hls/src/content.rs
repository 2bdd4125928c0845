//! Recognition of bodies that are not media, such as an error page with the status 200.

use std::fmt;

/// Number of bytes of a body that are kept.
const BYTES_MAX: usize = 16;

/// Types of boxes with which a segment or an initialization section of fMP4 begins (ISO/IEC
/// 14496-12).
const BOXES: [&[u8]; 9] = [
    b"ftyp", b"styp", b"moov", b"moof", b"sidx", b"emsg", b"prft", b"free", b"skip",
];

/// Beginnings of other media (RFC 8216, 3): a transport stream, packed audio with ID3 and AC-3, and
/// WebVTT.
const BEGINNINGS: [&[u8]; 5] = [b"G", b"ID3", b"\x0b\x77", b"WEBVTT", b"\xef\xbb\xbfWEBVTT"];

/// Beginning of a body.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Content {
    bytes: [u8; BYTES_MAX],
    len: usize,
}

impl Content {
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        let taken = bytes.len().min(BYTES_MAX - self.len);
        self.bytes[self.len..self.len + taken].copy_from_slice(&bytes[..taken]);
        self.len += taken;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True if a player would recognize a segment, or the initialization section before one.
    pub(crate) fn is_media(&self) -> bool {
        let bytes = &self.bytes[..self.len];
        let is_box = bytes.get(4..8).is_some_and(|kind| BOXES.contains(&kind));
        // The sync word of AAC and MP3 (ISO/IEC 13818-7, 11172-3).
        let is_audio = matches!(bytes, [0xff, second, ..] if *second >= 0xe0);
        is_box || is_audio || BEGINNINGS.iter().any(|begin| bytes.starts_with(begin))
    }
}

impl fmt::Display for Content {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_empty() {
            true => out.write_str("the body is empty"),
            false => write!(
                out,
                "the body is not media: it begins with `{}`",
                self.bytes[..self.len].escape_ascii()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_is_told_from_other_bodies() {
        let of = |bytes: &[u8]| {
            let mut content = Content::default();
            for piece in bytes.chunks(3) {
                content.extend(piece);
            }
            content
        };
        for media in [
            &b"G@\x11\x10"[..],
            b"\0\0\0\x18styp",
            b"\0\0\0\x18ftypiso6",
            b"\xff\xf1\x50\x80",
            b"ID3\x04",
            b"WEBVTT\n",
        ] {
            assert!(of(media).is_media(), "{}", of(media));
        }
        for other in [
            &b""[..],
            b"<!DOCTYPE html>",
            b"{\"error\":1}",
            b"#EXTM3U",
            b"\x1f\x8b\x08",
        ] {
            assert!(!of(other).is_media(), "{}", of(other));
        }
        assert!(of(b"").to_string().contains("empty"));
        assert!(of(b"<html>").to_string().contains("`<html>`"));
    }
}
