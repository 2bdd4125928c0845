//! The scenario, resolved: plain data, with every default filled in.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use load::Load;
use measure::units::{BitRate, duration, optional_duration};
use measure::{HealthBounds, Time};
use protocol::registry::{ClientConfig, Member, Surroundings};
use protocol::source::{DEFAULT_RATE, Target};
use serde::{Deserialize, Serialize};

use crate::emulated_link::Link;
use crate::group::Group;
use crate::network::Network;
use crate::words::words;

/// The time that sessions get for their clean end, unless the scenario says otherwise: 5 s.
pub const DEFAULT_STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The receive buffer of each media socket, unless the scenario says otherwise: 1 MiB. At 1 Mb/s
/// that is about eight seconds, so that a worker that is busy elsewhere for a moment loses nothing.
pub const DEFAULT_RECEIVE_BUFFER: u64 = 1 << 20;

/// The packet ring of each worker, unless the scenario says otherwise: 8 MiB.
pub const DEFAULT_RING: u64 = 8 << 20;

/// Default time for a launched server to become ready: 30 s. Media servers on a Java VM take 20 s.
pub const DEFAULT_READY_TIMEOUT: Duration = Duration::from_secs(30);

/// What a run is to do. Made by [`Scenario::load`], [`Scenario::parse`] and
/// [`Scenario::from_one_liner`], which fill in every default and refuse what cannot be meant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scenario {
    /// What the run is called in reports.
    pub name: String,
    /// The server under test, where it is ours to launch or to watch.
    pub server: Option<Server>,
    /// The network that clients, sources and the server are in. Default: this machine's own.
    #[serde(skip_serializing_if = "is_own")]
    pub network: Network,
    /// TCP's congestion control in the networks that are made for the run. Default: the kernel's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// The emulated link that clients and server are tied by, but for populations that have their
    /// own. Only in a [`Network::Veth`]. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// What the run sends to multicast groups itself, in the order in which it is written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<MulticastSource>,
    /// The groups of clients, in the order in which they are written. At least one.
    pub populations: Vec<Population>,
    /// The length of the run from its start, ramp included. Without one the run ends when every
    /// population has ended.
    #[serde(with = "optional_duration")]
    pub duration: Option<Duration>,
    /// How much of the beginning is left out of every figure and threshold. Default: nothing.
    #[serde(with = "duration")]
    pub warm_up: Duration,
    /// What must hold, in the order in which it is written.
    pub thresholds: Vec<Threshold>,
    /// What all random choices follow from.
    pub seed: u64,
    /// How long sessions may take for their clean end (TEARDOWN and the like) when the run is
    /// over. Default: [`DEFAULT_STOP_TIMEOUT`].
    #[serde(with = "duration")]
    pub stop_timeout: Duration,
    /// How many threads run clients. Default: what the machine has.
    pub workers: Option<u32>,
    /// How the tester receives, and within which bounds it trusts its figures.
    pub tester: Tester,
    /// What this run of a series sets otherwise than the others, in the order of `vary`. Empty of a
    /// run that is none of a series.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub varied: Vec<Setting>,
}

/// A key of the scenario and what it is set to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The dotted key, such as `clients.viewers.load.clients`.
    pub key: String,
    /// The value in one line, passwords left out; `-` where the key is taken out.
    pub value: String,
}

/// The tester itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tester {
    /// How media over UDP is received. Default: [`Receive::Auto`].
    pub receive: Receive,
    /// The receive buffer asked for each media socket, in bytes. The kernel grants at most
    /// net.core.rmem_max. Default: [`DEFAULT_RECEIVE_BUFFER`].
    pub receive_buffer: u64,
    /// The size of each worker's packet ring, in bytes; four times that where packets are kept
    /// whole, as those of SRT are. Default: [`DEFAULT_RING`].
    pub ring: u64,
    /// Whether workers go before other threads of the machine. Default: [`Priority::Normal`].
    pub priority: Priority,
    /// The bounds past which the measurement is invalid.
    pub health: HealthBounds,
}

impl Default for Tester {
    fn default() -> Tester {
        Tester {
            receive: Receive::default(),
            receive_buffer: DEFAULT_RECEIVE_BUFFER,
            ring: DEFAULT_RING,
            priority: Priority::default(),
            health: HealthBounds::default(),
        }
    }
}

/// How media over UDP is received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Receive {
    /// As is best where nothing is known of the machine: from the clients' own sockets.
    #[default]
    Auto,
    /// From a packet ring of each worker. It needs CAP_NET_RAW; without it the run does not begin.
    Ring,
    /// From the clients' own sockets.
    Sockets,
}

words!(Receive: 3 { Auto = "auto", Ring = "ring", Sockets = "sockets" });

/// How the tester's workers stand among all that wants a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// As everybody.
    #[default]
    Normal,
    /// Before others (a nice value of -10; setpriority(2)). It needs CAP_SYS_NICE; without it the
    /// run does not begin.
    Raised,
}

words!(Priority: 2 { Normal = "normal", Raised = "raised" });

/// A threshold, checked, and where it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Threshold {
    /// The text, such as `viewers.loss < 7%`, which [`measure::threshold::Threshold::parse`] reads.
    pub text: String,
    /// Where it was written, such as `line 12, column 5` or `--threshold`.
    pub origin: String,
    /// How long after its start the run is ended where the threshold does not hold; not at all
    /// where nothing is said. Default: not.
    #[serde(with = "optional_duration", skip_serializing_if = "Option::is_none")]
    pub abort: Option<Duration>,
}

/// When a series ends before its last run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopAt {
    /// Never: every run has its turn (default).
    #[default]
    Never,
    /// After the first run that did not pass: a threshold failed, the measurement is invalid, or it
    /// could not begin.
    Fail,
}

words!(StopAt: 2 { Never = "never", Fail = "fail" });

/// A source: a transport stream, sent to each of some multicast groups for as long as the run
/// lasts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MulticastSource {
    /// Its name, written as a population's.
    pub name: String,
    /// Where to: one stream each. At least one, and none that another source sends to.
    pub to: Vec<Target>,
    /// The bit rate of each stream: of transport packets, stamps included. Default: that of the
    /// file, else [`DEFAULT_RATE`].
    pub bitrate: Option<BitRate>,
    /// The transport stream that is sent over and over. Default: a made programme.
    pub file: Option<PathBuf>,
    /// By which interface it leaves: the name of one, or an address that it has. Default: the
    /// loopback interface; in a [`Network::Veth`] that towards the server.
    pub interface: String,
    /// How many hops datagrams live. Default 1.
    pub ttl: u8,
}

impl MulticastSource {
    /// The bit rate of each stream, as far as the scenario alone tells: that of a file is known
    /// when it is read.
    pub fn rate(&self) -> Option<BitRate> {
        let made = || self.file.is_none().then_some(BitRate(DEFAULT_RATE));
        self.bitrate.or_else(made)
    }

    /// What it is going to send, in words.
    pub(crate) fn line(&self) -> String {
        let what = match &self.file {
            Some(file) => format!("{} over and over", file.display()),
            None => "a made programme".to_owned(),
        };
        let rate = match self.rate() {
            Some(rate) => format!("{rate} each"),
            None => "its own bit rate".to_owned(),
        };
        let to = match self.to.as_slice() {
            [first, .., last] => format!("{first} to {last}, {} groups", self.to.len()),
            one => one.iter().map(Target::to_string).collect(),
        };
        format!(
            "source {}: {what} at {rate} to {to}, by {}, TTL {}",
            self.name, self.interface, self.ttl
        )
    }
}

/// A named group of alike clients.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Population {
    /// Its name: `[a-z][a-z0-9_]*`, and neither `server` nor `tester`.
    pub name: String,
    /// What its clients ask for, `{1..10}` expanded. At least one.
    pub urls: Vec<String>,
    /// Which of the URLs a client asks for.
    pub pick: Pick,
    /// How many clients, and when; whether others take the place of those that end.
    pub load: Load,
    /// When a client leaves.
    pub leave: Leave,
    /// The population whose streams its clients wait for. Default: players wait for streams that
    /// the scenario publishes at the same host and path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Maximum time that a client waits for its stream.
    #[serde(with = "duration")]
    pub wait_for_publisher: Duration,
    /// Time between the publication of a stream and the request of a client that waited for it.
    #[serde(with = "duration")]
    pub join_after: Duration,
    /// The emulated link that its clients have for themselves. Default: they share
    /// [`Scenario::link`], where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// The protocol and its own keys.
    #[serde(serialize_with = "by_protocol")]
    pub config: ClientConfig,
}

/// Which of its population's URLs a client asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// Any, each as likely; chosen by the seed, the slot and the generation.
    #[default]
    Random,
    /// The client in slot `k` the `k`-th, over and over; who takes its place, the next.
    InTurn,
    /// The client in slot `k` the `k`-th, over and over; who takes its place, the same. Usual where
    /// clients publish.
    Own,
}

/// When a client leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leave {
    /// With the run, or before if media of a known length ends. A client fails if the server ends a
    /// stream whose length is not known, because live streams do not end.
    #[default]
    WithRun,
    /// When its media ends, whether its length was known or not, or with the run.
    AtEnd,
    /// That long after its start. If media ends before, it is as with [`Leave::WithRun`].
    After(Duration),
}

impl Leave {
    /// When a client that was due at `due` is to leave, in a run that ends at `run_ends`; `None` if
    /// it leaves whenever its media ends.
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
    /// How there comes to be one.
    pub start: ServerStart,
    /// With [`ServerStart::Launch`]: the network interface that it receives multicast on. Default:
    /// `lo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// With [`ServerStart::Launch`]: the multicast groups it is to relay, for those that must be
    /// told. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
    /// The media that it is to serve, made where it is missing.
    pub clips: Option<Clips>,
    /// How it shows that it is ready. Default: as the catalogue knows, or as soon as it runs.
    pub ready: Option<Ready>,
    /// How long it may take until it is ready. Default: [`DEFAULT_READY_TIMEOUT`].
    #[serde(with = "duration")]
    pub ready_timeout: Duration,
    /// How long it may take to end after it was asked to. Default: [`DEFAULT_STOP_TIMEOUT`].
    #[serde(with = "duration")]
    pub stop_timeout: Duration,
    /// How long it is looked at after the last client has left, for what it gives back: multicast
    /// groups, file descriptors, memory. Default: not.
    #[serde(with = "optional_duration", skip_serializing_if = "Option::is_none")]
    pub linger: Option<Duration>,
    /// Its log, and what is looked for in it.
    pub log: ServerLog,
    /// Environment variables that it gets beside the few that every server gets.
    pub environment: BTreeMap<String, String>,
    /// Whom it runs as, by name or number. Default: a server of the catalogue as its entry says,
    /// any other as streamgauge does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Where it runs. Default: where streamgauge was started.
    pub directory: Option<PathBuf>,
}

/// A server's log, and what is looked for in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServerLog {
    /// The file that it is written to. What a launched server prints is read anyway. Default: none.
    pub file: Option<PathBuf>,
    /// Regular expressions that a line matches if it is worth counting. Default: the usual words
    /// for what went wrong.
    #[serde(rename = "match")]
    pub patterns: Vec<String>,
    /// Regular expressions that a line matches if it is not worth counting, whatever its words.
    /// Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<String>,
}

/// How there comes to be a server.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerStart {
    /// One from the catalogue of known servers.
    Launch {
        /// Its name in the catalogue, such as `vlc`; or the path of a file that is such an entry.
        name: String,
        /// The port that it is to serve on. Default: the catalogue's own.
        port: Option<u16>,
    },
    /// A command of the user's own: the program and its arguments. Never empty.
    Command(Vec<String>),
    /// A process that runs already and is only watched.
    Observe {
        /// Its process number.
        pid: u32,
    },
    /// A server on another machine, of which Prometheus' exporters there tell. One of the two URLs
    /// is there.
    Exporters {
        /// node_exporter's URL: of the machine.
        node: Option<String>,
        /// process-exporter's URL: of the server's processes.
        process: Option<String>,
        /// Which of its groups of processes the server is. Default: the only one.
        group: Option<String>,
    },
}

/// How a server shows that it is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ready {
    /// It listens on that TCP port.
    Port(u16),
    /// It has bound that UDP port.
    Udp(u16),
    /// It writes a line, to either of its outputs, that contains this text.
    Line(String),
    /// It writes a line, to either of its outputs, that matches this regular expression.
    Pattern(String),
}

/// Test media for a server, made with ffmpeg where the files are missing: `clip1.mp4` and so on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Clips {
    /// Where they are. As written relative to the scenario file; here resolved.
    pub directory: PathBuf,
    /// How many. Default: 10.
    pub count: u32,
    /// How long each is. Default: 60 s.
    #[serde(with = "duration")]
    pub length: Duration,
    /// The bit rate of the video. Default: 1 Mb/s.
    pub video: BitRate,
    /// The bit rate of the audio, where there is some. Default: none.
    pub audio: Option<BitRate>,
    /// Frames per second. Default: 25.
    pub frame_rate: u32,
}

impl Population {
    /// The population, as others of its run need to know it.
    pub fn member(&self) -> Member<'_> {
        Member {
            name: &self.name,
            keys: &*self.config,
            urls: &self.urls,
        }
    }

    /// Topics of the streams that a client waits for which asks for `url`; empty if it does not
    /// wait.
    pub fn awaited(&self, surroundings: &Surroundings, url: &str) -> Vec<String> {
        surroundings.awaited(self.member(), self.waits_for.as_deref(), url)
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

/// Whether there is nothing to be said of a network.
fn is_own(network: &Network) -> bool {
    *network == Network::Own
}

/// Writes the configuration as `{PROTOCOL: {KEY: VALUE, ...}}`.
fn by_protocol<S: serde::Serializer>(
    config: &ClientConfig,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map([(config.protocol().name, config)])
}
