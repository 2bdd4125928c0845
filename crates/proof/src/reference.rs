//! The reference server of `serve proof`: its flags and its report.

use std::net::SocketAddr;
use std::time::Duration;

use clap::value_parser;
use measure::Catalogue;
use measure::human::{count, plural};
use measure::units::TimeSpan;
use serde::Serialize;

use super::config::ServerConfig;
use super::endpoint::Endpoint;
use super::metrics::CATALOGUE;
use super::sender::Sent;
use kit::reference::heading::{FAULTS, MEDIA};
use kit::reference::{
    OwnFlags, Port, ReferenceServer, RunningServer, Second, ServerFlags, ServerSettings,
    SettingsResult, Tally, to_line,
};
use session::Record;

pub(super) static SERVER: ReferenceServer = ReferenceServer {
    title: "reference server",
    about: "Numbered media over UDP with retransmission on request",
    aliases: &[],
    port: Port {
        help: "UDP port to listen on; 0 for a free one",
        default: "7777",
        many: false,
    },
    tls: None,
    max_sessions: "65536",
    report: "Write one line of JSON for each client to this file",
    flags: OwnFlags::of::<ProofFlags>(),
    own_descriptor_tables: false,
    demo: None,
};

/// Flags of `serve proof` besides those of every server.
#[derive(Debug, clap::Args)]
struct ProofFlags {
    /// Number of packets for each client
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, help_heading = MEDIA)]
    #[arg(value_parser = value_parser!(u32).range(1..=1_000_000_000))]
    packets: u32,
    /// Interval between packets
    #[arg(long, value_name = "TIME", default_value = "5ms", help_heading = MEDIA)]
    every: TimeSpan,
    /// Payload of each packet in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1000, help_heading = MEDIA)]
    #[arg(value_parser = value_parser!(u16).range(1..=1400))]
    size: u16,
    /// Omit every n-th packet until it is requested
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u32).range(1..=1_000_000))]
    #[arg(help_heading = FAULTS)]
    lose_every: Option<u32>,
}

impl ServerFlags for ProofFlags {
    fn settings(self, seed: u64) -> SettingsResult {
        Ok(Box::new(ServerConfig {
            count: self.packets,
            every: self.every.0,
            size: usize::from(self.size),
            lose_every: self.lose_every,
            seed,
        }))
    }
}

impl ServerSettings for ServerConfig {
    fn server(self: Box<Self>, _wall_clock: Duration) -> Result<Box<dyn RunningServer>, String> {
        Ok(self)
    }
}

impl RunningServer for ServerConfig {
    fn catalogue(&self) -> Catalogue {
        CATALOGUE
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn url(&self, address: SocketAddr, _tls: bool) -> String {
        format!("proof://{address}")
    }

    fn endpoint(&self, _worker: u32) -> Option<Box<dyn session::Endpoint>> {
        Some(Box::new(Endpoint::new(*self)))
    }

    fn tally(&self, _clock_monotonic_nanos: i64) -> Box<dyn Tally> {
        Box::new(Clients::default())
    }
}

/// Counts of all clients: the last line of the report.
#[derive(Debug, Default, Serialize)]
struct Clients {
    clients: u64,
    #[serde(flatten)]
    sent: Sent,
}

impl Tally for Clients {
    fn second(&mut self, _second: Second<'_>) -> Option<String> {
        None
    }

    fn session_ended(&mut self, done: Record) -> Option<String> {
        let client = done.downcast::<Sent>()?;
        self.clients += 1;
        self.sent.expected += client.expected;
        self.sent.sent += client.sent;
        self.sent.left_out += client.left_out;
        self.sent.asked += client.asked;
        self.sent.sent_again += client.sent_again;
        self.sent.not_taken += client.not_taken;
        Some(to_line(&client))
    }

    fn progress(&self) -> String {
        format!(
            "sent to {}: {} of {}, {} left out, {} sent again",
            plural(self.clients as f64, "client", "clients"),
            count(self.sent.sent as f64),
            plural(self.sent.expected as f64, "packet", "packets"),
            count(self.sent.left_out as f64),
            count(self.sent.sent_again as f64),
        )
    }

    fn result(&self) -> Vec<String> {
        vec![self.progress()]
    }

    fn final_line(&self) -> String {
        to_line(&serde_json::json!({ "all": self }))
    }
}
