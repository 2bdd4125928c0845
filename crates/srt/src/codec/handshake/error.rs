//! Errors of malformed handshakes.

use thiserror::Error;

/// Reason why a handshake is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HandshakeError {
    #[error("handshake of {0} bytes is shorter than its fixed part")]
    Short(usize),
    #[error("extensions of {0} bytes are not whole words")]
    Unaligned(usize),
    #[error("extension {kind} claims {claimed} words, but only {left} are left")]
    ExtensionLength {
        /// Extension type.
        kind: u16,
        /// Claimed length in words.
        claimed: u16,
        /// Available words.
        left: usize,
    },
    /// Extension with a length that is invalid for its type.
    #[error("extension {kind} has an invalid length of {length} bytes")]
    ExtensionContent {
        /// Extension type.
        kind: u16,
        /// Length in bytes.
        length: usize,
    },
    #[error("extension {0} is not valid UTF-8")]
    InvalidUtf8(u16),
    /// Repeated extension that is allowed only once.
    #[error("extension {0} is repeated")]
    Repeated(u16),
    /// The extension field announces an extension that is absent.
    #[error("extension {0} is announced, but missing")]
    Missing(u16),
    #[error("invalid MTU of {0} bytes")]
    Mtu(u32),
    #[error("invalid flow window of {0} packets")]
    FlowWindow(u32),
    /// The initial sequence number has its top bit set.
    #[error("invalid initial sequence number {0:#x}")]
    InitialSequence(u32),
    #[error("the peer's socket id is 0")]
    NoSocketId,
    /// The listener's induction has version 5, but not the magic number.
    #[error("version 5 induction has {0:#x} instead of the magic number")]
    Magic(u16),
    /// Handshake of a type that is invalid in the current state.
    #[error("unexpected handshake of type {0}")]
    UnexpectedType(i32),
}
