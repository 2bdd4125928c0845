//! Flags, report and status line of `serve webrtc`.

use std::net::SocketAddr;
use std::time::Duration;

use clap::value_parser;
use measure::Catalogue;
use measure::human::{count, plural};
use measure::units::TimeSpan;
use serde::Serialize;

use super::{ListenerCounts, SentCounts, ServedPeer, Server, ServerConfig, ServerFaults};
use kit::faults::FaultSet as _;
use kit::http1::is_value;
use kit::reference::heading::{FAULTS, MEDIA, SERVICE};
use kit::reference::{
    Demo, OwnFlags, Port, ReferenceServer, RunningServer, Second, ServerFlags, ServerSettings,
    SettingsResult, Tally, VideoFlags, to_line,
};
use session::{Record, Session};

pub(crate) static SERVER: ReferenceServer = ReferenceServer {
    title: "reference server",
    about: "WebRTC: plays H.264 or WHIP streams over WHEP; has rooms for clients of Janus",
    aliases: &["whep", "whip", "janus"],
    port: Port {
        help: "Port to listen on: TCP for WHIP, WHEP and rooms, UDP for media; 0 for any free port",
        default: "8889",
        many: false,
    },
    tls: Some("whip+https, whep+https, janus+wss"),
    max_sessions: "60000",
    report: "Write a report on each session to this file, as JSON lines",
    flags: OwnFlags::of::<WebRtcFlags>(),
    own_descriptor_tables: false,
    demo: Some(Demo {
        url: "whep+http://127.0.0.1:{port}/whep/demo",
        clients: 100,
        bitrate: "500kbps",
    }),
};

/// Flags of `serve webrtc` besides those of every server.
#[derive(Debug, clap::Args)]
struct WebRtcFlags {
    /// Number of streams in addition to those that clients publish: stream1, stream2 and so on
    /// [default: every name is a stream]
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u32).range(1..=100_000))]
    #[arg(help_heading = MEDIA)]
    streams: Option<u32>,
    #[command(flatten)]
    video: VideoFlags,
    /// Length of the media; the server then says goodbye (BYE) [default: endless]
    #[arg(long, value_name = "TIME", help_heading = MEDIA)]
    length: Option<TimeSpan>,
    /// Add a G.711 audio stream
    #[arg(long, help_heading = MEDIA)]
    audio: bool,
    /// Token that clients must present (Authorization: Bearer) [default: none]
    #[arg(long, value_name = "TOKEN", help_heading = SERVICE)]
    token: Option<String>,
    /// Maximum number of concurrent sessions; further ones are refused with 503
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000, help_heading = SERVICE)]
    #[arg(value_parser = value_parser!(u16).range(1..=60_000))]
    sessions: u16,
    /// Use transport-wide congestion control: number the packets of each transport, count the
    /// arrivals that players report, and report arrivals to publishers
    #[arg(long, help_heading = SERVICE)]
    transport_cc: bool,
    /// Inject a fault, such as loss=1% (may be repeated; the error for an unknown fault lists all)
    #[arg(long = "fault", value_name = "FAULT", help_heading = FAULTS)]
    faults: Vec<String>,
}

/// Checks a token. The error does not quote it, as that of a parser would.
fn check_token(text: &str) -> Result<(), String> {
    match is_value(text) && !text.is_empty() && !text.contains([' ', '\t']) {
        true => Ok(()),
        false => Err("--token must be one word, without spaces or control characters".to_owned()),
    }
}

impl ServerFlags for WebRtcFlags {
    fn settings(self, seed: u64) -> SettingsResult {
        let faults = ServerFaults::read(&self.faults)?;
        let source = self.video.source(self.audio);
        source.check()?;
        self.token.as_deref().map_or(Ok(()), check_token)?;
        Ok(Box::new(ServerConfig {
            source,
            streams: self.streams,
            length: self.length.map(|TimeSpan(length)| length),
            token: self.token,
            sessions_max: usize::from(self.sessions),
            transport_cc: self.transport_cc,
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
        super::CATALOGUE
    }

    fn seed(&self) -> u64 {
        self.config().seed
    }

    fn url(&self, address: SocketAddr, tls: bool) -> String {
        let secure = if tls { "s" } else { "" };
        format!("whep+http{secure}://{address}/whep/stream1")
    }

    fn session(&self, _number: u64) -> Box<dyn Session> {
        Server::session(self)
    }

    fn endpoint(&self, worker: u32) -> Option<Box<dyn session::Endpoint>> {
        Some(Server::endpoint(self, worker))
    }

    fn accepts_connections(&self) -> bool {
        true
    }

    fn tally(&self, clock_monotonic_nanos: i64) -> Box<dyn Tally> {
        Box::new(PeerTally {
            server: self.clone(),
            clock_monotonic_nanos,
            served: ServedTotals::default(),
        })
    }
}

/// Sums over all sessions: the last line of the report.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct ServedTotals {
    /// Sessions that ended.
    sessions: u64,
    /// Sessions whose PeerConnection was established.
    connected: u64,
    /// Sessions that published.
    published: u64,
    /// Packets sent to players.
    sent: SentCounts,
    /// Packets of publishers that were received, and that were lost.
    received: u64,
    lost: u64,
    /// Counts of requests, and of datagrams that belong to no PeerConnection.
    door: ListenerCounts,
}

/// Adds up the records of sessions.
#[derive(Debug)]
struct PeerTally {
    server: Server,
    clock_monotonic_nanos: i64,
    served: ServedTotals,
}

impl Tally for PeerTally {
    fn second(&mut self, _: Second<'_>) -> Option<String> {
        None
    }

    fn session_ended(&mut self, done: Record) -> Option<String> {
        let mut peer = done.downcast::<ServedPeer>()?;
        let served = &mut self.served;
        served.sessions += 1;
        served.connected += u64::from(peer.connected);
        served.published += u64::from(peer.published);
        if let Some(sent) = peer.sent {
            served.sent.add(sent);
        }
        if let Some(received) = &peer.received {
            served.received += received.received;
            served.lost += received.lost;
        }
        peer.clock_monotonic_nanos = self.clock_monotonic_nanos;
        Some(to_line(peer.as_ref()))
    }

    fn progress(&self) -> String {
        let (served, sent) = (&self.served, &self.served.sent);
        let listener = self.server.listener_counts();
        let count = |number: u64| count(number as f64);
        format!(
            "{}, {} connected, {} of publishers: {} packets sent, {} left out, {} sent twice, \
             {} out of order, {} retransmitted; {} received, {} lost; {} requests, {} refused",
            plural(served.sessions as f64, "session", "sessions"),
            count(served.connected),
            count(served.published),
            count(sent.sent),
            count(sent.left_out),
            count(sent.duplicated),
            count(sent.reordered),
            count(sent.again),
            count(served.received),
            count(served.lost),
            count(listener.requests),
            count(listener.refused),
        )
    }

    fn result(&self) -> Vec<String> {
        vec![format!("served {}", self.progress())]
    }

    fn final_line(&self) -> String {
        let served = ServedTotals {
            door: self.server.listener_counts(),
            ..self.served
        };
        to_line(&serde_json::json!({ "served": served }))
    }
}
