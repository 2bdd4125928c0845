//! Execution of the outputs of sessions.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use measure::{Time, tester};
use net::batch::Address;
use session::exchange::Exchange;
use session::{CloseReason, FlowId, Input, Note, Open, Outcome, Output, Port};

use crate::messages::{Client, WorkerReport};
use crate::worker::Worker;
use crate::worker::connections::Stream;
use crate::worker::exchanges::around;
use crate::worker::ids::{ChannelKey, FlowSender, SessionKey, SocketId};
use crate::worker::name_cache::SocketKind;
use crate::worker::pacer::{FlowOwner, PacerEvents};
use crate::worker::pairs::MulticastOutput;
use crate::worker::pairs::Peer;
use crate::worker::sessions::Channel;
use crate::worker::topics::TOPICS_MAX;

impl Worker {
    pub(crate) fn carry_out(&mut self, key: SessionKey, output: Output) {
        match output {
            Output::Open { channel, open } => self.open(key.channel(channel), open),
            Output::Send {
                channel,
                port,
                bytes,
            } => self.send(key.channel(channel), port, &bytes),
            Output::Peer {
                channel,
                media,
                control,
            } => self.name_peer(key.channel(channel), Peer { media, control }),
            Output::Close { channel } => self.close_channel(key.channel(channel)),
            Output::Acknowledge { channel, delay } => {
                if let Some(stream) = self.stream(key.channel(channel)) {
                    stream.acknowledge(delay);
                }
            }
            Output::Expect { channel, bytes } => {
                if let Some(stream) = self.stream(key.channel(channel)) {
                    stream.expect(bytes);
                }
            }
            Output::SetReadTiming { channel, reading } => {
                self.set_reading(key.channel(channel), reading);
            }
            Output::StartFlow { flow, channel } => self.start_flow(key.channel(channel), flow),
            Output::StopFlow { flow } => {
                self.stop_flow(key, |&(id, _)| id == flow);
            }
            Output::Exchange { channel, exchange } => {
                self.begin_exchange(key.channel(channel), exchange);
            }
            Output::FinishExchange { channel } => self.finish_exchange(key.channel(channel)),
            Output::Subscribe { topic } => self.listen_to(key, topic.into()),
            Output::Publish { topic, message } => {
                let topic: Arc<str> = topic.into();
                if !self.links.pass_on(&topic, &message) {
                    let text = format!("message on topic {topic} lost: queue of a worker is full");
                    self.note("message_lost", None, text);
                }
                self.publish_to_subscribers(&topic, &message);
            }
            // Executed by the caller, which has the bytes.
            Output::Transmit(_) => {}
            Output::Playing { at } => {
                if let Some(slot) = self.sessions.get_mut(key)
                    && let Some(client) = &mut slot.client
                    && client.first_media.is_none()
                {
                    client.first_media = Some(at);
                    self.populations.plays(slot.population);
                }
            }
            Output::Viewed(service) => {
                self.change_client(key, |client| client.service = Some(service));
            }
            Output::Streams(streams) => self.change_client(key, |client| client.streams = streams),
            Output::Described(description) => {
                self.change_client(key, |client| client.described = Some(description));
            }
            Output::Note(Note { kind, text }) => {
                let population = self.sessions.population(key);
                self.note(kind, population, text);
            }
            Output::Record(record) => self.links.report(WorkerReport::Record(record)),
            Output::Ended(outcome) => self.end_session(key, outcome),
        }
    }

    fn change_client(&mut self, key: SessionKey, change: impl FnOnce(&mut Client)) {
        let slot = self.slot(key);
        if let Some(client) = slot.and_then(|slot| slot.client.as_mut()) {
            change(client);
        }
    }

    /// The connection of a channel.
    fn stream(&mut self, owner: ChannelKey) -> Option<&mut Stream> {
        self.connections.get_mut(self.sessions.stream(owner)?)
    }

    fn open(&mut self, owner: ChannelKey, open: Open) {
        let wanted = SocketKind::Connection;
        let mut remote = None;
        let opened = match open {
            Open::Tcp {
                host,
                port,
                timeout,
            } => {
                return self.open_by_name(owner, host, port, timeout, wanted);
            }
            Open::Tls {
                host,
                port,
                timeout,
                server_name,
            } => {
                let name: Arc<str> = match server_name {
                    Some(name) => name.into(),
                    None => host.trim_matches(['[', ']']).into(),
                };
                if let Some(slot) = self.slot(owner.session) {
                    slot.tls_names.push((owner.channel, name));
                }
                return self.open_by_name(owner, host, port, timeout, wanted);
            }
            Open::Unix { path } => return self.connect_unix(owner, &path),
            Open::UdpPair {
                local,
                sink,
                shared: false,
            } => self.open_pair(owner, local, sink),
            Open::UdpPair {
                local,
                shared: true,
                ..
            } => self.open_shared(owner, local, None),
            Open::Udp {
                local,
                peer,
                reading,
                media,
            } => {
                remote = peer;
                self.open_udp(owner, local, peer, reading, media)
            }
            Open::UdpToHost {
                host,
                port,
                local_port,
                timeout,
                reading,
                media,
            } => {
                let wanted = SocketKind::Datagrams {
                    local_port,
                    reading,
                    media,
                };
                return self.open_by_name(owner, host, port, timeout, wanted);
            }
            Open::MulticastSender {
                local,
                interface,
                ttl,
            } => {
                let outward = MulticastOutput { ttl, interface };
                self.open_shared(owner, local, Some(outward))
            }
            Open::Multicast { .. } => self.join_group(owner, open),
        };
        match opened {
            Ok(local) => self.channel_opened(owner, local, remote),
            Err(error) => self.fail_to_open(owner, error),
        }
    }

    fn send(&mut self, owner: ChannelKey, port: Port, bytes: &[u8]) {
        let Some(state) = self.sessions.channel(owner) else {
            return;
        };
        let sent = match state {
            Channel::Stream(place) => match self.connections.send_control(place, bytes) {
                Ok(()) => true,
                Err(reason) => {
                    self.lose_stream(place, reason);
                    // Bytes that a broken connection does not send are no failure of the tester.
                    reason == CloseReason::Reset
                }
            },
            Channel::Pair {
                pair,
                shared,
                peer: Some(peer),
            } => {
                let (place, to) = match port {
                    Port::Media => (pair.media, peer.media),
                    Port::Control => (pair.control, peer.control),
                };
                let id = SocketId::of_pair(place, shared);
                self.pairs.send(id, to, bytes, &self.runtime.clock)
            }
            Channel::Group(place) => {
                let clock = &self.runtime.clock;
                self.groups.send(place, owner.session, port, bytes, clock)
            }
            // Single sockets send by `Output::Transmit`.
            Channel::Datagrams { .. } => true,
            Channel::Resolving | Channel::Pair { peer: None, .. } => false,
        };
        let failed = u64::from(!sent);
        self.runtime.tester.add(tester::SENDS_FAILED, failed);
    }

    /// Takes over a connection for an exchange.
    fn begin_exchange(&mut self, owner: ChannelKey, exchange: Box<dyn Exchange>) {
        if let Some(population) = self.sessions.population(owner.session)
            && let Some(place) = self.sessions.stream(owner)
        {
            self.exchanges
                .begin(around!(self), owner, population, place, exchange);
            self.deliver_ended_exchanges();
        }
    }

    /// Plans no more messages on a handed-over connection.
    fn finish_exchange(&mut self, owner: ChannelKey) {
        if let Some(place) = self.sessions.stream(owner) {
            self.exchanges.finish_early(around!(self), place);
            self.deliver_ended_exchanges();
        }
    }

    /// Notifies sessions of the end of handed-over connections.
    pub(crate) fn deliver_ended_exchanges(&mut self) {
        while let Some((owner, reason)) = self.exchanges.next_ended() {
            let channel = owner.channel;
            if let Some(slot) = self.slot(owner.session) {
                slot.forget_channel(channel);
                let ended = Input::ExchangeEnded { channel, reason };
                self.runtime.inbox.push(owner.session, ended);
            }
        }
    }

    /// Sends the messages that are due on handed-over connections.
    pub(crate) fn send_messages(&mut self, now: Time) {
        self.exchanges.send(around!(self), now);
        self.deliver_ended_exchanges();
    }

    /// Checks all handed-over connections at the end of each window.
    pub(crate) fn check_exchanges(&mut self) {
        self.exchanges.check_timeouts(around!(self));
        self.deliver_ended_exchanges();
    }

    fn listen_to(&mut self, key: SessionKey, name: Arc<str>) {
        if !self.has_room_for(&name) {
            return;
        }
        let Some(slot) = self.slot(key) else { return };
        if slot.topics.contains(&name) {
            return;
        }
        slot.topics.push(name.clone());
        if let Some(message) = self.topics.subscribe(key, name.clone()) {
            self.runtime.inbox.push_message(key, name, message);
        }
    }

    fn has_room_for(&mut self, topic: &str) -> bool {
        let room = self.topics.has_room_for(topic);
        if !room {
            let text = format!("topic {topic} refused: more than {TOPICS_MAX} topics");
            self.note("topic_refused", None, text);
        }
        room
    }

    pub(crate) fn publish_to_subscribers(&mut self, name: &Arc<str>, message: &Arc<str>) {
        if !self.has_room_for(name) {
            return;
        }
        for &key in self.topics.publish(name, message).unwrap_or_default() {
            self.runtime
                .inbox
                .push_message(key, name.clone(), message.clone());
        }
    }

    /// Removes a session and everything it held.
    pub(crate) fn end_session(&mut self, key: SessionKey, outcome: Outcome) {
        let Some(slot) = self.sessions.remove(key) else {
            return;
        };
        for &(flow, sent_by) in &slot.flows {
            self.sending.release(&mut self.flows, flow, sent_by);
        }
        for &(id, channel) in &slot.channels {
            self.drop_channel(key.channel(id), channel);
        }
        self.topics.unsubscribe(key, &slot.topics);
        if let Some(client) = slot.client {
            self.client_ended(slot.population, client, outcome);
        }
    }

    fn start_flow(&mut self, owner: ChannelKey, flow: FlowId) {
        // The session may have ended the flow in the same turn, for example if one read contained
        // both the request to start and the request to stop.
        if !self.flows.contains(flow) {
            return;
        }
        let key = owner.session;
        let Some(slot) = self.slot(key) else { return };
        let whose = FlowOwner { owner, flow };
        let sent_by = match slot.channel(owner.channel) {
            Some(Channel::Pair {
                pair,
                shared,
                peer: Some(peer),
            }) => {
                let id = SocketId::of_pair(pair.media, shared);
                self.lend_to_pacer(whose, id, peer.media, None)
            }
            Some(Channel::Datagrams {
                place,
                to: Some(to),
                source,
                ..
            }) => self.lend_to_pacer(whose, SocketId::Single(place), to, source),
            Some(Channel::Stream(socket)) => {
                let flows = &mut self.flows;
                if flows.access(flow, |flow| flow.is_byte_stream())
                    && let Some(stream) = self.connections.get(socket)
                {
                    stream.keep_little_unsent();
                }
                let sent_by = self.sending.interleave(flows, key, flow, socket);
                if sent_by.is_none() {
                    self.runtime.inbox.push(key, Input::FlowEnded { flow });
                }
                Ok(sent_by)
            }
            _ => Err(io::Error::other(
                "channel of the flow is not open or has no peer",
            )),
        };
        match sent_by {
            Ok(Some(sent_by)) => {
                if let Some(slot) = self.slot(key) {
                    slot.flows.push((flow, sent_by));
                }
            }
            Ok(None) => {}
            Err(error) => {
                self.note("flow_not_sent", None, error.to_string());
                self.runtime.inbox.push(key, Input::FlowEnded { flow });
            }
        }
    }

    /// Moves a flow to the pacer. Returns `None` if the pacer already has it.
    fn lend_to_pacer(
        &mut self,
        whose: FlowOwner,
        place: SocketId,
        to: SocketAddr,
        source: Option<IpAddr>,
    ) -> io::Result<Option<FlowSender>> {
        self.trace_misses(whose.owner.session, "media datagrams that it sends");
        let socket = self.sending.socket(place, || match place {
            SocketId::Single(place) => self.datagrams.descriptor(place),
            place => {
                let socket = self.pairs.descriptor(place)?;
                Ok((socket, matches!(place, SocketId::Shared(_))))
            }
        })?;
        let connected =
            matches!(place, SocketId::Single(place) if self.datagrams.peer(place) == Some(to));
        let to = match connected {
            true => Address::from(to).connected(),
            false => Address::from(to).with_source(source),
        };
        let (index, clock) = (self.links.index, &self.runtime.clock);
        self.sending
            .start_pacer(index, clock, &self.links.mailbox.waker)?;
        Ok(self.sending.lend(&mut self.flows, whose, socket, to))
    }

    /// Reschedules the session's flows, whose next packet may have become due earlier.
    #[inline]
    pub(crate) fn check_flows(&mut self, key: SessionKey) {
        if let Some(slot) = self.sessions.get(key)
            && !slot.flows.is_empty()
        {
            self.sending.reschedule(&mut self.flows, &slot.flows);
        }
    }

    /// Stops the session's flow that `is` selects. Returns `false` if there is none.
    fn stop_flow(&mut self, key: SessionKey, is: impl Fn(&(FlowId, FlowSender)) -> bool) -> bool {
        let Some(slot) = self.slot(key) else {
            return false;
        };
        let Some(index) = slot.flows.iter().position(is) else {
            return false;
        };
        let (flow, sent_by) = slot.flows.swap_remove(index);
        self.sending.release(&mut self.flows, flow, sent_by);
        true
    }

    /// Handles the end of a flow. Its session is notified once, and may start the flow again. It is
    /// not notified if the flow was stopped meanwhile, for example by a pause.
    fn end_flow(&mut self, key: SessionKey, flow: FlowId, sent_by: FlowSender) {
        if self.stop_flow(key, |&started| started == (flow, sent_by)) {
            self.runtime.inbox.push(key, Input::FlowEnded { flow });
        }
    }

    /// Processes the events of the pacer.
    pub(crate) fn take_pacer_events(&mut self) {
        let PacerEvents { ended, refused } = self.sending.take_events();
        for (key, flow, lease) in ended {
            self.end_flow(key, flow, FlowSender::Pacer(lease));
        }
        for owner in refused {
            if let Some(Channel::Datagrams {
                place,
                accepted: None,
                ..
            }) = self.sessions.channel(owner)
            {
                self.datagrams.refused(place, &mut self.runtime);
            }
        }
    }

    /// Sends what is due in connections.
    pub(crate) fn send_flows(&mut self, now: Time) {
        let (flows, connections) = (&mut self.flows, &mut self.connections);
        let sent = self
            .sending
            .send(now, flows, connections, &mut self.runtime);
        for (key, flow, sent_by) in sent.ended {
            self.end_flow(key, flow, sent_by);
        }
        for place in sent.broken {
            self.lose_stream(place, CloseReason::Reset);
        }
    }
}
