//! Message that carries the wrapped keys of a stream (SRT, 3.2.2).

use thiserror::Error;

use super::cipher_mode::CipherMode;
use super::key_wrap::{self, OVERHEAD};
use super::parity::Parity;
use super::secret::{KeyLength, Passphrase};

/// Length of the salt in bytes.
pub const SALT: usize = 16;

/// Length of the header before the salt, in bytes.
const HEAD: usize = 16;

/// Maximum length of a message in bytes: two keys of 256 bits.
pub const MESSAGE_MAX: usize = HEAD + SALT + 2 * 32 + OVERHEAD;

/// Version 1, key material message.
const VERSION_AND_TYPE: u8 = 0x12;
/// `HAI` in 15 bits.
const SIGN: [u8; 2] = [0x20, 0x29];
const CIPHER_CTR: u8 = 2;
const CIPHER_GCM: u8 = 4;
const AUTH_NONE: u8 = 0;
const AUTH_GCM: u8 = 1;
/// Stream encapsulation: a transport stream over SRT.
const STREAM_SRT: u8 = 2;

/// Keys in a message, by their flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySelection {
    Even = 1,
    Odd = 2,
    /// Both keys, the even one first.
    Both = 3,
}

impl KeySelection {
    const fn parities(self) -> &'static [Parity] {
        match self {
            KeySelection::Even => &[Parity::Even],
            KeySelection::Odd => &[Parity::Odd],
            KeySelection::Both => &[Parity::Even, Parity::Odd],
        }
    }

    pub const fn count(self) -> usize {
        self.parities().len()
    }

    /// Splits the bytes of the keys, each of `length` bytes.
    pub(super) fn split(
        self,
        keys: &[u8],
        length: KeyLength,
    ) -> impl Iterator<Item = (Parity, &[u8])> {
        let keys = keys.chunks(length.bytes());
        self.parities().iter().copied().zip(keys)
    }
}

/// Reason why bytes are not a valid key material message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyMaterialError {
    /// The message is truncated, or longer than its fields say.
    #[error("key material of {0} bytes, which contradicts its length fields")]
    Length(usize),
    #[error("unsupported version and type {0:#x} of key material")]
    Version(u8),
    #[error("key material without its signature")]
    Sign,
    #[error("key material without a key")]
    NoKey,
    /// The keys are wrapped with an indexed key instead of the default one.
    #[error("key material wrapped with key {0} instead of the default key")]
    WrappingKey(u32),
    /// Unsupported combination of cipher and authentication.
    #[error("unsupported cipher {cipher} with authentication {auth}")]
    Cipher {
        /// Number of the cipher.
        cipher: u8,
        /// Number of the authentication.
        auth: u8,
    },
    #[error("unsupported stream encapsulation {0}")]
    Stream(u8),
    #[error("unsupported salt of {0} bytes")]
    Salt(usize),
    #[error("unsupported keys of {0} bytes")]
    KeyLength(usize),
}

/// Parsed message, with its keys still wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyMaterial<'a> {
    pub keys: KeySelection,
    pub mode: CipherMode,
    pub key_length: KeyLength,
    pub salt: [u8; SALT],
    pub wrapped: &'a [u8],
}

impl<'a> KeyMaterial<'a> {
    /// Parses a message.
    ///
    /// # Errors
    /// [`KeyMaterialError`] if a field has an invalid or unsupported value.
    pub fn parse(bytes: &'a [u8]) -> Result<KeyMaterial<'a>, KeyMaterialError> {
        let wrong_length = KeyMaterialError::Length(bytes.len());
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else {
            return Err(wrong_length);
        };
        let &[
            version,
            s0,
            s1,
            flags,
            k0,
            k1,
            k2,
            k3,
            cipher,
            auth,
            stream,
            _,
            _,
            _,
            salt,
            key,
        ] = head;
        if version != VERSION_AND_TYPE {
            return Err(KeyMaterialError::Version(version));
        }
        if [s0, s1] != SIGN {
            return Err(KeyMaterialError::Sign);
        }
        let keys = match flags & 3 {
            1 => KeySelection::Even,
            2 => KeySelection::Odd,
            3 => KeySelection::Both,
            _ => return Err(KeyMaterialError::NoKey),
        };
        let wrapping = u32::from_be_bytes([k0, k1, k2, k3]);
        if wrapping != 0 {
            return Err(KeyMaterialError::WrappingKey(wrapping));
        }
        let mode = match (cipher, auth) {
            (CIPHER_CTR, AUTH_NONE) => CipherMode::Ctr,
            (CIPHER_GCM, AUTH_GCM) => CipherMode::Gcm,
            _ => return Err(KeyMaterialError::Cipher { cipher, auth }),
        };
        if stream != STREAM_SRT {
            return Err(KeyMaterialError::Stream(stream));
        }
        let (salt_length, length) = (usize::from(salt) * 4, usize::from(key) * 4);
        if salt_length != SALT {
            return Err(KeyMaterialError::Salt(salt_length));
        }
        let key_length = KeyLength::of_bytes(length).ok_or(KeyMaterialError::KeyLength(length))?;
        let Some((&salt, wrapped)) = rest.split_first_chunk::<SALT>() else {
            return Err(wrong_length);
        };
        if wrapped.len() != keys.count() * length + OVERHEAD {
            return Err(wrong_length);
        }
        Ok(KeyMaterial {
            keys,
            mode,
            key_length,
            salt,
            wrapped,
        })
    }

    /// Returns the encoded message.
    pub fn write(&self) -> Vec<u8> {
        let (cipher, auth) = match self.mode {
            CipherMode::Gcm => (CIPHER_GCM, AUTH_GCM),
            CipherMode::Ctr | CipherMode::Auto => (CIPHER_CTR, AUTH_NONE),
        };
        let mut bytes = Vec::with_capacity(HEAD + SALT + self.wrapped.len());
        bytes.push(VERSION_AND_TYPE);
        bytes.extend_from_slice(&SIGN);
        bytes.extend_from_slice(&[self.keys as u8, 0, 0, 0, 0, cipher, auth, STREAM_SRT]);
        let key_words = (self.key_length.bytes() / 4) as u8;
        bytes.extend_from_slice(&[0, 0, 0, (SALT / 4) as u8, key_words]);
        bytes.extend_from_slice(&self.salt);
        bytes.extend_from_slice(self.wrapped);
        bytes
    }

    /// Unwraps the keys, one after the other. Returns `None` if they were wrapped with another
    /// passphrase.
    pub fn unwrap(&self, passphrase: &Passphrase) -> Option<Vec<u8>> {
        let wrapping = passphrase.wrapping_key(&self.salt, self.key_length);
        self.unwrap_with(&wrapping)
    }

    pub(super) fn unwrap_with(&self, wrapping: &[u8]) -> Option<Vec<u8>> {
        key_wrap::unwrap(wrapping, self.wrapped)
    }
}
