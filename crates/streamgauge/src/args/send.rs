//! What can be asked of senders and receivers.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use measure::units::{BitRate, TimeSpan};
use protocol::remote_receiver::Ports;

#[derive(Debug, Args)]
pub(crate) struct Send {
    /// Groups to send to, such as udp://239.81.0.1:4056, or rtp://239.81.0.1:4056 for RTP, or an
    /// IPv6 group in brackets; {1..8} stands for eight of them. One host's address is refused, but
    /// for this machine's own (127.0.0.1)
    #[arg(required = true, value_name = "URL")]
    pub(crate) urls: Vec<String>,
    /// Bit rate of each stream: transport packets, stamps included [default: 4Mbps; of a file, its
    /// own mean]
    #[arg(short, long, value_name = "RATE")]
    pub(crate) bitrate: Option<BitRate>,
    /// Send this file over and over, MPEG-TS of one piece and up to 512 MiB, in place of a made
    /// programme: clock, times and continuity counters go on from turn to turn, and null packets
    /// fill it up
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// How many hops datagrams live: one of 1 stays in this network
    #[arg(long, value_name = "HOPS", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) ttl: u8,
    /// Interface to send by: its name, or an address that it has [default: as this machine's routes
    /// have it]
    #[arg(long, value_name = "INTERFACE")]
    pub(crate) interface: Option<String>,
    /// How long [default: until it is stopped]
    #[arg(short, long, value_name = "TIME")]
    pub(crate) duration: Option<TimeSpan>,
    /// Seed of what RTP begins with, and of the number by which stamps tell runs of the source
    /// apart [default: the time of day]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Write what was sent to each group to this file, as lines of JSON, and as the last line how
    /// well datagrams were kept to their schedule
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Receive {
    /// Address and port to listen on for a run; clients of its populations are heard at the ports
    /// above it, and media is received at this address
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8560")]
    pub(crate) listen: SocketAddr,
    /// File whose first line is the secret that a run has to know (`media.secret`) [default: one is
    /// drawn, and printed]
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: Option<PathBuf>,
    /// Ports at which media may be received, such as 40000.. or 40000..41999 [default: such as no
    /// run here uses]
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
