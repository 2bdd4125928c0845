//! Key exchange of a handshake: keys offered to the peer, or accepted from it.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::cipher_mode::{CipherMode, GcmVariant};
use super::decryptor::Decryptor;
use super::encryptor::Encryptor;
use super::key_material::{KeyMaterial, KeySelection, SALT};
use super::key_wrap;
use super::negotiated_keys::NegotiatedKeys;
use super::secret::Secret;
use crate::codec::handshake::KmState;

/// Key that was generated here and is offered to the peer.
pub(crate) struct KeyOffer {
    negotiated: NegotiatedKeys,
    seed: u64,
    message: Vec<u8>,
}

impl KeyOffer {
    /// Generates a key.
    pub(crate) fn new(secret: &Secret, seed: u64) -> KeyOffer {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut salt = [0; SALT];
        random.fill_bytes(&mut salt);
        let mut bytes = vec![0; secret.key_length.bytes()];
        random.fill_bytes(&mut bytes);
        let wrapping = secret.passphrase.wrapping_key(&salt, secret.key_length);
        let mode = match secret.cipher {
            CipherMode::Auto => CipherMode::Ctr,
            decided => decided,
        };
        let wrapped = key_wrap::wrap(&wrapping, &bytes);
        let message = KeyMaterial {
            keys: KeySelection::Even,
            mode,
            key_length: secret.key_length,
            salt,
            wrapped: &wrapped,
        }
        .write();
        let negotiated = NegotiatedKeys {
            passphrase: secret.passphrase.clone(),
            mode,
            key_length: secret.key_length,
            salt,
            wrapping,
            keys: KeySelection::Even,
            bytes,
        };
        KeyOffer {
            negotiated,
            seed: random.next_u64(),
            message,
        }
    }

    /// Message that carries the key.
    pub(crate) fn message(&self) -> &[u8] {
        &self.message
    }

    /// Returns both halves after a peer with that SRT version has accepted the key.
    pub(crate) fn accept(self, peer_version: u32) -> (Encryptor, Decryptor) {
        build_halves(&self.negotiated, &self.message, peer_version, self.seed)
    }
}

/// Accepts keys that the peer generated.
///
/// # Errors
/// The state to answer with.
pub(crate) fn accept_keys(
    secret: Option<&Secret>,
    message: &[u8],
    peer_version: u32,
    seed: u64,
) -> Result<(Encryptor, Decryptor), KmState> {
    let secret = secret.ok_or(KmState::NoSecret)?;
    let read = KeyMaterial::parse(message).map_err(|_| KmState::BadSecret)?;
    if secret.cipher != CipherMode::Auto && secret.cipher != read.mode {
        return Err(KmState::BadCryptoMode);
    }
    let wrapping = secret.passphrase.wrapping_key(&read.salt, read.key_length);
    let bytes = read.unwrap_with(&wrapping).ok_or(KmState::BadSecret)?;
    let negotiated = NegotiatedKeys {
        passphrase: secret.passphrase.clone(),
        mode: read.mode,
        key_length: read.key_length,
        salt: read.salt,
        wrapping,
        keys: read.keys,
        bytes,
    };
    Ok(build_halves(&negotiated, message, peer_version, seed))
}

fn build_halves(
    negotiated: &NegotiatedKeys,
    message: &[u8],
    peer_version: u32,
    seed: u64,
) -> (Encryptor, Decryptor) {
    let variant = GcmVariant::of_peer(peer_version);
    let encryptor = Encryptor::new(negotiated, variant, seed);
    (encryptor, Decryptor::new(negotiated, variant, message))
}
