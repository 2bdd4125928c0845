//! Picture of a comparison: the effect on each metric, and the curves of both variants.

use std::collections::BTreeMap;

use measure::metric::MetricSource;
use measure::totals::WINDOW_SECONDS_MIN;
use measure::{Totals, Unit};
use runfile::{Reader, WindowRow};
use serde_json::{Value, json};

use super::downsample::round_significant;
use super::time_series::unit;
use crate::ReportError;
use crate::series::comparison::{ComparedMetric, ComparisonResult, Curve, ScaleName};
use crate::series::{Series, comparison_words};
use crate::source::is_population;

/// Maximum number of points of a curve.
const POINTS_MAX: usize = 240;

/// Maximum number of windows of a run that are read for its curves.
const WINDOWS_MAX: usize = 100_000;

/// Effects are drawn up to this many smallest effects that count.
const EFFECTS_MAX: f64 = 10.0;

/// Returns the picture of each comparison.
pub(super) fn comparisons(
    series: &Series,
    reader_of: &impl Fn(&str) -> Option<Reader>,
) -> Vec<Value> {
    let all = series.comparisons.iter();
    all.map(|found| picture(series, found, reader_of)).collect()
}

fn picture(
    series: &Series,
    found: &ComparisonResult,
    reader_of: &impl Fn(&str) -> Option<Reader>,
) -> Value {
    let sides = [&found.runs_a, &found.runs_b].map(|runs| {
        let files = runs.iter().filter_map(|run| series.runs.get(*run));
        let curves = files.filter_map(|row| curves(&reader_of(&row.file)?, found).ok());
        merged(curves.collect())
    });
    let metrics = found.metrics.iter().enumerate().map(|(at, metric)| {
        let curve = |side: &[Points]| side.get(at).map(points).unwrap_or_default();
        json!({
            "title": metric.title,
            "word": metric.result.text(),
            "tone": metric.result.name(),
            "judged": metric.judged,
            "figures": comparison_words::figures(metric),
            "effect": scaled(metric, Some(metric.effect)),
            "low": scaled(metric, metric.low),
            "high": scaled(metric, metric.high),
            "effect_text": comparison_words::effect_text(metric),
            "unit": unit(metric.unit),
            "a": metric.a.iter().copied().map(round_significant).collect::<Vec<_>>(),
            "b": metric.b.iter().copied().map(round_significant).collect::<Vec<_>>(),
            "curve_a": curve(&sides[0]),
            "curve_b": curve(&sides[1]),
        })
    });
    json!({
        "a": found.a,
        "b": found.b,
        "answer": comparison_words::answer(found),
        "basis": comparison_words::basis(found),
        "notes": comparison_words::notes(found),
        "result": found.result.name(),
        "metrics": metrics.collect::<Vec<_>>(),
    })
}

/// Returns an effect in smallest effects that count, positive if it is an improvement.
fn scaled(metric: &ComparedMetric, effect: Option<f64>) -> Value {
    let Some(effect) = effect else {
        return Value::Null;
    };
    let in_effects = match metric.scale {
        ScaleName::Ratio => effect.ln() / metric.min_effect.ln_1p(),
        ScaleName::Difference if effect == 0.0 => 0.0,
        ScaleName::Difference => effect / metric.min_effect,
    };
    let improved = match metric.larger_is_better {
        true => in_effects,
        false => -in_effects,
    };
    round_significant(improved.clamp(-EFFECTS_MAX, EFFECTS_MAX))
}

/// Values of a metric by the second of the run.
type Points = BTreeMap<u64, Vec<f64>>;

/// Reads the curves of all metrics of a run.
fn curves(reader: &Reader, found: &ComparisonResult) -> Result<Vec<Points>, ReportError> {
    let mut curves = vec![Points::new(); found.metrics.len()];
    for row in reader.windows().take(WINDOWS_MAX) {
        let row = row?;
        if row.seconds < WINDOW_SECONDS_MIN {
            continue;
        }
        let second = row.start.as_secs_f64().round() as u64;
        for (metric, points) in found.metrics.iter().zip(&mut curves) {
            let curve = metric.curve.as_ref();
            if let Some(value) = curve.and_then(|curve| value(reader, &row, curve)) {
                points.entry(second).or_default().push(value);
            }
        }
    }
    Ok(curves)
}

/// Returns the value of a window: counts are per second.
fn value(reader: &Reader, row: &WindowRow, curve: &Curve) -> Option<f64> {
    let subjects = reader.subjects().iter();
    let read = subjects.filter(|subject| match &curve.subject {
        Some(name) => subject.name == *name,
        None => is_population(subject),
    });
    let totals = read.filter_map(|subject| {
        let window = row.subjects.get(&subject.name)?;
        Some(Totals::of_window(subject.catalogue, window, row.seconds))
    });
    let totals: Vec<Totals> = totals.collect();
    let metric = totals
        .iter()
        .find_map(|totals| totals.catalogue().find(&curve.metric))?;
    let is_count = matches!(
        metric.source,
        MetricSource::Counter(_) | MetricSource::Sum(..) | MetricSource::Difference(..)
    );
    let value = Totals::pooled(&totals, &curve.metric, curve.statistic)?;
    let value = match is_count && metric.unit == Unit::Count {
        true => value / row.seconds,
        false => value,
    };
    value.is_finite().then_some(value)
}

/// Merges the curves of several runs of one variant.
fn merged(runs: Vec<Vec<Points>>) -> Vec<Points> {
    let mut all: Vec<Points> = Vec::new();
    for curves in runs {
        all.resize(all.len().max(curves.len()), Points::new());
        for (points, curve) in all.iter_mut().zip(curves) {
            for (second, values) in curve {
                points.entry(second).or_default().extend(values);
            }
        }
    }
    all
}

/// Returns the median over the runs, for each second or for each group of seconds.
fn points(points: &Points) -> Vec<Value> {
    let last = points.keys().next_back().copied().unwrap_or(0);
    let group = last / POINTS_MAX as u64 + 1;
    let mut groups: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (second, values) in points {
        groups.entry(second / group).or_default().extend(values);
    }
    let medians = groups.into_iter().map(|(at, mut values)| {
        values.sort_by(f64::total_cmp);
        json!([at * group, round_significant(values[values.len() / 2])])
    });
    medians.collect()
}
