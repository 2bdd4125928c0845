//! The resolved scenario: plain data, with all defaults filled in.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use kit::descriptor::{ClientConfig, PopulationView, RunContext};
use kit::source::{DEFAULT_RATE, Destination};
use measure::load::Load;
use measure::units::{BitRate, duration, optional_duration};
use measure::{Catalogue, HealthBounds, Time};
use serde::{Deserialize, Serialize};

use crate::emulated_link::Link;
use crate::group::Group;
use crate::network::Network;
use crate::tree::Tree;
use crate::words::words;

/// Default time for the graceful shutdown of sessions: 5 s.
pub const DEFAULT_STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Default receive buffer of each media socket: 1 MiB. At 1 Mb/s it holds about eight seconds, so
/// that a worker that is busy for a moment loses nothing.
pub const DEFAULT_RECEIVE_BUFFER: u64 = 1 << 20;

/// Default packet ring of each worker: 8 MiB.
pub const DEFAULT_RING: u64 = 8 << 20;

/// Default time for a launched server to become ready: 30 s. Media servers on a Java VM take 20 s.
pub const DEFAULT_READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Plan of a run. Created by [`Scenario::load`], [`Scenario::parse`] and
/// [`Scenario::from_one_liner`], which fill in all defaults and refuse invalid values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scenario {
    /// Name of the run in reports.
    pub name: String,
    /// Server under test, if the run launches or observes it.
    pub server: Option<Server>,
    /// Network of clients, sources and server. Default: this machine's own.
    #[serde(skip_serializing_if = "is_own")]
    pub network: Network,
    /// TCP congestion control in networks created for the run. Default: the kernel's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// Emulated link between the server and all populations without a link of their own. Only in a
    /// [`Network::Veth`]. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// Multicast sources of the run, in the order of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<MulticastSource>,
    /// Populations in the order of the file. At least one.
    pub populations: Vec<Population>,
    /// Length of the run from its start, ramp included. `None`: the run ends when every population
    /// has ended.
    #[serde(with = "optional_duration")]
    pub duration: Option<Duration>,
    /// Time at the beginning that is excluded from all figures and thresholds, except the numbers
    /// of clients and of failures. Default: 0.
    #[serde(with = "duration")]
    pub warm_up: Duration,
    /// True if the delays of clients that start in the warm-up count: in trials of a capacity
    /// search, whose warm-up is the ramp. Default: false.
    #[serde(skip_serializing_if = "is_false")]
    pub starts_in_warm_up: bool,
    /// Thresholds in the order of the file.
    pub thresholds: Vec<Threshold>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Maximum time for the graceful shutdown of sessions (TEARDOWN and the like) at the end of the
    /// run. Default: [`DEFAULT_STOP_TIMEOUT`].
    #[serde(with = "duration")]
    pub stop_timeout: Duration,
    /// Number of worker threads. Default: one for each 1,000 clients, up to the number of cores;
    /// more if one worker's limit of file descriptors is too low.
    pub workers: Option<u32>,
    /// How the tester receives, and its health bounds.
    pub tester: Tester,
    /// Settings that differ from other runs of the series, in the order of `vary`. Empty for a
    /// single run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub varied: Vec<Setting>,
    /// Tree that the scenario was decoded from.
    #[serde(skip)]
    pub(crate) tree: Tree,
}

/// A key of the scenario and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The dotted key, such as `clients.viewers.load.clients`.
    pub key: String,
    /// Value in one line, with masked secrets; `-` if the key is removed.
    pub value: String,
}

/// Settings of the tester.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tester {
    /// How media over UDP is received. Default: [`Receive::Auto`].
    pub receive: Receive,
    /// Receive buffer requested for each media socket, in bytes. The kernel grants at most
    /// net.core.rmem_max. Default: [`DEFAULT_RECEIVE_BUFFER`].
    pub receive_buffer: u64,
    /// Packet ring of each worker, in bytes; four times as large if packets are kept whole, as for
    /// SRT. Default: [`DEFAULT_RING`].
    pub ring: u64,
    /// Scheduling priority of the workers. Default: [`Priority::Normal`].
    pub priority: Priority,
    /// Number of runners that may be lost without making the run invalid. Default: 0.
    pub may_lose: u32,
    /// Bounds beyond which the measurement is invalid.
    pub health: HealthBounds,
}

impl Default for Tester {
    fn default() -> Tester {
        Tester {
            receive: Receive::default(),
            receive_buffer: DEFAULT_RECEIVE_BUFFER,
            ring: DEFAULT_RING,
            priority: Priority::default(),
            may_lose: 0,
            health: HealthBounds::default(),
        }
    }
}

/// How media over UDP is received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Receive {
    /// From a packet ring if it is available and receives no ports of other programs, else from the
    /// clients' own sockets.
    #[default]
    Auto,
    /// From a packet ring of each worker. Needs CAP_NET_RAW; without it the run does not start.
    Ring,
    /// From the clients' own sockets.
    Sockets,
}

words!(Receive: 3 { Auto = "auto", Ring = "ring", Sockets = "sockets" });

/// Scheduling priority of the tester's workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Same priority as other threads.
    #[default]
    Normal,
    /// Higher priority than other threads (nice value -10; setpriority(2)). Needs CAP_SYS_NICE;
    /// without it the run does not start.
    Raised,
}

words!(Priority: 2 { Normal = "normal", Raised = "raised" });

/// A validated threshold and its origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Threshold {
    /// Text, such as `viewers.loss < 7%`, in the syntax of
    /// [`measure::threshold::Threshold::parse`].
    pub text: String,
    /// Origin, such as `vod.yaml:12:5` or `--threshold viewers.loss < 7%`.
    pub origin: String,
    /// Time after the start of the run from which a violation ends it. `None`: a violation does not
    /// end the run. Default: `None`.
    #[serde(with = "optional_duration", skip_serializing_if = "Option::is_none")]
    pub abort: Option<Duration>,
}

/// Condition on which a series ends early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopAt {
    /// Never: all runs take place (default).
    #[default]
    Never,
    /// After the first run that did not pass: a threshold failed, the measurement is invalid, or
    /// the run could not start.
    Fail,
}

words!(StopAt: 2 { Never = "never", Fail = "fail" });

/// A multicast source: a transport stream that is sent to each of its groups for the whole run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MulticastSource {
    /// Name, with the same syntax as that of a population.
    pub name: String,
    /// Targets, one stream each. At least one, and none that another source sends to.
    pub to: Vec<Destination>,
    /// Bit rate of each stream: of transport packets, stamps included. Default: that of the file,
    /// else [`DEFAULT_RATE`].
    pub bitrate: Option<BitRate>,
    /// Transport stream that is sent in a loop. Default: a generated programme.
    pub file: Option<PathBuf>,
    /// Sending interface: its name, or one of its addresses. Default: the loopback interface; in a
    /// [`Network::Veth`] the one towards the server.
    pub interface: String,
    /// Time to live of the datagrams, in hops. Default 1.
    pub ttl: u8,
}

impl MulticastSource {
    /// Returns the bit rate of each stream if the scenario alone determines it. That of a file is
    /// known once the file is read.
    pub fn rate(&self) -> Option<BitRate> {
        let made = || self.file.is_none().then_some(BitRate(DEFAULT_RATE));
        self.bitrate.or_else(made)
    }

    /// Describes the source in one line.
    pub(crate) fn line(&self) -> String {
        let what = match &self.file {
            Some(file) => format!("{} in a loop", file.display()),
            None => "a generated programme".to_owned(),
        };
        let rate = match self.rate() {
            Some(rate) => format!("{rate} each"),
            None => "its own bit rate".to_owned(),
        };
        let to = match self.to.as_slice() {
            [first, .., last] => format!("{first} to {last}, {} groups", self.to.len()),
            one => one.iter().map(Destination::to_string).collect(),
        };
        format!(
            "source {}: {what} at {rate} to {to}, through {}, TTL {}",
            self.name, self.interface, self.ttl
        )
    }
}

/// A named group of clients with the same settings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Population {
    /// Name: `[a-z][a-z0-9_]*`, except `server`, `tester`, `uplink` and `downlink`.
    pub name: String,
    /// URLs of its clients, with `{1..10}` expanded. At least one.
    pub urls: Vec<String>,
    /// Which of the URLs a client requests.
    pub pick: Pick,
    /// Number of clients over time, and whether clients that end are replaced.
    pub load: Load,
    /// Time at which a client leaves.
    pub leave: Leave,
    /// Population whose streams its clients wait for. Default: players wait for streams that the
    /// scenario publishes at the same host and path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Maximum time that a client waits for its stream.
    #[serde(with = "duration")]
    pub wait_for_publisher: Duration,
    /// Time between the publication of a stream and the request of a client that waited for it.
    #[serde(with = "duration")]
    pub join_after: Duration,
    /// Emulated link that its clients have for themselves. Default: they share [`Scenario::link`],
    /// if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// Protocol with its own keys.
    #[serde(serialize_with = "by_protocol")]
    pub config: ClientConfig,
}

/// Which of its population's URLs a client requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// Uniformly random, derived from the seed, the slot and the generation.
    #[default]
    Random,
    /// The client in slot `k` requests the `k`-th URL, modulo their number; its replacement
    /// requests the next one.
    InTurn,
    /// The client in slot `k` requests the `k`-th URL, modulo their number; its replacement
    /// requests the same one. Default for clients that publish.
    Own,
}

/// Time at which a client leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leave {
    /// At the end of the run, or earlier if media of a known length ends. A client fails if the
    /// server ends a stream of unknown length, because live streams do not end.
    #[default]
    WithRun,
    /// At the end of its media, whether the length was known or not, or at the end of the run.
    AtEnd,
    /// This time after its start. An earlier end of the media is treated as for [`Leave::WithRun`].
    After(Duration),
}

impl Leave {
    /// Returns the time at which a client that was due at `due` leaves, in a run that ends at
    /// `run_ends`; `None` if it leaves at the end of its media.
    pub fn due(self, due: Time, run_ends: Time) -> Option<Time> {
        match self {
            Leave::WithRun => Some(run_ends),
            Leave::AtEnd => None,
            Leave::After(stay) => Some(run_ends.min(due + stay)),
        }
    }
}

/// The server under test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Server {
    /// How the server is started or observed.
    pub start: ServerStart,
    /// With [`ServerStart::Launch`]: network interface to receive multicast on. Default: `lo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// With [`ServerStart::Launch`]: multicast groups to relay, for servers that must know them at
    /// their start. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
    /// Test media to serve, generated if missing.
    pub clips: Option<Clips>,
    /// Readiness condition. Default: that of the catalogue, or as soon as the server runs.
    pub ready: Option<Ready>,
    /// Maximum time until it is ready. Default: [`DEFAULT_READY_TIMEOUT`].
    #[serde(with = "duration")]
    pub ready_timeout: Duration,
    /// Maximum time for its shutdown. Default: [`DEFAULT_STOP_TIMEOUT`].
    #[serde(with = "duration")]
    pub stop_timeout: Duration,
    /// Time for which it is observed after the last client has left, to see what it releases:
    /// multicast groups, file descriptors, memory. Default: none.
    #[serde(with = "optional_duration", skip_serializing_if = "Option::is_none")]
    pub linger: Option<Duration>,
    /// Log, and the patterns to search it for.
    pub log: ServerLog,
    /// Environment variables, in addition to the few that every server gets.
    pub environment: BTreeMap<String, String>,
    /// User to run as, by name or number. Default: as the entry of the catalogue says; for any
    /// other server the user of streamgauge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Working directory. Default: that of streamgauge.
    pub directory: Option<PathBuf>,
}

/// A server's log, and the patterns to search it for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServerLog {
    /// Log file. The output of a launched server is read in any case. Default: none.
    pub file: Option<PathBuf>,
    /// Regular expressions: a line that matches one is counted. Default: the usual words for
    /// errors.
    #[serde(rename = "match")]
    pub patterns: Vec<String>,
    /// Regular expressions: a line that matches one is not counted, whatever it contains. Default:
    /// none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<String>,
}

/// How a server is started or observed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerStart {
    /// A server of the catalogue.
    Launch {
        /// Name in the catalogue, such as `vlc`, or path of a server entry.
        name: String,
        /// Port to serve on. Default: that of the catalogue.
        port: Option<u16>,
    },
    /// A custom command: the program and its arguments. Never empty.
    Command(Vec<String>),
    /// A running process that is only observed.
    Observe {
        /// Process ID.
        pid: u32,
    },
    /// A server on another machine, observed through Prometheus exporters there. At least one of
    /// the two URLs is present.
    Exporters {
        /// URL of node_exporter, for the machine.
        node: Option<String>,
        /// URL of process-exporter, for the server's processes.
        process: Option<String>,
        /// Process group of the server in process-exporter. Default: the only one.
        group: Option<String>,
    },
    /// A server on another machine, observed by a runner there.
    Observer {
        /// Name of the runner.
        runner: String,
    },
}

impl ServerStart {
    /// Returns `true` if the run only observes the server.
    pub fn is_observed(&self) -> bool {
        !matches!(self, ServerStart::Launch { .. } | ServerStart::Command(_))
    }
}

/// Readiness condition of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ready {
    /// It listens on this TCP port.
    Port(u16),
    /// It has bound this UDP port.
    Udp(u16),
    /// It prints a line that contains this text, on stdout or stderr.
    Line(String),
    /// It prints a line that matches this regular expression, on stdout or stderr.
    Pattern(String),
}

/// Test media for a server: `clip1.mp4` and so on, generated with ffmpeg if missing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Clips {
    /// Folder of the clips. In a file it is relative to the scenario; here it is resolved.
    pub directory: PathBuf,
    /// Number of clips. Default: 10.
    pub count: u32,
    /// Length of each clip. Default: 60 s.
    #[serde(with = "duration")]
    pub length: Duration,
    /// Bit rate of the video. Default: 1 Mb/s.
    pub video: BitRate,
    /// Bit rate of the audio; `None`: no audio. Default: none.
    pub audio: Option<BitRate>,
    /// Frames per second. Default: 25.
    pub frame_rate: u32,
}

impl Population {
    /// Returns its name and its metrics, for thresholds.
    pub(crate) fn subject(&self) -> (&str, Catalogue) {
        (&self.name, self.config.protocol().catalogue)
    }

    /// Returns what other populations of the run need to know.
    pub fn member(&self) -> PopulationView<'_> {
        PopulationView {
            name: &self.name,
            keys: &*self.config,
            urls: &self.urls,
        }
    }

    /// Returns the topics of the streams that a client of `url` waits for; empty if it does not
    /// wait.
    pub fn awaited(&self, context: &RunContext, url: &str) -> Vec<String> {
        context.awaited(self.member(), self.waits_for.as_deref(), url)
    }
}

impl Serialize for Leave {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Leave::WithRun => serializer.serialize_str("with_run"),
            Leave::AtEnd => serializer.serialize_str("at_end"),
            Leave::After(time) => {
                serializer.collect_str(&format_args!("after: {}", measure::units::TimeSpan(*time)))
            }
        }
    }
}

/// Returns `true` for the default, which is not serialized.
fn is_false(value: &bool) -> bool {
    !value
}

/// Returns `true` for the default, which is not serialized.
fn is_own(network: &Network) -> bool {
    *network == Network::Own
}

/// Serializes the configuration as `{PROTOCOL: {KEY: VALUE, ...}}`.
fn by_protocol<S: serde::Serializer>(
    config: &ClientConfig,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map([(config.protocol().name, config)])
}
