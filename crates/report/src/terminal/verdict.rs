//! First lines of the summary: the verdict, its cause, and the thresholds.

use std::fmt::Write;

use measure::VerdictResult;

use super::{Layout, Screen, hanging, one_line, truncate};
use crate::cause::{cause, other_reasons};
use crate::head;
use crate::human::{duration, plural, short_duration};
use crate::model::{Report, Threshold};
use crate::sanitize;
use crate::shorten::shorten;

/// Maximum rows of reasons and of thresholds on a screen.
const REASONS_SHOWN: usize = 4;
const THRESHOLDS_SHOWN: usize = 10;

/// Formats the verdict and its cause only: the quiet summary of a run.
pub fn headline(report: &Report, layout: Layout) -> String {
    let mut screen = Screen {
        text: String::new(),
        layout,
    };
    screen.headline(report, true);
    sanitize::multi_line(&screen.text, layout.paint.colour).into_owned()
}

impl Screen {
    pub(super) fn verdict(&mut self, report: &Report) {
        self.headline(report, false);
        let reasons = other_reasons(report);
        let shown = self.layout.shown(reasons.len(), REASONS_SHOWN);
        for reason in reasons.iter().take(shown) {
            self.wrapped("- ", reason);
        }
        self.more(reasons.len(), shown, "reasons");
        self.head(report);
    }

    /// Writes the target, the time, and the most important figures of each population.
    fn head(&mut self, report: &Report) {
        self.blank();
        if let Some(target) = head::target(&report.run) {
            self.row("target", &one_line(&target));
        }
        self.row("began", &head::began(&report.run));
        let (lines, more) = head::populations(report);
        for (name, line) in lines {
            self.row(name, &line);
        }
        if more > 0 {
            self.row(
                "",
                &format!(
                    "and {} below",
                    plural(more as f64, "population", "populations")
                ),
            );
        }
    }

    /// Writes the verdict with its run on the first line, and the cause on the second.
    fn headline(&mut self, report: &Report, brief: bool) {
        let paint = self.layout.paint;
        let name = report.verdict.result.name().to_uppercase();
        let word = match report.verdict.result {
            VerdictResult::Pass => paint.good(&name),
            VerdictResult::Fail => paint.bad(&name),
            VerdictResult::Invalid | VerdictResult::Stopped => paint.doubtful(&name),
        };
        let run = &report.run;
        let mut about = format!("  ({}", short_duration(run.duration));
        if run.closing >= 1.0 {
            let _ = write!(
                about,
                ", then {} until all clients had ended",
                duration(run.closing)
            );
        }
        if run.warm_up > 0.0 {
            let _ = write!(about, ", the first {} left out", duration(run.warm_up));
        }
        for setting in &run.varied {
            let _ = write!(about, ", {}: {}", setting.key, one_line(&setting.value));
        }
        about.push(')');
        let room = self.layout.width.saturating_sub(name.len() + 2);
        let about = truncate(&about, room.saturating_sub(12));
        let left = room.saturating_sub(about.chars().count());
        let title = truncate(&shorten(&one_line(&run.name), left), left.max(12));
        let _ = writeln!(self.text, "{}  {title}{about}", paint.strong(&word));
        if let Some(mut cause) = cause(report) {
            // A cause from failed clients also explains the other reasons, such as missing media.
            let is_a_reason = report.verdict.reasons.first() == Some(&cause);
            let more = match brief && is_a_reason {
                true => other_reasons(report).len(),
                false => 0,
            };
            if more > 0 {
                let _ = write!(
                    cause,
                    " (and {})",
                    plural(more as f64, "more reason", "more reasons")
                );
            }
            self.wrapped("", &cause);
        }
        if let Some(planned) = run.planned
            && run.finished
            && report.verdict.result == VerdictResult::Pass
            && run.duration < planned - 1.0
        {
            let text = format!(
                "all clients had ended after {} of the planned {}",
                short_duration(run.duration),
                short_duration(planned)
            );
            self.wrapped("", &text);
        }
        if let Some(text) = run.held_in_words() {
            self.wrapped("", &text);
        }
    }

    /// Writes a wrapped text, with a mark before its first line.
    pub(super) fn wrapped(&mut self, mark: &str, text: &str) {
        let mark = format!("  {mark}");
        self.text += &hanging(&mark, &one_line(text), self.layout.width);
    }

    /// Writes the thresholds. Implied thresholds that held are shown with `-v` only.
    pub(super) fn thresholds(&mut self, report: &Report) {
        if report.thresholds.is_empty() {
            return;
        }
        self.heading("thresholds", "");
        let everything = self.layout.verbose;
        let is_shown =
            |threshold: &&Threshold| everything || !threshold.implied || !threshold.passed;
        let mut all: Vec<_> = report.thresholds.iter().filter(is_shown).collect();
        let unwritten = report.thresholds.len() - all.len();
        // Failed thresholds come first, so that they are never left out for lack of space.
        all.sort_by_key(|threshold| threshold.passed);
        let shown = self.layout.shown(all.len(), THRESHOLDS_SHOWN);
        let widest = all
            .iter()
            .take(shown)
            .map(|found| found.threshold.chars().count());
        let column = widest
            .max()
            .unwrap_or(0)
            .min(self.layout.width.saturating_sub(34).max(20));
        for threshold in all.iter().take(shown) {
            let mark = match threshold.passed {
                true => self.layout.paint.good("ok    "),
                false if threshold.undecided => self.layout.paint.doubtful("~     "),
                false => self.layout.paint.bad("FAILED"),
            };
            let written = truncate(&one_line(&threshold.threshold), column);
            let measured = measured(threshold);
            let _ = writeln!(self.text, "  {mark} {written:<column$}  {measured}");
        }
        self.more(all.len(), shown, "thresholds");
        if unwritten > 0 {
            let mark = self.layout.paint.good("ok    ");
            let implied = plural(unwritten as f64, "implied threshold", "implied thresholds");
            let _ = writeln!(self.text, "  {mark} {implied} (-v)");
        }
    }
}

/// Describes the compared value, such as `42 % (mean)` or `8.2 % (window 3)`.
fn measured(threshold: &Threshold) -> String {
    if threshold.value.is_none() {
        return "no data".to_owned();
    }
    let mut text = threshold.value_text();
    let mut what = Vec::new();
    if let Some(statistic) = &threshold.statistic {
        what.push(one_line(statistic));
    }
    if let Some(window) = threshold.worst_window {
        what.push(format!("window {window}"));
    }
    if threshold.undecided {
        what.push("undecided".to_owned());
    }
    if !what.is_empty() {
        let _ = write!(text, " ({})", what.join(", "));
    }
    text
}
