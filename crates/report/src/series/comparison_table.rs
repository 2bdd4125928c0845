//! Comparison of two variants in a terminal: a line for each metric.

use std::fmt::Write;

use measure::comparison::Word;

use super::comparison::{ComparedMetric, ComparisonResult};
use super::comparison_words as words;
use crate::terminal::{Layout, wrap};

/// Columns on the left that belong to the name of the section.
const INDENT: usize = 12;

/// Width of the longest word.
const WORD: usize = "cannot tell".len();

/// Formats the metrics and the notes of a comparison. Metrics that are not judged are shown if they
/// differ, or with `-v`.
pub(super) fn comparison(found: &ComparisonResult, layout: Layout) -> String {
    let mut text = String::new();
    let room = layout.width.saturating_sub(INDENT).max(20);
    let paragraph = |text: &mut String, what: &str, faint: bool| {
        for part in wrap(what, room) {
            let part = if faint {
                layout.paint.faint(&part)
            } else {
                part
            };
            let _ = writeln!(text, "{:INDENT$}{part}", "");
        }
    };
    paragraph(&mut text, &words::basis(found), false);
    let differs = |metric: &ComparedMetric| matches!(metric.result, Word::Better | Word::Worse);
    let shown: Vec<&ComparedMetric> = found
        .metrics
        .iter()
        .filter(|metric| metric.judged || layout.verbose || differs(metric))
        .collect();
    let width = |of: fn(&ComparedMetric) -> String| {
        let widths = shown.iter().map(|metric| of(metric).chars().count());
        widths.max().unwrap_or(0)
    };
    let (title, values) = (width(|metric| metric.title.clone()), width(words::values));
    let mut judged = true;
    for metric in &shown {
        if judged && !metric.judged {
            paragraph(
                &mut text,
                "not judged, because no threshold reads it:",
                true,
            );
            judged = false;
        }
        let word = format!("{:WORD$}", metric.result.text());
        let word = match metric.result {
            Word::Better => layout.paint.good(&word),
            Word::Worse => layout.paint.bad(&word),
            Word::CannotTell => layout.paint.doubtful(&word),
            Word::Same => word,
        };
        let line = format!("{:title$}  {:values$}", metric.title, words::values(metric));
        let effect = words::effect_text(metric);
        let length = WORD + 2 + line.chars().count() + 2 + effect.chars().count();
        let (end, gap) = match length <= room {
            true => (String::new(), "  ".to_owned()),
            false => ("\n".to_owned(), " ".repeat(INDENT + WORD + 4)),
        };
        let whole = match effect.is_empty() {
            true => line,
            false => format!("{line}{end}{gap}{effect}"),
        };
        for (at, part) in whole.lines().enumerate() {
            let _ = match at {
                0 => writeln!(text, "{:INDENT$}{word}  {}", "", part.trim_end()),
                _ => writeln!(text, "{part}"),
            };
        }
    }
    let hidden = found.metrics.len() - shown.len();
    if hidden > 0 {
        let what = format!("{hidden} other metrics are not judged and do not differ (-v)");
        paragraph(&mut text, &what, true);
    }
    for note in words::notes(found) {
        paragraph(&mut text, &note, true);
    }
    text
}
