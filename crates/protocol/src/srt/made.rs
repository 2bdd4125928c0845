//! What clients publish, and the reference server plays: a transport stream, or messages.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use measure::Time;
use mediagen::ts::looped_stream::LoopedStream;

use super::arq::flow::{Left, SrtTsFlow, TsFlowSettings};
use super::arq::message_flow::{MadeMessages, MessageFlow};
use super::arq::sender::{Bandwidth, Sender, SenderConfig};
use super::handshake::Negotiated;
use super::seq::SocketClock;
use crate::session::{Flow, FlowPacket, Handover, Tag};

/// What is made.
#[derive(Clone, Debug)]
pub enum Made {
    /// A transport stream, 1316 bytes in a packet.
    Stream(Arc<LoopedStream>),
    /// Messages.
    Messages(MadeMessages),
}

impl From<Arc<LoopedStream>> for Made {
    fn from(looped: Arc<LoopedStream>) -> Made {
        Made::Stream(looped)
    }
}

/// Of which stream it is, and for how long it is made.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Which address stamps name: that of the stream's consumer, or where it is published.
    pub address: SocketAddr,
    /// By which number stamps tell runs of a source apart.
    pub source: u64,
    /// What the wall clock showed, since 1970, when time began.
    pub wall_clock: Duration,
    /// How long media is made. Endless without.
    pub length: Option<Duration>,
}

impl Made {
    /// The bandwidth that it takes where nothing else is said. Live media is spaced by its rate and
    /// so many percent more for retransmissions; messages leave as soon as the peer has room.
    pub fn bandwidth(&self, overhead_percent: u32) -> Bandwidth {
        match self {
            Made::Stream(looped) => Bandwidth::Input {
                least: looped.bits_per_second(),
                overhead_percent,
            },
            Made::Messages(_) => Bandwidth::Unlimited,
        }
    }

    /// A sender of it over a connection that stands.
    pub fn sender(
        &self,
        negotiated: &mut Negotiated,
        clock: SocketClock,
        bandwidth: Bandwidth,
    ) -> Sender {
        let ttl = match self {
            Made::Stream(_) => None,
            Made::Messages(messages) => Some(messages.ttl),
        };
        sender(negotiated, clock, bandwidth, ttl)
    }

    /// A flow of it that has not begun.
    pub fn flow(&self, place: Place, sender: Sender) -> MadeFlow {
        match self {
            Made::Stream(looped) => {
                let settings = TsFlowSettings {
                    looped: looped.clone(),
                    place: place.address,
                    source: place.source,
                    wall_clock: place.wall_clock,
                    length: place.length,
                };
                MadeFlow::Stream(SrtTsFlow::new(settings, sender))
            }
            Made::Messages(messages) => {
                MadeFlow::Messages(MessageFlow::new(*messages, place.length, sender))
            }
        }
    }
}

/// A sender over a connection that stands: of live media, or of messages with their `ttl`.
pub fn sender(
    negotiated: &mut Negotiated,
    clock: SocketClock,
    bandwidth: Bandwidth,
    messages: Option<Option<Duration>>,
) -> Sender {
    let (first, peer) = (negotiated.initial_sequence, negotiated.peer_socket_id);
    let config = match messages {
        None => SenderConfig::live(first, peer, clock, negotiated.send_latency),
        Some(ttl) => SenderConfig::messages(first, peer, clock, ttl),
    };
    let mut sender = Sender::new(SenderConfig {
        bandwidth,
        flow_window: negotiated.flow_window,
        ..config
    });
    if let Some(encryptor) = negotiated.encryptor.take() {
        sender.set_cipher(Box::new(encryptor));
    }
    sender
}

/// A flow of what is made.
#[derive(Debug)]
pub enum MadeFlow {
    /// Of a transport stream.
    Stream(SrtTsFlow),
    /// Of messages.
    Messages(MessageFlow),
}

impl MadeFlow {
    /// Begins to send at `at`.
    pub fn start(&mut self, at: Time) {
        match self {
            MadeFlow::Stream(flow) => flow.start(at),
            MadeFlow::Messages(flow) => flow.start(at),
        }
    }

    /// Makes no more: the flow ends when everything is acknowledged, dropped or too late.
    pub fn finish(&mut self) {
        match self {
            MadeFlow::Stream(flow) => flow.finish(),
            MadeFlow::Messages(flow) => flow.finish(),
        }
    }

    /// The sender, which takes control packets.
    pub fn sender(&mut self) -> &mut Sender {
        match self {
            MadeFlow::Stream(flow) => flow.sender(),
            MadeFlow::Messages(flow) => flow.sender(),
        }
    }

    /// How many payloads or messages were made so far.
    pub fn made(&self) -> u64 {
        match self {
            MadeFlow::Stream(flow) => flow.made(),
            MadeFlow::Messages(flow) => flow.made(),
        }
    }

    /// What became of its datagrams.
    pub fn left_so_far(&self) -> Left {
        match self {
            MadeFlow::Stream(flow) => flow.left_so_far(),
            MadeFlow::Messages(flow) => flow.left_so_far(),
        }
    }

    /// Keeps from now on how long packets wait in the send buffer.
    pub fn keep_delays(&mut self) {
        self.departures().keep_delays();
    }

    /// Moves these delays since the last time behind those there, in nanoseconds.
    pub fn take_delays(&mut self, into: &mut Vec<u64>) {
        self.departures().take_delays(into);
    }

    fn departures(&mut self) -> &mut super::arq::flow::Departures {
        match self {
            MadeFlow::Stream(flow) => flow.departures(),
            MadeFlow::Messages(flow) => flow.departures(),
        }
    }
}

impl Flow for MadeFlow {
    #[inline]
    fn next_due(&self) -> Option<Time> {
        match self {
            MadeFlow::Stream(flow) => flow.next_due(),
            MadeFlow::Messages(flow) => flow.next_due(),
        }
    }

    #[inline]
    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        match self {
            MadeFlow::Stream(flow) => flow.next_packet(now),
            MadeFlow::Messages(flow) => flow.next_packet(now),
        }
    }

    #[inline]
    fn left(&mut self, tag: Tag, left: Option<Handover>) {
        match self {
            MadeFlow::Stream(flow) => flow.left(tag, left),
            MadeFlow::Messages(flow) => flow.left(tag, left),
        }
    }
}
