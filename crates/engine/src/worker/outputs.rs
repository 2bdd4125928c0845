//! Carrying out what sessions want done.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use measure::tester;
use protocol::session::{
    ChannelError, ChannelId, Closed, ExchangeEnded, FlowId, Input, MediaEvent, Note, Open, Outcome,
    Output, Port, SinkId,
};

use super::sessions::{Channel, Client, Peer, SessionKey};
use super::sockets::Socket;
use super::timers::Task;
use super::{Topic, Worker};
use crate::messages::Report;

/// How many topics a run may have: a server's answer must not make the tester grow without end.
const TOPICS: usize = 100_000;

/// An input that came up while another was being worked off.
pub(super) enum Pending {
    Opened {
        channel: ChannelId,
        local: SocketAddr,
        remote: Option<SocketAddr>,
    },
    OpenFailed {
        channel: ChannelId,
        error: ChannelError,
    },
    Closed {
        channel: ChannelId,
        how: Closed,
    },
    Media {
        sink: SinkId,
        event: MediaEvent,
    },
    FlowEnded {
        flow: FlowId,
    },
    Exchanged {
        channel: ChannelId,
        how: ExchangeEnded,
    },
    Told {
        topic: Arc<str>,
        message: Arc<str>,
    },
}

impl Pending {
    pub(super) fn deliver(self, worker: &mut Worker, key: SessionKey) {
        let input = match &self {
            Pending::Opened {
                channel,
                local,
                remote,
            } => Input::Opened {
                channel: *channel,
                local: *local,
                remote: *remote,
            },
            Pending::OpenFailed { channel, error } => Input::OpenFailed {
                channel: *channel,
                error: *error,
            },
            Pending::Closed { channel, how } => Input::Closed {
                channel: *channel,
                how: *how,
            },
            Pending::Media { sink, event } => Input::Media {
                sink: *sink,
                event: *event,
            },
            Pending::FlowEnded { flow } => Input::FlowEnded { flow: *flow },
            Pending::Exchanged { channel, how } => Input::Exchanged {
                channel: *channel,
                how: how.clone(),
            },
            Pending::Told { topic, message } => Input::Told { topic, message },
        };
        worker.deliver(key, input);
    }
}

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
                let full = self.others.iter().filter(|o| !o.pass_on(&topic, &message));
                if full.count() > 0 {
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
                    self.populations[index].playing.rise();
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
            Output::Record(record) => self.report(Report::Record(record)),
            Output::Ended(outcome) => self.end_session(key, outcome),
        }
    }

    fn open(&mut self, key: SessionKey, channel: ChannelId, open: Open) {
        let opened = match open {
            Open::Tcp {
                host,
                port,
                timeout,
            } => return self.open_stream(key, channel, host, port, timeout),
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
                return self.open_stream(key, channel, host, port, timeout);
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
        self.pending.push_back(match opened {
            Ok(local) => (
                key,
                Pending::Opened {
                    channel,
                    local,
                    remote: None,
                },
            ),
            Err(error) => (key, Pending::OpenFailed { channel, error }),
        });
    }

    fn open_stream(
        &mut self,
        key: SessionKey,
        channel: ChannelId,
        host: String,
        port: u16,
        timeout: Duration,
    ) {
        let task = Task::Connect {
            session: key,
            channel,
        };
        self.timers.add(self.clock.now() + timeout, task);
        self.connect_by_name(key, channel, host, port);
    }

    fn send(&mut self, key: SessionKey, channel: ChannelId, port: Port, bytes: &[u8]) {
        let Some(state) = self.slot(key).and_then(|slot| slot.channel(channel)) else {
            return;
        };
        match state {
            Channel::Stream(place) => {
                let Some(Socket::Stream(stream)) = self.sockets.get_mut(place) else {
                    return;
                };
                if !stream.queue_control(bytes) {
                    self.tester.add(tester::SENDS_FAILED, 1);
                    self.lose_stream(place, Closed::Stuck);
                } else if stream.is_open() && stream.flush().is_err() {
                    self.lose_stream(place, Closed::Reset);
                }
            }
            Channel::Pair {
                media,
                control,
                peer: Some(peer),
                ..
            } => {
                let (place, to) = match port {
                    Port::Media => (media, peer.media),
                    Port::Control => (control, peer.control),
                };
                let sent = match self.sockets.get(place) {
                    Some(Socket::Udp(end)) => {
                        let at = end.trace.as_ref().map(|_| self.clock.now());
                        let sent = end.socket.send_to(bytes, to);
                        if let (Some(trace), Some(at), Ok(_)) = (&end.trace, at, &sent) {
                            trace.sent(to, bytes, at);
                        }
                        sent
                    }
                    Some(Socket::Shared(end)) => end.socket.send_to(bytes, to),
                    _ => return,
                };
                if sent.is_err() {
                    self.tester.add(tester::SENDS_FAILED, 1);
                }
            }
            Channel::Group(place) => self.send_to_group(place, key, port, bytes),
            // Datagrams of these are sent by `Output::Transmit`.
            Channel::Datagrams { .. } => {}
            Channel::Resolving | Channel::Pair { peer: None, .. } => {
                self.tester.add(tester::SENDS_FAILED, 1);
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
        let topic = self.topics.entry(name.clone()).or_default();
        topic.listeners.push(key);
        if let Some(message) = topic.last.clone() {
            self.pending.push_back((
                key,
                Pending::Told {
                    topic: name,
                    message,
                },
            ));
        }
    }

    fn has_room_for(&mut self, topic: &str) -> bool {
        let room = self.topics.len() < TOPICS || self.topics.contains_key(topic);
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
        let topic: &mut Topic = self.topics.entry(name.clone()).or_default();
        topic.last = Some(message.clone());
        for &key in &topic.listeners {
            let told = Pending::Told {
                topic: name.clone(),
                message: message.clone(),
            };
            self.pending.push_back((key, told));
        }
    }

    /// Takes a session and everything it held away.
    pub(super) fn end_session(&mut self, key: SessionKey, outcome: Outcome) {
        if self.slot(key).is_none() {
            return;
        }
        let slot = self.sessions.remove(key.place);
        for &(flow, sent_by) in &slot.flows {
            self.release_flow(flow, sent_by);
        }
        for &(_, channel) in &slot.channels {
            self.drop_channel(key, channel);
        }
        for name in &slot.topics {
            if let Some(topic) = self.topics.get_mut(name) {
                topic.listeners.retain(|&listener| listener != key);
                // What was said on it is kept for those who are yet to come.
                if topic.listeners.is_empty() && topic.last.is_none() {
                    self.topics.remove(name);
                }
            }
        }
        if let Some(client) = slot.client {
            self.client_ended(slot.population, client, outcome);
        }
    }
}
