//! `--otlp`: pushes the figures of the current run to an OpenTelemetry collector, from its run
//! file.
//!
//! A separate thread reads the run file once a second, as any report does, and sends its figures.
//! The thread shares nothing with the measurement, and has the lower priority if both need the same
//! processor. Nothing queues up if the collector is slow or unreachable: each message has all
//! counters and distributions of the run, and the levels of the windows since the last message that
//! arrived, 60 at most.

mod collector;

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use report::live_figures::LiveFigures;
use report::otlp::Push;
use report::{Reader, ReportError, io_reason};

use crate::exit::Failure;
use crate::live::current_run_file::CurrentRunFile;
use crate::live::processor_time::timed;
use crate::live::view_server::NICE;
use collector::Collector;

/// Interval between pushes: one window.
const PUSH_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum pause after a push while pushes fail.
const PUSH_INTERVAL_MAX: Duration = Duration::from_secs(30);
/// Minimum pause between pushes, as a multiple of the processor time that reading took.
const PAUSE_FACTOR: u32 = 20;
/// Time limit of a push.
const PUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// Time that the end of a run waits for a push in progress and for the last one.
const FINISH_TIMEOUT: Duration = Duration::from_secs(7);

/// Pushes figures until it is finished.
pub(crate) struct OtlpExporter {
    /// URL for people.
    pub(crate) url: String,
    orders: Sender<Order>,
    done: Receiver<PushTotals>,
}

enum Order {
    /// This run has begun, and the previous one has ended.
    Show(CurrentRunFile),
    /// The last run has ended.
    End,
}

/// Result of all pushes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PushTotals {
    pushes: u64,
    failed: u64,
    /// Reason of the last failure.
    last_error: String,
    /// Runs whose last push failed, so that the collector lacks their totals.
    incomplete: u64,
    /// Windows whose levels were discarded.
    discarded_windows: u64,
    /// Data points that the collector rejected, and its reason.
    rejected: u64,
    rejection_reason: String,
}

/// A run whose figures are pushed.
struct OpenRun {
    reader: Reader,
    figures: LiveFigures,
    push: Push,
}

impl OtlpExporter {
    /// Starts the thread. There is no run yet. The collector is not contacted: whether it is
    /// reachable does not affect the run.
    pub(crate) fn start(url: &str) -> Result<OtlpExporter, Failure> {
        let variables = |name: &str| std::env::var_os(name);
        let collector = Collector::new(url, variables).map_err(Failure::bad)?;
        let url = collector.to_string();
        let (orders, inbox) = channel();
        let (outbox, done) = channel();
        let pusher = Pusher {
            collector,
            followed: None,
            open: None,
            done: PushTotals::default(),
        };
        let thread = thread::Builder::new().name("otlp".to_owned());
        let started = thread.spawn(move || {
            // The result is unused if the end of the run did not wait for it.
            let _ = outbox.send(pusher.run(&inbox));
        });
        started.map_err(|error| {
            Failure::bad(format_args!(
                "cannot push metrics to {url}: {}",
                io_reason(&error)
            ))
        })?;
        Ok(OtlpExporter { url, orders, done })
    }

    /// Pushes the run of this file from now on. The file may not exist yet.
    pub(crate) fn show(&self, run_file: &Path) {
        // The thread runs until it receives `End`.
        let _ = self.orders.send(Order::Show(CurrentRunFile::new(run_file)));
    }

    /// Pushes the rest of the last run. Returns what went wrong, if anything.
    pub(crate) fn finish(self) -> Option<String> {
        let _ = self.orders.send(Order::End);
        match self.done.recv_timeout(FINISH_TIMEOUT) {
            Ok(done) => done.summary(&self.url),
            Err(_) => Some(format!(
                "OTLP: the last push to {} was not complete in time: the run's end is missing there",
                self.url
            )),
        }
    }
}

impl PushTotals {
    /// Returns what went wrong in words. `None` if nothing went wrong.
    fn summary(&self, url: &str) -> Option<String> {
        let mut parts = Vec::new();
        if self.failed > 0 {
            parts.push(format!(
                "{} of {} pushes to {url} failed, the last one with: {}",
                self.failed, self.pushes, self.last_error
            ));
        }
        if self.discarded_windows > 0 {
            parts.push(format!(
                "levels of {} windows are missing there",
                self.discarded_windows
            ));
        }
        if self.rejected > 0 || !self.rejection_reason.is_empty() {
            let why = match self.rejection_reason.as_str() {
                "" => "it does not say why",
                why => why,
            };
            parts.push(format!(
                "the collector refused {} data points: {why}",
                self.rejected
            ));
        }
        if self.incomplete > 0 {
            parts.push("the run's end is missing there".to_owned());
        }
        (!parts.is_empty()).then(|| format!("OTLP: {}", parts.join("; ")))
    }
}

struct Pusher {
    collector: Collector,
    followed: Option<CurrentRunFile>,
    open: Option<OpenRun>,
    done: PushTotals,
}

impl Pusher {
    fn run(mut self, orders: &Receiver<Order>) -> PushTotals {
        let _ = rustix::process::nice(NICE);
        let mut failed_in_a_row = 0;
        let mut next = Instant::now() + PUSH_INTERVAL;
        loop {
            let pause = next.saturating_duration_since(Instant::now());
            match orders.recv_timeout(pause) {
                Ok(Order::Show(followed)) => {
                    self.end_run();
                    self.followed = Some(followed);
                }
                Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => {
                    self.end_run();
                    return self.done;
                }
                Err(RecvTimeoutError::Timeout) => {
                    let begun = Instant::now();
                    // A run file that cannot be read now may be readable a second later.
                    let (message, spent) = timed(|| self.message().ok().flatten());
                    match message.map(|message| self.push(&message)) {
                        None | Some(true) => failed_in_a_row = 0,
                        Some(false) => failed_in_a_row += 1,
                    }
                    let pause = PUSH_INTERVAL * 2u32.saturating_pow(failed_in_a_row.min(5));
                    next = begun + pause.min(PUSH_INTERVAL_MAX).max(spent * PAUSE_FACTOR);
                }
            }
        }
    }

    /// Pushes the rest of a run and closes its run file.
    fn end_run(&mut self) {
        if self.followed.is_none() {
            return;
        }
        let message = self.message().ok().flatten();
        self.followed = None;
        if let Some(open) = self.open.take() {
            // The file is closed before the push, which may take time, so that it becomes a single
            // file again.
            drop(open.reader);
            self.done.discarded_windows += open.push.left_out();
        }
        if let Some(message) = message
            && !self.push(&message)
        {
            self.done.incomplete += 1;
        }
    }

    /// Returns a message with what is new in the run. `None` if nothing is new.
    fn message(&mut self) -> Result<Option<Vec<u8>>, ReportError> {
        if self.open.is_none() {
            let Some(followed) = &self.followed else {
                return Ok(None);
            };
            let Some(reader) = followed.open()? else {
                return Ok(None);
            };
            self.open = Some(OpenRun {
                figures: LiveFigures::new(&reader),
                push: Push::default(),
                reader,
            });
        }
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        let push = &mut open.push;
        open.figures
            .update(&open.reader, |figures| push.window(figures))?;
        let has_unsent = open.push.has_unsent();
        Ok(has_unsent.then(|| open.push.message(&open.figures)))
    }

    /// Pushes a message. Returns `true` if the collector accepted it.
    fn push(&mut self, message: &[u8]) -> bool {
        self.done.pushes += 1;
        match self.collector.push(message, Instant::now() + PUSH_TIMEOUT) {
            Ok(taken) => {
                if let Some(open) = &mut self.open {
                    open.push.sent();
                }
                self.done.rejected += taken.rejected;
                if !taken.text.is_empty() {
                    self.done.rejection_reason = taken.text;
                }
                true
            }
            Err(why) => {
                self.done.failed += 1;
                self.done.last_error = why;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_one_line_and_success_is_none() {
        assert_eq!(PushTotals::default().summary("http://c/"), None);
        let done = PushTotals {
            pushes: 12,
            failed: 3,
            last_error: "connection refused".to_owned(),
            incomplete: 1,
            discarded_windows: 2,
            rejected: 5,
            rejection_reason: "too old".to_owned(),
        };
        assert_eq!(
            done.summary("http://c/").as_deref(),
            Some(
                "OTLP: 3 of 12 pushes to http://c/ failed, the last one with: connection refused; \
                 levels of 2 windows are missing there; the collector refused 5 data points: too \
                 old; the run's end is missing there"
            )
        );
    }
}
