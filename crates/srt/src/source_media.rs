//! Media that clients publish, and that the reference server plays: a transport stream, or
//! messages.

use std::sync::Arc;
use std::time::Duration;

use kit::mediagen::ts::looped_stream::LoopedStream;

use super::arq::flow::{SourceFlow, SourceSettings};
use super::arq::message_source::MessageSource;
use super::arq::sender::{Bandwidth, Sender, SenderConfig};
use super::handshake::Negotiated;
use super::seq::SocketClock;

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
    pub fn flow(&self, settings: SourceSettings, sender: Sender) -> SourceFlow {
        match self {
            SourceMedia::Stream(looped) => SourceFlow::stream(looped.clone(), settings, sender),
            SourceMedia::Messages(messages) => {
                SourceFlow::messages(*messages, settings.length, sender)
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
