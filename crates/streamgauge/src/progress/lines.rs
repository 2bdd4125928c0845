//! Text of the progress display.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use engine::{ClientRole, Phase, PopulationProgress, Progress, Rates};
use measure::Unit;
use measure::tester::RunnerState;
use report::human::{count, duration, figure, figure_or_dash, plural};
use report::shorten;

use super::block::Size;
use super::curves::Curves;
use super::line::{ScreenLine, Tone};

/// Maximum number of windows in a sparkline.
const POINTS_MAX: usize = 60;

/// Maximum length of the progress bar, in columns.
const BAR_MAX: usize = 40;

/// Minimum length of a sparkline that is of use, in columns.
const SPARK_MIN: usize = 4;

/// Loss that takes the full height of a sparkline if no loss was higher: 1 %.
const LOSS_SCALE: f64 = 0.01;

/// Minimum columns and rows of a terminal with charts.
const CHARTS_FROM: (usize, usize) = (72, 19);

/// Rows of the charts.
const CHART_ROWS: usize = 9;

/// Maximum number of lines about failed clients.
const FAILURES_MAX: usize = 4;

/// Maximum number of lines about runners.
const RUNNERS_MAX: usize = 8;

/// Figures of the previous windows.
#[derive(Debug, Default)]
pub(super) struct History {
    populations: BTreeMap<String, PopulationHistory>,
    curves: Curves,
    /// Failed clients by population and reason. Reasons are enumerated, so there are few.
    failures: BTreeMap<(String, String), Failed>,
}

/// Clients of a population that failed for one reason.
#[derive(Clone, Copy, Debug)]
struct Failed {
    count: u64,
    /// Times at which the first and the last of them were reported.
    first: Duration,
    last: Duration,
}

/// Last windows of a population, the newest last.
#[derive(Debug, Default)]
struct PopulationHistory {
    /// Bit/s, or messages per second.
    rate: VecDeque<f64>,
    /// Share of lost packets, or answers per second.
    detail: VecDeque<f64>,
}

impl History {
    /// Adds a window. A window that was cut short has no rates, so only its failures and its
    /// numbers of clients are added.
    pub(super) fn add(&mut self, progress: &Progress) {
        self.curves.add(progress);
        let at = progress.elapsed;
        for seen in &progress.failures {
            let key = (seen.population.clone(), seen.reason.clone());
            let failed = self.failures.entry(key).or_insert(Failed {
                count: 0,
                first: at,
                last: at,
            });
            failed.count += seen.count;
            failed.last = at;
        }
        for (name, population) in &progress.populations {
            let Some(rates) = &population.rates else {
                continue;
            };
            let (rate, detail) = match population.role {
                ClientRole::Play => (rates.bitrate, rates.loss().unwrap_or(0.0)),
                ClientRole::Publish => (rates.sent_bitrate, 0.0),
                ClientRole::Send => (rates.sent, rates.answered),
            };
            let track = self.populations.entry(name.clone()).or_default();
            for (values, value) in [(&mut track.rate, rate), (&mut track.detail, detail)] {
                if values.len() == POINTS_MAX {
                    values.pop_front();
                }
                values.push_back(value);
            }
        }
    }
}

impl History {
    /// Returns the reasons why clients failed, in at most this many lines: the reasons that were
    /// reported last, the newest at the end.
    fn failures(&self, lines: usize) -> Vec<ScreenLine> {
        let all = self.failures.len();
        let shown = match all <= lines {
            true => all,
            false => lines.saturating_sub(1),
        };
        let mut failures: Vec<_> = self.failures.iter().collect();
        failures.sort_by_key(|(_, failed)| std::cmp::Reverse((failed.last, failed.first)));
        failures.truncate(shown);
        failures.sort_by_key(|(_, failed)| failed.first);
        let mut texts: Vec<ScreenLine> = Vec::new();
        if shown < all && lines > 0 {
            let more = (all - shown) as f64;
            let text = plural(more, "older reason", "older reasons");
            texts.push(ScreenLine::default().with(Tone::Faint, &text));
        }
        texts.extend(failures.into_iter().map(|((population, reason), failed)| {
            let clients = count(failed.count as f64);
            let first = duration(failed.first.as_secs_f64());
            let when = match failed.last > failed.first {
                true => format!("{first} to {}", duration(failed.last.as_secs_f64())),
                false => first,
            };
            // The reason comes first, because a narrow terminal cuts the end.
            let text = format!("{clients} × {reason} of {population}, {when}");
            ScreenLine::default().with(Tone::Bad, &text)
        }));
        texts
    }
}

/// Maximum length of a step before the run in a plain line, in characters. Long steps contain the
/// command of a server.
const LAUNCHING_MAX: usize = 200;

/// Progress of a run on a terminal.
pub(super) struct View<'a> {
    pub(super) progress: &'a Progress,
    pub(super) history: &'a History,
    /// Duration that was planned when the run began, if known.
    pub(super) planned: Option<Duration>,
    /// True if keys are handled.
    pub(super) obeys_keys: bool,
}

impl View<'_> {
    /// Returns the lines: time; charts if there is room; each population; server and tester; each
    /// runner if there are several and there is room; failures; and, below charts, the keys. No line is wider than the terminal, and there are no
    /// more lines than it has rows.
    pub(super) fn lines(&self, size: Size) -> Vec<ScreenLine> {
        let mut lines = vec![self.time(size.columns)];
        let populations = &self.progress.populations;
        if !populations.is_empty() {
            let charts = self.charts(size);
            let below = match charts.is_empty() {
                // Failures take the rows that are left.
                true => {
                    let left = size.rows.saturating_sub(2 + 2 * populations.len());
                    self.history.failures(left.min(FAILURES_MAX))
                }
                false => self.below(),
            };
            // Two lines: the time, and server and tester.
            let others = 2 + charts.len() + below.len();
            let left = size.rows.saturating_sub(others + 2 * populations.len());
            let runners = runner_lines(self.progress, left.min(RUNNERS_MAX));
            let others = others + runners.len();
            let rows = size.rows.saturating_sub(others);
            lines.extend(charts);
            let in_two = 2 * populations.len() <= rows;
            let shown = match populations.len() {
                all if all <= rows => all,
                _ => rows.saturating_sub(1),
            };
            for (name, population) in &populations[..shown] {
                if in_two {
                    lines.push(head(name, population, size.columns, false));
                    lines.extend(self.sparks(name, population, size.columns));
                } else {
                    lines.push(head(name, population, size.columns, true));
                }
            }
            match populations.len() - shown {
                0 => {}
                more => lines.push(ScreenLine::plain(&format!("... and {more} more"))),
            }
            lines.push(server_and_tester(self.progress, size.columns));
            lines.extend(runners);
            lines.extend(below);
        }
        lines.truncate(size.rows);
        let lines = lines.into_iter();
        lines.map(|line| line.cut(size.columns)).collect()
    }

    /// Returns the charts, if there is room for them and for all populations.
    fn charts(&self, size: Size) -> Vec<ScreenLine> {
        let populations = self.progress.populations.len();
        let needed = CHARTS_FROM
            .1
            .max(2 + CHART_ROWS + populations + FAILURES_MAX + 1);
        if size.columns < CHARTS_FROM.0 || size.rows < needed || !self.history.curves.has_curves() {
            return Vec::new();
        }
        self.history.curves.lines(size.columns, CHART_ROWS)
    }

    fn below(&self) -> Vec<ScreenLine> {
        let mut lines = self.history.failures(FAILURES_MAX);
        if self.obeys_keys && self.progress.phase == Phase::Running {
            let hold = match self.progress.is_held {
                true => "h: resume the ramp",
                false => "h: hold the ramp",
            };
            let keys = format!("q: stop and report, {hold}");
            lines.push(ScreenLine::default().with(Tone::Faint, &keys));
        }
        lines
    }

    /// Returns the progress of the run: a bar and the time left.
    fn time(&self, columns: usize) -> ScreenLine {
        let elapsed = self.progress.elapsed;
        let so_far = duration(elapsed.as_secs_f64());
        let planned = self.planned.map(|planned| planned + self.progress.held);
        let is_held = self.progress.is_held;
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
            (Phase::Running, Some(planned)) if is_held => {
                let planned = duration(planned.as_secs_f64());
                (
                    format!("{so_far} of {planned}, held (h to resume)"),
                    "held (h to resume)".to_owned(),
                )
            }
            (Phase::Running, None) => {
                let text = format!("{so_far}, endless, Ctrl-C to finish");
                return ScreenLine::default().with(Tone::Strong, &text);
            }
            (Phase::Stopping, None) => (
                format!("{so_far}, stopping (Ctrl-C to stop at once)"),
                "stopping (Ctrl-C: at once)".to_owned(),
            ),
            (Phase::Running, Some(planned)) => {
                let left = duration(planned.saturating_sub(elapsed).as_secs_f64());
                let planned = duration(planned.as_secs_f64());
                (
                    format!("{so_far} of {planned}, {left} left"),
                    format!("{left} left"),
                )
            }
            (Phase::Stopping, Some(planned)) => {
                let planned = duration(planned.as_secs_f64());
                (
                    format!("{so_far} of {planned}, stopping (Ctrl-C to stop at once)"),
                    "stopping (Ctrl-C: at once)".to_owned(),
                )
            }
        };
        let text = match columns {
            60.. => long,
            _ => short,
        };
        let room = columns.saturating_sub(text.chars().count() + 1);
        let line = match planned {
            Some(planned) if room >= SPARK_MIN => bar(elapsed, planned, room.min(BAR_MAX)),
            _ => ScreenLine::default(),
        };
        line.with(Tone::Strong, &text)
    }

    /// Returns the rates of a population, with sparklines of the last windows.
    fn sparks(
        &self,
        name: &str,
        population: &PopulationProgress,
        columns: usize,
    ) -> Option<ScreenLine> {
        let track = self.history.populations.get(name)?;
        // Figures at fixed columns are easier to read, but narrow terminals have no room for them.
        let pad = columns >= 60;
        let columns = columns.saturating_sub(2);
        let rate = match &population.rates {
            Some(rates) => rate(population.role, rates),
            None => "-".to_owned(),
        };
        let detail = detail_of(population).filter(|_| track.rate.len() == track.detail.len());
        let first = match pad {
            true => format!("{rate:>14} "),
            false => format!("{rate} "),
        };
        let detail = detail.map(|(tone, text)| match pad {
            true => (tone, format!("{text:<14} ")),
            false => (tone, format!("{text} ")),
        });
        let labels = first.chars().count()
            + detail
                .as_ref()
                .map_or(0, |(_, text)| text.chars().count() + 2);
        let room = columns.saturating_sub(labels);
        let (room, detail_room) = match &detail {
            Some(_) if room / 2 >= SPARK_MIN => (room / 2, room / 2),
            _ if room >= SPARK_MIN => (room, 0),
            _ => (0, 0),
        };
        let room = room.min(POINTS_MAX);
        let mut line = ScreenLine::plain("  ")
            .with(Tone::Plain, &first)
            .with(Tone::Faint, &spark(&track.rate, 0.0, room));
        if let Some((tone, text)) = detail {
            let scale_min = match population.role {
                ClientRole::Send => 0.0,
                ClientRole::Play | ClientRole::Publish => LOSS_SCALE,
            };
            line = line
                .with(Tone::Plain, "  ")
                .with(tone, &text)
                .with(Tone::Faint, &spark(&track.detail, scale_min, detail_room));
        }
        Some(line)
    }
}

/// Returns the progress as one line, for output that is not a terminal.
pub(super) fn plain(progress: &Progress, planned: Option<Duration>) -> String {
    let elapsed = duration(progress.elapsed.as_secs_f64());
    let of = planned.map_or_else(String::new, |planned| {
        format!(" of {}", duration(planned.as_secs_f64()))
    });
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
        text.push_str("; ");
        text.push_str(
            &server_and_tester(progress, usize::MAX).painted(report::paint::Paint::default()),
        );
    }
    text
}

fn plain_population(name: &str, population: &PopulationProgress) -> String {
    let mut text = format!("{name}: {} active", count(population.active as f64));
    let (playing, role) = (count(population.playing as f64), role_word(population.role));
    text.push_str(&format!(", {playing} {role}"));
    if let Some(rates) = &population.rates {
        text.push_str(&format!(", {}", rate(population.role, rates)));
    }
    if let Some((_, detail)) = detail_of(population) {
        text.push_str(&format!(", {detail}"));
    }
    if population.failed > 0 {
        text.push_str(&format!(", {} failed", count(population.failed as f64)));
    }
    text
}

fn role_word(role: ClientRole) -> &'static str {
    match role {
        ClientRole::Play => "playing",
        ClientRole::Publish => "publishing",
        ClientRole::Send => "sending",
    }
}

/// Returns the main rate of a population: of received or published media, or of messages.
fn rate(role: ClientRole, rates: &Rates) -> String {
    match role {
        ClientRole::Play => figure(Unit::BitsPerSecond, rates.bitrate),
        ClientRole::Publish => format!("{} sent", figure(Unit::BitsPerSecond, rates.sent_bitrate)),
        ClientRole::Send => format!("{} messages/s", count(rates.sent.round())),
    }
}

/// Returns the second figure of a population: loss, or answers if there are any.
fn detail_of(population: &PopulationProgress) -> Option<(Tone, String)> {
    let rates = population.rates.as_ref()?;
    match population.role {
        ClientRole::Play => {
            let loss = rates.loss();
            let tone = match loss {
                Some(loss) if loss > 0.0 => Tone::Bad,
                _ => Tone::Plain,
            };
            let text = format!("loss {}", figure_or_dash(Unit::Ratio, loss));
            Some((tone, text))
        }
        ClientRole::Publish => None,
        ClientRole::Send => (rates.answered > 0.0).then(|| {
            let text = format!("{} answered/s", count(rates.answered.round()));
            (Tone::Plain, text)
        }),
    }
}

/// Returns the clients of a population and, with `figures`, its rates, as far as they fit.
fn head(name: &str, population: &PopulationProgress, columns: usize, figures: bool) -> ScreenLine {
    let role = role_word(population.role);
    let (active, playing) = (population.active, population.playing);
    let failed = (population.failed > 0).then(|| {
        let text = format!("{} failed", count(population.failed as f64));
        (Tone::Bad, text)
    });
    let rates = population.rates.as_ref().filter(|_| figures);
    let rate = rates.map(|rates| (Tone::Plain, rate(population.role, rates)));
    let detail = detail_of(population).filter(|_| figures);
    let with = |clients: String| {
        let mut line = ScreenLine::default()
            .with(Tone::Strong, name)
            .with(Tone::Plain, &format!(": {clients}"));
        let mut all = true;
        for (tone, text) in [&failed, &rate, &detail].into_iter().flatten() {
            let longer = line.clone().with(Tone::Plain, ", ").with(*tone, text);
            if longer.width() > columns {
                all = false;
                break;
            }
            line = longer;
        }
        (line, all)
    };
    let (playing, active_too) = (count(playing as f64), active != playing);
    if active_too {
        let (line, all) = with(format!("{playing} of {} {role}", count(active as f64)));
        if all {
            return line;
        }
    }
    with(format!("{playing} {role}")).0
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
        .map(|lag| format!("late by {}", figure(Unit::Seconds, lag)));
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

/// Returns the state of each runner in at most this many lines. If there are more, those with a
/// fault come first. One line alone would only say how many there are.
fn runner_lines(progress: &Progress, lines: usize) -> Vec<ScreenLine> {
    let runners = &progress.runners;
    let mut roles = progress.populations.iter().map(|(_, one)| one.role);
    let role = roles.next().unwrap_or_default();
    let role = match roles.all(|other| other == role) {
        true => role_word(role),
        false => "playing or sending",
    };
    let shown = match runners.len() {
        all if all <= lines => all,
        _ if lines < 2 => return Vec::new(),
        _ => lines - 1,
    };
    let mut order: Vec<&RunnerState> = runners.iter().collect();
    if shown < order.len() {
        // Stable, so that the others keep their order.
        order.sort_by_key(|runner| !runner.lost && runner.healthy);
    }
    let rest = order.split_off(shown);
    let mut texts: Vec<ScreenLine> = order
        .into_iter()
        .map(|runner| runner_line(runner, role))
        .collect();
    if !rest.is_empty() {
        texts.push(ScreenLine::plain(&format!("  and {} more", rest.len())));
    }
    texts
}

fn runner_line(runner: &RunnerState, role: &str) -> ScreenLine {
    let mut line = ScreenLine::plain("  ")
        .with(Tone::Strong, &runner.name)
        .with(Tone::Plain, ": ");
    // The fault comes first, because a narrow terminal cuts the end.
    let fault = match (runner.lost, runner.healthy) {
        (true, _) => Some((Tone::Bad, "LOST")),
        (false, false) => Some((Tone::Doubtful, "OVERLOADED")),
        (false, true) => None,
    };
    let clients = runner.playing.zip(runner.active);
    let clients = clients.map(|(playing, active)| match playing == active {
        true => format!("{} {role}", count(playing as f64)),
        false => format!(
            "{} of {} {role}",
            count(playing as f64),
            count(active as f64)
        ),
    });
    let cpu = runner.cpu;
    let cpu = cpu.map(|cpu| format!("CPU {}", figure(Unit::Cores, cpu)));
    let late = runner.lag_max;
    let late = late.map(|lag| format!("late by at most {}", figure(Unit::Seconds, lag)));
    let known: Vec<String> = [clients, cpu, late].into_iter().flatten().collect();
    let text = match (fault, known.is_empty()) {
        (None, true) => "ended".to_owned(),
        _ => known.join(", "),
    };
    if let Some((tone, word)) = fault {
        line = line.with(tone, word);
        if !text.is_empty() {
            line = line.with(Tone::Plain, ", ");
        }
    }
    line.with(Tone::Plain, &text)
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

/// Returns a sparkline of the newest values, one column each. The highest of them, or `scale_min`,
/// takes the full height. A value above 0 is always higher than 0.
fn spark(values: &VecDeque<f64>, scale_min: f64, columns: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = values.iter().skip(values.len().saturating_sub(columns));
    let top = shown.clone().copied().fold(scale_min, f64::max);
    let bars = shown.map(|&value| {
        let height = match value > 0.0 {
            true => (value / top * 7.0).round().clamp(1.0, 7.0) as usize,
            false => 0,
        };
        BARS[height]
    });
    let text: String = bars.collect();
    // Padding, so that text after the sparkline keeps its column.
    let missing = columns.saturating_sub(values.len());
    format!("{}{text}", " ".repeat(missing))
}

#[cfg(test)]
mod tests;
