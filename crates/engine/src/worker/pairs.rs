//! Pairs of UDP ports: pairs of one session, and pairs shared by sessions.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use measure::{Time, tester};
use mio::net::UdpSocket;
use net::batch::{ReceiveBatch, ReceivedDatagram};
use net::options::DropRule;
use net::ports::Pair;
use net::{Clock, PortRange};
use session::{Arrival, ChannelError, ChannelId, Interface, MediaFilter, Port, SinkId};
use slab::Slab;

use super::batched_reads::{
    BatchRead, BatchedReads, DATAGRAMS_PER_READ_MAX, FAST, FAST_BYTES, RECEIVE_BUFFER_MIN,
};
use super::error_mapping::channel_error;
use super::ids::{SessionKey, SocketId};
use super::media_counter::{MediaCounter, count_foreign};
use super::receive_batches::ReceiveOutcome;
use super::runtime::Runtime;
use super::sessions::Peer;
use crate::trace::{TracedSocket, Tracer};

/// One socket of a pair of UDP sockets that belongs to one session.
struct UdpEnd {
    socket: UdpSocket,
    session: SessionKey,
    population: usize,
    channel: ChannelId,
    port: Port,
    /// Sink of the datagrams; `None` if the session receives them itself.
    sink: Option<SinkId>,
    /// Host whose datagrams count. Before the peer is set, all datagrams count.
    peer: Option<IpAddr>,
    /// Bytes of a datagram on the wire in addition to its payload: IP and UDP headers.
    overhead: usize,
    /// True if the socket only holds the port: the kernel drops all datagrams, and the packet ring
    /// receives them.
    on_ring: bool,
    /// True once the session was notified of datagrams from another address.
    knows_others: bool,
    /// True if the socket is read in batches instead of polled.
    in_batches: bool,
    /// True if batched reads ended because the socket received too much.
    was_fast: bool,
    /// The kernel's count of dropped datagrams, as far as already counted.
    dropped: u32,
    /// Even port of the pair.
    pair: u16,
    /// Records the datagrams of a traced client.
    trace: Option<Box<TracedSocket>>,
}

/// One socket of a pair of UDP sockets shared by many sessions.
struct SharedEnd {
    socket: UdpSocket,
    port: Port,
    routes: HashMap<SocketAddr, (SessionKey, ChannelId)>,
    dropped: u32,
}

impl SharedEnd {
    /// Removes a session's route, unless the address has been assigned to another session
    /// meanwhile.
    fn forget_route(&mut self, address: SocketAddr, session: SessionKey) {
        if self
            .routes
            .get(&address)
            .is_some_and(|(key, _)| *key == session)
        {
            self.routes.remove(&address);
        }
    }
}

/// How datagrams to multicast groups are sent: their TTL, and the interface if it is not that of
/// the source address.
pub(super) type MulticastOutput = (u8, Option<Interface>);

/// The pairs of UDP ports of a worker.
pub(super) struct Pairs {
    ports: PortRange,
    own: Slab<UdpEnd>,
    shared: Slab<SharedEnd>,
    /// Shared pairs by local address; pairs for sending to multicast groups also by TTL and
    /// interface.
    by_local: HashMap<(IpAddr, Option<MulticastOutput>), (usize, usize)>,
    batched: BatchedReads,
}

/// Request for a pair that belongs to one session.
pub(super) struct PairRequest<'a> {
    pub(super) session: SessionKey,
    pub(super) population: usize,
    pub(super) channel: ChannelId,
    pub(super) local: IpAddr,
    /// Sink of the media datagrams.
    pub(super) sink: Option<SinkId>,
    /// True if the packet ring receives the media.
    pub(super) on_ring: bool,
    pub(super) tracer: Option<&'a Tracer>,
}

/// A pair that was opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenedPair {
    /// Address of the even port.
    pub(super) local: SocketAddr,
    /// Indices of the two sockets.
    pub(super) media: usize,
    pub(super) control: usize,
}

/// Result of processing a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disposition {
    /// The datagram was counted.
    Counted,
    /// The datagram was counted, and the session's socket is read in batches from now on.
    Batched(SessionKey),
    /// The session must receive the datagram.
    For(SessionKey, ChannelId, Port),
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

    pub(super) fn ports(&self) -> &PortRange {
        &self.ports
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

    /// Opens a pair for one session.
    pub(super) fn open(
        &mut self,
        runtime: &Runtime,
        request: &PairRequest<'_>,
    ) -> Result<OpenedPair, ChannelError> {
        let PairRequest { local, on_ring, .. } = *request;
        let pair = match on_ring {
            true => self.ports.reserve(local),
            false => self.ports.bind(local),
        }
        .map_err(|error| channel_error(&error))?;
        let even = pair.port;
        let make = |socket, port| UdpEnd {
            socket: UdpSocket::from_std(socket),
            session: request.session,
            population: request.population,
            channel: request.channel,
            port,
            sink: request.sink.filter(|_| port == Port::Media),
            peer: None,
            overhead: if local.is_ipv4() { 28 } else { 48 },
            on_ring: on_ring && port == Port::Media,
            knows_others: false,
            in_batches: false,
            was_fast: false,
            dropped: 0,
            pair: even,
            trace: request.tracer.map(|trace| {
                let odd = u16::from(port == Port::Control);
                trace.socket(SocketAddr::new(local, even + odd))
            }),
        };
        let added = add_pair(&mut self.own, pair, make, |end, place| {
            let place = SocketId::Pair(place);
            match end.port {
                Port::Media if end.on_ring => Ok(()),
                Port::Media => runtime.readiness.poll(&mut end.socket, place),
                Port::Control => runtime.readiness.poll_control(&mut end.socket, place),
            }
        });
        match added {
            Ok((media, control)) => Ok(OpenedPair {
                local: SocketAddr::new(local, even),
                media,
                control,
            }),
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
    ) -> Result<OpenedPair, ChannelError> {
        let (media, control) = match self.by_local.get(&(local, outward.clone())) {
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
        let local = self.shared[media].socket.local_addr();
        Ok(OpenedPair {
            local: local.map_err(|error| channel_error(&error))?,
            media,
            control,
        })
    }

    fn add_shared(
        &mut self,
        runtime: &Runtime,
        pair: Pair,
        local: IpAddr,
        outward: Option<&MulticastOutput>,
    ) -> io::Result<(usize, usize)> {
        if let Some(outward) = outward {
            send_to_groups(&pair, local, outward)?;
        }
        let make = |socket, port| SharedEnd {
            socket: UdpSocket::from_std(socket),
            port,
            routes: HashMap::new(),
            dropped: 0,
        };
        add_pair(&mut self.shared, pair, make, |end, place| {
            let place = SocketId::Shared(place);
            match end.port {
                Port::Media => runtime.readiness.poll(&mut end.socket, place),
                Port::Control => runtime.readiness.poll_control(&mut end.socket, place),
            }
        })
    }

    /// Sets the peer of a session's own pair. Returns the even port if the packet ring receives the
    /// media.
    pub(super) fn name_peer(&mut self, media: usize, control: usize, peer: Peer) -> Option<u16> {
        let mut on_ring = None;
        for (place, address) in [(media, peer.media), (control, peer.control)] {
            if let Some(end) = self.own.get_mut(place) {
                end.peer = Some(address.ip());
                on_ring = on_ring.or(end.on_ring.then_some(end.pair));
            }
        }
        on_ring
    }

    /// Sets the peer of a session on a shared pair; `before` is the previous one.
    pub(super) fn route(
        &mut self,
        (media, control): (usize, usize),
        (key, channel): (SessionKey, ChannelId),
        peer: Peer,
        before: Option<Peer>,
    ) {
        for (place, address, old) in [
            (media, peer.media, before.map(|peer| peer.media)),
            (control, peer.control, before.map(|peer| peer.control)),
        ] {
            if let Some(end) = self.shared.get_mut(place) {
                if let Some(old) = old {
                    end.forget_route(old, key);
                }
                end.routes.insert(address, (key, channel));
            }
        }
    }

    /// Removes a session from a shared pair.
    pub(super) fn leave(&mut self, media: usize, control: usize, key: SessionKey, peer: Peer) {
        for (place, address) in [(media, peer.media), (control, peer.control)] {
            if let Some(end) = self.shared.get_mut(place) {
                end.forget_route(address, key);
            }
        }
    }

    /// Closes a session's own pair. If the packet ring receives the media, the media port stays
    /// reserved until all media is counted, and the kernel's datagram count for the port is
    /// returned.
    pub(super) fn close(
        &mut self,
        media: usize,
        control: usize,
        runtime: &mut Runtime,
    ) -> Option<u32> {
        self.take_drops(SocketId::Pair(control), runtime);
        self.own.try_remove(control);
        self.take_drops(SocketId::Pair(media), runtime);
        let end = self.own.get(media)?;
        if end.on_ring {
            return Some(net::options::drops(&end.socket).unwrap_or(0));
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

    /// Sends a datagram. Returns `false` on error; a datagram for a closed socket is not an error.
    pub(super) fn send(
        &self,
        place: SocketId,
        to: SocketAddr,
        bytes: &[u8],
        clock: &Clock,
    ) -> bool {
        let sent = match place {
            SocketId::Pair(place) => self.own.get(place).map(|end| {
                let at = end.trace.as_ref().map(|_| clock.now());
                let sent = end.socket.send_to(bytes, to);
                if let (Some(trace), Some(at), Ok(_)) = (&end.trace, at, &sent) {
                    trace.sent(to, bytes, at);
                }
                sent
            }),
            SocketId::Shared(place) => {
                let end = self.shared.get(place);
                end.map(|end| end.socket.send_to(bytes, to))
            }
            _ => None,
        };
        sent.is_none_or(|sent| sent.is_ok())
    }

    /// Duplicates the descriptor of a media socket.
    pub(super) fn descriptor(&self, place: SocketId) -> io::Result<OwnedFd> {
        let socket = match place {
            SocketId::Pair(place) => self.own.get(place).map(|end| &end.socket),
            SocketId::Shared(place) => self.shared.get(place).map(|end| &end.socket),
            _ => None,
        };
        let socket = socket.ok_or(io::ErrorKind::NotConnected)?;
        socket.as_fd().try_clone_to_owned()
    }

    /// Returns `true` if the socket's datagrams are traced.
    pub(super) fn is_traced(&self, place: SocketId) -> bool {
        match place {
            SocketId::Pair(place) => self.own.get(place).is_some_and(|end| end.trace.is_some()),
            _ => false,
        }
    }

    /// Returns the session that owns the socket, or `None` if the socket is shared or closed.
    #[inline]
    pub(super) fn owner(&self, place: SocketId) -> Option<SessionKey> {
        match place {
            SocketId::Pair(place) => self.own.get(place).map(|end| end.session),
            _ => None,
        }
    }

    /// Receives one batch from a socket.
    pub(super) fn receive(
        &mut self,
        place: SocketId,
        batch: &mut ReceiveBatch,
        runtime: &mut Runtime,
    ) -> ReceiveOutcome {
        let filled = match place {
            SocketId::Pair(place) => self.own.get(place).map(|end| batch.receive(&end.socket)),
            SocketId::Shared(place) => {
                let end = self.shared.get(place);
                end.map(|end| batch.receive(&end.socket))
            }
            _ => None,
        };
        match filled {
            None => ReceiveOutcome::Nothing,
            Some(Ok(filled)) => {
                if let Some(drops) = filled.drops {
                    self.count_drops(place, drops, runtime);
                }
                ReceiveOutcome::Filled { more: filled.more }
            }
            Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                ReceiveOutcome::Nothing
            }
            Some(Err(_)) => ReceiveOutcome::Error,
        }
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
                    Some(&(key, channel)) => Disposition::For(key, channel, end.port),
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
        if let Some(trace) = &mut end.trace {
            trace.received(datagram.from, datagram.bytes, datagram.length, datagram.at);
        }
        if end.peer.is_some_and(|peer| peer != datagram.from.ip()) {
            let (runtime, from) = (&mut *counting.runtime, datagram.from.ip());
            match end.sink {
                Some(sink) => {
                    count_foreign(&mut end.knows_others, (end.session, sink), from, runtime)
                }
                None => runtime.tester.add(tester::FOREIGN_PACKETS, 1),
            }
            return Disposition::Counted;
        }
        let Some(sink) = end.sink else {
            return Disposition::For(end.session, end.channel, end.port);
        };
        let arrival = Arrival {
            at: datagram.at,
            bytes: datagram.bytes,
            length: datagram.length,
            overhead: end.overhead,
        };
        let whose = (end.session, end.population);
        if counting.packet(whose, sink, &arrival) && self.begin_batches(place, counting.runtime) {
            return Disposition::Batched(whose.0);
        }
        Disposition::Counted
    }

    /// Starts batched reads of a media socket if possible. Returns `true` if they were started.
    fn begin_batches(&mut self, place: usize, runtime: &Runtime) -> bool {
        let end = &mut self.own[place];
        let room = net::options::receive_buffer(&end.socket).unwrap_or(0);
        if end.in_batches || end.was_fast || end.trace.is_some() || room < RECEIVE_BUFFER_MIN {
            return false;
        }
        if runtime.readiness.deregister(&mut end.socket).is_err() {
            return false;
        }
        end.in_batches = true;
        self.batched.add(place, end.session);
        true
    }

    /// Time at which [`Pairs::read_due`] next has a socket to read.
    pub(super) fn next_read(&self) -> Time {
        self.batched.next()
    }

    /// Reads the sockets in batched mode that are due. Does nothing if the batch is in use.
    pub(super) fn read_due(
        &mut self,
        now: Time,
        batch: &mut Option<ReceiveBatch>,
        counting: &mut MediaCounter<'_>,
    ) {
        let mut batched = std::mem::take(&mut self.batched);
        batched.read_due(now, |turn| {
            self.read_media(turn.place, turn.key, batch, counting)
        });
        self.batched = batched;
    }

    /// Reads all sockets in batched mode.
    pub(super) fn read_all(
        &mut self,
        batch: &mut Option<ReceiveBatch>,
        counting: &mut MediaCounter<'_>,
    ) {
        let mut batched = std::mem::take(&mut self.batched);
        batched.read_all(|turn| self.read_media(turn.place, turn.key, batch, counting));
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
            return BatchRead::Goes(0);
        };
        let clock = counting.runtime.clock.same_start();
        let (mut count, mut bytes) = (0, 0);
        let verdict = loop {
            let filled = match self.own.get(place) {
                Some(end) if end.in_batches && end.session == key => batch.receive(&end.socket),
                _ => break BatchRead::IsGone,
            };
            let filled = match filled {
                Ok(filled) => filled,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    break BatchRead::Goes(count);
                }
                // An error stands for one datagram or none.
                Err(_) if count < DATAGRAMS_PER_READ_MAX => {
                    count += 1;
                    continue;
                }
                Err(_) => break BatchRead::Goes(count),
            };
            if let Some(drops) = filled.drops {
                self.count_drops(SocketId::Pair(place), drops, counting.runtime);
            }
            for datagram in batch.datagrams(&clock) {
                count += 1;
                bytes += datagram.length;
                self.take_in_own(place, &datagram, counting);
            }
            if !filled.more || count >= DATAGRAMS_PER_READ_MAX {
                break BatchRead::Goes(count);
            }
        };
        if verdict != BatchRead::IsGone && (count > FAST || bytes > FAST_BYTES) {
            self.end_batches(place, counting.runtime);
            return BatchRead::IsFast;
        }
        verdict
    }

    /// Ends batched reads of a media socket because it receives too much. It is read on readiness
    /// from now on.
    fn end_batches(&mut self, place: usize, runtime: &mut Runtime) {
        let Some(end) = self.own.get_mut(place) else {
            return;
        };
        let polled = runtime
            .readiness
            .poll(&mut end.socket, SocketId::Pair(place));
        // If polling is refused, batched reads go on: rare reads are better than none.
        end.in_batches = polled.is_err();
        end.was_fast = true;
        runtime.readiness.read_later(SocketId::Pair(place));
    }

    /// Counts the datagrams that the kernel dropped at a socket since the last call.
    fn take_drops(&mut self, place: SocketId, runtime: &mut Runtime) {
        let drops = match place {
            // The count of a socket that only holds its port contains all datagrams.
            SocketId::Pair(place) => match self.own.get(place).filter(|end| !end.on_ring) {
                Some(end) => net::options::drops(&end.socket),
                None => return,
            },
            SocketId::Shared(place) => match self.shared.get(place) {
                Some(end) => net::options::drops(&end.socket),
                None => return,
            },
            _ => return,
        };
        if let Ok(drops) = drops {
            self.count_drops(place, drops, runtime);
        }
    }

    /// Counts the drops of all shared sockets.
    pub(super) fn collect_drops(&mut self, runtime: &mut Runtime) {
        let places: Vec<usize> = self.shared.iter().map(|(place, _)| place).collect();
        for place in places {
            self.take_drops(SocketId::Shared(place), runtime);
        }
    }

    /// Processes the kernel's drop count of a socket, counted since the socket was opened.
    fn count_drops(&mut self, place: SocketId, drops: u32, runtime: &mut Runtime) {
        let (taken, session) = match place {
            SocketId::Pair(place) => match self.own.get_mut(place) {
                Some(end) => (&mut end.dropped, end.sink.map(|_| end.session)),
                None => return,
            },
            SocketId::Shared(place) => match self.shared.get_mut(place) {
                Some(end) => (&mut end.dropped, None),
                None => return,
            },
            _ => return,
        };
        let lost = u64::from(drops.wrapping_sub(*taken));
        *taken = drops;
        if lost > 0 {
            runtime.add_loss(lost, lost, session);
        }
    }
}

/// Adds both sockets of a pair and polls them, or adds neither.
fn add_pair<T>(
    ends: &mut Slab<T>,
    pair: Pair,
    make: impl Fn(std::net::UdpSocket, Port) -> T,
    poll: impl Fn(&mut T, usize) -> io::Result<()>,
) -> io::Result<(usize, usize)> {
    let media = ends.insert(make(pair.media, Port::Media));
    let control = ends.insert(make(pair.control, Port::Control));
    for place in [media, control] {
        if let Err(error) = poll(&mut ends[place], place) {
            ends.remove(control);
            ends.remove(media);
            return Err(error);
        }
    }
    Ok((media, control))
}

/// Sets TTL and interface for datagrams that a pair sends to multicast groups.
fn send_to_groups(
    pair: &Pair,
    local: IpAddr,
    (hops, interface): &MulticastOutput,
) -> io::Result<()> {
    let index = match interface {
        Some(Interface::Name(name)) => Some(net::multicast::Interface::Named(name.clone())),
        Some(Interface::Address(address)) => Some(net::multicast::Interface::WithAddress(*address)),
        None if local.is_unspecified() => None,
        None => Some(net::multicast::Interface::WithAddress(local)),
    };
    // With index 0, the routes decide.
    let index = index.map_or(Ok(0), |interface| interface.index())?;
    for socket in [&pair.media, &pair.control] {
        net::multicast::set_outgoing_interface(socket, local, index, *hops)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
