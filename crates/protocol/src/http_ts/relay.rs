//! The reference relay: joins multicast groups for those who ask for them over HTTP, passes on what
//! comes, does wrong what it is told to, and says exactly what it did.
//!
//! What clients ask for is written as the usual relays have it: `GET /udp/239.81.0.1:4056` of a
//! group whose datagrams hold a transport stream, `GET /rtp/239.81.0.1:4056` of one where RTP comes
//! before it (RFC 2250, 2).

pub mod faults;
pub(super) mod reference;
mod request;
mod session;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

use measure::Catalogue;
use serde::Serialize;

pub use faults::{Answer, RelayFaults};
#[cfg(any(test, fuzzing))]
pub use request::read_any;

use crate::metrics::CLIENTS;
use crate::session::{Interface, Session};

/// Metrics of the relay's sessions.
const CATALOGUE: Catalogue = Catalogue(&[&CLIENTS]);

/// The settings of the reference relay.
#[derive(Clone, Debug, PartialEq)]
pub struct RelayConfig {
    /// Through which interface it joins groups.
    pub interface: Interface,
    /// How many clients are served at a time; who comes beyond gets 503. Default: any number.
    pub max_clients: Option<u32>,
    /// Whether bodies are sent in chunks (RFC 9112, 7.1) to clients that speak HTTP/1.1. Default:
    /// no, they go on until the connection is closed.
    pub chunked: bool,
    /// What it does wrong on purpose. Default: nothing.
    pub faults: RelayFaults,
    /// Seed of all that is drawn. Default: 1.
    pub seed: u64,
}

impl RelayConfig {
    /// One that does nothing wrong.
    pub fn new(interface: Interface) -> RelayConfig {
        RelayConfig {
            interface,
            max_clients: None,
            chunked: false,
            faults: RelayFaults::default(),
            seed: 1,
        }
    }
}

/// What the relay did for one connection: a line of its report.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RelayedClient {
    /// Which connection, from 1.
    pub connection: u64,
    /// Where it came from.
    pub remote: Option<String>,
    /// What was asked for; none where nothing was that could be read.
    pub target: Option<String>,
    /// The status it was answered with; none where it was not answered.
    pub status: Option<u16>,
    /// The group that was joined.
    pub group: Option<IpAddr>,
    /// Datagrams that came from the group for it.
    pub datagrams: u64,
    /// Datagrams that could not be passed on: longer than is read at a time, or no RTP where that
    /// was asked for.
    pub unusable: u64,
    /// Datagrams passed on, second copies not counted.
    pub passed_on: u64,
    /// Datagrams left out on purpose.
    pub left_out: u64,
    /// Second copies sent on purpose, those in place of what was left out included.
    pub sent_twice: u64,
    /// Datagrams cut short on purpose.
    pub cut: u64,
    /// Datagrams of the group that was asked for before, passed on on purpose; they are in no other
    /// count.
    pub old_channel: u64,
    /// How often nothing was sent for a while on purpose.
    pub stalls: u64,
    /// Bytes of body that were handed to the connection, chunks' framing not counted.
    pub bytes: u64,
}

/// A reference relay.
#[derive(Clone, Debug)]
pub struct Relay(Arc<Shared>);

/// What all sessions share.
#[derive(Debug)]
struct Shared {
    config: RelayConfig,
    /// How many clients are served now.
    served: AtomicU32,
    /// What is done wrong with more than one connection.
    across: Mutex<Across>,
}

/// What sessions share for their faults.
#[derive(Debug, Default)]
struct Across {
    /// What was asked for last.
    last: Option<request::WantedGroup>,
    /// The groups that stay joined.
    kept_groups: BTreeSet<SocketAddr>,
    /// How many pairs of sockets stay open.
    kept_files: usize,
}

impl Relay {
    /// A relay that serves nobody yet.
    pub fn new(config: RelayConfig) -> Relay {
        Relay(Arc::new(Shared {
            config,
            served: AtomicU32::new(0),
            across: Mutex::default(),
        }))
    }

    /// A session for the connection that was accepted as number `number`: the number decides, with
    /// the seed, what it draws.
    pub fn session(&self, number: u64) -> Box<dyn Session> {
        Box::new(session::RelaySession::new(self.0.clone(), number))
    }

    /// The metrics of its sessions.
    pub fn catalogue(&self) -> Catalogue {
        CATALOGUE
    }

    /// Its settings.
    pub fn config(&self) -> &RelayConfig {
        &self.0.config
    }
}
