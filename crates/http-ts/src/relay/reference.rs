//! Reference relay of `serve http-ts`: its flags and its report.

use std::net::SocketAddr;
use std::time::Duration;

use clap::value_parser;
use measure::human::{count, plural};
use measure::{Catalogue, TESTER_CATALOGUE, Totals, tester};
use serde::Serialize;

use super::session::RelaySession;
use super::{Relay, RelayConfig, RelayFaults, RelayedClient};
use kit::faults::FaultSet as _;
use kit::metrics::CLIENTS;
use kit::reference::heading::{FAULTS, LISTENING, SERVICE};
use kit::reference::{
    OwnFlags, Port, ReferenceServer, RunningServer, Second, ServerFlags, ServerSettings,
    SettingsResult, Tally, interface, to_line,
};
use session::{Record, Session};

pub(crate) static SERVER: ReferenceServer = ReferenceServer {
    title: "reference relay",
    about: "Relay multicast groups over HTTP: /udp/239.81.0.1:4056, or /rtp/239.81.0.1:4056 \
            for groups with RTP",
    aliases: &[],
    port: Port {
        help: "TCP port to listen on; 0 for a free one",
        default: "8080",
        many: false,
    },
    tls: None,
    max_sessions: "20000",
    report: "Write a report on each connection to this file, as JSON lines",
    flags: OwnFlags::of::<RelayFlags>(),
    own_descriptor_tables: false,
    demo: None,
};

/// Flags of `serve http-ts` besides those of every server.
#[derive(Debug, clap::Args)]
struct RelayFlags {
    /// Interface through which groups are joined: its name, or one of its addresses
    #[arg(long, value_name = "INTERFACE", default_value = "lo", help_heading = LISTENING)]
    interface: String,
    /// Maximum number of concurrent clients; further ones get 503 [default: unlimited]
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u32).range(1..))]
    #[arg(help_heading = SERVICE)]
    max_clients: Option<u32>,
    /// Send bodies in chunks to clients that speak HTTP/1.1
    #[arg(long, help_heading = SERVICE)]
    chunked: bool,
    /// Inject a fault; may be repeated: lose=1%, replace=1% (by the datagram before it),
    /// duplicate=1%, truncate=1%, slow-start=2s, stall=5s:1s (every 5 s for 1 s), keep-groups
    /// (never leave a group), keep-files (leave sockets open), old-channel=100 (first send 100
    /// datagrams of the previously requested group), answer=503 (or html, gzip, endless-head,
    /// bad-chunks, redirect, silent, mute)
    #[arg(long = "fault", value_name = "FAULT", help_heading = FAULTS)]
    faults: Vec<String>,
}

impl ServerFlags for RelayFlags {
    fn settings(self, seed: u64) -> SettingsResult {
        let mut config = RelayConfig::new(interface(&self.interface));
        config.max_clients = self.max_clients;
        config.chunked = self.chunked;
        config.seed = seed;
        config.faults = RelayFaults::read(&self.faults)?;
        Ok(Box::new(config))
    }
}

impl ServerSettings for RelayConfig {
    fn server(self: Box<Self>, _wall_clock: Duration) -> Result<Box<dyn RunningServer>, String> {
        Ok(Box::new(Relay::new(*self)))
    }
}

impl RunningServer for Relay {
    fn catalogue(&self) -> Catalogue {
        const { Catalogue(&[&CLIENTS]) }
    }

    fn seed(&self) -> u64 {
        self.config().seed
    }

    fn url(&self, address: SocketAddr, _tls: bool) -> String {
        format!("http://{address}/")
    }

    fn session(&self, number: u64) -> Box<dyn Session> {
        Box::new(RelaySession::new(self.0.clone(), number))
    }

    fn tally(&self, _clock_monotonic_nanos: i64) -> Box<dyn Tally> {
        Box::new(RelayTally {
            tester: Totals::new(TESTER_CATALOGUE),
            relayed: RelayTotals::default(),
        })
    }
}

#[derive(Debug)]
struct RelayTally {
    tester: Totals,
    relayed: RelayTotals,
}

/// Totals over all connections: the last line of the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct RelayTotals {
    connections: u64,
    /// Connections for which a group was relayed.
    served: u64,
    /// Datagrams received, counted for each client.
    datagrams: u64,
    /// Datagrams relayed, without second copies.
    passed_on: u64,
    /// Datagrams dropped on purpose.
    left_out: u64,
    /// Second copies sent on purpose.
    sent_twice: u64,
    /// Datagrams that the kernel dropped for lack of room at the relay's sockets, counted for each
    /// client: an unintended fault.
    lost_at_sockets: u64,
}

impl RelayTotals {
    fn add(&mut self, client: &RelayedClient) {
        self.connections += 1;
        self.served += u64::from(client.group.is_some() && client.status == Some(200));
        self.datagrams += client.datagrams;
        self.passed_on += client.passed_on;
        self.left_out += client.left_out;
        self.sent_twice += client.sent_twice;
    }
}

impl Tally for RelayTally {
    fn second(&mut self, second: Second<'_>) -> Option<String> {
        self.tester.add(second.tester, second.seconds);
        let lost = self.tester.counter(tester::SOCKET_OVERFLOW);
        self.relayed.lost_at_sockets = u64::try_from(lost).unwrap_or(0);
        None
    }

    fn session_ended(&mut self, done: Record) -> Option<String> {
        let client = done.downcast::<RelayedClient>()?;
        self.relayed.add(&client);
        Some(to_line(client.as_ref()))
    }

    fn progress(&self) -> String {
        let relayed = &self.relayed;
        let lost = match relayed.lost_at_sockets {
            0 => String::new(),
            lost => format!("; {} LOST at its own sockets", count(lost as f64)),
        };
        format!(
            "relayed to {} of {}: {} of {} relayed, {} left out, {} sent twice{lost}",
            count(relayed.served as f64),
            plural(relayed.connections as f64, "connection", "connections"),
            count(relayed.passed_on as f64),
            plural(relayed.datagrams as f64, "datagram", "datagrams"),
            count(relayed.left_out as f64),
            count(relayed.sent_twice as f64),
        )
    }

    fn result(&self) -> Vec<String> {
        vec![self.progress()]
    }

    fn final_line(&self) -> String {
        to_line(&serde_json::json!({ "relayed": self.relayed }))
    }
}
