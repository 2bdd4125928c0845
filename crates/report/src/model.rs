//! Report model: plain figures from the run file, ready to be displayed or written.
//!
//! The fields of these types, as serialized by serde, are the JSON report.
//! `schema/report.schema.json` is generated from them.

use std::path::PathBuf;

use measure::media::Media;
use measure::server::{GivenBack, ServerLog};
use measure::tester::{RunnerSummary, WorkerFigures};
use measure::{Build, Catalogue, ClockError, Finding, Unit, Verdict};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::Serializer;

use crate::delay_error::{MARK, marked};
use crate::human::figure;
use crate::limits::Limit;
use crate::loss::WhereLost;
use crate::metrics::{MetricFigures, Metrics};

/// Version of the JSON report. It increases when a key is removed or changes its meaning, but not
/// when a key is added.
pub const SCHEMA_VERSION: u32 = 1;

/// Report of one run. Units are those of the SI: seconds, bit/s, bytes, shares from 0 to 1.
#[derive(Clone, Debug, serde::Serialize, JsonSchema)]
pub struct Report {
    /// Version of this format. It increases when a key is removed or changes its meaning.
    pub schema_version: u32,
    /// Version of streamgauge that made the run.
    pub streamgauge: String,
    /// Source and platform of that version; null in a run file of an older streamgauge.
    pub build: Option<Build>,
    /// Identity and duration of the run.
    pub run: Run,
    /// Verdict of the run.
    pub verdict: Verdict,
    /// Thresholds of the run, in the order of the scenario.
    pub thresholds: Vec<Threshold>,
    /// Figures of each population by name, in the order of the scenario.
    #[serde(serialize_with = "population_map")]
    #[schemars(schema_with = "populations_schema")]
    pub populations: Vec<Population>,
    /// Descriptions of the servers' media before the run; empty if the servers were not queried.
    pub media: Media,
    /// Figures of each direction of an emulated link by name: `uplink`, `downlink`, prefixed with
    /// the name of a population if it has its own link. Empty without a link.
    #[serde(serialize_with = "link_map")]
    #[schemars(schema_with = "links_schema")]
    pub links: Vec<Link>,
    /// Datagrams that the run itself sent to multicast groups; null if it sent none or was cut off.
    pub sources: Option<measure::Sources>,
    /// Resource usage of the server under test; null if no server was observed.
    #[schemars(schema_with = "server_schema")]
    pub server: Option<Metrics>,
    /// Complaints in the server's log; empty if there were none or the log was not read.
    pub server_log: ServerLog,
    /// Resources that the server released after the last client had left; null without
    /// `server.linger` in the scenario, or if the server ended or the user stopped the run before.
    pub server_gave_back: Option<GivenBack>,
    /// Limits of the server that the windows show; empty if none was observed.
    pub server_limits: Vec<Limit>,
    /// Processor time of the server per acknowledged message, in seconds, without the warm-up. Null
    /// if no server was observed, no message was acknowledged, or clients do anything else as well.
    pub cpu_per_message: Option<f64>,
    /// Resource usage and losses of the tester.
    #[schemars(schema_with = "tester_schema")]
    pub tester: Tester,
    /// Runners of a run over several machines, in their order; empty if one process played all
    /// clients.
    pub runners: Vec<RunnerSummary>,
    /// Events of the run, oldest first; at most 10,000 events.
    pub events: Vec<Event>,
    /// Path of the run file.
    #[serde(skip)]
    pub path: PathBuf,
}

impl Report {
    /// Version and build of streamgauge that made the run.
    pub(crate) fn version_text(&self) -> String {
        match &self.build {
            Some(build) => format!("{}, {build}", self.streamgauge),
            None => self.streamgauge.clone(),
        }
    }

    /// Returns the population with this name.
    pub(crate) fn population(&self, name: &str) -> Option<&Population> {
        self.populations.iter().find(|one| one.name == name)
    }

    /// Figures of each population, of each direction of a link, of the server and of the tester.
    pub(crate) fn subjects(&self) -> Vec<(&str, &Metrics)> {
        let populations = self.populations.iter();
        let populations = populations.map(|one| (one.name.as_str(), &one.metrics));
        let links = self.links.iter();
        let links = links.map(|link| (link.name.as_str(), &link.metrics));
        let server = self.server.iter().map(|server| ("server", server));
        let tester = [("tester", &self.tester.metrics)];
        populations
            .chain(links)
            .chain(server)
            .chain(tester)
            .collect()
    }

    /// Explains the mark of delays that say too little. Returns `None` if nothing is marked.
    pub(crate) fn delay_note(&self) -> Option<String> {
        let populations = self.populations.iter();
        let mut all = populations.flat_map(|population| &population.metrics.0);
        let is_marked = all.any(|named| match named.figures {
            MetricFigures::Distribution(Some(found)) => found.is_marked(),
            _ => false,
        });
        let is_undecided = self.thresholds.iter().any(|one| one.undecided);
        (is_marked || is_undecided).then(|| match ClockError::of(&self.runners).seconds() {
            Some(error) => format!(
                "{MARK} too short, or too close to its limit, for the clock error between two runners \
                 ({}): can neither pass nor fail",
                figure(Unit::Seconds, error)
            ),
            None => format!("{MARK} unknown clock of a runner: can neither pass nor fail"),
        })
    }
}

/// Identity and duration of a run.
#[derive(Clone, Debug, serde::Serialize, JsonSchema)]
pub struct Run {
    /// Name of the scenario.
    pub name: String,
    /// Servers that clients requested, each once: scheme, host and port of their URLs, or the whole
    /// URL if there is only one.
    pub targets: Vec<String>,
    /// Seed of all randomness in the run.
    pub seed: u64,
    /// Start of the run: date and time (RFC 3339), in UTC.
    pub started_at: String,
    /// Time in seconds until the run ended or was told to stop. Rates are over this time, without
    /// the warm-up. For a run that was cut off, the time up to the last second kept.
    pub duration: f64,
    /// Planned duration in seconds, with the time for which the plan was held; null if the run was
    /// to end with its media.
    pub planned: Option<f64>,
    /// Periods in which the user held the plan for the number of clients. Command and seed alone do
    /// not repeat such a run. Empty for any other run.
    pub held: Vec<Held>,
    /// Time in seconds from the end of `duration` until the last client had ended.
    pub closing: f64,
    /// Initial period in seconds that is excluded from all figures except the windows.
    pub warm_up: f64,
    /// True if the run ended regularly. False if streamgauge was killed or is still running.
    pub finished: bool,
    /// Varied values of a run of a series. Empty for any other run.
    pub varied: Vec<Setting>,
}

/// Period in which the user held the plan: the wanted number of clients was constant.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct Held {
    /// Start of the period, in seconds since the start of the run.
    pub from: f64,
    /// End of the period; null if the run was cut off or is still running.
    pub to: Option<f64>,
}

impl Run {
    /// Describes in a sentence how the user held the plan and what that implies. Returns `None` if
    /// the plan was not held.
    pub fn held_in_words(&self) -> Option<String> {
        let end = self.duration;
        let lengths = self.held.iter();
        let lengths = lengths.map(|held| (held.to.unwrap_or(end) - held.from).max(0.0));
        let seconds: f64 = lengths.sum();
        (!self.held.is_empty()).then(|| {
            format!(
                "the user held the plan {} for {} in all: command and seed alone do not repeat this \
                 run",
                match self.held.len() {
                    1 => "once".to_owned(),
                    times => format!("{times} times"),
                },
                crate::human::short_duration(seconds)
            )
        })
    }
}

/// A key of the scenario, and its value in a run of a series.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, JsonSchema)]
pub struct Setting {
    /// Dotted key, such as `clients.viewers.load.clients`.
    pub key: String,
    /// Value in one line; `-` if the key is removed.
    pub value: String,
}

/// A threshold with its result.
#[derive(Clone, Debug, serde::Serialize, JsonSchema)]
pub struct Threshold {
    /// Threshold as written.
    pub threshold: String,
    /// Subject of the metric: a population, `server` or `tester`.
    pub subject: String,
    /// True if the threshold held. A threshold without data does not hold.
    pub passed: bool,
    /// Measured value, in the unit of the metric; null without data.
    pub value: Option<f64>,
    /// Statistic of the metric that was compared, such as `mean` or `p95`; null if the metric has
    /// only one.
    pub statistic: Option<String>,
    /// Limit, in the unit of the metric.
    pub limit: f64,
    /// Index of the worst window, counted from 0, if the threshold reads the worst window.
    pub worst_window: Option<u64>,
    /// True if the threshold is implied, such as `failed == 0`, which applies to every population
    /// unless the scenario has another threshold on `failed`. `streamgauge check` lists the implied
    /// thresholds.
    pub implied: bool,
    /// True if the result could be different without the packets that the tester itself lost.
    pub in_doubt: bool,
    /// True if the threshold is undecided: it neither held nor failed, because the value is a delay
    /// between clients on different runners, and too close to 0 or to the limit for the error of
    /// their clocks.
    pub undecided: bool,
    /// Maximum error of such a delay in seconds; null if it is unknown, and for any other value.
    pub clock_error: Option<f64>,
    /// Unit of value and limit.
    #[serde(skip)]
    pub unit: Unit,
}

impl Threshold {
    /// True if the threshold was decided and did not hold.
    pub(crate) fn has_failed(&self) -> bool {
        !self.passed && !self.undecided
    }

    /// Formats the measured value: with a mark if the threshold is undecided, or `-` without data.
    pub(crate) fn value_text(&self) -> String {
        let value = self.value.map(|value| figure(self.unit, value));
        value.map_or_else(|| "-".to_owned(), |text| marked(self.undecided, text))
    }
}

/// Figures of one population.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Population {
    /// Name in the scenario.
    #[serde(skip)]
    pub name: String,
    /// Clients and their outcomes.
    pub clients: Clients,
    /// Places where packets were lost; null if the protocol does not count losses.
    pub where_lost: Option<WhereLost>,
    /// All metrics of the protocol.
    pub metrics: Metrics,
    /// Catalogue of the protocol in this program. It determines the content of a summary.
    #[serde(skip)]
    pub catalogue: Catalogue,
}

/// Figures of one direction of an emulated link.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Link {
    /// Name of the direction.
    #[serde(skip)]
    pub name: String,
    /// Configuration of both directions, in words.
    pub link: String,
    /// All metrics of the direction.
    pub metrics: Metrics,
}

/// Clients of a population and their outcomes over the whole run, including the warm-up. (The
/// metrics with the same names exclude the warm-up.)
#[derive(Clone, Debug, Default, serde::Serialize, JsonSchema)]
pub struct Clients {
    /// Number of clients that began.
    pub started: u64,
    /// Largest number of clients that were active at the end of any window.
    pub active_max: u64,
    /// Number of clients whose media played to the end, or that completed their task.
    pub completed: u64,
    /// Number of clients that the plan ended before their media ended.
    pub stopped: u64,
    /// Number of failed clients.
    pub failed: u64,
    /// Number of failed clients, by reason.
    #[serde(serialize_with = "failure_map")]
    #[schemars(with = "std::collections::BTreeMap<String, u64>")]
    pub failures: Vec<Failure>,
}

/// Clients that failed for one reason.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Stable name of the reason.
    pub reason: String,
    /// Number of clients.
    pub count: u64,
    /// Details of one of these failures.
    pub example: Option<String>,
}

/// Resource usage and losses of the tester.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Tester {
    /// Path by which media was received: `ring` (a packet ring), `sockets`, or `ring and sockets`
    /// if runners differ; null for a run that was cut off before it began.
    pub receive_path: Option<String>,
    /// Requirement for a better receive path, if one exists that this process may not use.
    pub receive_hint: Option<String>,
    /// Results for each health bound of the tester; empty for a run that was cut off.
    pub health: Vec<Finding>,
    /// Figures of each worker, by its number; empty for a run that was cut off.
    pub workers: Vec<WorkerFigures>,
    /// Places where the packets of all populations were lost.
    pub where_lost: WhereLost,
    /// All metrics of the tester.
    #[serde(flatten)]
    pub metrics: Metrics,
}

/// Event of a run.
#[derive(Clone, Debug, serde::Serialize, JsonSchema)]
pub struct Event {
    /// Time in seconds since the start of the run.
    pub at: f64,
    /// Stable name of its kind.
    pub kind: String,
    /// Name of the subject, such as a population, `server` or `tester`, if the event concerns one.
    pub subject: Option<String>,
    /// Description of the event.
    pub text: String,
}

fn population_map<S: Serializer>(list: &[Population], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(list.iter().map(|population| (&population.name, population)))
}

fn link_map<S: Serializer>(list: &[Link], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(list.iter().map(|link| (&link.name, link)))
}

fn failure_map<S: Serializer>(list: &[Failure], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(list.iter().map(|failure| (&failure.reason, failure.count)))
}

// Placeholders for the metrics of the catalogues in the JSON Schema; `crate::schema` defines them.

fn populations_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/Population"},
    })
}

fn links_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {"$ref": "#/$defs/Link"},
    })
}

fn server_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"anyOf": [{"$ref": "#/$defs/ServerMetrics"}, {"type": "null"}]})
}

fn tester_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"$ref": "#/$defs/Tester"})
}
