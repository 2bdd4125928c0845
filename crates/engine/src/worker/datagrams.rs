//! Single UDP sockets of sessions, and endpoints: the UDP ports of reference servers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use measure::{Time, tester};
use net::batch::{Address, GsoSender, ReceiveBatch, ReceivedDatagram as Received};
use session::{
    ChannelId, Datagram, Endpoint, PeerId, ReadTiming, Route, Session, SocketMedia, Transmit,
};
use slab::Slab;

use super::deferred::Deferred;
use super::ids::{ChannelKey, SessionKey, SocketId};
use super::receiving::{ReceiveOutcome, ReceivingSocket};
use super::runtime::Runtime;
use crate::trace::Tracer;

/// Maximum number of concurrent sessions of an endpoint: datagrams of strangers must not make it
/// grow without bound.
const PEERS_MAX: usize = 1 << 16;

/// Interval between reads at deadlines for a socket whose media is received by the ring: the
/// remaining datagrams can wait, and a read that finds little costs as much as one that finds much.
const REST_EVERY: Duration = Duration::from_millis(40);

/// A reference server over UDP; can be sent to a worker's thread.
pub(crate) struct EndpointPlan {
    pub(crate) socket: std::net::UdpSocket,
    pub(crate) endpoint: Box<dyn Endpoint>,
    /// Index of the population that its sessions' metrics belong to.
    pub(crate) population: usize,
    /// Maximum number of sessions.
    pub(crate) max_sessions: usize,
}

/// A UDP socket of a session or of an endpoint.
struct DatagramEnd {
    socket: ReceivingSocket,
    owner: Owner,
    /// Peer of a connected socket.
    peer: Option<SocketAddr>,
    /// True if the peer's host reported that the port is unreachable. Earlier datagrams are
    /// delivered first.
    refused: bool,
    reading: ReadTiming,
    media: MediaPath,
    /// Time of the last read at a deadline.
    read: Time,
}

impl DatagramEnd {
    fn new(socket: ReceivingSocket, owner: Owner) -> DatagramEnd {
        DatagramEnd {
            socket,
            owner,
            peer: None,
            refused: false,
            reading: ReadTiming::AtOnce,
            media: MediaPath::None,
            read: Time::ZERO,
        }
    }

    /// Registers the socket. One that is read late is polled when the loop is awake, or read at
    /// deadlines.
    fn poll(&mut self, index: usize, runtime: &Runtime) -> io::Result<()> {
        let (socket, id) = (&mut self.socket.udp, SocketId::Single(index));
        match self.reading {
            ReadTiming::AtOnce => runtime.readiness.poll(socket, id),
            ReadTiming::Soon(_) | ReadTiming::MediaSoon(_) | ReadTiming::Late => {
                runtime.readiness.poll_control(socket, id)
            }
            ReadTiming::AtDeadlines => Ok(()),
        }
    }
}

/// Request for a socket of a session.
pub(super) struct DatagramRequest<'a> {
    pub(super) owner: ChannelKey,
    /// The socket, bound.
    pub(super) socket: std::net::UdpSocket,
    /// Peer to which the socket is to be connected.
    pub(super) peer: Option<SocketAddr>,
    pub(super) reading: ReadTiming,
    pub(super) media: MediaPath,
    pub(super) tracer: Option<&'a Tracer>,
}

/// Path of the media of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MediaPath {
    /// No media path: the session receives all datagrams.
    None,
    /// Media is received from the socket.
    Socket(SocketMedia),
    /// Media is received by the packet ring. The filter of the socket drops it, and the kernel's
    /// drop count of the socket counts it.
    Ring,
}

/// Reading mode of a socket, given the path of its media.
fn by_path(reading: ReadTiming, media: MediaPath) -> ReadTiming {
    match (reading, media) {
        (ReadTiming::Soon(_), MediaPath::Ring) => ReadTiming::Late,
        (ReadTiming::MediaSoon(_), MediaPath::Ring) => ReadTiming::AtDeadlines,
        (ReadTiming::MediaSoon(within), _) => ReadTiming::Soon(within),
        (reading, _) => reading,
    }
}

/// Owner of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Session(SessionKey, ChannelId),
    Endpoint(usize),
}

impl Owner {
    /// Session that loses the datagrams that the kernel drops; `None` for an endpoint.
    fn session(self) -> Option<SessionKey> {
        match self {
            Owner::Session(key, _) => Some(key),
            Owner::Endpoint(_) => None,
        }
    }
}

/// The single UDP sockets and the endpoints of a worker.
#[derive(Default)]
pub(super) struct Datagrams {
    ends: Slab<DatagramEnd>,
    endpoints: Vec<EndpointState>,
    sender: GsoSender,
    /// Response of an endpoint that needs no session.
    answer: Vec<u8>,
    /// Sockets that are read late: before other inputs of their session, at its deadlines, and at
    /// the end of each window.
    late: BTreeSet<usize>,
    /// Number of sockets for each interval of [`ReadTiming::Soon`].
    soon: BTreeMap<Duration, usize>,
}

struct EndpointState {
    endpoint: Box<dyn Endpoint>,
    socket: usize,
    population: usize,
    max_sessions: usize,
    peers: HashMap<PeerId, SessionKey>,
    closed: bool,
    /// True once a session was refused because there were too many.
    is_full: bool,
}

/// Destination of a datagram that an endpoint received.
pub(super) enum Routed {
    To(SessionKey),
    /// Starts a new session.
    Begins(PeerId, Box<dyn Session>),
    Nobody,
}

impl Datagrams {
    /// Time of the next wake-up for sockets with [`ReadTiming::Soon`]; `awake` is that of the last.
    pub(super) fn next_look(&self, awake: Time) -> Time {
        let soonest = self.soon.keys().next();
        soonest.map_or(Time::NEVER, |&soonest| awake + soonest)
    }

    fn count_soon(&mut self, reading: ReadTiming) {
        if let ReadTiming::Soon(within) = reading {
            *self.soon.entry(within).or_default() += 1;
        }
    }

    fn forget_soon(&mut self, reading: ReadTiming) {
        if let ReadTiming::Soon(within) = reading
            && let Some(count) = self.soon.get_mut(&within)
        {
            *count -= 1;
            if *count == 0 {
                self.soon.remove(&within);
            }
        }
    }

    pub(super) fn has_endpoints(&self) -> bool {
        !self.endpoints.is_empty()
    }

    /// Accepts no more sessions. Existing sessions continue.
    pub(super) fn close(&mut self) {
        for state in &mut self.endpoints {
            state.closed = true;
        }
    }

    /// Number of sockets.
    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    fn add(&mut self, runtime: &Runtime, mut end: DatagramEnd) -> io::Result<usize> {
        let entry = self.ends.vacant_entry();
        let index = entry.key();
        end.poll(index, runtime)?;
        let reading = end.reading;
        entry.insert(end);
        self.count_soon(reading);
        Ok(index)
    }

    /// Opens the port of an endpoint.
    pub(super) fn listen(&mut self, runtime: &Runtime, plan: EndpointPlan) -> io::Result<()> {
        plan.socket.set_nonblocking(true)?;
        net::options::enable_timestamps_and_drop_counts(&plan.socket)?;
        if plan.socket.local_addr()?.ip().is_unspecified() {
            net::options::enable_destination_address(&plan.socket)?;
        }
        let socket = ReceivingSocket::new(plan.socket, false, None);
        let end = DatagramEnd::new(socket, Owner::Endpoint(self.endpoints.len()));
        let index = self.add(runtime, end)?;
        self.endpoints.push(EndpointState {
            endpoint: plan.endpoint,
            socket: index,
            population: plan.population,
            max_sessions: plan.max_sessions.min(PEERS_MAX),
            peers: HashMap::new(),
            closed: false,
            is_full: false,
        });
        Ok(())
    }

    /// Adds a bound socket of a session. Returns its index and its local address.
    pub(super) fn open(
        &mut self,
        runtime: &Runtime,
        request: DatagramRequest<'_>,
    ) -> io::Result<(usize, SocketAddr)> {
        let (peer, media) = (request.peer, request.media);
        if let Some(peer) = peer {
            request.socket.connect(peer)?;
        }
        let local = request.socket.local_addr()?;
        let trace = request.tracer.map(|tracer| tracer.socket(local));
        let on_ring = media == MediaPath::Ring;
        let socket = ReceivingSocket::new(request.socket, on_ring, trace);
        let owner = Owner::Session(request.owner.session, request.owner.channel);
        let end = DatagramEnd {
            peer,
            reading: by_path(request.reading, media),
            media,
            ..DatagramEnd::new(socket, owner)
        };
        let index = self.add(runtime, end)?;
        self.update_late(index);
        Ok((index, local))
    }

    /// Changes the reading mode of a session's own socket.
    pub(super) fn set_reading(
        &mut self,
        index: usize,
        reading: ReadTiming,
        runtime: &Runtime,
    ) -> io::Result<()> {
        let Some(end) = self.ends.get_mut(index) else {
            return Ok(());
        };
        let reading = by_path(reading, end.media);
        let before = std::mem::replace(&mut end.reading, reading);
        if before == reading {
            return Ok(());
        }
        let (socket, readiness) = (&mut end.socket.udp, &runtime.readiness);
        match before {
            ReadTiming::AtOnce => readiness.deregister(socket)?,
            ReadTiming::Soon(_) | ReadTiming::MediaSoon(_) | ReadTiming::Late => {
                readiness.deregister_control(socket)?;
            }
            ReadTiming::AtDeadlines => {}
        }
        // Polling also reports datagrams that arrived before.
        let polled = end.poll(index, runtime);
        self.forget_soon(before);
        self.count_soon(reading);
        self.update_late(index);
        polled
    }

    /// Updates whether a socket is read late. A socket that is polled when the loop is awake and
    /// whose media is received by the ring holds nothing that a window would miss. With hundreds of
    /// clients, futile reads at each window and each deadline would cost more than reading what
    /// arrives.
    fn update_late(&mut self, index: usize) {
        let is_late = |end: &DatagramEnd| match end.reading {
            ReadTiming::AtOnce => false,
            ReadTiming::Soon(_) | ReadTiming::MediaSoon(_) | ReadTiming::Late => {
                end.media != MediaPath::Ring
            }
            ReadTiming::AtDeadlines => true,
        };
        match self.ends.get(index).is_some_and(is_late) {
            true => self.late.insert(index),
            false => self.late.remove(&index),
        };
    }

    /// Closes a session's own socket, or removes the session from its endpoint. Returns the release
    /// of the port if the ring receives its media, and may not have delivered it completely.
    pub(super) fn close_channel(
        &mut self,
        index: usize,
        accepted: Option<PeerId>,
        runtime: &mut Runtime,
    ) -> Option<Deferred> {
        let end = self.ends.get(index)?;
        match (end.owner, accepted) {
            (Owner::Session(..), _) => {
                self.take_drops(index, runtime);
                self.late.remove(&index);
                let end = self.ends.remove(index);
                self.forget_soon(end.reading);
                if end.media == MediaPath::Ring {
                    return Some(Deferred::SinglePort {
                        port: end.socket.udp.local_addr().ok()?.port(),
                        arrived: end.socket.dropped_for_ring(),
                    });
                }
            }
            (Owner::Endpoint(endpoint), Some(peer)) => {
                let state = &mut self.endpoints[endpoint];
                if state.peers.remove(&peer).is_some() {
                    state.endpoint.session_ended(peer);
                }
            }
            (Owner::Endpoint(_), None) => {}
        }
        None
    }

    /// Sends datagrams of a session. `to` is the default destination.
    pub(super) fn transmit(
        &mut self,
        index: usize,
        to: Option<SocketAddr>,
        source: Option<IpAddr>,
        transmit: &Transmit,
        bytes: &[u8],
        runtime: &mut Runtime,
    ) {
        let Some(end) = self.ends.get(index) else {
            return;
        };
        let size = transmit.segment_size;
        let Some(to) = transmit.to.or(to) else {
            let count = bytes.len().div_ceil(size) as u64;
            return runtime.tester.add(tester::SENDS_FAILED, count);
        };
        let connected = end.peer.is_some();
        let address = (!connected).then(|| Address::from(to).with_source(source));
        let trace = end.socket.trace.as_ref();
        let trace = trace.map(|trace| (trace, runtime.clock.now()));
        let (sender, address) = (&mut self.sender, address.as_ref());
        let sent = sender.send(&end.socket.udp, address, bytes, size, |datagram| {
            if let Some((trace, at)) = trace {
                trace.sent(to, datagram, at);
            }
        });
        let refused = sent.refused as u64;
        runtime.tester.add(tester::SENDS_FAILED, refused);
        if sent.connection_refused && connected {
            self.refused(index, runtime);
        }
    }

    /// Marks the peer of a socket as unreachable. Earlier datagrams are read first.
    pub(super) fn refused(&mut self, index: usize, runtime: &mut Runtime) {
        if let Some(end) = self.ends.get_mut(index) {
            end.refused = true;
            runtime.read_later(SocketId::Single(index));
        }
    }

    /// Duplicates the descriptor of a socket. Also returns whether sessions share the socket.
    pub(super) fn descriptor(&self, index: usize) -> io::Result<(OwnedFd, bool)> {
        let end = self.ends.get(index).ok_or(io::ErrorKind::NotConnected)?;
        let shared = matches!(end.owner, Owner::Endpoint(_));
        Ok((end.socket.descriptor()?, shared))
    }

    /// Returns `true` if the socket is read late.
    pub(super) fn is_late(&self, index: usize) -> bool {
        self.late.contains(&index)
    }

    /// Indices of the sockets that are read late.
    pub(super) fn late(&self) -> Vec<usize> {
        self.late.iter().copied().collect()
    }

    /// Owner of a socket; `None` if it is closed.
    pub(super) fn owner(&self, index: usize) -> Option<Owner> {
        self.ends.get(index).map(|end| end.owner)
    }

    /// Receives one batch from a socket.
    pub(super) fn receive(
        &mut self,
        index: usize,
        batch: &mut ReceiveBatch,
        runtime: &mut Runtime,
    ) -> ReceiveOutcome {
        let Some(end) = self.ends.get_mut(index) else {
            return ReceiveOutcome::Nothing;
        };
        let session = end.owner.session();
        let lose = |lost| runtime.add_loss(lost, lost, session);
        let outcome = end.socket.receive(batch, lose);
        match (outcome, end.owner) {
            // After an unreachable error, everything is read.
            (ReceiveOutcome::Filled { more }, _) => ReceiveOutcome::Filled {
                more: more || end.refused,
            },
            (ReceiveOutcome::Nothing, Owner::Session(key, channel)) if end.refused => {
                ReceiveOutcome::NobodyThere(key.channel(channel))
            }
            // The kernel reports the error before queued datagrams.
            (ReceiveOutcome::Error(kind), _) => {
                let is_connected = end.peer.is_some();
                end.refused |= is_connected && kind == io::ErrorKind::ConnectionRefused;
                ReceiveOutcome::Error(kind)
            }
            (outcome, _) => outcome,
        }
    }

    /// Traces a datagram. Returns `false` if it is foreign. `peer` is the peer of the socket at the
    /// time of the receive call.
    pub(super) fn take_in(
        &mut self,
        index: usize,
        came: &Received<'_>,
        peer: Option<SocketAddr>,
        runtime: &mut Runtime,
    ) -> bool {
        if let Some(end) = self.ends.get_mut(index) {
            end.socket.trace_received(came);
        }
        // The datagram arrived before the socket was connected.
        let foreign = peer.is_some_and(|peer| peer != came.from);
        if foreign {
            runtime.tester.add(tester::FOREIGN_PACKETS, 1);
        }
        !foreign
    }

    /// Returns `true` if a socket must be read at a deadline of its session. The socket then counts
    /// as read.
    pub(super) fn is_due(&mut self, index: usize, now: Time) -> bool {
        let Some(end) = self.ends.get_mut(index) else {
            return false;
        };
        let seldom = end.media == MediaPath::Ring && end.reading == ReadTiming::AtDeadlines;
        let is_due = !seldom || end.refused || now >= end.read + REST_EVERY;
        if is_due {
            end.read = now;
        }
        is_due
    }

    /// Returns `true` if the packet ring receives the media of the socket.
    pub(super) fn is_on_ring(&self, index: usize) -> bool {
        let end = self.ends.get(index);
        end.is_some_and(|end| end.media == MediaPath::Ring)
    }

    /// Sink and pattern of media that arrives on the socket itself.
    pub(super) fn media(&self, index: usize) -> Option<SocketMedia> {
        match self.ends.get(index)?.media {
            MediaPath::Socket(media) => Some(media),
            MediaPath::None | MediaPath::Ring => None,
        }
    }

    /// Peer of a connected socket.
    pub(super) fn peer(&self, index: usize) -> Option<SocketAddr> {
        self.ends.get(index).and_then(|end| end.peer)
    }

    /// Asks an endpoint which session a datagram is for, and sends the endpoint's own response if
    /// it has one. The response leaves from `sent_to`, the local address of the datagram, if it is
    /// known.
    pub(super) fn route(
        &mut self,
        index: usize,
        datagram: &Datagram<'_>,
        sent_to: Option<IpAddr>,
        runtime: &mut Runtime,
    ) -> Routed {
        let now = runtime.clock.now();
        let (state, answer) = (&mut self.endpoints[index], &mut self.answer);
        let room = !state.closed && state.peers.len() < state.max_sessions;
        answer.clear();
        let route = state.endpoint.route(now, datagram, room, answer);
        let is_new = matches!(route, Route::Accept(..) | Route::Answer);
        if is_new && !room && !state.closed && !std::mem::replace(&mut state.is_full, true) {
            let open = state.peers.len();
            let text = format!("refusing sessions: {open} are open, the maximum");
            runtime.note("sessions_refused", None, text);
        }
        let foreign = match route {
            Route::Session(peer) => match state.peers.get(&peer) {
                Some(&key) => return Routed::To(key),
                None => true,
            },
            Route::Accept(peer, session) if room && !state.peers.contains_key(&peer) => {
                return Routed::Begins(peer, session);
            }
            Route::Accept(peer, _) => {
                state.endpoint.session_ended(peer);
                true
            }
            Route::Answer => {
                if let Some(end) = self.ends.get(state.socket)
                    && !answer.is_empty()
                {
                    let to = Address::from(datagram.from).with_source(sent_to);
                    let socket = &end.socket.udp;
                    let length = answer.len();
                    let sent = self.sender.send(socket, Some(&to), answer, length, |_| {});
                    let refused = sent.refused as u64;
                    runtime.tester.add(tester::SENDS_FAILED, refused);
                }
                false
            }
            Route::Discard => true,
        };
        let tester = &mut runtime.tester;
        tester.add(tester::FOREIGN_PACKETS, u64::from(foreign));
        Routed::Nobody
    }

    /// Index of the population of an endpoint's sessions.
    pub(super) fn population(&self, index: usize) -> usize {
        self.endpoints[index].population
    }

    /// Stores the session of an endpoint's peer. Returns the index of the socket and its local
    /// address.
    pub(super) fn accepted(
        &mut self,
        index: usize,
        peer: PeerId,
        session: SessionKey,
    ) -> Option<(usize, SocketAddr)> {
        let state = &mut self.endpoints[index];
        state.peers.insert(peer, session);
        let end = self.ends.get(state.socket)?;
        Some((state.socket, end.socket.udp.local_addr().ok()?))
    }

    /// Counts the drops of the endpoints' sockets.
    pub(super) fn collect_drops(&mut self, runtime: &mut Runtime) {
        for index in 0..self.endpoints.len() {
            self.take_drops(self.endpoints[index].socket, runtime);
        }
    }

    fn take_drops(&mut self, index: usize, runtime: &mut Runtime) {
        if let Some(end) = self.ends.get_mut(index) {
            let session = end.owner.session();
            let lose = |lost| runtime.add_loss(lost, lost, session);
            end.socket.take_drops(lose);
        }
    }
}

#[cfg(test)]
mod tests;
