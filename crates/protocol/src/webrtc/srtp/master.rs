//! What session keys are made of.

use super::profile::SrtpProfile;

/// The most bytes of a master key and of a master salt.
pub(super) const KEY_MAX: usize = 32;
pub(super) const SALT_MAX: usize = 14;

/// A master key with its salt.
#[derive(Clone, Copy)]
pub(super) struct Master {
    key: [u8; KEY_MAX],
    salt: [u8; SALT_MAX],
    profile: SrtpProfile,
}

impl Master {
    /// Of bytes that are as long as the profile demands.
    pub(super) fn new(profile: SrtpProfile, key: &[u8], salt: &[u8]) -> Master {
        let mut master = Master {
            key: [0; KEY_MAX],
            salt: [0; SALT_MAX],
            profile,
        };
        master.key[..profile.key_length()].copy_from_slice(key);
        master.salt[..profile.salt_length()].copy_from_slice(salt);
        master
    }

    pub(super) fn profile(&self) -> SrtpProfile {
        self.profile
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key[..self.profile.key_length()]
    }

    pub(super) fn salt(&self) -> &[u8] {
        &self.salt[..self.profile.salt_length()]
    }
}
