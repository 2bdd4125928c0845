//! The reference server: plays made media under any stream id, takes in what clients publish and
//! passes it on, does wrong what it is told to, and says exactly what it did.

mod endpoint;
pub mod faults;
mod flow;
pub(super) mod reference;
mod session;
mod taking;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use measure::Catalogue;
use serde::Serialize;

use super::arq::flow::Left;
use super::arq::message_flow::MadeMessages;
use super::arq::sender::SentMessages;
use super::arq::statistics::{ReceiverStatistics, SenderStatistics};
use super::config;
use super::crypto::{self, Passphrase};
use super::made::Made;
use crate::media::source::SourceConfig;
use crate::metrics::CLIENTS;
use crate::published_streams::PublishedStreams;
use crate::session::Endpoint;

pub use faults::ServerFaults;
pub use flow::Wrongs;
pub use taking::ReceivedMessages;

/// Metrics of the server's sessions.
const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS]);

/// The settings of the reference server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// The media that it plays under every name that no client publishes.
    pub source: SourceConfig,
    /// The messages that it sends in place of that, and so takes of clients. Default: it serves
    /// live media.
    pub messages: Option<MadeMessages>,
    /// How many streams there are: `stream1`, `stream2` and so on. Default: any name is one, and
    /// none.
    pub streams: Option<u32>,
    /// How long its media is. Default: it has no end.
    pub length: Option<Duration>,
    /// The latency that it wants at least. Default: 120 ms.
    pub latency: Duration,
    /// The passphrase that callers need. Default: none.
    pub passphrase: Option<Passphrase>,
    /// What it does wrong on purpose. Default: nothing.
    pub faults: ServerFaults,
    /// What the wall clock showed, since 1970, when time began.
    pub wall_clock: Duration,
    /// Seed of all that is drawn. Default: 1.
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

/// What the server did for one connection: a line of its report.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ServedClient {
    /// Which connection.
    pub connection: u64,
    /// Where it came from.
    pub remote: Option<String>,
    /// The stream id that the caller said.
    pub stream_id: Option<String>,
    /// Why it was rejected, where it was: code and name.
    pub rejected: Option<String>,
    /// Whether the client published. Else it played.
    pub published: bool,
    /// Payloads or messages that were made for it, or passed on to it, or came from it and were
    /// passed on.
    pub media: u64,
    /// What became of messages, where it carries messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<ServedMessages>,
    /// What left to a client that plays; what was left out on purpose among it.
    pub sent: Left,
    /// What was done wrong on purpose.
    pub wrongs: Wrongs,
    /// What the sending side counted, where it plays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<Box<SenderStatistics>>,
    /// What the receiving side counted, where it publishes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver: Option<Box<ReceiverStatistics>>,
    /// Packets that could not be decrypted.
    pub undecryptable: u64,
    /// Datagrams that are no packets of SRT.
    pub malformed: u64,
}

/// What became of the messages of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServedMessages {
    /// Of those sent to a client that plays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<SentMessages>,
    /// Of those that came from a client that publishes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received: Option<ReceivedMessages>,
}

/// A reference server.
#[derive(Clone, Debug)]
pub struct Server(Arc<Shared>);

/// What all sessions share.
#[derive(Debug)]
struct Shared {
    config: ServerConfig,
    made: Made,
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
    /// A server that serves nobody yet.
    ///
    /// # Errors
    /// Its media cannot be made; the text says why.
    pub fn new(config: ServerConfig) -> Result<Server, String> {
        let made = match config.messages {
            Some(messages) => Made::Messages(messages),
            None => Made::Stream(Arc::new(config::stream(&config.source, None)?)),
        };
        Ok(Server(Arc::new(Shared {
            made,
            published: PublishedStreams::default(),
            config,
        })))
    }

    /// What answers on the port of that worker.
    pub fn endpoint(&self, worker: u32) -> Box<dyn Endpoint> {
        Box::new(endpoint::Endpoint::new(self.0.clone(), worker))
    }

    /// The metrics of its sessions.
    pub fn catalogue(&self) -> Catalogue {
        CATALOGUE
    }

    /// Its settings.
    pub fn config(&self) -> &ServerConfig {
        &self.0.config
    }
}
