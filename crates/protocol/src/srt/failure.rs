//! The ways in which a client can fail.

use super::codec::handshake::Rejection;
use super::handshake;
use crate::connect_failure::ConnectFailure;
use crate::failure::reasons;

reasons! {
    /// Why a client failed: a row of the report.
    Failure with Connect(ConnectFailure) {
        /// The handshake came to no end in time: nothing was answered.
        HandshakeTimeout = "handshake_timeout";
        /// The handshake came to no end in time, after a first answer.
        HandshakeUnfinished = "handshake_unfinished";
        /// The server and the client have different passphrases (SRT_REJ_BADSECRET).
        WrongPassphrase = "wrong_passphrase";
        /// The server demands a passphrase, and the client has none (SRT_REJ_UNSECURE).
        PassphraseMissing = "passphrase_missing";
        /// The client has a passphrase, and the server has none (SRT_REJ_UNSECURE).
        PassphraseUnexpected = "passphrase_unexpected";
        /// The ciphers of both do not fit together (SRT_REJ_CRYPTO).
        CipherMismatch = "cipher_mismatch";
        /// The server has no such stream (SRT_REJX_NOTFOUND).
        StreamNotFound = "stream_not_found";
        /// The server wants to know who asks (SRT_REJX_UNAUTHORIZED).
        Unauthorized = "unauthorized";
        /// The client may not (SRT_REJX_FORBIDDEN).
        Forbidden = "forbidden";
        /// The server is overloaded, or serves as many as it can (SRT_REJX_OVERLOAD,
        /// SRT_REJ_RESOURCE, SRT_REJ_BACKLOG and the like).
        Overloaded = "overloaded";
        /// The server rejected the connection without saying more (SRT_REJ_PEER): so libsrt does
        /// where its application refuses a stream id.
        RejectedByPeer = "rejected_by_peer";
        /// The server rejected the connection for another reason, whose code and name the detail
        /// says.
        RejectedOther = "rejected_other";
        /// The server speaks a version of SRT, or of its handshake, that the client does not.
        Version = "version";
        /// What the server said in the handshake is malformed.
        MalformedHandshake = "malformed_handshake";
        /// The server is set up for something else than live media in messages, which the detail
        /// names.
        OtherMode = "other_mode";
        /// The server shut the connection down within the handshake.
        ShutdownInHandshake = "shutdown_in_handshake";
        /// The connection stood, and then no media came in time.
        NoMedia = "no_media";
        /// What the server sends is no transport stream.
        NotTs = "not_ts";
        /// Video came for 2 s or more without a random-access point with which a decoder can begin:
        /// the viewer saw no picture. Told when the client leaves.
        NoPicture = "no_picture";
        /// Media came to a stop, though the server goes on saying that it is there.
        MediaStopped = "media_stopped";
        /// Nothing came from the server any more, no keepalive either.
        PeerIdle = "peer_idle";
        /// The server shut the connection down while media came. Not with `leave: at_end`.
        PeerShutdown = "peer_shutdown";
        /// The server shut the connection down before any media.
        ShutdownBeforeMedia = "shutdown_before_media";
        /// The server shut the connection down while the client published.
        ShutdownInPublishing = "shutdown_in_publishing";
        /// What came cannot be decrypted.
        Undecryptable = "undecryptable";
        /// The server sent so many malformed packets that it speaks something else.
        MalformedPackets = "malformed_packets";
        /// Nobody is at the server's port any more.
        Reset = "reset";
        /// Nothing can be sent.
        NotSent = "not_sent";
    }
}

impl Failure {
    /// Of a handshake.
    pub(super) fn of_handshake(failure: &handshake::Failure) -> Failure {
        use handshake::Failure as From;
        match failure {
            From::TimedOut { heard: false } => Failure::HandshakeTimeout,
            From::TimedOut { heard: true } => Failure::HandshakeUnfinished,
            From::Rejected(rejection) => Failure::of_rejection(*rejection),
            From::WrongPassphrase => Failure::WrongPassphrase,
            From::PassphraseMissing => Failure::PassphraseMissing,
            From::PassphraseMissingAtPeer => Failure::PassphraseUnexpected,
            From::CipherMismatch => Failure::CipherMismatch,
            From::Version(_) | From::OldVersion(_) => Failure::Version,
            From::Malformed(_) | From::CookieDraw => Failure::MalformedHandshake,
            From::Congestion | From::MessageApi | From::Filter => Failure::OtherMode,
            From::Shutdown => Failure::ShutdownInHandshake,
        }
    }

    /// Of a reason that the server gives.
    fn of_rejection(rejection: Rejection) -> Failure {
        match rejection.code() {
            1404 | 2404 => Failure::StreamNotFound,
            1401 | 2401 => Failure::Unauthorized,
            1403 | 2403 => Failure::Forbidden,
            1003 | 1005 | 1402 | 2402 | 2503 | 2507 => Failure::Overloaded,
            1002 => Failure::RejectedByPeer,
            1008 => Failure::Version,
            1012..=1014 => Failure::OtherMode,
            _ => Failure::RejectedOther,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect_failure::tests::assert_reasons;

    #[test]
    fn names_are_stable_words_and_differ() {
        let all = Failure::ALL.iter();
        assert_reasons(all.map(|failure| (failure.name(), failure.doc())));
    }

    #[test]
    fn every_reason_of_libsrt_is_one() {
        for &rejection in Rejection::ALL {
            let failure = Failure::of_rejection(rejection);
            assert!(Failure::ALL.contains(&failure), "{rejection}");
        }
        let found = Failure::of_rejection(Rejection::new(2404));
        assert_eq!(found, Failure::StreamNotFound);
    }
}
