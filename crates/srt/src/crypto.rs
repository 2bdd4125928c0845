//! Encryption (SRT, 6): a key derived from a passphrase wraps the keys of the stream. Packets are
//! encrypted with AES in counter mode, or in GCM with peers from libsrt 1.5.2 on.
//!
//! Keys are derived from a seed, so that a run can be repeated: the payload is test media, which is
//! not secret.

mod cipher;
mod cipher_mode;
mod decryptor;
mod encryptor;
mod key_exchange;
pub mod key_material;
mod key_wrap;
mod negotiated_keys;
mod parity;
mod secret;
#[cfg(test)]
mod tests;

pub use cipher::GCM_TAG;
pub use cipher_mode::{CipherMode, GcmVariant};
pub use decryptor::{DecryptError, Decryptor};
pub use encryptor::{Encryptor, Refresh};
pub(crate) use key_exchange::{KeyOffer, accept_keys};
pub use secret::{KeyLength, Passphrase, PassphraseError, Secret};
