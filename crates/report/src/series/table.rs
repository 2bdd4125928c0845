//! Terminal output of a series: the table, the capacity of the server, and its model.

use std::collections::BTreeSet;
use std::fmt::Write;

use measure::{BetterWhen, TableColumn, Unit};

use super::chart::chart;
use super::comparison_table::comparison;
use super::figures::ShownColumn;
use super::names::short_names;
use super::search_table::capacities;
use super::{Row, RowOutcome, Series, columns, comparison_words, search_words, words};
use crate::human::{count, plural};
use crate::paint::Paint;
use crate::sanitize;
use crate::terminal::{Layout, hanging, named, one_line, path_text, wrap};

/// Maximum width of a column of values.
const VALUE_MAX: usize = 24;

/// Number of runs that did not pass whose reasons are shown.
const REASONS_SHOWN: usize = 5;

/// Hiding order of columns that are zero in every run.
const ZERO_COLUMN_ORDER: u8 = 1;

/// A column of the table: two heading lines, and a cell for each row.
struct Column {
    heading: [String; 2],
    cells: Vec<Cell>,
    /// True for words. Numbers are right-aligned.
    left_aligned: bool,
    /// Set if the column may be hidden when space is short: its hiding order, smallest first, and
    /// the text that names it when it is hidden.
    hiding: Option<(u8, String)>,
}

#[derive(Clone, Copy, PartialEq)]
enum CellStyle {
    Plain,
    Good,
    Bad,
    Doubtful,
}

impl CellStyle {
    fn painted(self, text: &str, paint: Paint) -> String {
        match self {
            CellStyle::Plain => text.to_owned(),
            CellStyle::Good => paint.good(text),
            CellStyle::Bad => paint.bad(text),
            CellStyle::Doubtful => paint.doubtful(text),
        }
    }
}

struct Cell {
    text: String,
    best: bool,
    style: CellStyle,
}

impl Cell {
    fn plain(text: String) -> Cell {
        Cell::styled(text, CellStyle::Plain)
    }

    fn styled(text: String, style: CellStyle) -> Cell {
        let best = false;
        Cell { text, best, style }
    }
}

impl Column {
    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.text.chars().count());
        let headings = self.heading.iter().map(|line| line.chars().count());
        cells.chain(headings).max().unwrap_or(0)
    }
}

/// Formats the table and the conclusions from it. Columns that do not fit follow below, with the
/// varied values repeated.
pub fn table(series: &Series, layout: Layout) -> String {
    let mut text = String::new();
    let paint = layout.paint;
    let about = format!(
        "{}  ({}{})",
        series.name,
        plural(series.runs.len() as f64, "run", "runs"),
        match series.ended {
            Some(false) => ", cut off or still running",
            _ => "",
        }
    );
    let _ = writeln!(text, "{}\n", paint.strong(&one_line(&about)));
    let values = value_columns(series);
    let (figures, left_out) = hide_columns(&values, figure_columns(series), layout.width);
    for (index, block) in blocks(&values, &figures, layout.width).iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        write_block(&mut text, block, layout);
    }
    let mut legend = Vec::new();
    if series.runs.iter().any(|row| !row.best.is_empty()) {
        legend.push(
            "* the best of its column among the ranked runs, which passed and served every client correctly: the most \
             clients, messages, Mbit/s and packets, the smallest value otherwise"
                .to_owned(),
        );
    }
    let doubtful = |column: &Column| column.cells.iter().any(|cell| cell.text.starts_with('~'));
    if figures.iter().any(doubtful) {
        let what = "~ unreliable: too many packets were timed when they were read, not when they \
                    arrived; or a delay between machines is too short for the error of their clocks";
        legend.push(what.to_owned());
    }
    if !left_out.is_empty() {
        legend.push(format!("hidden to fit: {}", left_out.join(", ")));
    }
    for line in legend.iter().flat_map(|what| wrap(what, layout.width)) {
        let _ = writeln!(text, "{}", paint.faint(&line));
    }
    reasons(&mut text, series, layout);
    text.push_str(&chart(series, layout));
    for most in &series.most_messages {
        row(&mut text, "most", &words::most(most, series), layout);
    }
    for capacity in &series.capacity {
        row(&mut text, "capacity", &words::capacity(capacity), layout);
    }
    for found in &series.searches {
        let details = search_words::details(found);
        row_with_details(
            &mut text,
            "capacity",
            &search_words::answer(found),
            details,
            layout,
        );
    }
    text.push_str(&capacities(&series.searches, layout));
    for found in &series.capacity_comparisons {
        row(
            &mut text,
            "compare",
            &comparison_words::capacities(found),
            layout,
        );
        for what in &found.differences {
            let _ = writeln!(text, "            differs: {}", one_line(what));
        }
    }
    for found in &series.comparisons {
        row(
            &mut text,
            "compare",
            &comparison_words::answer(found),
            layout,
        );
        text.push_str(&comparison(found, layout));
    }
    for found in &series.found {
        row(&mut text, "found", &words::found(found), layout);
    }
    for scaling in &series.scaling {
        let (model, details) = words::scaling(scaling);
        row_with_details(&mut text, "model", &model, details, layout);
    }
    if series.is_of_files {
        return sanitize::multi_line(&text, paint.colour).into_owned();
    }
    let folder = path_text(&series.folder);
    let _ = writeln!(text, "\n{}  {folder}", paint.strong("series"));
    sanitize::multi_line(&text, paint.colour).into_owned()
}

/// Formats the verdict of each run with its varied values, followed by its first reason. This is
/// the quiet output of a series.
pub fn headlines(series: &Series, layout: Layout) -> String {
    let mut text = String::new();
    let paint = layout.paint;
    let names = short_names(&series.varied);
    let capacities = series.capacity_comparisons.iter();
    let compared = capacities.map(comparison_words::capacities);
    let compared = compared.chain(series.comparisons.iter().map(comparison_words::answer));
    let found = series.searches.iter().map(search_words::answer);
    let answers = found.map(|answer| ("capacity", answer));
    for (name, answer) in answers.chain(compared.map(|answer| ("compare", answer))) {
        let answer = format!("{}  {answer}", paint.strong(name));
        for line in wrap(&answer, layout.width) {
            let _ = writeln!(text, "{line}");
        }
    }
    let has_answer = !series.searches.is_empty() || !series.comparisons.is_empty();
    let runs = series.runs.iter().filter(|_| !has_answer);
    for row in runs {
        let verdict = verdict(row);
        let word = verdict.style.painted(&verdict.text, paint);
        let settings = names.iter().zip(&row.values);
        let settings = settings.map(|(name, value)| one_line(&format!("{name}: {value}")));
        let settings = settings.collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "{}  {settings}", paint.strong(&word));
        let text_width = layout.width.saturating_sub(2).max(20);
        let reason = row.reasons.first().map(|reason| one_line(reason));
        let reason = reason.or_else(|| columns::unranked(row));
        let reason = reason.map(|reason| wrap(&reason, text_width));
        for line in reason.into_iter().flatten() {
            let _ = writeln!(text, "  {line}");
        }
    }
    sanitize::multi_line(&text, paint.colour).into_owned()
}

/// Truncates values to the width of a column. If different values become equal by this, their
/// common beginning is removed instead.
fn truncate_distinct(texts: Vec<String>) -> Vec<String> {
    let cut = |text: &String| crate::terminal::truncate(text, VALUE_MAX);
    let shown: Vec<String> = texts.iter().map(cut).collect();
    let different = |texts: &[String]| texts.iter().collect::<BTreeSet<_>>().len();
    if different(&shown) == different(&texts) {
        return shown;
    }
    let Some((first, others)) = texts.split_first() else {
        return shown;
    };
    let alike = |other: &String| {
        let pairs = first.chars().zip(other.chars());
        pairs.take_while(|(one, other)| one == other).count()
    };
    let alike = others.iter().map(alike).min().unwrap_or(0);
    // Words stay whole.
    let beginning: Vec<char> = first.chars().take(alike).collect();
    let blank = beginning.iter().rposition(|letter| *letter == ' ');
    let from = blank.map_or(0, |blank| blank + 1);
    let rest = texts.iter().map(|text| {
        let rest: String = text.chars().skip(from).collect();
        cut(&format!("…{rest}"))
    });
    rest.collect()
}

fn value_columns(series: &Series) -> Vec<Column> {
    short_names(&series.varied)
        .into_iter()
        .enumerate()
        .map(|(at, name)| {
            let texts = series
                .runs
                .iter()
                .map(|row| one_line(row.values.get(at).map_or("", String::as_str)));
            let texts = truncate_distinct(texts.collect());
            let numbers = texts
                .iter()
                .all(|text| text.starts_with(|c: char| c.is_ascii_digit() || c == '-'));
            Column {
                heading: [one_line(&name), String::new()],
                cells: texts.into_iter().map(Cell::plain).collect(),
                left_aligned: !numbers,
                hiding: None,
            }
        })
        .collect()
}

fn figure_columns(series: &Series) -> Vec<Column> {
    let of = |column: &'static TableColumn, unit: Unit| {
        let figures = || series.runs.iter().filter_map(|row| row.figures.as_ref());
        let values = figures().filter_map(|figures| figures.value(column));
        let most = values.fold(0.0, f64::max);
        let smaller = column.better == BetterWhen::Smaller;
        let nothing = smaller && unit == Unit::Count && most == 0.0;
        let heading = column.heading.join(" ").trim_end().to_owned();
        Column {
            heading: column.heading.map(str::to_owned),
            cells: series
                .runs
                .iter()
                .map(|row| Cell {
                    best: row.best.contains(&column.name),
                    ..Cell::plain(
                        columns::text(row, column, unit).unwrap_or_else(|| "-".to_owned()),
                    )
                })
                .collect(),
            left_aligned: false,
            hiding: match column.drop_order {
                _ if nothing => Some((ZERO_COLUMN_ORDER, format!("{heading} (0 in every run)"))),
                Some(order) if unit == Unit::Count => {
                    Some((order, format!("{heading} (at most {})", count(most))))
                }
                Some(order) => Some((order, heading)),
                None => None,
            },
        }
    };
    let shown = columns::of(series);
    let mut columns: Vec<Column> = shown
        .into_iter()
        .map(|ShownColumn { column, unit }| of(column, unit))
        .collect();
    let known = series.runs.iter().filter_map(|row| row.figures.as_ref());
    let fit = known
        .map(|figures| figures.tester_fit)
        .all(|fit| fit == Some(true));
    let words = |name: &str, cell: fn(&Row) -> Cell, hiding| Column {
        heading: [name.to_owned(), String::new()],
        cells: series.runs.iter().map(cell).collect(),
        left_aligned: true,
        hiding,
    };
    let hiding = fit.then(|| (0, "tester (fit in every run)".to_owned()));
    columns.extend([
        words("tester", tester, hiding),
        words("verdict", verdict, None),
    ]);
    columns
}

/// Hides columns in hiding order until all fit side by side, and returns the texts that name the
/// hidden ones. If that is not enough, hides only the columns without information.
fn hide_columns(
    values: &[Column],
    figures: Vec<Column>,
    width: usize,
) -> (Vec<Column>, Vec<String>) {
    let mut order: Vec<(u8, usize)> = figures
        .iter()
        .enumerate()
        .filter_map(|(at, column)| Some((column.hiding.as_ref()?.0, at)))
        .collect();
    order.sort_unstable();
    let mut out = Vec::new();
    let mut taken: usize = values
        .iter()
        .chain(&figures)
        .map(width_with_separator)
        .sum();
    for (_, at) in order {
        // The two blanks after the last column are not written, but its mark may be.
        if taken <= width + 1 {
            break;
        }
        taken -= width_with_separator(&figures[at]);
        out.push(at);
    }
    if taken > width + 1 {
        out.retain(|&at| {
            let silent = figures[at].hiding.as_ref();
            silent.is_some_and(|(order, _)| *order <= ZERO_COLUMN_ORDER)
        });
    }
    let mut left_out = Vec::new();
    let mut kept = Vec::new();
    for (at, column) in figures.into_iter().enumerate() {
        match column.hiding {
            Some((_, what)) if out.contains(&at) => left_out.push(what),
            _ => kept.push(column),
        }
    }
    (kept, left_out)
}

fn tester(row: &Row) -> Cell {
    let fit = row.figures.as_ref().and_then(|figures| figures.tester_fit);
    let (text, style) = match fit {
        Some(true) => ("fit", CellStyle::Good),
        Some(false) => ("UNFIT", CellStyle::Doubtful),
        None => ("-", CellStyle::Plain),
    };
    Cell::styled(text.to_owned(), style)
}

fn verdict(row: &Row) -> Cell {
    let style = match row.outcome {
        RowOutcome::Pass if columns::out_of_contest(row).is_some() => CellStyle::Doubtful,
        RowOutcome::Pass => CellStyle::Good,
        RowOutcome::Fail | RowOutcome::NotBegun => CellStyle::Bad,
        RowOutcome::Invalid | RowOutcome::Stopped => CellStyle::Doubtful,
        RowOutcome::Planned => CellStyle::Plain,
    };
    Cell::styled(columns::verdict(row), style)
}

/// Width of a column with its separator: two blanks, or a mark and a blank.
fn width_with_separator(column: &Column) -> usize {
    column.width() + 2
}

/// Splits the columns into blocks that fit the width. Each block begins with the varied values.
fn blocks<'a>(values: &'a [Column], figures: &'a [Column], width: usize) -> Vec<Vec<&'a Column>> {
    let first: usize = values.iter().map(width_with_separator).sum();
    let mut blocks: Vec<Vec<&Column>> = Vec::new();
    let mut taken = 0;
    for column in figures {
        let fits = !blocks.is_empty() && taken + width_with_separator(column) <= width + 1;
        if !fits {
            blocks.push(values.iter().collect());
            taken = first;
        }
        taken += width_with_separator(column);
        if let Some(block) = blocks.last_mut() {
            block.push(column);
        }
    }
    blocks
}

fn write_block(text: &mut String, block: &[&Column], layout: Layout) {
    let paint = layout.paint;
    let padded = |cell: &str, column: &Column| {
        let width = column.width();
        if column.left_aligned {
            format!("{cell:<width$}")
        } else {
            format!("{cell:>width$}")
        }
    };
    for at in 0..2 {
        let line: Vec<String> = block
            .iter()
            .map(|column| padded(&column.heading[at], column))
            .collect();
        let line = line.join("  ");
        let line = line.trim_end();
        if !line.is_empty() {
            let _ = writeln!(text, "{}", paint.faint(line));
        }
    }
    let rows = block.first().map_or(0, |column| column.cells.len());
    for at in 0..rows {
        let mut line = String::new();
        for (index, column) in block.iter().enumerate() {
            let cell = &column.cells[at];
            if index > 0 {
                line.push_str("  ");
                // The mark replaces the first blank after its value.
                if block[index - 1].cells[at].best {
                    line.truncate(line.len() - 2);
                    line.push_str("* ");
                }
            }
            let shown = match index + 1 == block.len() && column.left_aligned {
                true => cell.text.clone(),
                false => padded(&cell.text, column),
            };
            line.push_str(&match cell.style {
                CellStyle::Plain if cell.best => paint.strong(&shown),
                style => style.painted(&shown, paint),
            });
        }
        if block.last().is_some_and(|column| column.cells[at].best) {
            line.push('*');
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

/// Writes why the first runs did not pass, or are not ranked, one reason each.
fn reasons(text: &mut String, series: &Series, layout: Layout) {
    let reasons = series.runs.iter().filter_map(|row| {
        let more = match row.reasons.len() {
            0 | 1 => String::new(),
            all => format!(" (and {} more)", all - 1),
        };
        let first = row.reasons.first().map(|reason| one_line(reason) + &more);
        let reason = first.or_else(|| columns::unranked(row))?;
        Some(format!("{}: {reason}", row.values.join(", ")))
    });
    let reasons: Vec<String> = reasons.collect();
    let shown = layout.shown(reasons.len(), REASONS_SHOWN);
    for (index, reason) in reasons.iter().take(shown).enumerate() {
        if index == 0 {
            text.push('\n');
        }
        *text += &hanging("  - ", reason, layout.width);
    }
    if reasons.len() > shown {
        let _ = writeln!(
            text,
            "  ... and {} more: see the JSON report, or -v",
            reasons.len() - shown
        );
    }
}

/// Writes a name on the left and a wrapped text to its right.
fn row(text: &mut String, name: &str, what: &str, layout: Layout) {
    text.push('\n');
    *text += &named(&format!("{name:<10}"), "  ", what, layout);
}

/// Writes an answer and its details, each with its name.
fn row_with_details(
    text: &mut String,
    name: &str,
    answer: &str,
    details: Vec<(&str, String)>,
    layout: Layout,
) {
    row(text, name, answer, layout);
    for (name, what) in details {
        for part in wrap_hanging(&format!("{name:<NAMES$}{what}"), layout.width) {
            let _ = writeln!(text, "            {part}");
        }
    }
}

/// Width of the column of names below an answer.
const NAMES: usize = 27;

/// Wraps a text to the right of the column of names, which is not wrapped.
fn wrap_hanging(line: &str, width: usize) -> Vec<String> {
    const INDENT: usize = 12;
    let (name, what) = line.split_at(NAMES.min(line.len()));
    let text_width = width.saturating_sub(INDENT + NAMES).max(24);
    wrap(what.trim_start(), text_width)
        .into_iter()
        .enumerate()
        .map(|(index, part)| {
            if index == 0 {
                format!("{name}{part}")
            } else {
                format!("{:<NAMES$}{part}", "")
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_stay_distinct_when_truncated() {
        let truncated =
            |texts: &[&str]| truncate_distinct(texts.iter().map(|&text| text.into()).collect());
        let long = "[/opt/relay/bin/relay, -l, 5140, -m, ";
        let (one, other) = (format!("{long}256]"), format!("{long}1000, -r, lo]"));
        assert_eq!(truncated(&[&one, &other]), ["…256]", "…1000, -r, lo]"]);
        // A beginning that distinguishes the values stays.
        let alone = truncated(&["vlc", &one]);
        assert_eq!(alone[0], "vlc");
        assert!(alone[1].starts_with("[/opt/relay/"), "{alone:?}");
        // Values may be equal, and a list may be empty.
        let twice = truncated(&[&one, &one]);
        assert!(twice[0].starts_with("[/opt/relay/"), "{twice:?}");
        assert!(truncated(&[]).is_empty());
    }
}
