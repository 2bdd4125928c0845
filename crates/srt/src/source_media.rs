//! Media that clients publish, and that the reference server plays: a transport stream, or
//! messages.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use measure::Time;
use mediagen::ts::looped_stream::LoopedStream;

use super::arq::flow::{DepartureCounts, SrtTsFlow, TsFlowSettings};
use super::arq::message_flow::{MessageFlow, MessageSource};
use super::arq::sender::{Bandwidth, Sender, SenderConfig};
use super::handshake::Negotiated;
use super::seq::SocketClock;
use session::{Flow, FlowPacket, Handover, Tag};

/// Media to be sent.
#[derive(Clone, Debug)]
pub enum SourceMedia {
    /// Transport stream, 1316 bytes in a packet.
    Stream(Arc<LoopedStream>),
    Messages(MessageSource),
}

impl From<Arc<LoopedStream>> for SourceMedia {
    fn from(looped: Arc<LoopedStream>) -> SourceMedia {
        SourceMedia::Stream(looped)
    }
}

/// Identity of a stream in its stamps, and its length.
#[derive(Clone, Copy, Debug)]
pub struct SourceSettings {
    /// Address in the stamps: that of the stream's consumer, or where the stream is published.
    pub address: SocketAddr,
    /// Number in the stamps that distinguishes the runs of a source.
    pub source: u64,
    /// Wall clock time since 1970 at [`Time::ZERO`].
    pub wall_clock: Duration,
    /// Length of the media. Default: endless.
    pub length: Option<Duration>,
}

impl SourceMedia {
    /// Default bandwidth. Live media is limited to its rate plus `overhead_percent` for
    /// retransmissions; messages leave as soon as the peer has space.
    pub fn bandwidth(&self, overhead_percent: u32) -> Bandwidth {
        match self {
            SourceMedia::Stream(looped) => Bandwidth::Input {
                rate_min: looped.bits_per_second(),
                overhead_percent,
            },
            SourceMedia::Messages(_) => Bandwidth::Unlimited,
        }
    }

    /// Creates a sender for it over an established connection.
    pub fn sender(
        &self,
        negotiated: &mut Negotiated,
        clock: SocketClock,
        bandwidth: Bandwidth,
    ) -> Sender {
        let ttl = match self {
            SourceMedia::Stream(_) => None,
            SourceMedia::Messages(messages) => Some(messages.ttl),
        };
        new_sender(negotiated, clock, bandwidth, ttl)
    }

    /// Creates a flow that has not started.
    pub fn flow(&self, place: SourceSettings, sender: Sender) -> SourceFlow {
        match self {
            SourceMedia::Stream(looped) => {
                let settings = TsFlowSettings {
                    looped: looped.clone(),
                    stamp_address: place.address,
                    source: place.source,
                    wall_clock: place.wall_clock,
                    length: place.length,
                };
                SourceFlow::Stream(SrtTsFlow::new(settings, sender))
            }
            SourceMedia::Messages(messages) => {
                SourceFlow::Messages(MessageFlow::new(*messages, place.length, sender))
            }
        }
    }
}

/// Creates a sender over an established connection: for messages with the given TTL, or for live
/// media if `messages` is `None`.
pub fn new_sender(
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

/// Flow of generated media.
#[derive(Debug)]
pub enum SourceFlow {
    Stream(SrtTsFlow),
    Messages(MessageFlow),
}

impl SourceFlow {
    /// Starts sending at `at`.
    pub fn start(&mut self, at: Time) {
        match self {
            SourceFlow::Stream(flow) => flow.start(at),
            SourceFlow::Messages(flow) => flow.start(at),
        }
    }

    /// Stops making media. The flow ends when everything is acknowledged, dropped or too late.
    pub fn finish(&mut self) {
        match self {
            SourceFlow::Stream(flow) => flow.finish(),
            SourceFlow::Messages(flow) => flow.finish(),
        }
    }

    /// Sender of the flow, which accepts control packets.
    pub fn sender(&mut self) -> &mut Sender {
        match self {
            SourceFlow::Stream(flow) => flow.sender(),
            SourceFlow::Messages(flow) => flow.sender(),
        }
    }

    /// Number of payloads or messages made so far.
    pub fn made(&self) -> u64 {
        match self {
            SourceFlow::Stream(flow) => flow.made(),
            SourceFlow::Messages(flow) => flow.made(),
        }
    }

    /// Datagram counts so far.
    pub fn departure_counts(&self) -> DepartureCounts {
        match self {
            SourceFlow::Stream(flow) => flow.departure_counts(),
            SourceFlow::Messages(flow) => flow.departure_counts(),
        }
    }

    /// Starts to collect the time that packets wait in the send buffer.
    pub fn collect_delays(&mut self) {
        self.departures().collect_delays();
    }

    /// Appends the delays collected since the last call to `into`, in nanoseconds.
    pub fn take_delays(&mut self, into: &mut Vec<u64>) {
        self.departures().take_delays(into);
    }

    fn departures(&mut self) -> &mut super::arq::flow::Departures {
        match self {
            SourceFlow::Stream(flow) => flow.departures(),
            SourceFlow::Messages(flow) => flow.departures(),
        }
    }
}

impl Flow for SourceFlow {
    #[inline]
    fn next_due(&self) -> Option<Time> {
        match self {
            SourceFlow::Stream(flow) => flow.next_due(),
            SourceFlow::Messages(flow) => flow.next_due(),
        }
    }

    #[inline]
    fn next_packet(&mut self, now: Time) -> Option<FlowPacket> {
        match self {
            SourceFlow::Stream(flow) => flow.next_packet(now),
            SourceFlow::Messages(flow) => flow.next_packet(now),
        }
    }

    #[inline]
    fn packet_sent(&mut self, tag: Tag, left: Option<Handover>) {
        match self {
            SourceFlow::Stream(flow) => flow.packet_sent(tag, left),
            SourceFlow::Messages(flow) => flow.packet_sent(tag, left),
        }
    }
}
