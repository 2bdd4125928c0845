//! What can be asked of a load from one line, and of a demonstration.

use clap::{Args, ValueEnum};
use measure::units::{BitRate, TimeSpan};
use scenario::OptionSetting;

use super::messages::Messaging;
use super::{Results, new_seed};

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
