//! Reasons why a client fails.

use measure::CounterId;

use super::codec::handshake::Rejection;
use super::handshake::HandshakeFailure;
use kit::connect_failure::ConnectFailure;
use kit::failure::reasons;
use kit::metrics as m;
use kit::zapping::counter_of_connect_failure;

reasons! {
    /// Reason why a client failed: a row of the report.
    Failure with Connect(ConnectFailure) {
        /// The server did not answer the handshake in time.
        HandshakeTimeout = "handshake_timeout";
        /// The server answered, but the handshake was not completed in time.
        HandshakeUnfinished = "handshake_unfinished";
        /// The passphrases of server and client differ (SRT_REJ_BADSECRET).
        WrongPassphrase = "wrong_passphrase";
        /// The server requires a passphrase, and the client has none (SRT_REJ_UNSECURE).
        PassphraseMissing = "passphrase_missing";
        /// The client has a passphrase, and the server has none (SRT_REJ_UNSECURE).
        PassphraseUnexpected = "passphrase_unexpected";
        /// The ciphers of server and client differ (SRT_REJ_CRYPTO).
        CipherMismatch = "cipher_mismatch";
        /// The server does not have the stream (SRT_REJX_NOTFOUND).
        StreamNotFound = "stream_not_found";
        /// The server requires authentication (SRT_REJX_UNAUTHORIZED).
        Unauthorized = "unauthorized";
        /// The server denies access (SRT_REJX_FORBIDDEN).
        Forbidden = "forbidden";
        /// The server is overloaded, or has reached its maximum number of connections
        /// (SRT_REJX_OVERLOAD, SRT_REJ_RESOURCE, SRT_REJ_BACKLOG and the like).
        Overloaded = "overloaded";
        /// The server rejected the connection without a specific reason (SRT_REJ_PEER), as libsrt
        /// does if its application refuses a stream id.
        RejectedByPeer = "rejected_by_peer";
        /// The server rejected the connection for another reason. The detail has its code and name.
        RejectedOther = "rejected_other";
        /// The server and the client support different versions of SRT, or of its handshake.
        Version = "version";
        /// The server's handshake is malformed.
        MalformedHandshake = "malformed_handshake";
        /// The server uses another transmission mode (live media, messages or a byte stream), or
        /// requires a packet filter. The detail names the difference.
        OtherMode = "other_mode";
        /// The server shut the connection down during the handshake.
        ShutdownInHandshake = "shutdown_in_handshake";
        /// The connection was established, but no media arrived in time.
        NoMedia = "no_media";
        /// The server's media is not a transport stream.
        NotTs = "not_ts";
        /// Video arrived for 2 s or more without a random-access point at which a decoder can
        /// start: the viewer saw no picture. Reported when the client leaves.
        NoPicture = "no_picture";
        /// Media stopped, although the server still sends other packets.
        MediaStopped = "media_stopped";
        /// The server stopped sending packets, including keep-alives.
        PeerIdle = "peer_idle";
        /// The server shut the connection down while media arrived. Not reported with `leave:
        /// at_end`.
        PeerShutdown = "peer_shutdown";
        /// The server shut the connection down before any media arrived.
        ShutdownBeforeMedia = "shutdown_before_media";
        /// The server shut the connection down while the client published.
        ShutdownInPublishing = "shutdown_in_publishing";
        /// The media cannot be decrypted.
        Undecryptable = "undecryptable";
        /// The client received 1000 malformed packets in a row: the server speaks another protocol.
        MalformedPackets = "malformed_packets";
        /// The server's port became unreachable.
        Reset = "reset";
        /// The client cannot send packets.
        NotSent = "not_sent";
    }
}

impl Failure {
    /// Reason for a failed handshake.
    pub(super) fn from_handshake(failure: &HandshakeFailure) -> Failure {
        match failure {
            HandshakeFailure::TimedOut { got_answer: false } => Failure::HandshakeTimeout,
            HandshakeFailure::TimedOut { got_answer: true } => Failure::HandshakeUnfinished,
            HandshakeFailure::Rejected(rejection) => Failure::from_rejection(*rejection),
            HandshakeFailure::WrongPassphrase => Failure::WrongPassphrase,
            HandshakeFailure::PassphraseMissing => Failure::PassphraseMissing,
            HandshakeFailure::PassphraseMissingAtPeer => Failure::PassphraseUnexpected,
            HandshakeFailure::CipherMismatch => Failure::CipherMismatch,
            HandshakeFailure::Version(_) | HandshakeFailure::OldVersion(_) => Failure::Version,
            HandshakeFailure::Malformed(_) | HandshakeFailure::EqualCookies => {
                Failure::MalformedHandshake
            }
            HandshakeFailure::Congestion
            | HandshakeFailure::MessageApi
            | HandshakeFailure::Filter => Failure::OtherMode,
            HandshakeFailure::Shutdown => Failure::ShutdownInHandshake,
        }
    }

    /// Reason for a rejection by the server.
    fn from_rejection(rejection: Rejection) -> Failure {
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

    /// Returns the counter for channel changes that failed with this reason.
    pub(crate) const fn zap_counter(self) -> CounterId {
        match self {
            Failure::Connect(failure) => counter_of_connect_failure(failure),
            Failure::Overloaded => m::ZAPS_FAILED_503,
            Failure::WrongPassphrase
            | Failure::PassphraseMissing
            | Failure::PassphraseUnexpected
            | Failure::CipherMismatch
            | Failure::StreamNotFound
            | Failure::Unauthorized
            | Failure::Forbidden
            | Failure::RejectedByPeer
            | Failure::RejectedOther => m::ZAPS_FAILED_STATUS,
            Failure::HandshakeTimeout
            | Failure::HandshakeUnfinished
            | Failure::NoMedia
            | Failure::MediaStopped
            | Failure::PeerIdle => m::ZAPS_FAILED_SILENT,
            Failure::NotTs => m::ZAPS_FAILED_NOT_TS,
            Failure::NoPicture => m::ZAPS_FAILED_NO_PICTURE,
            _ => m::ZAPS_FAILED_BROKEN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kit::connect_failure::assert_reasons;

    #[test]
    fn names_are_distinct_lowercase_words() {
        let all = Failure::ALL.iter();
        assert_reasons(all.map(|failure| (failure.name(), failure.doc())));
    }

    #[test]
    fn every_rejection_of_libsrt_has_a_reason() {
        for &rejection in Rejection::ALL {
            let failure = Failure::from_rejection(rejection);
            assert!(Failure::ALL.contains(&failure), "{rejection}");
        }
        let found = Failure::from_rejection(Rejection::new(2404));
        assert_eq!(found, Failure::StreamNotFound);
    }
}
