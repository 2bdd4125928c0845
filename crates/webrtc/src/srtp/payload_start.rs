//! Decryption of the first bytes of a payload.
//!
//! All profiles encrypt in counter mode, so any part of a payload can be decrypted without the
//! rest. The result is not authenticated, because authentication needs the whole packet.

use aws_lc_rs::cipher::EncryptingKey;

use super::cipher::{SessionKeys, counter_block, nonce};
use super::index::estimate_index;
use super::key_derivation::{BLOCK_LENGTH, apply_keystream, counter_mode};
use super::packet::RtpParts;
use super::profile::SrtpProfile;
use super::sources::Sources;

/// GCM encrypts the payload from the second counter block on. The first block encrypts the tag
/// (NIST SP 800-38D, 7.1).
const GCM_FIRST_BLOCK: u8 = 2;

/// Decrypts the first payload bytes of packets of one direction.
#[derive(Debug)]
pub struct PayloadStartDecryptor {
    encryption: Box<EncryptingKey>,
    keys: SessionKeys,
    /// Highest index of each source.
    sources: Sources<u64>,
}

impl PayloadStartDecryptor {
    pub(super) fn new(keys: SessionKeys) -> PayloadStartDecryptor {
        PayloadStartDecryptor {
            encryption: Box::new(counter_mode(keys.key())),
            keys,
            sources: Sources::default(),
        }
    }

    /// Decrypts the first `N` bytes of a packet's payload. The packet may be truncated after them.
    /// Returns `None` if they are missing or if there are too many sources.
    pub fn decrypt<const N: usize>(&mut self, packet: &[u8]) -> Option<[u8; N]> {
        let parts = RtpParts::parse(packet).ok()?;
        let mut start: [u8; N] = *packet.get(parts.header_length..)?.first_chunk()?;
        let highest = self.sources.state(parts.ssrc).ok()?;
        let index = estimate_index(*highest, parts.sequence);
        *highest = index.max(*highest);
        apply_keystream(&self.encryption, self.block(parts.ssrc, index), &mut start);
        Some(start)
    }

    fn block(&self, ssrc: u32, index: u64) -> [u8; BLOCK_LENGTH] {
        match self.keys.profile {
            SrtpProfile::AesCm128HmacSha1_80 => counter_block(&self.keys.salt, ssrc, index),
            SrtpProfile::AeadAes128Gcm | SrtpProfile::AeadAes256Gcm => {
                let salt = self.keys.salt.first_chunk().expect("GCM's is shorter");
                let mut block = [0; BLOCK_LENGTH];
                block[..12].copy_from_slice(&nonce(salt, ssrc, index));
                block[BLOCK_LENGTH - 1] = GCM_FIRST_BLOCK;
                block
            }
        }
    }
}
