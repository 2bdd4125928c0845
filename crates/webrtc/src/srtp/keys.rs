//! SRTP keys of a connection, as exported from DTLS.

use std::fmt;

use super::cipher::SessionKeys;
use super::key_derivation::{RTCP, RTP};
use super::master_key::MasterKey;
use super::payload_start::PayloadStartDecryptor;
use super::profile::SrtpProfile;
use super::rtcp::{RtcpOpener, RtcpSealer};
use super::rtp::{RtpOpener, RtpSealer};

/// Master keys of both directions. Openers and sealers are created from them when needed, because
/// expanded keys take ten times as much memory.
#[derive(Clone, Copy)]
pub struct SrtpKeys {
    local: MasterKey,
    remote: MasterKey,
}

impl fmt::Debug for SrtpKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SrtpKeys")
            .field("profile", &self.profile())
            .finish_non_exhaustive()
    }
}

impl SrtpKeys {
    /// Reads the keying material exported from DTLS: client key, server key, client salt, server
    /// salt (RFC 5764, 4.2). Returns `None` if its length does not match the profile.
    pub fn from_exported(
        profile: SrtpProfile,
        material: &[u8],
        is_dtls_client: bool,
    ) -> Option<SrtpKeys> {
        let (key, salt) = (profile.key_length(), profile.salt_length());
        if material.len() != 2 * (key + salt) {
            return None;
        }
        let (keys, salts) = material.split_at(2 * key);
        let client = MasterKey::new(profile, &keys[..key], &salts[..salt]);
        let server = MasterKey::new(profile, &keys[key..], &salts[salt..]);
        let (local, remote) = match is_dtls_client {
            true => (client, server),
            false => (server, client),
        };
        Some(SrtpKeys { local, remote })
    }

    pub fn profile(&self) -> SrtpProfile {
        self.local.profile
    }

    /// Creates an opener for RTP of the other side.
    pub fn rtp_opener(&self) -> RtpOpener {
        RtpOpener::new(&SessionKeys::derive(&self.remote, RTP))
    }

    /// Creates a decryptor for the first payload bytes of the other side's packets.
    pub fn payload_start(&self) -> PayloadStartDecryptor {
        PayloadStartDecryptor::new(SessionKeys::derive(&self.remote, RTP))
    }

    /// Creates a sealer for RTP of this side. Two sealers must not seal the same source, because
    /// the same key and nonce would protect different packets.
    pub fn rtp_sealer(&self) -> RtpSealer {
        RtpSealer::new(&SessionKeys::derive(&self.local, RTP))
    }

    /// Creates an opener for RTCP of the other side.
    pub fn rtcp_opener(&self) -> RtcpOpener {
        RtcpOpener::new(SessionKeys::derive(&self.remote, RTCP))
    }

    /// Creates a sealer for RTCP of this side. There must be only one.
    pub fn rtcp_sealer(&self) -> RtcpSealer {
        RtcpSealer::new(SessionKeys::derive(&self.local, RTCP), 1)
    }
}
