//! Reference server: plays generated media under any stream id, relays what clients publish,
//! injects faults on request, and reports exactly what it did.

mod endpoint;
pub mod faults;
mod flow;
mod ingest;
pub(super) mod reference;
mod session;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use measure::Catalogue;
use serde::Serialize;

use super::arq::flow::DepartureCounts;
use super::arq::message_source::MessageSource;
use super::arq::sender::SentMessageCounts;
use super::arq::statistics::{ReceiverStatistics, SenderStatistics};
use super::config;
use super::crypto::{self, Passphrase};
use super::source_media::SourceMedia;
use ::session::Endpoint;
use kit::media::source::SourceConfig;
use kit::metrics::CLIENTS;
use kit::published_streams::PublishedStreams;

pub use faults::ServerFaults;
pub use flow::{FaultCounts, SendDelays};
pub use ingest::ReceivedMessageCounts;

/// Metrics of the server's sessions.
const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS]);

/// Configuration of the reference server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Media that it plays under every name that no client publishes.
    pub source: SourceConfig,
    /// Messages that it sends instead of live media; clients then publish messages as well.
    /// Default: live media.
    pub messages: Option<MessageSource>,
    /// Number of streams: `stream1`, `stream2` and so on. Default: any name is valid, and so is
    /// none.
    pub streams: Option<u32>,
    /// Length of its media. Default: endless.
    pub length: Option<Duration>,
    /// Minimum latency. Default: 120 ms.
    pub latency: Duration,
    /// Passphrase that callers need. Default: none.
    pub passphrase: Option<Passphrase>,
    /// Injected faults. Default: none.
    pub faults: ServerFaults,
    /// Wall clock time since 1970 at the server's time 0.
    pub wall_clock: Duration,
    /// Seed of all random choices. Default: 1.
    pub seed: u64,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            source: SourceConfig::default(),
            messages: None,
            streams: None,
            length: None,
            latency: Duration::from_millis(120),
            passphrase: None,
            faults: ServerFaults::default(),
            wall_clock: Duration::ZERO,
            seed: 1,
        }
    }
}

/// Result of one connection: a line of the server's report.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ServedClient {
    pub connection: u64,
    /// Address of the caller.
    pub remote: Option<String>,
    /// Stream id that the caller sent.
    pub stream_id: Option<String>,
    /// Code and name of the rejection, if the caller was rejected.
    pub rejected: Option<String>,
    /// True if the client published, false if it played.
    pub published: bool,
    /// Payloads or messages that were made for the client, relayed to it, or published by it and
    /// relayed.
    pub media: u64,
    /// Message counts in message mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<ServedMessages>,
    /// Packets sent to a client that plays, including those left out on purpose.
    pub sent: DepartureCounts,
    /// Delays of the packets to a client that plays.
    pub delays: SendDelays,
    /// Counts of injected faults.
    pub wrongs: FaultCounts,
    /// Counters of the sender, if the client plays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<Box<SenderStatistics>>,
    /// Counters of the receiver, if the client publishes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver: Option<Box<ReceiverStatistics>>,
    /// Packets that could not be decrypted.
    pub undecryptable: u64,
    /// Datagrams that are not SRT packets.
    pub malformed: u64,
}

/// Message counts of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServedMessages {
    /// Messages sent to a client that plays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<SentMessageCounts>,
    /// Messages received from a client that publishes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received: Option<ReceivedMessageCounts>,
}

#[derive(Clone, Debug)]
pub struct Server(Arc<Shared>);

/// State that all sessions share.
#[derive(Debug)]
struct Shared {
    config: ServerConfig,
    media: SourceMedia,
    published: PublishedStreams<Bytes>,
}

impl Shared {
    fn secret(&self) -> Option<crypto::Secret> {
        let passphrase = self.config.passphrase.clone()?;
        Some(crypto::Secret {
            passphrase,
            key_length: crypto::KeyLength::default(),
            cipher: crypto::CipherMode::Auto,
        })
    }
}

impl Server {
    /// Creates a server.
    ///
    /// # Errors
    /// Reason why its media cannot be made.
    pub fn new(config: ServerConfig) -> Result<Server, String> {
        let made = match config.messages {
            Some(messages) => SourceMedia::Messages(messages),
            None => SourceMedia::Stream(Arc::new(config::stream(&config.source, None)?)),
        };
        Ok(Server(Arc::new(Shared {
            media: made,
            published: PublishedStreams::default(),
            config,
        })))
    }

    /// Endpoint on the port of a worker.
    pub fn endpoint(&self, worker: u32) -> Box<dyn Endpoint> {
        Box::new(endpoint::Endpoint::new(self.0.clone(), worker))
    }
}
