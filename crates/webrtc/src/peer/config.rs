//! Configuration of a peer.

use std::sync::Arc;
use std::time::Duration;

use crate::certificate::Certificate;
use crate::sdp::Setup;

#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// DTLS certificate. Peers may share one.
    pub certificate: Arc<Certificate>,
    /// Seed of the ICE credentials, the ICE tie-breaker and those random values of DTLS that can be
    /// seeded. STUN transaction IDs and the elliptic-curve keys of DTLS are not seeded: no decision
    /// depends on them.
    pub seed: u64,
    /// ICE lite: the peer only answers checks, as servers with a public address do. Default: false.
    pub ice_lite: bool,
    /// Timeout for ICE and DTLS together, counted from the remote description. Default: 15 s.
    pub connect_timeout: Duration,
    /// `a=setup` of an answer to an offer that leaves it open. Default: [`Setup::Active`], which
    /// saves a round trip (RFC 8842, 5.3).
    pub answer_setup: Setup,
    /// Keep the DTLS state for an authenticated close, at the cost of some 9 KiB. Default: false;
    /// the state is then dropped once the keys are known. A DTLS server keeps its last flight for
    /// 30 s.
    pub keep_dtls: bool,
}

impl PeerConfig {
    /// Returns the default configuration.
    pub fn new(certificate: Arc<Certificate>, seed: u64) -> PeerConfig {
        PeerConfig {
            certificate,
            seed,
            ice_lite: false,
            connect_timeout: Duration::from_secs(15),
            answer_setup: Setup::Active,
            keep_dtls: false,
        }
    }
}
