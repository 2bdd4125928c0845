//! Transport parameters of a peer, the same for all media of a connection.

use super::candidate::Candidate;
use super::description::SessionDescription;
use super::error::{SdpError, SdpReason};
use super::setup::Setup;
use crate::fingerprint::Fingerprint;

/// Maximum number of candidates collected from the sections of a bundle.
const CANDIDATES_MAX: usize = 64;

/// Transport parameters of one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportParameters {
    /// ICE user fragment.
    pub ufrag: String,
    /// ICE password.
    pub pwd: String,
    /// ICE lite: the peer only answers checks (RFC 8445, 2.5).
    pub lite: bool,
    /// Certificate fingerprints, of which one must match (RFC 8122, 5).
    pub fingerprints: Vec<Fingerprint>,
    /// DTLS role.
    pub setup: Setup,
    /// Candidates known at this time; more may follow.
    pub candidates: Vec<Candidate>,
    pub end_of_candidates: bool,
}

impl SessionDescription {
    /// Keeps this side's candidates only in the first accepted section: the other sections share
    /// its transport (RFC 9143, 7.2), and Janus logs a warning for each repeated candidate.
    pub fn keep_first_candidates(&mut self) {
        let accepted = self.media.iter_mut().filter(|media| !media.rejected);
        for media in accepted.skip(1) {
            media.candidates.clear();
            media.end_of_candidates = false;
        }
    }

    /// Returns the transport that all media share: that of the section that the bundle names first
    /// (RFC 9143, 7.3.2), otherwise that of the first section that is not rejected. Missing
    /// attributes are taken from session level. Candidates of the other sections of the bundle are
    /// added. Without `a=setup`, the protocol's default applies (RFC 4145, 4).
    ///
    /// # Errors
    /// ICE credentials or fingerprints are missing, or no section is accepted.
    pub fn transport(&self) -> Result<TransportParameters, SdpError> {
        let mut accepted = self.media.iter().filter(|media| !media.rejected);
        let tagged = self.bundle.first().and_then(|mid| {
            let mut accepted = accepted.clone();
            accepted.find(|media| media.mid == *mid)
        });
        let section = tagged.or_else(|| accepted.next());
        let section = section.ok_or(SdpReason::NoMedia.without_line())?;
        let (own, session) = (section.transport.clone(), &self.transport);
        let ufrag = own.ufrag.or_else(|| session.ufrag.clone());
        let pwd = own.pwd.or_else(|| session.pwd.clone());
        let (Some(ufrag), Some(pwd)) = (ufrag, pwd) else {
            return Err(SdpReason::NoIce.without_line());
        };
        let fingerprints = match own.fingerprints.is_empty() {
            false => own.fingerprints,
            true => session.fingerprints.clone(),
        };
        if fingerprints.is_empty() {
            return Err(SdpReason::NoFingerprint.without_line());
        }
        let mut candidates = section.candidates.clone();
        for media in &self.media {
            if !media.rejected && self.bundle.contains(&media.mid) {
                let new = media.candidates.iter().take(CANDIDATES_MAX);
                for candidate in new {
                    if candidates.len() < CANDIDATES_MAX && !candidates.contains(candidate) {
                        candidates.push(candidate.clone());
                    }
                }
            }
        }
        Ok(TransportParameters {
            ufrag,
            pwd,
            lite: self.ice_lite,
            fingerprints,
            setup: own.setup.or(session.setup).unwrap_or(Setup::Active),
            candidates,
            end_of_candidates: section.end_of_candidates,
        })
    }
}
