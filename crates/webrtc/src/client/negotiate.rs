//! Offers and answers of a PeerConnection.

use std::fmt::Display;

use super::link::{LinkEvent, LinkResult, PeerLink};
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
            _ => vec![extension::TRANSPORT_CC.to_owned()],
        },
        source: None,
    }
}

/// Returns the failure for an invalid description of the server: an `offer` or an `answer`.
fn bad_sdp(kind: &str, error: impl Display) -> (Failure, String) {
    (Failure::BadSdp, format!("the server's {kind}: {error}"))
}

impl PeerLink {
    /// Creates our offer.
    pub(super) fn offer(&mut self) {
        let Some(peer) = &self.peer else {
            return;
        };
        let (media, feedback) = match self.direction {
            Direction::Receive => (
                vec![
                    receiving_section(MediaKind::Audio, known::all_audio()),
                    receiving_section(MediaKind::Video, known::all_video()),
                ],
                self.setup.config.receive_feedback(),
            ),
            Direction::Send => (
                self.setup.offered_source(),
                self.setup.config.send_feedback(),
            ),
        };
        let config = OfferConfig {
            session_id: self.setup.session_id(),
            media,
            feedback,
        };
        let mut offer = SessionDescription::offer(&config, &peer.local_transport());
        offer.keep_first_candidates();
        self.events.push(LinkEvent::Described(offer.to_string()));
        self.local_offer = Some(Box::new(offer));
    }

    /// Answers an offer of the server, also if it renegotiates.
    pub(super) fn answer(&mut self, cx: &mut Context<'_>, offer: &str) -> LinkResult {
        let bad_offer = |error| bad_sdp("offer", error);
        let description = SessionDescription::parse(offer).map_err(bad_offer)?;
        let Some(peer) = &mut self.peer else {
            // The socket is not open yet. The newest offer counts.
            self.pending_offer = Some(offer.to_owned());
            return Ok(());
        };
        let has_data = matches!(self.setup.url.resource, Resource::LiveKit(_));
        if has_data {
            peer.ignore_data();
        }
        let transport = match description.transport() {
            Ok(transport) => Some(transport),
            // A later offer may omit the transport if nothing of it changes.
            Err(_) if self.negotiated_at.is_some() => None,
            Err(error) => return Err(bad_offer(error)),
        };
        if let Some(transport) = transport.filter(|own| peer.is_changed(own)) {
            if self.negotiated_at.is_some() {
                cx.recorder.add(m::ICE_RESTARTS, 1);
            }
            if let Err(failure) = peer.set_remote(cx.now, &transport) {
                return Err(self.peer_failure(&failure));
            }
        }
        self.answers += 1;
        let config = AnswerConfig {
            version: 1 + self.answers,
            feedback: self.setup.config.receive_feedback(),
            // LiveKit offers data channels first, and offers nothing else while nobody publishes.
            accept_data: has_data,
            ..AnswerConfig::receive_all(self.setup.session_id())
        };
        let mut answer = description.answer(&config, &peer.local_transport());
        answer.keep_first_candidates();
        let negotiated = sdp::negotiated_media(&answer, &description, true);
        self.events.push(LinkEvent::Described(answer.to_string()));
        self.apply_negotiated(cx, &negotiated)
    }

    /// Handles the server's answer to our offer.
    pub(super) fn handle_answer(&mut self, cx: &mut Context<'_>, answer: &str) -> LinkResult {
        let bad_answer = |error| bad_sdp("answer", error);
        let mut description = SessionDescription::parse(answer).map_err(bad_answer)?;
        if let Some(offered) = &self.local_offer
            && let Err(fault) = description.check_answer(offered)
        {
            let failure = match fault {
                AnswerError::AllRefused(_) => Failure::OfferRefused,
                _ => Failure::BadSdp,
            };
            return Err((failure, format!("the server's answer: {fault}")));
        }
        let transport = description.transport().map_err(bad_answer)?;
        let (Some(peer), None) = (&mut self.peer, self.negotiated_at) else {
            return Ok(());
        };
        if let Err(failure) = peer.set_remote(cx.now, &transport) {
            return Err(self.peer_failure(&failure));
        }
        // No further answer follows, and the offer would take a third of a client's memory.
        let negotiated = match self.local_offer.take() {
            Some(offered) => sdp::negotiated_media(&offered, &description, false),
            None => Vec::new(),
        };
        self.apply_negotiated(cx, &negotiated)
    }

    /// Applies what both descriptions agree on.
    fn apply_negotiated(
        &mut self,
        cx: &mut Context<'_>,
        sections: &[sdp::NegotiatedMedia],
    ) -> LinkResult {
        if self.negotiated_at.is_none() {
            self.negotiated_at = Some(cx.now);
            cx.recorder.add(m::PEERS, 1);
        }
        self.outgoing_media
            .set_accepted_sections(sections, self.setup.layer_rids());
        let Some(sink) = self.sink else {
            return self.flush(cx);
        };
        let enabled = self.setup.config.receive_feedback();
        let formats = sections.iter().flat_map(|section| {
            let kind = section.kind;
            section.codecs.iter().map(move |codec| PayloadFormat {
                payload_type: codec.payload_type,
                kind,
                codec: VideoCodec::from_name(&codec.name),
                clock_rate: codec.clock_rate,
                is_rtx: codec.has_name("rtx"),
                apt: codec.associated_payload_type(),
                nack: codec.has_feedback("nack"),
                key_frame_request: (kind == MediaKind::Video)
                    .then(|| KeyFrameRequest::negotiated(codec, enabled))
                    .flatten(),
            })
        });
        let tracks = cx.sinks.get::<Tracks>(sink);
        tracks.set_formats(formats.collect());
        let receiving = || sections.iter().filter(|own| own.direction.receives());
        let section = |own: &sdp::NegotiatedMedia| Section {
            mid: own.mid.clone(),
            kind: own.kind,
            track: own.track.clone(),
            sources: (own.remote_sources.iter())
                .map(|own| (own.ssrc, own.rtx_ssrc))
                .collect(),
            since: cx.now,
        };
        tracks.set_sections(receiving().map(section).collect());
        let number = receiving().find_map(|own| {
            let number = own.extension_id(extension::TRANSPORT_CC)?;
            own.has_feedback("transport-cc").then_some(number)
        });
        let number = number.filter(|_| self.setup.config.transport_cc);
        tracks.set_arrivals_extension(number);
        tracks.audio_level_id = receiving()
            .filter(|own| own.kind == MediaKind::Audio)
            .find_map(|own| own.extension_id(extension::AUDIO_LEVEL));
        self.has_remb =
            self.setup.config.remb && receiving().any(|own| own.has_feedback("goog-remb"));
        if self.connected_at.is_some() {
            if self.nack_at.is_none() && tracks.has_requests() {
                self.nack_at = Some(cx.now + super::NACK_CHECK_INTERVAL);
            }
            self.start_feedback(cx);
        }
        self.flush(cx)
    }

    /// Adds a candidate of the server.
    pub(super) fn add_candidate(&mut self, cx: &mut Context<'_>, text: &str) -> LinkResult {
        let Ok(candidate) = text.parse::<Candidate>() else {
            return Ok(());
        };
        match &mut self.peer {
            Some(peer) => {
                peer.add_remote_candidate(cx.now, &candidate);
                return self.flush(cx);
            }
            None if self.early_candidates.len() < EARLY_CANDIDATES_MAX => {
                self.early_candidates.push(text.to_owned())
            }
            None => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
