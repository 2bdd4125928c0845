//! Passphrase and key length, which two peers agree on in advance.

use std::fmt;
use std::num::NonZeroU32;

use aws_lc_rs::pbkdf2;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::cipher_mode::CipherMode;

/// Rounds of PBKDF2 (SRT, 6.1.4).
const ROUNDS: NonZeroU32 = NonZeroU32::new(2048).expect("2048 is not 0");

/// Number of salt bytes that PBKDF2 uses: the last ones (SRT, 6.1.4).
const PBKDF2_SALT_LENGTH: usize = 8;

/// Passphrase of 10 to 79 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Passphrase(String);

/// Reason why a text is not a valid passphrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the passphrase has {0} bytes, and SRT requires 10 to 79")]
pub struct PassphraseError(pub usize);

impl Passphrase {
    /// Validates a passphrase.
    ///
    /// # Errors
    /// The text has fewer than 10 bytes or more than 79, the limits of libsrt.
    pub fn new(text: impl Into<String>) -> Result<Passphrase, PassphraseError> {
        let text = text.into();
        match text.len() {
            10..=79 => Ok(Passphrase(text)),
            length => Err(PassphraseError(length)),
        }
    }

    /// Derives the key that wraps keys of that length (KEK; SRT, 6.1.4). Takes about a millisecond.
    pub(super) fn wrapping_key(&self, salt: &[u8], length: KeyLength) -> Vec<u8> {
        let salt = &salt[salt.len().saturating_sub(PBKDF2_SALT_LENGTH)..];
        let mut key = vec![0; length.bytes()];
        let algorithm = pbkdf2::PBKDF2_HMAC_SHA1;
        pbkdf2::derive(algorithm, ROUNDS, salt, self.0.as_bytes(), &mut key);
        key
    }
}

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase(..)")
    }
}

/// Length of the keys of a stream, written in bytes: 16, 24 or 32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub enum KeyLength {
    /// 128 bits.
    #[default]
    Aes128,
    /// 192 bits.
    Aes192,
    /// 256 bits.
    Aes256,
}

impl TryFrom<u16> for KeyLength {
    type Error = String;

    fn try_from(bytes: u16) -> Result<KeyLength, String> {
        KeyLength::of_bytes(bytes.into())
            .ok_or_else(|| format!("keys must have 16, 24 or 32 bytes instead of {bytes}"))
    }
}

impl From<KeyLength> for u16 {
    fn from(length: KeyLength) -> u16 {
        length.bytes() as u16
    }
}

impl KeyLength {
    pub const ALL: [KeyLength; 3] = [KeyLength::Aes128, KeyLength::Aes192, KeyLength::Aes256];

    pub const fn bytes(self) -> usize {
        match self {
            KeyLength::Aes128 => 16,
            KeyLength::Aes192 => 24,
            KeyLength::Aes256 => 32,
        }
    }

    /// Returns `None` if AES has no keys of that length.
    pub const fn of_bytes(bytes: usize) -> Option<KeyLength> {
        match bytes {
            16 => Some(KeyLength::Aes128),
            24 => Some(KeyLength::Aes192),
            32 => Some(KeyLength::Aes256),
            _ => None,
        }
    }

    /// Value of the encryption field of a handshake (SRT, 3.2.1, table 2).
    pub const fn advertised(self) -> u16 {
        (self.bytes() / 8) as u16
    }

    /// Key length in the encryption field of a handshake, or `None` if it advertises none.
    pub const fn of_advertised(field: u16) -> Option<KeyLength> {
        KeyLength::of_bytes(field as usize * 8)
    }
}

/// Encryption settings of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    pub passphrase: Passphrase,
    /// Length of keys that this side generates. A listener accepts the caller's.
    pub key_length: KeyLength,
    /// Cipher. The side that generates keys uses AES-CTR for [`CipherMode::Auto`].
    pub cipher: CipherMode,
}

impl Secret {
    /// Creates settings with AES-128 and the cipher of the peer.
    ///
    /// # Errors
    /// The passphrase is invalid.
    pub fn new(passphrase: impl Into<String>) -> Result<Secret, PassphraseError> {
        Ok(Secret {
            passphrase: Passphrase::new(passphrase)?,
            key_length: KeyLength::default(),
            cipher: CipherMode::Auto,
        })
    }

    #[must_use]
    pub fn with_key_length(self, key_length: KeyLength) -> Secret {
        Secret { key_length, ..self }
    }

    #[must_use]
    pub fn with_cipher(self, cipher: CipherMode) -> Secret {
        Secret { cipher, ..self }
    }
}
