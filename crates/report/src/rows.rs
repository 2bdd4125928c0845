//! Rows of a population: those that its protocol declares and whose conditions hold, with their
//! figures.

use measure::summary::{How, Part, Piece, Shows, When, pieces};
use measure::{SummaryRow, Unit};

use crate::human::{count, figure, figure_or_dash, plural};
use crate::metrics::{Distribution, MetricFigures, Metrics, Named};
use crate::model::Population;

/// Content of a row.
pub(crate) enum Shown<'a> {
    /// A text. Three blanks in it separate the main part from its explanation.
    Text(String),
    /// A distribution, and the first statistic that is shown: `mean` or `p50`.
    Distribution(&'a Named, &'static str),
}

/// Returns the rows of a population, as declared and as shown.
pub(crate) fn rows(
    population: &Population,
    server_is_here: bool,
) -> Vec<(&'static SummaryRow, Shown<'_>)> {
    let metrics = &population.metrics;
    let mut rows = Vec::new();
    for row in population.catalogue.summary() {
        if !row.when.iter().all(|when| holds(*when, population)) {
            continue;
        }
        let shown = match row.shows {
            Shows::Text(parts) => {
                let text: String = parts.iter().map(|part| written(*part, metrics)).collect();
                (!text.is_empty()).then_some(Shown::Text(text))
            }
            Shows::Distribution(name, first) => metrics
                .find(name)
                .map(|found| Shown::Distribution(found, first)),
            Shows::WhereLost => {
                let lost = population.where_lost.as_ref();
                lost.and_then(|lost| lost.in_words(server_is_here))
                    .map(Shown::Text)
            }
            Shows::End => break,
        };
        rows.extend(shown.map(|shown| (row, shown)));
    }
    rows
}

fn holds(when: When, population: &Population) -> bool {
    let metrics = &population.metrics;
    let known = |name, is: fn(f64) -> bool| metrics.value(name).is_some_and(is);
    let began = || metrics.value("started") != Some(0.0) || population.clients.started == 0;
    match when {
        When::Above(name) => known(name, |value| value > 0.0),
        When::NotAbove(name) => !known(name, |value| value > 0.0),
        When::Zero(name) => known(name, |value| value == 0.0),
        When::NotZero(name) => known(name, |value| value != 0.0),
        When::HasData(name) => data(metrics, name).is_some(),
        When::NoData(name) => {
            let found = metrics.find(name).map(|named| &named.figures);
            matches!(found, Some(MetricFigures::Distribution(None)))
        }
        When::MoreThanPercentOf(name, whole) => {
            let values = metrics.value(name).zip(metrics.value(whole));
            values.is_some_and(|(value, whole)| value > whole / 100.0)
        }
        When::Began => began(),
        When::NotBegan => !began(),
    }
}

fn data(metrics: &Metrics, name: &str) -> Option<Distribution> {
    match metrics.find(name)?.figures {
        MetricFigures::Distribution(found) => found,
        MetricFigures::Value(_) | MetricFigures::Level(_) => None,
    }
}

fn written(part: Part, metrics: &Metrics) -> String {
    let above = |name: &str| metrics.value(name).is_some_and(|value| value > 0.0);
    let listed = |items: &[(&str, &str)]| {
        let items = items.iter().filter(|(name, _)| above(name));
        let items = items.map(|(name, text)| filled(text, name, metrics));
        items.collect::<Vec<_>>().join(", ")
    };
    match part {
        Part::Text(text) => filled(text, "", metrics),
        Part::If(name, text) if above(name) => filled(text, name, metrics),
        Part::IfData(name, text) if data(metrics, name).is_some() => filled(text, name, metrics),
        Part::If(..) | Part::IfData(..) => String::new(),
        Part::List(items) => listed(items),
        Part::ListOr(items, otherwise) => match listed(items) {
            text if text.is_empty() => otherwise.to_owned(),
            text => text,
        },
    }
}

/// Fills the figures into the text of a part. `about` is the metric of the part.
fn filled(text: &str, about: &str, metrics: &Metrics) -> String {
    let value = |name: &str| metrics.value(name).unwrap_or(0.0);
    let one = |piece: Piece<'_>| {
        let (name, how) = match piece {
            Piece::Text(text) => return text.to_owned(),
            Piece::Figure("", how) => (about, how),
            Piece::Figure(name, how) => (name, how),
        };
        let unit = metrics.find(name).map_or(Unit::Count, |named| named.unit);
        match how {
            How::Plain if unit == Unit::Count => count(value(name)),
            How::Plain => figure_or_dash(unit, metrics.value(name)),
            How::Whole => count(value(name).round()),
            How::Counted(one, many) => plural(value(name), one, many),
            How::Less(other) => count((value(name) - value(other)).max(0.0)),
            How::Of(other) => format!("{:.0} %", 100.0 * value(name) / value(other)),
            How::Median => {
                data(metrics, name).map_or_else(String::new, |all| figure(unit, all.p50))
            }
            How::Max => data(metrics, name).map_or_else(String::new, |all| figure(unit, all.max)),
        }
    };
    pieces(text).map(one).collect()
}
