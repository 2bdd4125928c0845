//! Arrivals from the network.

use std::net::SocketAddr;

use crate::link::Delivery;
use measure::Time;

use super::super::stream::Stream;
use super::{
    Channel, Connection, DATAGRAM_OVERHEAD, Event, Pair, PortOwner, READ_MAX, SessionNumber, Side,
    address, client_address,
};
use crate::{Arrival, ChannelError, ChannelId, CloseReason, Input, Port, SinkId};

impl Pair {
    pub(super) fn handle_event(&mut self, event: Event) {
        match event {
            Event::ConnectionAttempt { session, channel } => {
                self.accept_connection(session, channel)
            }
            Event::Connected { connection } => {
                let (session, channel) = self.connections[connection].ends[0];
                let Some(Channel::Connecting) = self.slots[session].channels.get(&channel) else {
                    self.close_end(connection, 0);
                    return;
                };
                let stream = Channel::Stream { connection, end: 0 };
                let ends = (client_address(connection), self.server_address());
                self.open_channel(session, channel, stream, ends.0, Some(ends.1));
            }
            Event::NotConnected {
                session,
                channel,
                silent,
            } => {
                let channels = &mut self.slots[session].channels;
                if let Some(Channel::Connecting) = channels.get(&channel) {
                    channels.remove(&channel);
                    let error = match silent {
                        true => ChannelError::TimedOut,
                        false => ChannelError::Refused,
                    };
                    self.push(session, Input::OpenFailed { channel, error });
                }
            }
            Event::Stream { connection, end } => self.read_stream(connection, end),
            Event::Datagram { path } => self.receive_datagram(path),
        }
    }

    pub(super) fn server_address(&self) -> SocketAddr {
        SocketAddr::new(address(Side::Server), self.settings.port)
    }

    /// Makes the server's session for a connection that has reached it.
    fn accept_connection(&mut self, session: usize, channel: ChannelId) {
        const CHANNEL: ChannelId = ChannelId(0);
        let index = self.slots.len();
        let connection = self.connections.len();
        let delay = self.settings.stream_delay;
        let seed = self.settings.seed ^ ((connection as u64 + 1) << 32);
        self.connections.push(Connection {
            ends: [(session, channel), (index, CHANNEL)],
            open: [true; 2],
            streams: [Stream::new(delay, seed), Stream::new(delay, !seed)],
        });
        self.schedule(self.now + delay, Event::Connected { connection });
        let made = (self.accept)(SessionNumber(index));
        self.add(Side::Server, made);
        let stream = Channel::Stream { connection, end: 1 };
        let ends = (self.server_address(), client_address(connection));
        self.open_channel(index, CHANNEL, stream, ends.0, Some(ends.1));
    }

    fn read_stream(&mut self, connection: usize, end: usize) {
        let state = &mut self.connections[connection];
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        let ended = state.streams[1 - end].read(self.now, &mut bytes);
        let (session, channel) = state.ends[end];
        let at = self.now;
        if self.connections[connection].open[end]
            && self.exchange_received((session, channel), &bytes, ended)
        {
            self.scratch = bytes;
            self.deliver_pending();
            return;
        }
        for bytes in bytes.chunks(READ_MAX) {
            // The session may close the channel in between.
            if self.connections[connection].open[end] {
                let input = Input::Bytes {
                    channel,
                    bytes,
                    at,
                    runs: &[],
                };
                self.deliver(session, input);
                self.deliver_pending();
            }
        }
        self.scratch = bytes;
        if ended && std::mem::take(&mut self.connections[connection].open[end]) {
            let reason = CloseReason::End;
            self.push(session, Input::Closed { channel, reason });
            // The other direction ends too.
            self.close_peer_direction(connection, end);
        }
    }

    fn receive_datagram(&mut self, path: usize) {
        let state = &mut self.paths[path];
        // An earlier check has replaced this one.
        if state.check_at != self.now {
            return;
        }
        state.check_at = Time::NEVER;
        let (from, to) = (state.from, state.to);
        let left = state.link.take(self.now);
        self.schedule_arrival(path);
        let Some(Delivery {
            packet: datagram,
            due: at,
            ..
        }) = left
        else {
            return;
        };
        if self.receive_single((from, to), at, &datagram) {
            return;
        }
        let owners = self.receivers(from, to);
        if owners.is_empty() {
            self.foreign += 1;
            self.report_unreachable(from, to);
        }
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        bytes.extend_from_slice(&datagram.header);
        bytes.extend_from_slice(&datagram.body);
        for (session, channel, port, sink) in owners {
            match sink {
                Some(sink) => self.pass_to_sink(session, sink, at, &bytes),
                None => {
                    let input = Input::Datagram {
                        channel,
                        port,
                        from,
                        bytes: &bytes,
                        at,
                    };
                    self.deliver(session, input);
                }
            }
        }
        self.scratch = bytes;
    }

    /// Passes a datagram to a sink. A session that removes its receiver keeps the ports until it
    /// closes them.
    pub(super) fn pass_to_sink(&mut self, session: usize, sink: SinkId, at: Time, bytes: &[u8]) {
        let world = &mut self.sides[self.slots[session].side as usize];
        let arrival = Arrival {
            at,
            bytes,
            length: bytes.len(),
            overhead: DATAGRAM_OVERHEAD,
        };
        if let Some(event) = world.sinks.packet(sink, &arrival, &mut world.recorder) {
            self.push(session, Input::Media { sink, event });
        }
    }

    /// Returns the receivers of a datagram, each with its sink if one counts it: one session, or
    /// all that joined a group.
    fn receivers(
        &self,
        from: SocketAddr,
        to: SocketAddr,
    ) -> Vec<(usize, ChannelId, Port, Option<SinkId>)> {
        let mut found = Vec::new();
        for &(session, channel, port) in self.addresses.get(&to).into_iter().flatten() {
            let Some(Channel::Ports(ports)) = self.slots[session].channels.get(&channel) else {
                continue;
            };
            let is_its = match (ports.owner, ports.peer) {
                (PortOwner::Shared, peer) => {
                    peer.is_some_and(|(media, control)| from == media || from == control)
                }
                (PortOwner::Own, peer) => peer.is_none_or(|(media, _)| from.ip() == media.ip()),
                (PortOwner::Group, peer) => peer.is_some_and(|(media, _)| {
                    media.ip().is_unspecified() || from.ip() == media.ip()
                }),
            };
            if is_its {
                let sink = ports.sink.filter(|_| port == Port::Media);
                found.push((session, channel, port, sink));
                if ports.owner != PortOwner::Group {
                    break;
                }
            }
        }
        found
    }
}
