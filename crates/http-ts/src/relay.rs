//! Reference relay: joins multicast groups that clients request over HTTP, relays their datagrams,
//! injects faults on request, and reports exactly what it did.
//!
//! Requests have the usual form of relays: `GET /udp/239.81.0.1:4056` for a group whose datagrams
//! hold a transport stream, `GET /rtp/239.81.0.1:4056` for a group with RTP headers before it (RFC
//! 2250, 2).

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

use serde::Serialize;

pub use faults::{AnswerFault, RelayFaults};
#[cfg(any(test, fuzzing))]
pub use request::read_any;

use ::session::Interface;

/// Settings of the reference relay.
#[derive(Clone, Debug, PartialEq)]
pub struct RelayConfig {
    /// Interface through which it joins groups.
    pub interface: Interface,
    /// Maximum number of concurrent clients; further ones get 503. Default: unlimited.
    pub max_clients: Option<u32>,
    /// True if clients with HTTP/1.1 get chunked bodies (RFC 9112, 7.1). Default: false; bodies end
    /// with the connection.
    pub chunked: bool,
    /// Faults to inject. Default: none.
    pub faults: RelayFaults,
    /// Seed of all random choices. Default: 1.
    pub seed: u64,
}

impl RelayConfig {
    /// Creates settings without faults.
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

/// Report on one connection: a line of the relay's report.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RelayedClient {
    /// Number of the connection, from 1.
    pub connection: u64,
    /// Address of the client.
    pub remote: Option<String>,
    /// Requested target; `None` if there was no valid request.
    pub target: Option<String>,
    /// Status of the response; `None` if there was no response.
    pub status: Option<u16>,
    /// Group that was joined.
    pub group: Option<IpAddr>,
    /// Datagrams received from the group for this client.
    pub datagrams: u64,
    /// Datagrams that could not be relayed: longer than one read, or not RTP although that was
    /// requested.
    pub unusable: u64,
    /// Datagrams relayed, without second copies.
    pub passed_on: u64,
    /// Datagrams dropped on purpose.
    pub left_out: u64,
    /// Second copies sent on purpose, including those in place of dropped datagrams.
    pub sent_twice: u64,
    /// Datagrams truncated on purpose.
    pub cut: u64,
    /// Datagrams of the previously requested group, relayed on purpose. They are in no other count.
    pub old_channel: u64,
    /// Number of pauses on purpose.
    pub stalls: u64,
    /// Body bytes given to the connection, without the framing of chunks.
    pub bytes: u64,
}

/// The reference relay.
#[derive(Clone, Debug)]
pub struct Relay(Arc<Shared>);

/// State that all sessions share.
#[derive(Debug)]
struct Shared {
    config: RelayConfig,
    /// Number of clients that are currently served.
    clients: AtomicU32,
    /// State of faults that affect several connections.
    cross_session: Mutex<CrossSessionState>,
}

/// State that sessions share for their faults.
#[derive(Debug, Default)]
struct CrossSessionState {
    /// Group that was requested last.
    last_group: Option<request::RequestedGroup>,
    /// Groups that remain joined.
    leaked_groups: BTreeSet<SocketAddr>,
    /// Number of socket pairs that remain open.
    leaked_sockets: usize,
}

impl Relay {
    /// Creates a relay.
    pub fn new(config: RelayConfig) -> Relay {
        Relay(Arc::new(Shared {
            config,
            clients: AtomicU32::new(0),
            cross_session: Mutex::default(),
        }))
    }

    pub fn config(&self) -> &RelayConfig {
        &self.0.config
    }
}
