//! Reference server: WHIP (RFC 9725) and WHEP (draft-ietf-wish-whep) over HTTP, rooms over a
//! WebSocket, and media over UDP on the port of the same number.
//!
//! The server plays generated media, forwards media that clients publish, injects the configured
//! faults, and reports exact counts.

mod answers;
mod endpoint;
pub mod faults;
mod flow;
mod http;
mod janus;
mod negotiation;
mod player;
mod publication;
mod records;
pub(super) mod reference;
mod registry;
mod request;
mod rooms;
mod session;
mod stream_receiver;
mod stream_sender;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use measure::{Catalogue, Time};
use serde::Serialize;

use super::certificate::Certificate;
use ::session::seeds::derive_seed;
use ::session::{ChannelId, Context, Endpoint, Output, Port, Session};
use kit::media::source::{MediaSource, SourceConfig};
use kit::published_streams::PublishedStreams;
use publication::{Publication, StreamItem, Track};
use registry::Registry;
use rooms::Rooms;
use session::PendingPeer;

pub use faults::{ServerFaults, Silence};
pub use records::{DroppedCounts, ReceivedCounts, SentCounts, SentTrackCounts, ServedPeer};

/// Channel that every session has from its start: the accepted connection, or the session's share
/// of the endpoint's socket.
const CHANNEL: ChannelId = ChannelId(0);

/// Metrics of the server's sessions: those of clients.
const CATALOGUE: Catalogue = super::PROTOCOL.catalogue;

/// Settings of the reference server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// Media that the server plays under every name that no client publishes.
    pub source: SourceConfig,
    /// Number of generated streams: `stream1`, `stream2` and so on. Default: every name is a
    /// stream.
    pub streams: Option<u32>,
    /// Duration of the generated media. Default: endless.
    pub length: Option<Duration>,
    /// Token that clients must present (`Authorization: Bearer`). Default: none.
    pub token: Option<String>,
    /// Maximum number of concurrent PeerConnections; further ones are refused with 503. Default:
    /// 10,000.
    pub sessions_max: usize,
    /// Transport-wide congestion control: the server numbers the packets of each transport, counts
    /// the arrivals that players report, and reports arrivals to publishers. Default: off.
    pub transport_cc: bool,
    /// Faults that the server injects. Default: none.
    pub faults: ServerFaults,
    /// Wall-clock time at `Time::ZERO`, as the duration since 1970.
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
            token: None,
            sessions_max: 10_000,
            transport_cc: false,
            faults: ServerFaults::default(),
            wall_clock: Duration::ZERO,
            seed: 1,
        }
    }
}

/// Counts of requests, and of datagrams that belong to no PeerConnection: part of the report's last
/// line. All sessions update the same atomic counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ListenerCounts<C = u64> {
    /// HTTP requests and messages to rooms.
    pub requests: C,
    /// Refused requests and messages, including malformed ones.
    pub refused: C,
    /// Refused requests and messages without the right token.
    pub unauthorized: C,
    /// PeerConnections that were negotiated but never started.
    pub never_came: C,
    /// ICE checks with an unknown user fragment.
    pub checks_of_nobody: C,
    /// ICE checks whose sender did not know the password.
    pub checks_unauthentic: C,
    /// STUN datagrams that are not ICE checks.
    pub checks_malformed: C,
    /// Other datagrams from unknown addresses.
    pub strangers: C,
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// Sends bytes on the connection of an HTTP session.
fn send(cx: &mut Context<'_>, bytes: Vec<u8>) {
    cx.out.push_back(Output::Send {
        channel: CHANNEL,
        port: Port::Media,
        bytes,
    });
}

/// Reference server. Clones share its state.
#[derive(Clone, Debug)]
pub struct Server(Arc<Shared>);

/// State that all sessions share.
#[derive(Debug)]
struct Shared {
    config: ServerConfig,
    source: MediaSource,
    /// Tracks of `source` that players can receive.
    generated_tracks: Vec<Track>,
    certificate: Arc<Certificate>,
    published: PublishedStreams<StreamItem>,
    publications: Mutex<BTreeMap<String, Arc<Publication>>>,
    registry: Mutex<Registry<PendingPeer>>,
    rooms: Mutex<Rooms>,
    counters: ListenerCounts<AtomicU64>,
    /// Number of PeerConnections so far, and number of Janus sessions and handles so far.
    peer_count: AtomicU64,
    janus_id_count: AtomicU64,
}

impl Shared {
    fn registry(&self) -> MutexGuard<'_, Registry<PendingPeer>> {
        // Each change is complete in itself, so the registry is valid even after a panic.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rooms(&self) -> MutexGuard<'_, Rooms> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publications(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Publication>>> {
        let publications = self.publications.lock();
        publications.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the stream that a client publishes under `name`.
    fn publication(&self, name: &str) -> Option<Arc<Publication>> {
        self.publications().get(name).cloned()
    }

    /// Ends publication `number` of a stream, unless a newer one replaced it.
    fn unpublish(&self, name: &str, number: u64) {
        let mut publications = self.publications();
        if publications
            .get(name)
            .is_some_and(|own| own.number == number)
        {
            publications.remove(name);
            self.published.end(name);
        }
    }

    /// Returns true if generated media is available under `name`.
    fn has_generated(&self, name: &str) -> bool {
        let Some(streams) = self.config.streams else {
            return true;
        };
        let number = name.strip_prefix("stream").and_then(|n| n.parse().ok());
        number.is_some_and(|number: u32| (1..=streams).contains(&number))
    }

    /// Releases what PeerConnections that never started had reserved.
    fn release(&self, expired: impl IntoIterator<Item = PendingPeer>) {
        for pending in expired {
            add(&self.counters.never_came, 1);
            self.rooms().discard_pending(pending.number);
            if let Some(name) = pending.published_stream() {
                self.unpublish(name, pending.number);
            }
        }
    }

    /// Releases PeerConnections that did not start in time.
    fn purge_expired(&self, now: Time) {
        let expired = self.registry().purge(now);
        self.release(expired);
    }

    /// Returns a seeded random number for a PeerConnection; `of` names its purpose.
    fn seeded_random(&self, number: u64, of: &[u64]) -> u64 {
        let mut parts = vec![self.config.seed, 9, number];
        parts.extend_from_slice(of);
        derive_seed(&parts)
    }

    /// Returns the SSRCs of a track and of its retransmissions.
    fn ssrcs(&self, number: u64, track: usize) -> (u32, u32) {
        let drawn = |of| self.seeded_random(number, &[of, track as u64]) as u32;
        (drawn(1), drawn(2))
    }

    /// Returns the server's CNAME, used in descriptions and in RTCP.
    fn cname(&self) -> String {
        format!("{:016x}", derive_seed(&[self.config.seed, 8]))
    }
}

impl Server {
    /// Creates a server without clients.
    ///
    /// # Errors
    /// The media cannot be generated; the text says why.
    pub fn new(config: ServerConfig) -> Result<Server, String> {
        let source = MediaSource::new(&super::config::with_limited_mtu(&config.source), None)?;
        Ok(Server(Arc::new(Shared {
            generated_tracks: stream_sender::generated_tracks(&source),
            source,
            certificate: Arc::new(Certificate::generate(config.seed)),
            published: PublishedStreams::default(),
            publications: Mutex::default(),
            registry: Mutex::new(Registry::new(config.sessions_max)),
            rooms: Mutex::default(),
            counters: ListenerCounts::default(),
            peer_count: AtomicU64::new(0),
            janus_id_count: AtomicU64::new(0),
            config,
        })))
    }

    /// Creates the endpoint of a worker's UDP port.
    pub fn endpoint(&self, worker: u32) -> Box<dyn Endpoint> {
        Box::new(endpoint::Endpoint::new(self.0.clone(), worker))
    }

    /// Creates the session of an HTTP connection.
    pub fn session(&self) -> Box<dyn Session> {
        Box::new(http::HttpSession::new(self.0.clone()))
    }

    /// Returns the counts so far of requests and of datagrams without a PeerConnection.
    pub fn listener_counts(&self) -> ListenerCounts {
        let counters = &self.0.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ListenerCounts {
            requests: get(&counters.requests),
            refused: get(&counters.refused),
            unauthorized: get(&counters.unauthorized),
            never_came: get(&counters.never_came),
            checks_of_nobody: get(&counters.checks_of_nobody),
            checks_unauthentic: get(&counters.checks_unauthentic),
            checks_malformed: get(&counters.checks_malformed),
            strangers: get(&counters.strangers),
        }
    }

    pub fn config(&self) -> &ServerConfig {
        &self.0.config
    }
}
