//! States, events, failures and counts of a peer.

use std::net::SocketAddr;

use thiserror::Error;

use crate::srtp::SrtpCounts;

/// State of a peer connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerState {
    /// The remote description is not set yet.
    New,
    /// ICE checks candidate pairs.
    Checking,
    /// The DTLS handshake is in progress.
    Handshaking,
    /// ICE and DTLS are complete: media can flow.
    Connected,
    Failed,
    /// One side closed the connection.
    Closed,
}

/// Event of a peer connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// ICE selected a candidate pair, or a better one than before.
    IceConnected {
        /// Remote address to which media is sent.
        remote: SocketAddr,
    },
    /// The DTLS handshake is complete, and the remote certificate matches the remote description.
    /// Media can flow.
    DtlsConnected,
    /// The remote side closed the connection. Unless DTLS state was kept, the alert is accepted
    /// without authentication, but only from the address to which media is sent.
    Closed,
    Failed(PeerFailure),
}

/// Failure of a peer connection.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PeerFailure {
    #[error("ICE timed out without a working candidate pair")]
    IceTimedOut,
    /// The remote side stopped answering checks (RFC 7675).
    #[error("ICE consent expired: the peer no longer answers checks")]
    ConsentExpired,
    #[error("the DTLS handshake timed out")]
    DtlsTimedOut,
    #[error("DTLS: {0}")]
    DtlsFailed(String),
    #[error("the DTLS certificate does not match the fingerprint in the session description")]
    FingerprintMismatch,
    #[error("DTLS completed without SRTP: the peer did not answer use_srtp (RFC 5764, 4.1)")]
    NoSrtpProfile,
    /// The user fragment or password of the description is invalid.
    #[error("invalid ice-ufrag or ice-pwd")]
    BadIceCredentials,
    /// The description has no fingerprint with a collision-resistant hash.
    #[error("no fingerprint with SHA-256 or a longer hash")]
    UnusableFingerprint,
    /// An answer's `a=setup` is `actpass`, so that no side would start DTLS.
    #[error("a=setup:actpass in an answer: no side starts DTLS")]
    BadSetup,
    #[error("the fingerprint changed in a later session description")]
    FingerprintChanged,
}

impl PeerFailure {
    /// Returns a stable name for reports.
    pub fn name(&self) -> &'static str {
        match self {
            PeerFailure::IceTimedOut => "ice_timed_out",
            PeerFailure::ConsentExpired => "ice_consent_expired",
            PeerFailure::DtlsTimedOut => "dtls_timed_out",
            PeerFailure::DtlsFailed(_) => "dtls_failed",
            PeerFailure::FingerprintMismatch => "dtls_fingerprint",
            PeerFailure::NoSrtpProfile => "no_srtp_profile",
            PeerFailure::BadIceCredentials
            | PeerFailure::UnusableFingerprint
            | PeerFailure::BadSetup
            | PeerFailure::FingerprintChanged => "bad_transport",
        }
    }
}

/// Classification of a received datagram.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// STUN or DTLS, processed by the peer.
    Handled,
    /// Media by its first bytes (RFC 7983, RFC 5761); not inspected further.
    Rtp,
    /// An authentic RTCP compound, decrypted.
    Rtcp(&'a [u8]),
    /// Malformed, unauthentic, repeated, of an unknown protocol or address, or beyond a limit, and
    /// counted; or received without keys.
    Dropped,
}

/// Counts of datagrams that a peer handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounts {
    /// Malformed or incomplete STUN messages.
    pub stun_malformed: u64,
    /// STUN messages that failed authentication, or belong to another session.
    pub stun_unauthentic: u64,
    /// STUN messages from addresses beyond the number that is remembered.
    pub stun_of_too_many_addresses: u64,
    /// DTLS datagrams from addresses that ICE has not seen, or without DTLS state.
    pub dtls_unexpected: u64,
    /// RTCP compounds received before keys were available.
    pub rtcp_without_keys: u64,
    /// All other RTCP compounds.
    pub rtcp: SrtpCounts,
    /// Datagrams of unknown protocols (RFC 7983).
    pub foreign: u64,
}
