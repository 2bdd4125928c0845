//! The load: its text form, and its internal form.

use std::borrow::Cow;
use std::time::Duration;

use crate::units::{Frequency, TimeSpan};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// Maximum number of clients of a load: 10,000,000.
pub const MAX_CLIENTS: u64 = 10_000_000;

/// Maximum number of stages of a load: 10,000.
pub const MAX_STAGES: usize = 10_000;

/// Number of clients over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Number of clients wanted at each time.
    pub shape: Shape,
    /// Whether a new client replaces one that ended or failed. Has no effect on arrivals. Default:
    /// false.
    #[serde(default)]
    pub rejoin: bool,
    /// Begin of the plan, after the start of the run. Default: 0s.
    #[serde(
        default,
        with = "crate::units::duration",
        skip_serializing_if = "Duration::is_zero"
    )]
    #[schemars(with = "TimeSpan")]
    pub after: Duration,
}

/// Shape of the number of clients over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "LoadSpec", into = "LoadSpec")]
pub enum Shape {
    /// All clients at the start of the run.
    AtOnce {
        /// Number of clients.
        clients: u64,
    },
    /// Clients start evenly over a time: slot `k` starts at `k * over / clients`, so the first
    /// starts at once.
    Ramp {
        /// Number of clients at the end of the ramp.
        clients: u64,
        /// Duration of the ramp.
        over: Duration,
    },
    /// Clients start one after another at a fixed interval: slot `k` starts at `k * every`.
    OneEvery {
        /// Number of clients in the end.
        clients: u64,
        /// Interval between two starts.
        every: Duration,
    },
    /// Up and down, linear within each stage. Begins with no clients.
    Stages(Vec<Stage>),
    /// The open model: clients arrive at a fixed rate, independent of the server.
    Arrivals {
        /// Arrivals per second.
        per_second: f64,
        /// Maximum number of active clients; arrivals beyond it are turned away and counted.
        max_clients: u64,
    },
}

/// Stage of a load: linear from the level of the stage before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Number of clients at the end of the stage.
    pub clients: u64,
    /// Duration of the stage; `0s` is a jump.
    #[serde(with = "crate::units::duration")]
    #[schemars(with = "TimeSpan")]
    pub over: Duration,
}

/// Load as written in a scenario: one of
/// `{clients: 240}`, `{clients: 240, ramp: 60s}`, `{clients: 240, one_every: 2s}`,
/// `{stages: [{clients: 100, over: 30s}, ...]}`, `{arrivals: 5/s, max_clients: 500}`. Each may have
/// `after: 3s`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadSpec {
    /// Number of clients. They start at once unless `ramp` or `one_every` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<u64>,
    /// `at_once` (default): all clients start at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartKind>,
    /// Time over which the clients start, evenly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ramp: Option<TimeSpan>,
    /// Interval between the starts of two clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_every: Option<TimeSpan>,
    /// Levels, each reached linearly from the one before. The first stage begins at 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<Vec<Stage>>,
    /// Rate at which clients arrive, such as `5/s`, independent of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Frequency>,
    /// With `arrivals`: maximum number of active clients. Further ones are turned away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_clients: Option<u64>,
    /// Begin of all this, after the start of the run. Default: 0s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<TimeSpan>,
}

/// Start of the clients of a load without `ramp` and `one_every`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StartKind {
    /// All clients start at the beginning.
    AtOnce,
}

/// Reason why a load is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LoadError {
    /// Keys at fault, the most relevant one first; empty if a key is missing.
    pub keys: Vec<&'static str>,
    /// Index of the stage at fault; `None` if the fault is elsewhere.
    pub stage: Option<usize>,
    /// Description of the fault.
    pub message: String,
    /// How to fix it.
    pub help: String,
}

impl LoadError {
    fn new(keys: &[&'static str], message: impl Into<String>, help: impl Into<String>) -> Self {
        LoadError {
            keys: keys.to_vec(),
            stage: None,
            message: message.into(),
            help: help.into(),
        }
    }
}

const FORMS: &str = "write one of `{clients: 240}`, `{clients: 240, ramp: 60s}`, `{clients: 240, \
                     one_every: 2s}`, `{stages: [{clients: 100, over: 30s}]}` or `{arrivals: 5/s, \
                     max_clients: 500}`";

impl TryFrom<LoadSpec> for Shape {
    type Error = LoadError;

    /// Ignores [`LoadSpec::after`], which is a property of the [`Load`].
    fn try_from(spec: LoadSpec) -> Result<Shape, LoadError> {
        let ways: Vec<&'static str> = [
            ("start", spec.start.is_some()),
            ("ramp", spec.ramp.is_some()),
            ("one_every", spec.one_every.is_some()),
            ("stages", spec.stages.is_some()),
            ("arrivals", spec.arrivals.is_some()),
        ]
        .into_iter()
        .filter_map(|(key, there)| there.then_some(key))
        .collect();
        if let [first, second, ..] = ways[..] {
            return Err(LoadError::new(
                &[second, first],
                format!("`{first}` and `{second}` do not go together"),
                "the start of the clients is set twice: leave one of them out",
            ));
        }
        if let Some(stages) = spec.stages {
            let counts = [("clients", spec.clients), ("max_clients", spec.max_clients)];
            if let Some((key, _)) = counts.into_iter().find(|(_, count)| count.is_some()) {
                return Err(LoadError::new(
                    &[key],
                    format!("`{key}` does not go with `stages`"),
                    "each stage states its own `clients`",
                ));
            }
            return check_stages(stages);
        }
        if let Some(Frequency(per_second)) = spec.arrivals {
            if spec.clients.is_some() {
                return Err(LoadError::new(
                    &["clients"],
                    "`clients` does not go with `arrivals`",
                    "write `max_clients`: the most that may be active at a time",
                ));
            }
            if !(1e-6..=1e6).contains(&per_second) {
                return Err(LoadError::new(
                    &["arrivals"],
                    "the rate of arrivals is out of range",
                    "it must be between 0.000001/s and 1000000/s",
                ));
            }
            let max_clients = spec.max_clients.ok_or_else(|| {
                LoadError::new(
                    &["arrivals"],
                    "`max_clients` is missing",
                    "arrivals need a bound: add `max_clients: 500`, the most that may be active at a time",
                )
            })?;
            check_clients("max_clients", max_clients)?;
            return Ok(Shape::Arrivals {
                per_second,
                max_clients,
            });
        }
        if spec.max_clients.is_some() {
            return Err(LoadError::new(
                &["max_clients"],
                "`max_clients` requires `arrivals`",
                "write `clients`, or add `arrivals: 5/s`",
            ));
        }
        let clients = spec
            .clients
            .ok_or_else(|| LoadError::new(&[], "`clients` is missing", FORMS))?;
        check_clients("clients", clients)?;
        Ok(match (spec.ramp, spec.one_every) {
            (Some(TimeSpan(over)), _) => Shape::Ramp { clients, over },
            (None, Some(TimeSpan(every))) => Shape::OneEvery { clients, every },
            (None, None) => Shape::AtOnce { clients },
        })
    }
}

fn check_clients(key: &'static str, clients: u64) -> Result<(), LoadError> {
    if clients == 0 {
        return Err(LoadError::new(
            &[key],
            format!("`{key}: 0` would load nothing"),
            "at least 1 is needed",
        ));
    }
    if clients > MAX_CLIENTS {
        return Err(too_many(key, key, clients));
    }
    Ok(())
}

/// The value of `key`, a number of clients at or within the key `at`, is too large.
fn too_many(at: &'static str, key: &str, clients: u64) -> LoadError {
    let message = format!("`{key}: {clients}` is too many");
    let help = format!("at most {MAX_CLIENTS} are possible");
    LoadError::new(&[at], message, help)
}

fn check_stages(stages: Vec<Stage>) -> Result<Shape, LoadError> {
    if stages.is_empty() || stages.iter().all(|stage| stage.clients == 0) {
        return Err(LoadError::new(
            &["stages"],
            "none of the stages has a client",
            "write at least one such as `{clients: 100, over: 30s}`",
        ));
    }
    if stages.len() > MAX_STAGES {
        return Err(LoadError::new(
            &["stages"],
            format!("{} stages are too many", stages.len()),
            format!("at most {MAX_STAGES} are possible"),
        ));
    }
    if let Some(index) = stages.iter().position(|stage| stage.clients > MAX_CLIENTS) {
        return Err(LoadError {
            stage: Some(index),
            ..too_many("stages", "clients", stages[index].clients)
        });
    }
    Ok(Shape::Stages(stages))
}

impl From<Shape> for LoadSpec {
    fn from(shape: Shape) -> LoadSpec {
        let empty = LoadSpec::default();
        match shape {
            Shape::AtOnce { clients } => LoadSpec {
                clients: Some(clients),
                start: Some(StartKind::AtOnce),
                ..empty
            },
            Shape::Ramp { clients, over } => LoadSpec {
                clients: Some(clients),
                ramp: Some(TimeSpan(over)),
                ..empty
            },
            Shape::OneEvery { clients, every } => LoadSpec {
                clients: Some(clients),
                one_every: Some(TimeSpan(every)),
                ..empty
            },
            Shape::Stages(stages) => LoadSpec {
                stages: Some(stages),
                ..empty
            },
            Shape::Arrivals {
                per_second,
                max_clients,
            } => LoadSpec {
                arrivals: Some(Frequency(per_second)),
                max_clients: Some(max_clients),
                ..empty
            },
        }
    }
}

impl JsonSchema for Shape {
    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("Load")
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        LoadSpec::json_schema(generator)
    }
}

impl Load {
    /// Maximum number of clients that are wanted at a time.
    pub fn clients_max(&self) -> u64 {
        match &self.shape {
            Shape::AtOnce { clients }
            | Shape::Ramp { clients, .. }
            | Shape::OneEvery { clients, .. } => *clients,
            Shape::Stages(stages) => stages.iter().map(|stage| stage.clients).max().unwrap_or(0),
            Shape::Arrivals { max_clients, .. } => *max_clients,
        }
    }

    /// Time at which the plan is complete: the last client has started, or the last stage has
    /// ended. `None` for arrivals.
    pub fn ends(&self) -> Option<Duration> {
        let length = match &self.shape {
            Shape::AtOnce { .. } => Duration::ZERO,
            Shape::Ramp { over, .. } => *over,
            Shape::OneEvery { clients, every } => {
                let steps = u128::from(clients.saturating_sub(1));
                let nanos = steps.saturating_mul(every.as_nanos());
                Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
            Shape::Stages(stages) => stages
                .iter()
                .fold(Duration::ZERO, |sum, stage| sum.saturating_add(stage.over)),
            Shape::Arrivals { .. } => return None,
        };
        Some(self.after.saturating_add(length))
    }
}
