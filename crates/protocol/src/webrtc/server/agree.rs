//! Negotiation of PeerConnections, independent of the signalling.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use measure::Time;

use super::Shared;
use super::negotiate::{self, Own};
use super::registry::{New, Registry, Removed};
use super::relay::{Publication, Word, topic_of_peer};
use super::session::{Role, Waiting};
use crate::published_streams::Refusal;
use crate::session::{Context, Output};
use crate::webrtc::peer::{Peer, PeerConfig};
use crate::webrtc::sdp::{SessionDescription, Transport};

/// Time limit for a PeerConnection to start and to connect.
const CONNECT_WITHIN: Duration = Duration::from_secs(15);

/// Reason for refusing a PeerConnection: an HTTP status and a text.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) status: u16,
    pub(super) why: String,
}

impl Refused {
    fn new(status: u16, why: impl Into<String>) -> Refused {
        let why = why.into();
        Refused { status, why }
    }
}

/// PeerConnection under negotiation.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) number: u64,
    pub(super) peer: Peer,
    pub(super) remote_ufrag: String,
    pub(super) until: Time,
}

/// Negotiated PeerConnection: its ID, and the answer to the offer.
#[derive(Debug)]
pub(super) struct Agreed {
    pub(super) id: String,
    pub(super) answer: SessionDescription,
}

/// Owned values of [`Own`].
struct OwnParts {
    transport: Transport,
    session_id: u64,
    cname: String,
    transport_cc: bool,
}

impl OwnParts {
    fn as_own(&self) -> Own<'_> {
        Own {
            transport: &self.transport,
            session_id: self.session_id,
            cname: &self.cname,
            transport_cc: self.transport_cc,
        }
    }
}

impl Shared {
    fn own(&self, transport: &Transport, number: u64) -> OwnParts {
        OwnParts {
            transport: transport.clone(),
            session_id: self.drawn(number, &[3]) >> 2,
            cname: self.cname(),
            transport_cc: self.config.transport_cc,
        }
    }

    fn begin(&self, now: Time, local: SocketAddr, offers: bool) -> Result<Begun, Refused> {
        self.forget_who_never_came(now);
        if !self.registry().has_room() {
            let why = "the maximum number of sessions is reached";
            return Err(Refused::new(503, why));
        }
        let number = self.peers.fetch_add(1, Ordering::Relaxed);
        let seed = self.drawn(number, &[0]);
        let mut config = PeerConfig::new(self.certificate.clone(), seed);
        config.ice_lite = true;
        config.connect_timeout = CONNECT_WITHIN;
        let mut peer = match offers {
            true => Peer::offerer(now, &config),
            false => Peer::answerer(now, &config),
        };
        peer.add_local_candidate(now, local);
        Ok(Begun {
            number,
            peer,
            remote_ufrag: String::new(),
            until: now + CONNECT_WITHIN,
        })
    }

    /// Creates a PeerConnection that the server offers.
    pub(super) fn begin_to_offer(&self, now: Time, local: SocketAddr) -> Result<Begun, Refused> {
        self.begin(now, local, true)
    }

    /// Creates a PeerConnection for a client's offer.
    pub(super) fn begin_to_answer(
        &self,
        now: Time,
        local: SocketAddr,
        offer: &str,
    ) -> Result<(SessionDescription, Begun), Refused> {
        let read = SessionDescription::parse(offer).and_then(|offer| {
            let transport = offer.transport()?;
            Ok((offer, transport))
        });
        let (offer, theirs) = read.map_err(|error| Refused::new(400, error.to_string()))?;
        let mut begun = self.begin(now, local, false)?;
        let taken = begun.peer.set_remote(now, &theirs);
        taken.map_err(|failure| Refused::new(400, failure.to_string()))?;
        begun.remote_ufrag = theirs.ufrag;
        Ok((offer, begun))
    }

    /// Negotiates what a client plays of a stream.
    pub(super) fn agree_to_play(
        &self,
        offer: &SessionDescription,
        name: &str,
        begun: Begun,
    ) -> Result<Agreed, Refused> {
        let publication = self.publication(name);
        let tracks = match &publication {
            Some(publication) => &publication.tracks,
            None if self.makes(name) => &self.made,
            None => return Err(Refused::new(404, "no stream has this name")),
        };
        let number = begun.number;
        let ours = begun.peer.local_transport();
        let own = self.own(&ours, number);
        let ssrcs = |track| self.ssrcs(number, track);
        let answer = negotiate::answer_player(offer, tracks, ssrcs, &own.as_own());
        let Some((answer, planned)) = answer else {
            let codecs: Vec<&str> = tracks.iter().map(|track| &track.codec.name[..]).collect();
            let why = format!(
                "the stream has {}, which the offer does not accept",
                codecs.join(", ")
            );
            return Err(Refused::new(406, why));
        };
        let role = Role::Plays {
            planned,
            publication,
        };
        let id = self.accept(&mut self.registry(), name, begun, role);
        Ok(Agreed { id, answer })
    }

    /// Negotiates what a client publishes under a name.
    pub(super) fn agree_to_publish(
        &self,
        offer: &SessionDescription,
        name: &str,
        begun: Begun,
    ) -> Result<Agreed, Refused> {
        let number = begun.number;
        let ours = begun.peer.local_transport();
        let own = self.own(&ours, number);
        let Some((answer, taken)) = negotiate::answer_publisher(offer, &own.as_own()) else {
            let why = "the offer sends no media that the server accepts";
            return Err(Refused::new(406, why));
        };
        let index = match self.published.begin(name) {
            Ok(index) => index,
            Err(Refusal::Taken) => return Err(Refused::new(409, "the stream has a publisher")),
            Err(Refusal::Full) => return Err(Refused::new(503, "too many published streams")),
        };
        // The lock keeps the slot from being taken by another PeerConnection.
        let mut registry = self.registry();
        let publication = Arc::new(Publication {
            number,
            name: name.to_owned(),
            slot: registry.next_slot(),
            index,
            tracks: taken.iter().map(|taken| taken.track.clone()).collect(),
        });
        let mut publications = self.publications();
        publications.insert(name.to_owned(), publication.clone());
        drop(publications);
        let role = Role::Publishes { taken, publication };
        let id = self.accept(&mut registry, name, begun, role);
        Ok(Agreed { id, answer })
    }

    /// Registers a negotiated PeerConnection, which then waits for its first datagram. Returns its
    /// ID.
    pub(super) fn accept(
        &self,
        registry: &mut Registry<Waiting>,
        name: &str,
        begun: Begun,
        role: Role,
    ) -> String {
        let number = begun.number;
        let id = format!("{:016x}", self.drawn(number, &[4]));
        let Transport { ufrag, pwd, .. } = begun.peer.local_transport();
        registry.add(New {
            id: id.clone(),
            number,
            ufrag,
            pwd,
            remote_ufrag: begun.remote_ufrag,
            until: begun.until,
            waiting: Waiting {
                number,
                name: name.to_owned(),
                peer: Box::new(begun.peer),
                role,
            },
        });
        id
    }

    /// Ends a PeerConnection at its client's request. Returns false if the ID is unknown.
    pub(super) fn end_peer(&self, cx: &mut Context<'_>, id: &str) -> bool {
        // The registry must not be locked while resources are released.
        let removed = self.registry().remove(id);
        match removed {
            None => return false,
            Some(Removed::Waiting(waiting)) => self.give_back([waiting]),
            Some(Removed::Begun(known)) => cx.out.push_back(Output::Tell {
                topic: topic_of_peer(known.slot),
                message: Word::Close.about(known.number).into(),
            }),
        }
        true
    }
}
