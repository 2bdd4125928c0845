//! Memberships in multicast groups: one pair of sockets for all sessions that join a group alike.
//!
//! The network brings each packet once, and the kernel copies it once for each worker; what it
//! costs beyond that is a count for each session. Media is read twenty times a second, as it is of
//! other sockets (`turns`), and all of a batch is counted for one session, then for the next: what
//! is known of a session is fetched once for the batch.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use measure::{Time, tester};
use mio::net::UdpSocket;
use net::batch::ReceiveBatch;
use protocol::media::rtcp;
use protocol::metrics as clients;
use protocol::session::{Arrival, ChannelError, ChannelId, Interface, Open, Port, SinkId};
use slab::Slab;

use super::errors::channel_error;
use super::inbox::Pending;
use super::keys::{Place, SessionKey};
use super::sessions::{Channel, Peer};
use super::sockets::Socket;
use super::{Worker, turns};

/// How many batches of a socket are read before the others have their turn.
const BATCHES_A_TURN: usize = 16;

/// One of the pair of sockets of a group.
pub(super) struct GroupEnd {
    pub(super) socket: UdpSocket,
    pub(super) port: Port,
    /// The group's place.
    group: usize,
    /// The kernel's count of dropped datagrams, as far as it has been taken up.
    pub(super) dropped: u32,
    /// Whether it is read in turn, and not polled.
    pub(super) in_turn: bool,
    /// Whether it has brought too much for that.
    pub(super) was_fast: bool,
}

/// What sessions have to agree in to share a membership.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Joined {
    group: IpAddr,
    port: u16,
    control: u16,
    sources: Vec<IpAddr>,
    /// The interface's number.
    interface: u32,
    ttl: u8,
}

/// A session that has joined.
struct Member {
    session: SessionKey,
    channel: ChannelId,
    sink: Option<SinkId>,
    /// From when on packets are its own; none before it has said so.
    begun: Option<Time>,
    /// Whose packets are; anybody's, where that is not said.
    source: Option<IpAddr>,
}

/// A membership.
struct Group {
    joined: Joined,
    media: usize,
    control: usize,
    /// In the order in which they joined.
    members: Vec<Member>,
}

/// The memberships of a worker.
#[derive(Default)]
pub(super) struct Groups {
    places: Slab<Group>,
    by_joined: HashMap<Joined, usize>,
    /// When their media sockets were read last.
    read: Time,
}

impl Groups {
    /// The pair of sockets of each.
    pub(super) fn sockets(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let each = self.places.iter();
        each.map(|(_, group)| (group.media, group.control))
    }
}

impl Worker {
    /// Joins a group, or has a part in the membership that is there. Gives the group's address.
    pub(super) fn join_group(
        &mut self,
        key: SessionKey,
        channel: ChannelId,
        open: Open,
    ) -> Result<SocketAddr, ChannelError> {
        let Open::Multicast {
            group,
            port,
            control,
            mut sources,
            interface,
            ttl,
            sink,
        } = open
        else {
            return Err(ChannelError::Other(0));
        };
        self.trace_misses(key, "what comes from a multicast group");
        // What is sent comes from that address; else from one of the interface's.
        let (interface, from) = match interface {
            Interface::With(address) => (net::multicast::Interface::With(address), address),
            Interface::Named(name) => (net::multicast::Interface::Named(name), group),
        };
        let from = match group {
            _ if from.is_ipv4() == group.is_ipv4() && !from.is_multicast() => from,
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let interface = interface
            .index()
            .map_err(|error| membership_error(&error))?;
        sources.sort_unstable();
        sources.dedup();
        let joined = Joined {
            group,
            port,
            control,
            sources,
            interface,
            ttl,
        };
        let place = match self.groups.by_joined.get(&joined) {
            Some(&place) => place,
            None => self
                .open_group(joined, from)
                .map_err(|error| membership_error(&error))?,
        };
        self.groups.places[place].members.push(Member {
            session: key,
            channel,
            sink,
            begun: None,
            source: None,
        });
        if let Some(slot) = self.slot(key) {
            slot.in_groups = true;
            slot.set_channel(channel, Channel::Group(place));
        }
        Ok(SocketAddr::new(group, port))
    }

    fn open_group(&mut self, joined: Joined, from: IpAddr) -> io::Result<usize> {
        let place = self.groups.places.vacant_key();
        let buffer = self.ports.receive_buffer();
        let mut open = |port, number, buffer| -> io::Result<usize> {
            let Joined {
                group, interface, ..
            } = joined;
            let socket = net::multicast::join(group, number, &joined.sources, interface, buffer)?;
            net::multicast::send_by(&socket, from, interface, joined.ttl)?;
            self.add_udp(Socket::Group(GroupEnd {
                socket: UdpSocket::from_std(socket),
                port,
                group: place,
                dropped: 0,
                in_turn: false,
                was_fast: false,
            }))
        };
        let media = open(Port::Media, joined.port, buffer)?;
        let control = match open(Port::Control, joined.control, 0) {
            Ok(control) => control,
            Err(error) => {
                self.sockets.remove(media);
                return Err(error);
            }
        };
        self.groups.by_joined.insert(joined.clone(), place);
        Ok(self.groups.places.insert(Group {
            joined,
            media,
            control,
            members: Vec::new(),
        }))
    }

    /// From now on what comes is the session's own, if it is from that peer.
    pub(super) fn begin_in_group(
        &mut self,
        place: usize,
        key: SessionKey,
        channel: ChannelId,
        peer: Peer,
    ) {
        let now = self.runtime.clock.now();
        let Some(group) = self.groups.places.get_mut(place) else {
            return;
        };
        let is_it = |member: &&mut Member| (member.session, member.channel) == (key, channel);
        if let Some(member) = group.members.iter_mut().find(is_it) {
            let source = peer.media.ip();
            member.source = (!source.is_unspecified()).then_some(source);
            member.begun.get_or_insert(now);
            let media = group.media;
            // Who passes on what it hears is not to hear it later than need be.
            if group.members.iter().all(|member| member.sink.is_some()) {
                self.read_group_in_turns(media);
            } else {
                self.read_group_at_once(media);
            }
        }
    }

    /// From now on a group's media socket is read in turn, as [`super::turns`] has it, if it can
    /// be.
    fn read_group_in_turns(&mut self, place: usize) {
        let Some(Socket::Group(end)) = self.sockets.get_mut(place) else {
            return;
        };
        let room = net::options::receive_buffer(&end.socket).unwrap_or(0);
        if end.in_turn || end.was_fast || room < turns::ROOM {
            return;
        }
        let polled = self.runtime.readiness.forget(&mut end.socket);
        end.in_turn = polled.is_ok();
    }

    /// From now on a group's media socket is read whenever something comes.
    fn read_group_at_once(&mut self, place: usize) {
        if matches!(self.sockets.get(place), Some(Socket::Group(end)) if end.in_turn) {
            self.read_at_once_again(place);
        }
    }

    /// When [`Worker::read_groups_in_turn`] finds any to read.
    pub(super) fn groups_due(&self) -> Time {
        match self.groups.places.is_empty() {
            true => Time::NEVER,
            false => self.groups.read + turns::INTERVAL,
        }
    }

    /// Reads the groups' media if it is time for that.
    pub(super) fn read_groups_in_turn(&mut self, now: Time) {
        if now >= self.groups.read + turns::INTERVAL {
            self.groups.read = now;
            self.read_all_groups();
        }
    }

    /// Reads all groups' media.
    pub(super) fn read_all_groups(&mut self) {
        if self.groups.places.is_empty() {
            return;
        }
        let media: Vec<usize> = self.groups.sockets().map(|(media, _)| media).collect();
        for place in media {
            self.read_group_media(place);
        }
        self.settle();
    }

    /// A session has no part in a group any more. The membership ends with the last.
    pub(super) fn leave_group(&mut self, place: usize, key: SessionKey) {
        let Some(group) = self.groups.places.get(place) else {
            return;
        };
        for socket in [group.media, group.control] {
            self.take_drops(socket);
        }
        let Some(group) = self.groups.places.get_mut(place) else {
            return;
        };
        // One part, where it has several: each has a channel of its own, and is given up by itself.
        if let Some(index) = group
            .members
            .iter()
            .position(|member| member.session == key)
        {
            group.members.remove(index);
        }
        if group.members.is_empty() {
            let group = self.groups.places.remove(place);
            self.groups.by_joined.remove(&group.joined);
            for socket in [group.media, group.control] {
                self.sockets.try_remove(socket);
            }
        }
    }

    /// Sends a session's datagram to its group, if it is the one that speaks for all.
    pub(super) fn send_to_group(
        &mut self,
        place: usize,
        key: SessionKey,
        port: Port,
        bytes: &[u8],
    ) {
        let Some(group) = self.groups.places.get(place) else {
            return;
        };
        if group
            .members
            .first()
            .is_none_or(|first| first.session != key)
        {
            return;
        }
        let (socket, port) = match port {
            Port::Media => (group.media, group.joined.port),
            Port::Control => (group.control, group.joined.control),
        };
        let Some(Socket::Group(end)) = self.sockets.get(socket) else {
            return;
        };
        let to = SocketAddr::new(group.joined.group, port);
        if end.socket.send_to(bytes, to).is_err() {
            self.runtime.tester.add(tester::SENDS_FAILED, 1);
        }
    }

    /// Reads what a group's socket holds.
    pub(super) fn read_group(&mut self, place: usize) {
        let Some(Socket::Group(end)) = self.sockets.get(place) else {
            return;
        };
        match end.port {
            Port::Media => self.read_group_media(place),
            Port::Control => self.read_group_control(place),
        }
    }

    /// Reads what has come for a session from its groups, before it hears of something else.
    pub(super) fn hear_groups_first(&mut self, key: SessionKey) {
        let Some(slot) = self.slot(key).filter(|slot| slot.in_groups) else {
            return;
        };
        let own = |(_, channel): &(_, Channel)| match *channel {
            Channel::Group(place) => Some(place),
            _ => None,
        };
        let places: Vec<usize> = slot.channels.iter().filter_map(own).collect();
        for place in places {
            if let Some(group) = self.groups.places.get(place) {
                self.read_group_media(group.media);
            }
        }
    }

    /// Counts what a group's media socket holds, and lets those hear it who count for themselves;
    /// what sessions are to hear of it is pending then.
    pub(super) fn read_group_media(&mut self, place: usize) {
        let Some(mut batch) = self.turns.batch.take() else {
            return;
        };
        let (mut count, mut bytes, mut in_turn) = (0, 0, false);
        for turn in 1.. {
            let filled = match self.sockets.get(place) {
                Some(Socket::Group(end)) => {
                    in_turn = end.in_turn;
                    batch.receive(&end.socket)
                }
                _ => break,
            };
            let more = match filled {
                Ok(filled) => {
                    if let Some(drops) = filled.drops {
                        self.count_drops(place, drops);
                    }
                    for datagram in batch.datagrams(&self.runtime.clock) {
                        count += 1;
                        bytes += datagram.length;
                    }
                    self.count_for_group(place, &batch);
                    self.tell_group(place, &batch);
                    filled.more
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // An error stands for one datagram or none; those behind it are not told of again.
                Err(_) => true,
            };
            if !more {
                break;
            }
            if turn >= BATCHES_A_TURN {
                self.runtime.readiness.read_later(Place::Socket(place));
                break;
            }
        }
        self.turns.batch = Some(batch);
        if in_turn && (count > turns::FAST || bytes > turns::FAST_BYTES) {
            self.read_at_once_again(place);
        }
    }

    /// Counts a batch for each member.
    fn count_for_group(&mut self, place: usize, batch: &ReceiveBatch) {
        let Some(Socket::Group(end)) = self.sockets.get(place) else {
            return;
        };
        let Some(group) = self.groups.places.get(end.group) else {
            return;
        };
        let overhead = if group.joined.group.is_ipv4() { 28 } else { 48 };
        let mut foreign = 0;
        for member in &group.members {
            let (Some(begun), Some(sink)) = (member.begun, member.sink) else {
                continue;
            };
            let Some(population) = self.sessions.population(member.session) else {
                continue;
            };
            for datagram in batch.datagrams(&self.runtime.clock) {
                if datagram.at < begun {
                    continue;
                }
                if member
                    .source
                    .is_some_and(|source| source != datagram.from.ip())
                {
                    foreign += 1;
                    continue;
                }
                let arrival = Arrival {
                    at: datagram.at,
                    bytes: datagram.bytes,
                    length: datagram.length,
                    overhead,
                };
                let recorder = self.populations.recorder_at(population, datagram.at);
                if let Some(event) = self.sinks.packet(sink, &arrival, recorder) {
                    self.runtime
                        .inbox
                        .push(member.session, Pending::Media { sink, event });
                }
            }
        }
        self.runtime.tester.add(tester::FOREIGN_PACKETS, foreign);
    }

    /// Has the members without a sink hear a batch.
    fn tell_group(&mut self, place: usize, batch: &ReceiveBatch) {
        let Some(Socket::Group(end)) = self.sockets.get(place) else {
            return;
        };
        let Some(group) = self.groups.places.get(end.group) else {
            return;
        };
        let hears = group.members.iter().filter(|member| member.sink.is_none());
        let hear: Vec<_> = hears
            .filter_map(|m| Some((m.session, m.channel, m.begun?, m.source)))
            .collect();
        if hear.is_empty() {
            return;
        }
        let clock = self.runtime.clock.same_start();
        for datagram in batch.datagrams(&clock) {
            for &(session, channel, begun, source) in &hear {
                if datagram.at < begun {
                    continue;
                }
                if source.is_some_and(|source| source != datagram.from.ip()) {
                    self.runtime.tester.add(tester::FOREIGN_PACKETS, 1);
                    continue;
                }
                self.datagram_arrived(session, channel, Port::Media, &datagram);
            }
        }
    }

    /// Passes RTCP of a group on: a sender's to all, other receivers' to the one that speaks for
    /// all.
    fn read_group_control(&mut self, place: usize) {
        let Some(mut batch) = self.batch.take() else {
            return;
        };
        for turn in 1.. {
            let filled = match self.sockets.get(place) {
                Some(Socket::Group(end)) => batch.receive(&end.socket),
                _ => break,
            };
            let more = match filled {
                Ok(filled) => {
                    if let Some(drops) = filled.drops {
                        self.count_drops(place, drops);
                    }
                    filled.more
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => {
                    if turn >= BATCHES_A_TURN {
                        self.runtime.readiness.read_later(Place::Socket(place));
                        break;
                    }
                    continue;
                }
            };
            let clock = self.runtime.clock.same_start();
            for datagram in batch.datagrams(&clock) {
                for (session, channel) in self.who_hears(place, &datagram) {
                    self.datagram_arrived(session, channel, Port::Control, &datagram);
                }
            }
            self.settle();
            if !more {
                break;
            }
            if turn >= BATCHES_A_TURN {
                self.runtime.readiness.read_later(Place::Socket(place));
                break;
            }
        }
        self.batch = Some(batch);
    }

    /// Who is to hear RTCP that came for a group.
    fn who_hears(
        &self,
        place: usize,
        datagram: &net::batch::Datagram<'_>,
    ) -> Vec<(SessionKey, ChannelId)> {
        let Some(Socket::Group(end)) = self.sockets.get(place) else {
            return Vec::new();
        };
        let Some(group) = self.groups.places.get(end.group) else {
            return Vec::new();
        };
        let count = match rtcp::is_of_sender(datagram.bytes) {
            true => group.members.len(),
            false => 1,
        };
        let from = datagram.from.ip();
        let hears = |member: &&Member| {
            member.begun.is_some() && member.source.is_none_or(|source| source == from)
        };
        let heard = group.members.iter().take(count).filter(hears);
        heard
            .map(|member| (member.session, member.channel))
            .collect()
    }

    /// Counts datagrams that the kernel had no room for at a group's socket: each was one of every
    /// member's.
    pub(super) fn lost_for_group(&mut self, place: usize, lost: u64) {
        let Some(Socket::Group(end)) = self.sockets.get(place) else {
            return;
        };
        let Some(group) = self.groups.places.get(end.group) else {
            return;
        };
        let media = end.port == Port::Media;
        let mut members = 0;
        for member in group.members.iter().filter(|m| m.begun.is_some()) {
            members += 1;
            let population = self.sessions.population(member.session);
            if let Some(population) = population.filter(|_| media) {
                self.populations
                    .recorder(population)
                    .add(clients::LOST_IN_TESTER, lost);
            }
        }
        let lost = if media { lost * members } else { lost };
        self.runtime.tester.add(tester::SOCKET_OVERFLOW, lost);
    }
}

/// What it means that a group could not be joined.
fn membership_error(error: &io::Error) -> ChannelError {
    const ENODEV: i32 = 19;
    const ENOBUFS: i32 = 105;
    match error.raw_os_error() {
        Some(ENOBUFS) => ChannelError::NoMembership,
        Some(ENODEV) => ChannelError::NoInterface,
        _ if error.kind() == io::ErrorKind::NotFound => ChannelError::NoInterface,
        _ => channel_error(error),
    }
}
