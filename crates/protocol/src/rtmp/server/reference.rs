//! Reference server of `serve rtmp`: its flags and its report.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use measure::Catalogue;
use measure::human::{count, plural};
use measure::units::{BitRate, TimeSpan};
use mediagen::frame_rate::FrameRate;
use serde::Serialize;

use super::{ServedClient, Server, ServerConfig, ServerFaults};
use crate::media::source::SourceConfig;
use crate::reference::{
    Demo, Flag, Flags, ReferenceServer, Second, Section, Serve, Settings, Takes, Tally, Times,
    common, line, parses,
};
use crate::rtmp::url::DEFAULT_PORT;
use crate::session::{Record, Session};

pub(crate) static SERVER: ReferenceServer = ReferenceServer {
    title: "reference server",
    about: "RTMP: plays H.264 and optional AAC under any name, and relays published streams",
    flags: FLAGS,
    own_files: false,
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
            Takes::Number("PORT", 0, 65_535),
            "Port to listen on; 0 for any free port",
        )
        .default("1935"),
        Flag::new(
            Listening,
            common::LISTEN,
            Takes::Text("ADDRESS", parses::<IpAddr>),
            "Address to listen on",
        )
        .default("127.0.0.1")
        .times(Times::Any),
        Flag::new(
            Listening,
            common::TLS_CERT,
            Takes::File,
            "Use TLS (rtmps) on all connections, with the certificate chain in this file (PEM), the \
             server's own first",
        )
        .requires(&[common::TLS_KEY]),
        Flag::new(
            Listening,
            common::TLS_KEY,
            Takes::File,
            "Private key of that certificate (PEM)",
        )
        .requires(&[common::TLS_CERT]),
        Flag::new(
            Media,
            "streams",
            Takes::Number("NUMBER", 1, 100_000),
            "Number of streams in addition to those that clients publish: stream1, stream2 and \
             so on [default: any name is a stream]",
        ),
        Flag::new(
            Media,
            "bitrate",
            Takes::Text("RATE", parses::<BitRate>),
            "Bit rate of the video",
        )
        .default("1Mbps"),
        Flag::new(
            Media,
            "fps",
            Takes::Text("NUMBER", parses::<FrameRate>),
            "Frame rate of the video, such as 25 or 30000/1001",
        )
        .default("25"),
        Flag::new(
            Media,
            "gop",
            Takes::Number("NUMBER", 1, 10_000),
            "Frames from one key frame to the next [default: those of two seconds]",
        ),
        Flag::new(
            Media,
            "length",
            Takes::Text("TIME", parses::<TimeSpan>),
            "Length of the media [default: endless]",
        ),
        Flag::new(
            Media,
            "audio",
            Takes::Nothing,
            "Add audio: AAC silence at 192 kb/s",
        ),
        Flag::new(
            Service,
            "chunk-size",
            Takes::Number("BYTES", 1, 1 << 24),
            "Chunk size of the server",
        )
        .default("4096"),
        Flag::new(
            Faults,
            "fault",
            Takes::any("FAULT"),
            "Inject a fault; may be repeated: handshake=silent (or cut, \
             version, echo, digest, repeat), answer=not-found (or silent, invalid-app, rejected, \
             bad-name, close, deep-amf, chunk-size-zero, chunk-size-huge, endless-status, \
             no-media), lose=1% (of frames), malformed=1% (of \
             frames: truncated), stall=5s+1s, skew=200ms (late audio), \
             stop=5s (no further media), close=5s",
        )
        .times(Times::Any),
        Flag::new(
            Faults,
            "seed",
            Takes::Number("SEED", 0, u64::MAX),
            "Seed of everything random",
        )
        .default("1"),
        Flag::new(
            Service,
            common::MAX_SESSIONS,
            Takes::Number("NUMBER", 1, 1_000_000),
            common::MAX_SESSIONS_HELP,
        )
        .default("20000"),
        Flag::new(
            Output,
            common::REPORT,
            Takes::File,
            "Write a report on each connection to this file, as JSON lines",
        ),
    ]
};

fn read(flags: &Flags) -> Result<Box<dyn Settings>, String> {
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

impl Settings for ServerConfig {
    fn server(self: Box<Self>, wall_clock: Duration) -> Result<Box<dyn Serve>, String> {
        let config = ServerConfig {
            wall_clock,
            ..*self
        };
        Ok(Box::new(Server::new(config)?))
    }
}

impl Serve for Server {
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
        Box::new(Served {
            clock_monotonic_nanos,
            ..Served::default()
        })
    }
}

/// Totals over all connections: the last line of the report.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Served {
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

impl Tally for Served {
    fn second(&mut self, _: Second<'_>) -> Option<String> {
        None
    }

    fn done(&mut self, done: Record) -> Option<String> {
        let mut client = done.take::<ServedClient>()?;
        client.clock_monotonic_nanos = self.clock_monotonic_nanos;
        self.connections += 1;
        self.published += u64::from(client.published);
        self.sent_frames += client.sent.video_frames + client.sent.audio_frames;
        self.left_out += client.sent.left_out;
        self.not_taken += client.sent.not_taken;
        self.received_frames += client.received_frames;
        Some(line(client.as_ref()))
    }

    fn so_far(&self) -> String {
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

    fn at_the_end(&self) -> Vec<String> {
        vec![format!("served: {}", self.so_far())]
    }

    fn last_line(&self) -> String {
        line(&serde_json::json!({ "served": self }))
    }
}

const _: () = assert!(DEFAULT_PORT == 1935);
