//! Flags, report and status line of `serve webrtc`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use measure::Catalogue;
use measure::human::{count, plural};
use measure::units::{BitRate, TimeSpan};
use mediagen::frame_rate::FrameRate;
use serde::Serialize;

use super::{ListenerCounts, SentCounts, ServedPeer, Server, ServerConfig, ServerFaults};
use kit::http1::is_value;
use kit::media::source::SourceConfig;
use kit::reference::{
    Demo, Flag, FlagValue, Flags, Occurrence, ReferenceServer, RunningServer, Second, Section,
    ServerSettings, Tally, check_parse, common, to_line,
};
use session::{Record, Session};

pub(crate) static SERVER: ReferenceServer = ReferenceServer {
    title: "reference server",
    about: "WebRTC: plays H.264 or WHIP streams over WHEP; has rooms for clients of Janus",
    aliases: &["whep", "whip", "janus"],
    flags: FLAGS,
    own_descriptor_tables: false,
    read,
    demo: Some(Demo {
        url: "whep+http://127.0.0.1:{port}/whep/demo",
        clients: 100,
        bitrate: "500kbps",
    }),
};

const FLAGS: &[Flag] = {
    use Section::{Faults, Listening, Media, Output, Service};
    &[
        Flag::new(
            Listening,
            common::PORT,
            FlagValue::Number("PORT", 0, 65_535),
            "Port to listen on: TCP for WHIP, WHEP and rooms, UDP for media; 0 for any free \
             port",
        )
        .default("8889"),
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
            common::TLS_CERT,
            FlagValue::File,
            "Use TLS (whip+https, whep+https, janus+wss) on all connections, with the \
             certificate chain in this file (PEM), the server's own first",
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
            Media,
            "streams",
            FlagValue::Number("NUMBER", 1, 100_000),
            "Number of streams in addition to those that clients publish: stream1, stream2 and \
             so on [default: every name is a stream]",
        ),
        Flag::new(
            Media,
            "bitrate",
            FlagValue::Text("RATE", check_parse::<BitRate>),
            "Bit rate of the video",
        )
        .default("1Mbps"),
        Flag::new(
            Media,
            "fps",
            FlagValue::Text("NUMBER", check_parse::<FrameRate>),
            "Frame rate of the video, such as 25 or 30000/1001",
        )
        .default("25"),
        Flag::new(
            Media,
            "gop",
            FlagValue::Number("NUMBER", 1, 10_000),
            "Frames from one key frame to the next [default: those of two seconds]",
        ),
        Flag::new(
            Media,
            "length",
            FlagValue::Text("TIME", check_parse::<TimeSpan>),
            "Length of the media; the server then says goodbye (BYE) [default: endless]",
        ),
        Flag::new(
            Media,
            "audio",
            FlagValue::Nothing,
            "Add a G.711 audio stream",
        ),
        Flag::new(
            Service,
            "token",
            FlagValue::Text("TOKEN", check_token),
            "Token that clients must present (Authorization: Bearer) [default: none]",
        ),
        Flag::new(
            Service,
            "sessions",
            FlagValue::Number("NUMBER", 1, 60_000),
            "Maximum number of concurrent sessions; further ones are refused with 503",
        )
        .default("10000"),
        Flag::new(
            Service,
            "transport-cc",
            FlagValue::Nothing,
            "Use transport-wide congestion control: number the packets of each transport, count \
             the arrivals that players report, and report arrivals to publishers",
        ),
        Flag::new(
            Faults,
            "fault",
            FlagValue::any("FAULT"),
            "Inject a fault, such as loss=1% (may be repeated; the error for an unknown fault \
             lists all)",
        )
        .times(Occurrence::Any),
        Flag::new(
            Faults,
            "seed",
            FlagValue::Number("SEED", 0, u64::MAX),
            "Seed of everything random",
        )
        .default("1"),
        Flag::new(
            Service,
            common::MAX_SESSIONS,
            FlagValue::Number("NUMBER", 1, 1_000_000),
            common::MAX_SESSIONS_HELP,
        )
        .default("60000"),
        Flag::new(
            Output,
            common::REPORT,
            FlagValue::File,
            "Write a report on each session to this file, as JSON lines",
        ),
    ]
};

fn check_token(text: &str) -> Result<(), String> {
    let plain = is_value(text) && !text.is_empty() && !text.contains([' ', '\t']);
    plain
        .then_some(())
        .ok_or_else(|| "must be one word, without spaces or control characters".to_owned())
}

fn read(flags: &Flags) -> Result<Box<dyn ServerSettings>, String> {
    let mut faults = ServerFaults::default();
    for text in flags.all("fault") {
        faults.add(text)?;
    }
    let source = SourceConfig {
        bitrate: flags.get("bitrate"),
        frame_rate: flags.get("fps"),
        gop: flags.get("gop"),
        audio: Some(flags.has("audio")),
        ..SourceConfig::default()
    };
    source.check()?;
    Ok(Box::new(ServerConfig {
        source,
        streams: flags.get("streams"),
        length: flags.get("length").map(|TimeSpan(length)| length),
        token: flags.text("token").map(str::to_owned),
        sessions_max: flags.value("sessions"),
        transport_cc: flags.has("transport-cc"),
        faults,
        seed: flags.value("seed"),
        ..ServerConfig::default()
    }))
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
        Server::catalogue(self)
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
        if let Some(sent) = &peer.sent {
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
        let ServedTotals {
            sessions,
            connected,
            published,
            sent,
            received,
            lost,
            ..
        } = &self.served;
        format!(
            "{}, {} connected, {} of publishers: {} packets sent, {} left out, {} sent twice, \
             {} out of order, {} retransmitted; {} received, {} lost; {} requests, {} refused",
            plural(*sessions as f64, "session", "sessions"),
            count(*connected as f64),
            count(*published as f64),
            count(sent.sent as f64),
            count(sent.left_out as f64),
            count(sent.duplicated as f64),
            count(sent.reordered as f64),
            count(sent.again as f64),
            count(*received as f64),
            count(*lost as f64),
            count(self.server.listener_counts().requests as f64),
            count(self.server.listener_counts().refused as f64),
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
