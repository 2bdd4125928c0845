//! The command line: what can be asked, and with what.

mod messages;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use measure::units::{BitRate, TimeSpan};
use protocol::apart::Ports;
use protocol::media::clip::FrameRate;
use protocol::session::Interface;
use scenario::OptionSetting;

pub(crate) use messages::{ByteOrder, MessageMode, Messaging, ServeMessages, unescaped};

/// Measures how much a real-time media server can carry, how well, and where it breaks.
#[derive(Debug, Parser)]
#[command(name = "streamgauge", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
    0  passed
   99  a threshold failed
  104  the scenario, an argument or the launch of the server is wrong
  105  stopped by the user
  110  the measurement is invalid: the tester itself was at its end, or measured the wrong thing; or
       calibrate found that what it measures here is not true
A series ends with the first of 104, 105, 110 and 99 that any of its runs came to.";

/// The seed of a reference server where none is named: always the same, so that what it does is too.
pub(crate) const DEFAULT_SEED: u64 = 1;

/// The seed of a run where none is named: another one each time, which the report names. It is short enough to be
/// typed.
pub(crate) fn new_seed() -> u64 {
    let drawn = RandomState::new().build_hasher().finish();
    drawn & u64::from(u32::MAX)
}

/// What every command takes.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Global {
    /// No progress, and of the summary the verdict and its cause alone
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Every metric and event in the summary
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// No colours, also on a terminal (the environment's NO_COLOR does the same)
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Play clients against an embedded reference server: no set-up at all
    Demo(Box<Demo>),
    /// Play clients against a server: one line, no file
    Load(Box<Load>),
    /// Run a scenario file: once, or once for each of the values under its `vary`, with one table at the end
    Run(Run),
    /// Prove on this machine that what is measured is true: against a reference server with known faults
    Calibrate(Calibrate),
    /// Validate a scenario file, say what it will need and do, and ask the server what its media is; plays nothing
    Check(Check),
    /// Run an embedded reference server, with faults on request
    #[command(subcommand)]
    Serve(Serve),
    /// Send MPEG-TS to multicast groups at a constant bit rate, each datagram stamped, so that receivers can account for all
    Send(Box<Send>),
    /// Receive media on this machine for runs on another, which know a secret, and report back what came
    Receive(Receive),
    /// Report a run again, out of its run file, or a series out of its folder
    Report(Report),
    /// List every metric: name, unit, definition and source
    Metrics(Metrics),
    /// List the servers that a scenario can launch (`server: {launch: NAME}`), and which are installed here
    Servers(Servers),
    /// Print a JSON Schema: of the scenario file, or of the JSON report of a run or a series
    Schema(Schema),
}

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    Rtsp,
}

/// How media is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// RTP over UDP
    Udp,
    /// Interleaved in the connection
    Tcp,
}

impl Transport {
    /// As the scenario file writes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
        }
    }
}

/// How media is received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// UDP, from a packet ring of each worker
    Ring,
    /// UDP, from the clients' sockets
    Sockets,
    /// Interleaved in the connection
    Tcp,
}

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

/// Where results go.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Results {
    /// Write the JSON report to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Where to keep the run; of a series, the folder for its runs [default: streamgauge-NAME-TIME.run in this
    /// folder, or .series]
    #[arg(short, long, value_name = "RUNFILE")]
    pub(crate) out: Option<PathBuf>,
    /// Begin without asking the server what the media of each URL is (its bit rate, length and codecs)
    #[arg(long)]
    pub(crate) no_describe: bool,
}

/// How the tester receives.
#[derive(Debug, Args)]
pub(crate) struct Receiving {
    /// How media is received: from packet rings, which also tell when segments of connections came (ring; needs
    /// CAP_NET_RAW), or from sockets alone (sockets); auto is the ring where it can be had [default: auto]
    #[arg(long, value_name = "PATH")]
    pub(crate) receive: Option<String>,
    /// Receive buffer of each media socket, such as 64KiB [default: 1MiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) receive_buffer: Option<String>,
}

impl Receiving {
    /// As settings of the scenario, which is where they are checked.
    pub(crate) fn settings(&self) -> Vec<OptionSetting> {
        [
            ("--receive", "tester.receive", &self.receive),
            (
                "--receive-buffer",
                "tester.receive_buffer",
                &self.receive_buffer,
            ),
        ]
        .into_iter()
        .filter_map(|(option, key, value)| {
            Some(OptionSetting {
                option: option.to_owned(),
                key: key.to_owned(),
                value: value.clone()?,
            })
        })
        .collect()
    }
}

/// How TLS is spoken, with URLs of rtsps and https.
#[derive(Debug, Args)]
pub(crate) struct Securing {
    /// Take any certificate of the server, even one that has expired or is another's
    #[arg(long, conflicts_with = "tls_ca")]
    pub(crate) tls_no_verify: bool,
    /// Trust the certificates of this file (PEM), of authorities or the server's own [default: what this machine trusts]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<String>,
    /// Name that the certificate must be for [default: the URL's host]
    #[arg(long, value_name = "NAME")]
    pub(crate) tls_server_name: Option<String>,
}

impl Securing {
    /// As settings of the scenario, which is where they are checked.
    pub(crate) fn settings(&self) -> Vec<OptionSetting> {
        let no = self.tls_no_verify.then(|| "false".to_owned());
        [
            ("--tls-no-verify", "verify", &no),
            ("--tls-ca", "ca", &self.tls_ca),
            ("--tls-server-name", "server_name", &self.tls_server_name),
        ]
        .into_iter()
        .filter_map(|(option, key, value)| {
            Some(OptionSetting {
                option: option.to_owned(),
                key: format!("clients.{}.tls.{key}", scenario::ONE_LINER_POPULATION),
                value: value.clone()?,
            })
        })
        .collect()
    }
}

/// Whose traffic is kept.
#[derive(Debug, Args)]
pub(crate) struct Tracing {
    /// Keep all that this client sends and receives in a capture file for Wireshark, beside the run file:
    /// POPULATION/NUMBER, such as viewers/0, or only the number where there is one population (may be repeated)
    #[arg(long, value_name = "CLIENT")]
    pub(crate) trace: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Which protocol to show
    #[arg(value_enum, default_value = "rtsp")]
    pub(crate) protocol: Protocol,
    /// How many clients
    #[arg(short, long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) clients: u32,
    /// How long, from the start of the run, ramp included
    #[arg(short, long, value_name = "TIME", default_value = "8s")]
    pub(crate) duration: TimeSpan,
    /// Let the clients begin evenly over this time
    #[arg(long, value_name = "TIME", default_value = "2s")]
    pub(crate) ramp: TimeSpan,
    /// How media is carried
    #[arg(long, value_enum, default_value = "udp")]
    pub(crate) transport: Transport,
    /// Bit rate of the media of each client
    #[arg(long, value_name = "RATE", default_value = "100kbps")]
    pub(crate) bitrate: BitRate,
    /// Let the server do something wrong, such as loss=1% (may be repeated; see serve rtsp --help)
    #[arg(long = "fault", value_name = "FAULT")]
    pub(crate) faults: Vec<String>,
    /// What must hold, such as "viewers.loss < 1%" (may be repeated)
    #[arg(long = "threshold", value_name = "THRESHOLD")]
    pub(crate) thresholds: Vec<String>,
    /// Seed of everything random [default: a new one each time]
    #[arg(long, default_value_t = new_seed(), hide_default_value = true)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) receiving: Receiving,
    #[command(flatten)]
    pub(crate) tracing: Tracing,
    #[command(flatten)]
    pub(crate) results: Results,
}

/// The times, rates and numbers are read with the scenario that they become part of, and mean what
/// they mean there.
#[derive(Debug, Args)]
pub(crate) struct Load {
    /// What to play; {1..10} stands for ten of them, of which each client picks one
    #[arg(required = true, value_name = "URL")]
    pub(crate) urls: Vec<String>,
    /// How many clients [default: 1]
    #[arg(short, long, value_name = "NUMBER")]
    pub(crate) clients: Option<String>,
    /// Let the clients begin evenly over this time, instead of all at once
    #[arg(long, value_name = "TIME", conflicts_with_all = ["one_every", "arrivals"])]
    pub(crate) ramp: Option<String>,
    /// Let one client begin every so often
    #[arg(long, value_name = "TIME", conflicts_with = "arrivals")]
    pub(crate) one_every: Option<String>,
    /// Let clients arrive at this rate, such as 5/s; --clients is then how many there may be at a time
    #[arg(long, value_name = "RATE", requires = "clients")]
    pub(crate) arrivals: Option<String>,
    /// How long, from the start of the run, ramp included [default: until every client's media has ended]
    #[arg(short, long, value_name = "TIME")]
    pub(crate) duration: Option<String>,
    /// How media is carried: udp, tcp, http (interleaved, and all of it tunnelled over HTTP) or multicast [default: udp]
    #[arg(long)]
    pub(crate) transport: Option<String>,
    /// Which URL a client picks: random or in_turn [default: random]
    #[arg(long)]
    pub(crate) pick: Option<String>,
    /// End each client after this time, instead of at its media's end
    #[arg(long, value_name = "TIME")]
    pub(crate) leave_after: Option<String>,
    /// Let another client take the place of one that ended
    #[arg(long)]
    pub(crate) rejoin: bool,
    /// Leave this much of the beginning out of every figure and threshold
    #[arg(long, value_name = "TIME")]
    pub(crate) warm_up: Option<String>,
    /// What must hold, such as "viewers.startup_delay.p95 < 2s" (may be repeated)
    #[arg(long = "threshold", value_name = "THRESHOLD")]
    pub(crate) thresholds: Vec<String>,
    /// Seed of everything random [default: 1]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<String>,
    /// How many threads run clients [default: one for each thousand clients, as far as there are cores]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) workers: Option<String>,
    /// Watch this process as the server under test: it must own the port that is tested
    #[arg(long, value_name = "PID", conflicts_with = "launch")]
    pub(crate) pid: Option<u32>,
    /// Launch this known server, and measure it, such as vlc
    #[arg(long, value_name = "SERVER")]
    pub(crate) launch: Option<String>,
    #[command(flatten)]
    pub(crate) messaging: Messaging,
    #[command(flatten)]
    pub(crate) securing: Securing,
    #[command(flatten)]
    pub(crate) receiving: Receiving,
    #[command(flatten)]
    pub(crate) tracing: Tracing,
    #[command(flatten)]
    pub(crate) results: Results,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The scenario file (YAML)
    pub(crate) scenario: PathBuf,
    /// Set a key of it, such as clients.viewers.load.clients=500 (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Seed of everything random, in place of the scenario's
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) receiving: Receiving,
    #[command(flatten)]
    pub(crate) tracing: Tracing,
    #[command(flatten)]
    pub(crate) results: Results,
}

#[derive(Debug, Args)]
pub(crate) struct Calibrate {
    /// Shorter trials: some figures are then of fewer packets
    #[arg(long)]
    pub(crate) quick: bool,
    /// Find out only whether figures are true, and not how much this machine can stand for
    #[arg(long)]
    pub(crate) skip_capacity: bool,
    /// Calibrate only this receive path (may be repeated) [default: all that this process can have]
    #[arg(long, value_enum, value_name = "PATH")]
    pub(crate) path: Vec<Way>,
    /// Set a key of the tester to calibrate it as it will be used, such as tester.receive_buffer=64KiB (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Write what was found to this file, as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// The scenario file (YAML)
    pub(crate) scenario: PathBuf,
    /// Set a key of it, such as clients.viewers.load.clients=500 (may be repeated)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Send nothing: do not ask the server what the media of each URL is
    #[arg(long)]
    pub(crate) offline: bool,
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
    #[arg(long, default_value_t = 8554)]
    pub(crate) port: u16,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) listen: Vec<IpAddr>,
    /// Speak TLS (rtsps) on all connections, with the certificates of this file (PEM), the server's own first
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// How many streams there are: /stream1, /stream2 and so on [default: any path is a stream]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) streams: Option<u32>,
    /// Bit rate of the video
    #[arg(long, value_name = "RATE", default_value = "1Mbps")]
    pub(crate) bitrate: BitRate,
    /// Pictures of video a second, such as 25 or 30000/1001
    #[arg(long, value_name = "NUMBER", default_value = "25")]
    pub(crate) fps: FrameRate,
    /// Pictures from one key picture to the next [default: as many as two seconds have]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) gop: Option<u32>,
    /// Length of the media [default: endless]
    #[arg(long, value_name = "TIME")]
    pub(crate) length: Option<TimeSpan>,
    /// Add a stream of audio
    #[arg(long)]
    pub(crate) audio: bool,
    /// Largest RTP packet, in bytes, headers of IP and UDP not counted
    #[arg(long, value_name = "BYTES", default_value_t = 1400, value_parser = clap::value_parser!(u16).range(100..=65_000))]
    pub(crate) mtu: u16,
    /// Which transports are served; the other is refused with 461
    #[arg(long, value_enum, default_value = "any")]
    pub(crate) transports: Transports,
    /// Serve multicast too: each stream is sent once for all clients that ask for it so, to a group of its own, counting up
    /// from this one. It is for clients of the same version of IP; one for source-specific multicast, such as 232.1.1.1,
    /// makes the server name itself as the only source [default group: 239.255.42.1]
    #[arg(long, value_name = "GROUP", num_args = 0..=1, default_missing_value = "239.255.42.1")]
    pub(crate) multicast: Option<IpAddr>,
    /// First port of the groups, an even one
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 5004,
        requires = "multicast"
    )]
    pub(crate) multicast_port: u16,
    /// How many hops live the packets that are sent to the groups
    #[arg(long, value_name = "HOPS", default_value_t = 1, requires = "multicast", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) multicast_ttl: u8,
    /// Send media to this address too, where a client asks for it (may be repeated); any other than the client's own is else
    /// refused with 461: a server that sends to wherever it is told can be turned against anybody
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) allow_destination: Vec<IpAddr>,
    /// Sequence number of the first packet of each stream [default: drawn, seeded]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) first_seq: Option<u16>,
    /// How long a session lives without a sign of its client
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub(crate) session_timeout: TimeSpan,
    /// Ask for a name and a password
    #[arg(long, value_name = "NAME:PASSWORD")]
    pub(crate) user: Option<String>,
    /// How a client has to show who it is, with --user
    #[arg(long, value_enum, default_value = "digest", requires = "user")]
    pub(crate) auth: Auth,
    /// Do something wrong on purpose, such as loss=1% (may be repeated; a wrong one names all)
    #[arg(long = "fault", value_name = "FAULT")]
    pub(crate) faults: Vec<String>,
    /// Seed of everything random
    #[arg(long, default_value_t = DEFAULT_SEED)]
    pub(crate) seed: u64,
    /// Write what was really done to each stream of each session to this file, as lines of JSON, and as the
    /// last line how well packets were kept to their schedule
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Add to each line of the report every packet that left, and when
    #[arg(long, requires = "report")]
    pub(crate) log_packets: bool,
    /// Send each datagram by itself, not several of a stream in one piece that the kernel cuts: a capture on the
    /// same machine shows such a piece as one packet. Costs processor time
    #[arg(long)]
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
    )]
    pub(crate) listen: Vec<IpAddr>,
    /// TCP port to listen on; 0 for a free one
    #[arg(long, default_value_t = 8080)]
    pub(crate) port: u16,
    /// Interface to join groups by: its name, or an address that it has
    #[arg(long, value_name = "INTERFACE", default_value = "lo")]
    pub(crate) interface: String,
    /// How many clients are served at a time; who comes beyond gets 503 [default: any number]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_clients: Option<u32>,
    /// Send bodies in chunks to clients that speak HTTP/1.1
    #[arg(long)]
    pub(crate) chunked: bool,
    /// Something to do wrong, several times if need be: lose=1%, replace=1% (the datagram before in its place), duplicate=1%,
    /// truncate=1%, slow-start=2s, stall=5s:1s (every 5 s for 1 s), keep-groups (never leaves one), keep-files (leaves sockets open), old-channel=100
    /// (so many datagrams of the group asked for before come first), answer=503 (or html, gzip, endless-head, bad-chunks, redirect, silent, mute)
    #[arg(long = "fault", value_name = "FAULT")]
    pub(crate) faults: Vec<String>,
    /// Seed of what faults draw
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Write what was done for each connection to this file, as lines of JSON
    #[arg(long, value_name = "FILE")]
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

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// The run file, or the folder of a series
    pub(crate) run: PathBuf,
    /// Write the JSON report to this file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Metrics {
    /// Only the metrics whose name contains this
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Servers {
    /// Show this one in full: how it is started, its configuration, what to know, what to do where it is missing;
    /// the path of a file of your own checks that
    pub(crate) name: Option<String>,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The file of NAME as it is, to begin one of your own with
    #[arg(long, requires = "name", conflicts_with = "json")]
    pub(crate) yaml: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// Of what
    #[arg(value_enum, default_value = "scenario")]
    pub(crate) of: SchemaOf,
}

/// Of what a schema is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaOf {
    /// The scenario file
    Scenario,
    /// The JSON report of a run
    Report,
    /// The JSON report of a series
    Series,
}

/// An interface of this machine, by an address that it has or by its name.
pub(crate) fn interface(text: &str) -> Interface {
    match text.parse() {
        Ok(address) => Interface::With(address),
        Err(_) => Interface::Named(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn one_liners_are_read() {
        let line = "streamgauge load rtsp://h/a -c 200 --ramp 20s -d 60s --json - -q";
        let cli = Cli::try_parse_from(line.split(' ')).expect("it is a good line");
        let Command::Load(load) = cli.command else {
            panic!("it is a load");
        };
        assert_eq!(load.clients.as_deref(), Some("200"));
        assert_eq!(load.ramp.as_deref(), Some("20s"));
        assert_eq!(load.duration.as_deref(), Some("60s"));
        assert!(cli.global.quiet);
    }

    #[test]
    fn units_are_asked_for() {
        let error = Cli::try_parse_from(["streamgauge", "demo", "-d", "60"]).expect_err("60 what?");
        let text = error.to_string();
        assert!(text.contains("--duration") && text.contains("60"), "{text}");
    }
}
