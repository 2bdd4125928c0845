//! Offers and answers of a PeerConnection.

use super::Client;
use crate::media::sdp::MediaKind as Carried;
use crate::session::Context;
use crate::webrtc::failure::Failure;
use crate::webrtc::metrics as m;
use crate::webrtc::sdp::{
    self, AnswerConfig, AnswerFault, Candidate, Direction as Way, MediaKind, OfferConfig,
    OfferedMedia, SessionDescription, extension, known,
};
use crate::webrtc::signalling::Direction;
use crate::webrtc::tracks::{Agreed, KeyFrameRequest, Section, Tracks, VideoCodec};
use crate::webrtc::url::Place;

/// Maximum number of candidates of the server that are kept until the socket is open.
const EARLY_MAX: usize = 32;

/// Returns the section that offers to receive a kind of media.
fn received(kind: MediaKind, codecs: Vec<sdp::Codec>) -> OfferedMedia {
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
fn carried(kind: MediaKind) -> Carried {
    match kind {
        MediaKind::Audio => Carried::Audio,
        MediaKind::Video => Carried::Video,
        MediaKind::Application => Carried::Application,
    }
}

impl Client {
    /// Session id of our descriptions (RFC 8829, 5.2.1).
    fn session_id(&self) -> u64 {
        crate::mix::mix(&[self.seed, 4]) >> 2
    }

    /// Creates our offer and passes it to the signalling.
    pub(super) fn offer(&mut self, cx: &mut Context<'_>, at: usize) {
        let medias = match self.links[at].direction {
            Direction::Receive => vec![
                received(MediaKind::Audio, known::all_audio()),
                received(MediaKind::Video, known::all_video()),
            ],
            Direction::Send => self.offered_source(),
        };
        let session_id = self.session_id();
        let link = &mut self.links[at];
        let Some(peer) = &mut link.peer else {
            return;
        };
        let config = OfferConfig {
            session_id,
            media: medias,
            feedback: match link.direction {
                Direction::Receive => self.config.feedback(),
                Direction::Send => self.config.heeded_feedback(),
            },
        };
        let mut offer = SessionDescription::offer(&config, &peer.local_transport());
        offer.tell_addresses_once();
        let text = offer.to_string();
        link.offered = Some(Box::new(offer));
        let number = link.number;
        self.signal(cx, |signalling, scope| {
            signalling.described(scope, number, &text);
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
        let (now, session_id) = (cx.now, self.session_id());
        let has_data = matches!(self.url.place, Place::LiveKit(_));
        let link = &mut self.links[at];
        let Some(peer) = &mut link.peer else {
            // The socket is not open yet. The newest offer counts.
            link.offer = Some(offer.to_owned());
            return;
        };
        if has_data {
            peer.ignore_data();
        }
        let transport = match description.transport() {
            Ok(transport) => Some(transport),
            // A later offer may omit the transport if nothing of it changes.
            Err(_) if link.agreed.is_some() => None,
            Err(error) => {
                let detail = format!("the server's offer: {error}");
                return self.fail(cx, Failure::BadSdp, detail);
            }
        };
        if let Some(transport) = transport.filter(|own| peer.is_news(own)) {
            if link.agreed.is_some() {
                cx.recorder.add(m::ICE_RESTARTS, 1);
            }
            if let Err(failure) = peer.set_remote(now, &transport) {
                return self.peer_failed(cx, at, failure);
            }
        }
        link.answers += 1;
        let config = AnswerConfig {
            version: 1 + link.answers,
            feedback: self.config.feedback(),
            // LiveKit offers data channels first, and offers nothing else while nobody publishes.
            data: has_data,
            ..AnswerConfig::receive_all(session_id)
        };
        let mut answer = description.answer(&config, &peer.local_transport());
        answer.tell_addresses_once();
        let text = answer.to_string();
        let number = link.number;
        let agreed = sdp::agreed(&answer, &description, true);
        self.agree(cx, at, &agreed);
        self.signal(cx, |signalling, scope| {
            signalling.described(scope, number, &text);
        });
    }

    /// Handles the server's answer to our offer.
    pub(super) fn answered(&mut self, cx: &mut Context<'_>, at: usize, answer: &str) {
        let description = SessionDescription::parse(answer);
        let mut description = match description {
            Ok(description) => description,
            Err(error) => {
                let detail = format!("the server's answer: {error}");
                return self.fail(cx, Failure::BadSdp, detail);
            }
        };
        if let Some(offered) = &self.links[at].offered
            && let Err(fault) = description.check_answer(offered)
        {
            let failure = match fault {
                AnswerFault::AllRefused(_) => Failure::OfferRefused,
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
        let (Some(peer), None) = (&mut link.peer, link.agreed) else {
            return;
        };
        if let Err(failure) = peer.set_remote(now, &transport) {
            return self.peer_failed(cx, at, failure);
        }
        // No further answer follows, and the offer would take a third of a client's memory.
        let agreed = match link.offered.take() {
            Some(offered) => sdp::agreed(&offered, &description, false),
            None => Vec::new(),
        };
        self.agree(cx, at, &agreed);
    }

    /// Applies what both descriptions agree on.
    fn agree(&mut self, cx: &mut Context<'_>, at: usize, sections: &[sdp::Agreed]) {
        let link = &mut self.links[at];
        if link.agreed.is_none() {
            link.agreed = Some(cx.now);
            cx.recorder.add(m::PEERS, 1);
        }
        let wanted = self.config.feedback();
        let agreed = sections.iter().flat_map(|section| {
            let kind = carried(section.kind);
            let is_video = kind == Carried::Video;
            section.codecs.iter().map(move |codec| Agreed {
                payload_type: codec.payload_type,
                kind,
                codec: VideoCodec::of(&codec.name),
                clock_rate: codec.clock_rate,
                is_rtx: codec.is("rtx"),
                apt: codec.retransmits(),
                nack: codec.feedback.iter().any(|words| words == "nack"),
                asks_by: is_video
                    .then(|| KeyFrameRequest::agreed(&codec.feedback, wanted))
                    .flatten(),
            })
        });
        if let Some(sink) = link.sink {
            let tracks = cx.sinks.get::<Tracks>(sink);
            tracks.agree(agreed.collect());
            let receiving = sections.iter().filter(|own| own.direction.receives());
            let section = |own: &sdp::Agreed| Section {
                mid: own.mid.clone(),
                kind: carried(own.kind),
                track: own.track.clone(),
                sources: (own.remote_sources.iter())
                    .map(|own| (own.ssrc, own.rtx_ssrc))
                    .collect(),
                since: cx.now,
            };
            tracks.expect(receiving.map(section).collect());
            let of = |own: &&sdp::Agreed| own.direction.receives();
            let number = sections.iter().filter(of).find_map(|own| {
                let number = own.extension_id(extension::TRANSPORT_CC)?;
                own.has_feedback("transport-cc").then_some(number)
            });
            let number = number.filter(|_| self.config.transport_cc);
            tracks.tell_arrivals(number.and_then(|number| u8::try_from(number).ok()));
            let levels = sections.iter().filter(of);
            let level = levels
                .filter(|own| own.kind == MediaKind::Audio)
                .find_map(|own| own.extension_id(extension::AUDIO_LEVEL));
            tracks.read_levels(level.and_then(|number| u8::try_from(number).ok()));
            let mut receiving = sections.iter().filter(of);
            link.takes_remb =
                self.config.remb && receiving.any(|own| own.has_feedback("goog-remb"));
            if link.stands.is_some() && link.ask_at.is_none() && tracks.has_questions() {
                link.ask_at = Some(cx.now + super::ASK_EVERY);
            }
            if link.stands.is_some() {
                self.begin_to_tell(cx, at);
            }
        }
        let names = self.layer_names();
        let link = &mut self.links[at];
        link.sent.agree(sections, names);
        self.drain(cx, at);
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
                self.drain(cx, at);
            }
            None if link.early.len() < EARLY_MAX => link.early.push(text.to_owned()),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests;
