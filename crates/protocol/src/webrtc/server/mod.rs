//! The reference server: WHIP (RFC 9725) and WHEP (draft-ietf-wish-whep) over HTTP, rooms over a
//! WebSocket, and media over UDP on the port of the same number. It plays made media, passes on
//! what clients publish, does wrong what it is told to, and says exactly what it did.

mod agree;
mod endpoint;
pub mod faults;
mod feeds;
mod flow;
mod http;
mod janus;
mod negotiate;
mod playing;
pub(super) mod reference;
mod registry;
mod relay;
mod request;
mod rooms;
mod served;
mod session;
mod taking;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use measure::{Catalogue, Time};
use serde::Serialize;

use super::certificate::Certificate;
use super::metrics::WEBRTC;
use crate::media::rtp::metrics::RTP;
use crate::media::source::{MediaSource, SourceConfig};
use crate::metrics::CLIENTS;
use crate::mix::mix;
use crate::published_streams::PublishedStreams;
use crate::session::{ChannelId, Endpoint, Session};
use registry::Registry;
use relay::{Publication, Relay, Track};
use rooms::Rooms;
use session::Waiting;

pub use faults::{ServerFaults, Silence};
pub use served::{DroppedCounts, ReceivedCounts, SentCounts, SentMedia, ServedPeer};

/// The channel that every session has from its beginning: the accepted connection, or its part in
/// the endpoint's socket.
const CHANNEL: ChannelId = ChannelId(0);

/// Metrics of the server's sessions.
const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS, &RTP, &WEBRTC]);

/// The settings of the reference server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// The media that it plays under every name that no client publishes.
    pub source: SourceConfig,
    /// How many streams there are: `stream1`, `stream2` and so on. Default: any name is one.
    pub streams: Option<u32>,
    /// How long its media is. Default: it has no end.
    pub length: Option<Duration>,
    /// The token that clients have to show (`Authorization: Bearer`). Default: none.
    pub token: Option<String>,
    /// How many PeerConnections there may be at a time; more are refused with 503. Default: 10,000.
    pub sessions: usize,
    /// Whether it numbers the packets of a transport, counts what players say of their arrival, and
    /// tells publishers of it. Default: no.
    pub transport_cc: bool,
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
            token: None,
            sessions: 10_000,
            transport_cc: false,
            faults: ServerFaults::default(),
            wall_clock: Duration::ZERO,
            seed: 1,
        }
    }
}

/// What came of requests, and of datagrams of nobody: a part of the last line of the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DoorCounts {
    /// Requests of HTTP.
    pub requests: u64,
    /// Requests of HTTP and messages to rooms that were refused, malformed ones among them.
    pub refused: u64,
    /// Of these, the ones without the right token.
    pub unauthorized: u64,
    /// PeerConnections that were agreed upon and never began.
    pub never_came: u64,
    /// Checks of ICE for nobody who is known.
    pub checks_of_nobody: u64,
    /// Checks of ICE whose sender did not know the password.
    pub checks_unauthentic: u64,
    /// Datagrams that look like STUN and are no checks.
    pub checks_malformed: u64,
    /// Other datagrams from addresses at which nobody is.
    pub strangers: u64,
}

/// The same, as all sessions add to it.
#[derive(Debug, Default)]
struct Door {
    requests: AtomicU64,
    refused: AtomicU64,
    unauthorized: AtomicU64,
    never_came: AtomicU64,
    checks_of_nobody: AtomicU64,
    checks_unauthentic: AtomicU64,
    checks_malformed: AtomicU64,
    strangers: AtomicU64,
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// A reference server.
#[derive(Clone, Debug)]
pub struct Server(Arc<Shared>);

/// What all sessions share.
#[derive(Debug)]
struct Shared {
    config: ServerConfig,
    source: MediaSource,
    /// What of the source players can have.
    made: Vec<Track>,
    certificate: Arc<Certificate>,
    published: PublishedStreams<Relay>,
    publications: Mutex<BTreeMap<String, Arc<Publication>>>,
    registry: Mutex<Registry<Waiting>>,
    rooms: Mutex<Rooms>,
    door: Door,
    /// How many PeerConnections there were, and sessions and handles of rooms.
    peers: AtomicU64,
    handles: AtomicU64,
}

impl Shared {
    fn registry(&self) -> MutexGuard<'_, Registry<Waiting>> {
        // Each change is whole in itself, whoever panicked.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rooms(&self) -> MutexGuard<'_, Rooms> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publications(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Publication>>> {
        let publications = self.publications.lock();
        publications.unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream of that name that a client publishes.
    fn publication(&self, name: &str) -> Option<Arc<Publication>> {
        self.publications().get(name).cloned()
    }

    /// A stream is published no more.
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

    /// Whether there is made media of that name.
    fn makes(&self, name: &str) -> bool {
        let Some(streams) = self.config.streams else {
            return true;
        };
        let number = name.strip_prefix("stream").and_then(|n| n.parse().ok());
        number.is_some_and(|number: u32| (1..=streams).contains(&number))
    }

    /// What a PeerConnection that was never begun had taken is given back.
    fn give_back(&self, gone: impl IntoIterator<Item = Waiting>) {
        for waiting in gone {
            add(&self.door.never_came, 1);
            self.rooms().forget_more(waiting.number);
            if let Some(name) = waiting.publishes() {
                self.unpublish(name, waiting.number);
            }
        }
    }

    /// Gives back what PeerConnections have taken that never began.
    fn forget_who_never_came(&self, now: Time) {
        let gone = self.registry().purge(now);
        self.give_back(gone);
    }

    /// What is drawn for a PeerConnection.
    fn drawn(&self, number: u64, of: &[u64]) -> u64 {
        let mut parts = vec![self.config.seed, 9, number];
        parts.extend_from_slice(of);
        mix(&parts)
    }

    /// Our sources of a media, and of its retransmissions.
    fn ssrcs(&self, number: u64, track: usize) -> (u32, u32) {
        let drawn = |of| self.drawn(number, &[of, track as u64]) as u32;
        (drawn(1), drawn(2))
    }

    /// Our name in descriptions and reports.
    fn cname(&self) -> String {
        format!("{:016x}", mix(&[self.config.seed, 8]))
    }
}

impl Server {
    /// A server that serves nobody yet.
    ///
    /// # Errors
    /// Its media cannot be made; the text says why.
    pub fn new(config: ServerConfig) -> Result<Server, String> {
        let source = MediaSource::new(&super::config::usual(&config.source), None)?;
        Ok(Server(Arc::new(Shared {
            made: playing::tracks_of(&source),
            source,
            certificate: Arc::new(Certificate::generate(config.seed)),
            published: PublishedStreams::default(),
            publications: Mutex::default(),
            registry: Mutex::new(Registry::new(config.sessions)),
            rooms: Mutex::default(),
            door: Door::default(),
            peers: AtomicU64::new(0),
            handles: AtomicU64::new(0),
            config,
        })))
    }

    /// What answers on the UDP port of that worker.
    pub fn endpoint(&self, worker: u32) -> Box<dyn Endpoint> {
        Box::new(endpoint::Endpoint::new(self.0.clone(), worker))
    }

    /// The session of a connection of HTTP.
    pub fn session(&self) -> Box<dyn Session> {
        Box::new(http::HttpSession::new(self.0.clone()))
    }

    /// What came of requests, and of datagrams of nobody, so far.
    pub fn door(&self) -> DoorCounts {
        let Door {
            requests,
            refused,
            unauthorized,
            never_came,
            checks_of_nobody,
            checks_unauthentic,
            checks_malformed,
            strangers,
        } = &self.0.door;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DoorCounts {
            requests: get(requests),
            refused: get(refused),
            unauthorized: get(unauthorized),
            never_came: get(never_came),
            checks_of_nobody: get(checks_of_nobody),
            checks_unauthentic: get(checks_unauthentic),
            checks_malformed: get(checks_malformed),
            strangers: get(strangers),
        }
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
