//! Options of `load` and `demo`.

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use measure::units::{BitRate, TimeSpan};
use protocols::PROTOCOLS;
use scenario::OptionSetting;

use super::protocol_options::ProtocolOptions;
use super::{Results, RunnerPlacement, help, new_seed};

/// Returns the names of the protocols that can be demonstrated.
fn demo_protocols() -> Vec<&'static str> {
    let all = PROTOCOLS
        .iter()
        .filter(|one| one.server.is_some_and(|server| server.demo.is_some()));
    all.map(|protocol| protocol.name).collect()
}

/// Transport of media.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// RTP over UDP
    Udp,
    /// Interleaved in the connection
    Tcp,
}

impl Transport {
    /// Returns the name that the scenario file uses.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
        }
    }
}

/// Returns the options that have a value as settings of the scenario: each option, its key and its
/// value.
pub(crate) fn given<const N: usize>(
    options: [(&str, &str, &Option<String>); N],
) -> Vec<OptionSetting> {
    let set = options.into_iter().filter_map(|(option, key, value)| {
        let value = value.as_ref()?;
        Some(OptionSetting::new(option, key, value))
    });
    set.collect()
}

/// Options for the tester's receive path.
#[derive(Debug, Args)]
pub(crate) struct ReceiveOptions {
    /// Receive path of media: packet rings, which also time the segments of TCP connections (ring;
    /// needs CAP_NET_RAW), or sockets alone (sockets); auto is the ring if it is available
    /// [default: auto]
    #[arg(long, value_name = "PATH", help_heading = help::TESTER, hide_short_help = true)]
    pub(crate) receive: Option<String>,
    /// Receive buffer of each media socket, such as 64KiB [default: 1MiB]
    #[arg(long, value_name = "SIZE", help_heading = help::TESTER, hide_short_help = true)]
    pub(crate) receive_buffer: Option<String>,
}

impl ReceiveOptions {
    /// Returns them as settings of the scenario, which validates them.
    pub(crate) fn settings(&self) -> Vec<OptionSetting> {
        let buffer = &self.receive_buffer;
        given([
            ("--receive", "tester.receive", &self.receive),
            ("--receive-buffer", "tester.receive_buffer", buffer),
        ])
    }
}

/// Options for TLS.
#[derive(Debug, Args)]
struct TlsOptions {
    /// Accept any certificate of the server, even an expired one or one for another name
    #[arg(long, conflicts_with = "tls_ca", help_heading = help::TLS, hide_short_help = true)]
    pub(crate) tls_no_verify: bool,
    /// Trust the certificates in this file (PEM), of authorities or the server's own [default:
    /// those that this machine trusts]
    #[arg(long, value_name = "FILE", help_heading = help::TLS, hide_short_help = true)]
    pub(crate) tls_ca: Option<String>,
    /// Name that the certificate must be for [default: the URL's host]
    #[arg(long, value_name = "NAME", help_heading = help::TLS, hide_short_help = true)]
    pub(crate) tls_server_name: Option<String>,
}

impl TlsOptions {
    /// Returns them as settings of this population of the scenario, which validates them.
    pub(crate) fn settings(&self, population: &str) -> Vec<OptionSetting> {
        let no = self.tls_no_verify.then(|| "false".to_owned());
        let key = |key: &str| format!("clients.{population}.tls.{key}");
        given([
            ("--tls-no-verify", &key("verify"), &no),
            ("--tls-ca", &key("ca"), &self.tls_ca),
            (
                "--tls-server-name",
                &key("server_name"),
                &self.tls_server_name,
            ),
        ])
    }
}

/// Options for requests.
#[derive(Debug, Args)]
pub(crate) struct RequestOptions {
    /// Add a header field to each request, such as 'X-Device: 7' (may repeat)
    ///
    /// For HTTP, WebSocket, WebRTC and RTSP URLs.
    #[arg(
        short = 'H',
        long = "header",
        value_name = "FIELD",
        help_heading = help::MEDIA,
        hide_short_help = true
    )]
    pub(crate) headers: Vec<String>,
}

/// The server under test.
#[derive(Debug, Args)]
pub(crate) struct ServerOptions {
    /// Launch this known server, and measure it too
    ///
    /// `streamgauge servers` lists the known servers, such as vlc.
    #[arg(long, value_name = "SERVER", help_heading = help::LOAD)]
    launch: Option<String>,
    /// Measure this running server too
    ///
    /// The process must own the port that is tested.
    #[arg(long, value_name = "PID", conflicts_with = "launch", help_heading = help::LOAD)]
    pid: Option<u32>,
}

impl ServerOptions {
    /// Returns them as settings of the scenario, which validates them.
    pub(crate) fn settings(&self) -> Vec<OptionSetting> {
        let pid = self.pid.map(|pid| pid.to_string());
        given([
            ("--launch", "server.launch", &self.launch),
            ("--pid", "server.observe.pid", &pid),
        ])
    }
}

/// Clients whose traffic is captured.
#[derive(Debug, Args)]
pub(crate) struct TraceOptions {
    /// Write all that this client sends and receives to a capture file for Wireshark, next to the
    /// run file: POPULATION/NUMBER, such as viewers/0, or the number alone if there is one
    /// population (may be repeated)
    #[arg(long, value_name = "CLIENT", help_heading = help::OUTPUT, hide_short_help = true)]
    pub(crate) trace: Vec<String>,
}

/// Options of the clients and of the tester that `load` and `capacity` share.
#[derive(Debug, Args)]
pub(crate) struct SharedOptions {
    #[command(flatten)]
    pub(crate) requests: RequestOptions,
    #[command(flatten)]
    protocol_options: ProtocolOptions,
    #[command(flatten)]
    securing: TlsOptions,
    /// Number of threads that run clients [default: one per thousand clients, at most one per core]
    #[arg(long, value_name = "NUMBER", help_heading = help::TESTER, hide_short_help = true)]
    pub(crate) workers: Option<String>,
    #[command(flatten)]
    pub(crate) receiving: ReceiveOptions,
    #[command(flatten)]
    pub(crate) tracing: TraceOptions,
}

impl SharedOptions {
    /// Returns them as settings of this population of the scenario, which validates them.
    pub(crate) fn settings(&self, population: &str) -> Vec<OptionSetting> {
        let settings = [
            self.receiving.settings(),
            self.securing.settings(population),
            self.protocol_options.settings(population),
        ];
        settings.concat()
    }
}

#[derive(Debug, Args)]
#[command(after_long_help = help::ENVIRONMENT)]
pub(crate) struct Demo {
    /// Protocol to demonstrate
    #[arg(
        value_parser = PossibleValuesParser::new(demo_protocols()),
        default_value = demo_protocols()[0]
    )]
    pub(crate) protocol: String,
    /// Number of clients [default: 500; srt: 100]
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
    /// Duration of the run, ramp included
    #[arg(short, long, value_name = "TIME", default_value = "8s", help_heading = help::LOAD)]
    pub(crate) duration: TimeSpan,
    /// Condition that must hold, such as "viewers.loss < 1%" (may be repeated)
    #[arg(long = "threshold", value_name = "THRESHOLD", help_heading = help::LOAD)]
    pub(crate) thresholds: Vec<String>,
    /// Random seed [default: a new one each time]
    #[arg(long, default_value_t = new_seed(), hide_default_value = true, help_heading = help::LOAD, hide_short_help = true)]
    pub(crate) seed: u64,
    /// Transport of media over RTSP [default: udp]
    #[arg(long, value_enum, help_heading = help::MEDIA)]
    pub(crate) transport: Option<Transport>,
    /// Bit rate of the media of each client [default: 100kbps; rtmp: 200kbps; srt: 500kbps]
    #[arg(long, value_name = "RATE", help_heading = help::MEDIA)]
    pub(crate) bitrate: Option<BitRate>,
    /// Let the server inject a fault, such as loss=1%
    ///
    /// May be repeated. `streamgauge serve rtsp --fault help` lists all faults.
    #[arg(long = "fault", value_name = "FAULT", help_heading = help::MEDIA)]
    pub(crate) faults: Vec<String>,
    #[command(flatten)]
    pub(crate) receiving: ReceiveOptions,
    #[command(flatten)]
    pub(crate) tracing: TraceOptions,
    #[command(flatten)]
    pub(crate) runners: RunnerPlacement,
    #[command(flatten)]
    pub(crate) results: Results,
}

/// Times, rates and numbers are parsed together with the scenario that they become part of, and
/// mean the same as there.
#[derive(Debug, Args)]
#[command(after_long_help = help::LOAD_EXAMPLES)]
pub(crate) struct Load {
    /// URL to play, such as rtsp://host/clip{1..10}
    ///
    /// {1..10} stands for ten URLs. Each client picks one of all URLs.
    #[arg(required_unless_present = "publish", value_name = "URL")]
    pub(crate) urls: Vec<String>,
    /// Number of clients [default: 1]
    #[arg(
        short,
        long,
        // Names of the same option in other load testers.
        aliases = ["users", "vus", "connections", "players", "viewers"],
        allow_negative_numbers = true,
        value_name = "NUMBER",
        help_heading = help::LOAD
    )]
    pub(crate) clients: Option<String>,
    /// Start them evenly over this time
    ///
    /// Default: all at once.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["one_every", "arrivals"], help_heading = help::LOAD)]
    pub(crate) ramp: Option<String>,
    /// Start one client per interval
    #[arg(
        long,
        value_name = "TIME",
        conflicts_with = "arrivals",
        help_heading = help::LOAD,
        hide_short_help = true
    )]
    pub(crate) one_every: Option<String>,
    /// Start clients at this rate, such as 5/s
    ///
    /// --clients is then the maximum at a time.
    #[arg(
        long,
        value_name = "RATE",
        requires = "clients",
        help_heading = help::LOAD,
        hide_short_help = true
    )]
    pub(crate) arrivals: Option<String>,
    /// Duration of the run [default: until media ends]
    ///
    /// Counted from the start of the run, ramp included. Message clients stay until then, unless
    /// --messages is given.
    #[arg(short, long, value_name = "TIME", help_heading = help::LOAD)]
    pub(crate) duration: Option<String>,
    /// Must hold: "viewers.loss < 1%" (may repeat)
    ///
    /// The population is called `viewers`, and with message URLs `senders`. `streamgauge metrics`
    /// lists all metrics. Another example: "viewers.startup_delay.p95 < 2s".
    #[arg(long = "threshold", value_name = "THRESHOLD", help_heading = help::LOAD)]
    pub(crate) thresholds: Vec<String>,
    #[command(flatten)]
    pub(crate) server: ServerOptions,
    /// How a client picks its URL: random or in_turn [default: random]
    #[arg(long, help_heading = help::LOAD, hide_short_help = true)]
    pub(crate) pick: Option<String>,
    /// End each client after this time, instead of at the end of its media
    #[arg(long, value_name = "TIME", help_heading = help::LOAD, hide_short_help = true)]
    pub(crate) leave_after: Option<String>,
    /// Start another client in place of each one that ends
    #[arg(long, help_heading = help::LOAD, hide_short_help = true)]
    pub(crate) rejoin: bool,
    /// Exclude this much time at the start from every figure and threshold
    #[arg(long, value_name = "TIME", help_heading = help::LOAD, hide_short_help = true)]
    pub(crate) warm_up: Option<String>,
    /// Random seed [default: a new one each time]
    #[arg(long, value_name = "NUMBER", help_heading = help::LOAD, hide_short_help = true)]
    pub(crate) seed: Option<String>,
    /// udp, tcp, http or multicast [default: udp]
    ///
    /// Transport of media with RTSP: RTP over UDP, interleaved in the connection, interleaved and
    /// tunnelled over HTTP, or by a multicast group.
    #[arg(long, help_heading = help::MEDIA)]
    pub(crate) transport: Option<String>,
    /// Publish FILE or generated media
    ///
    /// Instead of playing, for RTSP, RTMP, SRT and WHIP. Each client needs its own URL:
    /// 'rtsp://host/cam{1..10}' -c 10.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "",
        help_heading = help::MEDIA
    )]
    pub(crate) publish: Option<String>,
    #[command(flatten)]
    pub(crate) shared: SharedOptions,
    #[command(flatten)]
    pub(crate) runners: RunnerPlacement,
    #[command(flatten)]
    pub(crate) results: Results,
}
