//! Rows of a population: those that its protocol declares and whose conditions hold, with their
//! figures.

use measure::summary::{FigureFormat, Part, RowCondition, RowContent, Token, tokens};
use measure::{SummaryRow, Unit};

use crate::human::{count, figure_or_dash, plural};
use crate::metrics::{MetricFigures, Metrics, NamedFigures};
use crate::model::Population;

/// Content of a row.
pub(crate) enum RenderedRow<'a> {
    /// A text. Three blanks in it separate the main part from its explanation.
    Text(String),
    /// A distribution, and the first statistic that is shown: `mean` or `p50`.
    Distribution(&'a NamedFigures, &'static str),
}

/// Returns the rows of a population, as declared and as shown.
pub(crate) fn rows(
    population: &Population,
    server_is_here: bool,
) -> Vec<(&'static SummaryRow, RenderedRow<'_>)> {
    let metrics = &population.metrics;
    let mut rows = Vec::new();
    for row in population.catalogue.summary() {
        if !row.when.iter().all(|when| holds(*when, population)) {
            continue;
        }
        let shown = match row.shows {
            RowContent::Text(parts) => {
                let text: String = parts.iter().map(|part| part_text(*part, metrics)).collect();
                (!text.is_empty()).then_some(RenderedRow::Text(text))
            }
            RowContent::Distribution(name, first) => metrics
                .find(name)
                .map(|found| RenderedRow::Distribution(found, first)),
            RowContent::WhereLost => {
                let lost = population.where_lost.as_ref();
                lost.and_then(|lost| lost.in_words(server_is_here))
                    .map(RenderedRow::Text)
            }
            RowContent::End => break,
        };
        rows.extend(shown.map(|shown| (row, shown)));
    }
    rows
}

fn holds(when: RowCondition, population: &Population) -> bool {
    let metrics = &population.metrics;
    let known = |name, is: fn(f64) -> bool| metrics.value(name).is_some_and(is);
    let began = || {
        let starts = metrics.distribution("startup_delay").is_some();
        starts || metrics.value("started") != Some(0.0) || population.clients.started == 0
    };
    match when {
        RowCondition::Above(name) => known(name, |value| value > 0.0),
        RowCondition::NotAbove(name) => !known(name, |value| value > 0.0),
        RowCondition::Zero(name) => known(name, |value| value == 0.0),
        RowCondition::NotZero(name) => known(name, |value| value != 0.0),
        RowCondition::HasData(name) => metrics.distribution(name).is_some(),
        RowCondition::NoData(name) => {
            let found = metrics.find(name).map(|named| &named.figures);
            matches!(found, Some(MetricFigures::Distribution(None)))
        }
        RowCondition::MoreThanPercentOf(name, whole) => {
            let values = metrics.value(name).zip(metrics.value(whole));
            values.is_some_and(|(value, whole)| value > whole / 100.0)
        }
        RowCondition::StartedAfterWarmUp => began(),
        RowCondition::OnlyStartedInWarmUp => !began(),
    }
}

fn part_text(part: Part, metrics: &Metrics) -> String {
    let above = |name: &str| metrics.value(name).is_some_and(|value| value > 0.0);
    let listed = |items: &[(&str, &str)]| {
        let items = items.iter().filter(|(name, _)| above(name));
        let items = items.map(|(name, text)| fill_figures(text, name, metrics));
        items.collect::<Vec<_>>().join(", ")
    };
    match part {
        Part::Text(text) => fill_figures(text, "", metrics),
        Part::If(name, text) if above(name) => fill_figures(text, name, metrics),
        Part::IfData(name, text) if metrics.distribution(name).is_some() => {
            fill_figures(text, name, metrics)
        }
        Part::If(..) | Part::IfData(..) => String::new(),
        Part::List(items) => listed(items),
        Part::Further(items) => match listed(items) {
            text if text.is_empty() => text,
            text => format!("; {text}"),
        },
        Part::ListOr(items, otherwise) => match listed(items) {
            text if text.is_empty() => otherwise.to_owned(),
            text => text,
        },
    }
}

/// Fills the figures into the text of a part. `about` is the metric of the part.
fn fill_figures(text: &str, about: &str, metrics: &Metrics) -> String {
    let value = |name: &str| metrics.value(name).unwrap_or(0.0);
    let one = |piece: Token<'_>| {
        let (name, how) = match piece {
            Token::Text(text) => return text.to_owned(),
            Token::Figure("", how) => (about, how),
            Token::Figure(name, how) => (name, how),
        };
        let unit = metrics.find(name).map_or(Unit::Count, |named| named.unit);
        match how {
            FigureFormat::Plain if unit == Unit::Count => count(value(name)),
            FigureFormat::Plain => match metrics.distribution(name) {
                Some(all) => all.text(unit, all.mean),
                None => figure_or_dash(unit, metrics.value(name)),
            },
            FigureFormat::Whole => count(value(name).round()),
            FigureFormat::Counted(one, many) => plural(value(name), one, many),
            FigureFormat::Less(other) => count((value(name) - value(other)).max(0.0)),
            FigureFormat::Of(other) => format!("{:.0} %", 100.0 * value(name) / value(other)),
            FigureFormat::Median => metrics
                .distribution(name)
                .map_or_else(String::new, |all| all.text(unit, all.p50)),
            FigureFormat::Max => metrics
                .distribution(name)
                .map_or_else(String::new, |all| all.text(unit, all.max)),
        }
    };
    tokens(text).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_a_semicolon_before_them_unless_they_are_empty() {
        let counted = |name, value| NamedFigures {
            name,
            unit: Unit::Count,
            figures: MetricFigures::Value(Some(value)),
        };
        let items = &[("late", "{} late"), ("short", "{} too early")];
        for (late, short, expected) in [
            (0.0, 0.0, "7"),
            (0.0, 2.0, "7; 2 too early"),
            (1.0, 2.0, "7; 1 late, 2 too early"),
        ] {
            let all = [("all", 7.0), ("late", late), ("short", short)];
            let metrics = Metrics(all.map(|(name, value)| counted(name, value)).into());
            let parts = [Part::Text("{all}"), Part::Further(items)];
            let text: String = parts.map(|part| part_text(part, &metrics)).concat();
            assert_eq!(text, expected);
        }
    }
}
