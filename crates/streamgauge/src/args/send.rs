//! Options of `send` and `receive`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use kit::remote_receiver::ReceiverPorts;
use measure::units::{BitRate, TimeSpan};

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// Groups to send to, such as udp://239.81.0.1:4056, or rtp://239.81.0.1:4056 for RTP, or an
    /// IPv6 group in brackets; {1..8} expands to eight groups. Unicast addresses are refused,
    /// except this machine's own (127.0.0.1)
    #[arg(required = true, value_name = "URL")]
    pub(crate) urls: Vec<String>,
    /// Bit rate of each stream: transport packets, stamps included [default: 4Mbps; for a file, its
    /// mean rate]
    #[arg(short, long, value_name = "RATE")]
    pub(crate) bitrate: Option<BitRate>,
    /// Send this MPEG-TS file in a loop instead of a generated programme. Its clock must not jump,
    /// and it may have up to 512 MiB. Clock, timestamps and continuity counters continue from loop
    /// to loop, and null packets fill up the bit rate
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Hop limit (TTL) of datagrams; with 1 they stay in this network
    #[arg(long, value_name = "HOPS", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) ttl: u8,
    /// Interface to send from: its name, or an address that it has [default: by this machine's
    /// routes]
    #[arg(long, value_name = "INTERFACE")]
    pub(crate) interface: Option<String>,
    /// Duration [default: until stopped]
    #[arg(short, long, value_name = "TIME")]
    pub(crate) duration: Option<TimeSpan>,
    /// Seed of the initial values of RTP, and of the number in stamps that tells runs of the source
    /// apart [default: the time of day]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Write JSON lines to this file: one for each group with what was sent to it, and a last one
    /// with how well datagrams kept to their schedule
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Receive {
    /// Address and port to listen on for a run. The clients of its populations connect to the ports
    /// above it, and media is received at this address
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8560")]
    pub(crate) listen: SocketAddr,
    /// File whose first line is the secret that a run must know (`media.secret`) [default: a random
    /// one, which is printed]
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
    /// Ports at which media may be received, such as 40000.. or 40000..41999 [default: ports that
    /// no run on this machine uses]
    #[arg(long, value_name = "PORTS")]
    pub(crate) ports: Option<ReceiverPorts>,
    /// Maximum number of streams at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub(crate) max_streams: u32,
    /// Receive path of media: auto, ring or sockets
    #[arg(long, value_name = "PATH", default_value = "auto", value_parser = receive_path)]
    pub(crate) receive: scenario::Receive,
}

/// Parses the name of a receive path, as the scenario file has it.
fn receive_path(text: &str) -> Result<scenario::Receive, String> {
    let all = scenario::Receive::ALL;
    let found = all.into_iter().find(|path| path.name() == text);
    found.ok_or_else(|| "use auto, ring or sockets".to_owned())
}
