//! The reference server of `serve rtsp`: its flags and its report lines.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::value_parser;
use measure::human::{count, plural, seconds};
use measure::units::TimeSpan;
use measure::{Catalogue, Pacing, TESTER_CATALOGUE, Totals};

use super::{AuthScheme, MulticastConfig, Server, ServerConfig, ServerFaults, Transports};
use kit::faults::FaultSet as _;
use kit::media::rtp::ServedStream;
use kit::metrics::CLIENTS;
use kit::reference::heading::{FAULTS, MEDIA, OUTPUT, SERVICE};
use kit::reference::{
    Demo, OwnFlags, Port, ReferenceServer, RunningServer, Second, ServerFlags, ServerSettings,
    SettingsResult, Tally, VideoFlags, to_line,
};
use session::{Record, Session};

pub(crate) static SERVER: ReferenceServer = ReferenceServer {
    title: "reference server",
    about: "RTSP, with H.264 and optional audio over UDP and TCP",
    aliases: &[],
    port: Port {
        help: "Port to listen on; 0 for any free port",
        default: "8554",
        many: false,
    },
    tls: Some("rtsps"),
    max_sessions: "20000",
    report: "Write what was really sent in each stream of each session to this file, as lines of \
             JSON; the last line says how well packets kept their schedule",
    flags: OwnFlags::of::<RtspFlags>(),
    own_descriptor_tables: false,
    demo: Some(Demo {
        url: "rtsp://127.0.0.1:{port}/demo",
        clients: 500,
        bitrate: "100kbps",
    }),
};

/// Flags of `serve rtsp` besides those of every server.
#[derive(Debug, clap::Args)]
struct RtspFlags {
    /// Number of streams: /stream1, /stream2 and so on [default: any path is a stream]
    #[arg(long, value_name = "NUMBER", value_parser = value_parser!(u32).range(1..=100_000))]
    #[arg(help_heading = MEDIA)]
    streams: Option<u32>,
    #[command(flatten)]
    video: VideoFlags,
    /// Length of the media [default: endless]
    #[arg(long, value_name = "TIME", help_heading = MEDIA)]
    length: Option<TimeSpan>,
    /// Add an audio stream
    #[arg(long, help_heading = MEDIA)]
    audio: bool,
    /// Maximum RTP payload, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1400, help_heading = MEDIA)]
    #[arg(value_parser = value_parser!(u16).range(100..=65_000))]
    mtu: u16,
    /// Sequence number of the first packet of each stream [default: random, seeded]
    #[arg(long, value_name = "NUMBER", help_heading = MEDIA)]
    first_seq: Option<u16>,
    /// Transports to serve; others are refused with 461
    #[arg(long, value_enum, value_name = "TRANSPORTS", default_value_t, help_heading = SERVICE)]
    transports: Transports,
    /// Also serve multicast: each stream is sent once for all clients that request multicast, to a
    /// group of its own, counting up from this one. Only for clients with the same IP version. With
    /// a group for source-specific multicast, such as 232.1.1.1, the server names itself as the
    /// only source [default group: 239.255.42.1]
    #[arg(long, value_name = "GROUP", num_args = 0..=1, default_missing_value = "239.255.42.1")]
    #[arg(help_heading = SERVICE)]
    multicast: Option<IpAddr>,
    /// First port of the groups; must be even
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 5004,
        requires = "multicast"
    )]
    #[arg(help_heading = SERVICE)]
    multicast_port: u16,
    /// TTL of the packets sent to the groups
    #[arg(long, value_name = "HOPS", default_value_t = 1, requires = "multicast")]
    #[arg(value_parser = value_parser!(u8).range(1..), help_heading = SERVICE)]
    multicast_ttl: u8,
    /// Also send media to this address if a client requests it (may be repeated); any other address
    /// than the client's own is refused with 461, because a server that sends to any requested
    /// address can be used to attack others
    #[arg(long, value_name = "ADDRESS", help_heading = SERVICE)]
    allow_destination: Vec<IpAddr>,
    /// Session timeout: maximum time without a sign of life from the client
    #[arg(long, value_name = "TIME", default_value = "60s", help_heading = SERVICE)]
    session_timeout: TimeSpan,
    /// Require this name and password
    #[arg(long, value_name = "NAME:PASSWORD", help_heading = SERVICE)]
    user: Option<String>,
    /// Authentication scheme, with --user
    #[arg(
        long,
        value_enum,
        value_name = "AUTH",
        default_value_t,
        requires = "user"
    )]
    #[arg(help_heading = SERVICE)]
    auth: AuthScheme,
    /// Send each datagram separately, instead of several at once that the kernel segments (GSO),
    /// which a capture on the same machine shows as one packet. Costs processor time
    #[arg(long, help_heading = SERVICE)]
    no_gso: bool,
    /// Inject a fault, such as loss=1% (may be repeated; an unknown one lists all)
    #[arg(long = "fault", value_name = "FAULT", help_heading = FAULTS)]
    faults: Vec<String>,
    /// Add every packet that left, with its time, to each line of the report
    #[arg(long, requires = "report", help_heading = OUTPUT)]
    log_packets: bool,
}

/// Splits `NAME:PASSWORD`. The error does not quote the text, which may be a password.
fn credentials(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, password)) if !name.is_empty() => Ok((name.to_owned(), password.to_owned())),
        _ => Err("--user must be NAME:PASSWORD".to_owned()),
    }
}

impl ServerFlags for RtspFlags {
    fn settings(self, seed: u64) -> SettingsResult {
        let faults = ServerFaults::read(&self.faults)?;
        let user = self.user.as_deref().map(credentials).transpose()?;
        let (user, password) = user.unzip();
        Ok(Box::new(ServerConfig {
            bitrate: self.video.bitrate,
            frame_rate: self.video.fps,
            gop: self.video.gop,
            audio: self.audio,
            length: self.length.map(|TimeSpan(length)| length),
            streams: self.streams,
            mtu: usize::from(self.mtu),
            transports: self.transports,
            multicast: self.multicast.map(|group| MulticastConfig {
                group,
                port: self.multicast_port,
                ttl: self.multicast_ttl,
            }),
            destinations: self.allow_destination,
            user,
            password: password.unwrap_or_default(),
            auth: self.auth,
            session_timeout: self.session_timeout.0,
            seed,
            first_seq: self.first_seq,
            log_packets: self.log_packets,
            send_singly: self.no_gso,
            faults,
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
        const { Catalogue(&[&CLIENTS]) }
    }

    fn seed(&self) -> u64 {
        self.config().seed
    }

    fn url(&self, address: SocketAddr, tls: bool) -> String {
        match tls {
            true => format!("rtsps://{address}/"),
            false => format!("rtsp://{address}/"),
        }
    }

    fn sends_singly(&self) -> bool {
        self.config().send_singly
    }

    fn session(&self, number: u64) -> Box<dyn Session> {
        Server::session(self, number)
    }

    fn tally(&self, clock_monotonic_nanos: i64) -> Box<dyn Tally> {
        Box::new(StreamTotals {
            clock_monotonic_nanos,
            tester: Totals::new(TESTER_CATALOGUE),
            streams: 0,
            sent: 0,
            lost: 0,
            duplicated: 0,
            reordered: 0,
        })
    }
}

/// Totals over all streams of the server.
#[derive(Debug)]
struct StreamTotals {
    clock_monotonic_nanos: i64,
    /// Pacing of packets, over all complete windows.
    tester: Totals,
    streams: u64,
    /// Packets sent, first copies only.
    sent: u64,
    /// Packets never sent.
    lost: u64,
    /// Packets sent twice.
    duplicated: u64,
    /// Packets sent out of order.
    reordered: u64,
}

impl Tally for StreamTotals {
    fn second(&mut self, second: Second<'_>) -> Option<String> {
        self.tester.add(second.tester, second.seconds);
        None
    }

    fn session_ended(&mut self, done: Record) -> Option<String> {
        let mut stream = done.downcast::<ServedStream>()?;
        self.streams += 1;
        self.sent += stream.sent;
        self.lost += stream.lost;
        self.duplicated += stream.duplicated;
        self.reordered += stream.reordered;
        stream.clock_monotonic_nanos = self.clock_monotonic_nanos;
        Some(to_line(stream.as_ref()))
    }

    fn progress(&self) -> String {
        format!(
            "{}: {} packets sent, {} not sent, {} duplicated, {} reordered",
            plural(self.streams as f64, "finished stream", "finished streams"),
            count(self.sent as f64),
            count(self.lost as f64),
            count(self.duplicated as f64),
            count(self.reordered as f64),
        )
    }

    fn result(&self) -> Vec<String> {
        let mut lines = vec![format!("served {}", self.progress())];
        lines.extend(pacing_line(&Pacing::of(&self.tester)));
        lines
    }

    fn final_line(&self) -> String {
        to_line(&serde_json::json!({ "pacing": Pacing::of(&self.tester) }))
    }
}

/// Describes how well packets kept their schedule. Returns `None` if there were no packets.
fn pacing_line(pacing: &Pacing) -> Option<String> {
    Some(format!(
        "pacing: half of {} left within {} of their time, 99 % within {}, the latest after {}; \
         {} in bursts, {} refused",
        plural(pacing.packets as f64, "packet", "packets"),
        seconds(pacing.lateness_p50_seconds?),
        seconds(pacing.lateness_p99_seconds?),
        seconds(pacing.lateness_max_seconds?),
        count(pacing.in_bursts as f64),
        count(pacing.refused as f64),
    ))
}
