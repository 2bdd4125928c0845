//! Cipher modes.

/// Mode of AES.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CipherMode {
    /// The mode that the peer uses, or AES-CTR if this side decides.
    #[default]
    Auto,
    /// Counter mode, which every peer supports.
    Ctr,
    /// Galois/counter mode, which authenticates payloads: libsrt 1.5.2 and later, if built with it.
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
