//! Encryption (SRT, 6): a passphrase makes a key that wraps the keys of the stream. Packets are
//! encrypted with AES in counter mode, or in GCM with peers from libsrt 1.5.2 on.
//!
//! Keys come out of a seed, so that a run can be repeated: what is encrypted here is a test's
//! media, and no secret.

mod agreed;
mod agreement;
mod cipher;
mod decryptor;
mod encryptor;
pub mod key_material;
mod key_wrap;
mod mode;
mod secret;
#[cfg(test)]
mod tests;

pub(crate) use agreement::{Offer, take};
pub use cipher::GCM_TAG;
pub use decryptor::{Decryptor, Undecryptable};
pub use encryptor::{Encryptor, Refresh};
pub use mode::{CipherMode, GcmForm};
pub use secret::{KeyLength, Passphrase, PassphraseError, Secret};
