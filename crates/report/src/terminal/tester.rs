//! Tester in the summary: was it fit to measure?

use std::fmt::Write;

use measure::tester::WorkerFigures;
use measure::{Finding, Unit, VerdictResult};

use super::Screen;
use crate::human::{count, figure, figure_or_dash, plural};
use crate::metrics::Metrics;
use crate::model::Report;

impl Screen {
    pub(super) fn tester(&mut self, report: &Report) {
        let tester = &report.tester.metrics;
        let fit = report.tester.health.iter().all(|finding| !finding.invalid);
        let word = match (fit, report.verdict.result) {
            (false, _) => "not to be trusted: see above",
            // The run is invalid for another reason than the tester's health.
            (true, VerdictResult::Invalid) => "within its bounds",
            (true, _) => "fit",
        };
        self.heading("tester", word);
        // The resource usage of a fit tester does not matter.
        if !fit || self.layout.verbose {
            self.testers_cpu(tester);
        }
        if let Some(named) = tester.find("lag") {
            self.distribution("lag", named, "p50");
        }
        if tester.distribution("feedback_delay").is_some()
            && let Some(named) = tester.find("feedback_delay")
        {
            self.distribution("feedback_delay", named, "p50");
        }
        let overflow = tester.value("overflow").unwrap_or(0.0);
        let mut text = format!(
            "{} lost in the tester",
            plural(overflow, "packet", "packets")
        );
        match tester.value("softnet_drops") {
            Some(drops) if drops > 0.0 => {
                let _ = write!(text, ", {} in this machine's kernel", count(drops));
            }
            Some(_) => {}
            None => text += ", in this machine's kernel unknown",
        }
        if let Some(path) = &report.tester.receive_path {
            let _ = write!(text, "; read by {path}");
        }
        self.row("overflow", &text);
        if let Some(hint) = &report.tester.receive_hint {
            self.row("", hint);
        }
        let crossed: Vec<String> = report
            .tester
            .health
            .iter()
            .filter(|finding| is_crossed(finding))
            .map(|finding| {
                let worst = figure_or_dash(finding.unit, finding.worst);
                let windows = plural(finding.windows as f64, "window", "windows");
                format!("{} in {windows} (up to {worst})", finding.bound)
            })
            .collect();
        if !crossed.is_empty() {
            self.row("bounds crossed", &crossed.join(", "));
        }
    }

    fn testers_cpu(&mut self, tester: &Metrics) {
        let cpu = tester.level("cpu");
        let cpu = cpu.map_or_else(|| "-".to_owned(), |level| level.with_peak(Unit::Cores));
        let hottest = tester
            .level("cpu_hottest_worker")
            .map_or_else(String::new, |level| {
                format!("; hottest worker {}", figure(Unit::Cores, level.max))
            });
        let waited = tester.level("cpu_wait").map_or_else(String::new, |level| {
            format!("; waited for one {}", figure(Unit::Ratio, level.mean))
        });
        self.row("cpu", &format!("{cpu}{hottest}, of one core{waited}"));
    }

    /// Writes each health bound with its worst value, and each worker.
    pub(super) fn tester_in_full(&mut self, report: &Report) {
        let health = &report.tester.health;
        if !health.is_empty() {
            self.heading("health bounds of the tester", "docs/health.md");
        }
        for finding in health {
            let mark = match (finding.invalid, is_crossed(finding)) {
                (true, _) => self.layout.paint.doubtful("INVALID"),
                (false, true) => "crossed".to_owned(),
                (false, false) => self.layout.paint.good("ok     "),
            };
            let worst = finding
                .worst
                .map_or_else(|| "no data".to_owned(), |worst| figure(finding.unit, worst));
            let window = finding
                .worst_window
                .map_or_else(String::new, |window| format!(" in window {window}"));
            let _ = writeln!(
                self.text,
                "  {mark} {:<20} at most {:<9} worst {worst}{window}",
                finding.bound,
                figure(finding.unit, finding.limit),
            );
        }
        for (number, worker) in report.tester.workers.iter().enumerate() {
            if number == 0 {
                self.heading("workers", "");
            }
            self.row(&format!("worker {number}"), &in_words(worker));
        }
    }
}

fn is_crossed(finding: &Finding) -> bool {
    finding.invalid || finding.worst.is_some_and(|worst| worst > finding.limit)
}

fn in_words(worker: &WorkerFigures) -> String {
    format!(
        "CPU {} (peak {}), waited {} (peak {}), lag p99 {}, max {}; lost {} in its ring, {} at its \
         sockets",
        figure_or_dash(Unit::Cores, worker.cpu_mean),
        figure_or_dash(Unit::Cores, worker.cpu_max),
        figure_or_dash(Unit::Ratio, worker.cpu_wait_mean),
        figure_or_dash(Unit::Ratio, worker.cpu_wait_max),
        figure_or_dash(Unit::Seconds, worker.lag_p99),
        figure_or_dash(Unit::Seconds, worker.lag_max),
        count(worker.ring_overflow as f64),
        count(worker.socket_overflow as f64),
    )
}
