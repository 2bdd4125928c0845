//! Cards of figures.

use measure::SummaryRow;
use serde_json::{Value, json};

use crate::head;
use crate::metrics::MetricFigures;
use crate::model::Population;
use crate::rows::RenderedRow;

/// Number of cards of a population.
const CARDS: usize = 4;

/// Metrics that a row shows, without those that it only depends on.
pub(super) fn shown_metrics(row: &SummaryRow) -> Vec<&'static str> {
    SummaryRow { when: &[], ..*row }.metrics()
}

/// Returns the rank of each row that is shown as a card, from 0: the first rows with a key figure
/// of the population, in the order of the key figures. All other rows are shown in a table.
pub(super) fn ranks<'a>(
    population: &Population,
    rows: impl Iterator<Item = &'a SummaryRow>,
) -> Vec<Option<usize>> {
    let metrics: Vec<Vec<&str>> = rows.map(shown_metrics).collect();
    let mut ranks: Vec<Option<usize>> = vec![None; metrics.len()];
    let mut next = 0;
    for key in head::key_figures(population) {
        let of_key =
            |(at, shown): &(usize, &Vec<&str>)| ranks[*at].is_none() && shown.contains(&key.metric);
        if let Some((at, _)) = metrics.iter().enumerate().find(of_key) {
            ranks[at] = Some(next);
            next += 1;
        }
        if next == CARDS {
            break;
        }
    }
    ranks
}

/// Returns a card: an important figure with its explanation.
pub(super) fn card(label: &str, metric: Option<&str>, shown: RenderedRow<'_>) -> Value {
    match shown {
        RenderedRow::Text(text) => {
            let (first, rest) = parts(&text);
            // As the text has it, if both are in one line.
            let between = text.len().saturating_sub(first.len() + rest.len());
            let between = text.get(first.len()..first.len() + between);
            let join = match between.map(str::trim_end) {
                Some("") if !text.contains("   ") => " ".to_owned(),
                Some("") | None => "; ".to_owned(),
                Some(mark) => format!("{mark} "),
            };
            json!({"label": label, "metric": metric, "first": first, "rest": rest, "join": join})
        }
        RenderedRow::Distribution(named, first) => {
            let MetricFigures::Distribution(Some(found)) = named.figures else {
                return json!({"label": label, "metric": named.name, "first": "no data", "rest": ""});
            };
            let [(name, value), tail @ ..] = found.row_texts(named.unit, first);
            let tail = tail.map(|(name, value)| format!("{name} {value}"));
            json!({
                "label": label,
                "metric": named.name,
                "first": value,
                "of": name,
                "rest": tail.join(", "),
            })
        }
    }
}

/// Splits the text of a row into its first part, which is a figure with its unit if the text begins
/// with one, and the explanation.
pub(super) fn parts(text: &str) -> (&str, &str) {
    if let Some((first, rest)) = text.split_once("   ") {
        return (first.trim(), rest.trim());
    }
    let mut words = text.match_indices(' ');
    if let (Some((one, _)), two) = (words.next(), words.next().map(|(at, _)| at))
        && text.starts_with(|c: char| c.is_ascii_digit())
    {
        let end = two.unwrap_or(text.len());
        let second = text[one..end].trim_end_matches([',', ';']).trim();
        let is_unit = second == "%" || second.ends_with("bit/s") || second.ends_with("B");
        let end = match is_unit || ["ns", "µs", "ms", "s", "min"].contains(&second) {
            true => one + 1 + second.len(),
            false => one,
        };
        let (first, rest) = text.split_at(end);
        return (first.trim(), rest.trim_start_matches([',', ';', ' ']));
    }
    match text.split_once([',', ';']) {
        // A comma between digits separates thousands.
        Some((first, rest)) if rest.starts_with(' ') => (first, rest.trim()),
        _ => (text, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_text_join_to_the_text() {
        for (text, first, join, rest) in [
            (
                "10 of 12 connected; 1 refused",
                "10",
                " ",
                "of 12 connected; 1 refused",
            ),
            (
                "4.4 Mbit/s of media, 5 on the wire",
                "4.4 Mbit/s",
                " ",
                "of media, 5 on the wire",
            ),
            ("in sync, without errors", "in sync", ", ", "without errors"),
            ("5 %   1 of 20 viewers", "5 %", "; ", "1 of 20 viewers"),
            ("none received", "none received", " ", ""),
        ] {
            let card = card("label", None, RenderedRow::Text(text.to_owned()));
            let found = ["first", "join", "rest"].map(|key| card[key].as_str().unwrap_or_default());
            assert_eq!(found, [first, join, rest], "{text}");
        }
    }
}
