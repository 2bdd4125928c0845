//! The keys that a scenario may set for clients, and the settings of the reference server.

use std::time::Duration;

use measure::units::TimeSpan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Keys of a population.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientConfig {
    /// Whether the client asks for what is missing. Default true.
    pub recovery: bool,
    /// How long after it asked it asks again. Default 200ms.
    pub ask_again: TimeSpan,
    /// How long after a number is found missing it is given up. Default 2s.
    pub give_up: TimeSpan,
    /// How long the handshake may take: then the client has failed with `handshake_timeout`.
    /// Default 5s.
    pub handshake_timeout: TimeSpan,
    /// How long nothing may come before the client has failed with `media_stopped`. Default 5s.
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

/// What a server sends to each client.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerConfig {
    /// How many pieces.
    pub(super) count: u32,
    /// How far apart they are.
    pub(super) every: Duration,
    /// How many bytes each has.
    pub(super) size: usize,
    /// Every so many-th is left out at first; none where all are sent.
    pub(super) lose_every: Option<u32>,
    /// What cookies are made from.
    pub(super) seed: u64,
}
