//! Keys of a scenario for clients, and settings of the reference server.

use std::time::Duration;

use measure::units::TimeSpan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Keys of a population.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientConfig {
    /// Request missing packets. Default true.
    pub recovery: bool,
    /// Interval between requests for the same packet. Default 200ms.
    pub ask_again: TimeSpan,
    /// Time after which a missing packet is given up. Default 2s.
    pub give_up: TimeSpan,
    /// Maximum duration of the handshake. A client that exceeds it fails with `handshake_timeout`.
    /// Default 5s.
    pub handshake_timeout: TimeSpan,
    /// Maximum time without media. A client that exceeds it fails with `media_stopped`. Default 5s.
    pub silence: TimeSpan,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        let millis = |millis| TimeSpan(Duration::from_millis(millis));
        ClientConfig {
            recovery: true,
            ask_again: millis(200),
            give_up: millis(2000),
            handshake_timeout: millis(5000),
            silence: millis(5000),
        }
    }
}

/// Media that a server sends to each client.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerConfig {
    /// Number of packets.
    pub(super) count: u32,
    /// Interval between packets.
    pub(super) every: Duration,
    /// Payload of each packet in bytes.
    pub(super) size: usize,
    /// Omits every n-th packet until it is requested; `None` sends all packets.
    pub(super) lose_every: Option<u32>,
    /// Key of the cookies.
    pub(super) seed: u64,
}
