//! Offers and answers of a PeerConnection.

use super::Client;
use crate::failure::Failure;
use crate::metrics as m;
use crate::sdp::{
    self, AnswerConfig, AnswerError, Candidate, Direction as Way, MediaKind, OfferConfig,
    OfferedMedia, SessionDescription, extension, known,
};
use crate::signalling::Direction;
use crate::tracks::{KeyFrameRequest, PayloadFormat, Section, Tracks};
use crate::url::Resource;
use kit::media::rtp::VideoCodec;
use kit::media::sdp::MediaKind as Carried;
use session::Context;

/// Maximum number of candidates of the server that are kept until the socket is open.
const EARLY_CANDIDATES_MAX: usize = 32;

/// Returns the section that offers to receive a kind of media.
fn receiving_section(kind: MediaKind, codecs: Vec<sdp::Codec>) -> OfferedMedia {
    OfferedMedia {
        kind,
        direction: Way::RecvOnly,
        codecs,
        // An extension must have the same id in all sections of a transport.
        extensions: match kind {
            MediaKind::Audio => vec![
                extension::TRANSPORT_CC.to_owned(),
                extension::AUDIO_LEVEL.to_owned(),
            ],
            MediaKind::Video | MediaKind::Application => vec![extension::TRANSPORT_CC.to_owned()],
        },
        source: None,
    }
}

/// Converts a kind of media to the type that all protocols share.
fn to_media_kind(kind: MediaKind) -> Carried {
    match kind {
        MediaKind::Audio => Carried::Audio,
        MediaKind::Video => Carried::Video,
        MediaKind::Application => Carried::Application,
    }
}

impl Client {
    /// Creates our offer and passes it to the signalling.
    pub(super) fn offer(&mut self, cx: &mut Context<'_>, at: usize) {
        let medias = match self.links[at].direction {
            Direction::Receive => vec![
                receiving_section(MediaKind::Audio, known::all_audio()),
                receiving_section(MediaKind::Video, known::all_video()),
            ],
            Direction::Send => self.setup.offered_source(),
        };
        let session_id = self.setup.session_id();
        let link = &mut self.links[at];
        let Some(peer) = &mut link.peer else {
            return;
        };
        let config = OfferConfig {
            session_id,
            media: medias,
            feedback: match link.direction {
                Direction::Receive => self.setup.config.receive_feedback(),
                Direction::Send => self.setup.config.send_feedback(),
            },
        };
        let mut offer = SessionDescription::offer(&config, &peer.local_transport());
        offer.keep_first_candidates();
        let text = offer.to_string();
        link.local_offer = Some(Box::new(offer));
        let number = link.number;
        self.signalling.call(cx, |signalling, scope| {
            signalling.local_description(scope, number, &text);
        });
    }

    /// Answers an offer of the server, also if it renegotiates.
    pub(super) fn answer(&mut self, cx: &mut Context<'_>, at: usize, offer: &str) {
        let description = match SessionDescription::parse(offer) {
            Ok(description) => description,
            Err(error) => {
                let detail = format!("the server's offer: {error}");
                return self.fail(cx, Failure::BadSdp, detail);
            }
        };
        let (now, session_id) = (cx.now, self.setup.session_id());
        let has_data = matches!(self.setup.url.resource, Resource::LiveKit(_));
        let link = &mut self.links[at];
        let Some(peer) = &mut link.peer else {
            // The socket is not open yet. The newest offer counts.
            link.pending_offer = Some(offer.to_owned());
            return;
        };
        if has_data {
            peer.ignore_data();
        }
        let transport = match description.transport() {
            Ok(transport) => Some(transport),
            // A later offer may omit the transport if nothing of it changes.
            Err(_) if link.negotiated_at.is_some() => None,
            Err(error) => {
                let detail = format!("the server's offer: {error}");
                return self.fail(cx, Failure::BadSdp, detail);
            }
        };
        if let Some(transport) = transport.filter(|own| peer.is_changed(own)) {
            if link.negotiated_at.is_some() {
                cx.recorder.add(m::ICE_RESTARTS, 1);
            }
            if let Err(failure) = peer.set_remote(now, &transport) {
                return self.peer_failed(cx, at, failure);
            }
        }
        link.answers += 1;
        let config = AnswerConfig {
            version: 1 + link.answers,
            feedback: self.setup.config.receive_feedback(),
            // LiveKit offers data channels first, and offers nothing else while nobody publishes.
            accept_data: has_data,
            ..AnswerConfig::receive_all(session_id)
        };
        let mut answer = description.answer(&config, &peer.local_transport());
        answer.keep_first_candidates();
        let text = answer.to_string();
        let number = link.number;
        let negotiated = sdp::negotiated_media(&answer, &description, true);
        self.apply_negotiated(cx, at, &negotiated);
        self.signalling.call(cx, |signalling, scope| {
            signalling.local_description(scope, number, &text);
        });
    }

    /// Handles the server's answer to our offer.
    pub(super) fn handle_answer(&mut self, cx: &mut Context<'_>, at: usize, answer: &str) {
        let description = SessionDescription::parse(answer);
        let mut description = match description {
            Ok(description) => description,
            Err(error) => {
                let detail = format!("the server's answer: {error}");
                return self.fail(cx, Failure::BadSdp, detail);
            }
        };
        if let Some(offered) = &self.links[at].local_offer
            && let Err(fault) = description.check_answer(offered)
        {
            let failure = match fault {
                AnswerError::AllRefused(_) => Failure::OfferRefused,
                _ => Failure::BadSdp,
            };
            return self.fail(cx, failure, format!("the server's answer: {fault}"));
        }
        let transport = match description.transport() {
            Ok(transport) => transport,
            Err(error) => {
                let detail = format!("the server's answer: {error}");
                return self.fail(cx, Failure::BadSdp, detail);
            }
        };
        let now = cx.now;
        let link = &mut self.links[at];
        let (Some(peer), None) = (&mut link.peer, link.negotiated_at) else {
            return;
        };
        if let Err(failure) = peer.set_remote(now, &transport) {
            return self.peer_failed(cx, at, failure);
        }
        // No further answer follows, and the offer would take a third of a client's memory.
        let negotiated = match link.local_offer.take() {
            Some(offered) => sdp::negotiated_media(&offered, &description, false),
            None => Vec::new(),
        };
        self.apply_negotiated(cx, at, &negotiated);
    }

    /// Applies what both descriptions agree on.
    fn apply_negotiated(
        &mut self,
        cx: &mut Context<'_>,
        at: usize,
        sections: &[sdp::NegotiatedMedia],
    ) {
        let link = &mut self.links[at];
        if link.negotiated_at.is_none() {
            link.negotiated_at = Some(cx.now);
            cx.recorder.add(m::PEERS, 1);
        }
        let enabled = self.setup.config.receive_feedback();
        let formats = sections.iter().flat_map(|section| {
            let kind = to_media_kind(section.kind);
            let is_video = kind == Carried::Video;
            section.codecs.iter().map(move |codec| PayloadFormat {
                payload_type: codec.payload_type,
                kind,
                codec: VideoCodec::from_name(&codec.name),
                clock_rate: codec.clock_rate,
                is_rtx: codec.has_name("rtx"),
                apt: codec.associated_payload_type(),
                nack: codec.feedback.iter().any(|words| words == "nack"),
                key_frame_request: is_video
                    .then(|| KeyFrameRequest::negotiated(&codec.feedback, enabled))
                    .flatten(),
            })
        });
        if let Some(sink) = link.sink {
            let tracks = cx.sinks.get::<Tracks>(sink);
            tracks.set_formats(formats.collect());
            let receiving = sections.iter().filter(|own| own.direction.receives());
            let section = |own: &sdp::NegotiatedMedia| Section {
                mid: own.mid.clone(),
                kind: to_media_kind(own.kind),
                track: own.track.clone(),
                sources: (own.remote_sources.iter())
                    .map(|own| (own.ssrc, own.rtx_ssrc))
                    .collect(),
                since: cx.now,
            };
            tracks.set_sections(receiving.map(section).collect());
            let receives = |own: &&sdp::NegotiatedMedia| own.direction.receives();
            let number = sections.iter().filter(receives).find_map(|own| {
                let number = own.extension_id(extension::TRANSPORT_CC)?;
                own.has_feedback("transport-cc").then_some(number)
            });
            let number = number.filter(|_| self.setup.config.transport_cc);
            tracks.set_arrivals_extension(number.and_then(|number| u8::try_from(number).ok()));
            let levels = sections.iter().filter(receives);
            let level = levels
                .filter(|own| own.kind == MediaKind::Audio)
                .find_map(|own| own.extension_id(extension::AUDIO_LEVEL));
            tracks.set_audio_level_id(level.and_then(|number| u8::try_from(number).ok()));
            let mut receiving = sections.iter().filter(receives);
            link.has_remb =
                self.setup.config.remb && receiving.any(|own| own.has_feedback("goog-remb"));
            if link.connected_at.is_some() && link.nack_at.is_none() && tracks.has_requests() {
                link.nack_at = Some(cx.now + super::NACK_CHECK_INTERVAL);
            }
            if link.connected_at.is_some() {
                self.start_feedback(cx, at);
            }
        }
        let rids = self.setup.layer_rids();
        let link = &mut self.links[at];
        link.outgoing_media.set_accepted_sections(sections, rids);
        self.flush_peer(cx, at);
    }

    /// Adds a candidate of the server.
    pub(super) fn candidate(&mut self, cx: &mut Context<'_>, at: usize, text: &str) {
        let Ok(candidate) = text.parse::<Candidate>() else {
            return;
        };
        let link = &mut self.links[at];
        match &mut link.peer {
            Some(peer) => {
                peer.add_remote_candidate(cx.now, &candidate);
                self.flush_peer(cx, at);
            }
            None if link.early_candidates.len() < EARLY_CANDIDATES_MAX => {
                link.early_candidates.push(text.to_owned())
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests;
