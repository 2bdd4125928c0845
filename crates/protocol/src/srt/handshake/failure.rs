//! Why a handshake fails.

use thiserror::Error;

use crate::srt::codec::handshake::{HandshakeError, KmState, Rejection};

/// Why a handshake fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// No answer came that ends it.
    #[error("no answer in time{}", if *heard { ", after a first one" } else { "" })]
    TimedOut {
        /// Whether the peer said anything.
        heard: bool,
    },
    /// The peer rejected it.
    #[error("rejected: {0}")]
    Rejected(Rejection),
    /// Both sides have a passphrase, and they are not the same.
    #[error("wrong passphrase")]
    WrongPassphrase,
    /// The peer has a passphrase, this side has none.
    #[error("the peer demands a passphrase")]
    PassphraseMissing,
    /// This side has a passphrase, the peer has none.
    #[error("the peer has no passphrase")]
    PassphraseMissingAtPeer,
    /// The ciphers are not the same.
    #[error("the peer's cipher is another one")]
    CipherMismatch,
    /// The peer speaks handshakes of another version.
    #[error("the peer's handshakes are of version {0}")]
    Version(u32),
    /// The peer's SRT is older than it may be.
    #[error("the peer's SRT is too old: {0:#08x}")]
    OldVersion(u32),
    /// What the peer said is malformed.
    #[error("malformed handshake: {0}")]
    Malformed(#[from] HandshakeError),
    /// The peer's congestion control is another one: it carries files, or live media.
    #[error("the peer's congestion control is not this side's: one is `live`, the other `file`")]
    Congestion,
    /// The peer carries a stream of bytes, not messages.
    #[error("the peer is in stream mode")]
    MessageApi,
    /// The peer demands a packet filter.
    #[error("the peer demands a packet filter")]
    Filter,
    /// Both sides of a rendezvous drew the same cookie.
    #[error("both sides of the rendezvous drew the same cookie")]
    CookieDraw,
    /// The peer went.
    #[error("the peer closed")]
    Shutdown,
}

impl Failure {
    /// The peer rejected it with that reason; of encryption, what that means to this side.
    pub(super) fn of_rejection(rejection: Rejection, has_passphrase: bool) -> Failure {
        match rejection {
            Rejection::BADSECRET => Failure::WrongPassphrase,
            Rejection::UNSECURE if has_passphrase => Failure::PassphraseMissingAtPeer,
            Rejection::UNSECURE => Failure::PassphraseMissing,
            Rejection::CRYPTO => Failure::CipherMismatch,
            other => Failure::Rejected(other),
        }
    }

    /// No keys were agreed on, for what the state of the one without them says.
    pub(super) fn of_state(state: KmState, at_peer: bool) -> Failure {
        match state {
            KmState::BadCryptoMode => Failure::CipherMismatch,
            KmState::NoSecret if at_peer => Failure::PassphraseMissingAtPeer,
            KmState::NoSecret => Failure::PassphraseMissing,
            KmState::Unsecured if at_peer => Failure::PassphraseMissing,
            KmState::Unsecured => Failure::PassphraseMissingAtPeer,
            KmState::BadSecret | KmState::Securing | KmState::Secured => Failure::WrongPassphrase,
        }
    }

    /// The reason by its number: what is said to the peer, or was said by it.
    pub fn rejection(&self) -> Rejection {
        match self {
            Failure::TimedOut { .. } => Rejection::TIMEOUT,
            Failure::Rejected(rejection) => *rejection,
            Failure::WrongPassphrase => Rejection::BADSECRET,
            Failure::PassphraseMissing | Failure::PassphraseMissingAtPeer => Rejection::UNSECURE,
            Failure::CipherMismatch => Rejection::CRYPTO,
            Failure::Version(_) | Failure::OldVersion(_) => Rejection::VERSION,
            Failure::Malformed(_) => Rejection::ROGUE,
            Failure::Congestion => Rejection::CONGESTION,
            Failure::MessageApi => Rejection::MESSAGEAPI,
            Failure::Filter => Rejection::FILTER,
            Failure::CookieDraw => Rejection::RDVCOOKIE,
            Failure::Shutdown => Rejection::CLOSE,
        }
    }
}
