//! Reference relay of `serve http-ts`: its flags and its report.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use measure::human::{count, plural};
use measure::{Catalogue, TESTER_CATALOGUE, Totals, tester};
use serde::Serialize;

use super::{Relay, RelayConfig, RelayedClient};
use kit::reference::{
    Flag, FlagValue, Flags, Occurrence, ReferenceServer, RunningServer, Second, Section,
    ServerSettings, Tally, check_parse, common, interface, to_line,
};
use session::{Record, Session};

pub(crate) static SERVER: ReferenceServer = ReferenceServer {
    title: "reference relay",
    about: "Relay multicast groups over HTTP: /udp/239.81.0.1:4056, or /rtp/239.81.0.1:4056 \
            for groups with RTP",
    aliases: &[],
    flags: FLAGS,
    own_descriptor_tables: false,
    read,
    demo: None,
};

const FLAGS: &[Flag] = {
    use Section::{Faults, Listening, Output, Service};
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
            "TCP port to listen on; 0 for a free one",
        )
        .default("8080"),
        Flag::new(
            Listening,
            "interface",
            FlagValue::any("INTERFACE"),
            "Interface through which groups are joined: its name, or one of its addresses",
        )
        .default("lo"),
        Flag::new(
            Service,
            "max-clients",
            FlagValue::Number("NUMBER", 1, u32::MAX as u64),
            "Maximum number of concurrent clients; further ones get 503 [default: \
             unlimited]",
        ),
        Flag::new(
            Service,
            "chunked",
            FlagValue::Nothing,
            "Send bodies in chunks to clients that speak HTTP/1.1",
        ),
        Flag::new(
            Faults,
            "fault",
            FlagValue::any("FAULT"),
            "Inject a fault; may be repeated: lose=1%, replace=1% (by the datagram \
             before it), duplicate=1%, truncate=1%, slow-start=2s, stall=5s:1s (every \
             5 s for 1 s), keep-groups (never leave a group), keep-files (leave sockets open), \
             old-channel=100 (first send 100 datagrams of the previously requested group), \
             answer=503 (or html, gzip, endless-head, bad-chunks, redirect, silent, mute)",
        )
        .times(Occurrence::Any),
        Flag::new(
            Faults,
            "seed",
            FlagValue::Number("SEED", 0, u64::MAX),
            "Seed of random faults",
        )
        .default("1"),
        Flag::new(
            Service,
            common::MAX_SESSIONS,
            FlagValue::Number("NUMBER", 1, 1_000_000),
            common::MAX_SESSIONS_HELP,
        )
        .default("20000"),
        Flag::new(
            Output,
            common::REPORT,
            FlagValue::File,
            "Write a report on each connection to this file, as JSON lines",
        ),
    ]
};

fn read(flags: &Flags) -> Result<Box<dyn ServerSettings>, String> {
    let interface_name: String = flags.value("interface");
    let mut config = RelayConfig::new(interface(&interface_name));
    config.max_clients = flags.get("max-clients");
    config.chunked = flags.has("chunked");
    config.seed = flags.value("seed");
    for fault in flags.all("fault") {
        config.faults.add(fault)?;
    }
    Ok(Box::new(config))
}

impl ServerSettings for RelayConfig {
    fn server(self: Box<Self>, _wall_clock: Duration) -> Result<Box<dyn RunningServer>, String> {
        Ok(Box::new(Relay::new(*self)))
    }
}

impl RunningServer for Relay {
    fn catalogue(&self) -> Catalogue {
        Relay::catalogue(self)
    }

    fn seed(&self) -> u64 {
        self.config().seed
    }

    fn url(&self, address: SocketAddr, _tls: bool) -> String {
        format!("http://{address}/")
    }

    fn session(&self, number: u64) -> Box<dyn Session> {
        Relay::session(self, number)
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
