//! What is said of the transport, for one section or for all.

use super::setup::Setup;
use crate::webrtc::fingerprint::Fingerprint;

/// Attributes of the transport, at one of the places where they may stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransportLines {
    /// `a=ice-ufrag`.
    pub ufrag: Option<String>,
    /// `a=ice-pwd`.
    pub pwd: Option<String>,
    /// `a=ice-options:trickle`: candidates may follow.
    pub trickle: bool,
    /// `a=fingerprint`.
    pub fingerprints: Vec<Fingerprint>,
    /// `a=setup`.
    pub setup: Option<Setup>,
}
