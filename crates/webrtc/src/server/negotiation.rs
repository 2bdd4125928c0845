//! Negotiation of PeerConnections, independent of the signalling.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use measure::Time;

use super::Shared;
use super::answers::{self, LocalParams};
use super::publication::{PeerMessage, Publication, peer_topic};
use super::registry::{Entry, Registry, Removed};
use super::session::{PendingPeer, Role};
use super::stream_sender::PlannedStream;
use crate::peer::{Peer, PeerConfig};
use crate::sdp::{SessionDescription, TransportParameters};
use kit::published_streams::Refusal;
use session::Context;

/// Time limit for a PeerConnection to start and to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// Reason for refusing a PeerConnection: an HTTP status and a text.
#[derive(Debug)]
pub(super) struct NegotiationError {
    pub(super) status: u16,
    pub(super) text: String,
}

impl NegotiationError {
    fn new(status: u16, why: impl Into<String>) -> NegotiationError {
        let why = why.into();
        NegotiationError { status, text: why }
    }
}

/// PeerConnection under negotiation.
#[derive(Debug)]
pub(super) struct NegotiatingPeer {
    pub(super) number: u64,
    pub(super) peer: Peer,
    pub(super) remote_ufrag: String,
    pub(super) until: Time,
}

/// Negotiated PeerConnection: its ID, and the answer to the offer.
#[derive(Debug)]
pub(super) struct NegotiatedPeer {
    pub(super) id: String,
    pub(super) answer: SessionDescription,
}

impl Shared {
    fn local_params(&self, negotiating: &NegotiatingPeer) -> LocalParams {
        LocalParams {
            transport: negotiating.peer.local_transport(),
            session_id: self.seeded_random(negotiating.number, &[3]) >> 2,
            cname: self.cname(),
            transport_cc: self.config.transport_cc,
        }
    }

    /// Creates a PeerConnection. `is_offerer` is true if the server offers it.
    pub(super) fn create_peer(
        &self,
        now: Time,
        local: SocketAddr,
        is_offerer: bool,
    ) -> Result<NegotiatingPeer, NegotiationError> {
        self.purge_expired(now);
        if !self.registry().has_room() {
            let why = "the maximum number of sessions is reached";
            return Err(NegotiationError::new(503, why));
        }
        let number = self.peer_count.fetch_add(1, Ordering::Relaxed);
        let seed = self.seeded_random(number, &[0]);
        let mut config = PeerConfig::new(self.certificate.clone(), seed);
        config.ice_lite = true;
        config.connect_timeout = CONNECT_TIMEOUT;
        let mut peer = match is_offerer {
            true => Peer::offerer(now, &config),
            false => Peer::answerer(now, &config),
        };
        peer.add_local_candidate(now, local);
        Ok(NegotiatingPeer {
            number,
            peer,
            remote_ufrag: String::new(),
            until: now + CONNECT_TIMEOUT,
        })
    }

    /// Creates a PeerConnection for a client's offer.
    pub(super) fn create_answerer(
        &self,
        now: Time,
        local: SocketAddr,
        offer: &str,
    ) -> Result<(SessionDescription, NegotiatingPeer), NegotiationError> {
        let parsed = SessionDescription::parse(offer).and_then(|offer| {
            let transport = offer.transport()?;
            Ok((offer, transport))
        });
        let (offer, theirs) =
            parsed.map_err(|error| NegotiationError::new(400, error.to_string()))?;
        let mut negotiating = self.create_peer(now, local, false)?;
        let applied = negotiating.peer.set_remote(now, &theirs);
        applied.map_err(|failure| NegotiationError::new(400, failure.to_string()))?;
        negotiating.remote_ufrag = theirs.ufrag;
        Ok((offer, negotiating))
    }

    /// Negotiates what a client plays of a stream.
    pub(super) fn negotiate_player(
        &self,
        offer: &SessionDescription,
        name: &str,
        negotiating: NegotiatingPeer,
    ) -> Result<NegotiatedPeer, NegotiationError> {
        let publication = self.publication(name);
        let tracks = match &publication {
            Some(publication) => &publication.tracks,
            None if self.has_generated(name) => &self.generated_tracks,
            None => return Err(NegotiationError::new(404, "no stream has this name")),
        };
        let local = self.local_params(&negotiating);
        let ssrcs = |track| self.ssrcs(negotiating.number, track);
        let answer = answers::answer_player(offer, tracks, ssrcs, &local);
        let Some((answer, sent_tracks)) = answer else {
            let codecs: Vec<&str> = tracks.iter().map(|track| &track.codec.name[..]).collect();
            let why = format!(
                "the stream has {}, which the offer does not accept",
                codecs.join(", ")
            );
            return Err(NegotiationError::new(406, why));
        };
        let role = Role::Player(PlannedStream {
            name: name.to_owned(),
            planned: sent_tracks,
            publication,
        });
        let id = self.register(&mut self.registry(), name, negotiating, role);
        Ok(NegotiatedPeer { id, answer })
    }

    /// Negotiates what a client publishes under a name.
    pub(super) fn negotiate_publisher(
        &self,
        offer: &SessionDescription,
        name: &str,
        negotiating: NegotiatingPeer,
    ) -> Result<NegotiatedPeer, NegotiationError> {
        let local = self.local_params(&negotiating);
        let Some((answer, taken)) = answers::answer_publisher(offer, &local) else {
            let why = "the offer sends no media that the server accepts";
            return Err(NegotiationError::new(406, why));
        };
        let index = match self.published.begin(name) {
            Ok(index) => index,
            Err(Refusal::Taken) => {
                return Err(NegotiationError::new(409, "the stream has a publisher"));
            }
            Err(Refusal::Full) => {
                return Err(NegotiationError::new(503, "too many published streams"));
            }
        };
        // The lock keeps the slot from being taken by another PeerConnection.
        let mut registry = self.registry();
        let publication = Arc::new(Publication {
            number: negotiating.number,
            name: name.to_owned(),
            publisher_slot: registry.next_slot(),
            stream_index: index,
            tracks: taken.iter().map(|taken| taken.track.clone()).collect(),
        });
        let mut publications = self.publications();
        publications.insert(name.to_owned(), publication.clone());
        drop(publications);
        let role = Role::Publisher { taken, publication };
        let id = self.register(&mut registry, name, negotiating, role);
        Ok(NegotiatedPeer { id, answer })
    }

    /// Registers a negotiated PeerConnection, which then waits for its first datagram. Returns its
    /// ID.
    pub(super) fn register(
        &self,
        registry: &mut Registry<PendingPeer>,
        name: &str,
        negotiating: NegotiatingPeer,
        role: Role,
    ) -> String {
        let number = negotiating.number;
        let id = format!("{:016x}", self.seeded_random(number, &[4]));
        let TransportParameters { ufrag, pwd, .. } = negotiating.peer.local_transport();
        let pending = PendingPeer {
            number,
            name: name.to_owned(),
            peer: Box::new(negotiating.peer),
            role,
        };
        let entry = Entry {
            slot: registry.next_slot(),
            number,
            remote_ufrag: negotiating.remote_ufrag,
            id: id.clone(),
            ufrag,
            pwd,
            pending: Some(pending),
        };
        registry.add(negotiating.until, entry);
        id
    }

    /// Ends a PeerConnection at its client's request. Returns false if the ID is unknown.
    pub(super) fn end_peer(&self, cx: &mut Context<'_>, id: &str) -> bool {
        // The registry must not be locked while resources are released.
        let removed = self.registry().remove(id);
        match removed {
            None => return false,
            Some(Removed::Pending(pending)) => self.release([pending]),
            Some(Removed::Started(slot, number)) => {
                PeerMessage::Close.publish(cx, peer_topic(slot), number)
            }
        }
        true
    }
}
