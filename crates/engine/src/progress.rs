//! What a run tells: how it stands while it goes, and what it came to.

use std::path::PathBuf;
use std::time::Duration;

use measure::threshold::ThresholdResult;
use measure::totals::Statistic;
use measure::{Totals, Verdict};

use crate::worker::WINDOW;

/// How a run stands, once a window.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Since the run began.
    pub elapsed: Duration,
    /// What it is doing.
    pub phase: Phase,
    /// Each population, in the scenario's order.
    pub populations: Vec<(String, PopulationProgress)>,
    /// What the server used in the last window, in cores; none where none is observed, or the
    /// window was cut short.
    pub server_cpu: Option<f64>,
    /// How the tester does.
    pub tester: TesterProgress,
    /// Clients that failed in the last window, by population and reason.
    pub failures: Vec<Failures>,
    /// Whether the user holds the plan of how many clients there are to be.
    pub is_held: bool,
    /// How long the plan has been held so far: the run ends that much later than it was to.
    pub held: Duration,
}

/// Clients of a population that failed for a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failures {
    /// Whose they are.
    pub population: String,
    /// Why, out of the protocol's enumerated set.
    pub reason: String,
    /// How many.
    pub count: u64,
}

/// What a run is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The server is being started; the text says how far.
    Launching(String),
    /// Something that its reader should know before the run begins; what the run does goes on.
    Warning(String),
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
    /// What its clients do.
    pub does: Does,
    /// Clients at work.
    pub active: u64,
    /// Clients whose media has begun to arrive, or to leave where they publish.
    pub playing: u64,
    /// Clients begun since the start of the run.
    pub started: u64,
    /// Clients failed since the start of the run.
    pub failed: u64,
    /// What came and left in the last window. None where that window was cut short, as a run's last
    /// one is: a few milliseconds in which a burst arrived, or nothing, say nothing about a second.
    pub rates: Option<Rates>,
}

/// What the clients of a population do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Does {
    /// They receive media.
    #[default]
    Play,
    /// They send media.
    Publish,
    /// They send messages.
    Send,
}

/// What a population received and sent in a whole window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Media payload received, bit/s.
    pub bitrate: f64,
    /// Media received with its headers, bit/s.
    pub wire_bitrate: f64,
    /// Media payload that its clients sent, bit/s: 0 where they do not publish.
    pub sent_bitrate: f64,
    /// Messages sent, per second: 0 where its clients send none.
    pub sent: f64,
    /// Messages answered, per second: 0 where its clients send none.
    pub answered: f64,
    /// Packets expected.
    pub expected: i64,
    /// Packets received.
    pub received: i64,
}

impl Rates {
    /// Share of the expected packets that did not come, 0 to 1. None where none were expected.
    pub fn loss(&self) -> Option<f64> {
        // Packets that counted as lost in the window before may have come in this one.
        let lost = (self.expected - self.received).max(0);
        (self.expected > 0).then(|| lost as f64 / self.expected as f64)
    }

    /// Those of a window of this many seconds, if it is a whole one.
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

/// Whether a window lasted as long as it was planned to. One that ends early (the last one of each
/// run) has no rates: what is divided by its few milliseconds may be many times too much, or
/// nothing.
pub(crate) fn is_whole(seconds: f64) -> bool {
    seconds >= 0.999 * WINDOW.as_secs_f64()
}

/// How the tester does.
#[derive(Clone, Copy, Debug, Default)]
pub struct TesterProgress {
    /// Cores that its workers used in the last window; none where that was cut short.
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
        // A worker counts its windows' ends in nanoseconds.
        assert!(rates(0.999_999_999).is_some());
        for seconds in [0.0, 0.02, 0.9] {
            assert_eq!(rates(seconds), None, "{seconds}");
        }
    }

    #[test]
    fn packets_that_came_late_are_no_negative_loss() {
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
