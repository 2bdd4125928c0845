//! What can be asked of a load from one line, and of a demonstration.

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use measure::units::{BitRate, TimeSpan};
use protocol::registry::PROTOCOLS;
use scenario::OptionSetting;

use super::protocol_options::ProtocolOptions;
use super::{Results, help, new_seed};

/// The names of the protocols that can be demonstrated.
fn demonstrated() -> Vec<&'static str> {
    let all = PROTOCOLS
        .iter()
        .filter(|one| one.server.is_some_and(|server| server.demo.is_some()));
    all.map(|protocol| protocol.name).collect()
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
    /// How media is received: from packet rings, which also tell when segments of connections came
    /// (ring; needs CAP_NET_RAW), or from sockets alone (sockets); auto is the ring where it can be
    /// had [default: auto]
    #[arg(long, value_name = "PATH", help_heading = help::TESTER, hide_short_help = true)]
    pub(crate) receive: Option<String>,
    /// Receive buffer of each media socket, such as 64KiB [default: 1MiB]
    #[arg(long, value_name = "SIZE", help_heading = help::TESTER, hide_short_help = true)]
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
    #[arg(long, conflicts_with = "tls_ca", help_heading = help::TLS, hide_short_help = true)]
    pub(crate) tls_no_verify: bool,
    /// Trust the certificates of this file (PEM), of authorities or the server's own [default: what
    /// this machine trusts]
    #[arg(long, value_name = "FILE", help_heading = help::TLS, hide_short_help = true)]
    pub(crate) tls_ca: Option<String>,
    /// Name that the certificate must be for [default: the URL's host]
    #[arg(long, value_name = "NAME", help_heading = help::TLS, hide_short_help = true)]
    pub(crate) tls_server_name: Option<String>,
}

impl Securing {
    /// As settings of this population of the scenario, which is where they are checked.
    pub(crate) fn settings(&self, population: &str) -> Vec<OptionSetting> {
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
                key: format!("clients.{population}.tls.{key}"),
                value: value.clone()?,
            })
        })
        .collect()
    }
}

/// Whose traffic is kept.
#[derive(Debug, Args)]
pub(crate) struct Tracing {
    /// Keep all that this client sends and receives in a capture file for Wireshark, beside the run
    /// file: POPULATION/NUMBER, such as viewers/0, or only the number where there is one population
    /// (may be repeated)
    #[arg(long, value_name = "CLIENT", help_heading = help::OUTPUT, hide_short_help = true)]
    pub(crate) trace: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_long_help = help::ENVIRONMENT)]
pub(crate) struct Demo {
    /// Which protocol to show
    #[arg(
        value_parser = PossibleValuesParser::new(demonstrated()),
        default_value = demonstrated()[0]
    )]
    pub(crate) protocol: String,
    /// How many clients [default: 500; srt: 100]
    #[arg(
        short,
        long,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        help_heading = help::LOAD
    )]
    pub(crate) clients: Option<u32>,
    /// Start the clients evenly over this time [default: 2s, or a quarter of a shorter run]
    #[arg(long, value_name = "TIME", help_heading = help::LOAD)]
    pub(crate) ramp: Option<TimeSpan>,
    /// How long to run, ramp included
    #[arg(short, long, value_name = "TIME", default_value = "8s", help_heading = help::LOAD)]
    pub(crate) duration: TimeSpan,
    /// What must hold, such as "viewers.loss < 1%" (may be repeated)
    #[arg(long = "threshold", value_name = "THRESHOLD", help_heading = help::LOAD)]
    pub(crate) thresholds: Vec<String>,
    /// Seed of everything random [default: a new one each time]
    #[arg(long, default_value_t = new_seed(), hide_default_value = true, help_heading = help::LOAD, hide_short_help = true)]
    pub(crate) seed: u64,
    /// How media is carried over RTSP [default: udp]
    #[arg(long, value_enum, help_heading = help::MEDIA)]
    pub(crate) transport: Option<Transport>,
    /// Bit rate of the media of each client [default: 100kbps; rtmp: 200kbps; srt: 500kbps]
    #[arg(long, value_name = "RATE", help_heading = help::MEDIA)]
    pub(crate) bitrate: Option<BitRate>,
    /// Let the server do something wrong, such as loss=1%
    ///
    /// May be repeated. `streamgauge serve rtsp --fault help` lists all faults.
    #[arg(long = "fault", value_name = "FAULT", help_heading = help::MEDIA)]
    pub(crate) faults: Vec<String>,
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
#[command(after_long_help = help::OF_LOAD)]
pub(crate) struct Load {
    /// What to play, such as rtsp://host/clip{1..10}
    ///
    /// {1..10} stands for ten URLs. Each client picks one of all URLs.
    #[arg(required = true, value_name = "URL")]
    pub(crate) urls: Vec<String>,
    /// How many clients [default: 1]
    #[arg(short, long, value_name = "NUMBER", help_heading = help::LOAD)]
    pub(crate) clients: Option<String>,
    /// Start them evenly over this time
    ///
    /// Default: all at once.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["one_every", "arrivals"], help_heading = help::LOAD)]
    pub(crate) ramp: Option<String>,
    /// Start one client every so often
    #[arg(
        long,
        value_name = "TIME",
        conflicts_with = "arrivals",
        help_heading = help::LOAD,
        hide_short_help = true
    )]
    pub(crate) one_every: Option<String>,
    /// Let clients arrive at this rate, such as 5/s
    ///
    /// --clients is then how many there may be at a time.
    #[arg(
        long,
        value_name = "RATE",
        requires = "clients",
        help_heading = help::LOAD,
        hide_short_help = true
    )]
    pub(crate) arrivals: Option<String>,
    /// How long to run [default: until the media ends]
    ///
    /// Counted from the start of the run, ramp included. Clients of messages stay until then,
    /// unless --messages is given.
    #[arg(short, long, value_name = "TIME", help_heading = help::LOAD)]
    pub(crate) duration: Option<String>,
    /// What must hold: "viewers.loss < 1%" (may repeat)
    ///
    /// The population is called `viewers`, and with URLs of messages `senders`.
    /// `streamgauge metrics` lists what can be named, such as "viewers.startup_delay.p95 < 2s".
    #[arg(long = "threshold", value_name = "THRESHOLD", help_heading = help::LOAD)]
    pub(crate) thresholds: Vec<String>,
    /// Launch this known server, and measure it too
    ///
    /// `streamgauge servers` lists those that are known, such as vlc.
    #[arg(long, value_name = "SERVER", help_heading = help::LOAD)]
    pub(crate) launch: Option<String>,
    /// Measure this running server too
    ///
    /// The process must own the port that is tested.
    #[arg(long, value_name = "PID", conflicts_with = "launch", help_heading = help::LOAD)]
    pub(crate) pid: Option<u32>,
    /// Which URL a client picks: random or in_turn [default: random]
    #[arg(long, help_heading = help::LOAD, hide_short_help = true)]
    pub(crate) pick: Option<String>,
    /// End each client after this time, instead of at its media's end
    #[arg(long, value_name = "TIME", help_heading = help::LOAD, hide_short_help = true)]
    pub(crate) leave_after: Option<String>,
    /// Let another client take the place of one that ended
    #[arg(long, help_heading = help::LOAD, hide_short_help = true)]
    pub(crate) rejoin: bool,
    /// Leave this much of the beginning out of every figure and threshold
    #[arg(long, value_name = "TIME", help_heading = help::LOAD, hide_short_help = true)]
    pub(crate) warm_up: Option<String>,
    /// Seed of everything random [default: a new one each time]
    #[arg(long, value_name = "NUMBER", help_heading = help::LOAD, hide_short_help = true)]
    pub(crate) seed: Option<String>,
    /// udp, tcp, http or multicast [default: udp]
    ///
    /// How media is carried with RTSP: RTP over UDP, interleaved in the connection, that tunnelled
    /// over HTTP, or by a multicast group.
    #[arg(long, help_heading = help::MEDIA)]
    pub(crate) transport: Option<String>,
    #[command(flatten)]
    pub(crate) protocol_options: ProtocolOptions,
    #[command(flatten)]
    pub(crate) securing: Securing,
    /// How many threads run clients [default: one for each thousand clients, as far as there are
    /// cores]
    #[arg(long, value_name = "NUMBER", help_heading = help::TESTER, hide_short_help = true)]
    pub(crate) workers: Option<String>,
    #[command(flatten)]
    pub(crate) receiving: Receiving,
    #[command(flatten)]
    pub(crate) tracing: Tracing,
    #[command(flatten)]
    pub(crate) results: Results,
}
