//! Protection profiles of SRTP.

/// Protection profile, named as in DTLS (RFC 5764, 4.1.2; RFC 7714, 14.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SrtpProfile {
    /// `SRTP_AEAD_AES_256_GCM`.
    AeadAes256Gcm,
    /// `SRTP_AEAD_AES_128_GCM`.
    AeadAes128Gcm,
    /// `SRTP_AES128_CM_HMAC_SHA1_80`, which every peer must support (RFC 8827, 6.5).
    AesCm128HmacSha1_80,
}

impl SrtpProfile {
    /// All profiles.
    pub const ALL: [SrtpProfile; 3] = [
        SrtpProfile::AeadAes256Gcm,
        SrtpProfile::AeadAes128Gcm,
        SrtpProfile::AesCm128HmacSha1_80,
    ];

    /// Length of a master key and of the encryption keys derived from it, in bytes.
    pub const fn key_length(self) -> usize {
        match self {
            SrtpProfile::AeadAes256Gcm => 32,
            SrtpProfile::AeadAes128Gcm | SrtpProfile::AesCm128HmacSha1_80 => 16,
        }
    }

    /// Length of a salt, in bytes.
    pub const fn salt_length(self) -> usize {
        match self {
            SrtpProfile::AeadAes256Gcm | SrtpProfile::AeadAes128Gcm => 12,
            SrtpProfile::AesCm128HmacSha1_80 => 14,
        }
    }

    /// Length of the authentication tag, in bytes: the overhead of an SRTP packet.
    pub const fn tag_length(self) -> usize {
        match self {
            SrtpProfile::AeadAes256Gcm | SrtpProfile::AeadAes128Gcm => 16,
            SrtpProfile::AesCm128HmacSha1_80 => 10,
        }
    }
}
