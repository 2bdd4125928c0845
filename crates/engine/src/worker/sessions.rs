//! The sessions of a worker, what it knows about each, and which are to be told to stop.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use measure::Time;
use protocol::session::{ChannelId, FlowId, PeerId, Session, StreamRow};
use slab::Slab;

use super::keys::{SentBy, SessionKey};
use super::timers::beat_at;
use super::windows::HEARTBEAT;
use crate::messages::ClientState;
use crate::trace::Tracer;

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
    /// Whether media of it comes by sockets that are read in batches.
    pub(super) in_batches: bool,
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
    pub(super) streams: Vec<StreamRow>,
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
        /// Source address of what is sent, if the socket is bound to all addresses: the one to
        /// which the peer sent.
        source: Option<IpAddr>,
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
            // Most have a connection, and a socket for media.
            channels: Vec::with_capacity(2),
            secured: Vec::new(),
            flows: Vec::new(),
            topics: Vec::new(),
            armed: Time::NEVER,
            stopping: false,
            on_ring: false,
            in_batches: false,
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

    /// Whether media of it has begun.
    pub(super) fn has_media(&self) -> bool {
        match &self.client {
            Some(client) => client.first_media.is_some(),
            // It receives for a client elsewhere, and no delay of a start-up hangs on what it
            // hears.
            None => self.on_ring,
        }
    }

    /// When a task has to be added for its deadline; none where one that waits comes in time. Such
    /// a one is left to find out, so that a deadline which moves with every answer leaves no trail
    /// of tasks. `beat` is the next heartbeat, `turn` when the running turn of the loop began.
    #[inline]
    pub(super) fn arm(&mut self, beat: Time, turn: Time) -> Option<Time> {
        let deadline = self.session.deadline()?;
        if deadline >= self.armed {
            return None;
        }
        let beat = beat_at(beat, HEARTBEAT, deadline);
        // What is only to be sent (a report, what keeps a session alive) waits for the next
        // heartbeat, for which the loop wakes anyway: with thousands of clients waking for each
        // would cost more than sending it.
        let at = match self.session.awaits(beat) {
            true => deadline,
            false => beat,
        };
        // One that has passed already comes in the next turn: a session that names it over and over
        // costs time, but keeps nobody from being heard.
        let at = at.max(turn + Duration::from_nanos(1));
        if at >= self.armed {
            return None;
        }
        self.armed = at;
        Some(at)
    }
}

/// The sessions of a worker.
pub(super) struct Sessions {
    slots: Slab<Slot>,
    /// Those that are still to be told to stop, and until when they may take.
    to_stop: (std::vec::IntoIter<SessionKey>, Time),
    stop_timeout: Duration,
}

impl Sessions {
    /// None yet; one that is told to stop may take that long.
    pub(super) fn new(stop_timeout: Duration) -> Sessions {
        Sessions {
            slots: Slab::new(),
            to_stop: (Vec::new().into_iter(), Time::ZERO),
            stop_timeout,
        }
    }

    /// Until when one may take that is told to stop now.
    pub(super) fn time_to_stop(&self, now: Time) -> Time {
        now + self.stop_timeout
    }

    pub(super) fn add(&mut self, slot: Slot) -> SessionKey {
        SessionKey {
            serial: slot.serial,
            place: self.slots.insert(slot),
        }
    }

    pub(super) fn remove(&mut self, key: SessionKey) -> Option<Slot> {
        self.get(key)?;
        self.slots.try_remove(key.place)
    }

    #[inline]
    pub(super) fn get(&self, key: SessionKey) -> Option<&Slot> {
        let slot = self.slots.get(key.place);
        slot.filter(|slot| slot.serial == key.serial)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: SessionKey) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(key.place);
        slot.filter(|slot| slot.serial == key.serial)
    }

    pub(super) fn population(&self, key: SessionKey) -> Option<usize> {
        self.get(key).map(|slot| slot.population)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Number of sessions.
    pub(super) fn count(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn keys(&self) -> Vec<SessionKey> {
        let key = |(place, slot): (usize, &Slot)| SessionKey {
            place,
            serial: slot.serial,
        };
        self.slots.iter().map(key).collect()
    }

    /// Every so many places one session, from the `first` on, where there is one.
    pub(super) fn some(&self, first: usize, step: usize) -> impl Iterator<Item = &Slot> {
        // By place, so that the cost is a share of the places and not all of them.
        let places = (first..self.slots.capacity()).step_by(step);
        places.filter_map(|place| self.slots.get(place))
    }

    /// All that are there now are to be told to stop, with that time to take.
    pub(super) fn stop_all(&mut self, until: Time) {
        self.to_stop = (self.keys().into_iter(), until);
    }

    /// One that is to be told to stop, and until when it may take.
    pub(super) fn next_to_stop(&mut self) -> Option<(SessionKey, Time)> {
        let until = self.to_stop.1;
        self.to_stop.0.next().map(|key| (key, until))
    }

    pub(super) fn has_some_to_stop(&self) -> bool {
        !self.to_stop.0.as_slice().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use protocol::session::{Context, Input};

    use super::*;

    /// A session with a deadline, for which something is awaited or only to be sent.
    struct Due {
        deadline: Time,
        awaits: bool,
    }

    impl Session for Due {
        fn handle(&mut self, _: &mut Context<'_>, _: Input<'_>) {}

        fn deadline(&self) -> Option<Time> {
            Some(self.deadline)
        }

        fn awaits(&self, _: Time) -> bool {
            self.awaits
        }
    }

    fn slot(serial: u64, deadline: Time, awaits: bool) -> Slot {
        Slot::new(serial, Box::new(Due { deadline, awaits }), 0, None)
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn what_is_only_to_be_sent_waits_for_the_next_heartbeat() {
        for (awaits, expected) in [(true, at(50)), (false, at(80))] {
            let mut slot = slot(1, at(50), awaits);
            assert_eq!(slot.arm(at(40), at(10)), Some(expected));
            assert_eq!(slot.arm(at(40), at(10)), None, "one task is enough");
        }
    }

    #[test]
    fn a_deadline_that_has_passed_comes_in_the_next_turn() {
        let mut slot = slot(1, at(5), true);
        let next = at(10) + Duration::from_nanos(1);
        assert_eq!(slot.arm(at(40), at(10)), Some(next));
    }

    #[test]
    fn a_key_names_nothing_once_its_session_is_gone() {
        let mut sessions = Sessions::new(Duration::ZERO);
        let first = sessions.add(slot(1, at(1), true));
        sessions.stop_all(at(9));
        assert!(sessions.remove(first).is_some());
        let second = sessions.add(slot(2, at(1), true));
        assert_eq!(first.place, second.place);
        assert!(sessions.get(first).is_none() && sessions.remove(first).is_none());
        assert_eq!(sessions.population(second), Some(0));
        assert_eq!(
            sessions.next_to_stop(),
            Some((first, at(9))),
            "it was there"
        );
        assert!(!sessions.has_some_to_stop());
    }
}
