//! Reference server of `serve hls`: its flags and its report.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{ValueEnum, value_parser};
use kit::mediagen::frame_rate::FrameRate;
use kit::mediagen::segments::Container;
use measure::Catalogue;
use measure::human::{count, plural};
use measure::units::{BitRate, TimeSpan};
use serde::Serialize;

use super::{ServedConnection, Server, ServerConfig, ServerFaults};
use kit::faults::FaultSet as _;
use kit::reference::heading::{FAULTS, MEDIA, SERVICE};
use kit::reference::{
    Demo, OwnFlags, Port, ReferenceServer, RunningServer, Second, ServerFlags, ServerSettings,
    SettingsResult, Tally, to_line,
};
use session::{Record, Session};

pub(crate) static SERVER: ReferenceServer = ReferenceServer {
    title: "reference server",
    about: "HLS: offers H.264 in MPEG-TS or fMP4 under any name, live or recorded, with parts for \
            low latency",
    aliases: &[],
    port: Port {
        help: "Port to listen on; 0 for any free port",
        default: "8088",
        many: false,
    },
    tls: Some("https"),
    max_sessions: "20000",
    report: "Write a report on each connection to this file, as JSON lines",
    flags: OwnFlags::of::<HlsFlags>(),
    own_descriptor_tables: false,
    demo: Some(Demo {
        url: "hls+http://127.0.0.1:{port}/demo/index.m3u8",
        clients: 200,
        bitrate: "500kbps",
    }),
};

/// Format of segments, as a flag.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// MPEG-TS
    Ts,
    /// Fragmented MP4
    Fmp4,
}

/// Flags of `serve hls` besides those of every server.
#[derive(Debug, clap::Args)]
struct HlsFlags {
    /// Bit rate of the video. With variants, that of the best one
    #[arg(long, value_name = "RATE", default_value = "1Mbps", help_heading = MEDIA)]
    bitrate: BitRate,
    /// Frame rate of the video, such as 25 or 30000/1001
    #[arg(long, value_name = "NUMBER", default_value = "25", help_heading = MEDIA)]
    fps: FrameRate,
    /// Frames from one key frame to the next [default: those of a segment]
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u32).range(1..=10_000))]
    #[arg(help_heading = MEDIA)]
    gop: Option<u32>,
    /// Number of variants; each has half the bit rate of the one before
    #[arg(long, value_name = "NUMBER", default_value_t = 1, help_heading = MEDIA)]
    #[arg(value_parser = value_parser!(u32).range(1..=i64::from(super::VARIANTS_MAX)))]
    variants: u32,
    /// Length of the media [default: endless]
    #[arg(long, value_name = "TIME", help_heading = MEDIA)]
    length: Option<TimeSpan>,
    /// Offer recorded media of this --length instead of a live stream
    #[arg(long, requires = "length", help_heading = MEDIA)]
    recorded: bool,
    /// Format of the segments
    #[arg(long, value_name = "FORMAT", default_value = "ts", help_heading = SERVICE)]
    format: Format,
    /// Duration of a segment
    #[arg(long, value_name = "TIME", default_value = "2s", help_heading = SERVICE)]
    segment: TimeSpan,
    /// Duration of a part of a segment: low-latency HLS [default: no parts]
    #[arg(long, value_name = "TIME", conflicts_with = "recorded", help_heading = SERVICE)]
    part: Option<TimeSpan>,
    /// Number of segments in a live playlist
    #[arg(long, value_name = "NUMBER", default_value_t = 10, help_heading = SERVICE)]
    #[arg(value_parser = value_parser!(u64).range(3..=1000))]
    window: u64,
    /// Inject a fault; may be repeated. Of each fifth segment, or part: late=5:1s (the answer),
    /// slow=5:3s (the body takes so long), missing=5 (404), gap=5, discontinuity=5,
    /// wrong-duration=5:1s (the playlist states 1 s more), damaged=5 (not whole), wrong-hint=5.
    /// Others: stale=20s:5s (every 20 s playlists stand still for 5 s), no-wait (no request
    /// waits), answer=404 (or html, redirect, silent)
    #[arg(long = "fault", value_name = "FAULT", help_heading = FAULTS)]
    faults: Vec<String>,
}

impl ServerFlags for HlsFlags {
    fn settings(self, seed: u64) -> SettingsResult {
        Ok(Box::new(ServerConfig {
            bitrate: self.bitrate.0,
            frame_rate: self.fps,
            gop: self.gop,
            segment: self.segment.0,
            part: self.part.map(|TimeSpan(part)| part),
            window: self.window,
            variants: self.variants,
            container: match self.format {
                Format::Ts => Container::MpegTs,
                Format::Fmp4 => Container::FragmentedMp4,
            },
            length: self.length.map(|TimeSpan(length)| length),
            is_recorded: self.recorded,
            faults: ServerFaults::read(&self.faults)?,
            seed,
            wall_clock: Duration::ZERO,
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
        Server::catalogue(self)
    }

    fn seed(&self) -> u64 {
        self.config().seed
    }

    fn url(&self, address: SocketAddr, tls: bool) -> String {
        let scheme = if tls { "https" } else { "http" };
        format!("{scheme}://{address}/live/index.m3u8")
    }

    fn session(&self, number: u64) -> Box<dyn Session> {
        Server::session(self, number)
    }

    fn tally(&self, _clock_monotonic_nanos: i64) -> Box<dyn Tally> {
        Box::new(ServerTotals::default())
    }
}

/// Totals over all connections: the last line of the report.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct ServerTotals {
    /// Connections that ended.
    connections: u64,
    requests: u64,
    playlists: u64,
    segments: u64,
    parts: u64,
    /// Segments and parts that were answered late, slowly, damaged or not at all, on purpose.
    faults: u64,
    /// Requests that were refused for another reason.
    refused: u64,
    /// Responses that clients did not take to their end.
    unfinished: u64,
    /// Body bytes of media.
    bytes: u64,
}

impl Tally for ServerTotals {
    fn second(&mut self, _: Second<'_>) -> Option<String> {
        None
    }

    fn session_ended(&mut self, done: Record) -> Option<String> {
        let served = done.downcast::<ServedConnection>()?;
        self.connections += 1;
        self.requests += served.requests;
        self.playlists += served.playlists;
        self.segments += served.segments;
        self.parts += served.parts;
        self.faults += served.late + served.slow + served.missing + served.damaged;
        self.refused += served.refused;
        self.unfinished += served.unfinished;
        self.bytes += served.bytes;
        Some(to_line(served.as_ref()))
    }

    fn progress(&self) -> String {
        format!(
            "{} ended: {} playlists, {} segments and {} parts sent, {} with a fault; {} refused, \
             {} not taken to their end",
            plural(self.connections as f64, "connection", "connections"),
            count(self.playlists as f64),
            count(self.segments as f64),
            count(self.parts as f64),
            count(self.faults as f64),
            count(self.refused as f64),
            count(self.unfinished as f64),
        )
    }

    fn result(&self) -> Vec<String> {
        vec![format!("served: {}", self.progress())]
    }

    fn final_line(&self) -> String {
        to_line(&serde_json::json!({ "served": self }))
    }
}
