//! The message that carries the keys of a stream, wrapped (SRT, 3.2.2).

use thiserror::Error;

use super::key_wrap::{self, OVERHEAD};
use super::mode::CipherMode;
use super::secret::{KeyLength, Passphrase};

/// Bytes of the salt.
pub const SALT: usize = 16;

/// Bytes before the salt.
const HEAD: usize = 16;

/// The most bytes of a message: two keys of 256 bits.
pub const MESSAGE_MAX: usize = HEAD + SALT + 2 * 32 + OVERHEAD;

/// Version 1, a message of keys.
const VERSION_AND_TYPE: u8 = 0x12;
/// `HAI` in fifteen bits.
const SIGN: [u8; 2] = [0x20, 0x29];
const CIPHER_CTR: u8 = 2;
const CIPHER_GCM: u8 = 4;
const AUTH_NONE: u8 = 0;
const AUTH_GCM: u8 = 1;
/// What the keys are for: a transport stream over SRT.
const STREAM_SRT: u8 = 2;

/// Which keys a message has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// The even one.
    Even,
    /// The odd one.
    Odd,
    /// Both, the even one first.
    Both,
}

impl Keys {
    /// How many they are.
    pub const fn count(self) -> usize {
        match self {
            Keys::Even | Keys::Odd => 1,
            Keys::Both => 2,
        }
    }

    const fn flags(self) -> u8 {
        match self {
            Keys::Even => 1,
            Keys::Odd => 2,
            Keys::Both => 3,
        }
    }
}

/// Why bytes are no message of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyMaterialError {
    /// It is cut, or has more than it says.
    #[error("key material of {0} bytes, which is not the length that it gives itself")]
    Length(usize),
    /// Another version or type.
    #[error("key material of version and type {0:#x}")]
    Version(u8),
    /// Not the mark.
    #[error("key material without its mark")]
    Sign,
    /// No key is in it.
    #[error("key material without a key")]
    NoKey,
    /// A key that both sides would have to know already.
    #[error("key material wrapped with key {0}")]
    WrappingKey(u32),
    /// A cipher or an authentication that is not known.
    #[error("cipher {cipher} with authentication {auth}")]
    Cipher {
        /// The cipher's number.
        cipher: u8,
        /// The authentication's number.
        auth: u8,
    },
    /// For another kind of stream.
    #[error("key material for streams of kind {0}")]
    Stream(u8),
    /// A salt of another length.
    #[error("a salt of {0} bytes")]
    Salt(usize),
    /// Keys that AES does not have.
    #[error("keys of {0} bytes")]
    KeyLength(usize),
}

/// A message, read but not unwrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyMaterial<'a> {
    /// Which keys it has.
    pub keys: Keys,
    /// For which cipher.
    pub mode: CipherMode,
    /// How long each is.
    pub key_length: KeyLength,
    /// The salt.
    pub salt: [u8; SALT],
    /// The keys, wrapped.
    pub wrapped: &'a [u8],
}

impl<'a> KeyMaterial<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// If any of its fields is not what SRT has there: see [`KeyMaterialError`].
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
            1 => Keys::Even,
            2 => Keys::Odd,
            3 => Keys::Both,
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

    /// The bytes of the message.
    pub fn write(&self) -> Vec<u8> {
        let (cipher, auth) = match self.mode {
            CipherMode::Gcm => (CIPHER_GCM, AUTH_GCM),
            CipherMode::Ctr | CipherMode::Auto => (CIPHER_CTR, AUTH_NONE),
        };
        let mut bytes = Vec::with_capacity(HEAD + SALT + self.wrapped.len());
        bytes.push(VERSION_AND_TYPE);
        bytes.extend_from_slice(&SIGN);
        bytes.extend_from_slice(&[self.keys.flags(), 0, 0, 0, 0, cipher, auth, STREAM_SRT]);
        let key_words = (self.key_length.bytes() / 4) as u8;
        bytes.extend_from_slice(&[0, 0, 0, (SALT / 4) as u8, key_words]);
        bytes.extend_from_slice(&self.salt);
        bytes.extend_from_slice(self.wrapped);
        bytes
    }

    /// The keys, one after the other; none where they were wrapped with another passphrase.
    pub fn unwrap(&self, passphrase: &Passphrase) -> Option<Vec<u8>> {
        let wrapping = passphrase.wrapping_key(&self.salt, self.key_length);
        self.unwrap_with(&wrapping)
    }

    pub(super) fn unwrap_with(&self, wrapping: &[u8]) -> Option<Vec<u8>> {
        key_wrap::unwrap(wrapping, self.wrapped)
    }
}
