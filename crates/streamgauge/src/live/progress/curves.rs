//! Main curves of a run: media or messages, and the number of clients.

use std::collections::{BTreeMap, VecDeque};

use engine::{ClientRole, Progress};
use measure::Unit;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Widget};
use report::human::{count, duration, figure};

use super::line::{ScreenLine, Tone};
use super::roles::rate_role;

/// Maximum number of windows in a curve.
const POINTS_MAX: usize = 240;

/// Maximum number of populations with curves of their own.
const CURVES_MAX: usize = 3;

/// Columns between the two charts.
const GAP: u16 = 3;

/// Colours that stand for tones while ratatui draws.
const TONES: [(Color, Tone); 4] = [
    (Color::Green, Tone::Good),
    (Color::Magenta, Tone::Doubtful),
    (Color::Red, Tone::Bad),
    (Color::DarkGray, Tone::Faint),
];

/// Colours of the populations, in their order.
const OF_POPULATIONS: [Color; CURVES_MAX] = [Color::Green, Color::Magenta, Color::Reset];

type Points = VecDeque<(f64, f64)>;

/// Figures of the previous windows, of the first populations.
#[derive(Debug, Default)]
pub(super) struct Curves {
    rates: BTreeMap<String, Points>,
    clients: BTreeMap<String, Points>,
    /// True if the rates are those of messages.
    of_messages: bool,
}

/// Adds a value to the last ones, of which at most `max` are kept.
pub(super) fn push_last<T>(values: &mut VecDeque<T>, value: T, max: usize) {
    if values.len() == max {
        values.pop_front();
    }
    values.push_back(value);
}

fn push(all: &mut BTreeMap<String, Points>, name: &str, at: f64, value: f64) {
    let points = all.entry(name.to_owned()).or_default();
    push_last(points, (at, value), POINTS_MAX);
}

impl Curves {
    /// Adds a window. A window that was cut short has no rate.
    pub(super) fn add(&mut self, progress: &Progress) {
        let at = progress.elapsed.as_secs_f64();
        let first = progress.populations.first();
        self.of_messages = first.is_some_and(|(_, first)| first.role == ClientRole::Send);
        for (name, population) in progress.populations.iter().take(CURVES_MAX) {
            push(&mut self.clients, name, at, population.active as f64);
            let of_messages = population.role == ClientRole::Send;
            let Some(rates) = &population.rates else {
                continue;
            };
            let rate = match rate_role(population.role, rates) {
                ClientRole::Play => rates.bitrate,
                ClientRole::Publish => rates.sent_bitrate,
                ClientRole::Send => rates.sent,
            };
            // A rate in another unit does not belong into the same chart.
            if of_messages == self.of_messages {
                push(&mut self.rates, name, at, rate);
            }
        }
    }

    /// Returns `true` if there are curves to draw, which takes two windows.
    pub(super) fn has_curves(&self) -> bool {
        let mut curves = self.clients.values();
        curves.any(|points| points.front().map(|first| first.0) < points.back().map(|last| last.0))
    }

    /// Draws both charts side by side in this many columns and rows.
    pub(super) fn lines(&self, columns: usize, rows: usize) -> Vec<ScreenLine> {
        let area = Rect::new(0, 0, short(columns), short(rows));
        let mut buffer = Buffer::empty(area);
        let halves = [
            Constraint::Fill(1),
            Constraint::Length(GAP),
            Constraint::Fill(1),
        ];
        let [left, _, right] = Layout::horizontal(halves).areas(area);
        let rate = |value: f64| match self.of_messages {
            true => count(value.round()),
            false => figure(Unit::BitsPerSecond, value),
        };
        let title = match self.of_messages {
            true => "messages a second",
            false => "media",
        };
        draw(title, &self.rates, &rate, left, &mut buffer);
        draw(
            "clients",
            &self.clients,
            &|value| count(value.round()),
            right,
            &mut buffer,
        );
        rows_of(&buffer)
    }
}

fn short(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

fn draw(
    title: &str,
    curves: &BTreeMap<String, Points>,
    shown: &dyn Fn(f64) -> String,
    area: Rect,
    buffer: &mut Buffer,
) {
    let all = || curves.values().flatten();
    let first = all().map(|point| point.0).fold(f64::INFINITY, f64::min);
    let last = all().map(|point| point.0).fold(0.0, f64::max);
    let max_value = all().map(|point| point.1).fold(0.0, f64::max);
    if first >= last {
        return;
    }
    let points: Vec<(&str, Vec<(f64, f64)>)> = curves
        .iter()
        .map(|(name, points)| (name.as_str(), points.iter().copied().collect()))
        .collect();
    let is_one = points.len() == 1;
    let curves = points
        .iter()
        .zip(OF_POPULATIONS)
        .map(|((name, points), colour)| {
            let curve = Dataset::default()
                .marker(Marker::Braille)
                .graph_type(GraphType::Line)
                .style(Style::new().fg(colour))
                .data(points);
            if is_one { curve } else { curve.name(*name) }
        });
    let faint = Style::new().fg(Color::DarkGray);
    let top = if max_value > 0.0 {
        max_value * 1.1
    } else {
        1.0
    };
    let chart = Chart::new(curves.collect())
        .x_axis(
            Axis::default()
                .style(faint)
                .bounds([first, last])
                .labels([duration(first), duration(last)]),
        )
        .y_axis(
            Axis::default()
                .style(faint)
                .title(title.to_owned())
                .bounds([0.0, top])
                .labels(["0".to_owned(), shown(top)]),
        );
    chart.render(area, buffer);
}

/// Converts the drawn buffer to lines of the terminal.
fn rows_of(buffer: &Buffer) -> Vec<ScreenLine> {
    let area = buffer.area;
    let rows = area.top()..area.bottom();
    rows.map(|y| {
        let mut parts: Vec<(Tone, String)> = Vec::new();
        for x in area.left()..area.right() {
            let Some(cell) = buffer.cell((x, y)) else {
                continue;
            };
            let blank = cell.symbol() == " ";
            let found = TONES.iter().find(|(colour, _)| *colour == cell.fg);
            let tone = found.map_or(Tone::Plain, |(_, tone)| *tone);
            match parts.last_mut() {
                Some((last, text)) if blank || *last == tone => text.push_str(cell.symbol()),
                _ => parts.push((tone, cell.symbol().to_owned())),
            }
        }
        if let Some((_, text)) = parts.last_mut() {
            text.truncate(text.trim_end().len());
        }
        let parts = parts.iter();
        parts.fold(ScreenLine::default(), |line, (tone, text)| {
            line.with(*tone, text)
        })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::{Phase, PopulationProgress, Rates, TesterProgress};
    use report::paint::Paint;

    use super::*;

    fn progress(second: u64, rate: f64) -> Progress {
        let viewers = PopulationProgress {
            role: ClientRole::Play,
            active: 10 * second,
            rates: Some(Rates {
                bitrate: rate,
                ..Rates::default()
            }),
            ..PopulationProgress::default()
        };
        Progress {
            elapsed: Duration::from_secs(second),
            phase: Phase::Running,
            populations: vec![("viewers".to_owned(), viewers)],
            thresholds: Vec::new(),
            server_cpu: None,
            tester: TesterProgress::default(),
            runners: Vec::new(),
            failures: Vec::new(),
            is_held: false,
            held: Duration::ZERO,
        }
    }

    fn drawn(curves: &Curves) -> Vec<String> {
        let lines = curves.lines(80, 8);
        lines
            .iter()
            .map(|line| line.painted(Paint::default()))
            .collect()
    }

    fn is_dot(c: char) -> bool {
        ('\u{2801}'..='\u{28ff}').contains(&c)
    }

    #[test]
    fn curves_rise_with_their_values() {
        let mut curves = Curves::default();
        for second in 1..=20 {
            curves.add(&progress(second, second as f64 * 1e6));
        }
        let rows = drawn(&curves);
        assert_eq!(rows.len(), 8, "{rows:#?}");
        assert!(
            rows[0].contains("22 Mbit/s") && rows[0].contains("220"),
            "{rows:#?}"
        );
        // The right end is at the top, the left one at the bottom.
        let of = |row: &str| row.chars().take(38).position(is_dot);
        let (top, bottom) = (of(&rows[1]), of(&rows[5]));
        assert!(top > bottom && bottom.is_some(), "{rows:#?}");
        assert!(rows.iter().all(|row| row.chars().count() <= 80));
    }

    #[test]
    fn curves_keep_a_limited_number_of_windows() {
        let mut curves = Curves::default();
        for second in 1..=1_000 {
            curves.add(&progress(second, 1e6));
        }
        assert_eq!(curves.rates["viewers"].len(), POINTS_MAX);
        assert_eq!(curves.clients["viewers"].len(), POINTS_MAX);
        assert!(
            drawn(&curves).concat().contains("16 min"),
            "{:#?}",
            drawn(&curves)
        );
    }

    #[test]
    fn nothing_is_drawn_before_the_second_window() {
        let mut curves = Curves::default();
        assert!(drawn(&curves).concat().is_empty());
        curves.add(&progress(1, 1e6));
        assert!(drawn(&curves).concat().is_empty());
    }
}
