//! Terminal summary of a run: one screen, in the order of a reader's questions.
//!
//! Did it pass, and why? Which thresholds held? What did the clients experience? What did the
//! server use? Was the tester fit to measure? Where are the details? Details that few readers need
//! are shown with `-v`.

mod given_back;
mod links;
mod runners;
mod sources;
mod tester;
mod verdict;

use std::fmt::Write;
use std::path::Path;

use measure::Unit;

pub use verdict::headline;

use crate::human::{count, figure, figure_or_dash, plural};
use crate::metrics::{MetricFigures, Metrics, NamedFigures};
use crate::model::{Clients, Event, Population, Report};
use crate::own_counts::OwnCounts;
use crate::paint::Paint;
use crate::rows::{RenderedRow, rows};
use crate::sanitize;

/// Layout of the summary.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Columns of the terminal; long lines are truncated or wrapped to fit. Default: 80.
    pub width: usize,
    /// Colours of the output. Default: none.
    pub paint: Paint,
    /// True for every metric and every event, instead of as much as fits one screen. Default:
    /// false.
    pub verbose: bool,
}

impl Layout {
    /// Returns how many of all items are shown: `max` unless everything is.
    pub(crate) fn shown(self, all: usize, max: usize) -> usize {
        if self.verbose { all } else { max }
    }
}

impl Default for Layout {
    fn default() -> Layout {
        Layout {
            width: 80,
            paint: Paint::default(),
            verbose: false,
        }
    }
}

/// Event of a server that ended during the measurement, and the maximum length of its text.
const ENDED: &str = "server_ended";
const ENDED_MAX: usize = 200;
/// Width of the names on the left, in columns.
const NAME: usize = 22;
/// Maximum rows of failures and of URLs on a screen.
const FAILURES_SHOWN: usize = 4;
const MEDIA_SHOWN: usize = 4;

/// Formats the summary.
pub fn summary(report: &Report, layout: Layout) -> String {
    let mut screen = Screen {
        text: String::new(),
        layout,
    };
    screen.verdict(report);
    screen.thresholds(report);
    screen.media(report);
    for population in &report.populations {
        screen.population(population, report);
    }
    screen.delay_error(report);
    screen.links(report);
    screen.ports_used_up(&report.events);
    if let Some(server) = &report.server {
        screen.server(server, &report.events);
        screen.cost_of_messages(report);
        if let Some(given_back) = &report.server_gave_back {
            screen.given_back(given_back);
        }
    }
    screen.limits(report);
    screen.sources(report);
    screen.tester(report);
    screen.runners(&report.runners);
    if layout.verbose {
        screen.everything(report);
    }
    screen.run_file(report);
    sanitize::multi_line(&screen.text, layout.paint.colour).into_owned()
}

struct Screen {
    text: String,
    layout: Layout,
}

impl Screen {
    fn blank(&mut self) {
        self.text.push('\n');
    }

    /// Writes a line, truncated at the width of the terminal.
    fn line(&mut self, plain: &str) {
        let line = truncate(plain, self.layout.width);
        self.text.push_str(&line);
        self.text.push('\n');
    }

    /// Writes a name on the left and its text. Paths and texts are wrapped, not truncated.
    fn row(&mut self, name: &str, text: &str) {
        let room = self.layout.width.saturating_sub(NAME + 2).max(20);
        let mut name = name;
        for part in wrap(text, room) {
            let padded = format!("  {name:<width$}", width = NAME - 1);
            let _ = writeln!(self.text, "{} {part}", self.layout.paint.faint(&padded));
            name = "";
        }
    }

    fn heading(&mut self, name: &str, text: &str) {
        self.blank();
        let room = self.layout.width.saturating_sub(name.chars().count() + 2);
        self.text
            .push_str(&self.layout.paint.strong(&sanitize::single_line(name)));
        let mut parts = wrap(text, room.max(20)).into_iter();
        if let Some(first) = parts.next().filter(|first| !first.is_empty()) {
            self.text.push_str("  ");
            self.text.push_str(&first);
        }
        self.text.push('\n');
        for part in parts {
            let _ = writeln!(self.text, "  {part}");
        }
    }

    fn more(&mut self, all: usize, shown: usize, things: &str) {
        if all > shown {
            let text = format!(
                "  ... and {} more {things}: see the JSON report, or -v",
                all - shown
            );
            self.line(&text);
        }
    }

    /// Writes the media to be played: the first URLs, and every warning about differences between
    /// URLs.
    fn media(&mut self, report: &Report) {
        let media = &report.media;
        if media.urls.is_empty() {
            return;
        }
        self.heading("media", "as its server describes it");
        let lines = crate::media::lines(media);
        let (urls, warnings) = lines.split_at(media.urls.len());
        let shown = self.layout.shown(urls.len(), MEDIA_SHOWN);
        let room = self.layout.width.saturating_sub(4).max(20);
        for line in urls.iter().take(shown).chain(warnings) {
            // At most two rows each: the whole text is in the run file.
            let line = match line.starts_with("warning") {
                true => one_line(line),
                false => truncate(&one_line(line), 2 * room),
            };
            self.text += &hanging("  - ", &line, self.layout.width);
        }
        self.more(urls.len(), shown, "URLs");
    }

    fn population(&mut self, population: &Population, report: &Report) {
        let clients = &population.clients;
        let metrics = &population.metrics;
        let stopped = report.verdict.stopped_by_user;
        self.heading(&population.name, &clients_line(clients, metrics, stopped));
        // An observed server runs on this machine.
        for (row, shown) in rows(population, report.server.is_some()) {
            match shown {
                RenderedRow::Text(text) => self.row(row.label, &text),
                RenderedRow::Distribution(found, first) => {
                    self.distribution(row.label, found, first)
                }
            }
        }
        self.failures(clients);
    }

    fn failures(&mut self, clients: &Clients) {
        let shown = self.layout.shown(clients.failures.len(), FAILURES_SHOWN);
        let mut failures: Vec<_> = clients.failures.iter().collect();
        failures.sort_by_key(|failure| std::cmp::Reverse(failure.count));
        for failure in failures.iter().take(shown) {
            let example = failure.example.as_deref().unwrap_or_default();
            let example = if example.is_empty() {
                String::new()
            } else {
                format!(", such as: {}", one_line(example))
            };
            let text = format!(
                "{} × {}{example}",
                count(failure.count as f64),
                failure.reason
            );
            // At most three rows per reason: the whole text is in the run file.
            let text = truncate(
                &text,
                3 * (self.layout.width.saturating_sub(NAME + 4)).max(20),
            );
            self.row("failed", &text);
        }
        self.more(clients.failures.len(), shown, "failure reasons");
    }

    /// Explains the mark of delays that are too close to the error of the clocks.
    fn delay_error(&mut self, report: &Report) {
        if let Some(note) = report.delay_note() {
            self.blank();
            self.wrapped("", &note);
        }
    }

    /// Writes four figures in columns: the mean or the median, then the tail.
    fn distribution(&mut self, label: &str, named: &NamedFigures, first: &str) {
        let MetricFigures::Distribution(Some(found)) = named.figures else {
            self.row(label, "no data");
            return;
        };
        let columns = found.row_texts(named.unit, first);
        let columns = columns.map(|(name, value)| format!("{name:<4} {value:<7}"));
        // A name and its figure stay on one line.
        let room = self.layout.width.saturating_sub(NAME + 2).max(20);
        let (mut label, mut line) = (label, String::new());
        for column in &columns {
            if !line.is_empty()
                && line.chars().count() + 2 + column.trim_end().chars().count() > room
            {
                self.row(label, line.trim_end());
                (label, line) = ("", String::new());
            }
            if !line.is_empty() {
                line.push_str("  ");
            }
            line.push_str(column);
        }
        self.row(label, line.trim_end());
    }

    fn server(&mut self, server: &Metrics, events: &[Event]) {
        self.heading("server", "");
        // The figures below describe a server that no longer exists.
        for event in events.iter().filter(|event| event.kind == ENDED) {
            let text = format!("{:.1} s: {}", event.at, one_line(&event.text));
            self.row("ENDED", &truncate(&text, ENDED_MAX));
        }
        let cpu = server.level("cpu");
        let cpu = cpu.map_or_else(|| "-".to_owned(), |level| level.with_peak(Unit::Cores));
        let hottest = server
            .level("cpu_hottest_thread")
            .map_or_else(String::new, |level| {
                format!("; hottest thread {}", figure(Unit::Cores, level.max))
            });
        self.row("cpu", &format!("{cpu}{hottest}, of one core"));
        let most = |name, unit| figure_or_dash(unit, server.level(name).map(|level| level.max));
        let text = format!(
            "{}{}; {}",
            most("rss", Unit::Bytes),
            match self.layout.verbose {
                true => format!(", USS {}", most("uss", Unit::Bytes)),
                false => String::new(),
            },
            plural(
                server.level("threads").map_or(0.0, |level| level.max),
                "thread",
                "threads"
            ),
        );
        self.row("rss", &text);
        if let Some(drops) = server.value("socket_drops") {
            let text = format!("{} dropped", plural(drops, "datagram", "datagrams"));
            self.row("socket_drops", &text);
        }
        self.own_counts(server);
    }

    /// Writes the server's own counts, if it was queried.
    fn own_counts(&mut self, server: &Metrics) {
        if let Some(OwnCounts { out, rest }) = OwnCounts::of(server) {
            self.row("own counters", &format!("{out} {rest}"));
        }
    }

    /// Writes the event of connections that found no free port.
    fn ports_used_up(&mut self, events: &[Event]) {
        if let Some(event) = events.iter().find(|event| event.kind == "no_ports") {
            self.row("no ports", &one_line(&event.text));
        }
    }

    /// Writes the server's processor time per message, if clients only send messages.
    fn cost_of_messages(&mut self, report: &Report) {
        if let Some(seconds) = report.cpu_per_message {
            self.row(
                "cpu_per_message",
                &format!("{} of a core", figure(Unit::Seconds, seconds)),
            );
        }
    }

    fn limits(&mut self, report: &Report) {
        if report.server_limits.is_empty() {
            return;
        }
        self.heading("what limited the server", "");
        for limit in &report.server_limits {
            self.text += &hanging("  - ", &limit.text, self.layout.width);
        }
    }

    /// Writes the path and the seed. The path is neither truncated nor wrapped, so that it can be
    /// copied.
    fn run_file(&mut self, report: &Report) {
        self.blank();
        let paint = self.layout.paint;
        let path = path_text(&report.path);
        let _ = writeln!(self.text, "{}  {path}", paint.strong("run file"));
        let seed = report.run.seed;
        let _ = writeln!(self.text, "{}      {seed}", paint.strong("seed"));
        self.text += &named("version", "   ", &report.version_text(), self.layout);
    }

    fn everything(&mut self, report: &Report) {
        for (subject, metrics) in report.subjects() {
            self.table(subject, metrics);
        }
        self.tester_in_full(report);
        if !report.events.is_empty() {
            self.heading("events", "");
        }
        for event in &report.events {
            let text = format!(
                "{:>8.3} s  {}: {}",
                event.at,
                event.kind,
                one_line(&event.text)
            );
            for (index, part) in wrap(&text, self.layout.width.saturating_sub(4).max(20))
                .iter()
                .enumerate()
            {
                let _ = writeln!(self.text, "{}{part}", if index == 0 { "" } else { "    " });
            }
        }
    }

    fn table(&mut self, subject: &str, metrics: &Metrics) {
        self.heading(&format!("every metric of {subject}"), "");
        let widest = metrics
            .0
            .iter()
            .map(|named| named.name.len())
            .max()
            .unwrap_or(0);
        for named in &metrics.0 {
            let text = named.text("  ").unwrap_or_else(|| "-".to_owned());
            let _ = writeln!(self.text, "  {:<widest$}  {text}", named.name);
        }
    }
}

/// Describes the number of clients and their outcomes.
pub(crate) fn clients_line(clients: &Clients, metrics: &Metrics, stopped_by_user: bool) -> String {
    let mut text = plural(clients.started as f64, "client", "clients");
    if clients.active_max < clients.started {
        let _ = write!(
            text,
            ", at most {} at once",
            count(clients.active_max as f64)
        );
    }
    let mut parts = Vec::new();
    for (number, word) in [
        (clients.completed, "completed"),
        (
            clients.stopped,
            match stopped_by_user {
                true => "stopped",
                false => "ended as planned",
            },
        ),
        (clients.failed, "failed"),
    ] {
        if number > 0 || word == "failed" {
            parts.push(format!("{} {word}", count(number as f64)));
        }
    }
    if let Some(turned_away) = metrics.value("turned_away").filter(|&number| number > 0.0) {
        parts.push(format!("{} turned away", count(turned_away)));
    }
    let _ = write!(text, ": {}", parts.join(", "));
    text
}

/// Converts a text to one line, with single blanks for all blanks and line ends, and sanitizes it:
/// see [`crate::sanitize`].
pub(crate) fn one_line(text: &str) -> String {
    let words = text.split_whitespace().map(sanitize::single_line);
    words.collect::<Vec<_>>().join(" ")
}

/// Truncates a text to `width` columns, with an ellipsis if it does not fit.
pub(crate) fn truncate(text: &str, width: usize) -> String {
    let text = sanitize::single_line(text);
    if text.chars().count() <= width {
        return text.into_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// Wraps a text to `width` columns, with a mark before its first line.
pub(crate) fn hanging(mark: &str, text: &str, width: usize) -> String {
    let indent = mark.chars().count();
    let mut lines = String::new();
    for (index, part) in wrap(text, width.saturating_sub(indent).max(20))
        .iter()
        .enumerate()
    {
        let mark = if index == 0 { mark } else { "" };
        let _ = writeln!(lines, "{mark:indent$}{part}");
    }
    lines
}

/// Wraps a text to the right of its name, which is emphasized, and of a gap.
pub(crate) fn named(name: &str, gap: &str, text: &str, layout: Layout) -> String {
    let lines = hanging(&format!("{name}{gap}"), text, layout.width);
    let (name, rest) = lines.split_at(name.len());
    format!("{}{rest}", layout.paint.strong(name))
}

/// Returns the path of a result, which may not be kept.
pub(crate) fn path_text(path: &Path) -> String {
    match path.to_string_lossy() {
        path if path.is_empty() => "not kept".to_owned(),
        path => sanitize::single_line(&path).into_owned(),
    }
}

/// Wraps a text into lines of at most `width`, at blanks if possible.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let text = sanitize::single_line(text);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let mut word = word;
        let taken = line.chars().count();
        if taken > 0 && taken + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        while word.chars().count() > width {
            let end = word
                .char_indices()
                .nth(width)
                .map_or(word.len(), |(at, _)| at);
            lines.push(word[..end].to_owned());
            word = &word[end..];
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}
