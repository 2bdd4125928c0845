//! Which cipher.

/// Which cipher of AES.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CipherMode {
    /// What the peer takes; AES-CTR where this side decides.
    #[default]
    Auto,
    /// Counter mode, which any peer knows.
    Ctr,
    /// Galois/counter mode, which authenticates payloads: libsrt from 1.5.2 on, where it was built
    /// for it.
    Gcm,
}

/// How GCM is made up. libsrt changed it, and goes by the peer's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcmForm {
    /// Of libsrt 1.5.2 and 1.5.3: the header is authenticated in the order of the host, and the
    /// nonce is the beginning of what AES-CTR would take.
    Before154,
    /// From libsrt 1.5.4 on.
    Current,
}

impl GcmForm {
    /// For a peer of that version.
    pub fn of_peer(version: u32) -> GcmForm {
        match version {
            0..=0x0001_0503 => GcmForm::Before154,
            _ => GcmForm::Current,
        }
    }
}
