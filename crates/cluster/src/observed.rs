//! The server of a run, as a runner on its machine reports it.
//!
//! Each message has all counts since the beginning, and all lines of the log that are shown, so a
//! lost message loses nothing. Messages are sent outside the log of reports: only the newest
//! counts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sut::{LogCount, LogLine, Observation, RemoteServer};

/// Interval between messages.
pub(crate) const OBSERVE_INTERVAL: Duration = Duration::from_secs(1);

/// Age after which figures are not repeated any more.
const STALE_AFTER: Duration = Duration::from_millis(2_500);

/// Lines and patterns that are taken from another machine.
const LINES_MAX: usize = 200;

/// Interval between checks whether the run has ended.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Report of a runner about the server on its machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerReport {
    /// Number of the message, from 1.
    number: u64,
    figures: Figures,
    totals: Totals,
    /// Pattern and text of each complaint that is shown.
    lines: Vec<(String, String)>,
    /// Pattern, number of lines, and the first of them.
    counts: Vec<(String, u64, String)>,
    /// True if some of the log exceeded the limits.
    has_more: bool,
    /// How the server ended.
    ended: Option<String>,
}

/// Figures of the last second. `None`: not measured this time, or not readable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Figures {
    cpu: Option<f64>,
    cpu_hottest_thread: Option<f64>,
    cpu_allowed: Option<f64>,
    uss: Option<u64>,
    pss: Option<u64>,
    rss: Option<u64>,
    threads: Option<u64>,
    file_descriptors: Option<u64>,
    file_descriptors_share: Option<f64>,
    udp_memory: Option<u64>,
}

/// Counts since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Totals {
    socket_drops: u64,
    log_complaints: u64,
}

impl ServerReport {
    /// Adds an observation, with the lines of the log since the last one.
    pub(crate) fn add(&mut self, seen: &Observation, lines: Vec<LogLine>) {
        self.number += 1;
        self.figures = Figures {
            cpu: seen.cpu,
            cpu_hottest_thread: seen.cpu_hottest_thread,
            cpu_allowed: seen.cpu_allowed,
            // Memory is measured less often than once a second.
            uss: seen.uss.or(self.figures.uss),
            pss: seen.pss.or(self.figures.pss),
            rss: seen.rss,
            threads: seen.threads,
            file_descriptors: seen.file_descriptors,
            file_descriptors_share: seen.file_descriptors_share,
            udp_memory: seen.udp_memory,
        };
        self.totals.socket_drops += seen.socket_drops;
        self.totals.log_complaints += seen.log_complaints;
        let lines = lines.into_iter().map(|line| (line.pattern, line.text));
        self.lines.extend(lines);
        self.lines.truncate(LINES_MAX);
    }

    /// Returns `true` if the server has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Sets what the whole log has, and how the server ended.
    pub(crate) fn set_state(&mut self, log: (Vec<LogCount>, bool), ended: Option<String>) {
        let (counts, has_more) = log;
        let counts = counts.into_iter().take(LINES_MAX);
        self.counts = counts
            .map(|one| (one.pattern, one.lines, one.first))
            .collect();
        self.has_more = has_more;
        self.ended = ended;
    }
}

/// The newest report, and when it came.
pub(crate) type Newest = Mutex<Option<(Instant, ServerReport)>>;

/// A server on another machine, observed by a runner there.
#[derive(Debug, Default)]
pub(crate) struct ObservedServer {
    newest: Arc<Newest>,
    /// Number and counts of the report that was used last, and its lines.
    number: u64,
    /// `None` until a report has come since the beginning.
    totals: Option<Totals>,
    lines: usize,
    /// Numbers of lines by pattern at the beginning.
    counts: HashMap<String, u64>,
}

impl ObservedServer {
    /// Returns the place where a listener puts reports.
    pub(crate) fn newest(&self) -> Weak<Newest> {
        Arc::downgrade(&self.newest)
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Instant, ServerReport)>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to count from the state in a report.
    fn begin_with(&mut self, report: &ServerReport) {
        self.number = report.number;
        self.totals = Some(report.totals);
        self.lines = report.lines.len();
        let counts = report.counts.iter().take(LINES_MAX);
        self.counts = counts
            .map(|(pattern, lines, _)| (pattern.clone(), *lines))
            .collect();
    }

    fn observe_at(&mut self, now: Instant) -> Observation {
        let newest = self.lock().clone();
        let fresh = newest.filter(|(came, _)| now.duration_since(*came) < STALE_AFTER);
        let Some((_, report)) = fresh else {
            return Observation {
                scrapes_failed: 1,
                ..Observation::default()
            };
        };
        if self.totals.is_none() {
            self.begin_with(&report);
        }
        let (figures, totals) = (report.figures, report.totals);
        let before = self.totals.replace(totals).unwrap_or(totals);
        let has_news = std::mem::replace(&mut self.number, report.number) != report.number;
        Observation {
            // Processor time of a second counts once.
            cpu: figures.cpu.filter(|_| has_news),
            cpu_hottest_thread: figures.cpu_hottest_thread.filter(|_| has_news),
            cpu_allowed: figures.cpu_allowed,
            uss: figures.uss,
            pss: figures.pss,
            rss: figures.rss,
            threads: figures.threads,
            file_descriptors: figures.file_descriptors,
            file_descriptors_share: figures.file_descriptors_share,
            udp_memory: figures.udp_memory,
            socket_drops: totals.socket_drops.saturating_sub(before.socket_drops),
            log_complaints: totals.log_complaints.saturating_sub(before.log_complaints),
            ..Observation::default()
        }
    }
}

impl RemoteServer for ObservedServer {
    fn begin(&mut self) {
        let newest = self.lock().as_ref().map(|(_, report)| report.clone());
        match newest {
            Some(report) => self.begin_with(&report),
            // The first report is the beginning.
            None => self.totals = None,
        }
    }

    fn observe(&mut self) -> Observation {
        self.observe_at(Instant::now())
    }

    fn take_log_lines(&mut self) -> Vec<LogLine> {
        if self.totals.is_none() {
            return Vec::new();
        }
        let lines = self.lock().as_ref().map(|(_, report)| report.lines.clone());
        let lines = lines.unwrap_or_default();
        let new = lines.iter().skip(self.lines).take(LINES_MAX);
        let new = new.map(|(pattern, text)| LogLine {
            pattern: pattern.clone(),
            text: text.clone(),
        });
        let new = new.collect();
        self.lines = self.lines.max(lines.len());
        new
    }

    fn log_counts(&self) -> (Vec<LogCount>, bool) {
        let newest = self.lock();
        let Some((_, report)) = newest.as_ref() else {
            return (Vec::new(), false);
        };
        let counts = report.counts.iter().take(LINES_MAX);
        let counts = counts.map(|(pattern, lines, first)| LogCount {
            pattern: pattern.clone(),
            lines: lines.saturating_sub(self.counts.get(pattern).copied().unwrap_or(0)),
            first: first.clone(),
        });
        let counts = counts.filter(|count| count.lines > 0);
        (counts.collect(), report.has_more)
    }

    fn has_exited(&self) -> Option<String> {
        self.lock().as_ref()?.1.ended.clone()
    }
}

/// Takes a report. Reports are numbered: an older one may come later.
pub(crate) fn take_report(_subject: &str, report: ServerReport, newest: &Newest) {
    let mut newest = newest.lock().unwrap_or_else(PoisonError::into_inner);
    let before = newest.as_ref();
    if before.is_none_or(|(_, old)| old.number < report.number) {
        *newest = Some((Instant::now(), report));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(cpu: f64, drops: u64, complaints: u64) -> Observation {
        Observation {
            cpu: Some(cpu),
            rss: Some(7),
            socket_drops: drops,
            log_complaints: complaints,
            ..Observation::default()
        }
    }

    fn line(text: &str) -> LogLine {
        LogLine {
            pattern: "error".to_owned(),
            text: text.to_owned(),
        }
    }

    fn came(server: &ObservedServer, at: Instant, report: &ServerReport) {
        *server.lock() = Some((at, report.clone()));
    }

    #[test]
    fn lost_reports_lose_no_count() {
        let (mut server, mut report) = (ObservedServer::default(), ServerReport::default());
        let now = Instant::now();
        assert_eq!(server.observe_at(now).scrapes_failed, 1, "nothing came");
        // From before the run.
        report.add(&seen(0.4, 7, 7), vec![line("early")]);
        came(&server, now, &report);
        server.begin();
        report.add(&seen(0.5, 3, 1), vec![line("a")]);
        came(&server, now, &report);
        assert_eq!(server.observe_at(now), seen(0.5, 3, 1));
        assert_eq!(server.take_log_lines(), [line("a")]);
        // The second of these never comes.
        report.add(&seen(0.6, 4, 0), vec![line("b")]);
        report.add(&seen(0.7, 5, 2), vec![line("c")]);
        report.set_state((Vec::new(), true), Some("exit status 1".to_owned()));
        came(&server, now, &report);
        assert_eq!(server.observe_at(now), seen(0.7, 9, 2));
        assert_eq!(server.take_log_lines(), [line("b"), line("c")]);
        assert_eq!(server.has_exited().as_deref(), Some("exit status 1"));
        assert!(server.log_counts().1);
        // The same report again.
        let again = server.observe_at(now);
        assert_eq!(
            (again.cpu, again.rss, again.socket_drops),
            (None, Some(7), 0)
        );
        assert_eq!(server.take_log_lines(), []);
        let late = server.observe_at(now + STALE_AFTER);
        assert_eq!((late.rss, late.scrapes_failed), (None, 1));
    }
}
