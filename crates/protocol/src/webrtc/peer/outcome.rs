//! What a peer says.

use std::net::SocketAddr;

use thiserror::Error;

use crate::webrtc::srtp::SrtpCounts;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerState {
    /// The other side's description is not there yet.
    New,
    /// ICE looks for a way.
    Checking,
    /// DTLS agrees on keys.
    Handshaking,
    /// Media can flow.
    Connected,
    /// It failed.
    Failed,
    /// One side closed it.
    Closed,
}

/// Something has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// ICE has found a way, or a better one.
    IceConnected {
        /// The other side's address: where media goes to.
        remote: SocketAddr,
    },
    /// DTLS is through, and the other side has the certificate that its description named. Media
    /// can flow.
    DtlsConnected,
    /// The other side has closed. Unless DTLS was kept, the message that says so is believed
    /// without being authentic; it must come from where media goes to.
    Closed,
    /// It is over. Said once.
    Failed(PeerFailure),
}

/// Why a connection failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PeerFailure {
    /// No check was answered in time.
    #[error("ICE found no way to the other side in time")]
    IceTimedOut,
    /// The other side answers no more (RFC 7675).
    #[error("the other side answers ICE's checks no more")]
    ConsentExpired,
    /// The handshake did not end in time.
    #[error("DTLS was not through in time")]
    DtlsTimedOut,
    /// The handshake went wrong.
    #[error("DTLS: {0}")]
    DtlsFailed(String),
    /// The certificate is another than the description named.
    #[error("the certificate in DTLS is not the one that the session description named")]
    FingerprintMismatch,
    /// The other side protects media by nothing that is known here.
    #[error(
        "DTLS is complete without SRTP: the other side did not answer use_srtp (RFC 5764, 4.1)"
    )]
    NoSrtpProfile,
    /// The description has no user fragment or password as they must be.
    #[error("ice-ufrag or ice-pwd are not as they must be")]
    BadIceCredentials,
    /// The description has no fingerprint of a hash that proves anything.
    #[error("no fingerprint of SHA-256 or a longer hash")]
    UnusableFingerprint,
    /// The description's `a=setup` leaves nobody, or both, to begin.
    #[error("setup says of nobody or of both that they begin with DTLS")]
    BadSetup,
    /// A later description has another certificate.
    #[error("a later session description has another fingerprint")]
    FingerprintChanged,
}

impl PeerFailure {
    /// A stable name for a report's row.
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

/// What a datagram was.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// STUN or DTLS; it is dealt with.
    Handled,
    /// It looks like media (RFC 7983, RFC 5761). It was not looked into.
    Rtp,
    /// A compound of RTCP, authentic and decrypted.
    Rtcp(&'a [u8]),
    /// Nothing was made of it.
    Dropped(Dropped),
}

/// Why a datagram was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// It is not what its first byte says.
    Malformed,
    /// It was not made by the other side.
    Unauthentic,
    /// It came before.
    Replayed,
    /// There are no keys for it yet, or no more.
    NoKeys,
    /// It is nothing that this connection knows, or from an address that ICE has not seen.
    Foreign,
    /// There are as many sources or addresses as may be.
    TooMany,
}

/// What became of all datagrams but media.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounts {
    /// Messages of STUN that were authentic.
    pub stun: u64,
    /// Indications of STUN that keep a path open: they want nothing, and prove nothing (RFC 8445,
    /// 11).
    pub stun_indications: u64,
    /// Messages of STUN that were none, or lacked something.
    pub stun_malformed: u64,
    /// Messages of STUN that were not authentic, or of another session.
    pub stun_unauthentic: u64,
    /// Messages of STUN from more addresses than are remembered.
    pub stun_of_too_many_addresses: u64,
    /// Datagrams of DTLS that were taken in.
    pub dtls: u64,
    /// Datagrams of DTLS from addresses that ICE has not seen, or when DTLS was not there.
    pub dtls_unexpected: u64,
    /// Datagrams of media that nobody had taken before.
    pub rtp: u64,
    /// Compounds of RTCP before there were keys.
    pub rtcp_without_keys: u64,
    /// What became of other compounds of RTCP.
    pub rtcp: SrtpCounts,
    /// Datagrams of no protocol that is known (RFC 7983).
    pub foreign: u64,
}
