//! Reference server of `serve rtmp`: its flags and its report.

use std::net::SocketAddr;
use std::time::Duration;

use clap::value_parser;
use measure::Catalogue;
use measure::human::{count, plural};
use measure::tester::LAG;
use measure::units::TimeSpan;
use serde::Serialize;

use super::{CATALOGUE, ServedClient, Server, ServerConfig, ServerFaults};
use crate::url::DEFAULT_PORT;
use kit::faults::FaultSet as _;
use kit::reference::heading::{FAULTS, MEDIA, SERVICE};
use kit::reference::{
    Demo, OwnFlags, Port, ReferenceServer, RunningServer, Second, ServerFlags, ServerSettings,
    SettingsResult, Tally, VideoFlags, to_line,
};
use session::{Record, Session};

pub(crate) static SERVER: ReferenceServer = ReferenceServer {
    title: "reference server",
    about: "RTMP: plays H.264 and optional AAC under any name, and relays published streams",
    aliases: &[],
    port: Port {
        help: "Port to listen on; 0 for any free port",
        default: "1935",
        many: false,
    },
    tls: Some("rtmps"),
    max_sessions: "20000",
    report: "Write a report on each connection to this file, as JSON lines",
    flags: OwnFlags::of::<RtmpFlags>(),
    own_descriptor_tables: false,
    demo: Some(Demo {
        url: "rtmp://127.0.0.1:{port}/live/demo",
        clients: 500,
        bitrate: "200kbps",
    }),
};

/// Flags of `serve rtmp` besides those of every server.
#[derive(Debug, clap::Args)]
struct RtmpFlags {
    /// Number of streams in addition to those that clients publish: stream1, stream2 and so on
    /// [default: any name is a stream]
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u32).range(1..=100_000))]
    #[arg(help_heading = MEDIA)]
    streams: Option<u32>,
    #[command(flatten)]
    video: VideoFlags,
    /// Length of the media [default: endless]
    #[arg(long, value_name = "TIME", help_heading = MEDIA)]
    length: Option<TimeSpan>,
    /// Add audio: AAC silence at 192 kbit/s
    #[arg(long, help_heading = MEDIA)]
    audio: bool,
    /// Chunk size of the server
    #[arg(long, value_name = "BYTES", default_value_t = 4096, help_heading = SERVICE)]
    #[arg(value_parser = value_parser!(u32).range(1..=1 << 24))]
    chunk_size: u32,
    /// Inject a fault; may be repeated: handshake=silent (or cut, version, echo, digest, repeat),
    /// answer=not-found (or silent, invalid-app, rejected, bad-name, close, deep-amf,
    /// chunk-size-zero, chunk-size-huge, endless-status, no-media), lose=1% (of frames),
    /// malformed=1% (of frames: truncated), stall=5s+1s, skew=200ms (late audio), stop=5s (no
    /// further media), close=5s
    #[arg(long = "fault", value_name = "FAULT", help_heading = FAULTS)]
    faults: Vec<String>,
}

impl ServerFlags for RtmpFlags {
    fn settings(self, seed: u64) -> SettingsResult {
        let faults = ServerFaults::read(&self.faults)?;
        Ok(Box::new(ServerConfig {
            source: self.video.source(self.audio),
            streams: self.streams,
            length: self.length.map(|TimeSpan(length)| length),
            chunk_size: self.chunk_size,
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
    /// Longest time for which a worker stood still.
    longest_lag_nanos: u64,
}

impl Tally for ServerTotals {
    fn second(&mut self, second: Second<'_>) -> Option<String> {
        let lag = second.tester.histograms.get(&LAG).map_or(0, |lag| lag.max);
        self.longest_lag_nanos = self.longest_lag_nanos.max(lag);
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
