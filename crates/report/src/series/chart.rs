//! Bar chart of the server's output against the number of clients. It shows where the output stops
//! increasing.

use std::fmt::Write;

use super::names::short_names;
use super::{Row, Series};
use crate::human::count;
use crate::terminal::{Layout, one_line};

/// Maximum length of the longest bar, in characters.
const BAR_MAX: usize = 50;

/// Minimum length of the longest bar, in characters.
const BAR_MIN: usize = 10;

/// Maximum number of runs in a chart.
const RUNS_MAX: usize = 60;

/// Minimum number of runs in a chart: fewer show no trend.
const RUNS_MIN: usize = 3;

/// Bar of a run.
struct Bar {
    label: String,
    value: Option<f64>,
    /// Reason why the run is not eligible as the best, if any.
    out: Option<String>,
}

/// Runs that differ only in the number of clients.
struct BarGroup {
    heading: Option<String>,
    runs: Vec<Bar>,
}

/// Draws the runs of a series as bars over the clients of one population. Returns an empty string
/// if the series varies something else, or has too few or too many runs.
pub(super) fn chart(series: &Series, layout: Layout) -> String {
    let Some(axis) = series.clients_axis() else {
        return String::new();
    };
    let messages = |row: &Row| row.figures.as_ref().and_then(|figures| figures.messages);
    let megabits = |row: &Row| Some(row.figures.as_ref()?.bitrate? / 1e6);
    let of_messages = series.runs.iter().any(|row| messages(row).is_some());
    let value = |row: &Row| match of_messages {
        true => messages(row),
        false => megabits(row),
    };
    let names = short_names(&series.varied);
    let name_of = |key: &str| {
        let mut named = series.varied.iter().zip(&names);
        let found = named.find(|(varied, _)| *varied == key);
        found.map_or("", |(_, name)| name)
    };
    let groups: Vec<BarGroup> = series
        .group_by_others(axis)
        .into_iter()
        .map(|(with, mut rows)| {
            let with = with
                .iter()
                .map(|(key, value)| one_line(&format!("{} {value}", name_of(key))));
            let heading = with.collect::<Vec<_>>().join(", ");
            rows.sort_by_key(|(clients, _)| *clients);
            BarGroup {
                heading: (!heading.is_empty()).then_some(heading),
                runs: rows
                    .into_iter()
                    .map(|(clients, row)| Bar {
                        label: count(clients as f64),
                        value: value(row),
                        out: row.out_of_contest.as_deref().map(one_line),
                    })
                    .collect(),
            }
        })
        .collect();
    let all = || groups.iter().flat_map(|group| &group.runs);
    let drawn = all().filter(|run| run.value.is_some()).count();
    if drawn < RUNS_MIN || all().count() > RUNS_MAX {
        return String::new();
    }
    let what = match of_messages {
        true => "messages acknowledged a second, by clients",
        false => "Mbit/s, by clients",
    };
    let paint = layout.paint;
    let mut text = format!("\n{}\n", paint.strong(what));
    let labels = all().map(|run| run.label.chars().count()).max();
    let numbers = all().filter_map(|run| Some(number(run.value?).chars().count()));
    let (label_width, number_width) = (labels.unwrap_or(0), numbers.max().unwrap_or(0));
    let around = label_width + number_width + 8;
    let widest = layout.width.saturating_sub(around);
    let widest = widest.clamp(BAR_MIN, BAR_MAX);
    let top = all().filter_map(|run| run.value).fold(0.0, f64::max);
    for group in &groups {
        if let Some(heading) = &group.heading {
            let _ = writeln!(text, "  {heading}");
        }
        let counting = group.runs.iter().filter(|run| run.out.is_none());
        let most = counting.filter_map(|run| run.value).fold(0.0, f64::max);
        for run in &group.runs {
            let shown = run.value.map_or_else(|| "-".to_owned(), number);
            let length = run.value.map_or(0.0, |value| value / top * widest as f64);
            let bar = bar(length, run.out.is_some());
            let space = " ".repeat(widest.saturating_sub(bar.chars().count()));
            let best = run.out.is_none() && run.value == Some(most) && most > 0.0;
            let bar = match &run.out {
                None => bar,
                Some(_) => paint.faint(&bar),
            };
            let star = if best { "*" } else { " " };
            let line = format!(
                "  {:>label_width$}  {bar}{space}  {shown:>number_width$}{star}",
                run.label
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    if all().any(|run| run.out.is_some() && run.value.is_some()) {
        let note = "\u{2591} not ranked: see the table";
        let _ = writeln!(text, "  {}", paint.faint(note));
    }
    text
}

fn number(value: f64) -> String {
    match value {
        100.0.. => count(value.round()),
        _ => format!("{value:.1}"),
    }
}

/// Returns a bar of `length` characters, drawn to an eighth of a character. The bar of a run that
/// is not eligible is shaded.
fn bar(length: f64, shaded: bool) -> String {
    const EIGHTHS: [&str; 8] = [
        "", "\u{258f}", "\u{258e}", "\u{258d}", "\u{258c}", "\u{258b}", "\u{258a}", "\u{2589}",
    ];
    if shaded {
        return "\u{2591}".repeat(length.ceil() as usize);
    }
    let eighths = (length * 8.0).round() as usize;
    "\u{2588}".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::series::{Figures, RowOutcome};

    fn row(values: [&str; 2], messages: Option<f64>, out: Option<&str>) -> Row {
        Row {
            values: values.map(str::to_owned).to_vec(),
            outcome: RowOutcome::Pass,
            figures: Some(Figures {
                messages,
                bitrate: Some(3e6),
                ..Figures::default()
            }),
            out_of_contest: out.map(str::to_owned),
            ..Row::default()
        }
    }

    fn series(keys: [&str; 2], runs: Vec<Row>) -> Series {
        let varied = keys.map(str::to_owned).to_vec();
        Series {
            runs,
            ..Series::empty("chats".to_owned(), varied, Path::new(""))
        }
    }

    const KEYS: [&str; 2] = ["clients.users.rounds.sleep", "clients.users.load.clients"];

    #[test]
    fn bar_length_follows_the_value_and_the_best_run_is_marked() {
        let runs = vec![
            row(["5ms", "2000"], Some(80_000.0), None),
            row(["5ms", "1000"], Some(40_000.0), None),
            row(["5ms", "4000"], Some(100_000.0), Some("refused 3")),
            row(["100ms", "1000"], Some(10_000.0), None),
            row(["100ms", "2000"], None, None),
        ];
        let text = chart(&series(KEYS, runs), Layout::default());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "messages acknowledged a second, by clients");
        assert_eq!(lines[2], "  sleep 5ms");
        assert_eq!(lines[6], "  sleep 100ms");
        let long = |line: &str, of: char| line.chars().filter(|&c| c == of).count();
        // Sorted by clients; 50 characters represent 100,000.
        assert_eq!(long(lines[3], '\u{2588}'), 20, "{text}");
        assert_eq!(long(lines[4], '\u{2588}'), 40);
        assert_eq!(long(lines[5], '\u{2591}'), 50);
        assert_eq!(long(lines[7], '\u{2588}'), 5);
        assert!(
            lines[4].ends_with(" 80,000*") && lines[7].ends_with(" 10,000*"),
            "{text}"
        );
        assert!(
            lines[3].ends_with(" 40,000") && lines[5].ends_with("100,000"),
            "{text}"
        );
        assert!(lines[8].trim_start().starts_with("2,000") && lines[8].ends_with('-'));
        assert!(lines.iter().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn ineligible_run_with_equal_output_is_not_the_best() {
        let runs = vec![
            row(["5ms", "1000"], Some(50_000.0), None),
            row(["5ms", "2000"], Some(80_000.0), None),
            row(["5ms", "4000"], Some(80_000.0), Some("invalid")),
        ];
        let text = chart(&series(KEYS, runs), Layout::default());
        assert_eq!(text.matches('*').count(), 1, "{text}");
        assert!(text.contains("2,000") && text.contains("80,000*"), "{text}");
    }

    #[test]
    fn keys_with_equal_last_parts_get_distinct_names() {
        let keys = ["clients.a.rate", "clients.b.rate", KEYS[1]];
        let runs = ["1/s", "2/s", "3/s"].map(|rate| {
            let mut row = row([rate, rate], Some(1.0), None);
            row.values.push("1000".to_owned());
            row
        });
        let mut both = series(KEYS, runs.to_vec());
        both.varied = keys.map(str::to_owned).to_vec();
        let text = chart(&both, Layout::default());
        assert!(text.contains("a.rate 1/s, b.rate 1/s"), "{text}");
    }

    #[test]
    fn chart_needs_varied_clients_and_enough_runs() {
        let few = vec![row(["5ms", "1000"], Some(1.0), None); 2];
        assert_eq!(chart(&series(KEYS, few), Layout::default()), "");
        let others = vec![row(["5ms", "a"], Some(1.0), None); 4];
        let keys = ["server.launch", "clients.users.rate"];
        assert_eq!(chart(&series(keys, others), Layout::default()), "");
        let many = vec![row(["5ms", "1000"], Some(1.0), None); RUNS_MAX + 1];
        assert_eq!(chart(&series(KEYS, many), Layout::default()), "");
    }

    #[test]
    fn media_chart_shows_bit_rates_even_in_a_narrow_terminal() {
        let runs = vec![row(["5ms", "1000"], None, None); 3];
        let layout = Layout {
            width: 12,
            ..Layout::default()
        };
        let text = chart(&series(KEYS, runs), layout);
        assert!(
            text.contains("Mbit/s, by clients") && text.contains("3.0*"),
            "{text}"
        );
    }
}
