//! What is put into a run file and read out of it again.

use std::collections::BTreeMap;
use std::time::Duration;

use measure::{Catalogue, Time, Window};
use serde::{Deserialize, Serialize};

/// What is known of a run when it begins.
#[derive(Clone, Debug)]
pub struct Header {
    /// The version of streamgauge.
    pub version: String,
    /// The scenario as resolved, every default filled in.
    pub scenario: serde_json::Value,
    /// The machine.
    pub machine: Machine,
    /// The seed of everything random.
    pub seed: u64,
    /// When the run began, since 1970.
    pub started_at: Duration,
    /// How much of the beginning is left out of every figure.
    pub warm_up: Duration,
    /// How long a window is; never zero.
    pub window: Duration,
    /// The populations, the server and the tester, in the order in which reports show them.
    pub subjects: Vec<SubjectHeader>,
}

impl Header {
    /// How many windows the warm-up takes; a window that it ends in is wholly left out.
    pub fn warm_up_windows(&self) -> u64 {
        let windows = self
            .warm_up
            .as_nanos()
            .div_ceil(self.window.as_nanos().max(1));
        u64::try_from(windows).unwrap_or(u64::MAX)
    }
}

/// The machine that the tester ran on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's name and release.
    pub kernel: String,
    /// How many processor cores the tester could use.
    pub cores: u32,
    /// Main memory in bytes.
    pub memory: u64,
}

/// Something that figures are of.
#[derive(Clone, Debug)]
pub struct SubjectHeader {
    /// The population's name, `server` or `tester`.
    pub name: String,
    /// Which catalogue its figures follow: a protocol's name, `server` or `tester`.
    pub kind: String,
    /// That catalogue.
    pub catalogue: Catalogue,
}

/// A window of measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowRow {
    /// Its number, counted from 0.
    pub index: u64,
    /// When it began.
    pub start: Time,
    /// How long it lasted.
    pub seconds: f64,
    /// What was seen of each subject, by name.
    pub subjects: BTreeMap<String, Window>,
}

/// How a client ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientOutcome {
    /// As planned: its media played to its end.
    Completed,
    /// The plan or the user ended it before.
    Stopped,
    /// It failed.
    Failed,
}

impl ClientOutcome {
    /// Its name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            ClientOutcome::Completed => "completed",
            ClientOutcome::Stopped => "stopped",
            ClientOutcome::Failed => "failed",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<ClientOutcome> {
        [
            ClientOutcome::Completed,
            ClientOutcome::Stopped,
            ClientOutcome::Failed,
        ]
        .into_iter()
        .find(|outcome| outcome.name() == name)
    }
}

/// A client, as it ended or as it stands. A row replaces an earlier one with the same number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientRow {
    /// Its number, unique in the run.
    pub id: u64,
    /// Its population.
    pub subject: String,
    /// Its place in the population.
    pub slot: u32,
    /// How many clients had this place before it.
    pub generation: u32,
    /// What it played.
    pub url: String,
    /// When it was due.
    pub due: Time,
    /// When it set to work.
    pub begun: Option<Time>,
    /// When its first packet of media came.
    pub first_media: Option<Time>,
    /// When it ended.
    pub ended: Option<Time>,
    /// How it ended; `None` while it lives.
    pub outcome: Option<ClientOutcome>,
    /// Why it failed: a name out of the protocol's enumerated set.
    pub reason: Option<String>,
    /// What exactly happened.
    pub detail: Option<String>,
    /// What each of its streams counted.
    pub streams: serde_json::Value,
}

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventRow {
    /// When.
    pub time: Time,
    /// A stable name, so that like events can be counted.
    pub kind: String,
    /// The population, `server` or `tester`, where it happened to one of them.
    pub subject: Option<String>,
    /// What happened.
    pub text: String,
}

/// Clients of a population that failed for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureRow {
    /// The population.
    pub subject: String,
    /// The reason.
    pub reason: String,
    /// How many.
    pub count: u64,
}
