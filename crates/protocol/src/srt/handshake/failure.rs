//! Reasons why a handshake fails.

use thiserror::Error;

use crate::srt::codec::handshake::{HandshakeError, KmState, Rejection};

/// Reason why a handshake fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// No answer completed the handshake in time.
    #[error("no answer in time{}", if *heard { " after the first one" } else { "" })]
    TimedOut {
        /// True if the peer sent anything.
        heard: bool,
    },
    #[error("rejected: {0}")]
    Rejected(Rejection),
    /// Both sides have a passphrase, but the passphrases differ.
    #[error("wrong passphrase")]
    WrongPassphrase,
    /// The peer has a passphrase, but this side has none.
    #[error("the peer requires a passphrase")]
    PassphraseMissing,
    /// This side has a passphrase, but the peer has none.
    #[error("the peer has no passphrase")]
    PassphraseMissingAtPeer,
    #[error("the peer uses another cipher")]
    CipherMismatch,
    #[error("the peer uses handshake version {0}, which is not supported")]
    Version(u32),
    /// The peer's SRT version is below the minimum.
    #[error("the peer's SRT version is too old: {0:#08x}")]
    OldVersion(u32),
    #[error("malformed handshake: {0}")]
    Malformed(#[from] HandshakeError),
    /// The congestion controls differ: one side carries files, the other live media.
    #[error("the congestion controls differ: one side uses `live`, the other `file`")]
    Congestion,
    /// The peer carries a stream of bytes instead of messages.
    #[error("the peer is in stream mode")]
    MessageApi,
    #[error("the peer requires a packet filter")]
    Filter,
    #[error("both sides of the rendezvous drew the same cookie")]
    CookieDraw,
    #[error("the peer closed the connection")]
    Shutdown,
}

impl Failure {
    /// Failure for a rejection by the peer. For encryption it depends on whether this side has a
    /// passphrase.
    pub(super) fn of_rejection(rejection: Rejection, has_passphrase: bool) -> Failure {
        match rejection {
            Rejection::BADSECRET => Failure::WrongPassphrase,
            Rejection::UNSECURE if has_passphrase => Failure::PassphraseMissingAtPeer,
            Rejection::UNSECURE => Failure::PassphraseMissing,
            Rejection::CRYPTO => Failure::CipherMismatch,
            other => Failure::Rejected(other),
        }
    }

    /// Failure for a key exchange that ended in `state`: the peer's state if `at_peer`, else ours.
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

    /// Rejection reason that is sent to the peer, or was received from it.
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
