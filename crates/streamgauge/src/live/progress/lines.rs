//! Text of the progress display.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use engine::{Phase, Progress};
use measure::Unit;
use report::human::{count, duration, figure};
use report::shorten;

use super::block::Size;
use super::history::History;
use super::line::{ScreenLine, Tone};
use super::populations::{Head, plain_population, sparks};
use super::runner_lines::runner_lines;
use super::thresholds::{plain_thresholds, threshold_lines};

/// Length of the progress bar, in columns.
const BAR: RangeInclusive<usize> = 4..=40;

/// Minimum columns of a terminal with charts.
const CHARTS_FROM: usize = 72;

/// Rows of the charts.
const CHART_ROWS: usize = 9;

/// Rows that stay free below charts, for failures that occur later.
const SPARE_ROWS: usize = 2;

/// Minimum free rows of a terminal with a line about the keys.
const KEYS_FROM: usize = 3;

/// Maximum number of lines about failed clients.
const FAILURES_MAX: usize = 4;

/// Maximum number of lines about thresholds.
const THRESHOLDS_MAX: usize = 6;

/// Maximum number of lines about runners.
const RUNNERS_MAX: usize = 8;

/// Maximum length of a step before the run in a plain line, in characters. Long steps contain the
/// command of a server.
const LAUNCHING_MAX: usize = 200;

/// Progress of a run on a terminal.
pub(super) struct View<'a> {
    pub(super) progress: &'a Progress,
    pub(super) history: &'a History,
    /// Duration that was planned when the run began, if known.
    pub(super) planned: Option<Duration>,
    /// URLs of each population.
    pub(super) urls: &'a BTreeMap<String, String>,
    /// True if keys are handled.
    pub(super) obeys_keys: bool,
    /// True if the user wants to see all keys.
    pub(super) shows_keys: bool,
}

impl View<'_> {
    /// Returns the lines: time; charts if there is room; each population; thresholds; server and
    /// tester; each runner if there are several; failures; keys. No line is wider than the
    /// terminal, and there are no more lines than it has rows.
    pub(super) fn lines(&self, size: Size) -> Vec<ScreenLine> {
        let mut lines = vec![self.time(size.columns)];
        let populations = &self.progress.populations;
        if populations.is_empty() {
            lines.extend(self.keys(size.columns, size.rows.saturating_sub(1)));
        } else {
            lines.extend(self.run(size));
        }
        lines.truncate(size.rows);
        let lines = lines.into_iter();
        lines.map(|line| line.cut(size.columns)).collect()
    }

    /// Returns all lines of a run below the time. What matters more takes its rows first.
    fn run(&self, size: Size) -> Vec<ScreenLine> {
        let populations = &self.progress.populations;
        // Two lines: the time, and server and tester.
        let mut left = size.rows.saturating_sub(2 + populations.len());
        let keys = self.keys(size.columns, left);
        left -= keys.len();
        let failures = self.history.failures(left.min(FAILURES_MAX));
        left -= failures.len();
        let thresholds = threshold_lines(&self.progress.thresholds, left.min(THRESHOLDS_MAX));
        left -= thresholds.len();
        let has_urls = self.urls.len() <= left;
        left -= if has_urls { self.urls.len() } else { 0 };
        let charts = self.charts(size.columns, left);
        left -= charts.len();
        let has_sparks = populations.len() <= left;
        left -= if has_sparks { populations.len() } else { 0 };
        let runners = runner_lines(self.progress, left.min(RUNNERS_MAX));

        let mut lines = charts;
        let rows = size.rows.saturating_sub(2);
        let shown = match populations.len() {
            all if all <= rows => all,
            _ => rows.saturating_sub(1),
        };
        for (name, population) in &populations[..shown] {
            let url = self.urls.get(name);
            let head = Head {
                name,
                population,
                url: url.filter(|_| !has_urls),
                with_rates: !has_sparks,
            };
            lines.push(head.line(size.columns));
            if let Some(url) = url.filter(|_| has_urls) {
                let text = format!("  {}", shorten(url, size.columns.saturating_sub(2)));
                lines.push(ScreenLine::default().with(Tone::Faint, &text));
            }
            let track = self.history.populations.get(name);
            if let Some(track) = track.filter(|_| has_sparks) {
                lines.push(sparks(population, track, size.columns));
            }
        }
        match populations.len() - shown {
            0 => {}
            more => lines.push(ScreenLine::plain(&format!("... and {more} more"))),
        }
        lines.extend(thresholds);
        lines.push(server_and_tester(self.progress, size.columns));
        lines.extend(runners);
        lines.extend(failures);
        lines.extend(keys);
        lines
    }

    /// Returns the charts, if there is room for them and for more failures.
    fn charts(&self, columns: usize, rows: usize) -> Vec<ScreenLine> {
        let curves = &self.history.curves;
        if columns < CHARTS_FROM || rows < CHART_ROWS + SPARE_ROWS || !curves.has_curves() {
            return Vec::new();
        }
        curves.lines(columns, CHART_ROWS)
    }

    /// Returns the keys in at most this many rows: all of them if the user asked, otherwise a line
    /// if there is room.
    fn keys(&self, columns: usize, rows: usize) -> Vec<ScreenLine> {
        if !self.obeys_keys {
            return Vec::new();
        }
        let faint = |text: &str| ScreenLine::default().with(Tone::Faint, text);
        let is_held = self.progress.is_held;
        if self.shows_keys {
            let hold = match is_held {
                true => "h       resume the ramp",
                false => "h       hold the ramp",
            };
            let all = [
                "q       stop and report, like Ctrl-C",
                "Ctrl-C  stop; again: stop at once",
                hold,
                "?       hide the keys",
            ];
            return all.into_iter().take(rows).map(faint).collect();
        }
        if self.progress.phase != Phase::Running || rows < KEYS_FROM {
            return Vec::new();
        }
        let hold = if is_held { "resume" } else { "hold" };
        vec![faint(&match columns {
            60.. => format!("q: stop and report, h: {hold} the ramp, ?: all keys"),
            _ => format!("q: stop, h: {hold}, ?: all keys"),
        })]
    }

    /// Returns the progress of the run: a bar and the time left.
    fn time(&self, columns: usize) -> ScreenLine {
        let elapsed = self.progress.elapsed;
        let so_far = duration(elapsed.as_secs_f64());
        let planned = self.planned.map(|planned| planned + self.progress.held);
        let is_held = self.progress.is_held;
        let of = of_planned(planned);
        let (long, short) = match (&self.progress.phase, planned) {
            (Phase::Launching(text) | Phase::Warning(text), _) => {
                return ScreenLine::default().with(Tone::Strong, &shorten(text, columns));
            }
            (Phase::Lingering, _) => {
                let text = format!("{so_far}, observing what the server releases");
                return ScreenLine::default().with(Tone::Strong, &text);
            }
            (Phase::Running, None) if is_held => {
                let text = format!("{so_far}, endless, held (h to resume)");
                return ScreenLine::default().with(Tone::Doubtful, &text);
            }
            (Phase::Running, Some(_)) if is_held => (
                format!("{so_far}{of}, held (h to resume)"),
                "held (h to resume)".to_owned(),
            ),
            (Phase::Running, None) => {
                let text = format!("{so_far}, endless, Ctrl-C to finish");
                return ScreenLine::default().with(Tone::Strong, &text);
            }
            (Phase::Running, Some(planned)) => {
                let left = duration(planned.saturating_sub(elapsed).as_secs_f64());
                (format!("{so_far}{of}, {left} left"), format!("{left} left"))
            }
            (Phase::Stopping, _) => (
                format!("{so_far}{of}, stopping (Ctrl-C to stop at once)"),
                "stopping (Ctrl-C: at once)".to_owned(),
            ),
        };
        let text = match columns {
            60.. => long,
            _ => short,
        };
        let room = columns.saturating_sub(text.chars().count() + 1);
        let line = match planned {
            Some(planned) if room >= *BAR.start() => bar(elapsed, planned, room.min(*BAR.end())),
            _ => ScreenLine::default(),
        };
        line.with(Tone::Strong, &text)
    }
}

/// Returns the planned duration as text after the time so far, if it is known.
fn of_planned(planned: Option<Duration>) -> String {
    planned.map_or_else(String::new, |planned| {
        format!(" of {}", duration(planned.as_secs_f64()))
    })
}

/// Returns the progress as one line, for output that is not a terminal.
pub(super) fn plain(progress: &Progress, planned: Option<Duration>) -> String {
    let elapsed = duration(progress.elapsed.as_secs_f64());
    let of = of_planned(planned);
    let phase = match &progress.phase {
        Phase::Launching(what) => shorten(what, LAUNCHING_MAX),
        Phase::Warning(text) => format!("warning: {text}"),
        Phase::Running => "running".to_owned(),
        Phase::Stopping => "stopping (Ctrl-C to stop at once)".to_owned(),
        Phase::Lingering => "observing what the server releases".to_owned(),
    };
    let mut text = format!("{elapsed}{of}, {phase}");
    for (name, population) in &progress.populations {
        text.push_str("; ");
        text.push_str(&plain_population(name, population));
    }
    if !progress.populations.is_empty() {
        if let Some(thresholds) = plain_thresholds(&progress.thresholds) {
            text.push_str("; ");
            text.push_str(&thresholds);
        }
        text.push_str("; ");
        text.push_str(
            &server_and_tester(progress, usize::MAX).painted(report::paint::Paint::default()),
        );
    }
    text
}

/// Returns the state of server and tester, as far as it fits.
fn server_and_tester(progress: &Progress, columns: usize) -> ScreenLine {
    let tester = &progress.tester;
    let server = progress.server_cpu.map_or_else(String::new, |cpu| {
        format!("server CPU {}, ", figure(Unit::Cores, cpu))
    });
    let (tone, health) = match tester.healthy {
        true => (Tone::Good, "fit"),
        false => (Tone::Doubtful, "OVERLOADED"),
    };
    let lost = (tester.overflow > 0).then(|| count(tester.overflow as f64));
    let cpu = tester
        .cpu
        .map(|cpu| format!("CPU {}", figure(Unit::Cores, cpu)));
    let late = tester
        .lag_p99
        .map(|lag| format!("lag p99 {}", figure(Unit::Seconds, lag)));
    let made = |known: Vec<String>, lost: Option<String>| {
        let mut line = ScreenLine::plain(&format!("{server}tester "));
        if !known.is_empty() {
            line = line.with(Tone::Plain, &known.join(", "));
        }
        if let Some(lost) = lost {
            let parted = if known.is_empty() { "" } else { ", " };
            line = line
                .with(Tone::Plain, parted)
                .with(Tone::Bad, &format!("{lost} packets lost here"));
        }
        let alone = line == ScreenLine::plain(&format!("{server}tester "));
        let parted = if alone { "" } else { ": " };
        line.with(Tone::Plain, parted).with(tone, health)
    };
    let short = cpu.iter().cloned().collect();
    let all = cpu.iter().cloned().chain(late).collect();
    let layouts = [
        made(all, lost.clone()),
        made(short, lost.clone()),
        made(Vec::new(), lost),
        made(Vec::new(), None),
    ];
    let shortest = layouts.len() - 1;
    let fits = layouts.iter().position(|line| line.width() <= columns);
    let mut layouts = layouts.into_iter();
    layouts.nth(fits.unwrap_or(shortest)).unwrap_or_default()
}

/// Returns a progress bar of this many columns.
fn bar(elapsed: Duration, planned: Duration, columns: usize) -> ScreenLine {
    let share = match planned.is_zero() {
        true => 1.0,
        false => (elapsed.as_secs_f64() / planned.as_secs_f64()).min(1.0),
    };
    let full = (share * columns as f64).round() as usize;
    ScreenLine::default()
        .with(Tone::Good, &"━".repeat(full))
        .with(Tone::Faint, &"─".repeat(columns - full))
        .with(Tone::Plain, " ")
}

#[cfg(test)]
mod tests;
