//! Picture of a comparison: the effect on each metric, and the curves of both variants.

use std::collections::BTreeMap;

use measure::comparison::Scale;
use measure::metric::MetricSource;
use measure::totals::WINDOW_SECONDS_MIN;
use measure::{Totals, Unit};
use runfile::{Reader, Subject};
use serde_json::{Value, json};

use super::downsample::round_significant;
use crate::ReportError;
use crate::series::comparison::{ComparedMetric, ComparisonResult, Curve};
use crate::series::{Series, comparison_words};
use crate::source::is_population;

/// Maximum number of points of a curve.
const POINTS_MAX: usize = 240;

/// Maximum number of runs of a variant that are read for its curves.
const RUNS_MAX: usize = 50;

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
        let files = files.take(RUNS_MAX);
        let curves = files.filter_map(|row| curves(&reader_of(&row.file)?, found).ok());
        curves.collect::<Vec<_>>()
    });
    let metrics = found.metrics.iter().enumerate().map(|(at, metric)| {
        let curve = |side: &[Vec<Points>]| {
            let runs = side.iter().filter_map(|run| run.get(at));
            median(&runs.collect::<Vec<_>>())
        };
        json!({
            "title": metric.title,
            "word": metric.result.text(),
            "tone": metric.result,
            "judged": metric.judged,
            "figures": comparison_words::figures(metric),
            "effect": scaled(metric, metric.effect),
            "low": scaled(metric, metric.low),
            "high": scaled(metric, metric.high),
            "effect_text": comparison_words::effect_text(metric),
            "unit": metric.unit,
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
        "result": found.result,
        "metrics": metrics.collect::<Vec<_>>(),
    })
}

/// Returns an effect in smallest effects that count, positive if it is an improvement.
fn scaled(metric: &ComparedMetric, effect: Option<f64>) -> Value {
    let Some(effect) = effect else {
        return Value::Null;
    };
    let in_effects = match metric.scale {
        Scale::Ratio => effect.ln() / metric.min_effect.ln_1p(),
        Scale::Difference if effect == 0.0 => 0.0,
        Scale::Difference => effect / metric.min_effect,
    };
    let improved = match metric.larger_is_better {
        true => in_effects,
        false => -in_effects,
    };
    round_significant(improved.clamp(-EFFECTS_MAX, EFFECTS_MAX))
}

/// Means of a metric over groups of seconds of a run. Groups are doubled if there are too many of
/// them, so that memory does not depend on the length of the run.
#[derive(Clone, Default)]
struct Points {
    /// Logarithm of the number of seconds in a group, to base 2.
    doublings: u32,
    /// Sum and number of the values of each group.
    groups: BTreeMap<u64, (f64, f64)>,
}

impl Points {
    fn add(&mut self, second: u64, value: f64) {
        let group = self.groups.entry(second >> self.doublings).or_default();
        group.0 += value;
        group.1 += 1.0;
        if self.groups.len() > POINTS_MAX {
            self.double();
        }
    }

    fn double(&mut self) {
        self.doublings += 1;
        for (at, (sum, count)) in std::mem::take(&mut self.groups) {
            let group = self.groups.entry(at >> 1).or_default();
            group.0 += sum;
            group.1 += count;
        }
    }
}

/// Reads the curves of all metrics of a run.
fn curves(reader: &Reader, found: &ComparisonResult) -> Result<Vec<Points>, ReportError> {
    let mut curves = vec![Points::default(); found.metrics.len()];
    for row in reader.windows() {
        let row = row?;
        if row.seconds < WINDOW_SECONDS_MIN {
            continue;
        }
        let second = row.start.as_secs_f64().round() as u64;
        let totals: Vec<(&Subject, Totals)> = reader
            .subjects()
            .iter()
            .filter_map(|subject| {
                let window = row.subjects.get(&subject.name)?;
                let totals = Totals::of_window(subject.catalogue, window, row.seconds);
                Some((subject, totals))
            })
            .collect();
        for (metric, points) in found.metrics.iter().zip(&mut curves) {
            let curve = metric.curve.as_ref();
            if let Some(value) = curve.and_then(|curve| value(&totals, row.seconds, curve)) {
                points.add(second, value);
            }
        }
    }
    Ok(curves)
}

/// Returns the value of a window: counts are per second.
fn value(totals: &[(&Subject, Totals)], seconds: f64, curve: &Curve) -> Option<f64> {
    let read = totals.iter().filter(|(subject, _)| match &curve.subject {
        Some(name) => subject.name == *name,
        None => is_population(subject),
    });
    let read: Vec<Totals> = read.map(|(_, totals)| totals.clone()).collect();
    let metric = read
        .iter()
        .find_map(|totals| totals.catalogue().find(&curve.metric))?;
    let is_count = matches!(
        metric.source,
        MetricSource::Counter(_) | MetricSource::Sum(..) | MetricSource::Difference(..)
    );
    let value = Totals::pooled(&read, &curve.metric, curve.statistic)?;
    let value = match is_count && metric.unit == Unit::Count {
        true => value / seconds,
        false => value,
    };
    value.is_finite().then_some(value)
}

/// Returns the median over the runs, for each group of seconds.
fn median(runs: &[&Points]) -> Vec<Value> {
    let doublings = runs
        .iter()
        .map(|points| points.doublings)
        .max()
        .unwrap_or(0);
    let mut groups: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for run in runs {
        let mut points = (*run).clone();
        while points.doublings < doublings {
            points.double();
        }
        for (at, (sum, count)) in points.groups {
            groups.entry(at).or_default().push(sum / count);
        }
    }
    let medians = groups.into_iter().map(|(at, mut values)| {
        values.sort_by(f64::total_cmp);
        json!([at << doublings, round_significant(values[values.len() / 2])])
    });
    medians.collect()
}
