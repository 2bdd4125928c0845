//! Progress and result of a run.

use std::path::PathBuf;
use std::time::Duration;

use measure::tester::RunnerState;
use measure::threshold::ThresholdResult;
use measure::totals::Statistic;
use measure::{Totals, Verdict};

use crate::worker::WINDOW;

/// State of a run, reported once per window.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Time since the run began.
    pub elapsed: Duration,
    pub phase: Phase,
    /// Populations in the order of the scenario.
    pub populations: Vec<(String, PopulationProgress)>,
    /// Thresholds of the scenario over the run so far, in their order, without implied ones. Those
    /// on figures of the warm-up have no data before its end.
    pub thresholds: Vec<ThresholdResult>,
    /// CPU use of the server in the last window, in cores. `None` if no server is observed or the
    /// window was cut short.
    pub server_cpu: Option<f64>,
    pub tester: TesterProgress,
    /// Each runner of a run over several machines. Empty if there is only one.
    pub runners: Vec<RunnerState>,
    /// Clients that failed in the last window, by population and reason.
    pub failures: Vec<Failures>,
    /// True if the user holds the load plan.
    pub is_held: bool,
    /// Time for which the plan has been held so far. The run ends later by this time.
    pub held: Duration,
}

impl Progress {
    /// Progress of a phase without clients: before the run begins, or after the last has left.
    pub(crate) fn without_clients(phase: Phase) -> Progress {
        Progress {
            phase,
            tester: TesterProgress {
                healthy: true,
                ..TesterProgress::default()
            },
            ..Progress::default()
        }
    }
}

/// Number of clients of a population that failed for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failures {
    pub population: String,
    /// Reason from the protocol's enumerated set.
    pub reason: String,
    pub count: u64,
}

/// Phase of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The server is starting; the text names the step.
    Launching(String),
    /// Warning before the run begins. The run continues.
    Warning(String),
    /// Clients are running.
    #[default]
    Running,
    /// Sessions are shutting down.
    Stopping,
    /// All clients have left. The resources that the server releases are observed.
    Lingering,
}

/// State of a population.
#[derive(Clone, Copy, Debug, Default)]
pub struct PopulationProgress {
    pub role: ClientRole,
    /// Maximum number of clients at a time by the plan. `None` if it has none (arrivals).
    pub planned: Option<u64>,
    /// Running clients.
    pub active: u64,
    /// Clients that have received their first media, or sent it if they publish.
    pub playing: u64,
    /// Running clients that have no media or connection yet. Those that failed in the last window
    /// are not among them.
    pub starting: u64,
    /// Clients started since the start of the run.
    pub started: u64,
    /// Clients failed since the start of the run.
    pub failed: u64,
    /// How fast clients have started since the start of the run. `None` before the first has.
    pub start_delay: Option<StartDelay>,
    /// Rates in the last window. `None` if it was cut short, as the last window of a run is: bursts
    /// or pauses within a few milliseconds say nothing about a second.
    pub rates: Option<Rates>,
}

/// Delay between the start of clients and their media or connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StartDelay {
    /// Name of the metric, such as `startup_delay`.
    pub metric: &'static str,
    /// 95th percentile in seconds.
    pub p95: f64,
}

/// Role of the clients of a population.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientRole {
    /// Receive media. Participants in a room may send some as well.
    #[default]
    Play,
    /// Send media and receive none.
    Publish,
    /// Send messages.
    Send,
}

/// Rates of a population in a whole window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Media payload received, bit/s.
    pub bitrate: f64,
    /// Media received, headers included, bit/s.
    pub wire_bitrate: f64,
    /// Media payload sent, bit/s; 0 if the clients do not publish.
    pub sent_bitrate: f64,
    /// Messages sent per second; 0 if the clients send none.
    pub sent: f64,
    /// Messages answered per second; 0 if the clients send none.
    pub answered: f64,
    pub expected: i64,
    pub received: i64,
}

impl Rates {
    /// Share of the expected packets that were lost, 0 to 1. `None` if none were expected.
    pub fn loss(&self) -> Option<f64> {
        // Packets that were counted as lost in the previous window may arrive in this one.
        let lost = (self.expected - self.received).max(0);
        (self.expected > 0).then(|| lost as f64 / self.expected as f64)
    }

    /// Rates of a window of `seconds`, if it is whole.
    pub(crate) fn of(figures: &Totals, seconds: f64) -> Option<Rates> {
        let value = |name| figures.named(name, Statistic::Value).unwrap_or(0.0);
        is_whole(seconds).then(|| Rates {
            bitrate: value("bitrate"),
            wire_bitrate: value("wire_bitrate"),
            sent_bitrate: value("sent_bitrate"),
            sent: value("sent_rate"),
            answered: value("answered_rate"),
            expected: value("expected") as i64,
            received: value("received") as i64,
        })
    }
}

/// True if a window was not cut short. A shorter one (the last of each run) has no rates: a count
/// divided by a few milliseconds may be many times too high, or 0.
pub(crate) fn is_whole(seconds: f64) -> bool {
    seconds >= 0.999 * WINDOW.as_secs_f64()
}

/// State of the tester.
#[derive(Clone, Copy, Debug, Default)]
pub struct TesterProgress {
    /// CPU use of the workers in the last window, in cores; `None` if the window was cut short.
    pub cpu: Option<f64>,
    /// 99th percentile of the event loops' lag in the last window, in seconds.
    pub lag_p99: Option<f64>,
    /// Packets that the tester dropped since the start of the run.
    pub overflow: i64,
    /// True if no health bound was crossed in the last window.
    pub healthy: bool,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Path of the run file.
    pub run_file: PathBuf,
    pub verdict: Verdict,
    /// Result of each threshold.
    pub thresholds: Vec<ThresholdResult>,
    pub traces: Vec<crate::Trace>,
    /// True if the server ended on its own.
    pub server_ended: bool,
    /// Reason why the run file is incomplete; `None` if it is complete.
    pub run_file_error: Option<String>,
}

#[cfg(test)]
mod tests {
    use measure::Recorder;
    use measure::tester::{SOCKET_OVERFLOW, TESTER_CATALOGUE};

    use super::*;

    #[test]
    fn window_cut_short_has_no_rates() {
        let mut recorder = Recorder::new(TESTER_CATALOGUE);
        recorder.add(SOCKET_OVERFLOW, 1);
        let window = recorder.take_window();
        let rates = |seconds| {
            Rates::of(
                &Totals::of_window(TESTER_CATALOGUE, &window, seconds),
                seconds,
            )
        };
        assert_eq!(rates(1.0), Some(Rates::default()));
        // Window ends are measured in nanoseconds and may be 1 ns early.
        assert!(rates(0.999_999_999).is_some());
        for seconds in [0.0, 0.02, 0.9] {
            assert_eq!(rates(seconds), None, "{seconds}");
        }
    }

    #[test]
    fn late_packets_do_not_make_loss_negative() {
        let rates = |expected, received| Rates {
            expected,
            received,
            ..Rates::default()
        };
        assert_eq!(rates(1000, 990).loss(), Some(0.01));
        assert_eq!(rates(1000, 1050).loss(), Some(0.0));
        assert_eq!(rates(0, 0).loss(), None);
    }
}
