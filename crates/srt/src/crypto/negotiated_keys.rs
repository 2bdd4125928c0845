//! Negotiated keys, from which both halves of an encrypted connection are built.

use super::cipher_mode::CipherMode;
use super::key_material::{KeySelection, SALT};
use super::parity::Parity;
use super::secret::{KeyLength, Passphrase};

/// Initial state of both halves.
pub(super) struct NegotiatedKeys {
    pub(super) passphrase: Passphrase,
    pub(super) mode: CipherMode,
    pub(super) key_length: KeyLength,
    pub(super) salt: [u8; SALT],
    pub(super) wrapping: Vec<u8>,
    pub(super) keys: KeySelection,
    pub(super) bytes: Vec<u8>,
}

impl NegotiatedKeys {
    /// Negotiated keys, each with its parity.
    pub(super) fn each(&self) -> impl Iterator<Item = (Parity, &[u8])> {
        self.keys.split(&self.bytes, self.key_length)
    }
}
