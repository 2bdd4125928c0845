//! What a report says: plain figures, out of the run file, ready to be shown or written.
//!
//! The fields of these types, as serde names them, are the JSON report; `schema/report.schema.json`
//! is made from them.

use std::path::PathBuf;

use measure::media::Media;
use measure::server::{GivenBack, ServerLog};
use measure::tester::WorkerFigures;
use measure::{Catalogue, Finding, Unit};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::Serializer;

use crate::limits::Limit;
use crate::loss::WhereLost;
use crate::metrics::Metrics;

/// The version of the JSON report. It grows when a name goes away or changes its meaning; names may
/// be added without.
pub const SCHEMA_VERSION: u32 = 1;

/// One run, reported. Units are those of the SI: seconds, bit/s, bytes, shares from 0 to 1.
#[derive(Clone, Debug, serde::Serialize, JsonSchema)]
pub struct Report {
    /// Version of this format. It grows when a name goes away or changes its meaning.
    pub schema_version: u32,
    /// Version of streamgauge that made the run.
    pub streamgauge: String,
    /// Which run it was.
    pub run: Run,
    /// How it came out.
    pub verdict: Verdict,
    /// What was demanded of it, in the order of the scenario.
    pub thresholds: Vec<Threshold>,
    /// What each population saw, by its name, in the order of the scenario.
    #[serde(serialize_with = "population_map")]
    #[schemars(schema_with = "populations_schema")]
    pub populations: Vec<Population>,
    /// What the servers said of their media before the run; empty where they were not asked.
    pub media: Media,
    /// What each direction of an emulated link did, by its name: `uplink`, `downlink`, and with the
    /// name of a population before it where that has a link for itself. Empty without one.
    #[serde(serialize_with = "link_map")]
    #[schemars(schema_with = "links_schema")]
    pub links: Vec<Link>,
    /// What the run sent to multicast groups itself; null where it sent nothing, or was cut off.
    pub sources: Option<measure::Sources>,
    /// What the server under test spent; null where none was observed.
    #[schemars(schema_with = "server_schema")]
    pub server: Option<Metrics>,
    /// What its log complained of; empty where it did not, or was not read.
    pub server_log: ServerLog,
    /// What it gave back after the last client had left; null where the scenario does not say
    /// `server.linger`, or it ended before.
    pub server_gave_back: Option<GivenBack>,
    /// What limited the server, as far as the windows bear it out: empty where nothing was seen.
    pub server_limits: Vec<Limit>,
    /// The server's processor time for each message that was acknowledged, in seconds, the warm-up
    /// left out. Null where no server was observed, no message was acknowledged, or clients do
    /// anything else too.
    pub cpu_per_message: Option<f64>,
    /// What the tester itself spent, and what it missed.
    #[schemars(schema_with = "tester_schema")]
    pub tester: Tester,
    /// What happened, oldest first; at most 10,000 events.
    pub events: Vec<Event>,
    /// Where the report was made from.
    #[serde(skip)]
    pub path: PathBuf,
}

/// Which run a report is about.
#[derive(Clone, Debug, serde::Serialize, JsonSchema)]
pub struct Run {
    /// The scenario's name.
    pub name: String,
    /// The seed of everything random in it.
    pub seed: u64,
    /// When it began: date and time (RFC 3339), in UTC.
    pub started_at: String,
    /// How long it lasted, in seconds, until it was over or told to stop: what rates are over, less
    /// the warm-up. Of a run that was cut off, up to the last second kept.
    pub duration: f64,
    /// How long it was to last, in seconds, with the time for which its plan was held; null where it
    /// was to end with its media.
    pub planned: Option<f64>,
    /// When the user held the plan of how many clients there are to be. Such a run is not repeated
    /// by its command and seed alone. Empty of any other.
    pub held: Vec<Held>,
    /// How long it took after that until the last client had ended, in seconds.
    pub closing: f64,
    /// How much of its beginning is left out of every figure but the windows, in seconds.
    pub warm_up: f64,
    /// Whether the run came to its end. False where streamgauge was killed or still runs.
    pub finished: bool,
    /// Of a run of a series: what it sets otherwise than the others. Empty of any other.
    pub varied: Vec<Setting>,
}

/// A stretch in which the user held the plan: the number of clients wanted stayed where it was.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct Held {
    /// When it began, in seconds from the beginning of the run.
    pub from: f64,
    /// When it ended; null where the run was cut off, or still goes on.
    pub to: Option<f64>,
}

impl Run {
    /// How the user held the plan, and what that means, in a sentence; none where nobody did.
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
                crate::human::length(seconds)
            )
        })
    }
}

/// A key of the scenario, and what a run of a series sets it to.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, JsonSchema)]
pub struct Setting {
    /// The dotted key, such as `clients.viewers.load.clients`.
    pub key: String,
    /// The value in one line; `-` where the key is taken out.
    pub value: String,
}

/// How a run came out.
#[derive(Clone, Debug, serde::Serialize, JsonSchema)]
pub struct Verdict {
    /// The word for it.
    pub result: Outcome,
    /// Why: what failed, or what makes the measurement invalid. Empty where it passed.
    pub reasons: Vec<String>,
    /// Whether the user stopped it before its planned end.
    pub stopped_by_user: bool,
}

/// The word for how a run came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every threshold held, and the measurement can be trusted.
    Pass,
    /// A threshold did not hold, and the measurement can be trusted.
    Fail,
    /// The measurement cannot be trusted, whatever the thresholds say.
    Invalid,
    /// The user stopped it before its planned end: the thresholds say what held until then.
    Stopped,
}

/// One demand, and whether it was met.
#[derive(Clone, Debug, serde::Serialize, JsonSchema)]
pub struct Threshold {
    /// The demand as it was written.
    pub threshold: String,
    /// Whose metric it reads: a population, `server` or `tester`.
    pub subject: String,
    /// Whether it was met. A threshold without data is not.
    pub passed: bool,
    /// What was measured, in the unit of the metric; null without data.
    pub value: Option<f64>,
    /// Which figure of the metric was compared, such as `mean` or `p95`; null where it has only
    /// one.
    pub statistic: Option<String>,
    /// What it was held against, in the unit of the metric.
    pub limit: f64,
    /// Which window was the worst, counted from 0, where the threshold reads the worst window.
    pub worst_window: Option<u64>,
    /// Whether nobody wrote it: such as `failed == 0`, which holds for every population unless
    /// another one on `failed` is written. `streamgauge check` lists them.
    pub implied: bool,
    /// Whether it could have gone the other way, had the tester itself lost no packet.
    pub in_doubt: bool,
    /// The unit of value and limit.
    #[serde(skip)]
    pub unit: Unit,
}

/// What one population saw.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Population {
    /// Its name in the scenario.
    #[serde(skip)]
    pub name: String,
    /// Its clients, and how they ended.
    pub clients: Clients,
    /// Where its lost packets were lost; null where its protocol counts none.
    pub where_lost: Option<WhereLost>,
    /// Every metric of its protocol.
    pub metrics: Metrics,
    /// The catalogue of its protocol, as this program has it: it says what a summary shows.
    #[serde(skip)]
    pub catalogue: Catalogue,
}

/// What one direction of an emulated link did.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Link {
    /// Its name.
    #[serde(skip)]
    pub name: String,
    /// What it was asked to do, in words, of both directions.
    pub link: String,
    /// Every metric.
    pub metrics: Metrics,
}

/// The clients of a population, and how they ended: over the whole run, its warm-up included. (The
/// metrics of the same names leave the warm-up out.)
#[derive(Clone, Debug, Default, serde::Serialize, JsonSchema)]
pub struct Clients {
    /// Clients that began.
    pub started: u64,
    /// The most that were active at the end of any window.
    pub active_max: u64,
    /// Clients whose media played to its end, or that had done all that they were to do.
    pub completed: u64,
    /// Clients that were ended by the plan before their media was.
    pub stopped: u64,
    /// Clients that failed.
    pub failed: u64,
    /// Clients that failed, by reason.
    #[serde(serialize_with = "failure_map")]
    #[schemars(with = "std::collections::BTreeMap<String, u64>")]
    pub failures: Vec<Failure>,
}

/// Clients that failed for one reason.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The reason's stable name.
    pub reason: String,
    /// How many.
    pub count: u64,
    /// What exactly happened to one of them.
    pub example: Option<String>,
}

/// What the tester itself spent, and what it missed.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Tester {
    /// By which way packets came in, such as `ring`; null where none was needed.
    pub receive_path: Option<String>,
    /// What a better way would take, where there is one and this process may not use it.
    pub receive_hint: Option<String>,
    /// What was held against each bound of the tester's health; empty of a run that was cut off.
    pub health: Vec<Finding>,
    /// Each worker's own figures, by its number; empty of a run that was cut off.
    pub workers: Vec<WorkerFigures>,
    /// Where all lost packets were lost, of all populations.
    pub where_lost: WhereLost,
    /// Every metric of the tester.
    #[serde(flatten)]
    pub metrics: Metrics,
}

/// Something that happened.
#[derive(Clone, Debug, serde::Serialize, JsonSchema)]
pub struct Event {
    /// When, in seconds from the beginning of the run.
    pub at: f64,
    /// The stable name of its kind.
    pub kind: String,
    /// The population, `server` or `tester`, where it happened to one of them.
    pub subject: Option<String>,
    /// What exactly.
    pub text: String,
}

impl Outcome {
    /// As it is written in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Pass => "pass",
            Outcome::Fail => "fail",
            Outcome::Invalid => "invalid",
            Outcome::Stopped => "stopped",
        }
    }
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

// Where the JSON Schema has the metrics of the catalogues (`crate::schema` defines them).

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
