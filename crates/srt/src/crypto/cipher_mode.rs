//! Cipher modes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Cipher that encrypts (`SRTO_CRYPTOMODE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Cipher")]
pub enum CipherMode {
    /// The cipher of the peer; AES-CTR if the client decides.
    #[default]
    Auto,
    /// AES-CTR, which every peer supports.
    Ctr,
    /// AES-GCM, which also detects damaged and forged packets: libsrt 1.5.2 and later, if built
    /// with it.
    Gcm,
}

/// Variant of GCM. libsrt changed it, and selects it by the peer's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcmVariant {
    /// libsrt 1.5.2 and 1.5.3: the header is authenticated in host byte order, and the nonce is the
    /// beginning of the AES-CTR counter.
    Before154,
    /// libsrt 1.5.4 and later.
    Current,
}

impl GcmVariant {
    /// Variant for a peer of that version.
    pub fn of_peer(version: u32) -> GcmVariant {
        match version {
            0..=0x0001_0503 => GcmVariant::Before154,
            _ => GcmVariant::Current,
        }
    }
}
