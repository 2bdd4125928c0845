//! Reference server: plays generated media under any name, relays what clients publish, injects
//! faults on request, and reports exactly what it did.

pub mod faults;
pub(super) mod reference;
mod relay;
mod relayed;
mod session;

use std::sync::Arc;
use std::time::Duration;

use measure::Catalogue;
use serde::Serialize;

use super::flow::Sent;
use super::source::Tracks;
use ::session::Session;
use kit::media::source::SourceConfig;
use kit::metrics::CLIENTS;

pub use faults::ServerFaults;
use relayed::PublishedStreams;

/// Metrics of the server's sessions.
const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS]);

/// Settings of the reference server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Media that is played under every name that no client publishes.
    pub source: SourceConfig,
    /// Number of streams: `stream1`, `stream2` and so on. Default: any name is a stream.
    pub streams: Option<u32>,
    /// Length of the generated media. Default: endless.
    pub length: Option<Duration>,
    /// Chunk size of the server. Default: 4096.
    pub chunk_size: u32,
    /// Faults to inject. Default: none.
    pub faults: ServerFaults,
    /// Wall-clock time since 1970 when the server's time began.
    pub wall_clock: Duration,
    /// Seed of all random choices. Default: 1.
    pub seed: u64,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        ServerConfig {
            source: SourceConfig::default(),
            streams: None,
            length: None,
            chunk_size: 4096,
            faults: ServerFaults::default(),
            wall_clock: Duration::ZERO,
            seed: 1,
        }
    }
}

/// Report on one connection: a line of the server's report.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ServedClient {
    /// Number of the connection, from 1.
    pub connection: u64,
    /// CLOCK_MONOTONIC in nanoseconds when the server's time began, to which the times below refer.
    pub clock_monotonic_nanos: i64,
    /// Address of the client.
    pub remote: Option<String>,
    /// Requested application.
    pub app: Option<String>,
    /// Requested stream.
    pub stream: Option<String>,
    /// True if the client published the stream. Otherwise it played `stream`, if that is set.
    pub published: bool,
    /// Media sent to a playing client.
    pub sent: Sent,
    /// Frames received from a publishing client.
    pub received_frames: u64,
    /// Payload bytes of these frames.
    pub received_bytes: u64,
    /// Description of the client's violation of RTMP.
    pub malformed: Option<String>,
}

/// The RTMP reference server.
#[derive(Clone, Debug)]
pub struct Server(Arc<Shared>);

/// State that all sessions share.
#[derive(Debug)]
struct Shared {
    config: ServerConfig,
    tracks: Arc<Tracks>,
    published: Arc<PublishedStreams>,
}

impl Server {
    /// Creates a server.
    ///
    /// # Errors
    /// The media cannot be generated. The text gives the reason.
    pub fn new(config: ServerConfig) -> Result<Server, String> {
        let tracks = Tracks::new(&config.source, None)?;
        Ok(Server(Arc::new(Shared {
            tracks: Arc::new(tracks),
            published: Arc::default(),
            config,
        })))
    }

    /// Creates the session of the accepted connection `number`. Its random choices depend on the
    /// number and the seed.
    pub fn session(&self, number: u64) -> Box<dyn Session> {
        Box::new(session::ServerSession::new(self.0.clone(), number))
    }
}
