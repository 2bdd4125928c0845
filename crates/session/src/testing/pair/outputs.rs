//! Carrying out the outputs of sessions.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;

use super::{
    ActiveFlow, Channel, DatagramInFlight, Event, PACKETS_A_TURN, Pair, PathState, Pending,
    PortOwner, Ports, Side, Udp, address,
};
use crate::link::Link;
use crate::{ChannelError, ChannelId, ExchangeEnded, FlowId, Handover, Input, Open, Output, Port};
use measure::Time;

/// Even port that a server shares among its sessions.
const SHARED_PORT: u16 = 6970;

/// Even port from which a server sends to groups.
const SENDER_PORT: u16 = 6980;

/// Last even port of a side.
const LAST_PORT: u16 = 65_000;

impl Pair {
    pub(super) fn carry_out(&mut self, index: usize, output: Output) {
        match output {
            Output::Open { channel, open } => self.open(index, channel, open),
            Output::Send {
                channel,
                port,
                bytes,
            } => self.send(index, channel, port, bytes),
            Output::Peer {
                channel,
                media,
                control,
            } => match self.slots[index].channels.get_mut(&channel) {
                Some(Channel::Ports(ports)) => ports.peer = Some((media, control)),
                Some(Channel::Udp(udp)) => udp.to = Some(media),
                _ => {}
            },
            Output::Close { channel } => self.close(index, channel),
            Output::StartFlow { flow, channel } => self.start_flow(index, flow, channel),
            Output::StopFlow { flow } => {
                self.active_flows
                    .retain(|active| (active.session, active.flow) != (index, flow));
            }
            Output::Exchange { channel, exchange } => self.begin_exchange(index, channel, exchange),
            Output::FinishExchange { channel } => self.finish_exchange((index, channel)),
            Output::Subscribe { topic } => {
                let state = self.topics.entry(topic.clone()).or_default();
                state.subscribers.push(index);
                if let Some(message) = state.last.clone() {
                    let told = Pending::TopicMessage { topic, message };
                    self.pending.push_back((index, told));
                }
            }
            Output::Publish { topic, message } => {
                let state = self.topics.entry(topic.clone()).or_default();
                state.last = Some(Arc::clone(&message));
                for &listener in &state.subscribers {
                    let (topic, message) = (topic.clone(), Arc::clone(&message));
                    let told = Pending::TopicMessage { topic, message };
                    self.pending.push_back((listener, told));
                }
            }
            Output::Ended(outcome) => {
                let channels: Vec<ChannelId> = self.slots[index].channels.keys().copied().collect();
                for channel in channels {
                    self.close(index, channel);
                }
                self.active_flows.retain(|active| active.session != index);
                self.slots[index].outcome = Some(outcome);
            }
            // The virtual network reads everything at once.
            Output::SetReadTiming { .. } | Output::Expect { .. } => {}
            kept => self.outputs.push((super::SessionNumber(index), kept)),
        }
    }

    fn open(&mut self, index: usize, channel: ChannelId, open: Open) {
        let side = self.slots[index].side;
        let opened = match open {
            // TLS is not emulated: the bytes are plain text.
            Open::Tcp { port, timeout, .. } | Open::Tls { port, timeout, .. } => {
                let channels = &mut self.slots[index].channels;
                channels.insert(channel, Channel::Connecting);
                return self.connect(index, channel, port, timeout);
            }
            // The virtual network has no Unix sockets.
            Open::Unix { .. } => Err(ChannelError::Unreachable),
            Open::UdpPair {
                sink, shared: true, ..
            } => Ok(Ports::of(side, SHARED_PORT, sink, PortOwner::Shared)),
            Open::UdpPair { sink, .. } if self.next_port <= LAST_PORT => {
                self.next_port += 2;
                let port = self.next_port - 2;
                Ok(Ports::of(side, port, sink, PortOwner::Own))
            }
            Open::UdpPair { .. } => Err(ChannelError::NoPorts),
            Open::Udp {
                local, peer, media, ..
            } => return self.open_udp(index, channel, (local, peer), media),
            // Every host name means the other side's host.
            Open::UdpToHost {
                port,
                local_port,
                media,
                ..
            } => {
                let peer = SocketAddr::new(address(side.other()), port);
                let local = SocketAddr::new(address(side), local_port);
                return self.open_udp(index, channel, (local, Some(peer)), media);
            }
            Open::MulticastSender { .. } => {
                Ok(Ports::of(side, SENDER_PORT, None, PortOwner::Shared))
            }
            Open::Multicast {
                group,
                port,
                control,
                sink,
                ..
            } => Ok(Ports {
                media: SocketAddr::new(group, port),
                control: SocketAddr::new(group, control),
                sink,
                owner: PortOwner::Group,
                peer: None,
            }),
        };
        match opened {
            Ok(ports) => {
                for port in [Port::Media, Port::Control] {
                    let owners = self.addresses.entry(ports.local(port)).or_default();
                    owners.push((index, channel, port));
                }
                let local = ports.media;
                self.open_channel(index, channel, Channel::Ports(ports), local, None);
            }
            Err(error) => self.push(index, Input::OpenFailed { channel, error }),
        }
    }

    fn connect(
        &mut self,
        session: usize,
        channel: ChannelId,
        port: u16,
        timeout: std::time::Duration,
    ) {
        let delay = self.settings.stream_delay;
        let not_connected = |silent| Event::NotConnected {
            session,
            channel,
            silent,
        };
        let (at, event) = match self.settings.server_reaction {
            super::ServerReaction::Ignore => (self.now + timeout, not_connected(true)),
            super::ServerReaction::Accept if port == self.settings.port => (
                self.now + delay,
                Event::ConnectionAttempt { session, channel },
            ),
            _ => (self.now + delay * 2, not_connected(false)),
        };
        self.schedule(at, event);
    }

    fn send(&mut self, index: usize, channel: ChannelId, port: Port, bytes: Vec<u8>) {
        match self.slots[index].channels.get(&channel) {
            Some(&Channel::Stream { connection, end }) => {
                self.send_stream(connection, end, [&bytes, &[]]);
            }
            Some(Channel::Ports(ports)) => {
                let Some((media, control)) = ports.peer else {
                    return;
                };
                let side = self.slots[index].side;
                let mut from = ports.local(port);
                // Datagrams sent from a group's socket have this host's address.
                if ports.owner == PortOwner::Group {
                    from.set_ip(address(side));
                }
                let to = match port {
                    Port::Media => media,
                    Port::Control => control,
                };
                self.send_datagram(from, to, Bytes::from(bytes).into());
            }
            Some(Channel::Connecting | Channel::Udp(_)) | None => {}
        }
    }

    /// Sends on a connection. Returns `false` if it is no longer open.
    pub(super) fn send_stream(&mut self, connection: usize, end: usize, parts: [&[u8]; 2]) -> bool {
        let state = &mut self.connections[connection];
        if !state.open[end] {
            return false;
        }
        let event = Event::Stream {
            connection,
            end: 1 - end,
        };
        let mut times = Vec::new();
        state.streams[end].send(self.now, parts, |at| times.push(at));
        for at in times {
            self.schedule(at, event);
        }
        true
    }

    pub(super) fn send_datagram(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        datagram: DatagramInFlight,
    ) {
        let path = match self.path_of.get(&(from, to)) {
            Some(&path) => path,
            None => {
                let path = self.paths.len();
                let up = from.ip() == address(Side::Client);
                let settings = match up {
                    true => self.settings.up.clone(),
                    false => self.settings.down.clone(),
                };
                let seed = self.settings.seed.wrapping_add(path as u64 + 1);
                self.paths.push(PathState {
                    from,
                    to,
                    link: Link::new(settings, Vec::new(), seed),
                    check_at: Time::NEVER,
                });
                self.path_of.insert((from, to), path);
                path
            }
        };
        let length = datagram.header.len() + datagram.body.len();
        // Losses are in the link's counts.
        let _ = self.paths[path].link.send(self.now, length, datagram);
        self.schedule_arrival(path);
    }

    /// Schedules a check of a path for the next possible arrival.
    pub(super) fn schedule_arrival(&mut self, path: usize) {
        let state = &mut self.paths[path];
        let next = state
            .link
            .next_departure()
            .map_or(Time::NEVER, |at| at.max(self.now));
        if next < state.check_at {
            state.check_at = next;
            self.schedule(next, Event::Datagram { path });
        }
    }

    fn close(&mut self, index: usize, channel: ChannelId) {
        self.drop_exchange((index, channel), &ExchangeEnded::ClosedByUs);
        match self.slots[index].channels.remove(&channel) {
            Some(Channel::Stream { connection, end }) => self.close_end(connection, end),
            Some(Channel::Ports(ports)) => {
                self.leave_address(ports.media, index, channel);
                self.leave_address(ports.control, index, channel);
            }
            Some(Channel::Udp(udp)) => self.close_udp(index, channel, udp),
            Some(Channel::Connecting) | None => {}
        }
    }

    /// Closes one end of a connection. The other end is notified after all bytes sent before have
    /// arrived.
    pub(super) fn close_end(&mut self, connection: usize, end: usize) {
        if std::mem::take(&mut self.connections[connection].open[end]) {
            self.close_peer_direction(connection, end);
        }
    }

    pub(super) fn close_peer_direction(&mut self, connection: usize, end: usize) {
        let at = self.connections[connection].streams[end].end(self.now);
        let event = Event::Stream {
            connection,
            end: 1 - end,
        };
        self.schedule(at, event);
    }

    fn start_flow(&mut self, index: usize, flow: FlowId, channel: ChannelId) {
        let slot = &self.slots[index];
        let leads = match slot.channels.get(&channel) {
            Some(Channel::Stream { .. }) => true,
            Some(Channel::Ports(ports)) => ports.peer.is_some(),
            Some(Channel::Udp(udp)) => udp.to.is_some(),
            Some(Channel::Connecting) | None => false,
        };
        let world = &mut self.sides[slot.side as usize];
        if !world.flows.contains(flow) {
            return;
        }
        let due = world.flows.access(flow, |flow| flow.next_due());
        match due.filter(|_| leads) {
            Some(due) => self.active_flows.push(ActiveFlow {
                session: index,
                flow,
                channel,
                due,
            }),
            None => self.push(index, Input::FlowEnded { flow }),
        }
    }

    /// Updates the due times of a session's flows, which its last call may have made earlier.
    pub(super) fn update_flow_dues(&mut self, session: usize) {
        let side = self.slots[session].side as usize;
        let flows = &mut self.sides[side].flows;
        for active in self
            .active_flows
            .iter_mut()
            .filter(|a| a.session == session)
        {
            if flows.contains(active.flow)
                && let Some(due) = flows.access(active.flow, |flow| flow.next_due())
            {
                active.due = active.due.min(due);
            }
        }
    }

    /// Sends the due packets of a flow.
    pub(super) fn send_flow(&mut self, index: usize) {
        let active = &self.active_flows[index];
        let (session, flow, channel) = (active.session, active.flow, active.channel);
        let side = self.slots[session].side as usize;
        if !self.sides[side].flows.contains(flow) {
            self.active_flows.swap_remove(index);
            return;
        }
        for _ in 0..PACKETS_A_TURN {
            let now = self.now;
            let flows = &mut self.sides[side].flows;
            let Some(packet) = flows.access(flow, |flow| flow.next_packet(now)) else {
                break;
            };
            let datagram = DatagramInFlight {
                header: packet.header,
                body: packet.payload,
            };
            let left = match self.slots[session].channels.get(&channel) {
                Some(&Channel::Ports(Ports {
                    media: from,
                    peer: Some((to, _)),
                    ..
                }))
                | Some(&Channel::Udp(Udp {
                    local: from,
                    to: Some(to),
                    ..
                })) => {
                    self.send_datagram(from, to, datagram);
                    true
                }
                Some(&Channel::Stream { connection, end }) => {
                    self.send_stream(connection, end, [&datagram.header, &datagram.body])
                }
                _ => false,
            };
            let left = left.then(|| Handover::at(self.now));
            let flows = &mut self.sides[side].flows;
            flows.access(flow, |flow| flow.packet_sent(packet.tag, left));
        }
        match self.sides[side].flows.access(flow, |flow| flow.next_due()) {
            Some(due) => self.active_flows[index].due = due,
            None => {
                self.active_flows.swap_remove(index);
                self.push(session, Input::FlowEnded { flow });
            }
        }
    }
}
