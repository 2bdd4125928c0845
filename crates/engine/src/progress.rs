//! What a run tells: how it stands while it goes, and what it came to.

use std::path::PathBuf;
use std::time::Duration;

use measure::Verdict;
use measure::threshold::ThresholdResult;

/// How a run stands, once a window.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Since the run began.
    pub elapsed: Duration,
    /// What it is doing.
    pub phase: Phase,
    /// Each population, in the scenario's order.
    pub populations: Vec<(String, PopulationProgress)>,
    /// What the server used in the last window, in cores; none where none is observed.
    pub server_cpu: Option<f64>,
    /// How the tester does.
    pub tester: TesterProgress,
}

/// What a run is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The server is being started; the text says how far.
    Launching(String),
    /// Clients are at work.
    Running,
    /// Sessions are being ended.
    Stopping,
    /// No client is left, and the server is looked at for what it gives back.
    Lingering,
}

/// How a population stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct PopulationProgress {
    /// Clients at work.
    pub active: u64,
    /// Clients whose media has begun to arrive, or to leave where they publish.
    pub playing: u64,
    /// Clients begun since the start of the run.
    pub started: u64,
    /// Clients failed since the start of the run.
    pub failed: u64,
    /// Media payload in the last window, bit/s.
    pub bitrate: f64,
    /// Media with its headers in the last window, bit/s.
    pub wire_bitrate: f64,
    /// Media payload that its clients sent in the last window, bit/s: 0 where they do not publish.
    pub sent_bitrate: f64,
    /// Messages sent and answered in the last second; none where its clients send none.
    pub messages: Option<(f64, f64)>,
    /// Packets expected in the last window.
    pub expected: i64,
    /// Packets received in the last window.
    pub received: i64,
}

/// How the tester does.
#[derive(Clone, Copy, Debug, Default)]
pub struct TesterProgress {
    /// Cores that its workers used in the last window.
    pub cpu: Option<f64>,
    /// 99th percentile of its event loops' lag in the last window, in seconds.
    pub lag_p99: Option<f64>,
    /// Packets it dropped itself since the start of the run.
    pub overflow: i64,
    /// Whether no bound was crossed in the last window.
    pub healthy: bool,
}

/// A run that is over.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Where everything measured is.
    pub run_file: PathBuf,
    /// What the run comes to.
    pub verdict: Verdict,
    /// What became of each threshold.
    pub thresholds: Vec<ThresholdResult>,
    /// The clients that were traced.
    pub traces: Vec<crate::Trace>,
    /// Why the run file is not whole, where it is not.
    pub run_file_error: Option<String>,
}
