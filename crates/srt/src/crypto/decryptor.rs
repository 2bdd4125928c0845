//! Receiving half: decrypts with the key that a packet names, and accepts new keys.

use thiserror::Error;

use super::cipher::StreamKey;
use super::cipher_mode::{CipherMode, GcmVariant};
use super::key_material::{KeyMaterial, SALT};
use super::negotiated_keys::NegotiatedKeys;
use super::parity::Parity;
use super::secret::{KeyLength, Passphrase};
use crate::codec::handshake::KmState;
use crate::codec::packet::DataHeader;

/// Reason why a payload cannot be decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecryptError {
    /// The key was never announced.
    #[error("encrypted with a key that was not announced")]
    NoKey,
    /// The packet was damaged, or is not the peer's (GCM).
    #[error("wrong authentication tag")]
    BadTag,
    /// The payload is not encrypted, although the connection is.
    #[error("not encrypted, although the connection is")]
    Clear,
    /// The payload is longer than a datagram.
    #[error("a payload of {0} bytes is too long")]
    Long(usize),
}

struct Slot {
    salt: [u8; SALT],
    key: StreamKey,
}

/// Receiving half of an encrypted connection.
pub struct Decryptor {
    passphrase: Passphrase,
    mode: CipherMode,
    variant: GcmVariant,
    /// Key that unwraps other keys, with its salt and key length: its derivation takes a
    /// millisecond.
    wrapping: (Vec<u8>, [u8; SALT], KeyLength),
    /// Even and odd key.
    slots: [Option<Slot>; 2],
    /// Last message that was accepted. A repetition is answered without further work.
    last_accepted: Vec<u8>,
    scratch: Vec<u8>,
}

impl std::fmt::Debug for Decryptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decryptor")
            .field("mode", &self.mode)
            .field("even", &self.slots[0].is_some())
            .field("odd", &self.slots[1].is_some())
            .finish_non_exhaustive()
    }
}

/// Maximum payload of [`Decryptor::decrypt_copy`], in bytes.
const PAYLOAD_MAX: usize = 2048;

impl Decryptor {
    pub(super) fn new(
        negotiated: &NegotiatedKeys,
        variant: GcmVariant,
        message: &[u8],
    ) -> Decryptor {
        let wrapping = (
            negotiated.wrapping.clone(),
            negotiated.salt,
            negotiated.key_length,
        );
        let mut decryptor = Decryptor {
            passphrase: negotiated.passphrase.clone(),
            mode: negotiated.mode,
            variant,
            wrapping,
            slots: [None, None],
            last_accepted: message.to_vec(),
            scratch: Vec::with_capacity(PAYLOAD_MAX),
        };
        for (parity, bytes) in negotiated.each() {
            decryptor.set(parity, negotiated.salt, bytes);
        }
        decryptor
    }

    fn set(&mut self, parity: Parity, salt: [u8; SALT], bytes: &[u8]) {
        let key = StreamKey::new(bytes, self.mode);
        self.slots[parity as usize] = Some(Slot { salt, key });
    }

    pub fn mode(&self) -> CipherMode {
        self.mode
    }

    /// Decrypts a payload in place. Returns the length of the media at its start.
    ///
    /// # Errors
    /// [`DecryptError`]. The content of the payload is then undefined.
    pub fn decrypt(&self, header: &DataHeader, payload: &mut [u8]) -> Result<usize, DecryptError> {
        let parity = Parity::of(header.key).ok_or(DecryptError::Clear)?;
        let slot = &self.slots[parity as usize];
        let slot = slot.as_ref().ok_or(DecryptError::NoKey)?;
        let decrypted = slot.key.decrypt(&slot.salt, header, self.variant, payload);
        decrypted.ok_or(DecryptError::BadTag)
    }

    /// Decrypts a payload into an internal buffer, which is allocated once.
    ///
    /// # Errors
    /// [`DecryptError`].
    pub fn decrypt_copy(
        &mut self,
        header: &DataHeader,
        payload: &[u8],
    ) -> Result<&[u8], DecryptError> {
        if payload.len() > PAYLOAD_MAX {
            return Err(DecryptError::Long(payload.len()));
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend_from_slice(payload);
        let decrypted = self.decrypt(header, &mut scratch);
        self.scratch = scratch;
        decrypted.map(|length| &self.scratch[..length])
    }

    /// Accepts new keys from a KMREQ within the connection, and appends the content of the KMRSP:
    /// the same message, or the state (SRT, 3.2.2). Returns `false` if the keys were rejected.
    pub fn key_request(&mut self, message: &[u8], reply: &mut Vec<u8>) -> bool {
        if message != self.last_accepted {
            if let Err(state) = self.accept_keys(message) {
                reply.extend_from_slice(&state.to_wire());
                return false;
            }
            self.last_accepted.clear();
            self.last_accepted.extend_from_slice(message);
        }
        reply.extend_from_slice(message);
        true
    }

    fn accept_keys(&mut self, message: &[u8]) -> Result<(), KmState> {
        let read = KeyMaterial::parse(message).map_err(|_| KmState::BadSecret)?;
        if read.mode != self.mode {
            return Err(KmState::BadCryptoMode);
        }
        if (self.wrapping.1, self.wrapping.2) != (read.salt, read.key_length) {
            let wrapping = self.passphrase.wrapping_key(&read.salt, read.key_length);
            self.wrapping = (wrapping, read.salt, read.key_length);
        }
        let keys = read
            .unwrap_with(&self.wrapping.0)
            .ok_or(KmState::BadSecret)?;
        for (parity, key) in read.keys.split(&keys, read.key_length) {
            self.set(parity, read.salt, key);
        }
        Ok(())
    }
}
