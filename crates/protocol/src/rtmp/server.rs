//! The reference server: plays made media under any name, takes in what clients publish and passes
//! it on, does wrong what it is told to, and says exactly what it did.

pub mod faults;
mod published;
pub(super) mod reference;
mod relay;
mod session;

use std::sync::Arc;
use std::time::Duration;

use measure::Catalogue;
use serde::Serialize;

use super::flow::Sent;
use super::source::Tracks;
use crate::media::source::SourceConfig;
use crate::metrics::CLIENTS;
use crate::session::Session;

pub use faults::ServerFaults;
use published::PublishedStreams;

/// Metrics of the server's sessions.
const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS]);

/// The settings of the reference server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// The media that it plays under every name that no client publishes.
    pub source: SourceConfig,
    /// How many streams there are: `stream1`, `stream2` and so on. Default: any name is one.
    pub streams: Option<u32>,
    /// How long its media is. Default: it has no end.
    pub length: Option<Duration>,
    /// The size of the chunks that it sends. Default: 4096.
    pub chunk_size: u32,
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
            streams: None,
            length: None,
            chunk_size: 4096,
            faults: ServerFaults::default(),
            wall_clock: Duration::ZERO,
            seed: 1,
        }
    }
}

/// What the server did for one connection: a line of its report.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ServedClient {
    /// Which connection, from 1.
    pub connection: u64,
    /// What CLOCK_MONOTONIC showed when the server's time began, which times below count from, in
    /// nanoseconds.
    pub clock_monotonic_nanos: i64,
    /// Where it came from.
    pub remote: Option<String>,
    /// The application that was asked for.
    pub app: Option<String>,
    /// The stream that was asked for.
    pub stream: Option<String>,
    /// Whether the client published it. Else it played it, where it has a stream.
    pub published: bool,
    /// What was sent to a client that plays.
    pub sent: Sent,
    /// Frames that a publisher sent.
    pub received_frames: u64,
    /// Bytes of payload in them.
    pub received_bytes: u64,
    /// What the client sent that is no RTMP, in words.
    pub malformed: Option<String>,
}

/// A reference server.
#[derive(Clone, Debug)]
pub struct Server(Arc<Shared>);

/// What all sessions share.
#[derive(Debug)]
struct Shared {
    config: ServerConfig,
    tracks: Arc<Tracks>,
    published: Arc<PublishedStreams>,
}

impl Server {
    /// A server that serves nobody yet.
    ///
    /// # Errors
    /// Its media cannot be made; the text says why.
    pub fn new(config: ServerConfig) -> Result<Server, String> {
        let tracks = Tracks::new(&config.source, None)?;
        Ok(Server(Arc::new(Shared {
            tracks: Arc::new(tracks),
            published: Arc::default(),
            config,
        })))
    }

    /// A session for the connection that was accepted as number `number`: the number decides, with
    /// the seed, what it draws.
    pub fn session(&self, number: u64) -> Box<dyn Session> {
        Box::new(session::ServerSession::new(self.0.clone(), number))
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
