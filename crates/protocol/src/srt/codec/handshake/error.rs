//! What can be wrong with a handshake.

use thiserror::Error;

/// What is wrong with a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HandshakeError {
    /// The fixed part is cut.
    #[error("a handshake of {0} bytes, shorter than its fixed part")]
    Short(usize),
    /// The bytes behind the fixed part are no words.
    #[error("extensions of {0} bytes, which are not whole words")]
    Unaligned(usize),
    /// An extension claims more words than there are.
    #[error("extension {kind} claims {claimed} words, {left} are left")]
    ExtensionLength {
        /// Its type.
        kind: u16,
        /// How many words it claims.
        claimed: u16,
        /// How many there are.
        left: usize,
    },
    /// An extension has a length that its type never has.
    #[error("extension {kind} with {length} bytes")]
    ExtensionContent {
        /// Its type.
        kind: u16,
        /// Its bytes.
        length: usize,
    },
    /// A text that is not UTF-8.
    #[error("extension {0} is no text")]
    NoText(u16),
    /// An extension that may stand once stands twice.
    #[error("extension {0} stands twice")]
    Repeated(u16),
    /// The extension field announces an extension that is not there.
    #[error("extension {0} is announced and missing")]
    Missing(u16),
    /// The MTU is none.
    #[error("an MTU of {0} bytes")]
    Mtu(u32),
    /// The flow window is none.
    #[error("a flow window of {0} packets")]
    FlowWindow(u32),
    /// The initial sequence number has its first bit set.
    #[error("an initial sequence number of {0:#x}")]
    InitialSequence(u32),
    /// The socket id is 0.
    #[error("a peer without socket id")]
    NoSocketId,
    /// The listener knows version 5 by its version, but did not set the mark of it.
    #[error("an induction of version 5 with {0:#x} for its mark")]
    Magic(u16),
    /// It is of a kind that cannot come here.
    #[error("a handshake of type {0} out of turn")]
    OutOfTurn(i32),
}
