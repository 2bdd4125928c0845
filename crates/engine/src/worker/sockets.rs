//! The sockets of a worker: opening, naming peers, closing.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use mio::net::{TcpListener, TcpStream, UdpSocket};
use mio::{Interest, Token};
use net::ports::Pair;
use net::tls::Layer;
use protocol::session::{
    ChannelError, ChannelId, Closed, ExchangeEnded, Interface, Port, SinkId, TlsError,
};

use super::datagrams::DatagramEnd;
use super::groups::GroupEnd;
use super::outputs::Pending;
use super::secure::Party;
use super::sessions::{Channel, Peer, SessionKey};
use super::stream::{State, Stream};
use super::timers::Task;
use super::{Acceptor, Resolution, Serving, Worker};
use crate::messages::Command;
use crate::resolver::Answer;
use crate::trace::TracedSocket;

/// How long a connection whose session has ended may take to send what is queued.
const LINGER: std::time::Duration = std::time::Duration::from_secs(1);

/// How many names the look-up cache holds.
const NAMES: usize = 10_000;

/// A socket of the worker.
pub(super) enum Socket {
    Listener {
        listener: TcpListener,
        acceptor: usize,
    },
    Stream(Stream),
    Udp(UdpEnd),
    Shared(SharedEnd),
    Group(GroupEnd),
    Datagrams(DatagramEnd),
}

/// One of a session's own pair of UDP sockets.
pub(super) struct UdpEnd {
    pub(super) socket: UdpSocket,
    pub(super) session: SessionKey,
    pub(super) channel: ChannelId,
    pub(super) port: Port,
    /// What counts the datagrams; none where the session itself hears them.
    pub(super) sink: Option<SinkId>,
    /// Whose datagrams count. Before the peer is named: anybody's.
    pub(super) peer: Option<IpAddr>,
    /// What a datagram has on the wire beside its payload: the headers of IP and UDP.
    pub(super) overhead: usize,
    /// Whether it only holds the port: the kernel drops all that comes, and the packet ring brings
    /// it.
    pub(super) on_ring: bool,
    /// Whether it is read in turn, and not polled.
    pub(super) in_turn: bool,
    /// Whether it has brought too much for that.
    pub(super) was_fast: bool,
    /// The kernel's count of dropped datagrams, as far as it has been taken up.
    pub(super) dropped: u32,
    /// The even port of the pair.
    pub(super) pair: u16,
    /// Hears what it receives and sends, of a client that is traced.
    pub(super) trace: Option<Box<TracedSocket>>,
}

/// One of a pair of UDP sockets that many sessions use.
pub(super) struct SharedEnd {
    pub(super) socket: UdpSocket,
    pub(super) port: Port,
    pub(super) routes: HashMap<SocketAddr, (SessionKey, ChannelId)>,
    pub(super) dropped: u32,
}

impl SharedEnd {
    /// Takes a session's route away; one that another session has been given meanwhile stays.
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

impl Socket {
    pub(super) fn is_closing(&self) -> bool {
        matches!(
            self,
            Socket::Stream(Stream {
                state: State::Closing { .. },
                ..
            })
        )
    }
}

impl Worker {
    pub(super) fn listen(
        &mut self,
        listener: std::net::TcpListener,
        serving: Serving,
    ) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let mut listener = TcpListener::from_std(listener);
        let acceptor = self.acceptors.len();
        self.acceptors.push(Acceptor {
            accept: serving.accept,
            tls: serving.tls,
        });
        self.sending.send_apart(serving.apart);
        let entry = self.sockets.vacant_entry();
        self.poll
            .registry()
            .register(&mut listener, Token(entry.key()), Interest::READABLE)?;
        entry.insert(Socket::Listener { listener, acceptor });
        Ok(())
    }

    pub(super) fn stop_listening(&mut self) {
        self.sockets
            .retain(|_, socket| !matches!(socket, Socket::Listener { .. }));
        self.datagrams.close();
    }

    pub(super) fn connect_by_name(
        &mut self,
        key: SessionKey,
        channel: ChannelId,
        host: String,
        port: u16,
    ) {
        let Some(slot) = self.slot(key) else { return };
        slot.set_channel(channel, Channel::Resolving);
        // A literal with a zone (`fe80::1%eth0`) goes to the resolver, which knows the interfaces.
        let host = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
            Some(literal) => literal.to_owned(),
            None => host,
        };
        if let Ok(address) = host.parse::<IpAddr>() {
            self.connect(key, channel, vec![SocketAddr::new(address, port)]);
            return;
        }
        match self.resolved.get_mut(&host) {
            Some(Resolution::Known(addresses)) => {
                let addresses = with_port(addresses, port);
                self.connect(key, channel, addresses);
            }
            Some(Resolution::Asked(waiting)) => waiting.push((key, channel, port)),
            None => {
                let mailbox = self.mailbox.clone();
                let answer = move |answer| mailbox.tell(Command::Resolved(answer));
                let asked = self.resolved.len() < NAMES && self.resolver.ask(host.clone(), answer);
                if asked {
                    let waiting = vec![(key, channel, port)];
                    self.resolved.insert(host, Resolution::Asked(waiting));
                } else {
                    self.fail_to_open(key, channel, ChannelError::NameNotFound);
                }
            }
        }
    }

    pub(super) fn resolved(&mut self, answer: Answer) {
        let Some(Resolution::Asked(waiting)) = self.resolved.remove(&answer.host) else {
            return;
        };
        let addresses: crate::resolver::Addresses = answer.addresses.into();
        for (key, channel, port) in waiting {
            self.connect(key, channel, with_port(&addresses, port));
        }
        // That nothing is known of a name is not kept: the next client asks again.
        if !addresses.is_empty() {
            self.resolved
                .insert(answer.host, Resolution::Known(addresses));
        }
    }

    /// Begins to connect to the first of the addresses; the others are tried in turn when it fails.
    /// All that together may take as long as the task says that was set when the channel was asked
    /// for.
    fn connect(&mut self, key: SessionKey, channel: ChannelId, mut addresses: Vec<SocketAddr>) {
        if self
            .slot(key)
            .and_then(|slot| slot.channel(channel))
            .is_none()
        {
            return;
        }
        let mut layer = match self.layer_of(key, channel) {
            Ok(layer) => layer,
            Err(error) => return self.fail_to_open(key, channel, error),
        };
        let mut error = ChannelError::NameNotFound;
        while !addresses.is_empty() {
            let to = addresses.remove(0);
            match self.begin_connection(key, channel, to, addresses.clone(), &mut layer) {
                Ok(()) => return,
                Err(failed) => error = channel_error(&failed),
            }
        }
        self.fail_to_open(key, channel, error);
    }

    fn begin_connection(
        &mut self,
        key: SessionKey,
        channel: ChannelId,
        to: SocketAddr,
        others: Vec<SocketAddr>,
        layer: &mut Option<Layer>,
    ) -> io::Result<()> {
        let media = self.has_media(key);
        let watched = if media {
            self.connect_watched(to)?
        } else {
            None
        };
        let (mut socket, watched) = match watched {
            Some((socket, watched)) => (socket, Some(watched)),
            None if media => (TcpStream::connect(to)?, None),
            None => (self.connect_from(key, to)?, None),
        };
        socket.set_nodelay(true)?;
        // To have it costs each packet of this machine a look at the clock.
        if media {
            net::stream::ask_arrival_time(&socket)?;
        }
        let entry = self.sockets.vacant_entry();
        let place = entry.key();
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll
            .registry()
            .register(&mut socket, Token(place), interest)?;
        let state = State::Connecting {
            session: key,
            channel,
            others,
        };
        let mut stream = Stream::new(socket, state);
        stream.watched = watched;
        stream.tls = layer.take();
        let slot = self.sessions.get_mut(key.place);
        if let Some(slot) = slot.filter(|slot| slot.serial == key.serial) {
            if let Some(tracer) = &slot.trace {
                let local = stream.socket.local_addr()?;
                stream.trace = Some(tracer.connection(self.clock.same_start(), local, to));
            }
            slot.set_channel(channel, Channel::Stream(place));
        }
        entry.insert(Socket::Stream(stream));
        Ok(())
    }

    /// Finds out how a connection attempt went, when its socket became ready.
    pub(super) fn finish_connecting(&mut self, place: usize) {
        let Some(Socket::Stream(stream)) = self.sockets.get_mut(place) else {
            return;
        };
        let State::Connecting {
            session,
            channel,
            others,
        } = &mut stream.state
        else {
            return;
        };
        let (key, channel) = (*session, *channel);
        let result = match stream.socket.take_error() {
            Ok(Some(error)) | Err(error) => Err(error),
            Ok(None) => stream.socket.peer_addr(),
        };
        match result {
            Ok(remote) => {
                if let Some(trace) = &mut stream.trace {
                    trace.opened();
                }
                if stream.tls.is_some() {
                    let party = Party::Client {
                        session: key,
                        channel,
                    };
                    let since = self.clock.now();
                    stream.state = State::Securing { party, since };
                    return match stream.begin_handshake() {
                        Ok(()) => self.writable(place),
                        Err(_) => self.lose_stream(place, Closed::Reset),
                    };
                }
                stream.state = State::Open {
                    session: key,
                    channel,
                };
                let local = stream.socket.local_addr().unwrap_or(remote);
                let opened = Pending::Opened {
                    channel,
                    local,
                    remote: Some(remote),
                };
                self.pending.push_back((key, opened));
                // What was sent before it stood; that it is writable is told just this once.
                self.writable(place);
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            Err(error) => {
                let others = std::mem::take(others);
                if let Some(trace) = &mut stream.trace
                    && error.kind() == io::ErrorKind::ConnectionRefused
                {
                    trace.broke();
                }
                self.sockets.remove(place);
                if others.is_empty() {
                    self.fail_to_open(key, channel, channel_error(&error));
                } else {
                    self.connect(key, channel, others);
                }
            }
        }
    }

    pub(super) fn give_up_connecting(&mut self, key: SessionKey, channel: ChannelId) {
        match self.slot(key).and_then(|slot| slot.channel(channel)) {
            Some(Channel::Resolving) => {}
            Some(Channel::Stream(place)) => match self.sockets.get(place) {
                Some(Socket::Stream(stream))
                    if matches!(stream.state, State::Connecting { .. }) =>
                {
                    self.sockets.remove(place);
                }
                Some(Socket::Stream(stream)) if matches!(stream.state, State::Securing { .. }) => {
                    self.sockets.remove(place);
                    let error = ChannelError::Tls(TlsError::TimedOut);
                    return self.fail_to_open(key, channel, error);
                }
                _ => return,
            },
            Some(Channel::Pair { .. } | Channel::Group(_) | Channel::Datagrams { .. }) | None => {
                return;
            }
        }
        self.fail_to_open(key, channel, ChannelError::TimedOut);
    }

    pub(super) fn fail_to_open(
        &mut self,
        key: SessionKey,
        channel: ChannelId,
        error: ChannelError,
    ) {
        self.count_refused(error);
        if let Some(slot) = self.slot(key) {
            slot.forget_channel(channel);
            self.pending
                .push_back((key, Pending::OpenFailed { channel, error }));
        }
    }

    /// A pair of UDP ports for one session alone. Gives the address of the even one.
    pub(super) fn open_pair(
        &mut self,
        key: SessionKey,
        channel: ChannelId,
        local: IpAddr,
        sink: Option<SinkId>,
    ) -> Result<SocketAddr, ChannelError> {
        let trace = self.slot(key).and_then(|slot| slot.trace.clone());
        // Without a sink the session wants to hear whole datagrams, as its trace does; the ring has
        // only the beginning of each.
        let on_ring = match sink {
            Some(_) if trace.is_none() => self
                .cover_by_ring(local)
                .map_err(|error| channel_error(&error))?,
            _ => false,
        };
        let pair = match on_ring {
            true => self.ports.reserve(local),
            false => self.ports.bind(local),
        }
        .map_err(|error| channel_error(&error))?;
        let address = SocketAddr::new(local, pair.port);
        let overhead = if local.is_ipv4() { 28 } else { 48 };
        let even = pair.port;
        let (media, control) = self.add_pair(pair, |socket, port| {
            Socket::Udp(UdpEnd {
                socket,
                session: key,
                channel,
                port,
                sink: sink.filter(|_| port == Port::Media),
                peer: None,
                overhead,
                on_ring: on_ring && port == Port::Media,
                in_turn: false,
                was_fast: false,
                dropped: 0,
                pair: even,
                trace: trace.as_ref().map(|trace| {
                    let odd = u16::from(port == Port::Control);
                    trace.socket(SocketAddr::new(local, even + odd))
                }),
            })
        })?;
        if let Some(sink) = sink.filter(|_| on_ring) {
            self.assign_to_ring(address, sink, key);
        }
        if let Some(slot) = self.slot(key) {
            slot.set_channel(
                channel,
                Channel::Pair {
                    media,
                    control,
                    shared: false,
                    peer: None,
                },
            );
        }
        Ok(address)
    }

    /// A part in the pair of UDP ports that this worker's sessions share; with `outward` in the one
    /// that sends to multicast groups so.
    pub(super) fn open_shared(
        &mut self,
        key: SessionKey,
        channel: ChannelId,
        local: IpAddr,
        outward: Option<Outward>,
    ) -> Result<SocketAddr, ChannelError> {
        self.trace_misses(key, "what comes and goes by a socket that clients share");
        let (media, control) = match self.shared_pairs.get(&(local, outward.clone())) {
            Some(&pair) => pair,
            None => {
                let pair = self
                    .ports
                    .bind(local)
                    .map_err(|error| channel_error(&error))?;
                if let Some(outward) = &outward
                    && let Err(error) = send_to_groups(&pair, local, outward)
                {
                    self.ports.release(pair.port);
                    return Err(channel_error(&error));
                }
                let places = self.add_pair(pair, |socket, port| {
                    Socket::Shared(SharedEnd {
                        socket,
                        port,
                        routes: HashMap::new(),
                        dropped: 0,
                    })
                })?;
                self.shared_pairs.insert((local, outward), places);
                places
            }
        };
        let Some(Socket::Shared(end)) = self.sockets.get(media) else {
            return Err(ChannelError::Other(0));
        };
        let address = end
            .socket
            .local_addr()
            .map_err(|error| channel_error(&error))?;
        if let Some(slot) = self.slot(key) {
            slot.set_channel(
                channel,
                Channel::Pair {
                    media,
                    control,
                    shared: true,
                    peer: None,
                },
            );
        }
        Ok(address)
    }

    /// Takes both sockets of a pair in, or neither.
    fn add_pair(
        &mut self,
        pair: Pair,
        make: impl Fn(UdpSocket, Port) -> Socket,
    ) -> Result<(usize, usize), ChannelError> {
        let mut add = |socket, port| {
            let socket = make(UdpSocket::from_std(socket), port);
            self.add_udp(socket)
        };
        let media = add(pair.media, Port::Media);
        let control = add(pair.control, Port::Control);
        match (media, control) {
            (Ok(media), Ok(control)) => Ok((media, control)),
            (media, control) => {
                for place in [&media, &control].into_iter().flatten() {
                    self.sockets.remove(*place);
                }
                self.ports.release(pair.port);
                let error = media.and(control).err();
                Err(error.map_or(ChannelError::Other(0), |error| channel_error(&error)))
            }
        }
    }

    /// Takes a socket in, and has it polled if anything can be read from it.
    pub(super) fn add_udp(&mut self, mut socket: Socket) -> io::Result<usize> {
        let entry = self.sockets.vacant_entry();
        let place = entry.key();
        let polled = match &mut socket {
            Socket::Udp(end) if end.on_ring => None,
            Socket::Udp(end) => Some((&mut end.socket, end.port)),
            Socket::Shared(end) => Some((&mut end.socket, end.port)),
            Socket::Group(end) => Some((&mut end.socket, end.port)),
            Socket::Datagrams(end) => Some(end.polled()),
            Socket::Listener { .. } | Socket::Stream(_) => None,
        };
        if let Some((polled, port)) = polled {
            let poll = match port {
                Port::Media => &self.poll,
                Port::Control => &self.unhurried,
            };
            poll.registry()
                .register(polled, Token(place), Interest::READABLE)?;
        }
        entry.insert(socket);
        Ok(place)
    }

    pub(super) fn name_peer(&mut self, key: SessionKey, channel: ChannelId, peer: Peer) {
        let Some(slot) = self.slot(key) else { return };
        let (media, control, shared, before) = match slot.channel(channel) {
            Some(Channel::Pair {
                media,
                control,
                shared,
                peer,
            }) => (media, control, shared, peer),
            Some(Channel::Group(place)) => return self.begin_in_group(place, key, channel, peer),
            _ => return,
        };
        let state = Channel::Pair {
            media,
            control,
            shared,
            peer: Some(peer),
        };
        slot.set_channel(channel, state);
        for (place, address, old) in [
            (media, peer.media, before.map(|peer| peer.media)),
            (control, peer.control, before.map(|peer| peer.control)),
        ] {
            match self.sockets.get_mut(place) {
                Some(Socket::Udp(end)) => {
                    end.peer = Some(address.ip());
                    if let Some(rings) = self.rings.as_mut().filter(|_| end.on_ring) {
                        rings.name_peer(end.pair, address.ip());
                    }
                }
                Some(Socket::Shared(end)) => {
                    if let Some(old) = old {
                        end.forget_route(old, key);
                    }
                    end.routes.insert(address, (key, channel));
                }
                _ => {}
            }
        }
    }

    pub(super) fn close_channel(&mut self, key: SessionKey, channel: ChannelId) {
        let Some(slot) = self.slot(key) else { return };
        let Some(state) = slot.channel(channel) else {
            return;
        };
        slot.forget_channel(channel);
        self.drop_channel(key, state);
    }

    /// Closes what stands behind a channel. A connection that still has something to send gets a
    /// moment to do so.
    pub(super) fn drop_channel(&mut self, key: SessionKey, channel: Channel) {
        match channel {
            Channel::Resolving => {}
            Channel::Group(place) => self.leave_group(place, key),
            Channel::Datagrams {
                place, accepted, ..
            } => self.drop_datagrams(place, accepted),
            Channel::Stream(place) => {
                if self
                    .drop_exchange(place, &ExchangeEnded::OnPurpose)
                    .is_some()
                {
                    return;
                }
                let Some(Socket::Stream(stream)) = self.sockets.get_mut(place) else {
                    return;
                };
                let open = matches!(stream.state, State::Open { .. });
                if open {
                    stream.say_goodbye();
                }
                if open && !stream.is_drained() {
                    self.serial += 1;
                    stream.state = State::Closing {
                        serial: self.serial,
                    };
                    let task = Task::Linger {
                        socket: place,
                        serial: self.serial,
                    };
                    self.timers.add(self.clock.now() + LINGER, task);
                } else {
                    self.sockets.remove(place);
                }
            }
            Channel::Pair {
                media,
                control,
                shared: false,
                ..
            } => {
                // The media port last: with it the pair is free for others.
                for place in [control, media] {
                    self.take_drops(place);
                    match self.sockets.get(place) {
                        Some(Socket::Udp(end)) if end.on_ring => self.close_ring_port(place),
                        Some(Socket::Udp(end)) => {
                            let pair = end.pair;
                            self.sockets.remove(place);
                            if place == media {
                                self.ports.release(pair);
                            }
                        }
                        _ => {}
                    }
                }
            }
            Channel::Pair {
                media,
                control,
                shared: true,
                peer,
            } => {
                let Some(peer) = peer else { return };
                for (place, address) in [(media, peer.media), (control, peer.control)] {
                    if let Some(Socket::Shared(end)) = self.sockets.get_mut(place) {
                        end.forget_route(address, key);
                    }
                }
            }
        }
    }

    pub(super) fn give_up_closing(&mut self, place: usize, serial: u64) {
        if let Some(Socket::Stream(Stream {
            state: State::Closing { serial: ours },
            ..
        })) = self.sockets.get(place)
            && *ours == serial
        {
            self.sockets.remove(place);
        }
    }

    /// Takes a connection away that broke or was closed by the other side.
    pub(super) fn lose_stream(&mut self, place: usize, how: Closed) {
        if let Some(Socket::Stream(Stream {
            state: State::Exchange { .. },
            ..
        })) = self.sockets.get(place)
        {
            return self.end_exchange(place, ExchangeEnded::Closed(how));
        }
        let Some(Socket::Stream(mut stream)) = self.sockets.try_remove(place) else {
            return;
        };
        if let Some(trace) = &mut stream.trace {
            match how {
                Closed::End => trace.closed_by_peer(),
                Closed::Reset => trace.broke(),
                // Given up by us.
                Closed::Stuck | Closed::Tls(_) => {}
            }
        }
        match stream.state {
            State::Securing { party, .. } => self.lost_in_handshake(&stream, party),
            State::Open { session, channel } => {
                if let Some(slot) = self.slot(session) {
                    slot.forget_channel(channel);
                }
                self.connection_ended(session, channel, how);
            }
            State::Connecting {
                session, channel, ..
            } => {
                self.fail_to_open(session, channel, ChannelError::Refused);
            }
            State::Exchange { .. } | State::Closing { .. } => {}
        }
    }

    /// Takes up how many datagrams the kernel dropped at a socket since the last look.
    pub(super) fn take_drops(&mut self, place: usize) {
        let Some(socket) = self.sockets.get_mut(place) else {
            return;
        };
        let (drops, taken) = match socket {
            // Of one that only holds its port all is dropped.
            Socket::Udp(end) if end.on_ring => return,
            Socket::Udp(end) => (net::options::drops(&end.socket), &mut end.dropped),
            Socket::Shared(end) => (net::options::drops(&end.socket), &mut end.dropped),
            Socket::Group(end) => (net::options::drops(&end.socket), &mut end.dropped),
            Socket::Datagrams(end) => (net::options::drops(&end.socket), &mut end.dropped),
            Socket::Listener { .. } | Socket::Stream(_) => return,
        };
        if let Ok(drops) = drops {
            let lost = drops.wrapping_sub(*taken);
            *taken = drops;
            self.lost_at_socket(place, lost);
        }
    }

    /// Takes up the drops of all sockets that sessions share.
    pub(super) fn collect_drops(&mut self) {
        let shared = self.shared_pairs.values().copied();
        let places: Vec<usize> = shared
            .chain(self.groups.sockets())
            .flat_map(|(media, control)| [media, control])
            .chain(self.datagrams.endpoint_sockets())
            .collect();
        for place in places {
            self.take_drops(place);
        }
    }
}

fn with_port(addresses: &[SocketAddr], port: u16) -> Vec<SocketAddr> {
    addresses
        .iter()
        .map(|&address| {
            // Changed in place, because an IPv6 address may have a zone.
            let mut address = address;
            address.set_port(port);
            address
        })
        .collect()
}

/// How what goes to multicast groups leaves: how many hops it lives, and by which interface, where
/// that is not the one of the address that it comes from.
pub(super) type Outward = (u8, Option<Interface>);

/// Has what a pair sends to multicast groups leave so.
fn send_to_groups(pair: &Pair, local: IpAddr, (hops, interface): &Outward) -> io::Result<()> {
    let index = match interface {
        Some(Interface::Named(name)) => Some(net::multicast::Interface::Named(name.clone())),
        Some(Interface::With(address)) => Some(net::multicast::Interface::With(*address)),
        None if local.is_unspecified() => None,
        None => Some(net::multicast::Interface::With(local)),
    };
    // Without a number the routes decide.
    let index = index.map_or(Ok(0), |interface| interface.index())?;
    for socket in [&pair.media, &pair.control] {
        net::multicast::send_by(socket, local, index, *hops)?;
    }
    Ok(())
}

/// What an error of the operating system means for a channel.
pub(super) fn channel_error(error: &io::Error) -> ChannelError {
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    match error.kind() {
        io::ErrorKind::ConnectionRefused => ChannelError::Refused,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            ChannelError::Unreachable
        }
        io::ErrorKind::TimedOut => ChannelError::TimedOut,
        io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable => ChannelError::NoPorts,
        _ => match error.raw_os_error() {
            Some(EMFILE | ENFILE) => ChannelError::NoFiles,
            code => ChannelError::Other(code.unwrap_or(0)),
        },
    }
}
