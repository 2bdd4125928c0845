//! The sessions of a worker, and what it knows about each.

use std::net::SocketAddr;
use std::sync::Arc;

use measure::Time;
use protocol::session::{ChannelId, FlowId, PeerId, Session};

use super::flows::SentBy;
use crate::messages::ClientState;
use crate::trace::Tracer;

/// Names a session for as long as the worker lives: its place may be used again, its serial number
/// not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SessionKey {
    pub(super) place: usize,
    pub(super) serial: u64,
}

/// A session and everything the worker holds for it.
pub(super) struct Slot {
    pub(super) serial: u64,
    pub(super) session: Box<dyn Session>,
    /// Which population its figures belong to.
    pub(super) population: usize,
    /// Which client of the plan it is; none for a server's side.
    pub(super) client: Option<Client>,
    pub(super) channels: Vec<(ChannelId, Channel)>,
    /// Channels that are to be over TLS, each with the name that the certificate must be for.
    pub(super) secured: Vec<(ChannelId, Arc<str>)>,
    /// Flows that are sending: which, and by whom it is sent.
    pub(super) flows: Vec<(FlowId, SentBy)>,
    pub(super) topics: Vec<Arc<str>>,
    /// When the task comes that is to tell it of its deadline. Others that may wait are not wanted
    /// any more.
    pub(super) armed: Time,
    pub(super) stopping: bool,
    /// Whether media of it comes by the packet ring.
    pub(super) on_ring: bool,
    /// Whether media of it comes by sockets that are read in turn.
    pub(super) in_turns: bool,
    /// Whether media of it comes from a multicast group.
    pub(super) in_groups: bool,
    /// Whether it has single UDP sockets of its own.
    pub(super) has_single: bool,
    /// Whether datagrams of it are read late.
    pub(super) reads_late: bool,
    /// Hears what its sockets receive and send, of a client that is traced.
    pub(super) trace: Option<Tracer>,
}

/// What the plan and the run file know of a client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) id: u64,
    pub(super) slot: u64,
    pub(super) generation: u32,
    pub(super) url: String,
    pub(super) due: Time,
    pub(super) begun: Time,
    pub(super) first_media: Option<Time>,
    pub(super) streams: Vec<protocol::media::rtp::StreamSummary>,
    /// What the server says of the media, of a client that is there to ask.
    pub(super) described: Option<Box<measure::media::MediaDescription>>,
}

impl Client {
    /// Its row while it lives, its streams left out.
    pub(super) fn state(&self, population: String) -> ClientState {
        ClientState {
            id: self.id,
            population,
            slot: self.slot,
            generation: self.generation,
            url: self.url.clone(),
            due: self.due,
            begun: self.begun,
            first_media: self.first_media,
            ended: None,
            streams: Vec::new(),
            described: None,
        }
    }
}

/// What stands behind a channel of a session.
#[derive(Clone, Copy, Debug)]
pub(super) enum Channel {
    /// A name is being looked up for a connection.
    Resolving,
    /// A TCP connection, in this place among the sockets.
    Stream(usize),
    /// A pair of UDP sockets, of its own or shared with other sessions.
    Pair {
        media: usize,
        control: usize,
        shared: bool,
        peer: Option<Peer>,
    },
    /// A part in the membership in a multicast group, in this place among the groups.
    Group(usize),
    /// A UDP socket, in this place among the sockets: the session's own, or an endpoint's.
    Datagrams {
        place: usize,
        /// Where datagrams go that name no other place.
        to: Option<SocketAddr>,
        /// Who the session is to the endpoint whose socket it is.
        accepted: Option<PeerId>,
    },
}

/// The other end of a channel of UDP ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) media: SocketAddr,
    pub(super) control: SocketAddr,
}

impl Slot {
    /// A session that has nothing yet.
    pub(super) fn new(
        serial: u64,
        session: Box<dyn Session>,
        population: usize,
        client: Option<Client>,
    ) -> Slot {
        Slot {
            serial,
            session,
            population,
            client,
            channels: Vec::new(),
            secured: Vec::new(),
            flows: Vec::new(),
            topics: Vec::new(),
            armed: Time::NEVER,
            stopping: false,
            on_ring: false,
            in_turns: false,
            in_groups: false,
            has_single: false,
            reads_late: false,
            trace: None,
        }
    }

    pub(super) fn channel(&self, id: ChannelId) -> Option<Channel> {
        self.channels
            .iter()
            .find(|(channel, _)| *channel == id)
            .map(|(_, state)| *state)
    }

    pub(super) fn set_channel(&mut self, id: ChannelId, state: Channel) {
        match self.channels.iter_mut().find(|(channel, _)| *channel == id) {
            Some((_, place)) => *place = state,
            None => self.channels.push((id, state)),
        }
    }

    /// The name that the certificate must be for, of a channel that is to be over TLS.
    pub(super) fn secured(&self, id: ChannelId) -> Option<Arc<str>> {
        let secured = self.secured.iter().find(|(channel, _)| *channel == id);
        secured.map(|(_, name)| name.clone())
    }

    pub(super) fn forget_channel(&mut self, id: ChannelId) {
        self.secured.retain(|(channel, _)| *channel != id);
        self.channels.retain(|(channel, _)| *channel != id);
    }
}
