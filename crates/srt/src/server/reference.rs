//! Command line of the reference server, `serve srt`: its flags and its report.

use std::net::SocketAddr;
use std::time::Duration;

use clap::value_parser;
use measure::Catalogue;
use measure::human::{count, plural};
use measure::units::{BitRate, Size, TimeSpan};
use serde::Serialize;

use super::{CATALOGUE, ServedClient, Server, ServerConfig, ServerFaults};
use crate::arq::message_source::MessageSource;
use crate::config;
use crate::crypto::Passphrase;
use crate::url::DEFAULT_PORT;
use kit::faults::FaultSet as _;
use kit::media::source::SourceConfig;
use kit::reference::heading::{FAULTS, MEDIA, SERVICE};
use kit::reference::{
    Demo, OwnFlags, Port, ReferenceServer, RunningServer, Second, ServerFlags, ServerSettings,
    SettingsResult, Tally, to_line,
};
use session::Record;

pub(crate) static SERVER: ReferenceServer = ReferenceServer {
    title: "reference server",
    about: "SRT: plays a transport stream, or messages, under any stream id, and relays what \
            clients publish",
    aliases: &[],
    port: Port {
        help: "UDP port to listen on; 0 for any free port",
        default: "9000",
        many: false,
    },
    tls: None,
    max_sessions: "5000",
    report: "Write a report on each connection to this file, as JSON lines",
    flags: OwnFlags::of::<SrtFlags>(),
    own_descriptor_tables: false,
    demo: Some(Demo {
        url: "srt://127.0.0.1:{port}?streamid=demo",
        clients: 100,
        bitrate: "500kbps",
    }),
};

/// Flags of `serve srt` besides those of every server.
#[derive(Debug, clap::Args)]
struct SrtFlags {
    /// Number of streams, in addition to those that clients publish: stream1, stream2 and so on
    /// [default: any stream id is valid, and so is none]
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u32).range(1..=100_000))]
    #[arg(help_heading = MEDIA)]
    streams: Option<u32>,
    /// Bit rate of the transport stream, or of the messages
    #[arg(long, value_name = "RATE", default_value = "2Mbps", help_heading = MEDIA)]
    bitrate: BitRate,
    /// Carry messages instead of live media, and send messages of this size, as srt-live-transmit
    /// with transtype=file&messageapi=1 [default: live media]
    #[arg(long, value_name = "SIZE", help_heading = MEDIA)]
    messages: Option<Size>,
    /// Allow messages to be delivered before others that are missing
    #[arg(long, requires = "messages", help_heading = MEDIA)]
    unordered: bool,
    /// Time after which a message is dropped that the client has not acknowledged [default: never]
    #[arg(long, value_name = "TIME", requires = "messages", help_heading = MEDIA)]
    message_ttl: Option<TimeSpan>,
    /// Length of the media [default: endless]
    #[arg(long, value_name = "TIME", help_heading = MEDIA)]
    length: Option<TimeSpan>,
    /// Minimum latency
    #[arg(long, value_name = "TIME", default_value = "120ms", help_heading = SERVICE)]
    latency: TimeSpan,
    /// Passphrase that callers need [default: no encryption]
    #[arg(long, value_name = "WORDS", help_heading = SERVICE)]
    passphrase: Option<String>,
    /// Inject a fault; may be repeated: handshake=silent (or unfinished, malformed), reject=2404
    /// (or another code), lose=1% (of first transmissions), lose-again=10% (of retransmissions),
    /// duplicate=1%, reorder=1%, corrupt=1%, stall=5s+1s, stop=5s (no more media), silent=5s (no
    /// packets at all), close=5s
    #[arg(long = "fault", value_name = "FAULT", help_heading = FAULTS)]
    faults: Vec<String>,
}

impl SrtFlags {
    fn messages(&self, source: &SourceConfig) -> Result<Option<MessageSource>, String> {
        let Some(size) = self.messages else {
            return Ok(None);
        };
        config::check_message_size(size).map_err(|text| format!("--messages {text}"))?;
        config::check_messages_source(source)?;
        let ttl = self.message_ttl.map(|TimeSpan(ttl)| ttl);
        if ttl.is_some_and(|ttl| ttl.is_zero()) {
            return Err("--message-ttl must be longer than 0s".to_owned());
        }
        Ok(Some(MessageSource {
            size: usize::try_from(size.0).unwrap_or(usize::MAX),
            bits_per_second: source.generated_bitrate(),
            in_order: !self.unordered,
            ttl,
        }))
    }
}

impl ServerFlags for SrtFlags {
    fn settings(self, seed: u64) -> SettingsResult {
        let faults = ServerFaults::read(&self.faults)?;
        let TimeSpan(latency) = self.latency;
        if latency > Duration::from_millis(config::LATENCY_MAX_MS) {
            let most = config::LATENCY_MAX_MS;
            return Err(format!("--latency is at most {most}ms"));
        }
        let source = SourceConfig {
            bitrate: Some(self.bitrate),
            ..SourceConfig::default()
        };
        let messages = self.messages(&source)?;
        // The error does not quote the passphrase, as that of a parser would.
        let passphrase = self.passphrase.map(Passphrase::new).transpose();
        let passphrase = passphrase.map_err(|error| format!("--passphrase: {error}"))?;
        if messages.is_none() {
            config::check_source(&source)?;
        }
        Ok(Box::new(ServerConfig {
            source,
            messages,
            streams: self.streams,
            length: self.length.map(|TimeSpan(length)| length),
            latency,
            passphrase,
            faults,
            seed,
            ..ServerConfig::default()
        }))
    }
}

impl ServerSettings for ServerConfig {
    fn server(self: Box<Self>, wall_clock: Duration) -> Result<Box<dyn RunningServer>, String> {
        let config = ServerConfig {
            wall_clock,
            ..*self
        };
        Ok(Box::new(Server::new(config)?))
    }
}

impl RunningServer for Server {
    fn catalogue(&self) -> Catalogue {
        CATALOGUE
    }

    fn seed(&self) -> u64 {
        self.0.config.seed
    }

    fn url(&self, address: SocketAddr, _tls: bool) -> String {
        format!("srt://{address}?streamid=stream1")
    }

    fn endpoint(&self, worker: u32) -> Option<Box<dyn session::Endpoint>> {
        Some(Server::endpoint(self, worker))
    }

    fn tally(&self, _clock_monotonic_nanos: i64) -> Box<dyn Tally> {
        Box::new(ServerTotals::default())
    }
}

/// Totals of all connections: the last line of the server's report.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct ServerTotals {
    /// Connections that have ended.
    connections: u64,
    /// Connections that were rejected.
    rejected: u64,
    /// Connections that published.
    published: u64,
    /// First transmissions to players, including those left out on purpose.
    sent: u64,
    /// Retransmissions to players.
    sent_again: u64,
    /// First transmissions and retransmissions left out on purpose.
    left_out: u64,
    /// Packets of publishers that arrived in time.
    received: u64,
    /// Packets of publishers that were given up.
    lost: u64,
    /// Messages sent to players, and messages received whole from publishers.
    messages_sent: u64,
    messages_received: u64,
}

impl ServerTotals {
    fn messages(&self) -> String {
        if self.messages_sent == 0 && self.messages_received == 0 {
            return String::new();
        }
        format!(
            "; {} messages sent, {} received whole",
            count(self.messages_sent as f64),
            count(self.messages_received as f64),
        )
    }
}

impl Tally for ServerTotals {
    fn second(&mut self, _: Second<'_>) -> Option<String> {
        None
    }

    fn session_ended(&mut self, done: Record) -> Option<String> {
        let client = done.downcast::<ServedClient>()?;
        self.connections += 1;
        self.rejected += u64::from(client.rejected.is_some());
        self.published += u64::from(client.published);
        self.sent += client.sent.first;
        self.sent_again += client.sent.again;
        self.left_out += client.wrongs.left_out + client.wrongs.left_out_again;
        if let Some(messages) = &client.messages {
            self.messages_sent += messages.sent.map_or(0, |sent| sent.taken);
            self.messages_received += messages.received.map_or(0, |received| received.whole);
        }
        if let Some(receiver) = &client.receiver {
            self.received += receiver.pkt_recv_unique;
            self.lost += receiver.pkt_rcv_drop;
        }
        Some(to_line(client.as_ref()))
    }

    fn progress(&self) -> String {
        format!(
            "{} ended, {} rejected, {} published: {} packets sent, {} retransmitted, {} \
             left out; {} received, {} lost",
            plural(self.connections as f64, "connection", "connections"),
            count(self.rejected as f64),
            count(self.published as f64),
            count(self.sent as f64),
            count(self.sent_again as f64),
            count(self.left_out as f64),
            count(self.received as f64),
            count(self.lost as f64),
        ) + &self.messages()
    }

    fn result(&self) -> Vec<String> {
        vec![format!("served: {}", self.progress())]
    }

    fn final_line(&self) -> String {
        to_line(&serde_json::json!({ "served": self }))
    }
}

const _: () = assert!(DEFAULT_PORT == 9000);
