//! Pairs of UDP ports: pairs of one session, and pairs shared by sessions.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use measure::{Time, tester};
use net::batch::{ReceiveBatch, ReceivedDatagram};
use net::options::DropRule;
use net::ports::Pair;
use net::{Clock, PortRange};
use session::{ChannelError, Interface, MediaFilter, Port, SinkId};
use slab::Slab;

use super::batched_reads::{
    BatchRead, BatchedReads, BatchedSocket, DATAGRAMS_PER_READ_MAX, ReadTotals,
};
use super::error_mapping::channel_error;
use super::ids::{ChannelKey, SessionKey, SocketId};
use super::media_counter::{MediaCounter, count_foreign};
use super::receiving::{ReceiveOutcome, ReceivingSocket};
use super::runtime::Runtime;
use crate::network::multicast_interface;
use crate::trace::Tracer;

/// One socket of a pair of UDP sockets that belongs to one session.
struct UdpEnd {
    socket: ReceivingSocket,
    owner: ChannelKey,
    population: usize,
    port: Port,
    /// Sink of the datagrams; `None` if the session receives them itself.
    sink: Option<SinkId>,
    /// Host whose datagrams count. Before the peer is set, all datagrams count.
    peer: Option<IpAddr>,
    /// True once the session was notified of datagrams from another address.
    knows_others: bool,
    /// Even port of the pair.
    pair: u16,
}

/// One socket of a pair of UDP sockets shared by many sessions.
struct SharedEnd {
    socket: ReceivingSocket,
    port: Port,
    routes: HashMap<SocketAddr, ChannelKey>,
}

/// How datagrams to multicast groups are sent.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct MulticastOutput {
    pub(super) ttl: u8,
    /// Interface; `None` for that of the source address.
    pub(super) interface: Option<Interface>,
}

/// The pairs of UDP ports of a worker.
pub(super) struct Pairs {
    pub(super) ports: PortRange,
    own: Slab<UdpEnd>,
    shared: Slab<SharedEnd>,
    /// Shared pairs by local address; pairs for sending to multicast groups also by TTL and
    /// interface.
    by_local: HashMap<(IpAddr, Option<MulticastOutput>), PairIndices>,
    batched: BatchedReads,
}

/// Request for a pair that belongs to one session.
pub(super) struct PairRequest<'a> {
    pub(super) owner: ChannelKey,
    pub(super) population: usize,
    pub(super) local: IpAddr,
    /// Sink of the media datagrams.
    pub(super) sink: Option<SinkId>,
    /// True if the packet ring receives the media.
    pub(super) on_ring: bool,
    pub(super) tracer: Option<&'a Tracer>,
}

/// Indices of the two sockets of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PairIndices {
    pub(super) media: usize,
    pub(super) control: usize,
}

/// Remote addresses of a channel of UDP ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) media: SocketAddr,
    pub(super) control: SocketAddr,
}

impl PairIndices {
    /// Index of each socket, with its remote address.
    fn with(self, peer: Peer) -> [(usize, SocketAddr); 2] {
        [(self.media, peer.media), (self.control, peer.control)]
    }
}

/// Result of processing a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disposition {
    /// The datagram was counted.
    Counted,
    /// The datagram was counted, and the session's socket is read in batches from now on.
    Batched(SessionKey),
    /// The session must receive the datagram.
    For(ChannelKey, Port),
}

impl Pairs {
    /// Creates an empty list that takes pairs from `ports`.
    pub(super) fn new(ports: PortRange) -> Pairs {
        Pairs {
            ports,
            own: Slab::new(),
            shared: Slab::new(),
            by_local: HashMap::new(),
            batched: BatchedReads::default(),
        }
    }

    /// Opens a single socket on one of the ports. The packet ring receives its media.
    pub(super) fn reserve_single(
        &mut self,
        local: IpAddr,
        mark: MediaFilter,
    ) -> io::Result<std::net::UdpSocket> {
        let marked = DropRule {
            first_byte: mark.first_byte,
            except_second_byte: mark.excluded_second_byte,
        };
        self.ports.reserve_single(local, marked)
    }

    /// Releases the port of such a socket.
    pub(super) fn release(&mut self, port: u16) {
        self.ports.release(port);
    }

    /// Number of sockets.
    pub(super) fn count(&self) -> usize {
        self.own.len() + self.shared.len()
    }

    /// Opens a pair for one session. Returns the address of its even port as well.
    pub(super) fn open(
        &mut self,
        runtime: &Runtime,
        request: &PairRequest<'_>,
    ) -> Result<(SocketAddr, PairIndices), ChannelError> {
        let PairRequest { local, on_ring, .. } = *request;
        let pair = match on_ring {
            true => self.ports.reserve(local),
            false => self.ports.bind(local),
        }
        .map_err(|error| channel_error(&error))?;
        let even = pair.port;
        let make = |socket, port| {
            let trace = request.tracer.map(|tracer| {
                let odd = u16::from(port == Port::Control);
                tracer.socket(SocketAddr::new(local, even + odd))
            });
            UdpEnd {
                socket: ReceivingSocket::new(socket, on_ring && port == Port::Media, trace),
                owner: request.owner,
                population: request.population,
                port,
                sink: request.sink.filter(|_| port == Port::Media),
                peer: None,
                knows_others: false,
                pair: even,
            }
        };
        let added = add_pair(&mut self.own, pair, make, |end, place| {
            end.socket.poll(end.port, SocketId::Pair(place), runtime)
        });
        match added {
            Ok(indices) => Ok((SocketAddr::new(local, even), indices)),
            Err(error) => {
                self.ports.release(even);
                Err(channel_error(&error))
            }
        }
    }

    /// Opens the pair of UDP ports that the worker's sessions share, unless it is open. With
    /// `outward`, opens the shared pair that sends to multicast groups with these settings.
    pub(super) fn open_shared(
        &mut self,
        runtime: &Runtime,
        local: IpAddr,
        outward: Option<MulticastOutput>,
    ) -> Result<(SocketAddr, PairIndices), ChannelError> {
        let pair = match self.by_local.get(&(local, outward.clone())) {
            Some(&pair) => pair,
            None => {
                let pair = self.ports.bind(local);
                let pair = pair.map_err(|error| channel_error(&error))?;
                let port = pair.port;
                let added = self.add_shared(runtime, pair, local, outward.as_ref());
                let places = added.map_err(|error| {
                    self.ports.release(port);
                    channel_error(&error)
                })?;
                self.by_local.insert((local, outward), places);
                places
            }
        };
        let local = self.shared[pair.media].socket.udp.local_addr();
        Ok((local.map_err(|error| channel_error(&error))?, pair))
    }

    fn add_shared(
        &mut self,
        runtime: &Runtime,
        pair: Pair,
        local: IpAddr,
        outward: Option<&MulticastOutput>,
    ) -> io::Result<PairIndices> {
        if let Some(outward) = outward {
            send_to_groups(&pair, local, outward)?;
        }
        let make = |socket, port| SharedEnd {
            socket: ReceivingSocket::new(socket, false, None),
            port,
            routes: HashMap::new(),
        };
        add_pair(&mut self.shared, pair, make, |end, place| {
            end.socket.poll(end.port, SocketId::Shared(place), runtime)
        })
    }

    /// Sets the peer of a session's own pair. Returns the even port if the packet ring receives the
    /// media.
    pub(super) fn name_peer(&mut self, pair: PairIndices, peer: Peer) -> Option<u16> {
        let mut on_ring = None;
        for (place, address) in pair.with(peer) {
            if let Some(end) = self.own.get_mut(place) {
                end.peer = Some(address.ip());
                on_ring = on_ring.or(end.socket.on_ring.then_some(end.pair));
            }
        }
        on_ring
    }

    /// Sets the peer of a session on a shared pair; `before` is the previous one.
    pub(super) fn route(
        &mut self,
        pair: PairIndices,
        owner: ChannelKey,
        peer: Peer,
        before: Option<Peer>,
    ) {
        if let Some(before) = before {
            self.leave(pair, owner.session, before);
        }
        for (place, address) in pair.with(peer) {
            if let Some(end) = self.shared.get_mut(place) {
                end.routes.insert(address, owner);
            }
        }
    }

    /// Removes a session from a shared pair, unless the address has been assigned to another
    /// session meanwhile.
    pub(super) fn leave(&mut self, pair: PairIndices, key: SessionKey, peer: Peer) {
        for (place, address) in pair.with(peer) {
            if let Some(end) = self.shared.get_mut(place)
                && let Entry::Occupied(route) = end.routes.entry(address)
                && route.get().session == key
            {
                route.remove();
            }
        }
    }

    /// Closes a session's own pair. If the packet ring receives the media, the media port stays
    /// reserved until all media is counted, and the kernel's datagram count for the port is
    /// returned.
    pub(super) fn close(&mut self, pair: PairIndices, runtime: &mut Runtime) -> Option<u32> {
        let PairIndices { media, control } = pair;
        self.take_drops(SocketId::Pair(control), runtime);
        self.own.try_remove(control);
        self.take_drops(SocketId::Pair(media), runtime);
        let end = self.own.get(media)?;
        if end.socket.on_ring {
            return Some(end.socket.dropped_for_ring());
        }
        // The media port comes last: closing it frees the pair for other sessions.
        let end = self.own.remove(media);
        self.ports.release(end.pair);
        None
    }

    /// Releases a media port after all its media in the ring was counted. Returns the even port.
    pub(super) fn release_media_port(&mut self, media: usize) -> Option<u16> {
        let end = self.own.try_remove(media)?;
        self.ports.release(end.pair);
        Some(end.pair)
    }

    fn socket(&self, id: SocketId) -> Option<&ReceivingSocket> {
        match id {
            SocketId::Pair(place) => self.own.get(place).map(|end| &end.socket),
            SocketId::Shared(place) => self.shared.get(place).map(|end| &end.socket),
            _ => None,
        }
    }

    /// Returns a socket, and the session that loses the datagrams that the kernel drops at it.
    fn socket_mut(&mut self, id: SocketId) -> Option<(&mut ReceivingSocket, Option<SessionKey>)> {
        match id {
            SocketId::Pair(place) => {
                let end = self.own.get_mut(place)?;
                Some((&mut end.socket, end.sink.map(|_| end.owner.session)))
            }
            SocketId::Shared(place) => Some((&mut self.shared.get_mut(place)?.socket, None)),
            _ => None,
        }
    }

    /// Sends a datagram. Returns `false` on error; a datagram for a closed socket is not an error.
    pub(super) fn send(&self, id: SocketId, to: SocketAddr, bytes: &[u8], clock: &Clock) -> bool {
        let socket = self.socket(id);
        socket.is_none_or(|socket| socket.send(to, bytes, clock))
    }

    /// Duplicates the descriptor of a media socket.
    pub(super) fn descriptor(&self, id: SocketId) -> io::Result<OwnedFd> {
        let socket = self.socket(id).ok_or(io::ErrorKind::NotConnected)?;
        socket.descriptor()
    }

    /// Returns `true` if the socket's datagrams are traced.
    pub(super) fn is_traced(&self, id: SocketId) -> bool {
        let socket = self.socket(id);
        socket.is_some_and(|socket| socket.trace.is_some())
    }

    /// Returns the session that owns the socket, or `None` if the socket is shared or closed.
    #[inline]
    pub(super) fn owner(&self, place: SocketId) -> Option<SessionKey> {
        match place {
            SocketId::Pair(place) => self.own.get(place).map(|end| end.owner.session),
            _ => None,
        }
    }

    /// Receives one batch from a socket.
    pub(super) fn receive(
        &mut self,
        id: SocketId,
        batch: &mut ReceiveBatch,
        runtime: &mut Runtime,
    ) -> ReceiveOutcome {
        let Some((socket, session)) = self.socket_mut(id) else {
            return ReceiveOutcome::Nothing;
        };
        socket.receive(batch, |lost| runtime.add_loss(lost, lost, session))
    }

    /// Counts a datagram, or returns the session that must receive it.
    #[inline]
    pub(super) fn process(
        &mut self,
        place: SocketId,
        datagram: &ReceivedDatagram<'_>,
        counting: &mut MediaCounter<'_>,
    ) -> Disposition {
        match place {
            SocketId::Pair(place) => self.take_in_own(place, datagram, counting),
            SocketId::Shared(place) => {
                let end = self.shared.get(place);
                let Some(end) = end else {
                    return Disposition::Counted;
                };
                match end.routes.get(&datagram.from) {
                    Some(&owner) => Disposition::For(owner, end.port),
                    None => {
                        counting.runtime.tester.add(tester::FOREIGN_PACKETS, 1);
                        Disposition::Counted
                    }
                }
            }
            _ => Disposition::Counted,
        }
    }

    #[inline]
    fn take_in_own(
        &mut self,
        place: usize,
        datagram: &ReceivedDatagram<'_>,
        counting: &mut MediaCounter<'_>,
    ) -> Disposition {
        let Some(end) = self.own.get_mut(place) else {
            return Disposition::Counted;
        };
        end.socket.trace_received(datagram);
        let from = datagram.from.ip();
        if end.peer.is_some_and(|peer| peer != from) {
            let known = &mut end.knows_others;
            count_foreign(known, end.owner.session, end.sink, from, counting.runtime);
            return Disposition::Counted;
        }
        let (key, population) = (end.owner.session, end.population);
        let Some(sink) = end.sink else {
            return Disposition::For(end.owner, end.port);
        };
        if counting.datagram(key, population, sink, datagram)
            && self.own[place].socket.begin_batches(counting.runtime)
        {
            self.batched.add(place, key);
            return Disposition::Batched(key);
        }
        Disposition::Counted
    }

    /// Time at which [`Pairs::read_batched`] next has a socket to read.
    pub(super) fn next_read(&self) -> Time {
        self.batched.next()
    }

    /// Reads the sockets in batched mode that are due by `now`, or all with `None`. Does nothing if
    /// the batch is in use.
    pub(super) fn read_batched(
        &mut self,
        now: Option<Time>,
        batch: &mut Option<ReceiveBatch>,
        counting: &mut MediaCounter<'_>,
    ) {
        let mut batched = std::mem::take(&mut self.batched);
        let read = |turn: &BatchedSocket| self.read_media(turn.place, turn.key, batch, counting);
        match now {
            Some(now) => batched.read_due(now, read),
            None => batched.read_all(read),
        }
        self.batched = batched;
    }

    /// Reads a media socket in batched mode until it is empty. Resulting media events are queued
    /// for the session.
    pub(super) fn read_media(
        &mut self,
        place: usize,
        key: SessionKey,
        batch: &mut Option<ReceiveBatch>,
        counting: &mut MediaCounter<'_>,
    ) -> BatchRead {
        let Some(batch) = batch else {
            return Some(0);
        };
        let clock = counting.runtime.clock.same_start();
        let id = SocketId::Pair(place);
        let mut totals = ReadTotals::default();
        loop {
            let end = self.own.get(place);
            if end.is_none_or(|end| !end.socket.in_batches || end.owner.session != key) {
                return None;
            }
            let more = match self.receive(id, batch, counting.runtime) {
                ReceiveOutcome::Filled { more } => {
                    for datagram in batch.datagrams(&clock) {
                        totals.add(&datagram);
                        self.take_in_own(place, &datagram, counting);
                    }
                    more
                }
                ReceiveOutcome::Error(_) => {
                    totals.datagrams += 1;
                    true
                }
                ReceiveOutcome::Nothing | ReceiveOutcome::NobodyThere(..) => false,
            };
            if !more || totals.datagrams >= DATAGRAMS_PER_READ_MAX {
                break;
            }
        }
        if totals.are_fast() {
            let end = &mut self.own[place];
            end.socket.end_batches(id, counting.runtime);
            if !end.socket.in_batches {
                return None;
            }
        }
        Some(totals.datagrams)
    }

    /// Counts the datagrams that the kernel dropped at a socket since the last call.
    fn take_drops(&mut self, id: SocketId, runtime: &mut Runtime) {
        if let Some((socket, session)) = self.socket_mut(id) {
            socket.take_drops(|lost| runtime.add_loss(lost, lost, session));
        }
    }

    /// Counts the drops of all shared sockets.
    pub(super) fn collect_drops(&mut self, runtime: &mut Runtime) {
        for (_, end) in &mut self.shared {
            let lose = |lost| runtime.add_loss(lost, lost, None);
            end.socket.take_drops(lose);
        }
    }
}

/// Adds both sockets of a pair and polls them, or adds neither.
fn add_pair<T>(
    ends: &mut Slab<T>,
    pair: Pair,
    make: impl Fn(std::net::UdpSocket, Port) -> T,
    poll: impl Fn(&mut T, usize) -> io::Result<()>,
) -> io::Result<PairIndices> {
    let media = ends.insert(make(pair.media, Port::Media));
    let control = ends.insert(make(pair.control, Port::Control));
    for place in [media, control] {
        if let Err(error) = poll(&mut ends[place], place) {
            ends.remove(control);
            ends.remove(media);
            return Err(error);
        }
    }
    Ok(PairIndices { media, control })
}

/// Sets TTL and interface for datagrams that a pair sends to multicast groups.
fn send_to_groups(pair: &Pair, local: IpAddr, output: &MulticastOutput) -> io::Result<()> {
    let named = output.interface.clone();
    let own = Some(local).filter(|local| !local.is_unspecified());
    let interface = named.or(own.map(Interface::Address));
    // With index 0, the routes decide.
    let index = interface.map_or(Ok(0), |interface| multicast_interface(interface).index())?;
    for socket in [&pair.media, &pair.control] {
        net::multicast::set_outgoing_interface(socket, local, index, output.ttl)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
