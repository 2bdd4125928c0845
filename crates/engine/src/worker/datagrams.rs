//! Single UDP sockets of sessions, and endpoints: the UDP ports of reference servers.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;

use measure::tester;
use mio::net::UdpSocket;
use net::batch::{Address, ReceiveBatch, SegmentSender};
use protocol::session::{
    ChannelId, Closed, Datagram, Endpoint, Input, Outbox, PeerId, Port, Reading, Route, Session,
    Transmit,
};

use super::Worker;
use super::arrivals::READS_A_TURN;
use super::errors::channel_error;
use super::inbox::Pending;
use super::keys::{ACCEPTED, Place, SessionKey};
use super::sessions::{Channel, Slot};
use super::sockets::Socket;
use crate::trace::TracedSocket;

/// How many sessions an endpoint has at a time: what strangers send must not make it grow without
/// end.
const PEERS_MAX: usize = 1 << 16;

/// The most datagrams that a session hears of at once: as many as one read brings.
const TOGETHER: usize = 64;

/// A reference server over UDP, as it can be sent to a worker's thread.
pub(crate) struct EndpointPlan {
    pub(crate) socket: std::net::UdpSocket,
    pub(crate) endpoint: Box<dyn Endpoint>,
    /// The population that its sessions' figures belong to.
    pub(crate) population: usize,
}

/// A UDP socket of a session, or of an endpoint.
pub(super) struct DatagramEnd {
    pub(super) socket: UdpSocket,
    owner: Owner,
    /// The only peer that it speaks to.
    peer: Option<SocketAddr>,
    /// Whether the peer's machine said that nobody is there. What came before is heard first.
    refused: bool,
    reading: Reading,
    /// The kernel's count of dropped datagrams, as far as it has been taken up.
    pub(super) dropped: u32,
    /// Hears what it receives and sends, of a client that is traced.
    trace: Option<Box<TracedSocket>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Session(SessionKey, ChannelId),
    Endpoint(usize),
}

impl DatagramEnd {
    /// The session whose own it is.
    pub(super) fn session(&self) -> Option<SessionKey> {
        match self.owner {
            Owner::Session(key, _) => Some(key),
            Owner::Endpoint(_) => None,
        }
    }

    /// The socket, and as which of a pair it is polled: one that is read late is asked when the
    /// loop is awake.
    pub(super) fn polled(&mut self) -> (&mut UdpSocket, Port) {
        let as_if = match self.reading {
            Reading::AtOnce => Port::Media,
            Reading::Late => Port::Control,
        };
        (&mut self.socket, as_if)
    }
}

/// What single UDP sockets and endpoints of a worker share.
pub(super) struct Datagrams {
    endpoints: Vec<EndpointState>,
    /// Memory is taken when something comes. It is away while what it holds is handed over.
    batch: Option<ReceiveBatch>,
    sender: SegmentSender,
    outbox: Outbox,
    /// What an endpoint answers by itself.
    answer: Vec<u8>,
    /// The places of sockets that are read late.
    late: BTreeSet<usize>,
}

struct EndpointState {
    endpoint: Box<dyn Endpoint>,
    place: usize,
    population: usize,
    peers: HashMap<PeerId, SessionKey>,
    closed: bool,
}

impl Datagrams {
    pub(super) fn new() -> Datagrams {
        Datagrams {
            endpoints: Vec::new(),
            batch: Some(ReceiveBatch::bulk()),
            sender: SegmentSender::new(),
            outbox: Outbox::default(),
            answer: Vec::new(),
            late: BTreeSet::new(),
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

    pub(super) fn endpoint_sockets(&self) -> impl Iterator<Item = usize> {
        self.endpoints.iter().map(|state| state.place)
    }

    /// The memory for what a session sends in one call; to be put back.
    pub(super) fn take_outbox(&mut self) -> Outbox {
        std::mem::take(&mut self.outbox)
    }

    pub(super) fn put_back(&mut self, mut outbox: Outbox) {
        outbox.clear();
        self.outbox = outbox;
    }
}

impl Worker {
    pub(super) fn listen_for_datagrams(&mut self, plan: EndpointPlan) -> io::Result<()> {
        plan.socket.set_nonblocking(true)?;
        net::options::ask_arrival_time_and_drops(&plan.socket)?;
        let index = self.datagrams.endpoints.len();
        let place = self.add_udp(Socket::Datagrams(DatagramEnd {
            socket: UdpSocket::from_std(plan.socket),
            owner: Owner::Endpoint(index),
            peer: None,
            refused: false,
            reading: Reading::AtOnce,
            dropped: 0,
            trace: None,
        }))?;
        self.datagrams.endpoints.push(EndpointState {
            endpoint: plan.endpoint,
            place,
            population: plan.population,
            peers: HashMap::new(),
            closed: false,
        });
        Ok(())
    }

    pub(super) fn open_udp(
        &mut self,
        key: SessionKey,
        channel: ChannelId,
        (local, peer): (SocketAddr, Option<SocketAddr>),
        reading: Reading,
    ) {
        let opened = self.add_single(key, channel, (local, peer), reading);
        let (key, heard) = match opened {
            Ok(local) => {
                let opened = Pending::Opened {
                    channel,
                    local,
                    remote: peer,
                };
                (key, opened)
            }
            Err(error) => {
                let error = channel_error(&error);
                self.count_refused(error);
                (key, Pending::OpenFailed { channel, error })
            }
        };
        self.runtime.inbox.push(key, heard);
    }

    fn add_single(
        &mut self,
        key: SessionKey,
        channel: ChannelId,
        (local, peer): (SocketAddr, Option<SocketAddr>),
        reading: Reading,
    ) -> io::Result<SocketAddr> {
        let socket = net::ports::bind(local, self.ports.receive_buffer())?;
        if let Some(peer) = peer {
            socket.connect(peer)?;
        }
        let local = socket.local_addr()?;
        let tracer = self.slot(key).and_then(|slot| slot.trace.clone());
        let place = self.add_udp(Socket::Datagrams(DatagramEnd {
            socket: UdpSocket::from_std(socket),
            owner: Owner::Session(key, channel),
            peer,
            refused: false,
            reading,
            dropped: 0,
            trace: tracer.map(|tracer| tracer.socket(local)),
        }))?;
        if reading == Reading::Late {
            self.datagrams.late.insert(place);
        }
        if let Some(slot) = self.slot(key) {
            slot.has_single = true;
            slot.reads_late |= reading == Reading::Late;
            let state = Channel::Datagrams {
                place,
                to: peer,
                accepted: None,
            };
            slot.set_channel(channel, state);
        }
        Ok(local)
    }

    /// Closes a session's own socket, or has the endpoint forget the session.
    pub(super) fn drop_datagrams(&mut self, place: usize, accepted: Option<PeerId>) {
        let Some(Socket::Datagrams(end)) = self.sockets.get(place) else {
            return;
        };
        match (end.owner, accepted) {
            (Owner::Session(..), _) => {
                self.take_drops(place);
                self.datagrams.late.remove(&place);
                self.sockets.remove(place);
            }
            (Owner::Endpoint(index), Some(peer)) => {
                let state = &mut self.datagrams.endpoints[index];
                if state.peers.remove(&peer).is_some() {
                    state.endpoint.ended(peer);
                }
            }
            (Owner::Endpoint(_), None) => {}
        }
    }

    /// Sends what a session wants sent.
    pub(super) fn transmit(&mut self, key: SessionKey, transmit: &Transmit, bytes: &[u8]) {
        let channel = self
            .slot(key)
            .and_then(|slot| slot.channel(transmit.channel));
        let Some(Channel::Datagrams { place, to, .. }) = channel else {
            return;
        };
        let Some(Socket::Datagrams(end)) = self.sockets.get(place) else {
            return;
        };
        let size = transmit.segment_size;
        let Some(to) = transmit.to.or(to) else {
            let count = bytes.len().div_ceil(size) as u64;
            return self.runtime.tester.add(tester::SENDS_FAILED, count);
        };
        let connected = end.peer.is_some();
        let address = (!connected).then(|| Address::from(to));
        let trace = end
            .trace
            .as_ref()
            .map(|trace| (trace, self.runtime.clock.now()));
        let sender = &mut self.datagrams.sender;
        let sent = sender.send(&end.socket, address.as_ref(), bytes, size, |datagram| {
            if let Some((trace, at)) = trace {
                trace.sent(to, datagram, at);
            }
        });
        self.runtime
            .tester
            .add(tester::SENDS_FAILED, sent.refused as u64);
        if sent.nobody_there && connected {
            self.refused(place);
        }
    }

    /// The peer's machine has said that nobody is there. What came before is read first.
    pub(super) fn refused(&mut self, place: usize) {
        if let Some(Socket::Datagrams(end)) = self.sockets.get_mut(place) {
            end.refused = true;
            self.runtime.readiness.read_later(Place::Socket(place));
        }
    }

    /// The only peer of a session's own socket is not there.
    fn lose_datagrams(&mut self, place: usize) {
        let Some(Socket::Datagrams(end)) = self.sockets.get(place) else {
            return;
        };
        let Owner::Session(key, channel) = end.owner else {
            return;
        };
        self.close_channel(key, channel);
        let how = Closed::Reset;
        self.runtime
            .inbox
            .push(key, Pending::Closed { channel, how });
    }

    /// Reads a single socket, and has those hear whose the datagrams are.
    pub(super) fn read_single(&mut self, place: usize) {
        for _ in 0..READS_A_TURN {
            if !self.read_some(place) {
                return;
            }
            self.settle();
        }
        self.runtime.readiness.read_later(Place::Socket(place));
    }

    /// Reads all that is read late, so that it counts in the window in which it came.
    pub(super) fn read_all_late(&mut self) {
        let places: Vec<usize> = self.datagrams.late.iter().copied().collect();
        for place in places {
            self.read_single(place);
        }
        self.settle();
    }

    /// Hands over what one look at a socket brings; says whether there may be more. What comes up
    /// on the way is pending.
    fn read_some(&mut self, place: usize) -> bool {
        let Some(mut batch) = self.datagrams.batch.take() else {
            // In the middle of handing over: next time.
            self.runtime.readiness.read_later(Place::Socket(place));
            return false;
        };
        let more = self.look_at(place, &mut batch);
        self.datagrams.batch = Some(batch);
        more
    }

    fn look_at(&mut self, place: usize, batch: &mut ReceiveBatch) -> bool {
        let Some(Socket::Datagrams(end)) = self.sockets.get(place) else {
            return false;
        };
        let (owner, peer, refused) = (end.owner, end.peer, end.refused);
        match batch.receive(&end.socket) {
            Ok(filled) => {
                if let Some(drops) = filled.drops {
                    self.count_drops(place, drops);
                }
                self.hand_over(place, (owner, peer), batch);
                // Where it was refused, all is to be read that there is.
                filled.more || refused
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if refused {
                    self.lose_datagrams(place);
                }
                false
            }
            // It comes before what is queued.
            Err(error) if peer.is_some() && error.kind() == io::ErrorKind::ConnectionRefused => {
                if let Some(Socket::Datagrams(end)) = self.sockets.get_mut(place) {
                    end.refused = true;
                }
                true
            }
            // An error stands for one datagram or none; those behind it are not told of again.
            Err(_) => true,
        }
    }

    /// Has sessions hear what a read has brought. What came to a session's own socket it hears
    /// together. An endpoint's hear one by one, because what a session makes of a datagram, its end
    /// perhaps, may change whose the next one is.
    fn hand_over(
        &mut self,
        place: usize,
        (owner, peer): (Owner, Option<SocketAddr>),
        batch: &ReceiveBatch,
    ) {
        let clock = self.runtime.clock.same_start();
        let nothing = Datagram {
            from: SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), 0),
            at: measure::Time::ZERO,
            bytes: &[],
        };
        let mut together = [nothing; TOGETHER];
        let mut count = 0;
        for came in batch.datagrams(&clock) {
            if let Some(Socket::Datagrams(end)) = self.sockets.get_mut(place)
                && let Some(trace) = &mut end.trace
            {
                trace.received(came.from, came.bytes, came.length, came.at);
            }
            let datagram = Datagram {
                from: came.from,
                at: came.at,
                bytes: came.bytes,
            };
            // One that came before the socket was connected.
            if peer.is_some_and(|peer| peer != datagram.from) {
                self.runtime.tester.add(tester::FOREIGN_PACKETS, 1);
                continue;
            }
            match owner {
                Owner::Session(key, channel) => {
                    if count == TOGETHER {
                        self.hear_datagrams((key, channel), &together);
                        count = 0;
                    }
                    together[count] = datagram;
                    count += 1;
                }
                Owner::Endpoint(index) => {
                    if let Some(whose) = self.route(index, place, &datagram) {
                        self.hear_datagrams(whose, &[datagram]);
                    }
                }
            }
        }
        if let Owner::Session(key, channel) = owner
            && count > 0
        {
            self.hear_datagrams((key, channel), &together[..count]);
        }
    }

    fn hear_datagrams(
        &mut self,
        (key, channel): (SessionKey, ChannelId),
        datagrams: &[Datagram<'_>],
    ) {
        let open = self.slot(key).and_then(|slot| slot.channel(channel));
        if open.is_some() {
            self.deliver(key, Input::Datagrams { channel, datagrams });
        }
    }

    /// Has an endpoint say whose a datagram is, and begins the session that it begins.
    fn route(
        &mut self,
        index: usize,
        place: usize,
        datagram: &Datagram<'_>,
    ) -> Option<(SessionKey, ChannelId)> {
        let now = self.runtime.clock.now();
        let Datagrams {
            endpoints,
            answer,
            sender,
            ..
        } = &mut self.datagrams;
        let state = &mut endpoints[index];
        let room = !state.closed && state.peers.len() < PEERS_MAX;
        answer.clear();
        let route = state.endpoint.route(now, datagram, room, answer);
        let foreign = match route {
            Route::Session(peer) => match state.peers.get(&peer) {
                Some(&key) => return Some((key, ACCEPTED)),
                None => true,
            },
            Route::Accept(peer, session) if room && !state.peers.contains_key(&peer) => {
                return self.accept_peer(index, peer, session, datagram.from);
            }
            Route::Accept(peer, _) => {
                state.endpoint.ended(peer);
                true
            }
            Route::Answer => {
                if let Some(Socket::Datagrams(end)) = self.sockets.get(place)
                    && !answer.is_empty()
                {
                    let to = Address::from(datagram.from);
                    let sent = sender.send(&end.socket, Some(&to), answer, answer.len(), |_| {});
                    self.runtime
                        .tester
                        .add(tester::SENDS_FAILED, sent.refused as u64);
                }
                false
            }
            Route::Drop => true,
        };
        self.runtime
            .tester
            .add(tester::FOREIGN_PACKETS, u64::from(foreign));
        None
    }

    fn accept_peer(
        &mut self,
        index: usize,
        peer: PeerId,
        session: Box<dyn Session>,
        from: SocketAddr,
    ) -> Option<(SessionKey, ChannelId)> {
        let EndpointState {
            place, population, ..
        } = self.datagrams.endpoints[index];
        let key = self.add_session(session, population, None);
        self.datagrams.endpoints[index].peers.insert(peer, key);
        let local = match self.sockets.get(place) {
            Some(Socket::Datagrams(end)) => end.socket.local_addr().ok()?,
            _ => return None,
        };
        if let Some(slot) = self.slot(key) {
            let state = Channel::Datagrams {
                place,
                to: Some(from),
                accepted: Some(peer),
            };
            slot.set_channel(ACCEPTED, state);
        }
        let now = self.runtime.clock.now();
        self.deliver(key, Input::Start { due: now });
        let opened = Input::Opened {
            channel: ACCEPTED,
            local,
            remote: Some(from),
        };
        self.deliver(key, opened);
        Some((key, ACCEPTED))
    }

    /// Reads what has come for a session's sockets that are read late, or for `all` of them, before
    /// it hears of something else.
    pub(super) fn hear_datagrams_first(&mut self, key: SessionKey, all: bool) {
        // What is being handed over is the session's own, or it is another's turn just now.
        if self.datagrams.batch.is_none() {
            return;
        }
        let wanted = |slot: &&mut Slot| slot.reads_late || (all && slot.has_single);
        let Some(slot) = self.slot(key).filter(wanted) else {
            return;
        };
        let own = |(_, channel): &(_, Channel)| match *channel {
            Channel::Datagrams {
                place,
                accepted: None,
                ..
            } => Some(place),
            _ => None,
        };
        let places: Vec<usize> = slot.channels.iter().filter_map(own).collect();
        for place in places {
            // Bounded by how much a socket's buffer holds, but others want their turn.
            for _ in 0..READS_A_TURN {
                if !self.read_some(place) {
                    break;
                }
            }
        }
    }
}
