//! How a peer is to be.

use std::sync::Arc;
use std::time::Duration;

use crate::webrtc::certificate::Certificate;
use crate::webrtc::sdp::Setup;

/// How a peer is to be.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// What it shows in DTLS. Peers may share one.
    pub certificate: Arc<Certificate>,
    /// Its ICE credentials and tie-breaker and what of DTLS can be chosen. Not chosen by it are
    /// STUN's transaction numbers and DTLS's elliptic-curve keys: no choice depends on them.
    pub seed: u64,
    /// It only answers ICE's checks, as servers do that have a public address. Default: no.
    pub ice_lite: bool,
    /// After how long a flight of DTLS is sent again for the first time; then it doubles. Default:
    /// 50 ms. RFC 6347 (4.2.4.1) has a second, and lets others be chosen where round trips are
    /// shorter: what is measured here shall not be one lost datagram.
    pub dtls_first_retransmission: Duration,
    /// How long ICE and DTLS may take together, from when the other side's description is there.
    /// Default: 15 s.
    pub connect_timeout: Duration,
    /// What an answer says where the offer leaves it open. Default: [`Setup::Active`] (RFC 8842,
    /// 5.3: it saves a round trip).
    pub answer_setup: Setup,
    /// Whether DTLS is kept for a close in order, at the price of some 9 KiB. Default: no; then it
    /// is dropped once there are keys. A server of DTLS keeps its last flight for 30 s.
    pub keep_dtls: bool,
}

impl PeerConfig {
    /// The defaults.
    pub fn new(certificate: Arc<Certificate>, seed: u64) -> PeerConfig {
        PeerConfig {
            certificate,
            seed,
            ice_lite: false,
            dtls_first_retransmission: Duration::from_millis(50),
            connect_timeout: Duration::from_secs(15),
            answer_setup: Setup::Active,
            keep_dtls: false,
        }
    }
}
