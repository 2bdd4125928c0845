//! What two peers have to agree on beforehand.

use std::fmt;
use std::num::NonZeroU32;

use aws_lc_rs::pbkdf2;
use thiserror::Error;

use super::mode::CipherMode;

/// Rounds of PBKDF2 (SRT, 6.1.4).
const ROUNDS: NonZeroU32 = NonZeroU32::new(2048).expect("2048 is not 0");

/// Bytes of the salt that PBKDF2 takes: the last ones (SRT, 6.1.4).
const SALT_TAKEN: usize = 8;

/// A passphrase, of 10 to 79 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Passphrase(String);

/// Why a text is no passphrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a passphrase of {0} bytes; SRT takes 10 to 79")]
pub struct PassphraseError(pub usize);

impl Passphrase {
    /// That text.
    ///
    /// # Errors
    /// If it has less than 10 bytes, or more than 79 (libsrt's bounds).
    pub fn new(text: impl Into<String>) -> Result<Passphrase, PassphraseError> {
        let text = text.into();
        match text.len() {
            10..=79 => Ok(Passphrase(text)),
            length => Err(PassphraseError(length)),
        }
    }

    /// The key that wraps keys of that length (KEK; SRT, 6.1.4). Takes about a millisecond.
    pub(super) fn wrapping_key(&self, salt: &[u8], length: KeyLength) -> Vec<u8> {
        let salt = &salt[salt.len().saturating_sub(SALT_TAKEN)..];
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

/// How long the keys of a stream are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyLength {
    /// 128 bits.
    #[default]
    Aes128,
    /// 192 bits.
    Aes192,
    /// 256 bits.
    Aes256,
}

impl KeyLength {
    /// All of them.
    pub const ALL: [KeyLength; 3] = [KeyLength::Aes128, KeyLength::Aes192, KeyLength::Aes256];

    /// In bytes.
    pub const fn bytes(self) -> usize {
        match self {
            KeyLength::Aes128 => 16,
            KeyLength::Aes192 => 24,
            KeyLength::Aes256 => 32,
        }
    }

    /// Of so many bytes.
    pub const fn of_bytes(bytes: usize) -> Option<KeyLength> {
        match bytes {
            16 => Some(KeyLength::Aes128),
            24 => Some(KeyLength::Aes192),
            32 => Some(KeyLength::Aes256),
            _ => None,
        }
    }

    /// What the encryption field of a handshake says (SRT, 3.2.1, table 2).
    pub const fn advertised(self) -> u16 {
        (self.bytes() / 8) as u16
    }

    /// Of the encryption field of a handshake; none where it says nothing.
    pub const fn of_advertised(field: u16) -> Option<KeyLength> {
        KeyLength::of_bytes(field as usize * 8)
    }
}

/// What one side brings in for encryption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// The passphrase.
    pub passphrase: Passphrase,
    /// How long keys are, where this side makes them. A listener takes what the caller made.
    pub key_length: KeyLength,
    /// Which cipher. Who makes keys takes AES-CTR for [`CipherMode::Auto`].
    pub cipher: CipherMode,
}

impl Secret {
    /// With AES-128, and the cipher that the peer takes.
    ///
    /// # Errors
    /// If that is no passphrase.
    pub fn new(passphrase: impl Into<String>) -> Result<Secret, PassphraseError> {
        Ok(Secret {
            passphrase: Passphrase::new(passphrase)?,
            key_length: KeyLength::default(),
            cipher: CipherMode::Auto,
        })
    }

    /// With keys of that length.
    #[must_use]
    pub fn with_key_length(self, key_length: KeyLength) -> Secret {
        Secret { key_length, ..self }
    }

    /// With that cipher.
    #[must_use]
    pub fn with_cipher(self, cipher: CipherMode) -> Secret {
        Secret { cipher, ..self }
    }
}
