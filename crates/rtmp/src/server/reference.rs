//! Reference server of `serve rtmp`: its flags and its report.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use measure::Catalogue;
use measure::human::{count, plural};
use measure::units::{BitRate, TimeSpan};
use mediagen::frame_rate::FrameRate;
use serde::Serialize;

use super::{ServedClient, Server, ServerConfig, ServerFaults};
use crate::url::DEFAULT_PORT;
use kit::media::source::SourceConfig;
use kit::reference::{
    Demo, Flag, FlagValue, Flags, Occurrence, ReferenceServer, RunningServer, Second, Section,
    ServerSettings, Tally, check_parse, common, to_line,
};
use session::{Record, Session};

pub(crate) static SERVER: ReferenceServer = ReferenceServer {
    title: "reference server",
    about: "RTMP: plays H.264 and optional AAC under any name, and relays published streams",
    aliases: &[],
    flags: FLAGS,
    own_descriptor_tables: false,
    read,
    demo: Some(Demo {
        url: "rtmp://127.0.0.1:{port}/live/demo",
        clients: 500,
        bitrate: "200kbps",
    }),
};

const FLAGS: &[Flag] = {
    use Section::{Faults, Listening, Media, Output, Service};
    &[
        Flag::new(
            Listening,
            common::PORT,
            FlagValue::Number("PORT", 0, 65_535),
            "Port to listen on; 0 for any free port",
        )
        .default("1935"),
        Flag::new(
            Listening,
            common::LISTEN,
            FlagValue::Text("ADDRESS", check_parse::<IpAddr>),
            "Address to listen on",
        )
        .default("127.0.0.1")
        .times(Occurrence::Any),
        Flag::new(
            Listening,
            common::TLS_CERT,
            FlagValue::File,
            "Use TLS (rtmps) on all connections, with the certificate chain in this file (PEM), the \
             server's own first",
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
             so on [default: any name is a stream]",
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
            "Length of the media [default: endless]",
        ),
        Flag::new(
            Media,
            "audio",
            FlagValue::Nothing,
            "Add audio: AAC silence at 192 kbit/s",
        ),
        Flag::new(
            Service,
            "chunk-size",
            FlagValue::Number("BYTES", 1, 1 << 24),
            "Chunk size of the server",
        )
        .default("4096"),
        Flag::new(
            Faults,
            "fault",
            FlagValue::any("FAULT"),
            "Inject a fault; may be repeated: handshake=silent (or cut, \
             version, echo, digest, repeat), answer=not-found (or silent, invalid-app, rejected, \
             bad-name, close, deep-amf, chunk-size-zero, chunk-size-huge, endless-status, \
             no-media), lose=1% (of frames), malformed=1% (of \
             frames: truncated), stall=5s+1s, skew=200ms (late audio), \
             stop=5s (no further media), close=5s",
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
    let mut faults = ServerFaults::default();
    for text in flags.all("fault") {
        faults.add(text)?;
    }
    Ok(Box::new(ServerConfig {
        source: SourceConfig {
            bitrate: flags.get("bitrate"),
            frame_rate: flags.get("fps"),
            gop: flags.get("gop"),
            audio: Some(flags.has("audio")),
            ..SourceConfig::default()
        },
        streams: flags.get("streams"),
        length: flags.get("length").map(|TimeSpan(length)| length),
        chunk_size: flags.value("chunk-size"),
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
        let scheme = if tls { "rtmps" } else { "rtmp" };
        format!("{scheme}://{address}/live/stream1")
    }

    fn session(&self, number: u64) -> Box<dyn Session> {
        Server::session(self, number)
    }

    fn tally(&self, clock_monotonic_nanos: i64) -> Box<dyn Tally> {
        Box::new(ServerTotals {
            clock_monotonic_nanos,
            ..ServerTotals::default()
        })
    }
}

/// Totals over all connections: the last line of the report.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct ServerTotals {
    /// CLOCK_MONOTONIC when the server's time began.
    #[serde(skip)]
    clock_monotonic_nanos: i64,
    /// Connections that ended.
    connections: u64,
    /// Connections that published.
    published: u64,
    /// Frames sent to playing clients.
    sent_frames: u64,
    /// Frames dropped on purpose.
    left_out: u64,
    /// Frames that players of published streams did not take in time.
    not_taken: u64,
    /// Frames received from publishers.
    received_frames: u64,
}

impl Tally for ServerTotals {
    fn second(&mut self, _: Second<'_>) -> Option<String> {
        None
    }

    fn session_ended(&mut self, done: Record) -> Option<String> {
        let mut client = done.downcast::<ServedClient>()?;
        client.clock_monotonic_nanos = self.clock_monotonic_nanos;
        self.connections += 1;
        self.published += u64::from(client.published);
        self.sent_frames += client.sent.video_frames + client.sent.audio_frames;
        self.left_out += client.sent.left_out;
        self.not_taken += client.sent.not_taken;
        self.received_frames += client.received_frames;
        Some(to_line(client.as_ref()))
    }

    fn progress(&self) -> String {
        format!(
            "{} ended, {} published: {} frames sent, {} left out, {} not taken; {} \
             received",
            plural(self.connections as f64, "connection", "connections"),
            count(self.published as f64),
            count(self.sent_frames as f64),
            count(self.left_out as f64),
            count(self.not_taken as f64),
            count(self.received_frames as f64),
        )
    }

    fn result(&self) -> Vec<String> {
        vec![format!("served: {}", self.progress())]
    }

    fn final_line(&self) -> String {
        to_line(&serde_json::json!({ "served": self }))
    }
}

const _: () = assert!(DEFAULT_PORT == 1935);
