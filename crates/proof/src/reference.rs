//! The reference server of `serve proof`: its flags and its report.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use measure::Catalogue;
use measure::human::{count, plural};
use measure::units::TimeSpan;
use serde::Serialize;

use super::config::ServerConfig;
use super::endpoint::Endpoint;
use super::metrics::CATALOGUE;
use super::sender::Sent;
use kit::reference::{
    Flag, FlagValue, Flags, Occurrence, ReferenceServer, RunningServer, Second, Section,
    ServerSettings, Tally, check_parse, common, to_line,
};
use session::Record;

pub(super) static SERVER: ReferenceServer = ReferenceServer {
    title: "reference server",
    about: "Numbered media over UDP with retransmission on request",
    aliases: &[],
    flags: FLAGS,
    own_descriptor_tables: false,
    read,
    demo: None,
};

const FLAGS: &[Flag] = {
    use Section::{Faults, Listening, Media, Output};
    &[
        Flag::new(
            Listening,
            common::LISTEN,
            FlagValue::Text("ADDRESS", check_parse::<IpAddr>),
            "Addresses to listen on",
        )
        .default("127.0.0.1")
        .times(Occurrence::Listed),
        Flag::new(
            Listening,
            common::PORT,
            FlagValue::Number("PORT", 0, 65_535),
            "UDP port to listen on; 0 for a free one",
        )
        .default("7777"),
        Flag::new(
            Media,
            "packets",
            FlagValue::Number("NUMBER", 1, 1_000_000_000),
            "Number of packets for each client",
        )
        .default("1000"),
        Flag::new(
            Media,
            "every",
            FlagValue::Text("TIME", check_parse::<TimeSpan>),
            "Interval between packets",
        )
        .default("5ms"),
        Flag::new(
            Media,
            "size",
            FlagValue::Number("BYTES", 1, 1400),
            "Payload of each packet in bytes",
        )
        .default("1000"),
        Flag::new(
            Faults,
            "lose-every",
            FlagValue::Number("NUMBER", 1, 1_000_000),
            "Omit every n-th packet until it is requested",
        ),
        Flag::new(
            Faults,
            "seed",
            FlagValue::Number("SEED", 0, u64::MAX),
            "Seed of the cookies",
        )
        .default("1"),
        Flag::new(
            Output,
            common::REPORT,
            FlagValue::File,
            "Write one line of JSON for each client to this file",
        ),
    ]
};

fn read(flags: &Flags) -> Result<Box<dyn ServerSettings>, String> {
    Ok(Box::new(ServerConfig {
        count: flags.value("packets"),
        every: flags.value::<TimeSpan>("every").0,
        size: flags.value("size"),
        lose_every: flags.get("lose-every"),
        seed: flags.value("seed"),
    }))
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
