//! Reference server of `serve messages`: its flags and its report.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use measure::human::{count, plural};
use measure::{Catalogue, CounterId, Totals};
use serde::Serialize;

use super::{MessageFaults, MessageServerConfig, Mode};
use crate::config;
use crate::framing::{Framing, LengthPrefix, Order};
use crate::metrics as m;
use kit::reference::{
    Flag, FlagValue, Flags, Occurrence, ReferenceServer, RunningServer, Second, Section,
    ServerSettings, Tally, check_parse, common, to_line, unescape,
};
use session::Session;

pub(crate) static SERVER: ReferenceServer = ReferenceServer {
    title: "reference server",
    about: "Messages over TCP, TLS or WebSockets: counts them, or also sends them back",
    aliases: &[],
    flags: FLAGS,
    own_descriptor_tables: true,
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
            "Ports to listen on, at each address; 0 for a free one. Each port has its own thread, \
             and with it its own limit of open files",
        )
        .default("9000")
        .times(Occurrence::Listed),
        Flag::new(
            Service,
            "mode",
            FlagValue::OneOf(
                "MODE",
                &[
                    ("sink", "Count messages"),
                    ("echo", "Count messages and send them back"),
                ],
            ),
            "Treatment of messages",
        )
        .default("echo"),
        Flag::new(
            Service,
            "size",
            FlagValue::Number("BYTES", 1, 1_048_576),
            "Message size if there is no framing",
        )
        .default("36"),
        Flag::new(
            Service,
            "length",
            FlagValue::Number("BYTES", 0, 255),
            "Size in bytes of a length prefix before each message: \
             1, 2, 4 or 8",
        )
        .conflicts(&["delimiter", "websocket"]),
        Flag::new(
            Service,
            "order",
            FlagValue::OneOf(
                "ORDER",
                &[("big", "Most significant byte first"), ("little", "Least significant byte first")],
            ),
            "Byte order of the length prefix",
        )
        .default("big")
        .requires(&["length"]),
        Flag::new(
            Service,
            "includes-itself",
            FlagValue::Nothing,
            "The length includes the prefix itself",
        )
        .requires(&["length"]),
        Flag::new(
            Service,
            "delimiter",
            FlagValue::any("TEXT"),
            "Text that ends each message, with the escapes \\n, \\r, \\t and \\0",
        )
        .conflicts(&["websocket"]),
        Flag::new(Service, "websocket", FlagValue::Nothing, "Use WebSockets"),
        Flag::new(
            Listening,
            common::TLS_CERT,
            FlagValue::File,
            "Use TLS on all connections, with the certificate chain in this file (PEM), the server's \
             own first",
        )
        .requires(&[common::TLS_KEY]),
        Flag::new(
            Listening,
            common::TLS_KEY,
            FlagValue::File,
            "Private key of that certificate (PEM)",
        )
        .requires(&[common::TLS_CERT]),
        Flag::new(
            Faults,
            "fault",
            FlagValue::any("FAULT"),
            "Inject a fault; may be repeated: delay=5ms, drop=1% (answers), \
             wrong=1% (answers), close=1% (the connection, after a message), deaf (nothing is \
             read)",
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
        .default("100000"),
        Flag::new(
            Output,
            common::REPORT,
            FlagValue::File,
            "Write the counts to this file, as one JSON line per second and a last line with the \
             totals",
        ),
    ]
};

fn read(flags: &Flags) -> Result<Box<dyn ServerSettings>, String> {
    let mut faults = MessageFaults::default();
    for fault in flags.all("fault") {
        faults.add(fault)?;
    }
    let framing = match (flags.get("length"), flags.text("delimiter")) {
        (Some(bytes), _) => config::Framing::Length(LengthPrefix {
            bytes,
            order: match flags.text("order") {
                Some("little") => Order::Little,
                _ => Order::Big,
            },
            includes_itself: flags.has("includes-itself"),
        }),
        (None, Some(text)) => config::Framing::Delimiter(unescape(text).into_owned()),
        (None, None) => config::Framing::None,
    };
    framing.check()?;
    Ok(Box::new(MessageServerConfig {
        mode: match flags.text("mode") {
            Some("sink") => Mode::Sink,
            _ => Mode::Echo,
        },
        framing: match flags.has("websocket") {
            true => Framing::WebSocket {
                masked: false,
                text: false,
            },
            false => framing.to_wire_framing(),
        },
        size: flags.value("size"),
        faults,
        seed: flags.value("seed"),
    }))
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
            last_second: Counts::default(),
        })
    }
}

#[derive(Debug)]
struct MessageTally {
    totals: Totals,
    last_second: Counts,
}

/// Counters of the server's report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Counts {
    connections: u64,
    connections_ended: u64,
    /// Ended connections that broke, so that the fate of messages in flight is unknown.
    broken: u64,
    /// Messages received.
    messages: u64,
    /// Bytes received.
    bytes: u64,
    /// Answers given to the connection.
    replies: u64,
    /// Answers dropped on purpose.
    dropped: u64,
    /// Answers corrupted on purpose.
    spoilt: u64,
    /// Connections closed on purpose.
    closed: u64,
}

impl Counts {
    fn from_totals(totals: &Totals) -> Counts {
        let count = |id: CounterId| u64::try_from(totals.counter(id)).unwrap_or(0);
        Counts {
            connections: count(m::CONNECTIONS),
            connections_ended: count(m::CONNECTIONS_ENDED),
            broken: count(m::BROKEN),
            messages: count(m::RECEIVED),
            bytes: count(m::RECEIVED_BYTES),
            replies: count(m::ANSWERS),
            dropped: count(m::DROPPED),
            spoilt: count(m::CORRUPTED),
            closed: count(m::CLOSED),
        }
    }

    fn describe(&self) -> String {
        let mut text = format!(
            "{} of {} on {}, {} sent back",
            plural(self.messages as f64, "message", "messages"),
            plural(self.bytes as f64, "byte", "bytes"),
            plural(self.connections as f64, "connection", "connections"),
            count(self.replies as f64),
        );
        for (number, what) in [
            (self.dropped, "answers dropped"),
            (self.spoilt, "answers corrupted"),
            (self.closed, "connections closed on purpose"),
            (self.broken, "connections broken"),
        ] {
            if number > 0 {
                text += &format!(", {} {what}", count(number as f64));
            }
        }
        text
    }
}

impl Tally for MessageTally {
    fn second(&mut self, second: Second<'_>) -> Option<String> {
        self.totals.add(second.sessions, second.seconds);
        let catalogue = MessageServerConfig::CATALOGUE;
        let last = Totals::of_window(catalogue, second.sessions, second.seconds);
        self.last_second = Counts::from_totals(&last);
        let began = second.start.since_start().as_secs_f64();
        Some(to_line(
            &serde_json::json!({ "second": began, "counts": self.last_second }),
        ))
    }

    fn progress(&self) -> String {
        format!(
            "{} in the last second; {}",
            count(self.last_second.messages as f64),
            Counts::from_totals(&self.totals).describe()
        )
    }

    fn result(&self) -> Vec<String> {
        vec![Counts::from_totals(&self.totals).describe()]
    }

    fn final_line(&self) -> String {
        to_line(&serde_json::json!({ "messages": Counts::from_totals(&self.totals) }))
    }
}
