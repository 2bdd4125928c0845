//! Encryption and decryption in place, with one key of a stream.

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::{EncryptingKey, EncryptionContext};
use aws_lc_rs::iv::FixedLength;

use super::cipher_mode::{CipherMode, GcmVariant};
use super::key_material::SALT;
use super::key_wrap;
use super::secret::KeyLength;
use crate::codec::packet::DataHeader;

/// Length of the tag behind a payload in GCM, in bytes.
pub const GCM_TAG: usize = 16;

/// Key of a stream, prepared for its cipher.
pub(super) enum StreamKey {
    Ctr(Box<EncryptingKey>),
    Gcm(Box<LessSafeKey>),
}

impl StreamKey {
    /// Prepares a key for GCM if `mode` requires it, else for AES-CTR.
    pub(super) fn new(key: &[u8], mode: CipherMode) -> StreamKey {
        if mode == CipherMode::Gcm {
            let algorithm = match KeyLength::of_bytes(key.len()) {
                Some(KeyLength::Aes192) => &aead::AES_192_GCM,
                Some(KeyLength::Aes256) => &aead::AES_256_GCM,
                _ => &aead::AES_128_GCM,
            };
            let key = UnboundKey::new(algorithm, key).expect("keys have a length of AES");
            return StreamKey::Gcm(Box::new(LessSafeKey::new(key)));
        }
        let key = EncryptingKey::ctr(key_wrap::unbound(key));
        StreamKey::Ctr(Box::new(key.expect("AES has a counter mode")))
    }

    /// Applies counter mode, which is its own inverse.
    fn count(key: &EncryptingKey, salt: &[u8; SALT], sequence: u32, payload: &mut [u8]) {
        let context = EncryptionContext::Iv128(FixedLength::from(counter(salt, sequence)));
        key.less_safe_encrypt(payload, context)
            .expect("counter mode takes any length");
    }

    /// Encrypts a payload. Returns the tag in GCM.
    pub(super) fn encrypt(
        &self,
        salt: &[u8; SALT],
        header: &DataHeader,
        variant: GcmVariant,
        payload: &mut [u8],
    ) -> Option<[u8; GCM_TAG]> {
        let sequence = header.sequence.value();
        match self {
            StreamKey::Ctr(key) => {
                StreamKey::count(key, salt, sequence, payload);
                None
            }
            StreamKey::Gcm(key) => {
                let (nonce, aad) = (nonce(salt, sequence, variant), aad(header, variant));
                let tag = key
                    .seal_in_place_separate_tag(nonce, Aad::from(aad), payload)
                    .expect("a packet is short enough for GCM");
                Some(tag.as_ref().try_into().expect("tags have 16 bytes"))
            }
        }
    }

    /// Decrypts a payload. Returns the length of the media, or `None` if the tag is wrong.
    pub(super) fn decrypt(
        &self,
        salt: &[u8; SALT],
        header: &DataHeader,
        variant: GcmVariant,
        payload: &mut [u8],
    ) -> Option<usize> {
        let sequence = header.sequence.value();
        match self {
            StreamKey::Ctr(key) => {
                StreamKey::count(key, salt, sequence, payload);
                Some(payload.len())
            }
            StreamKey::Gcm(key) => {
                let (nonce, aad) = (nonce(salt, sequence, variant), aad(header, variant));
                let opened = key.open_in_place(nonce, Aad::from(aad), payload).ok()?;
                Some(opened.len())
            }
        }
    }
}

/// Initial counter of a packet (SRT, 6.2.2): the salt without its last two bytes, XORed on its last
/// four with the sequence number, and 16 bits that count blocks.
fn counter(salt: &[u8; SALT], sequence: u32) -> [u8; 16] {
    let salt = u128::from_be_bytes(*salt) >> 16 << 16;
    (salt ^ u128::from(sequence) << 16).to_be_bytes()
}

/// Nonce of a packet: the first 12 bytes of the salt, XORed on the last four with the sequence
/// number. Before libsrt 1.5.4, the first 12 bytes of the AES-CTR counter.
fn nonce(salt: &[u8; SALT], sequence: u32, variant: GcmVariant) -> Nonce {
    let made = match variant {
        GcmVariant::Before154 => counter(salt, sequence),
        GcmVariant::Current => {
            (u128::from_be_bytes(*salt) ^ u128::from(sequence) << 32).to_be_bytes()
        }
    };
    let nonce = made.first_chunk().expect("16 bytes are more than 12");
    Nonce::assume_unique_for_key(*nonce)
}

/// Additional authenticated data: the header of the first transmission.
fn aad(header: &DataHeader, variant: GcmVariant) -> [u8; 16] {
    let first = DataHeader {
        retransmitted: false,
        ..*header
    };
    let mut bytes = first.write();
    if variant == GcmVariant::Before154 {
        for word in bytes.as_chunks_mut::<4>().0 {
            word.reverse();
        }
    }
    bytes
}
