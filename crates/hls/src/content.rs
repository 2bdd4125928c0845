//! Recognition of bodies that are not media, such as an error page with the status 200.

use std::fmt;

use aes::Aes128;
use aes::cipher::{BlockCipherDecrypt, KeyInit};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use kit::url::percent_decode_bytes;

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

/// Base64 as browsers take it: with or without the padding at its end.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Key and initialization vector of an encrypted body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cipher {
    pub(crate) key: [u8; BYTES_MAX],
    pub(crate) iv: [u8; BYTES_MAX],
}

/// Encryption of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Encryption {
    /// The body as a whole is not encrypted.
    #[default]
    None,
    /// The body is encrypted with a key that the player has.
    Known(Cipher),
    /// The body is encrypted with a key that the player does not have: nothing but its length is
    /// known.
    Opaque,
}

/// Beginning of a body.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Content {
    bytes: [u8; BYTES_MAX],
    len: usize,
}

/// Returns the key that a URI holds itself (RFC 2397): `None` if it does not, `Some(None)` if it
/// holds something else.
pub(crate) fn key_in(uri: &str) -> Option<Option<[u8; BYTES_MAX]>> {
    let (scheme, rest) = uri.split_once(':')?;
    if !scheme.eq_ignore_ascii_case("data") {
        return None;
    }
    let read = || {
        let (kind, data) = rest.split_once(',')?;
        let data = percent_decode_bytes(data);
        let bytes = match kind.to_ascii_lowercase().ends_with(";base64") {
            true => {
                let is_text = |byte: &u8| !byte.is_ascii_whitespace();
                let data: Vec<u8> = data.into_iter().filter(is_text).collect();
                BASE64.decode(data).ok()?
            }
            false => data,
        };
        bytes.try_into().ok()
    };
    Some(read())
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

    /// Returns the body if it is a key (RFC 8216, 4.3.2.4). The body has `length` bytes.
    pub(crate) fn key(&self, length: u64) -> Option<[u8; BYTES_MAX]> {
        (length == BYTES_MAX as u64).then_some(self.bytes)
    }

    /// Decrypts a beginning with AES-128 in CBC mode (RFC 8216, 4.3.2.4).
    pub(crate) fn decrypt(mut self, cipher: &Cipher) -> Content {
        if self.len == BYTES_MAX {
            let mut block = self.bytes.into();
            Aes128::new(&cipher.key.into()).decrypt_block(&mut block);
            let plain = block.iter().zip(cipher.iv);
            for (byte, (own, iv)) in self.bytes.iter_mut().zip(plain) {
                *byte = own ^ iv;
            }
        }
        self
    }

    /// Checks a body of this length. Otherwise returns what is wrong.
    pub(crate) fn check(&self, length: u64, encryption: &Encryption) -> Result<(), String> {
        let is_media = match encryption {
            Encryption::None => self.is_media(),
            Encryption::Opaque => !self.is_empty(),
            Encryption::Known(_) if self.is_empty() => false,
            Encryption::Known(_) if !length.is_multiple_of(BYTES_MAX as u64) => {
                return Err(format!(
                    "it is encrypted, but its {length} bytes are no multiple of {BYTES_MAX}"
                ));
            }
            Encryption::Known(cipher) => {
                let plain = self.decrypt(cipher);
                return match plain.is_media() {
                    true => Ok(()),
                    false => Err(format!("with its key, {plain}")),
                };
            }
        };
        match is_media {
            true => Ok(()),
            false => Err(self.to_string()),
        }
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
    fn beginnings_are_decrypted() {
        // NIST SP 800-38A, F.2.1: CBC-AES128.
        let cipher = Cipher {
            key: 0x2b7e_1516_28ae_d2a6_abf7_1588_09cf_4f3c_u128.to_be_bytes(),
            iv: 0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f_u128.to_be_bytes(),
        };
        let mut content = Content::default();
        content.extend(&0x7649_abac_8119_b246_cee9_8e9b_12e9_197d_u128.to_be_bytes());
        let plain = 0x6bc1_bee2_2e40_9f96_e93d_7e11_7393_172a_u128.to_be_bytes();
        assert_eq!(content.decrypt(&cipher).bytes, plain);
    }

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
