//! Transport attributes of a session description.

use super::setup::Setup;
use crate::fingerprint::Fingerprint;

/// Transport attributes, at session level or at media level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransportAttributes {
    /// `a=ice-ufrag`.
    pub ufrag: Option<String>,
    /// `a=ice-pwd`.
    pub pwd: Option<String>,
    /// `a=ice-options:trickle`: more candidates may follow.
    pub trickle: bool,
    /// `a=fingerprint`.
    pub fingerprints: Vec<Fingerprint>,
    /// `a=setup`.
    pub setup: Option<Setup>,
}
