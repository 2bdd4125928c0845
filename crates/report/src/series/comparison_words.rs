//! Result of a comparison in sentences.

use measure::Unit;

use super::capacity_comparison::CapacityComparison;
use measure::comparison::{Scale, Word};

use super::comparison::{ComparedMetric, ComparisonResult};
use super::search::LoadValue;
use super::words::with;
use crate::human::{digits, figure, plural};
use crate::terminal::one_line;

/// Number of metrics that a sentence names for one word.
const NAMED_MAX: usize = 3;

/// Returns the result in one sentence: `new against old: worse in loss; same in jitter`.
pub(crate) fn answer(found: &ComparisonResult) -> String {
    let judged = || found.metrics.iter().filter(|metric| metric.judged);
    let order = [Word::Worse, Word::Better, Word::Same, Word::CannotTell];
    let parts = order.into_iter().filter_map(|word| {
        let all: Vec<&str> = judged()
            .filter(|metric| metric.result == word)
            .map(|metric| metric.title.as_str())
            .collect();
        let named = match all.len() {
            0 => return None,
            count if count <= NAMED_MAX => all.join(", "),
            count => format!("{count} metrics"),
        };
        Some(format!("{} in {named}", word.text()))
    });
    let parts: Vec<String> = parts.collect();
    let parts = match parts.is_empty() {
        true => "nothing could be compared".to_owned(),
        false => parts.join("; "),
    };
    format!(
        "{}{} against {}: {parts}",
        with(&found.with),
        one_line(&found.b),
        one_line(&found.a)
    )
}

/// Describes the compared runs.
pub(crate) fn basis(found: &ComparisonResult) -> String {
    let (a, b) = (found.runs_a.len(), found.runs_b.len());
    match found.paired {
        true => format!(
            "{} of runs that alternated",
            plural(a as f64, "pair", "pairs")
        ),
        false => format!(
            "{} of {} and {} of {}, which did not alternate",
            plural(a as f64, "run", "runs"),
            one_line(&found.a),
            b,
            one_line(&found.b)
        ),
    }
}

/// Returns what a reader should know about the comparison.
pub(crate) fn notes(found: &ComparisonResult) -> Vec<String> {
    let mut notes = Vec::new();
    let few = found.runs_a.len().min(found.runs_b.len()) < 3;
    if few {
        notes.push(
            "too few runs for an interval: at least three of each are needed, six are recommended"
                .to_owned(),
        );
    }
    if !found.paired && !few {
        notes.push(
            "a change of the machine between these runs looks like one of the server; runs that \
             alternate (`compare` in a scenario) exclude that"
                .to_owned(),
        );
    }
    for (name, texts) in [
        ("differs", &found.differences),
        ("left out", &found.left_out),
    ] {
        notes.extend(
            texts
                .iter()
                .map(|what| format!("{name}: {}", one_line(what))),
        );
    }
    if !found.without_data.is_empty() {
        notes.push(format!("without data: {}", found.without_data.join(", ")));
    }
    for metric in &found.metrics {
        let spoiled = metric.spoiled.iter();
        let pairs: Vec<String> = spoiled.map(usize::to_string).collect();
        if !pairs.is_empty() {
            notes.push(format!(
                "{}: pair {} differs far more than the others and does not count; `same` is not \
                 possible then",
                metric.title,
                pairs.join(", ")
            ));
        }
    }
    notes
}

/// Returns the result of comparing two capacities.
pub(crate) fn capacities(found: &CapacityComparison) -> String {
    let capacity = |load: &Option<LoadValue>| {
        let text = load.as_ref().map(|load| one_line(&load.text));
        text.unwrap_or_else(|| "unknown".to_owned())
    };
    let effect = rounded(found.min_effect * 100.0);
    let chance = |probability: f64| format!("{} %", rounded(probability * 100.0));
    let chances = found.smaller.zip(found.larger).map(|(smaller, larger)| {
        format!(
            "; smaller by {effect} % or more with a probability of {}, larger with {}",
            chance(smaller),
            chance(larger)
        )
    });
    format!(
        "{}{} against {}: {}: {} → {}{}",
        with(&found.with),
        one_line(&found.b),
        one_line(&found.a),
        found.result.text(),
        capacity(&found.capacity_a),
        capacity(&found.capacity_b),
        chances.unwrap_or_default()
    )
}

/// Returns the mean values of A and B.
pub(crate) fn values(metric: &ComparedMetric) -> String {
    let mean = |all: &[f64]| match all.len() {
        0 => "no value".to_owned(),
        count => figure(metric.unit, all.iter().sum::<f64>() / count as f64),
    };
    let [a, b] = [&metric.a, &metric.b].map(|all| mean(all));
    match metric.a == metric.b {
        true => format!("{a} in both"),
        false => format!("{a} → {b}"),
    }
}

/// Returns the mean values of A and B, and the effect with its interval.
pub(crate) fn figures(metric: &ComparedMetric) -> String {
    let effect = effect_text(metric);
    match effect.is_empty() {
        true => values(metric),
        false => format!("{}, {effect}", values(metric)),
    }
}

/// Returns the effect with its interval: `-12 % (-14 to -10 %)`. Empty without an effect.
pub(crate) fn effect_text(metric: &ComparedMetric) -> String {
    let Some(effect) = metric.effect.filter(|_| metric.a != metric.b) else {
        return String::new();
    };
    let sign = |value: f64| if value > 0.0 { "+" } else { "" };
    let signed = |value: f64| format!("{}{}", sign(value), rounded(value));
    // Number and unit: the interval needs the unit once.
    let (number, unit): (Box<dyn Fn(f64) -> String>, &str) = match (metric.scale, metric.unit) {
        (Scale::Ratio, _) => (Box::new(move |value| signed((value - 1.0) * 100.0)), " %"),
        (Scale::Difference, Unit::Ratio) => {
            (Box::new(move |value| signed(value * 100.0)), " points")
        }
        (Scale::Difference, unit) => (
            Box::new(move |value| format!("{}{}", sign(value), figure(unit, value))),
            "",
        ),
    };
    let effect = number(effect);
    match metric.low.zip(metric.high) {
        Some((low, high)) => {
            format!("{effect}{unit} ({} to {}{unit})", number(low), number(high))
        }
        None => format!("{effect}{unit}"),
    }
}

/// Formats percentages with at most two decimals: more are noise.
fn rounded(value: f64) -> String {
    match value.abs() {
        size if size < 0.005 => "0".to_owned(),
        size if size < 1.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => digits(value.round()),
    }
}
