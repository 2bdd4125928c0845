//! UDP channels of sessions, and operations of all channels: opening, setting the peer, closing.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use measure::tester;
use session::{ChannelError, Input, Open, ReadTiming, SinkId, SocketMedia, Transmit};

use crate::worker::Worker;
use crate::worker::datagrams::{DatagramRequest, MediaPath};
use crate::worker::deferred::Deferred;
use crate::worker::error_mapping::channel_error;
use crate::worker::ids::{ChannelKey, SessionKey};
use crate::worker::pairs::Peer;
use crate::worker::pairs::{MulticastOutput, PairRequest};
use crate::worker::rings::{AcceptedSource, RingPort};
use crate::worker::sessions::Channel;

impl Worker {
    /// Counts a socket that could not be opened for lack of ports or descriptors.
    pub(crate) fn count_refused(&mut self, error: ChannelError) {
        if matches!(error, ChannelError::NoPorts | ChannelError::NoDescriptors) {
            self.runtime.tester.add(tester::SOCKETS_REFUSED, 1);
        }
    }

    /// Notifies a session that a channel is open.
    pub(crate) fn channel_opened(
        &mut self,
        owner: ChannelKey,
        local: SocketAddr,
        remote: Option<SocketAddr>,
    ) {
        let opened = Input::Opened {
            channel: owner.channel,
            local,
            remote,
        };
        self.runtime.inbox.push(owner.session, opened);
    }

    /// Opens a pair of UDP ports for one session. Returns the address of the even port.
    pub(crate) fn open_pair(
        &mut self,
        owner: ChannelKey,
        local: IpAddr,
        sink: Option<SinkId>,
    ) -> Result<SocketAddr, ChannelError> {
        let Some(slot) = self.sessions.get_mut(owner.session) else {
            return Err(ChannelError::Other(0));
        };
        // Traces, and sessions without a sink, need whole datagrams. The ring keeps only the
        // beginning of each.
        let ring = self.rings.as_mut().filter(|_| slot.trace.is_none());
        let mut ring = ring.zip(sink);
        if let Some((rings, _)) = &mut ring {
            rings
                .ensure_open(local, &self.runtime.readiness)
                .map_err(|error| channel_error(&error))?;
        }
        let request = PairRequest {
            owner,
            population: slot.population,
            local,
            sink,
            on_ring: ring.is_some(),
            tracer: slot.trace.as_ref(),
        };
        let (local, pair) = self.pairs.open(&self.runtime, &request)?;
        if let Some((rings, sink)) = ring {
            slot.on_ring = true;
            let port = RingPort {
                sink,
                session: owner.session,
                population: slot.population,
                mark: None,
                from: AcceptedSource::Anybody,
            };
            rings.assign(local, port);
        }
        let state = Channel::Pair {
            pair,
            shared: false,
            peer: None,
        };
        slot.set_channel(owner.channel, state);
        Ok(local)
    }

    /// Opens a channel on the pair of UDP ports that the worker's sessions share. With `outward`,
    /// uses the shared pair that sends to multicast groups with these settings.
    pub(crate) fn open_shared(
        &mut self,
        owner: ChannelKey,
        local: IpAddr,
        outward: Option<MulticastOutput>,
    ) -> Result<SocketAddr, ChannelError> {
        self.trace_misses(owner.session, "datagrams of a socket that clients share");
        let (local, pair) = self.pairs.open_shared(&self.runtime, local, outward)?;
        let state = Channel::Pair {
            pair,
            shared: true,
            peer: None,
        };
        self.sessions.set_channel(owner, state);
        Ok(local)
    }

    /// Joins a multicast group, or shares an existing membership. Returns the address of the group.
    pub(crate) fn join_group(
        &mut self,
        owner: ChannelKey,
        open: Open,
    ) -> Result<SocketAddr, ChannelError> {
        self.trace_misses(owner.session, "datagrams of a multicast group");
        let Some(slot) = self.sessions.get_mut(owner.session) else {
            return Err(ChannelError::Other(0));
        };
        let (population, runtime) = (slot.population, &self.runtime);
        let buffer = self.pairs.ports.receive_buffer();
        let groups = &mut self.groups;
        let joined = groups.join(runtime, owner, population, open, buffer);
        let (place, address) = joined?;
        slot.in_groups = true;
        slot.set_channel(owner.channel, Channel::Group(place));
        Ok(address)
    }

    /// Opens a single socket, connected to `peer` if given. Returns the local address.
    pub(crate) fn open_udp(
        &mut self,
        owner: ChannelKey,
        local: SocketAddr,
        peer: Option<SocketAddr>,
        reading: ReadTiming,
        media: Option<SocketMedia>,
    ) -> Result<SocketAddr, ChannelError> {
        if peer.is_some_and(|peer| !self.targets.permits(peer.ip())) {
            return Err(ChannelError::NotPermitted);
        }
        self.open_single(owner, local, peer, reading, media)
            .map_err(|error| channel_error(&error))
    }

    /// Opens a single socket with a local port, connected to the first reachable address.
    pub(crate) fn open_udp_to(
        &mut self,
        owner: ChannelKey,
        local_port: u16,
        addresses: &[SocketAddr],
        reading: ReadTiming,
        media: Option<SocketMedia>,
    ) {
        if self.sessions.channel(owner).is_none() {
            return;
        }
        let mut failed = ChannelError::NameNotFound;
        let (four, six): (Vec<SocketAddr>, _) = addresses.iter().partition(|to| to.is_ipv4());
        for peer in four.into_iter().chain::<Vec<SocketAddr>>(six) {
            let any: IpAddr = match peer {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            let local = SocketAddr::new(any, local_port);
            match self.open_single(owner, local, Some(peer), reading, media) {
                Ok(local) => return self.channel_opened(owner, local, Some(peer)),
                Err(error) => failed = channel_error(&error),
            }
        }
        self.fail_to_open(owner, failed);
    }

    /// Opens a single socket. The packet ring receives its media if there is a ring. Returns the
    /// local address.
    fn open_single(
        &mut self,
        owner: ChannelKey,
        local: SocketAddr,
        peer: Option<SocketAddr>,
        reading: ReadTiming,
        media: Option<SocketMedia>,
    ) -> io::Result<SocketAddr> {
        let slot = self.sessions.get_mut(owner.session);
        let slot = slot.ok_or(io::ErrorKind::NotConnected)?;
        // The ring receives only the worker's own ports, and a trace needs whole datagrams.
        let may = local.port() == 0 && slot.trace.is_none();
        let ring = self.rings.as_mut().filter(|_| may).zip(media);
        let (socket, path) = match ring {
            Some((rings, media)) => {
                rings.ensure_open(local.ip(), &self.runtime.readiness)?;
                let socket = self.pairs.reserve_single(local.ip(), media.filter)?;
                slot.on_ring = true;
                let port = RingPort {
                    sink: media.sink,
                    session: owner.session,
                    population: slot.population,
                    mark: Some(media.filter),
                    from: peer.map_or(AcceptedSource::Anybody, AcceptedSource::Connected),
                };
                rings.assign(socket.local_addr()?, port);
                (socket, MediaPath::Ring)
            }
            None => {
                let buffer = self.pairs.ports.receive_buffer();
                let path = media.map_or(MediaPath::None, MediaPath::Socket);
                (net::ports::bind(local, buffer)?, path)
            }
        };
        let port = socket.local_addr()?.port();
        let request = DatagramRequest {
            owner,
            socket,
            peer,
            reading,
            media: path,
            tracer: slot.trace.as_ref(),
        };
        let (place, local) = match self.datagrams.open(&self.runtime, request) {
            Ok(opened) => opened,
            Err(error) => {
                if path == MediaPath::Ring {
                    self.port_ends(Deferred::SinglePort { port, arrived: 0 });
                }
                return Err(error);
            }
        };
        slot.has_single = true;
        slot.has_late_socket |= self.datagrams.is_late(place);
        let state = Channel::Datagrams {
            place,
            to: peer,
            source: None,
            accepted: None,
        };
        slot.set_channel(owner.channel, state);
        Ok(local)
    }

    /// Changes the reading mode of a single socket.
    pub(crate) fn set_reading(&mut self, owner: ChannelKey, reading: ReadTiming) {
        let Some(slot) = self.sessions.get_mut(owner.session) else {
            return;
        };
        if let Some(Channel::Datagrams {
            place,
            accepted: None,
            ..
        }) = slot.channel(owner.channel)
        {
            let set = self.datagrams.set_reading(place, reading, &self.runtime);
            slot.has_late_socket |= self.datagrams.is_late(place);
            if let Err(error) = set {
                self.note("not_read_late", None, error.to_string());
            }
        }
    }

    /// Sends datagrams of a session from a single UDP socket.
    pub(crate) fn transmit(&mut self, key: SessionKey, transmit: &Transmit, bytes: &[u8]) {
        let channel = self.sessions.channel(key.channel(transmit.channel));
        if let Some(Channel::Datagrams {
            place, to, source, ..
        }) = channel
        {
            let runtime = &mut self.runtime;
            let whom = transmit.to.or(to);
            if whom.is_some_and(|to| !self.targets.permits(to.ip())) {
                let count = bytes.len().div_ceil(transmit.segment_size.max(1)) as u64;
                return runtime.tester.add(tester::SENDS_FAILED, count);
            }
            self.datagrams
                .transmit(place, to, source, transmit, bytes, runtime);
        }
    }

    pub(crate) fn name_peer(&mut self, owner: ChannelKey, peer: Peer) {
        if [peer.media, peer.control]
            .iter()
            .any(|to| !self.targets.permits(to.ip()))
        {
            let population = self.sessions.population(owner.session);
            let text = format!(
                "media is not sent to {}: {}",
                peer.media.ip(),
                ChannelError::NotPermitted
            );
            return self.note("target_not_permitted", population, text);
        }
        let slot = self.sessions.get_mut(owner.session);
        let (pair, shared, before) = match slot.and_then(|slot| slot.channel_mut(owner.channel)) {
            Some(Channel::Pair {
                pair,
                shared,
                peer: own,
            }) => (*pair, *shared, own.replace(peer)),
            Some(Channel::Group(place)) => {
                let source = peer.media.ip();
                return self.groups.begin(*place, owner, source, &mut self.runtime);
            }
            Some(Channel::Datagrams { to, .. }) => {
                *to = Some(peer.media);
                return;
            }
            _ => return,
        };
        if shared {
            return self.pairs.route(pair, owner, peer, before);
        }
        if let Some(port) = self.pairs.name_peer(pair, peer)
            && let Some(rings) = &mut self.rings
        {
            rings.name_peer(port, peer.media.ip());
        }
    }

    pub(crate) fn close_channel(&mut self, owner: ChannelKey) {
        let Some(state) = self.sessions.channel(owner) else {
            return;
        };
        if let Some(slot) = self.slot(owner.session) {
            slot.forget_channel(owner.channel);
        }
        self.drop_channel(owner, state);
    }

    /// Closes the sockets of a channel. A connection whose queue is not empty may linger to send
    /// it.
    pub(crate) fn drop_channel(&mut self, owner: ChannelKey, channel: Channel) {
        let runtime = &mut self.runtime;
        match channel {
            Channel::Group(place) => self.groups.leave(place, owner, runtime),
            Channel::Datagrams {
                place, accepted, ..
            } => {
                if let Some(port) = self.datagrams.close_channel(place, accepted, runtime) {
                    self.port_ends(port);
                }
            }
            Channel::Stream(place) => self.close_stream(place),
            Channel::Pair {
                pair,
                shared: false,
                ..
            } => {
                if let Some(arrived) = self.pairs.close(pair, runtime) {
                    let place = pair.media;
                    self.port_ends(Deferred::Port { place, arrived });
                }
            }
            Channel::Pair {
                pair,
                peer: Some(peer),
                ..
            } => self.pairs.leave(pair, owner.session, peer),
            Channel::Resolving | Channel::Pair { .. } => {}
        }
        self.count_losses();
    }
}
