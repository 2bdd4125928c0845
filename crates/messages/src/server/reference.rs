//! Reference server of `serve messages`: its flags and its report.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::value_parser;
use measure::human::{count, plural};
use measure::{Catalogue, CounterId, Totals};
use serde_json::{Value, json};

use super::{MessageFaults, MessageServerConfig, Mode};
use crate::config;
use crate::framing::{Framing, LengthPrefix, Order};
use crate::metrics as m;
use kit::faults::FaultSet as _;
use kit::reference::heading::{FAULTS, SERVICE};
use kit::reference::{
    OwnFlags, Port, ReferenceServer, RunningServer, Second, ServerFlags, ServerSettings,
    SettingsResult, Tally, to_line, unescape,
};
use session::Session;

pub(crate) static SERVER: ReferenceServer = ReferenceServer {
    title: "reference server",
    about: "Messages over TCP, TLS or WebSockets: counts them, or also sends them back",
    aliases: &[],
    port: Port {
        help: "Ports to listen on, at each address; 0 for a free one. Each port has its own thread, \
               and with it its own limit of open files",
        default: "9000",
        many: true,
    },
    tls: Some("tls, wss"),
    max_sessions: "100000",
    report: "Write the counts to this file, as one JSON line per second and a last line with the \
             totals",
    flags: OwnFlags::of::<MessageFlags>(),
    own_descriptor_tables: true,
    demo: None,
};

/// Flags of `serve messages` besides those of every server.
#[derive(Debug, clap::Args)]
struct MessageFlags {
    /// Treatment of messages
    #[arg(long, value_enum, value_name = "MODE", default_value_t, help_heading = SERVICE)]
    mode: Mode,
    /// Message size if there is no framing
    #[arg(long, value_name = "BYTES", default_value_t = 36, help_heading = SERVICE)]
    #[arg(value_parser = value_parser!(u32).range(1..=1_048_576))]
    size: u32,
    /// Size in bytes of a length prefix before each message: 1, 2, 4 or 8
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["delimiter", "websocket"])]
    #[arg(help_heading = SERVICE)]
    length: Option<u8>,
    /// Byte order of the length prefix
    #[arg(
        long,
        value_enum,
        value_name = "ORDER",
        default_value_t,
        requires = "length"
    )]
    #[arg(help_heading = SERVICE)]
    order: Order,
    /// The length includes the prefix itself
    #[arg(long, requires = "length", help_heading = SERVICE)]
    includes_itself: bool,
    /// Text that ends each message, with the escapes \n, \r, \t and \0
    #[arg(long, value_name = "TEXT", conflicts_with = "websocket", help_heading = SERVICE)]
    delimiter: Option<String>,
    /// Use WebSockets
    #[arg(long, help_heading = SERVICE)]
    websocket: bool,
    /// Inject a fault; may be repeated: delay=5ms, drop=1% (answers), wrong=1% (answers), close=1%
    /// (the connection, after a message), deaf (nothing is read)
    #[arg(long = "fault", value_name = "FAULT", help_heading = FAULTS)]
    faults: Vec<String>,
}

impl ServerFlags for MessageFlags {
    fn settings(self, seed: u64) -> SettingsResult {
        let faults = MessageFaults::read(&self.faults)?;
        let framing = match (self.length, &self.delimiter) {
            (Some(bytes), _) => config::Framing::Length(LengthPrefix {
                bytes,
                order: self.order,
                includes_itself: self.includes_itself,
            }),
            (None, Some(text)) => config::Framing::Delimiter(unescape(text).into_owned()),
            (None, None) => config::Framing::None,
        };
        framing.check()?;
        Ok(Box::new(MessageServerConfig {
            mode: self.mode,
            framing: match self.websocket {
                true => Framing::WebSocket {
                    masked: false,
                    text: false,
                },
                false => framing.to_wire_framing(),
            },
            size: self.size as usize,
            faults,
            seed,
        }))
    }
}

impl ServerSettings for MessageServerConfig {
    fn server(self: Box<Self>, _wall_clock: Duration) -> Result<Box<dyn RunningServer>, String> {
        Ok(Box::new(RunningMessageServer(Arc::new(*self))))
    }
}

/// A server that sessions share.
#[derive(Debug)]
struct RunningMessageServer(Arc<MessageServerConfig>);

impl RunningServer for RunningMessageServer {
    fn catalogue(&self) -> Catalogue {
        MessageServerConfig::CATALOGUE
    }

    fn seed(&self) -> u64 {
        self.0.seed
    }

    fn url(&self, address: SocketAddr, tls: bool) -> String {
        let scheme = match (matches!(self.0.framing, Framing::WebSocket { .. }), tls) {
            (false, false) => "tcp",
            (false, true) => "tls",
            (true, false) => "ws",
            (true, true) => "wss",
        };
        format!("{scheme}://{address}")
    }

    fn session(&self, number: u64) -> Box<dyn Session> {
        MessageServerConfig::session(&self.0, number)
    }

    fn tally(&self, _clock_monotonic_nanos: i64) -> Box<dyn Tally> {
        Box::new(MessageTally {
            totals: Totals::new(MessageServerConfig::CATALOGUE),
            last_second: Totals::new(MessageServerConfig::CATALOGUE),
        })
    }
}

#[derive(Debug)]
struct MessageTally {
    totals: Totals,
    last_second: Totals,
}

/// Counters of the server's report, with their names in it.
const COUNTS: [(&str, CounterId); 9] = [
    ("connections", m::CONNECTIONS),
    ("connections_ended", m::CONNECTIONS_ENDED),
    // Ended connections that broke, so that the fate of messages in flight is unknown.
    ("broken", m::BROKEN),
    // Messages and bytes received.
    ("messages", m::RECEIVED),
    ("bytes", m::RECEIVED_BYTES),
    // Answers given to the connection, dropped on purpose, and corrupted on purpose.
    ("replies", m::ANSWERS),
    ("dropped", m::DROPPED),
    ("spoilt", m::CORRUPTED),
    // Connections closed on purpose.
    ("closed", m::CLOSED),
];

fn counter(totals: &Totals, id: CounterId) -> u64 {
    u64::try_from(totals.counter(id)).unwrap_or(0)
}

fn counts(totals: &Totals) -> Value {
    let each = COUNTS.map(|(name, id)| (name.to_owned(), counter(totals, id).into()));
    Value::Object(each.into_iter().collect())
}

fn describe(totals: &Totals) -> String {
    let number = |id| counter(totals, id) as f64;
    let mut text = format!(
        "{} of {} on {}, {} sent back",
        plural(number(m::RECEIVED), "message", "messages"),
        plural(number(m::RECEIVED_BYTES), "byte", "bytes"),
        plural(number(m::CONNECTIONS), "connection", "connections"),
        count(number(m::ANSWERS)),
    );
    for (id, what) in [
        (m::DROPPED, "answers dropped"),
        (m::CORRUPTED, "answers corrupted"),
        (m::CLOSED, "connections closed on purpose"),
        (m::BROKEN, "connections broken"),
    ] {
        if number(id) > 0.0 {
            text += &format!(", {} {what}", count(number(id)));
        }
    }
    text
}

impl Tally for MessageTally {
    fn second(&mut self, second: Second<'_>) -> Option<String> {
        self.totals.add(second.sessions, second.seconds);
        let catalogue = MessageServerConfig::CATALOGUE;
        self.last_second = Totals::of_window(catalogue, second.sessions, second.seconds);
        let began = second.start.since_start().as_secs_f64();
        Some(to_line(
            &json!({ "second": began, "counts": counts(&self.last_second) }),
        ))
    }

    fn progress(&self) -> String {
        format!(
            "{} in the last second; {}",
            count(counter(&self.last_second, m::RECEIVED) as f64),
            describe(&self.totals)
        )
    }

    fn result(&self) -> Vec<String> {
        vec![describe(&self.totals)]
    }

    fn final_line(&self) -> String {
        to_line(&json!({ "messages": counts(&self.totals) }))
    }
}
