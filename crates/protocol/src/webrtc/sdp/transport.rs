//! How to reach a peer and whom to expect there: the same for all media of a connection.

use super::candidate::Candidate;
use super::description::SessionDescription;
use super::error::{SdpError, SdpReason};
use super::setup::Setup;
use crate::webrtc::fingerprint::Fingerprint;

/// The most candidates of a bundle that are gathered from its sections.
const CANDIDATES_MAX: usize = 64;

/// What one side says of its transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transport {
    /// ICE's user fragment.
    pub ufrag: String,
    /// ICE's password.
    pub pwd: String,
    /// It only answers checks (RFC 8445, 2.5).
    pub lite: bool,
    /// What its certificate is known by. One of several is enough (RFC 8122, 5).
    pub fingerprints: Vec<Fingerprint>,
    /// Who begins with DTLS.
    pub setup: Setup,
    /// Where it can perhaps be reached. More may follow.
    pub candidates: Vec<Candidate>,
    /// No more candidates follow.
    pub end_of_candidates: bool,
}

impl SessionDescription {
    /// Leaves this side's addresses in the first section alone: the others share its transport (RFC
    /// 9143, 7.2), and Janus complains of each address that it is told again.
    pub fn tell_addresses_once(&mut self) {
        let taken = self.media.iter_mut().filter(|media| !media.rejected);
        for media in taken.skip(1) {
            media.candidates.clear();
            media.end_of_candidates = false;
        }
    }

    /// The transport that all media share: that of the section that the bundle names first (RFC
    /// 9143, 7.3.2), or else of the first one that is not refused, completed by what is said for
    /// all sections. Candidates of the bundle's other sections are added. Without `a=setup` it is
    /// the protocol's default (RFC 4145, 4).
    ///
    /// # Errors
    /// Parts of it are missing.
    pub fn transport(&self) -> Result<Transport, SdpError> {
        let mut taken = self.media.iter().filter(|media| !media.rejected);
        let tagged = self.bundle.first().and_then(|mid| {
            let mut taken = taken.clone();
            taken.find(|media| media.mid == *mid)
        });
        let section = tagged.or_else(|| taken.next());
        let section = section.ok_or(SdpReason::NoMedia.of_all())?;
        let (own, all) = (section.transport.clone(), &self.transport);
        let ufrag = own.ufrag.or_else(|| all.ufrag.clone());
        let pwd = own.pwd.or_else(|| all.pwd.clone());
        let (Some(ufrag), Some(pwd)) = (ufrag, pwd) else {
            return Err(SdpReason::NoIce.of_all());
        };
        let fingerprints = match own.fingerprints.is_empty() {
            false => own.fingerprints,
            true => all.fingerprints.clone(),
        };
        if fingerprints.is_empty() {
            return Err(SdpReason::NoFingerprint.of_all());
        }
        let mut candidates = section.candidates.clone();
        for media in &self.media {
            if !media.rejected && self.bundle.contains(&media.mid) {
                let news = media.candidates.iter().take(CANDIDATES_MAX);
                for candidate in news {
                    if candidates.len() < CANDIDATES_MAX && !candidates.contains(candidate) {
                        candidates.push(candidate.clone());
                    }
                }
            }
        }
        Ok(Transport {
            ufrag,
            pwd,
            lite: self.ice_lite,
            fingerprints,
            setup: own.setup.or(all.setup).unwrap_or(Setup::Active),
            candidates,
            end_of_candidates: section.end_of_candidates,
        })
    }
}
