//! The reference server of `serve rtsp`: its flags and its report lines.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use measure::human::{count, plural, seconds};
use measure::units::{BitRate, TimeSpan};
use measure::{Catalogue, Pacing, TESTER_CATALOGUE, Totals};

use super::{AuthScheme, MulticastConfig, Server, ServerConfig, ServerFaults, Transports};
use kit::media::rtp::ServedStream;
use kit::reference::{
    Demo, Flag, FlagValue, Flags, Occurrence, ReferenceServer, RunningServer, Second, Section,
    ServerSettings, Tally, check_parse, common, to_line,
};
use mediagen::frame_rate::FrameRate;
use session::{Record, Session};

pub(crate) static SERVER: ReferenceServer = ReferenceServer {
    title: "reference server",
    about: "RTSP, with H.264 and optional audio over UDP and TCP",
    aliases: &[],
    flags: FLAGS,
    own_descriptor_tables: false,
    read,
    demo: Some(Demo {
        url: "rtsp://127.0.0.1:{port}/demo",
        clients: 500,
        bitrate: "100kbps",
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
        .default("8554"),
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
            "Use TLS (rtsps) on all connections, with the certificate chain of this PEM file, the \
             server's certificate first",
        )
        .requires(&[common::TLS_KEY]),
        Flag::new(
            Listening,
            common::TLS_KEY,
            FlagValue::File,
            "Private key of the certificate (PEM)",
        )
        .requires(&[common::TLS_CERT]),
        Flag::new(
            Media,
            "streams",
            FlagValue::Number("NUMBER", 1, 100_000),
            "Number of streams: /stream1, /stream2 and so on [default: any path is a stream]",
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
            "Frames from one key frame to the next [default: two seconds]",
        ),
        Flag::new(
            Media,
            "length",
            FlagValue::Text("TIME", check_parse::<TimeSpan>),
            "Length of the media [default: endless]",
        ),
        Flag::new(Media, "audio", FlagValue::Nothing, "Add an audio stream"),
        Flag::new(
            Media,
            "mtu",
            FlagValue::Number("BYTES", 100, 65_000),
            "Maximum RTP payload, in bytes",
        )
        .default("1400"),
        Flag::new(
            Service,
            "transports",
            FlagValue::OneOf(
                "TRANSPORTS",
                &[
                    ("any", "As requested by the client"),
                    ("udp", "UDP only"),
                    ("tcp", "Interleaved only"),
                ],
            ),
            "Transports to serve; others are refused with 461",
        )
        .default("any"),
        Flag::new(
            Service,
            "multicast",
            FlagValue::Text("GROUP", check_parse::<IpAddr>),
            "Also serve multicast: each stream is sent once for all clients that request multicast, \
             to a group of its own, counting up from this one. Only for clients with the same IP \
             version. With a group for source-specific multicast, such as 232.1.1.1, the server \
             names itself as the only source [default group: 239.255.42.1]",
        )
        .bare("239.255.42.1"),
        Flag::new(
            Service,
            "multicast-port",
            FlagValue::Number("PORT", 0, 65_535),
            "First port of the groups; must be even",
        )
        .default("5004")
        .requires(&["multicast"]),
        Flag::new(
            Service,
            "multicast-ttl",
            FlagValue::Number("HOPS", 1, 255),
            "TTL of the packets sent to the groups",
        )
        .default("1")
        .requires(&["multicast"]),
        Flag::new(
            Service,
            "allow-destination",
            FlagValue::Text("ADDRESS", check_parse::<IpAddr>),
            "Also send media to this address if a client requests it (may be repeated); any other \
             address than the client's own is refused with 461, because a server that sends to any \
             requested address can be used to attack others",
        )
        .times(Occurrence::Any),
        Flag::new(
            Media,
            "first-seq",
            FlagValue::Number("NUMBER", 0, 65_535),
            "Sequence number of the first packet of each stream [default: random, seeded]",
        ),
        Flag::new(
            Service,
            "session-timeout",
            FlagValue::Text("TIME", check_parse::<TimeSpan>),
            "Session timeout: maximum time without a sign of life from the client",
        )
        .default("60s"),
        Flag::new(
            Service,
            "user",
            FlagValue::any("NAME:PASSWORD"),
            "Require this name and password",
        ),
        Flag::new(
            Service,
            "auth",
            FlagValue::OneOf(
                "AUTH",
                &[
                    ("digest", "Digest with MD5"),
                    ("digest-sha256", "Digest with SHA-256"),
                    ("basic", "Basic: the password in clear text"),
                    ("any", "Any of these"),
                ],
            ),
            "Authentication scheme, with --user",
        )
        .default("digest")
        .requires(&["user"]),
        Flag::new(
            Faults,
            "fault",
            FlagValue::any("FAULT"),
            "Inject a fault, such as loss=1% (may be repeated; an unknown one lists all)",
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
            "Write what was really sent in each stream of each session to this file, as lines of \
             JSON; the last line says how well packets kept their schedule",
        ),
        Flag::new(
            Output,
            "log-packets",
            FlagValue::Nothing,
            "Add every packet that left, with its time, to each line of the report",
        )
        .requires(&[common::REPORT]),
        Flag::new(
            Service,
            common::NO_GSO,
            FlagValue::Nothing,
            "Send each datagram separately, instead of several at once that the kernel segments \
             (GSO), which a capture on the same machine shows as one packet. Costs processor time",
        ),
    ]
};

fn read(flags: &Flags) -> Result<Box<dyn ServerSettings>, String> {
    let (user, password) = match flags.text("user") {
        None => (None, String::new()),
        Some(text) => match text.split_once(':') {
            Some((name, password)) if !name.is_empty() => {
                (Some(name.to_owned()), password.to_owned())
            }
            _ => return Err("--user must be NAME:PASSWORD".to_owned()),
        },
    };
    let mut faults = ServerFaults::default();
    for text in flags.all("fault") {
        faults.add(text)?;
    }
    Ok(Box::new(ServerConfig {
        bitrate: flags.value("bitrate"),
        frame_rate: flags.value("fps"),
        gop: flags.get("gop"),
        audio: flags.has("audio"),
        length: flags.get("length").map(|TimeSpan(length)| length),
        streams: flags.get("streams"),
        mtu: flags.value("mtu"),
        transports: match flags.text("transports") {
            Some("udp") => Transports::Udp,
            Some("tcp") => Transports::Tcp,
            _ => Transports::Any,
        },
        multicast: flags.get("multicast").map(|group| MulticastConfig {
            group,
            port: flags.value("multicast-port"),
            ttl: flags.value("multicast-ttl"),
        }),
        destinations: flags.values("allow-destination"),
        user,
        password,
        auth: match flags.text("auth") {
            Some("digest-sha256") => AuthScheme::DigestSha256,
            Some("basic") => AuthScheme::Basic,
            Some("any") => AuthScheme::Any,
            _ => AuthScheme::Digest,
        },
        session_timeout: flags.value::<TimeSpan>("session-timeout").0,
        seed: flags.value("seed"),
        first_seq: flags.get("first-seq"),
        log_packets: flags.has("log-packets"),
        faults,
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
        match tls {
            true => format!("rtsps://{address}/"),
            false => format!("rtsp://{address}/"),
        }
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

impl StreamTotals {
    fn add(&mut self, stream: &ServedStream) {
        self.streams += 1;
        self.sent += stream.sent;
        self.lost += stream.lost;
        self.duplicated += stream.duplicated;
        self.reordered += stream.reordered;
    }

    fn pacing(&self) -> Pacing {
        Pacing::of(&self.tester)
    }
}

impl Tally for StreamTotals {
    fn second(&mut self, second: Second<'_>) -> Option<String> {
        self.tester.add(second.tester, second.seconds);
        None
    }

    fn session_ended(&mut self, done: Record) -> Option<String> {
        let mut stream = done.downcast::<ServedStream>()?;
        self.add(&stream);
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
        lines.extend(pacing_line(&self.pacing()));
        lines
    }

    fn final_line(&self) -> String {
        to_line(&serde_json::json!({ "pacing": self.pacing() }))
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
