//! Facts about a run: values that a run file keeps by name, next to its windows and rows.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use measure::load::HoldsSpec;
use measure::media::Media;
use measure::server::{GivenBack, ServerLog};
use measure::tester::{RunnerState, RunnerSummary, WorkerFigures};
use measure::{Build, Finding, Sources};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The name of a fact in the file, and the type of its value.
///
/// The file has the value as JSON. A reader takes a value of another shape for a missing one, so
/// that it can open the files of other versions.
pub struct Fact<T> {
    name: &'static str,
    value: PhantomData<fn(T)>,
}

/// A fact with its value, as a file has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Noted {
    pub(crate) name: &'static str,
    pub(crate) value: Value,
}

impl<T> Fact<T> {
    /// Declares the fact with this name, which must be unique.
    pub const fn new(name: &'static str) -> Fact<T> {
        Fact {
            name,
            value: PhantomData,
        }
    }

    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<T: Serialize> Fact<T> {
    /// Returns the fact with this value. A value that JSON cannot express becomes null.
    pub fn of(&self, value: &T) -> Noted {
        Noted {
            name: self.name,
            value: serde_json::to_value(value).unwrap_or_default(),
        }
    }
}

impl<T: DeserializeOwned> Fact<T> {
    /// Reads the value. Returns `None` if it has another shape.
    pub(crate) fn read(&self, value: Value) -> Option<T> {
        serde_json::from_value(value).ok()
    }
}

/// The load of a run that is one level of a continuing search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// Name of the population whose clients the search changes.
    pub population: String,
    /// Number of clients of the population.
    pub clients: u64,
}

/// Command line of the run, without secrets.
pub const COMMAND: Fact<String> = Fact::new("command");
/// Commit and target of the program.
pub const BUILD: Fact<Build> = Fact::new("build");
/// Start of the run in nanoseconds of `CLOCK_MONOTONIC`, which all processes of a machine share.
pub const CLOCK_MONOTONIC_NANOS: Fact<i64> = Fact::new("clock_monotonic_nanos");
/// Start of the run in seconds since 1970, once everything was ready: later than in the header.
pub const STARTED_AT: Fact<f64> = Fact::new("started_at");
/// Time at which the run was asked to stop, in seconds since its start.
pub const STOPPED_AT: Fact<f64> = Fact::new("stopped_at");
/// True once the run has ended and everything is written.
pub const ENDED: Fact<bool> = Fact::new("ended");
/// Periods in which the user held the plan.
pub const HELD: Fact<HoldsSpec> = Fact::new("held");
/// Load of a level of a continuing search.
pub const LEVEL: Fact<Level> = Fact::new("level");
/// Media of the URLs, as described before the run.
pub const MEDIA: Fact<Media> = Fact::new("media");
/// Settings of each direction of an emulated link, by subject.
pub const LINKS: Fact<BTreeMap<String, String>> = Fact::new("links");
/// Packets and pace of the run's own sources.
pub const SOURCES: Fact<Sources> = Fact::new("sources");
/// True if the server's own counters were read.
pub const SERVER_COUNTS: Fact<bool> = Fact::new("server_counts");
/// Complaints in the server's log.
pub const SERVER_LOG: Fact<ServerLog> = Fact::new("server_log");
/// Resources that the server gave back after the last client had left.
pub const GIVEN_BACK: Fact<GivenBack> = Fact::new("given_back");
/// Paths by which the tester received packets, such as `ring`.
pub const RECEIVE_PATH: Fact<String> = Fact::new("receive_path");
/// Advice on a better path.
pub const RECEIVE_HINT: Fact<Option<String>> = Fact::new("receive_hint");
/// Bounds of the tester's health that were passed.
pub const HEALTH: Fact<Vec<Finding>> = Fact::new("health");
/// Figures of each worker.
pub const WORKERS: Fact<Vec<WorkerFigures>> = Fact::new("workers");
/// Metrics of the tester that were not available.
pub const UNKNOWN: Fact<Vec<String>> = Fact::new("unknown");
/// Each runner of a run over several machines.
pub const RUNNERS: Fact<Vec<RunnerSummary>> = Fact::new("runners");
/// State of each runner while the run is in progress.
pub const RUNNER_STATES: Fact<Vec<RunnerState>> = Fact::new("runner_states");
