//! Offers made by this side.

use super::codec::Codec;
use super::description::{Direction, HeaderExtension, MediaKind, MediaSection, SessionDescription};
use super::feedback::FeedbackTypes;
use super::source::LocalSource;
use super::transport::TransportParameters;

/// A media section of an offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedMedia {
    pub kind: MediaKind,
    /// Direction as seen by this side.
    pub direction: Direction,
    /// Codecs in order of preference. See [`super::known`].
    pub codecs: Vec<Codec>,
    /// Header extensions by URI. The extensions of all sections are numbered from 1 in order of
    /// first appearance: sections of one transport must use the same ID for the same extension (RFC
    /// 9143, 9.2).
    pub extensions: Vec<String>,
    /// Source to send.
    pub source: Option<LocalSource>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferConfig {
    /// Session ID, below 2^63 (RFC 8829, 5.2.1).
    pub session_id: u64,
    /// Media sections. Their index becomes their mid.
    pub media: Vec<OfferedMedia>,
    /// Feedback to offer.
    pub feedback: FeedbackTypes,
}

impl SessionDescription {
    /// Creates the offer of a peer with that transport.
    pub fn offer(config: &OfferConfig, transport: &TransportParameters) -> SessionDescription {
        let mut offer = SessionDescription {
            session_id: config.session_id,
            version: 2,
            ice_lite: transport.lite,
            extmap_allow_mixed: true,
            ..SessionDescription::default()
        };
        let mut known: Vec<&String> = Vec::new();
        for uri in config.media.iter().flat_map(|media| &media.extensions) {
            if !known.contains(&uri) {
                known.push(uri);
            }
        }
        for (index, media) in config.media.iter().enumerate() {
            let mut section = MediaSection::new(media.kind, &index.to_string());
            section.direction = media.direction;
            section.codecs = media.codecs.clone();
            let numbered = known.iter().zip(1..);
            let used = numbered.filter(|(uri, _)| media.extensions.contains(uri));
            let extensions = used.map(|(uri, id)| HeaderExtension {
                id,
                uri: (*uri).clone(),
            });
            section.extensions = extensions.collect();
            config.feedback.add_to_offer(&mut section);
            if let Some(source) = media.source.as_ref().filter(|_| media.direction.sends()) {
                source.add_to_section(&mut section);
            }
            section.set_transport(transport);
            offer.bundle.push(section.mid.clone());
            offer.media.push(section);
        }
        offer
    }
}

impl MediaSection {
    /// Sets the transport attributes of a section.
    pub(super) fn set_transport(&mut self, transport: &TransportParameters) {
        self.transport.ufrag = Some(transport.ufrag.clone());
        self.transport.pwd = Some(transport.pwd.clone());
        self.transport.trickle = !transport.end_of_candidates;
        self.transport.fingerprints = transport.fingerprints.clone();
        self.transport.setup = Some(transport.setup);
        self.candidates = transport.candidates.clone();
        self.end_of_candidates = transport.end_of_candidates;
    }
}
