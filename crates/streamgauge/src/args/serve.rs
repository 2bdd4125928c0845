//! What can be asked of reference servers, senders and receivers.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use measure::units::{BitRate, TimeSpan};
use protocol::apart::Ports;
use protocol::media::clip::FrameRate;
use protocol::session::Interface;

use super::messages::ServeMessages;
use super::{DEFAULT_SEED, help};

/// Which transports the reference server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transports {
    /// What the client asks for
    Any,
    /// UDP only
    Udp,
    /// Interleaved only
    Tcp,
}

/// How a client has to show who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Auth {
    /// Digest with MD5
    Digest,
    /// Digest with SHA-256
    DigestSha256,
    /// The password as it is
    Basic,
    /// Any of them
    Any,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Serve {
    /// RTSP, with H.264 and optional audio over UDP and TCP
    Rtsp(Box<ServeRtsp>),
    /// Pass multicast groups on over HTTP: /udp/239.81.0.1:4056, or /rtp/239.81.0.1:4056 where the group has RTP
    HttpTs(Box<ServeHttpTs>),
    /// Messages over TCP, TLS or WebSockets: takes them in, or sends them back, and counts them
    Messages(Box<ServeMessages>),
}

#[derive(Debug, Args)]
pub(crate) struct ServeRtsp {
    /// Port to listen on; 0 for any that is free
    #[arg(long, default_value_t = 8554, help_heading = help::LISTENING)]
    pub(crate) port: u16,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", help_heading = help::LISTENING)]
    pub(crate) listen: Vec<IpAddr>,
    /// Speak TLS (rtsps) on all connections, with the certificates of this file (PEM), the server's own first
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = help::LISTENING)]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = help::LISTENING)]
    pub(crate) tls_key: Option<PathBuf>,
    /// How many streams there are: /stream1, /stream2 and so on [default: any path is a stream]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = help::MEDIA)]
    pub(crate) streams: Option<u32>,
    /// Bit rate of the video
    #[arg(long, value_name = "RATE", default_value = "1Mbps", help_heading = help::MEDIA)]
    pub(crate) bitrate: BitRate,
    /// Pictures of video a second, such as 25 or 30000/1001
    #[arg(long, value_name = "NUMBER", default_value = "25", help_heading = help::MEDIA)]
    pub(crate) fps: FrameRate,
    /// Pictures from one key picture to the next [default: as many as two seconds have]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000), help_heading = help::MEDIA)]
    pub(crate) gop: Option<u32>,
    /// Length of the media [default: endless]
    #[arg(long, value_name = "TIME", help_heading = help::MEDIA)]
    pub(crate) length: Option<TimeSpan>,
    /// Add a stream of audio
    #[arg(long, help_heading = help::MEDIA)]
    pub(crate) audio: bool,
    /// Largest RTP packet, in bytes, headers of IP and UDP not counted
    #[arg(long, value_name = "BYTES", default_value_t = 1400, value_parser = clap::value_parser!(u16).range(100..=65_000), help_heading = help::MEDIA)]
    pub(crate) mtu: u16,
    /// Which transports are served; the other is refused with 461
    #[arg(long, value_enum, default_value = "any", help_heading = help::SERVICE)]
    pub(crate) transports: Transports,
    /// Serve multicast too: each stream is sent once for all clients that ask for it so, to a group of its own, counting up
    /// from this one. It is for clients of the same version of IP; one for source-specific multicast, such as 232.1.1.1,
    /// makes the server name itself as the only source [default group: 239.255.42.1]
    #[arg(long, value_name = "GROUP", num_args = 0..=1, default_missing_value = "239.255.42.1", help_heading = help::SERVICE)]
    pub(crate) multicast: Option<IpAddr>,
    /// First port of the groups, an even one
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 5004,
        requires = "multicast"
    , help_heading = help::SERVICE)]
    pub(crate) multicast_port: u16,
    /// How many hops live the packets that are sent to the groups
    #[arg(long, value_name = "HOPS", default_value_t = 1, requires = "multicast", value_parser = clap::value_parser!(u8).range(1..), help_heading = help::SERVICE)]
    pub(crate) multicast_ttl: u8,
    /// Send media to this address too, where a client asks for it (may be repeated); any other than the client's own is else
    /// refused with 461: a server that sends to wherever it is told can be turned against anybody
    #[arg(long, value_name = "ADDRESS", help_heading = help::SERVICE)]
    pub(crate) allow_destination: Vec<IpAddr>,
    /// Sequence number of the first packet of each stream [default: drawn, seeded]
    #[arg(long, value_name = "NUMBER", help_heading = help::MEDIA)]
    pub(crate) first_seq: Option<u16>,
    /// How long a session lives without a sign of its client
    #[arg(long, value_name = "TIME", default_value = "60s", help_heading = help::SERVICE)]
    pub(crate) session_timeout: TimeSpan,
    /// Ask for a name and a password
    #[arg(long, value_name = "NAME:PASSWORD", help_heading = help::SERVICE)]
    pub(crate) user: Option<String>,
    /// How a client has to show who it is, with --user
    #[arg(long, value_enum, default_value = "digest", requires = "user", help_heading = help::SERVICE)]
    pub(crate) auth: Auth,
    /// Do something wrong on purpose, such as loss=1% (may be repeated; a wrong one names all)
    #[arg(long = "fault", value_name = "FAULT", help_heading = help::FAULTS)]
    pub(crate) faults: Vec<String>,
    /// Seed of everything random
    #[arg(long, default_value_t = DEFAULT_SEED, help_heading = help::FAULTS)]
    pub(crate) seed: u64,
    /// Write what was really done to each stream of each session to this file, as lines of JSON, and as the
    /// last line how well packets were kept to their schedule
    #[arg(long, value_name = "FILE", help_heading = help::OUTPUT)]
    pub(crate) report: Option<PathBuf>,
    /// Add to each line of the report every packet that left, and when
    #[arg(long, requires = "report", help_heading = help::OUTPUT)]
    pub(crate) log_packets: bool,
    /// Send each datagram by itself, not several of a stream in one piece that the kernel cuts: a capture on the
    /// same machine shows such a piece as one packet. Costs processor time
    #[arg(long, help_heading = help::SERVICE)]
    pub(crate) no_gso: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ServeHttpTs {
    /// Addresses to listen on
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1",
        value_delimiter = ','
    , help_heading = help::LISTENING)]
    pub(crate) listen: Vec<IpAddr>,
    /// TCP port to listen on; 0 for a free one
    #[arg(long, default_value_t = 8080, help_heading = help::LISTENING)]
    pub(crate) port: u16,
    /// Interface to join groups by: its name, or an address that it has
    #[arg(long, value_name = "INTERFACE", default_value = "lo", help_heading = help::LISTENING)]
    pub(crate) interface: String,
    /// How many clients are served at a time; who comes beyond gets 503 [default: any number]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..), help_heading = help::SERVICE)]
    pub(crate) max_clients: Option<u32>,
    /// Send bodies in chunks to clients that speak HTTP/1.1
    #[arg(long, help_heading = help::SERVICE)]
    pub(crate) chunked: bool,
    /// Something to do wrong, several times if need be: lose=1%, replace=1% (the datagram before in its place), duplicate=1%,
    /// truncate=1%, slow-start=2s, stall=5s:1s (every 5 s for 1 s), keep-groups (never leaves one), keep-files (leaves sockets open), old-channel=100
    /// (so many datagrams of the group asked for before come first), answer=503 (or html, gzip, endless-head, bad-chunks, redirect, silent, mute)
    #[arg(long = "fault", value_name = "FAULT", help_heading = help::FAULTS)]
    pub(crate) faults: Vec<String>,
    /// Seed of what faults draw
    #[arg(long, default_value_t = 1, help_heading = help::FAULTS)]
    pub(crate) seed: u64,
    /// Write what was done for each connection to this file, as lines of JSON
    #[arg(long, value_name = "FILE", help_heading = help::OUTPUT)]
    pub(crate) report: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// Groups to send to, such as udp://239.81.0.1:4056, or rtp://239.81.0.1:4056 for RTP, or an IPv6 group in brackets; {1..8}
    /// stands for eight of them. One host's address is refused, but for this machine's own (127.0.0.1)
    #[arg(required = true, value_name = "URL")]
    pub(crate) urls: Vec<String>,
    /// Bit rate of each stream: transport packets, stamps included [default: 4Mbps; of a file, its own mean]
    #[arg(short, long, value_name = "RATE")]
    pub(crate) bitrate: Option<BitRate>,
    /// Send this file over and over, MPEG-TS of one piece and up to 512 MiB, in place of a made programme: clock, times and
    /// continuity counters go on from turn to turn, and null packets fill it up
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// How many hops datagrams live: one of 1 stays in this network
    #[arg(long, value_name = "HOPS", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) ttl: u8,
    /// Interface to send by: its name, or an address that it has [default: as this machine's routes have it]
    #[arg(long, value_name = "INTERFACE")]
    pub(crate) interface: Option<String>,
    /// How long [default: until it is stopped]
    #[arg(short, long, value_name = "TIME")]
    pub(crate) duration: Option<TimeSpan>,
    /// Seed of what RTP begins with, and of the number by which stamps tell runs of the source apart [default: the time of day]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Write what was sent to each group to this file, as lines of JSON, and as the last line how well datagrams were kept to
    /// their schedule
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Receive {
    /// Address and port to listen on for a run; clients of its populations are heard at the ports above it, and media is
    /// received at this address
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8560")]
    pub(crate) listen: SocketAddr,
    /// File whose first line is the secret that a run has to know (`media.secret`) [default: one is drawn, and printed]
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
    /// Ports at which media may be received, such as 40000.. or 40000..41999 [default: such as no run here uses]
    #[arg(long, value_name = "PORTS")]
    pub(crate) ports: Option<Ports>,
    /// Most streams at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub(crate) max_streams: u32,
    /// How media is received: auto, ring or sockets
    #[arg(long, value_name = "PATH", default_value = "auto", value_parser = receive_path)]
    pub(crate) receive: scenario::Receive,
}

/// A receive path, as the scenario file names it.
fn receive_path(text: &str) -> Result<scenario::Receive, String> {
    let all = scenario::Receive::ALL;
    let found = all.into_iter().find(|path| path.name() == text);
    found.ok_or_else(|| "it is auto, ring or sockets".to_owned())
}

/// An interface of this machine, by an address that it has or by its name.
pub(crate) fn interface(text: &str) -> Interface {
    match text.parse() {
        Ok(address) => Interface::With(address),
        Err(_) => Interface::Named(text.to_owned()),
    }
}
