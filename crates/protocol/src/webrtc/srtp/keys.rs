//! The keys of a connection, as DTLS gives them.

use std::fmt;

use super::cipher::{Kind, SessionKeys};
use super::master::Master;
use super::payload_start::PayloadStart;
use super::profile::SrtpProfile;
use super::rtcp::{RtcpOpener, RtcpSealer};
use super::rtp::{RtpOpener, RtpSealer};

/// The master keys of both directions. What opens and seals packets is made of it when it is
/// needed: the expanded keys are ten times as large.
#[derive(Clone, Copy)]
pub struct SrtpKeys {
    local: Master,
    remote: Master,
}

impl fmt::Debug for SrtpKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SrtpKeys")
            .field("profile", &self.profile())
            .finish_non_exhaustive()
    }
}

impl SrtpKeys {
    /// Out of what DTLS exports: the client's key, the server's, the client's salt, the server's
    /// (RFC 5764, 4.2). `None` where that has another length than the profile demands.
    pub fn exported(
        profile: SrtpProfile,
        material: &[u8],
        is_dtls_client: bool,
    ) -> Option<SrtpKeys> {
        let (key, salt) = (profile.key_length(), profile.salt_length());
        if material.len() != 2 * (key + salt) {
            return None;
        }
        let (keys, salts) = material.split_at(2 * key);
        let client = Master::new(profile, &keys[..key], &salts[..salt]);
        let server = Master::new(profile, &keys[key..], &salts[salt..]);
        Some(match is_dtls_client {
            true => SrtpKeys {
                local: client,
                remote: server,
            },
            false => SrtpKeys {
                local: server,
                remote: client,
            },
        })
    }

    /// Which ciphers.
    pub fn profile(&self) -> SrtpProfile {
        self.local.profile()
    }

    /// What opens media of the other side.
    pub fn rtp_opener(&self) -> RtpOpener {
        RtpOpener::new(&self.remote)
    }

    /// Decrypts the first bytes of payloads of the other side.
    pub fn payload_start(&self) -> PayloadStart {
        PayloadStart::new(SessionKeys::derive(&self.remote, Kind::Rtp))
    }

    /// What seals media of this side. No source may be sealed by two of them: the same key and
    /// nonce would protect different packets.
    pub fn rtp_sealer(&self) -> RtpSealer {
        RtpSealer::new(&self.local)
    }

    /// What opens RTCP of the other side.
    pub fn rtcp_opener(&self) -> RtcpOpener {
        RtcpOpener::new(&self.remote)
    }

    /// What seals RTCP of this side: there is to be one of it.
    pub fn rtcp_sealer(&self) -> RtcpSealer {
        RtcpSealer::new(&self.local)
    }
}
