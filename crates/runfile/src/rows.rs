//! Rows of a run file, as they are written and read.

use std::collections::BTreeMap;
use std::time::Duration;

use measure::{Catalogue, Time, Totals, Window};
use serde::{Deserialize, Serialize};

/// Facts known at the start of a run.
#[derive(Clone, Debug)]
pub struct Header {
    /// Version of streamgauge.
    pub version: String,
    /// Resolved scenario, with every default filled in.
    pub scenario: serde_json::Value,
    pub machine: Machine,
    /// Seed of all randomness.
    pub seed: u64,
    /// Start of the run, since 1970-01-01 UTC.
    pub started_at: Duration,
    /// Initial period that is excluded from every figure.
    pub warm_up: Duration,
    /// True if the distributions of clients' starts ([`Catalogue::starts`]) include the warm-up.
    pub starts_in_warm_up: bool,
    /// Length of a window; never zero.
    pub window: Duration,
    /// Subjects in the order of reports.
    pub subjects: Vec<SubjectHeader>,
}

impl Header {
    /// Number of windows in the warm-up. The window in which the warm-up ends is excluded entirely.
    pub fn warm_up_windows(&self) -> u64 {
        let windows = self
            .warm_up
            .as_nanos()
            .div_ceil(self.window.as_nanos().max(1));
        u64::try_from(windows).unwrap_or(u64::MAX)
    }

    /// Adds to the totals of a subject what counts of its window: all of it, or, in the warm-up,
    /// what [`Totals::add_warm_up`] adds. The run was asked to stop at `stopped_at`.
    pub fn add_counted(
        &self,
        totals: &mut Totals,
        window: &Window,
        row: &WindowRow,
        stopped_at: Time,
    ) {
        if row.index >= self.warm_up_windows() {
            totals.add_until(window, row.start, row.seconds, stopped_at);
        } else {
            totals.add_warm_up(window, self.starts_in_warm_up);
        }
    }
}

/// Machine of the tester.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Name and release of the kernel.
    pub kernel: String,
    /// Number of processor cores that the tester could use.
    pub cores: u32,
    /// Main memory in bytes.
    pub memory: u64,
}

/// Subject of figures: a population, its browser, a direction of an emulated link, the server or
/// the tester.
#[derive(Clone, Debug)]
pub struct SubjectHeader {
    /// Name of the population, of its browser or of the direction of a link; `server` or `tester`.
    pub name: String,
    /// Selects the catalogue of its figures: a protocol's name, `browser`, `uplink`, `downlink`,
    /// `server` or `tester`.
    pub kind: String,
    pub catalogue: Catalogue,
}

/// A window of measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowRow {
    /// Number of the window, counted from 0.
    pub index: u64,
    pub start: Time,
    pub seconds: f64,
    /// Figures of each subject, by name.
    pub subjects: BTreeMap<String, Window>,
}

/// Outcome of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientOutcome {
    /// Ended as planned: its media played to the end.
    Completed,
    /// Ended earlier, by the plan or by the user.
    Stopped,
    Failed,
}

impl ClientOutcome {
    /// Name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            ClientOutcome::Completed => "completed",
            ClientOutcome::Stopped => "stopped",
            ClientOutcome::Failed => "failed",
        }
    }
}

/// State of a client at its end, or at present. A row replaces an earlier one with the same id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientRow {
    /// Number that is unique in the run.
    pub id: u64,
    /// Name of its population.
    pub subject: String,
    /// Slot in the population.
    pub slot: u32,
    /// Number of earlier clients in this slot.
    pub generation: u32,
    pub url: String,
    /// Planned start.
    pub due: Time,
    /// Actual start.
    pub begun: Option<Time>,
    /// Arrival of the first packet of media.
    pub first_media: Option<Time>,
    pub ended: Option<Time>,
    /// `None` while the client is alive.
    pub outcome: Option<ClientOutcome>,
    /// Reason of a failure: a name from the enumerated set of the protocol.
    pub reason: Option<String>,
    /// Details of the failure, such as `DESCRIBE: 404 Not Found`.
    pub detail: Option<String>,
    /// Counts of each of its streams.
    pub streams: serde_json::Value,
}

/// Event of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventRow {
    pub time: Time,
    /// Stable name, so that events of one kind can be counted.
    pub kind: String,
    /// Name of the subject, if the event concerns one.
    pub subject: Option<String>,
    /// Description of the event.
    pub text: String,
}

/// Number of clients of a population that failed for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureRow {
    pub subject: String,
    pub reason: String,
    pub count: u64,
}
