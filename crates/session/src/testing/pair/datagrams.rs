//! UDP sockets of sessions, and the endpoint that accepts them.

use std::net::SocketAddr;

use bytes::Bytes;
use measure::Time;

use super::{Channel, DatagramInFlight, Pair, SessionNumber, Side, Udp, address};
use crate::{
    ChannelError, ChannelId, CloseReason, Endpoint, Input, PeerId, Port, Route, SocketMedia,
    Transmit,
};

/// Channel of an accepted session.
const ACCEPTED: ChannelId = ChannelId(0);

/// Maximum number of concurrent sessions of an endpoint.
const PEERS_MAX: usize = 1000;

impl Pair {
    /// Sets the endpoint of the server's UDP port.
    pub fn set_endpoint(&mut self, endpoint: Box<dyn Endpoint>) {
        self.endpoint = Some(endpoint);
    }

    pub(super) fn open_udp(
        &mut self,
        index: usize,
        channel: ChannelId,
        (mut local, peer): (SocketAddr, Option<SocketAddr>),
        media: Option<SocketMedia>,
    ) {
        local.set_ip(address(self.slots[index].side));
        if local.port() == 0 {
            local.set_port(self.next_port);
            self.next_port = self.next_port.saturating_add(2);
        }
        let owners = self.addresses.entry(local).or_default();
        if !owners.is_empty() {
            let error = ChannelError::NoPorts;
            return self.push(index, Input::OpenFailed { channel, error });
        }
        owners.push((index, channel, Port::Media));
        let udp = Udp {
            local,
            peer,
            to: peer,
            accepted: None,
            media,
        };
        self.open_channel(index, channel, Channel::Udp(udp), local, peer);
    }

    pub(super) fn close_udp(&mut self, index: usize, channel: ChannelId, udp: Udp) {
        match udp.accepted {
            Some(peer) => {
                self.peers.remove(&peer);
                if let Some(endpoint) = &mut self.endpoint {
                    endpoint.session_ended(peer);
                }
            }
            None => self.leave_address(udp.local, index, channel),
        }
    }

    /// Removes a channel from the owners of an address.
    pub(super) fn leave_address(&mut self, local: SocketAddr, index: usize, channel: ChannelId) {
        if let Some(owners) = self.addresses.get_mut(&local) {
            owners.retain(|&(session, other, _)| (session, other) != (index, channel));
        }
    }

    pub(super) fn transmit(&mut self, index: usize, transmit: &Transmit, bytes: &[u8]) {
        let channel = self.slots[index].channels.get(&transmit.channel);
        let Some(&Channel::Udp(udp)) = channel else {
            return;
        };
        let Some(to) = transmit.to.or(udp.to) else {
            return;
        };
        for datagram in bytes.chunks(transmit.segment_size) {
            self.send_datagram(udp.local, to, Bytes::copy_from_slice(datagram).into());
        }
    }

    /// Handles a datagram for a single socket or for the endpoint. Returns `false` if it is for
    /// neither.
    pub(super) fn receive_single(
        &mut self,
        (from, to): (SocketAddr, SocketAddr),
        at: Time,
        datagram: &DatagramInFlight,
    ) -> bool {
        let bytes = [&datagram.header, &datagram.body[..]].concat();
        if self.endpoint.is_some() && to == self.server_address() {
            self.route(from, at, &bytes);
            return true;
        }
        self.receive_udp((from, to), at, &bytes)
    }

    /// Routes a datagram by the endpoint.
    fn route(&mut self, from: SocketAddr, at: Time, bytes: &[u8]) {
        let datagram = crate::Datagram { from, at, bytes };
        let room = self.peers.len() < PEERS_MAX;
        let mut answer = Vec::new();
        let Some(endpoint) = &mut self.endpoint else {
            return;
        };
        match endpoint.route(self.now, &datagram, room, &mut answer) {
            Route::Session(peer) => match self.peers.get(&peer) {
                Some(&index) => self.deliver_datagram(index, ACCEPTED, datagram),
                None => self.foreign += 1,
            },
            Route::Accept(peer, _) if !room || self.peers.contains_key(&peer) => {
                endpoint.session_ended(peer);
                self.foreign += 1;
            }
            Route::Accept(peer, session) => self.accept_peer(peer, session, datagram),
            Route::Answer => {
                self.send_datagram(self.server_address(), from, Bytes::from(answer).into());
            }
            Route::Discard => self.foreign += 1,
        }
    }

    fn accept_peer(
        &mut self,
        peer: PeerId,
        session: Box<dyn crate::Session>,
        datagram: crate::Datagram<'_>,
    ) {
        let SessionNumber(index) = self.add(Side::Server, session);
        let local = self.server_address();
        self.peers.insert(peer, index);
        let udp = Udp {
            local,
            peer: Some(datagram.from),
            to: Some(datagram.from),
            accepted: Some(peer),
            media: None,
        };
        self.open_channel(index, ACCEPTED, Channel::Udp(udp), local, udp.peer);
        self.deliver_pending();
        self.deliver_datagram(index, ACCEPTED, datagram);
    }

    /// The single socket with this address, with its session and channel.
    fn udp_at(&self, local: SocketAddr) -> Option<(usize, ChannelId, Udp)> {
        let &(index, channel, _) = self.addresses.get(&local)?.first()?;
        match self.slots[index].channels.get(&channel)? {
            Channel::Udp(udp) => Some((index, channel, *udp)),
            _ => None,
        }
    }

    /// Delivers a datagram to the session that owns the socket. Returns `false` if there is none.
    fn receive_udp(
        &mut self,
        (from, to): (SocketAddr, SocketAddr),
        at: Time,
        bytes: &[u8],
    ) -> bool {
        let Some((index, channel, udp)) = self.udp_at(to) else {
            return false;
        };
        if udp.peer.is_some_and(|peer| peer != from) {
            self.foreign += 1;
        } else if let Some(media) = udp.media.filter(|media| media.filter.matches(bytes)) {
            self.pass_to_sink(index, media.sink, at, bytes);
        } else {
            self.deliver_datagram(index, channel, crate::Datagram { from, at, bytes });
        }
        true
    }

    fn deliver_datagram(
        &mut self,
        index: usize,
        channel: ChannelId,
        datagram: crate::Datagram<'_>,
    ) {
        let datagrams = &[datagram];
        self.deliver(index, Input::Datagrams { channel, datagrams });
    }

    /// Reports an unreachable port to a session whose socket is connected to it.
    pub(super) fn report_unreachable(&mut self, from: SocketAddr, to: SocketAddr) {
        if let Some((index, channel, udp)) = self.udp_at(from)
            && udp.peer == Some(to)
        {
            self.close_udp(index, channel, udp);
            let reason = CloseReason::Reset;
            self.push(index, Input::Closed { channel, reason });
        }
    }
}
