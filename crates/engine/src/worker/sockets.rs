//! The sockets of a worker: opening, naming peers, closing.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use measure::tester;
use mio::net::UdpSocket;
use net::ports::Pair;
use protocol::metrics as clients;
use protocol::session::{ChannelError, ChannelId, Interface, Port, SinkId};

use super::Worker;
use super::datagrams::DatagramEnd;
use super::errors::channel_error;
use super::groups::GroupEnd;
use super::keys::{Place, SessionKey};
use super::ring::cover_by_ring;
use super::sessions::{Channel, Peer};
use crate::trace::TracedSocket;

/// A socket of the worker.
pub(super) enum Socket {
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

impl Worker {
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
            Some(_) if trace.is_none() => {
                cover_by_ring(&mut self.rings, local).map_err(|error| channel_error(&error))?
            }
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
        };
        if let Some((polled, port)) = polled {
            match port {
                Port::Media => self.runtime.readiness.poll(polled, Place::Socket(place))?,
                Port::Control => self
                    .runtime
                    .readiness
                    .poll_control(polled, Place::Socket(place))?,
            }
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
            Channel::Stream(place) => self.close_stream(place),
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
        };
        if let Ok(drops) = drops {
            let lost = drops.wrapping_sub(*taken);
            *taken = drops;
            self.lost_at_socket(place, lost);
        }
    }

    /// Counts a socket that could not be had for a want of this machine.
    pub(super) fn count_refused(&mut self, error: ChannelError) {
        if matches!(error, ChannelError::NoPorts | ChannelError::NoFiles) {
            self.runtime.tester.add(tester::SOCKETS_REFUSED, 1);
        }
    }

    /// Counts datagrams that the kernel had no room for at one of our sockets.
    pub(super) fn lost_at_socket(&mut self, place: usize, datagrams: u32) {
        if datagrams == 0 {
            return;
        }
        let lost = u64::from(datagrams);
        if let Some(Socket::Group(_)) = self.sockets.get(place) {
            return self.lost_for_group(place, lost);
        }
        self.runtime.tester.add(tester::SOCKET_OVERFLOW, lost);
        let media = match self.sockets.get(place) {
            Some(Socket::Udp(end)) if end.sink.is_some() => end.session,
            Some(Socket::Datagrams(end)) => match end.session() {
                Some(session) => session,
                None => return,
            },
            _ => return,
        };
        if let Some(population) = self.sessions.population(media) {
            self.populations
                .recorder(population)
                .add(clients::LOST_IN_TESTER, lost);
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
