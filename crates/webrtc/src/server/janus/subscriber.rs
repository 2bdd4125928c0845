//! Subscriber in a room: receives other participants over one PeerConnection. The server offers it,
//! and offers again when participants join or leave.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{JanusError, Jsep, code, janus_error};
use crate::sdp::{
    Codec, Direction, LocalSource, MediaKind, OfferConfig, OfferedMedia, SessionDescription,
    TransportParameters, known,
};
use crate::server::Shared;
use crate::server::answers::{extensions, player_feedback, sent_track_of};
use crate::server::negotiation::NegotiatingPeer;
use crate::server::publication::{PeerMessage, Publication, peer_topic};
use crate::server::rooms::PlayChange;
use crate::server::session::{PendingPeer, Role};
use crate::server::stream_sender::PlannedStream;
use crate::url::JanusId;
use session::Context;

/// Maximum number of media sections.
const SECTIONS_MAX: usize = 500;

/// First payload type that is assigned to a codec, and maximum number of codecs. The payload type
/// after that of a codec is its RTX.
const FIRST_PAYLOAD_TYPE: u8 = 96;
const CODECS_MAX: usize = 16;

/// Track of a publisher.
#[derive(Clone, Debug)]
struct PublishedTrack {
    feed: u64,
    publication: Arc<Publication>,
    /// Index of the track among the publisher's tracks.
    track: usize,
}

impl PublishedTrack {
    fn is_same_track(&self, other: &PublishedTrack) -> bool {
        (self.publication.number, self.track) == (other.publication.number, other.track)
    }
}

/// Track to subscribe to, with its codec under the assigned payload type.
#[derive(Debug)]
pub(super) struct WantedTrack(PublishedTrack, Codec);

/// Media section of the description.
#[derive(Debug)]
struct Section {
    kind: MediaKind,
    codec: Codec,
    /// Track that the section sends. `None` after its publisher has left, until another track
    /// reuses the section.
    source: Option<PublishedTrack>,
    /// SSRCs of the track and of its retransmissions.
    ssrcs: (u32, u32),
    /// Number of the last offer with the section in its present form. Answers to earlier offers do
    /// not concern it.
    offer_number: u64,
    /// True if the client has answered the section.
    is_answered: bool,
}

/// Subscriber in a room.
#[derive(Debug)]
pub(super) struct Subscriber {
    shared: Arc<Shared>,
    pub(super) room: JanusId,
    number: u64,
    /// ID and slot of the PeerConnection. `answered` is true if its first offer was answered.
    pub(super) id: String,
    slot: usize,
    answered: bool,
    transport: TransportParameters,
    sections: Vec<Section>,
    /// All codecs so far, with their payload types.
    codecs: Vec<Codec>,
    offers: u64,
    ssrcs_drawn: usize,
    /// `offer_pending` is true while an offer is unanswered, `needs_offer` if there is something
    /// new to offer.
    pub(super) offer_pending: bool,
    needs_offer: bool,
}

impl Subscriber {
    /// Creates a subscriber and registers its PeerConnection, because the first ICE check may
    /// arrive before the answer.
    pub(super) fn new(
        shared: Arc<Shared>,
        room: JanusId,
        topic: String,
        negotiating: NegotiatingPeer,
    ) -> Subscriber {
        let (number, transport) = (negotiating.number, negotiating.peer.local_transport());
        let name = format!("room {room}");
        let mut registry = shared.registry();
        let slot = registry.next_slot();
        let feeds = Vec::new();
        let role = Role::Subscriber { feeds, topic };
        let id = shared.register(&mut registry, &name, negotiating, role);
        drop(registry);
        Subscriber {
            shared,
            room,
            number,
            transport,
            id,
            slot,
            answered: false,
            sections: Vec::new(),
            codecs: Vec::new(),
            offers: 0,
            ssrcs_drawn: 0,
            offer_pending: false,
            needs_offer: false,
        }
    }

    /// Returns the requested tracks that are not yet subscribed to, with their codecs. Fails if a
    /// publisher is missing. The subscriptions remain unchanged.
    pub(super) fn select_tracks(
        &mut self,
        feeds: &BTreeMap<u64, Arc<Publication>>,
        streams: &Value,
    ) -> Result<Vec<WantedTrack>, JanusError> {
        let mut wanted: Vec<WantedTrack> = Vec::new();
        for stream in streams.as_array().into_iter().flatten() {
            let feed = stream["feed"].as_u64().unwrap_or(0);
            let gone = || janus_error(code::NO_SUCH_FEED, "no such publisher in the room");
            let publication = feeds.get(&feed).ok_or_else(gone)?;
            let mid = stream["mid"].as_str().map(str::parse::<usize>);
            for (index, track) in publication.tracks.iter().enumerate() {
                let source = PublishedTrack {
                    feed,
                    publication: publication.clone(),
                    track: index,
                };
                let mut known = self.sections.iter().filter_map(|own| own.source.as_ref());
                let is_known = known.any(|own| own.is_same_track(&source))
                    || wanted
                        .iter()
                        .any(|WantedTrack(own, _)| own.is_same_track(&source));
                if is_known || mid.as_ref().is_some_and(|mid| *mid != Ok(index)) {
                    continue;
                }
                if self.sections.len() + wanted.len() >= SECTIONS_MAX {
                    return Err(janus_error(code::INVALID_ELEMENT, "too many streams"));
                }
                let codec = self.codec(&track.codec)?;
                wanted.push(WantedTrack(source, codec));
            }
        }
        Ok(wanted)
    }

    /// Subscribes to tracks.
    pub(super) fn subscribe(&mut self, wanted: Vec<WantedTrack>) {
        for WantedTrack(source, codec) in wanted {
            let kind = source.publication.tracks[source.track].kind;
            let section = Section {
                kind,
                codec,
                source: Some(source),
                ssrcs: self.shared.ssrcs(self.number, self.ssrcs_drawn),
                offer_number: 0,
                is_answered: false,
            };
            self.ssrcs_drawn += 1;
            self.needs_offer = true;
            let mut all = self.sections.iter();
            match all.position(|own| own.source.is_none() && own.kind == kind) {
                Some(free) => self.sections[free] = section,
                None => self.sections.push(section),
            }
        }
    }

    /// Returns the codec with its payload type in this session. The assignment is permanent,
    /// because a payload type must not be reused for another codec within a session (RFC 3264,
    /// 8.3.2).
    fn codec(&mut self, wanted: &Codec) -> Result<Codec, JanusError> {
        let same = |own: &&Codec| {
            let rates = (own.clock_rate, own.channels) == (wanted.clock_rate, wanted.channels);
            own.has_name(&wanted.name) && rates && own.parameters == wanted.parameters
        };
        if let Some(known) = self.codecs.iter().find(same) {
            return Ok(known.clone());
        }
        if self.codecs.len() >= CODECS_MAX {
            return Err(janus_error(code::INVALID_ELEMENT, "too many codecs"));
        }
        let codec = Codec {
            payload_type: FIRST_PAYLOAD_TYPE + 2 * self.codecs.len() as u8,
            feedback: Vec::new(),
            ..wanted.clone()
        };
        self.codecs.push(codec.clone());
        Ok(codec)
    }

    /// Unsubscribes from tracks. Unknown tracks are ignored.
    pub(super) fn unsubscribe(&mut self, cx: &mut Context<'_>, streams: &Value) {
        let mut stopped = Vec::new();
        for stream in streams.as_array().into_iter().flatten() {
            let feed = stream["feed"].as_u64();
            let mid = stream["mid"].as_str().map(str::parse::<usize>);
            let index = stream["sub_mid"].as_str().map(str::parse::<usize>);
            for (own, section) in self.sections.iter_mut().enumerate() {
                let Some(source) = &section.source else {
                    continue;
                };
                let is_it = match &index {
                    Some(index) => *index == Ok(own),
                    None => {
                        Some(source.feed) == feed
                            && mid.as_ref().is_none_or(|mid| *mid == Ok(source.track))
                    }
                };
                if is_it {
                    section.source = None;
                    self.needs_offer = true;
                    stopped.push(PlayChange::Stop(section.ssrcs.0));
                }
            }
        }
        self.send_changes(cx, stopped);
    }

    /// Unsubscribes from publishers that have left, or that publish something else now.
    pub(super) fn unsubscribe_departed(&mut self, feeds: &BTreeMap<u64, Arc<Publication>>) {
        for section in &mut self.sections {
            let is_there = |source: &PublishedTrack| {
                let own = feeds.get(&source.feed);
                own.is_some_and(|own| own.number == source.publication.number)
            };
            if section.source.as_ref().is_some_and(|own| !is_there(own)) {
                section.source = None;
                self.needs_offer = true;
            }
        }
    }

    /// Returns the event with the next offer, if something changed and the previous offer was
    /// answered.
    pub(super) fn next_offer(&mut self) -> Option<(Value, Jsep)> {
        let is_due = self.needs_offer && !self.offer_pending;
        is_due.then(|| self.create_offer("updated"))
    }

    /// Returns the next offer, and the event `name` with its sections.
    pub(super) fn create_offer(&mut self, name: &str) -> (Value, Jsep) {
        (self.offer_pending, self.needs_offer) = (true, false);
        self.offers += 1;
        for section in &mut self.sections {
            section.offer_number = self.offers;
        }
        let transport_cc = self.shared.config.transport_cc;
        let cname = self.shared.cname();
        let media = |(index, section): (usize, &Section)| {
            let mut codecs = vec![section.codec.clone()];
            if section.kind == MediaKind::Video {
                codecs.push(known::rtx(&section.codec));
            }
            OfferedMedia {
                kind: section.kind,
                direction: match section.source {
                    Some(_) => Direction::SendOnly,
                    None => Direction::Inactive,
                },
                codecs,
                extensions: extensions(section.kind, transport_cc),
                source: section.source.as_ref().map(|source| LocalSource {
                    ssrc: section.ssrcs.0,
                    rtx_ssrc: Some(section.ssrcs.1),
                    cname: cname.clone(),
                    stream_id: format!("feed{}", source.feed),
                    track_id: format!("{}{index}", section.kind.name()),
                    layers: Vec::new(),
                }),
            }
        };
        let config = OfferConfig {
            session_id: self.shared.seeded_random(self.number, &[3]) >> 2,
            media: self.sections.iter().enumerate().map(media).collect(),
            feedback: player_feedback(transport_cc),
        };
        let mut offer = SessionDescription::offer(&config, &self.transport);
        offer.version = 1 + self.offers;
        offer.keep_first_candidates();
        let stream = |(index, section): (usize, &Section)| {
            let mut stream = json!({
                "mindex": index,
                "mid": index.to_string(),
                "type": section.kind.name(),
                "active": section.source.is_some(),
            });
            if let Some(source) = &section.source {
                stream["feed_id"] = source.feed.into();
                stream["feed_mid"] = source.track.to_string().into();
            }
            stream
        };
        let streams: Value = self.sections.iter().enumerate().map(stream).collect();
        let event = json!({"videoroom": name, "streams": streams});
        (event, Some(("offer", offer.to_string())))
    }

    /// Handles the answer to the offer. Tracks that are new in it are played from now on.
    pub(super) fn handle_answer(
        &mut self,
        cx: &mut Context<'_>,
        sdp: Option<&str>,
    ) -> Result<(), JanusError> {
        if !self.offer_pending {
            return Ok(());
        }
        let invalid_sdp = |why: String| (code::INVALID_SDP, why);
        let text = sdp.ok_or_else(|| janus_error(code::INVALID_SDP, "the answer has no SDP"))?;
        let answer =
            SessionDescription::parse(text).map_err(|error| invalid_sdp(error.to_string()))?;
        let shared = self.shared.clone();
        let mut registry = shared.registry();
        let mut remote = None;
        if !self.answered {
            let transport = answer
                .transport()
                .map_err(|error| invalid_sdp(error.to_string()))?;
            if let Some(pending) = registry.pending(&self.id) {
                let applied = pending.peer.set_remote(cx.now, &transport);
                applied.map_err(|failure| invalid_sdp(failure.to_string()))?;
            } else {
                remote = Some(transport);
            }
        }
        if registry.find(&self.id).is_none() {
            return Err(janus_error(code::UNKNOWN, "the PeerConnection ended"));
        }
        (self.offer_pending, self.answered) = (false, true);
        let feeds = self.accept_answer(&answer);
        match registry.pending(&self.id) {
            Some(PendingPeer {
                role: Role::Subscriber { feeds: all, .. },
                ..
            }) => all.extend(feeds),
            _ => {
                if let Some(remote) = remote {
                    shared.rooms().pending_answers.insert(self.number, remote);
                }
                let changes = feeds.into_iter().map(PlayChange::Start).collect();
                self.queue_changes(cx, changes);
            }
        }
        Ok(())
    }

    /// Returns the streams to be played after an answer to the last offer.
    fn accept_answer(&mut self, answer: &SessionDescription) -> Vec<PlannedStream> {
        let mut feeds = Vec::new();
        for (section, answered) in self.sections.iter_mut().zip(&answer.media) {
            let is_new = !section.is_answered && section.offer_number == self.offers;
            let Some(source) = section.source.as_ref().filter(|_| is_new) else {
                continue;
            };
            section.is_answered = true;
            let which = (source.track, section.codec.payload_type);
            let is_accepted = !answered.rejected && answered.direction.receives();
            let sent_track = sent_track_of(answered, which, section.ssrcs);
            if let Some(sent_track) = sent_track.filter(|_| is_accepted) {
                feeds.push(PlannedStream {
                    name: source.publication.name.clone(),
                    planned: vec![sent_track],
                    publication: Some(source.publication.clone()),
                });
            }
        }
        feeds
    }

    /// Sends changes to the PeerConnection, if it still exists.
    fn send_changes(&self, cx: &mut Context<'_>, changes: Vec<PlayChange>) {
        // Changes must not be stored for a PeerConnection that has ended. It ends with this lock
        // held.
        let registry = self.shared.registry();
        if !changes.is_empty() && registry.find(&self.id).is_some() {
            self.queue_changes(cx, changes);
        }
    }

    fn queue_changes(&self, cx: &mut Context<'_>, changes: Vec<PlayChange>) {
        self.shared.rooms().add_changes(self.number, changes);
        PeerMessage::PlayChanges.publish(cx, peer_topic(self.slot), self.number);
    }
}

#[cfg(test)]
mod tests;
