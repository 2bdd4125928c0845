//! Single UDP sockets of sessions, and endpoints: the UDP ports of reference servers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use measure::{Time, tester};
use mio::net::UdpSocket;
use net::batch::{Address, Datagram as Received, ReceiveBatch, SegmentSender};
use protocol::session::{
    ChannelId, Datagram, Endpoint, Media, PeerId, Reading, Route, Session, Transmit,
};
use slab::Slab;

use super::keys::{Place, SessionKey};
use super::runtime::Runtime;
use crate::trace::{TracedSocket, Tracer};

/// How many sessions an endpoint has at a time: what strangers send must not make it grow without
/// end.
const PEERS_MAX: usize = 1 << 16;

/// How often a socket is read whose media comes by the ring, for its session's deadlines: what is
/// left may wait, and a look that finds little costs as much as one that finds much.
const REST_EVERY: Duration = Duration::from_millis(40);

/// A reference server over UDP, as it can be sent to a worker's thread.
pub(crate) struct EndpointPlan {
    pub(crate) socket: std::net::UdpSocket,
    pub(crate) endpoint: Box<dyn Endpoint>,
    /// The population that its sessions' figures belong to.
    pub(crate) population: usize,
    /// Maximum number of its sessions.
    pub(crate) max_sessions: usize,
}

/// A UDP socket of a session, or of an endpoint.
struct DatagramEnd {
    socket: UdpSocket,
    owner: Owner,
    /// The only peer that it speaks to.
    peer: Option<SocketAddr>,
    /// Whether the peer's machine said that nobody is there. What came before is heard first.
    refused: bool,
    reading: Reading,
    media: MediaPath,
    /// When it was read last for its session's deadline.
    read: Time,
    /// The kernel's count of dropped datagrams, as far as it has been taken up.
    dropped: u32,
    /// Hears what it receives and sends, of a client that is traced.
    trace: Option<Box<TracedSocket>>,
}

/// By what way media comes to a socket's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MediaPath {
    /// There is none: the session hears all.
    None,
    /// By the socket.
    Socket(Media),
    /// By the packet ring. The socket's filter drops it, and its count of what it has dropped is of
    /// that.
    Ring,
}

/// A port whose socket is closed, and whose media the ring may not have brought to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingEnd {
    pub(super) port: u16,
    /// How many datagrams the socket has dropped.
    pub(super) arrived: u32,
}

/// Reading mode of a socket, given the path of its media.
fn by_path(reading: Reading, media: MediaPath) -> Reading {
    match (reading, media) {
        (Reading::Soon(_), MediaPath::Ring) => Reading::Late,
        (Reading::MediaSoon(_), MediaPath::Ring) => Reading::AtDeadlines,
        (Reading::MediaSoon(within), _) => Reading::Soon(within),
        (reading, _) => reading,
    }
}

/// Whose a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Session(SessionKey, ChannelId),
    Endpoint(usize),
}

/// The single UDP sockets and the endpoints of a worker.
pub(super) struct Datagrams {
    ends: Slab<DatagramEnd>,
    endpoints: Vec<EndpointState>,
    /// Memory is taken when something comes. It is away while what it holds is handed over.
    batch: Option<ReceiveBatch>,
    sender: SegmentSender,
    /// What an endpoint answers by itself.
    answer: Vec<u8>,
    /// The places of sockets that are read late.
    late: BTreeSet<usize>,
    /// Number of sockets for each interval of [`Reading::Soon`].
    soon: BTreeMap<Duration, usize>,
}

struct EndpointState {
    endpoint: Box<dyn Endpoint>,
    place: usize,
    population: usize,
    max_sessions: usize,
    peers: HashMap<PeerId, SessionKey>,
    closed: bool,
}

/// What a look at a socket brought.
pub(super) enum Look {
    Filled {
        owner: Owner,
        /// Whether there may be more.
        more: bool,
    },
    Nothing,
    /// Nothing, and the only peer of the session's own socket is not there.
    NobodyThere(SessionKey, ChannelId),
    /// An error, which stands for one datagram or none; those behind it are not told of again.
    Error,
}

/// Whose a datagram is that came to an endpoint.
pub(super) enum Routed {
    To(SessionKey),
    /// A session is to begin for it.
    Begins(PeerId, Box<dyn Session>),
    Nobody,
}

impl Datagrams {
    pub(super) fn new() -> Datagrams {
        Datagrams {
            ends: Slab::new(),
            endpoints: Vec::new(),
            batch: Some(ReceiveBatch::bulk()),
            sender: SegmentSender::new(),
            answer: Vec::new(),
            late: BTreeSet::new(),
            soon: BTreeMap::new(),
        }
    }

    /// Time of the next wake-up for sockets with [`Reading::Soon`]; `awake` is that of the last.
    pub(super) fn next_look(&self, awake: Time) -> Time {
        let soonest = self.soon.keys().next();
        soonest.map_or(Time::NEVER, |&soonest| awake + soonest)
    }

    fn count_soon(&mut self, reading: Reading) {
        if let Reading::Soon(within) = reading {
            *self.soon.entry(within).or_default() += 1;
        }
    }

    fn forget_soon(&mut self, reading: Reading) {
        if let Reading::Soon(within) = reading
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

    /// Accepts no more sessions. Those that are there go on.
    pub(super) fn close(&mut self) {
        for state in &mut self.endpoints {
            state.closed = true;
        }
    }

    /// How many sockets there are.
    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    fn add(&mut self, runtime: &Runtime, mut end: DatagramEnd) -> io::Result<usize> {
        let entry = self.ends.vacant_entry();
        let place = entry.key();
        let polled = Place::Single(place);
        // One that is read late is asked when the loop is awake, or for its session's deadline.
        match end.reading {
            Reading::AtOnce => runtime.readiness.poll(&mut end.socket, polled)?,
            Reading::Soon(_) | Reading::MediaSoon(_) | Reading::Late => {
                runtime.readiness.poll_control(&mut end.socket, polled)?;
            }
            Reading::AtDeadlines => {}
        }
        let reading = end.reading;
        entry.insert(end);
        self.count_soon(reading);
        Ok(place)
    }

    /// Opens the port of an endpoint.
    pub(super) fn listen(&mut self, runtime: &Runtime, plan: EndpointPlan) -> io::Result<()> {
        plan.socket.set_nonblocking(true)?;
        net::options::ask_arrival_time_and_drops(&plan.socket)?;
        if plan.socket.local_addr()?.ip().is_unspecified() {
            net::options::ask_destination(&plan.socket)?;
        }
        let end = DatagramEnd {
            socket: UdpSocket::from_std(plan.socket),
            owner: Owner::Endpoint(self.endpoints.len()),
            peer: None,
            refused: false,
            reading: Reading::AtOnce,
            media: MediaPath::None,
            read: Time::ZERO,
            dropped: 0,
            trace: None,
        };
        let place = self.add(runtime, end)?;
        self.endpoints.push(EndpointState {
            endpoint: plan.endpoint,
            place,
            population: plan.population,
            max_sessions: plan.max_sessions.min(PEERS_MAX),
            peers: HashMap::new(),
            closed: false,
        });
        Ok(())
    }

    /// Takes a bound socket for a session; gives its place and its address.
    pub(super) fn open(
        &mut self,
        runtime: &Runtime,
        (session, channel): (SessionKey, ChannelId),
        (socket, peer): (std::net::UdpSocket, Option<SocketAddr>),
        (reading, media): (Reading, MediaPath),
        tracer: Option<&Tracer>,
    ) -> io::Result<(usize, SocketAddr)> {
        if let Some(peer) = peer {
            socket.connect(peer)?;
        }
        let local = socket.local_addr()?;
        let end = DatagramEnd {
            socket: UdpSocket::from_std(socket),
            owner: Owner::Session(session, channel),
            peer,
            refused: false,
            reading: by_path(reading, media),
            media,
            read: Time::ZERO,
            dropped: 0,
            trace: tracer.map(|tracer| tracer.socket(local)),
        };
        let place = self.add(runtime, end)?;
        self.keep_whether_late(place);
        Ok((place, local))
    }

    /// Reads a session's own socket so soon from now on.
    pub(super) fn set_reading(
        &mut self,
        place: usize,
        reading: Reading,
        runtime: &Runtime,
    ) -> io::Result<()> {
        let Some(end) = self.ends.get_mut(place) else {
            return Ok(());
        };
        let reading = by_path(reading, end.media);
        let before = std::mem::replace(&mut end.reading, reading);
        if before == reading {
            return Ok(());
        }
        let (socket, readiness) = (&mut end.socket, &runtime.readiness);
        match before {
            Reading::AtOnce => readiness.forget(socket)?,
            Reading::Soon(_) | Reading::MediaSoon(_) | Reading::Late => {
                readiness.forget_control(socket)?;
            }
            Reading::AtDeadlines => {}
        }
        // What is there already is told of, too.
        let polled = match reading {
            Reading::AtOnce => readiness.poll(socket, Place::Single(place)),
            Reading::Soon(_) | Reading::MediaSoon(_) | Reading::Late => {
                readiness.poll_control(socket, Place::Single(place))
            }
            Reading::AtDeadlines => Ok(()),
        };
        self.forget_soon(before);
        self.count_soon(reading);
        self.keep_whether_late(place);
        polled
    }

    /// Keeps whether a socket is read late. One that is asked when the loop is awake, and whose
    /// media the ring brings, has nothing that is missed: with hundreds of clients, to look in vain
    /// at each window and each deadline would cost more than to read what comes.
    fn keep_whether_late(&mut self, place: usize) {
        let is_late = |end: &DatagramEnd| match end.reading {
            Reading::AtOnce => false,
            Reading::Soon(_) | Reading::MediaSoon(_) | Reading::Late => {
                end.media != MediaPath::Ring
            }
            Reading::AtDeadlines => true,
        };
        match self.ends.get(place).is_some_and(is_late) {
            true => self.late.insert(place),
            false => self.late.remove(&place),
        };
    }

    /// Closes a session's own socket, or has the endpoint forget the session. Gives the port where
    /// the ring brings its media: it is taken back when all of that is counted.
    pub(super) fn close_channel(
        &mut self,
        place: usize,
        accepted: Option<PeerId>,
        runtime: &mut Runtime,
    ) -> Option<RingEnd> {
        let end = self.ends.get(place)?;
        match (end.owner, accepted) {
            (Owner::Session(..), _) => {
                self.take_drops(place, runtime);
                self.late.remove(&place);
                let end = self.ends.remove(place);
                self.forget_soon(end.reading);
                if end.media == MediaPath::Ring {
                    return Some(RingEnd {
                        port: end.socket.local_addr().ok()?.port(),
                        arrived: net::options::drops(&end.socket).unwrap_or(0),
                    });
                }
            }
            (Owner::Endpoint(index), Some(peer)) => {
                let state = &mut self.endpoints[index];
                if state.peers.remove(&peer).is_some() {
                    state.endpoint.ended(peer);
                }
            }
            (Owner::Endpoint(_), None) => {}
        }
        None
    }

    /// Sends what a session wants sent, to that address where it names no other.
    pub(super) fn transmit(
        &mut self,
        (place, to, source): (usize, Option<SocketAddr>, Option<IpAddr>),
        transmit: &Transmit,
        bytes: &[u8],
        runtime: &mut Runtime,
    ) {
        let Some(end) = self.ends.get(place) else {
            return;
        };
        let size = transmit.segment_size;
        let Some(to) = transmit.to.or(to) else {
            let count = bytes.len().div_ceil(size) as u64;
            return runtime.tester.add(tester::SENDS_FAILED, count);
        };
        let connected = end.peer.is_some();
        let address = (!connected).then(|| Address::from(to).sent_from(source));
        let trace = end.trace.as_ref().map(|trace| (trace, runtime.clock.now()));
        let (sender, address) = (&mut self.sender, address.as_ref());
        let sent = sender.send(&end.socket, address, bytes, size, |datagram| {
            if let Some((trace, at)) = trace {
                trace.sent(to, datagram, at);
            }
        });
        let refused = sent.refused as u64;
        runtime.tester.add(tester::SENDS_FAILED, refused);
        if sent.nobody_there && connected {
            self.refused(place, runtime);
        }
    }

    /// The peer's machine has said that nobody is there. What came before is read first.
    pub(super) fn refused(&mut self, place: usize, runtime: &mut Runtime) {
        if let Some(end) = self.ends.get_mut(place) {
            end.refused = true;
            runtime.readiness.read_later(Place::Single(place));
        }
    }

    /// A descriptor of its own for a socket, and whether sessions share that.
    pub(super) fn descriptor(&self, place: usize) -> io::Result<(OwnedFd, bool)> {
        let end = self.ends.get(place).ok_or(io::ErrorKind::NotConnected)?;
        let shared = matches!(end.owner, Owner::Endpoint(_));
        Ok((end.socket.as_fd().try_clone_to_owned()?, shared))
    }

    /// Whether a socket is read late.
    pub(super) fn is_late(&self, place: usize) -> bool {
        self.late.contains(&place)
    }

    /// The places of those that are read late.
    pub(super) fn late(&self) -> Vec<usize> {
        self.late.iter().copied().collect()
    }

    /// Takes what is read into; nothing where somebody hears just now what it holds.
    pub(super) fn take_batch(&mut self) -> Option<ReceiveBatch> {
        self.batch.take()
    }

    pub(super) fn put_batch(&mut self, batch: ReceiveBatch) {
        self.batch = Some(batch);
    }

    /// Whether somebody hears just now what was read.
    pub(super) fn are_heard(&self) -> bool {
        self.batch.is_none()
    }

    /// Looks at what a socket holds.
    pub(super) fn look(
        &mut self,
        place: usize,
        batch: &mut ReceiveBatch,
        runtime: &mut Runtime,
    ) -> Look {
        let Some(end) = self.ends.get(place) else {
            return Look::Nothing;
        };
        let (owner, refused) = (end.owner, end.refused);
        match batch.receive(&end.socket) {
            Ok(filled) => {
                if let Some(drops) = filled.drops {
                    self.dropped(place, drops, runtime);
                }
                // Where it was refused, all is to be read that there is.
                let more = filled.more || refused;
                Look::Filled { owner, more }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => match owner {
                Owner::Session(key, channel) if refused => Look::NobodyThere(key, channel),
                _ => Look::Nothing,
            },
            // It comes before what is queued.
            Err(error)
                if end.peer.is_some() && error.kind() == io::ErrorKind::ConnectionRefused =>
            {
                if let Some(end) = self.ends.get_mut(place) {
                    end.refused = true;
                }
                Look::Error
            }
            Err(_) => Look::Error,
        }
    }

    /// Traces what came; says whether anybody is to hear it. The peer is the one that the socket
    /// had when it was looked at.
    pub(super) fn take_in(
        &mut self,
        place: usize,
        came: &Received<'_>,
        peer: Option<SocketAddr>,
        runtime: &mut Runtime,
    ) -> bool {
        if let Some(end) = self.ends.get_mut(place)
            && let Some(trace) = &mut end.trace
        {
            trace.received(came.from, came.bytes, came.length, came.at);
        }
        // One that came before the socket was connected.
        let foreign = peer.is_some_and(|peer| peer != came.from);
        if foreign {
            runtime.tester.add(tester::FOREIGN_PACKETS, 1);
        }
        !foreign
    }

    /// Whether a socket is to be read because a deadline of its session has come. It counts as read
    /// then.
    pub(super) fn is_due(&mut self, place: usize, now: Time) -> bool {
        let Some(end) = self.ends.get_mut(place) else {
            return false;
        };
        let seldom = end.media == MediaPath::Ring && end.reading == Reading::AtDeadlines;
        let is_due = !seldom || end.refused || now >= end.read + REST_EVERY;
        if is_due {
            end.read = now;
        }
        is_due
    }

    /// Whether the packet ring brings the media of a socket.
    pub(super) fn is_on_ring(&self, place: usize) -> bool {
        let end = self.ends.get(place);
        end.is_some_and(|end| end.media == MediaPath::Ring)
    }

    /// What of what a socket brings is media.
    pub(super) fn media(&self, place: usize) -> Option<Media> {
        match self.ends.get(place)?.media {
            MediaPath::Socket(media) => Some(media),
            MediaPath::None | MediaPath::Ring => None,
        }
    }

    /// The only peer of a socket.
    pub(super) fn peer(&self, place: usize) -> Option<SocketAddr> {
        self.ends.get(place).and_then(|end| end.peer)
    }

    /// Asks an endpoint which session a datagram is for, and sends the endpoint's own answer if it
    /// has one. The answer leaves from `sent_to`, the local address of the datagram, if it is
    /// known.
    pub(super) fn route(
        &mut self,
        index: usize,
        datagram: &Datagram<'_>,
        sent_to: Option<IpAddr>,
        runtime: &mut Runtime,
    ) -> Routed {
        let now = runtime.clock.now();
        let Datagrams {
            ends,
            endpoints,
            answer,
            sender,
            ..
        } = self;
        let state = &mut endpoints[index];
        let room = !state.closed && state.peers.len() < state.max_sessions;
        answer.clear();
        let route = state.endpoint.route(now, datagram, room, answer);
        let foreign = match route {
            Route::Session(peer) => match state.peers.get(&peer) {
                Some(&key) => return Routed::To(key),
                None => true,
            },
            Route::Accept(peer, session) if room && !state.peers.contains_key(&peer) => {
                return Routed::Begins(peer, session);
            }
            Route::Accept(peer, _) => {
                state.endpoint.ended(peer);
                true
            }
            Route::Answer => {
                if let Some(end) = ends.get(state.place)
                    && !answer.is_empty()
                {
                    let to = Address::from(datagram.from).sent_from(sent_to);
                    let sent = sender.send(&end.socket, Some(&to), answer, answer.len(), |_| {});
                    let refused = sent.refused as u64;
                    runtime.tester.add(tester::SENDS_FAILED, refused);
                }
                false
            }
            Route::Drop => true,
        };
        let tester = &mut runtime.tester;
        tester.add(tester::FOREIGN_PACKETS, u64::from(foreign));
        Routed::Nobody
    }

    /// The population of the sessions of an endpoint.
    pub(super) fn population(&self, index: usize) -> usize {
        self.endpoints[index].population
    }

    /// A session has begun for a peer of an endpoint; gives the place of the socket, and its
    /// address.
    pub(super) fn accepted(
        &mut self,
        index: usize,
        peer: PeerId,
        session: SessionKey,
    ) -> Option<(usize, SocketAddr)> {
        let state = &mut self.endpoints[index];
        state.peers.insert(peer, session);
        let end = self.ends.get(state.place)?;
        Some((state.place, end.socket.local_addr().ok()?))
    }

    /// Takes up the drops at the endpoints' sockets.
    pub(super) fn collect_drops(&mut self, runtime: &mut Runtime) {
        for index in 0..self.endpoints.len() {
            self.take_drops(self.endpoints[index].place, runtime);
        }
    }

    fn take_drops(&mut self, place: usize, runtime: &mut Runtime) {
        if let Some(end) = self.ends.get(place)
            && let Ok(drops) = net::options::drops(&end.socket)
        {
            self.dropped(place, drops, runtime);
        }
    }

    /// The kernel says how many datagrams it has dropped at a socket since that was opened.
    fn dropped(&mut self, place: usize, drops: u32, runtime: &mut Runtime) {
        let Some(end) = self.ends.get_mut(place) else {
            return;
        };
        // The ring has them; in the end their counts are compared.
        if end.media == MediaPath::Ring {
            return;
        }
        let lost = u64::from(drops.wrapping_sub(end.dropped));
        end.dropped = drops;
        let session = match end.owner {
            Owner::Session(key, _) => Some(key),
            Owner::Endpoint(_) => None,
        };
        if lost > 0 {
            runtime.lost(lost, lost, session);
        }
    }
}

#[cfg(test)]
mod tests;
