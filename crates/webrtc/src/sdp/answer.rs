//! Answers made by this side (RFC 8829, 5.3).

use super::codec::known;
use super::description::{Direction, MediaKind, MediaSection, SessionDescription};
use super::feedback::FeedbackTypes;
use super::source::LocalSource;
use super::transport::TransportParameters;

/// Parts of an offer that an answer accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerConfig {
    /// Session ID of this side.
    pub session_id: u64,
    /// Session version, incremented with each answer of a session.
    pub version: u64,
    /// True to receive media.
    pub receive: bool,
    /// Sources to send. Each is assigned to the first section of its kind that has no source yet
    /// and that the other side receives.
    pub sources: Vec<(MediaKind, LocalSource)>,
    /// Names of accepted codecs; empty to accept all known ones.
    pub codecs: Vec<String>,
    /// URIs of accepted header extensions; empty to accept all offered ones.
    pub extensions: Vec<String>,
    /// Accepted feedback.
    pub feedback: FeedbackTypes,
    /// Accept a data channel section, as far as its transport is concerned: a server may offer it
    /// first and alone, and later media over the same transport (RFC 8841). Default: false.
    pub accept_data: bool,
}

impl AnswerConfig {
    /// Receives everything that can be counted, and sends nothing.
    pub fn receive_all(session_id: u64) -> AnswerConfig {
        AnswerConfig {
            session_id,
            version: 2,
            receive: true,
            sources: Vec::new(),
            codecs: Vec::new(),
            extensions: Vec::new(),
            feedback: FeedbackTypes::default(),
            accept_data: false,
        }
    }

    fn accepts_codec(&self, kind: MediaKind, name: &str) -> bool {
        let known = match kind {
            MediaKind::Audio => known::AUDIO,
            MediaKind::Video => known::VIDEO,
            _ => return false,
        };
        let matches = |other: &str| other.eq_ignore_ascii_case(name);
        match &self.codecs[..] {
            [] => known.iter().any(|other| matches(other)),
            some => matches("rtx") || some.iter().any(|other| matches(other)),
        }
    }
}

impl SessionDescription {
    /// Creates the answer to this offer, for a peer with that transport. The answer has a section
    /// for each offered one, in the same order (RFC 3264, 6). It rejects data channels unless
    /// `accept_data` is set, sections without an accepted codec, and sections that do not share the
    /// transport of the first one.
    pub fn answer(
        &self,
        config: &AnswerConfig,
        transport: &TransportParameters,
    ) -> SessionDescription {
        let mut answer = SessionDescription {
            session_id: config.session_id,
            version: config.version,
            ice_lite: transport.lite,
            extmap_allow_mixed: self.extmap_allow_mixed,
            ..SessionDescription::default()
        };
        let mut sources = config.sources.clone();
        for offered in &self.media {
            let mut section = MediaSection::new(offered.kind, &offered.mid);
            section.protocol = offered.protocol.clone();
            section.formats = offered.formats.clone();
            let shares =
                self.bundle.contains(&offered.mid) || answer.media.iter().all(|one| one.rejected);
            if !offered.rejected && shares {
                accept_section(offered, config, &mut sources, &mut section);
            }
            let data = offered.kind == MediaKind::Application && config.accept_data;
            let accepts_data = data && !offered.rejected && shares;
            section.rejected =
                !accepts_data && !section.codecs.iter().any(|codec| !codec.has_name("rtx"));
            if section.rejected {
                section.direction = Direction::Inactive;
                section.codecs = offered.codecs.first().cloned().into_iter().collect();
                section.extensions.clear();
            } else {
                section.set_transport(transport);
                // Sections of one transport list its addresses once (RFC 9143, 10.1.2); servers
                // complain about repeated ones.
                let is_bundled = self.bundle.contains(&offered.mid);
                if is_bundled && !answer.bundle.is_empty() {
                    section.candidates.clear();
                    section.end_of_candidates = false;
                }
                if self.bundle.contains(&offered.mid) {
                    answer.bundle.push(section.mid.clone());
                }
            }
            answer.media.push(section);
        }
        answer
    }
}

/// Copies the accepted parts of an offered section to the answer's section.
fn accept_section(
    offered: &MediaSection,
    config: &AnswerConfig,
    sources: &mut Vec<(MediaKind, LocalSource)>,
    section: &mut MediaSection,
) {
    let accepts = |name: &str| config.accepts_codec(offered.kind, name);
    let codecs = offered.codecs.iter().filter(|codec| accepts(&codec.name));
    section.codecs = codecs.cloned().collect();
    // Drops retransmissions of codecs that are not accepted.
    let payload_types: Vec<u8> = section
        .codecs
        .iter()
        .map(|codec| codec.payload_type)
        .collect();
    section.codecs.retain(|codec| {
        codec
            .associated_payload_type()
            .is_none_or(|of| payload_types.contains(&of))
    });
    let wanted = |uri: &String| config.extensions.is_empty() || config.extensions.contains(uri);
    let extensions = offered.extensions.iter().filter(|known| wanted(&known.uri));
    section.extensions = extensions.cloned().collect();
    section.rtcp_reduced_size = offered.rtcp_reduced_size;
    config.feedback.retain_enabled(section);
    let index = sources.iter().position(|(kind, _)| *kind == offered.kind);
    let source = index
        .filter(|_| offered.direction.receives() && !section.codecs.is_empty())
        .map(|index| sources.remove(index).1);
    let receives = config.receive && offered.direction.sends();
    section.direction = Direction::of(source.is_some(), receives);
    if let Some(source) = source {
        source.add_to_section(section);
    }
    if receives && offered.simulcast.is_some() {
        answer_simulcast(offered, section);
    }
}

/// Accepts all offered layers (RFC 8853, 5.3.2).
fn answer_simulcast(offered: &MediaSection, section: &mut MediaSection) {
    let layers = offered.rids.iter().filter(|rid| rid.sends);
    let mut layers: Vec<_> = layers.cloned().collect();
    for layer in &mut layers {
        layer.sends = false;
    }
    let names: Vec<&str> = layers.iter().map(|layer| &layer.id[..]).collect();
    section.simulcast = Some(format!("recv {}", names.join(";")));
    section.rids = layers;
}
