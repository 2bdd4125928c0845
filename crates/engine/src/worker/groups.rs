//! Multicast memberships: one pair of sockets for all sessions that join a group with the same
//! settings.
//!
//! The network delivers each packet once, and the kernel copies it once for each worker. Each
//! session adds only the cost of counting. Media is read twenty times a second, as with other
//! sockets ([`super::batched_reads`]). A whole batch is counted for one session, then for the next,
//! so that the state of a session is fetched once for each batch.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use kit::media::rtcp;
use measure::{Time, tester};
use net::Clock;
use net::batch::{ReceiveBatch, ReceivedDatagram};
use session::{ChannelError, ChannelId, Interface, Open, Port, SinkId};
use slab::Slab;

use super::batched_reads::{INTERVAL, ReadTotals};
use super::error_mapping::channel_error;
use super::ids::{ChannelKey, SessionKey, SocketId};
use super::media_counter::MediaCounter;
use super::receiving::{ReceiveOutcome, ReceivingSocket};
use super::runtime::Runtime;
use crate::network::multicast_interface;

/// One socket of the pair of a group.
struct GroupEnd {
    socket: ReceivingSocket,
    port: Port,
    /// Index of the group.
    group: usize,
}

/// Settings that sessions must have in common to share a membership.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MembershipKey {
    group: IpAddr,
    port: u16,
    control: u16,
    sources: Vec<IpAddr>,
    /// Index of the network interface.
    interface: u32,
    ttl: u8,
}

/// A session that has joined.
#[derive(Clone, Copy)]
pub(super) struct Member {
    session: SessionKey,
    population: usize,
    channel: ChannelId,
    sink: Option<SinkId>,
    /// Time from which datagrams count for the session; `None` until it sets its source.
    begun: Option<Time>,
    /// The only source whose datagrams count; `None` for any.
    source: Option<IpAddr>,
}

/// A membership.
struct Group {
    joined: MembershipKey,
    media: usize,
    control: usize,
    /// In the order in which they joined.
    members: Vec<Member>,
}

/// The memberships of a worker.
#[derive(Default)]
pub(super) struct Groups {
    groups: Slab<Group>,
    by_joined: HashMap<MembershipKey, usize>,
    ends: Slab<GroupEnd>,
    /// Time of the last read of the media sockets.
    read: Time,
}

impl Group {
    /// Counts datagrams that the kernel dropped. Media was lost for every member.
    fn count_loss(&self, port: Port, lost: u64, runtime: &mut Runtime) {
        let begun = self.members.iter().filter(|m| m.begun.is_some());
        match port {
            Port::Media => {
                let members = begun.clone().count() as u64;
                runtime.add_loss(lost * members, lost, begun.map(|member| member.session));
            }
            Port::Control => runtime.add_loss(lost, 0, None),
        }
    }
}

impl Member {
    pub(super) fn owner(&self) -> ChannelKey {
        self.session.channel(self.channel)
    }

    fn is_from_source(&self, datagram: &ReceivedDatagram<'_>) -> bool {
        let from = datagram.from.ip();
        self.source.is_none_or(|source| source == from)
    }

    /// Returns `true` if a datagram is for the member. A datagram of another source is counted as
    /// foreign.
    #[inline]
    pub(super) fn takes(&self, datagram: &ReceivedDatagram<'_>, runtime: &mut Runtime) -> bool {
        if self.begun.is_none_or(|begun| datagram.at < begun) {
            return false;
        }
        let own = self.is_from_source(datagram);
        if !own {
            runtime.tester.add(tester::FOREIGN_PACKETS, 1);
        }
        own
    }
}

impl Groups {
    /// Number of sockets.
    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// Joins a group for a session, or shares an existing membership. Returns the index of the
    /// membership and the address of the group.
    pub(super) fn join(
        &mut self,
        runtime: &Runtime,
        owner: ChannelKey,
        population: usize,
        open: Open,
        receive_buffer: usize,
    ) -> Result<(usize, SocketAddr), ChannelError> {
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
        // Source address of sent datagrams; otherwise an address of the interface.
        let from = match interface {
            Interface::Address(address) => address,
            Interface::Name(_) => group,
        };
        let from = match group {
            _ if from.is_ipv4() == group.is_ipv4() && !from.is_multicast() => from,
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let interface = multicast_interface(interface)
            .index()
            .map_err(|error| membership_error(&error))?;
        sources.sort_unstable();
        sources.dedup();
        let joined = MembershipKey {
            group,
            port,
            control,
            sources,
            interface,
            ttl,
        };
        let index = match self.by_joined.get(&joined) {
            Some(&index) => index,
            None => self
                .open(runtime, joined, from, receive_buffer)
                .map_err(|error| membership_error(&error))?,
        };
        self.groups[index].members.push(Member {
            session: owner.session,
            population,
            channel: owner.channel,
            sink,
            begun: None,
            source: None,
        });
        Ok((index, SocketAddr::new(group, port)))
    }

    fn open(
        &mut self,
        runtime: &Runtime,
        joined: MembershipKey,
        from: IpAddr,
        receive_buffer: usize,
    ) -> io::Result<usize> {
        let group = self.groups.vacant_key();
        let mut open = |port, number, buffer| -> io::Result<usize> {
            let (address, interface) = (joined.group, joined.interface);
            let sources = &joined.sources;
            let socket = net::multicast::join(address, number, sources, interface, buffer)?;
            net::multicast::set_outgoing_interface(&socket, from, interface, joined.ttl)?;
            let mut socket = ReceivingSocket::new(socket, false, None);
            let entry = self.ends.vacant_entry();
            let index = entry.key();
            socket.poll(port, SocketId::Group(index), runtime)?;
            entry.insert(GroupEnd {
                socket,
                port,
                group,
            });
            Ok(index)
        };
        let media = open(Port::Media, joined.port, receive_buffer)?;
        let control = match open(Port::Control, joined.control, 0) {
            Ok(control) => control,
            Err(error) => {
                self.ends.remove(media);
                return Err(error);
            }
        };
        self.by_joined.insert(joined.clone(), group);
        Ok(self.groups.insert(Group {
            joined,
            media,
            control,
            members: Vec::new(),
        }))
    }

    /// Sets the source of a session. Datagrams count for the session from now on.
    pub(super) fn begin(
        &mut self,
        index: usize,
        owner: ChannelKey,
        source: IpAddr,
        runtime: &mut Runtime,
    ) {
        let now = runtime.clock.now();
        let Some(group) = self.groups.get_mut(index) else {
            return;
        };
        let mut members = group.members.iter_mut();
        if let Some(member) = members.find(|member| member.owner() == owner) {
            member.source = (!source.is_unspecified()).then_some(source);
            member.begun.get_or_insert(now);
            let Some(end) = self.ends.get_mut(group.media) else {
                return;
            };
            // A member that forwards media must not receive it later than necessary.
            if group.members.iter().all(|member| member.sink.is_some()) {
                end.socket.begin_batches(runtime);
            } else if end.socket.in_batches {
                let id = SocketId::Group(group.media);
                end.socket.end_batches(id, runtime);
            }
        }
    }

    /// Time at which [`Groups::take_due`] next returns `true`.
    pub(super) fn next_read(&self) -> Time {
        match self.groups.is_empty() {
            true => Time::NEVER,
            false => self.read + INTERVAL,
        }
    }

    /// Returns `true` if it is time to read the groups' media.
    pub(super) fn take_due(&mut self, now: Time) -> bool {
        let due = now >= self.read + INTERVAL;
        if due {
            self.read = now;
        }
        due
    }

    /// Indices of the media sockets of all groups.
    pub(super) fn media(&self) -> Vec<usize> {
        self.groups.iter().map(|(_, group)| group.media).collect()
    }

    /// Returns the index of the media socket of a membership.
    pub(super) fn media_of(&self, index: usize) -> Option<usize> {
        self.groups.get(index).map(|group| group.media)
    }

    /// Returns which port a socket is for.
    pub(super) fn port(&self, end: usize) -> Option<Port> {
        self.ends.get(end).map(|end| end.port)
    }

    /// Removes a channel of a session from a group. The membership ends with its last member.
    pub(super) fn leave(&mut self, index: usize, owner: ChannelKey, runtime: &mut Runtime) {
        let Some(&Group { media, control, .. }) = self.groups.get(index) else {
            return;
        };
        for end in [media, control] {
            self.take_drops(end, runtime);
        }
        let members = &mut self.groups[index].members;
        // A session may be a member several times, with a channel for each.
        members.retain(|member| member.owner() != owner);
        if members.is_empty() {
            let group = self.groups.remove(index);
            self.by_joined.remove(&group.joined);
            for end in [media, control] {
                self.ends.try_remove(end);
            }
        }
    }

    /// Sends a datagram of a session to its group if the session is the first member, which speaks
    /// for all. Returns `false` on error.
    pub(super) fn send(
        &self,
        index: usize,
        key: SessionKey,
        port: Port,
        bytes: &[u8],
        clock: &Clock,
    ) -> bool {
        let Some(group) = self.groups.get(index) else {
            return true;
        };
        let first = group.members.first();
        if first.is_none_or(|first| first.session != key) {
            return true;
        }
        let (end, port) = match port {
            Port::Media => (group.media, group.joined.port),
            Port::Control => (group.control, group.joined.control),
        };
        let to = SocketAddr::new(group.joined.group, port);
        let end = self.ends.get(end);
        end.is_none_or(|end| end.socket.send(to, bytes, clock))
    }

    /// Receives one batch from a socket.
    pub(super) fn receive(
        &mut self,
        end: usize,
        batch: &mut ReceiveBatch,
        runtime: &mut Runtime,
    ) -> ReceiveOutcome {
        let Some((end, group)) = self.end_mut(end) else {
            return ReceiveOutcome::Nothing;
        };
        let port = end.port;
        let lose = |lost| group.count_loss(port, lost, runtime);
        end.socket.receive(batch, lose)
    }

    fn end_mut(&mut self, end: usize) -> Option<(&mut GroupEnd, &Group)> {
        let end = self.ends.get_mut(end)?;
        let group = self.groups.get(end.group)?;
        Some((end, group))
    }

    fn group_of(&self, end: usize) -> Option<&Group> {
        self.groups.get(self.ends.get(end)?.group)
    }

    /// Counts a batch of media for each member with a sink.
    pub(super) fn count_media(
        &self,
        end: usize,
        batch: &ReceiveBatch,
        brought: &mut ReadTotals,
        counting: &mut MediaCounter<'_>,
    ) {
        let clock = counting.runtime.clock.same_start();
        for datagram in batch.datagrams(&clock) {
            brought.add(&datagram);
        }
        let Some(group) = self.group_of(end) else {
            return;
        };
        for member in &group.members {
            let Some(sink) = member.sink.filter(|_| member.begun.is_some()) else {
                continue;
            };
            for datagram in batch.datagrams(&clock) {
                if member.takes(&datagram, counting.runtime) {
                    counting.datagram(member.session, member.population, sink, &datagram);
                }
            }
        }
    }

    /// Ends a read of a media socket. A socket that received much is read on readiness from now on.
    pub(super) fn was_read(&mut self, end: usize, brought: &ReadTotals, runtime: &mut Runtime) {
        if let Some(read) = self.ends.get_mut(end)
            && read.socket.in_batches
            && brought.are_fast()
        {
            read.socket.end_batches(SocketId::Group(end), runtime);
        }
    }

    /// Returns the members that receive media themselves.
    pub(super) fn hearers(&self, end: usize) -> Vec<Member> {
        let members = self.group_of(end).map_or(&[][..], |group| &group.members);
        let hears = members.iter().filter(|member| member.sink.is_none());
        hears.copied().collect()
    }

    /// Returns the members that receive an RTCP datagram: all members for RTCP of a sender, only
    /// the first for RTCP of another receiver.
    pub(super) fn hearers_of_control(
        &self,
        end: usize,
        datagram: &ReceivedDatagram<'_>,
    ) -> Vec<ChannelKey> {
        let members = self.group_of(end).map_or(&[][..], |group| &group.members);
        let count = match rtcp::may_be_from_sender(datagram.bytes) {
            true => members.len(),
            false => 1,
        };
        let hears = |member: &&Member| member.begun.is_some() && member.is_from_source(datagram);
        let recipients = members.iter().take(count).filter(hears);
        recipients.map(Member::owner).collect()
    }

    /// Counts the drops of all sockets.
    pub(super) fn collect_drops(&mut self, runtime: &mut Runtime) {
        for end in 0..self.ends.capacity() {
            self.take_drops(end, runtime);
        }
    }

    fn take_drops(&mut self, end: usize, runtime: &mut Runtime) {
        if let Some((end, group)) = self.end_mut(end) {
            let port = end.port;
            let lose = |lost| group.count_loss(port, lost, runtime);
            end.socket.take_drops(lose);
        }
    }
}

/// Returns the channel error for a failed join.
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

#[cfg(test)]
mod tests;
