//! The load as it is written, and as it is held.

use std::borrow::Cow;
use std::time::Duration;

use measure::units::{Frequency, TimeSpan};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// The most clients one load may ask for: 10,000,000.
pub const MAX_CLIENTS: u64 = 10_000_000;

/// The most stages one load may have: 10,000.
pub const MAX_STAGES: usize = 10_000;

/// How many clients, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// The level over time.
    pub shape: Shape,
    /// Whether another client takes the place of one that ended or died. Has no meaning for
    /// arrivals, which come anyway. Default: no.
    #[serde(default)]
    pub rejoin: bool,
}

/// The level of clients over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "LoadSpec", into = "LoadSpec")]
pub enum Shape {
    /// All at the beginning.
    AtOnce {
        /// How many.
        clients: u64,
    },
    /// Evenly over a time: slot `k` comes at `k * over / clients`, so the first at once.
    Ramp {
        /// How many in the end.
        clients: u64,
        /// How long it takes until all are there.
        over: Duration,
    },
    /// One after another, at a fixed distance: slot `k` comes at `k * every`.
    OneEvery {
        /// How many in the end.
        clients: u64,
        /// The time between two of them.
        every: Duration,
    },
    /// Up and down, linear within each stage. Begins at no clients.
    Stages(Vec<Stage>),
    /// The open model: clients arrive at a rate of their own.
    Arrivals {
        /// How many arrive in a second.
        per_second: f64,
        /// The most that may be active at a time; who arrives beyond that is turned away, and
        /// counted.
        max_clients: u64,
    },
}

/// One stage of a load: linear from the level before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// The level at the end of the stage.
    pub clients: u64,
    /// How long it takes to get there; `0s` is a jump.
    #[serde(with = "measure::units::duration")]
    #[schemars(with = "TimeSpan")]
    pub over: Duration,
}

/// The load as a file states it: one of
/// `{clients: 240}`, `{clients: 240, ramp: 60s}`, `{clients: 240, one_every: 2s}`,
/// `{stages: [{clients: 100, over: 30s}, ...]}`, `{arrivals: 5/s, max_clients: 500}`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadSpec {
    /// How many clients. They start at once unless `ramp` or `one_every` says otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<u64>,
    /// `at_once`, which is the default: all clients at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<StartKind>,
    /// The time over which the clients start, evenly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ramp: Option<TimeSpan>,
    /// The time between the start of one client and the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_every: Option<TimeSpan>,
    /// Levels up and down, each reached linearly from the one before. The first begins at 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stages: Option<Vec<Stage>>,
    /// How many clients arrive in a time, such as `5/s`, whatever becomes of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Frequency>,
    /// With `arrivals`: the most that may be active at a time; others are turned away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_clients: Option<u64>,
}

/// How the clients of a load start that has neither `ramp` nor `one_every`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StartKind {
    /// All at the beginning.
    AtOnce,
}

/// Why a load as written is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct LoadError {
    /// The keys at fault, the most telling one first; none where something is missing.
    pub keys: Vec<&'static str>,
    /// Which of the stages, where it is one of them.
    pub stage: Option<usize>,
    /// What is wrong.
    pub message: String,
    /// How to mend it.
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
                "say in one way when the clients start: leave one of them out",
            ));
        }
        if let Some(stages) = spec.stages {
            if spec.clients.is_some() || spec.max_clients.is_some() {
                let key = if spec.clients.is_some() {
                    "clients"
                } else {
                    "max_clients"
                };
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
                "`max_clients` goes with `arrivals` only",
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
        return Err(LoadError::new(
            &[key],
            format!("`{key}: {clients}` is too many"),
            format!("at most {MAX_CLIENTS} are possible"),
        ));
    }
    Ok(())
}

fn check_stages(stages: Vec<Stage>) -> Result<Shape, LoadError> {
    if stages.is_empty() || stages.iter().all(|stage| stage.clients == 0) {
        return Err(LoadError::new(
            &["stages"],
            "these stages never have a client",
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
        let mut error = LoadError::new(
            &["stages"],
            format!("`clients: {}` is too many", stages[index].clients),
            format!("at most {MAX_CLIENTS} are possible"),
        );
        error.stage = Some(index);
        return Err(error);
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
    /// The most clients that are ever wanted at a time.
    pub fn clients_max(&self) -> u64 {
        match &self.shape {
            Shape::AtOnce { clients }
            | Shape::Ramp { clients, .. }
            | Shape::OneEvery { clients, .. } => *clients,
            Shape::Stages(stages) => stages.iter().map(|stage| stage.clients).max().unwrap_or(0),
            Shape::Arrivals { max_clients, .. } => *max_clients,
        }
    }

    /// When the plan has been carried out: the last client has started, or the last stage is over.
    /// Arrivals have no end.
    pub fn ends(&self) -> Option<Duration> {
        match &self.shape {
            Shape::AtOnce { .. } => Some(Duration::ZERO),
            Shape::Ramp { over, .. } => Some(*over),
            Shape::OneEvery { clients, every } => {
                let steps = u128::from(clients.saturating_sub(1));
                let nanos = steps.saturating_mul(every.as_nanos());
                Some(Duration::from_nanos(
                    u64::try_from(nanos).unwrap_or(u64::MAX),
                ))
            }
            Shape::Stages(stages) => Some(
                stages
                    .iter()
                    .fold(Duration::ZERO, |sum, stage| sum.saturating_add(stage.over)),
            ),
            Shape::Arrivals { .. } => None,
        }
    }
}
