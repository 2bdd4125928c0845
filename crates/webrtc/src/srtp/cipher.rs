//! Session keys of one direction of RTP or RTCP, and their operations on bytes.

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::cipher::EncryptingKey;
use aws_lc_rs::hmac;

use super::error::SrtpError;
use super::key_derivation::{BLOCK_LENGTH, Label, apply_keystream, counter_mode, derive};
use super::master_key::{KEY_MAX, MasterKey, SALT_MAX};
use super::profile::SrtpProfile;
use super::tag::Tag;

/// Lengths in bytes: of the authentication key (RFC 3711, 5.2), and of the nonce and tag of GCM.
const AUTHENTICATION_KEY_LENGTH: usize = 20;
const NONCE_LENGTH: usize = 12;
const GCM_TAG_LENGTH: usize = 16;

/// Derived session keys. They take a tenth of the memory of expanded keys.
#[derive(Clone, Copy)]
pub(super) struct SessionKeys {
    key: [u8; KEY_MAX],
    /// Unused with GCM, which authenticates with `key`.
    authentication: [u8; AUTHENTICATION_KEY_LENGTH],
    /// Followed by zeros if the profile's salt is shorter.
    pub(super) salt: [u8; SALT_MAX],
    pub(super) profile: SrtpProfile,
}

impl std::fmt::Debug for SessionKeys {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SessionKeys")
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}

impl SessionKeys {
    pub(super) fn derive(
        master: &MasterKey,
        [encryption, authentication, salt]: [Label; 3],
    ) -> SessionKeys {
        let profile = master.profile;
        let derive = |label, out: &mut [u8]| derive(master.key(), master.salt(), label, out);
        let mut keys = SessionKeys::zero(profile);
        derive(encryption, &mut keys.key[..profile.key_length()]);
        derive(salt, &mut keys.salt[..profile.salt_length()]);
        if profile == SrtpProfile::AesCm128HmacSha1_80 {
            derive(authentication, &mut keys.authentication);
        }
        keys
    }

    /// Session keys of GCM from given bytes, whose lengths must match the profile.
    #[cfg(test)]
    pub(super) fn from_gcm(profile: SrtpProfile, key: &[u8], salt: &[u8]) -> SessionKeys {
        let mut keys = SessionKeys::zero(profile);
        keys.key[..profile.key_length()].copy_from_slice(key);
        keys.salt[..profile.salt_length()].copy_from_slice(salt);
        keys
    }

    fn zero(profile: SrtpProfile) -> SessionKeys {
        SessionKeys {
            key: [0; KEY_MAX],
            authentication: [0; AUTHENTICATION_KEY_LENGTH],
            salt: [0; SALT_MAX],
            profile,
        }
    }

    /// Encryption key.
    pub(super) fn key(&self) -> &[u8] {
        &self.key[..self.profile.key_length()]
    }
}

/// Expanded session keys, which seal and open packets. Expanding them takes a fifth of a
/// microsecond.
pub(super) enum Cipher {
    Counter {
        encryption: Box<EncryptingKey>,
        authentication: Box<hmac::Key>,
        salt: [u8; SALT_MAX],
    },
    Gcm {
        key: Box<LessSafeKey>,
        salt: [u8; NONCE_LENGTH],
        profile: SrtpProfile,
    },
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Cipher")
            .field("profile", &self.profile())
            .finish_non_exhaustive()
    }
}

impl Cipher {
    pub(super) fn of(keys: &SessionKeys) -> Cipher {
        let profile = keys.profile;
        let key = keys.key();
        let algorithm = match profile {
            SrtpProfile::AesCm128HmacSha1_80 => {
                let sha1 = hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY;
                return Cipher::Counter {
                    encryption: Box::new(counter_mode(key)),
                    authentication: Box::new(hmac::Key::new(sha1, &keys.authentication)),
                    salt: keys.salt,
                };
            }
            SrtpProfile::AeadAes128Gcm => &AES_128_GCM,
            SrtpProfile::AeadAes256Gcm => &AES_256_GCM,
        };
        let key = UnboundKey::new(algorithm, key).expect("a profile's key is one of AES");
        let salt = keys.salt.first_chunk().expect("GCM's is shorter");
        Cipher::Gcm {
            key: Box::new(LessSafeKey::new(key)),
            salt: *salt,
            profile,
        }
    }

    pub(super) fn profile(&self) -> SrtpProfile {
        match self {
            Cipher::Counter { .. } => SrtpProfile::AesCm128HmacSha1_80,
            Cipher::Gcm { profile, .. } => *profile,
        }
    }
}

/// Initial block of counter mode (RFC 3711, 4.1.1). The index has 48 bits.
#[inline]
pub(super) fn counter_block(salt: &[u8; 14], ssrc: u32, index: u64) -> [u8; BLOCK_LENGTH] {
    let mut block = [0; BLOCK_LENGTH];
    block[..14].copy_from_slice(salt);
    let mixed = u128::from(ssrc) << 64 | u128::from(index << 16);
    (u128::from_be_bytes(block) ^ mixed).to_be_bytes()
}

/// Nonce of GCM. RTP has a 48-bit index where RTCP has two zero bytes and a 32-bit index (RFC 7714,
/// 8.1 and 9.1). All parts are two bytes closer to the start than in a counter block.
#[inline]
pub(super) fn nonce(salt: &[u8; NONCE_LENGTH], ssrc: u32, index: u64) -> [u8; NONCE_LENGTH] {
    let mut shifted = [0; SALT_MAX];
    shifted[2..].copy_from_slice(salt);
    let [_, _, nonce @ .., _, _] = counter_block(&shifted, ssrc, index);
    nonce
}

/// Encrypts with GCM in place. Returns the authentication tag.
#[inline]
pub(super) fn seal_gcm(
    key: &LessSafeKey,
    salt: &[u8; NONCE_LENGTH],
    ssrc: u32,
    index: u64,
    associated_data: &[u8],
    payload: &mut [u8],
) -> Tag {
    let tag = key
        .seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce(salt, ssrc, index)),
            Aad::from(associated_data),
            payload,
        )
        .expect("a datagram is shorter than what GCM can take");
    Tag::from_digest(tag.as_ref(), GCM_TAG_LENGTH)
}

/// Authenticates and decrypts with GCM. `sealed` is the ciphertext followed by its tag; `out` has
/// the length of the ciphertext.
#[inline]
pub(super) fn open_gcm(
    key: &LessSafeKey,
    salt: &[u8; NONCE_LENGTH],
    ssrc: u32,
    index: u64,
    associated_data: &[u8],
    sealed: &[u8],
    out: &mut [u8],
) -> Result<(), SrtpError> {
    let (ciphertext, tag) = sealed.split_at(sealed.len() - GCM_TAG_LENGTH);
    key.open_separate_gather(
        Nonce::assume_unique_for_key(nonce(salt, ssrc, index)),
        Aad::from(associated_data),
        ciphertext,
        tag,
        out,
    )
    .map_err(|_| SrtpError::Unauthentic)
}

/// Encrypts or decrypts in counter mode, in place.
#[inline]
pub(super) fn apply_counter_mode(
    key: &EncryptingKey,
    salt: &[u8; 14],
    ssrc: u32,
    index: u64,
    bytes: &mut [u8],
) {
    apply_keystream(key, counter_block(salt, ssrc, index), bytes);
}

/// Returns the authentication tag of these parts in sequence.
#[inline]
pub(super) fn authenticate(key: &hmac::Key, parts: &[&[u8]]) -> Tag {
    let mut context = hmac::Context::with_key(key);
    for part in parts {
        context.update(part);
    }
    Tag::from_digest(
        context.sign().as_ref(),
        SrtpProfile::AesCm128HmacSha1_80.tag_length(),
    )
}

/// Compares a tag in constant time.
#[inline]
pub(super) fn verify_tag(tag: &Tag, other: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(tag, other).is_ok()
}
