//! Master key and master salt.

use super::profile::SrtpProfile;

/// Maximum length of a master key and of a master salt, in bytes.
pub(super) const KEY_MAX: usize = 32;
pub(super) const SALT_MAX: usize = 14;

/// Master key with its salt.
#[derive(Clone, Copy)]
pub(super) struct MasterKey {
    key: [u8; KEY_MAX],
    salt: [u8; SALT_MAX],
    pub(super) profile: SrtpProfile,
}

impl MasterKey {
    /// Copies key and salt, whose lengths must match the profile.
    pub(super) fn new(profile: SrtpProfile, key: &[u8], salt: &[u8]) -> MasterKey {
        let mut master = MasterKey {
            key: [0; KEY_MAX],
            salt: [0; SALT_MAX],
            profile,
        };
        master.key[..profile.key_length()].copy_from_slice(key);
        master.salt[..profile.salt_length()].copy_from_slice(salt);
        master
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key[..self.profile.key_length()]
    }

    pub(super) fn salt(&self) -> &[u8] {
        &self.salt[..self.profile.salt_length()]
    }
}
