//! Reasons why a handshake fails.

use thiserror::Error;

use crate::codec::handshake::{HandshakeError, KmState, Rejection};

/// Reason why a handshake fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HandshakeFailure {
    /// No answer completed the handshake in time.
    #[error("no answer in time{}", if *got_answer { " after the first one" } else { "" })]
    TimedOut {
        /// True if the peer sent anything.
        got_answer: bool,
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
    EqualCookies,
    #[error("the peer closed the connection")]
    Shutdown,
}

impl HandshakeFailure {
    /// Failure for a rejection by the peer. For encryption it depends on whether this side has a
    /// passphrase.
    pub(super) fn from_rejection(rejection: Rejection, has_passphrase: bool) -> HandshakeFailure {
        match rejection {
            Rejection::BADSECRET => HandshakeFailure::WrongPassphrase,
            Rejection::UNSECURE if has_passphrase => HandshakeFailure::PassphraseMissingAtPeer,
            Rejection::UNSECURE => HandshakeFailure::PassphraseMissing,
            Rejection::CRYPTO => HandshakeFailure::CipherMismatch,
            other => HandshakeFailure::Rejected(other),
        }
    }

    /// Failure for a key exchange that ended in `state`: the peer's state if `at_peer`, else ours.
    pub(super) fn from_key_state(state: KmState, at_peer: bool) -> HandshakeFailure {
        match state {
            KmState::BadCryptoMode => HandshakeFailure::CipherMismatch,
            KmState::NoSecret if at_peer => HandshakeFailure::PassphraseMissingAtPeer,
            KmState::NoSecret => HandshakeFailure::PassphraseMissing,
            KmState::Unsecured if at_peer => HandshakeFailure::PassphraseMissing,
            KmState::Unsecured => HandshakeFailure::PassphraseMissingAtPeer,
            KmState::BadSecret | KmState::Securing | KmState::Secured => {
                HandshakeFailure::WrongPassphrase
            }
        }
    }

    /// Rejection reason that is sent to the peer, or was received from it.
    pub fn rejection(&self) -> Rejection {
        match self {
            HandshakeFailure::TimedOut { .. } => Rejection::TIMEOUT,
            HandshakeFailure::Rejected(rejection) => *rejection,
            HandshakeFailure::WrongPassphrase => Rejection::BADSECRET,
            HandshakeFailure::PassphraseMissing | HandshakeFailure::PassphraseMissingAtPeer => {
                Rejection::UNSECURE
            }
            HandshakeFailure::CipherMismatch => Rejection::CRYPTO,
            HandshakeFailure::Version(_) | HandshakeFailure::OldVersion(_) => Rejection::VERSION,
            HandshakeFailure::Malformed(_) => Rejection::ROGUE,
            HandshakeFailure::Congestion => Rejection::CONGESTION,
            HandshakeFailure::MessageApi => Rejection::MESSAGEAPI,
            HandshakeFailure::Filter => Rejection::FILTER,
            HandshakeFailure::EqualCookies => Rejection::RDVCOOKIE,
            HandshakeFailure::Shutdown => Rejection::CLOSE,
        }
    }
}
