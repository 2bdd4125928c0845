//! Carrying out what sessions want done.

use std::sync::Arc;

use measure::tester;
use protocol::session::{ChannelId, Closed, Note, Open, Outcome, Output, Port};

use super::Worker;
use super::connections::Queued;
use super::inbox::Pending;
use super::keys::{Place, SessionKey};
use super::sessions::{Channel, Client, Peer};
use super::topics::TOPICS;
use crate::messages::Report;

impl Worker {
    pub(super) fn carry_out(&mut self, key: SessionKey, output: Output) {
        match output {
            Output::Open { channel, open } => self.open(key, channel, open),
            Output::Send {
                channel,
                port,
                bytes,
            } => self.send(key, channel, port, &bytes),
            Output::Peer {
                channel,
                media,
                control,
            } => {
                self.name_peer(key, channel, Peer { media, control });
            }
            Output::Close { channel } => self.close_channel(key, channel),
            Output::StartFlow { flow, channel } => self.start_flow(key, flow, channel),
            Output::StopFlow { flow } => self.stop_flow(key, flow),
            Output::Exchange { channel, exchange } => self.begin_exchange(key, channel, exchange),
            Output::FinishExchange { channel } => self.finish_exchange_of(key, channel),
            Output::Listen { topic } => self.listen_to(key, topic.into()),
            Output::Tell { topic, message } => {
                let topic: Arc<str> = topic.into();
                if !self.links.pass_on(&topic, &message) {
                    let text = format!("another worker has no room for what was said on {topic}");
                    self.note("message_lost", None, text);
                }
                self.tell_listeners(&topic, &message);
            }
            // Carried out where its bytes are at hand.
            Output::Transmit(_) => {}
            Output::Playing { at } => {
                let population = self.slot(key).map(|slot| slot.population);
                let Some(Client {
                    first_media: first @ None,
                    ..
                }) = self.slot(key).and_then(|slot| slot.client.as_mut())
                else {
                    return;
                };
                *first = Some(at);
                if let Some(index) = population {
                    self.populations.plays(index);
                }
            }
            Output::Streams(streams) => {
                if let Some(client) = self.slot(key).and_then(|slot| slot.client.as_mut()) {
                    client.streams = streams;
                }
            }
            Output::Described(said) => {
                if let Some(client) = self.slot(key).and_then(|slot| slot.client.as_mut()) {
                    client.described = Some(said);
                }
            }
            Output::Note(Note { kind, text }) => {
                let population = self.slot(key).map(|slot| slot.population);
                self.note(kind, population, text);
            }
            Output::Record(record) => self.links.report(Report::Record(record)),
            Output::Ended(outcome) => self.end_session(key, outcome),
        }
    }

    fn open(&mut self, key: SessionKey, channel: ChannelId, open: Open) {
        let opened = match open {
            Open::Tcp {
                host,
                port,
                timeout,
            } => return self.open_stream(key, channel, (host, port), timeout),
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
                if let Some(slot) = self.slot(key) {
                    slot.secured.push((channel, name));
                }
                return self.open_stream(key, channel, (host, port), timeout);
            }
            Open::Unix { path } => return self.connect_unix(key, channel, &path),
            Open::UdpPair {
                local,
                sink,
                shared: false,
            } => self.open_pair(key, channel, local, sink),
            Open::UdpPair {
                local,
                shared: true,
                ..
            } => self.open_shared(key, channel, local, None),
            Open::Udp {
                local,
                peer,
                reading,
            } => return self.open_udp(key, channel, (local, peer), reading),
            Open::MulticastSender {
                local,
                interface,
                ttl,
            } => self.open_shared(key, channel, local, Some((ttl, interface))),
            Open::Multicast { .. } => self.join_group(key, channel, open),
        };
        if let Err(error) = opened {
            self.count_refused(error);
        }
        let heard = match opened {
            Ok(local) => Pending::Opened {
                channel,
                local,
                remote: None,
            },
            Err(error) => Pending::OpenFailed { channel, error },
        };
        self.runtime.inbox.push(key, heard);
    }

    fn send(&mut self, key: SessionKey, channel: ChannelId, port: Port, bytes: &[u8]) {
        let Some(state) = self.slot(key).and_then(|slot| slot.channel(channel)) else {
            return;
        };
        match state {
            Channel::Stream(place) => match self.connections.send_control(place, bytes) {
                Queued::Sent => {}
                Queued::Full => {
                    self.runtime.tester.add(tester::SENDS_FAILED, 1);
                    self.lose_stream(place, Closed::Stuck);
                }
                Queued::Broken => self.lose_stream(place, Closed::Reset),
            },
            Channel::Pair {
                media,
                control,
                shared,
                peer: Some(peer),
            } => {
                let (place, to) = match port {
                    Port::Media => (media, peer.media),
                    Port::Control => (control, peer.control),
                };
                let place = match shared {
                    true => Place::Shared(place),
                    false => Place::Pair(place),
                };
                let clock = &self.runtime.clock;
                let sent = self.pairs.send(place, to, bytes, clock);
                let failed = u64::from(!sent);
                self.runtime.tester.add(tester::SENDS_FAILED, failed);
            }
            Channel::Group(place) => {
                let failed = u64::from(!self.groups.send(place, key, port, bytes));
                self.runtime.tester.add(tester::SENDS_FAILED, failed);
            }
            // Datagrams of these are sent by `Output::Transmit`.
            Channel::Datagrams { .. } => {}
            Channel::Resolving | Channel::Pair { peer: None, .. } => {
                self.runtime.tester.add(tester::SENDS_FAILED, 1);
            }
        }
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
        if let Some(message) = self.topics.listen(key, name.clone()) {
            self.runtime.inbox.push(
                key,
                Pending::Told {
                    topic: name,
                    message,
                },
            );
        }
    }

    fn has_room_for(&mut self, topic: &str) -> bool {
        let room = self.topics.has_room_for(topic);
        if !room {
            let text = format!("{topic} is one topic more than the {TOPICS} there may be");
            self.note("topic_refused", None, text);
        }
        room
    }

    pub(super) fn tell_listeners(&mut self, name: &Arc<str>, message: &Arc<str>) {
        if !self.has_room_for(name) {
            return;
        }
        for &key in self.topics.tell(name, message).unwrap_or_default() {
            let told = Pending::Told {
                topic: name.clone(),
                message: message.clone(),
            };
            self.runtime.inbox.push(key, told);
        }
    }

    /// Takes a session and everything it held away.
    pub(super) fn end_session(&mut self, key: SessionKey, outcome: Outcome) {
        let Some(slot) = self.sessions.remove(key) else {
            return;
        };
        for &(flow, sent_by) in &slot.flows {
            self.release_flow(flow, sent_by);
        }
        for &(_, channel) in &slot.channels {
            self.drop_channel(key, channel);
        }
        self.topics.leave(key, &slot.topics);
        if let Some(client) = slot.client {
            self.client_ended(slot.population, client, outcome);
        }
    }
}
