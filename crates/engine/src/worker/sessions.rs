//! The sessions of a worker with their state, and the sessions that are to be stopped.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use measure::Time;
use session::{ChannelId, FlowId, PeerId, Session};
use slab::Slab;

use super::ids::{ChannelKey, FlowSender, SessionKey};
use super::pairs::{PairIndices, Peer};
use super::timers::beat_at;
use super::windows::HEARTBEAT;
use crate::messages::Client;
use crate::trace::Tracer;

/// A session and everything the worker holds for it.
pub(super) struct Slot {
    pub(super) serial: u64,
    pub(super) session: Box<dyn Session>,
    /// Index of the population that the session's metrics belong to.
    pub(super) population: usize,
    /// The client of the plan; `None` for a server's session.
    pub(super) client: Option<Client>,
    pub(super) channels: Vec<(ChannelId, Channel)>,
    /// Channels that use TLS, each with the name that the certificate must match.
    pub(super) tls_names: Vec<(ChannelId, Arc<str>)>,
    /// Flows that are sending, each with its sender.
    pub(super) flows: Vec<(FlowId, FlowSender)>,
    pub(super) topics: Vec<Arc<str>>,
    /// Time of the task that delivers the session's deadline. Queued deadline tasks with another
    /// time are obsolete.
    pub(super) deadline_task_at: Time,
    pub(super) stopping: bool,
    /// True if the packet ring receives media of this session.
    pub(super) on_ring: bool,
    /// True if media of this session is received from sockets that are read in batches.
    pub(super) in_batches: bool,
    /// True if media of this session is received from a multicast group.
    pub(super) in_groups: bool,
    /// True if the session has single UDP sockets of its own.
    pub(super) has_single: bool,
    /// True if any socket of this session is read late.
    pub(super) has_late_socket: bool,
    /// Trace of the datagrams and bytes received and sent, if the client is traced.
    pub(super) trace: Option<Tracer>,
}

/// State of a session's channel.
#[derive(Clone, Copy, Debug)]
pub(super) enum Channel {
    /// The name of the host is being resolved.
    Resolving,
    /// A TCP connection, with its index in the worker's connections.
    Stream(usize),
    /// A pair of UDP sockets, owned by the session or shared with other sessions.
    Pair {
        pair: PairIndices,
        shared: bool,
        peer: Option<Peer>,
    },
    /// A membership in a multicast group, with its index in the worker's groups.
    Group(usize),
    /// A single UDP socket of the session, or the socket of an endpoint.
    Datagrams {
        place: usize,
        /// Default destination of datagrams.
        to: Option<SocketAddr>,
        /// Source address of sent datagrams, if the socket is bound to all addresses: the address
        /// to which the peer sent.
        source: Option<IpAddr>,
        /// Number of the session's peer, if the socket belongs to an endpoint.
        accepted: Option<PeerId>,
    },
}

impl Slot {
    /// Creates a session without channels and flows.
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
            // Most sessions have a connection and a media socket.
            channels: Vec::with_capacity(2),
            tls_names: Vec::new(),
            flows: Vec::new(),
            topics: Vec::new(),
            deadline_task_at: Time::NEVER,
            stopping: false,
            on_ring: false,
            in_batches: false,
            in_groups: false,
            has_single: false,
            has_late_socket: false,
            trace: None,
        }
    }

    pub(super) fn channel(&self, id: ChannelId) -> Option<Channel> {
        self.channels
            .iter()
            .find(|(channel, _)| *channel == id)
            .map(|(_, state)| *state)
    }

    pub(super) fn channel_mut(&mut self, id: ChannelId) -> Option<&mut Channel> {
        let mut channels = self.channels.iter_mut();
        let found = channels.find(|(channel, _)| *channel == id)?;
        Some(&mut found.1)
    }

    pub(super) fn set_channel(&mut self, id: ChannelId, state: Channel) {
        match self.channel_mut(id) {
            Some(place) => *place = state,
            None => self.channels.push((id, state)),
        }
    }

    /// Returns the name that the certificate must match, or `None` if the channel does not use TLS.
    pub(super) fn tls_name(&self, id: ChannelId) -> Option<Arc<str>> {
        let secured = self.tls_names.iter().find(|(channel, _)| *channel == id);
        secured.map(|(_, name)| name.clone())
    }

    pub(super) fn forget_channel(&mut self, id: ChannelId) {
        self.tls_names.retain(|(channel, _)| *channel != id);
        self.channels.retain(|(channel, _)| *channel != id);
    }

    /// Returns `true` if the session's media has begun.
    pub(super) fn has_media(&self) -> bool {
        match &self.client {
            Some(client) => client.first_media.is_some(),
            // The session receives for a client elsewhere, so no start-up delay depends on its
            // inputs.
            None => self.on_ring,
        }
    }

    /// Returns the time for which a deadline task must be added, or `None` if a queued task comes
    /// early enough. A task that fires early checks the deadline again, so a deadline that moves
    /// with every response does not leave a trail of tasks. `beat` is the next heartbeat; `turn` is
    /// the start of the current loop iteration.
    #[inline]
    pub(super) fn arm(&mut self, beat: Time, turn: Time) -> Option<Time> {
        let deadline = self.session.deadline()?;
        if deadline >= self.deadline_task_at {
            return None;
        }
        let beat = beat_at(beat, HEARTBEAT, deadline);
        // A deadline at which the session only sends something (a report, a keep-alive) is
        // postponed to the next heartbeat, for which the loop wakes up anyway. With thousands of
        // clients, a wake-up for each would cost more than sending.
        let at = match self.session.awaits_input(beat) {
            true => deadline,
            false => beat,
        };
        // A deadline in the past is delivered in the next iteration. A session that sets one
        // repeatedly uses processor time but does not starve others.
        let at = at.max(turn + Duration::from_nanos(1));
        if at >= self.deadline_task_at {
            return None;
        }
        self.deadline_task_at = at;
        Some(at)
    }
}

/// The sessions of a worker.
pub(super) struct Sessions {
    slots: Slab<Slot>,
    /// Sessions that are still to be stopped, and the time by which they must have ended.
    to_stop: (std::vec::IntoIter<SessionKey>, Time),
    /// Time that a session may take to stop.
    pub(super) stop_timeout: Duration,
}

impl Sessions {
    /// Creates an empty list.
    pub(super) fn new(stop_timeout: Duration) -> Sessions {
        Sessions {
            slots: Slab::new(),
            to_stop: (Vec::new().into_iter(), Time::ZERO),
            stop_timeout,
        }
    }

    pub(super) fn add(&mut self, slot: Slot) -> SessionKey {
        SessionKey {
            serial: slot.serial,
            index: self.slots.insert(slot),
        }
    }

    pub(super) fn remove(&mut self, key: SessionKey) -> Option<Slot> {
        self.get(key)?;
        self.slots.try_remove(key.index)
    }

    #[inline]
    pub(super) fn get(&self, key: SessionKey) -> Option<&Slot> {
        let slot = self.slots.get(key.index);
        slot.filter(|slot| slot.serial == key.serial)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: SessionKey) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(key.index);
        slot.filter(|slot| slot.serial == key.serial)
    }

    /// State of a session's channel; `None` if it is closed.
    pub(super) fn channel(&self, key: ChannelKey) -> Option<Channel> {
        self.get(key.session)?.channel(key.channel)
    }

    /// Sets the state of a channel, unless its session is gone.
    pub(super) fn set_channel(&mut self, key: ChannelKey, state: Channel) {
        if let Some(slot) = self.get_mut(key.session) {
            slot.set_channel(key.channel, state);
        }
    }

    /// Index of the connection of a channel; `None` if it has none.
    pub(super) fn stream(&self, key: ChannelKey) -> Option<usize> {
        match self.channel(key)? {
            Channel::Stream(index) => Some(index),
            _ => None,
        }
    }

    pub(super) fn population(&self, key: SessionKey) -> Option<usize> {
        self.get(key).map(|slot| slot.population)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn keys(&self) -> Vec<SessionKey> {
        let key = |(index, slot): (usize, &Slot)| SessionKey {
            index,
            serial: slot.serial,
        };
        self.slots.iter().map(key).collect()
    }

    /// Returns the sessions at the indices `first`, `first + step`, and so on.
    pub(super) fn every_nth(&self, first: usize, step: usize) -> impl Iterator<Item = &Slot> {
        // Iterates over indices, so that the cost is a fraction of the total.
        let indices = (first..self.slots.capacity()).step_by(step);
        indices.filter_map(|index| self.slots.get(index))
    }

    /// Marks all current sessions to be stopped, with `until` as their limit.
    pub(super) fn stop_all(&mut self, until: Time) {
        self.to_stop = (self.keys().into_iter(), until);
    }

    /// Returns the next session to be stopped, and the time by which it must have ended.
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
    use session::{Context, Input};

    use super::*;

    /// A session with a deadline at which it awaits something or only sends.
    struct Due {
        deadline: Time,
        awaits: bool,
    }

    impl Session for Due {
        fn handle(&mut self, _: &mut Context<'_>, _: Input<'_>) {}

        fn deadline(&self) -> Option<Time> {
            Some(self.deadline)
        }

        fn awaits_input(&self, _: Time) -> bool {
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
    fn deadline_that_only_sends_waits_for_the_next_heartbeat() {
        for (awaits, expected) in [(true, at(50)), (false, at(80))] {
            let mut slot = slot(1, at(50), awaits);
            assert_eq!(slot.arm(at(40), at(10)), Some(expected));
            assert_eq!(slot.arm(at(40), at(10)), None, "one task is enough");
        }
    }

    #[test]
    fn deadline_in_the_past_fires_in_the_next_iteration() {
        let mut slot = slot(1, at(5), true);
        let next = at(10) + Duration::from_nanos(1);
        assert_eq!(slot.arm(at(40), at(10)), Some(next));
    }

    #[test]
    fn key_of_a_removed_session_finds_nothing() {
        let mut sessions = Sessions::new(Duration::ZERO);
        let first = sessions.add(slot(1, at(1), true));
        sessions.stop_all(at(9));
        assert!(sessions.remove(first).is_some());
        let second = sessions.add(slot(2, at(1), true));
        assert_eq!(first.index, second.index);
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
