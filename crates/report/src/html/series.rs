//! Page of a series: its conclusions, every figure against the varied values, the table, and the
//! page of each run.

use std::collections::BTreeMap;
use std::io::Write;

use measure::{BetterWhen, Meaning, TableColumn, Unit};
use runfile::Reader;
use serde_json::{Value, json};

use super::comparison::comparisons;
use super::downsample::round_significant;
use super::page::Connections;
use super::positions::ChartLayout;
use super::run::{FINE, run};
use super::time_series::Resolution;
use super::{overview, page};
use crate::ReportError;
use crate::distinct::distinct;
use crate::head;
use crate::human::{count, plural};
use crate::metric_words::capital;
use crate::model::Report;
use crate::series::names::short_names;
use crate::series::search::LoadValue;
use crate::series::{
    Capacity, Figures, Row, RowOutcome, Scaling, Series, columns, comparison_words, search_words,
    words,
};

/// Maximum size of the pages of all runs together, in bytes. It keeps the file below 5 MB.
const RUNS_BYTES: usize = 4_500_000;

/// Resolutions of the runs' charts. The first with which all pages fit is used.
const RESOLUTIONS: [Resolution; 5] = [
    FINE,
    Resolution::new(1_200, 240),
    Resolution::new(400, 120),
    Resolution::new(160, 60),
    Resolution::new(60, 24),
];

/// Number of segments in the curve of a model.
const CURVE: usize = 60;

/// Number of runs that did not pass and that are named at the top.
const REASONS_MAX: usize = 3;

/// Maximum number of thresholds that are drawn into one chart.
const LIMITS_MAX: usize = 3;

/// Writes the page of a series. `reader_of` opens the run file with that name. A run without a
/// readable run file has no page.
///
/// # Errors
/// Fails if writing fails.
pub fn write_series(
    series: &Series,
    reader_of: impl Fn(&str) -> Option<Reader>,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let mut definitions = BTreeMap::new();
    let pages = pages(series, &reader_of, &mut definitions);
    let comparisons = comparisons(series, &reader_of);
    definitions.insert("series".to_owned(), defined(series, &definitions));
    let sentence = sentence(series);
    let title = format!("{}: {}", plural_runs(series), series.name);
    let without_script = format!("{title}. {sentence}");
    let data = json!({
        "page_version": 1,
        "streamgauge": env!("CARGO_PKG_VERSION"),
        "definitions": definitions,
        "series": value(series, &sentence, &pages, comparisons),
    });
    let blocks = pages.into_iter().enumerate();
    let blocks: Vec<(String, Value)> = blocks
        .filter_map(|(at, page)| Some((format!("data-{at}"), page.content?)))
        .collect();
    page::write(
        &title,
        &without_script,
        data,
        blocks,
        Connections::Forbidden,
        out,
    )
}

/// Page of a run.
#[derive(Default)]
struct Page {
    content: Option<Value>,
    /// True if the page was left out because the file would be too large.
    left_out: bool,
}

/// Returns the pages of all runs, in the finest resolution with which they fit.
fn pages(
    series: &Series,
    reader_of: &impl Fn(&str) -> Option<Reader>,
    definitions: &mut BTreeMap<String, Value>,
) -> Vec<Page> {
    let mut pages = Vec::new();
    for (at, resolution) in RESOLUTIONS.into_iter().enumerate() {
        let is_last = at + 1 == RESOLUTIONS.len();
        let mut bytes = 0;
        pages = Vec::with_capacity(series.runs.len());
        for row in &series.runs {
            let made = reader_of(&row.file).and_then(|reader| {
                overview::definitions(&reader, definitions);
                let report = Report::from_run(&reader).ok()?;
                run(&report, &reader, resolution).ok()
            });
            let length = made.as_ref().map_or(0, |made| made.to_string().len());
            let left_out = bytes + length > RUNS_BYTES;
            // Stops early if the pages so far show that all of them will not fit.
            let all = (bytes + length) * series.runs.len() / (pages.len() + 1);
            if !is_last && (left_out || all > RUNS_BYTES + RUNS_BYTES / 8) {
                break;
            }
            bytes += if left_out { 0 } else { length };
            pages.push(Page {
                content: made.filter(|_| !left_out),
                left_out,
            });
        }
        if pages.len() == series.runs.len() {
            break;
        }
    }
    pages
}

fn plural_runs(series: &Series) -> String {
    plural(series.runs.len() as f64, "run", "runs")
}

/// Returns the result of the only comparison, the capacity if it is known and the only one, or the
/// number of runs.
fn badge(series: &Series) -> String {
    let capacities = series.capacity_comparisons.iter();
    let capacities = capacities.filter(|_| series.is_of_files);
    let words = series.comparisons.iter().map(|found| found.result);
    let words = words.chain(capacities.map(|found| found.result));
    if let [word] = words.collect::<Vec<_>>().as_slice() {
        return capital(word.text());
    }
    // Searches with the same answer have one.
    let mut answers = series.searches.iter().map(search_words::capacity);
    let first = answers.next().flatten();
    let found = first.filter(|first| answers.all(|other| other.as_ref() == Some(first)));
    found.unwrap_or_else(|| plural_runs(series))
}

fn value(series: &Series, sentence: &str, pages: &[Page], comparisons: Vec<Value>) -> Value {
    let layout = ChartLayout::of(series);
    let left_out = pages.iter().filter(|page| page.left_out).count();
    let rows = series.runs.iter().zip(pages).map(|(row, page)| {
        json!({
            "values": row.values,
            "outcome": row.outcome,
            "verdict": columns::verdict(row),
            "reason": failure_reason(row, page).or_else(|| columns::unranked(row)),
            "mark": mark(row),
            "file": row.file,
            "page": page.content.is_some(),
        })
    });
    json!({
        "name": series.name,
        "badge": badge(series),
        "facts": facts(series, pages),
        "sentence": sentence,
        "outcomes": outcomes(series),
        "reasons": reasons(series, pages),
        "notes": notes(series, left_out),
        "findings": findings(series),
        "searches": searches(series, pages),
        "comparisons": comparisons,
        "keys": series.varied,
        "names": short_names(&series.varied),
        "columns": table(series),
        "axis": layout.as_ref().map(|layout| json!({
            "title": layout.axis,
            "numeric": layout.numeric,
            "log": layout.log,
            "ticks": layout.ticks,
            "panels": layout.panels,
            "passed": passed(series, layout),
            "lines": layout.lines,
            "spots": layout.runs.iter()
                .map(|spot| json!([spot.panel, spot.line, spot.x]))
                .collect::<Vec<_>>(),
        })),
        "charts": layout.map(|layout| charts(series, &layout, pages)).unwrap_or_default(),
        "rows": rows.collect::<Vec<_>>(),
    })
}

/// Returns what was tested, and when.
fn facts(series: &Series, pages: &[Page]) -> Vec<String> {
    let runs = pages.iter().filter_map(|page| page.content.as_ref());
    let targets = runs.filter_map(|run| run["target"].as_str());
    let target = match distinct(targets).as_slice() {
        [] => None,
        [one] => Some((*one).to_owned()),
        [first, more @ ..] => Some(format!(
            "{first} and {}",
            plural(more.len() as f64, "other target", "other targets")
        )),
    };
    let began = series.started_at.as_deref().map(head::date);
    target.into_iter().chain(began).collect()
}

/// Returns how a run is marked in charts: eligible as the best, not eligible, or not trusted.
fn mark(row: &Row) -> &'static str {
    match (row.outcome.is_trusted(), &row.out_of_contest) {
        (true, None) => "counts",
        (true, Some(_)) => "out",
        (false, _) => "doubt",
    }
}

/// Counts the runs by outcome.
fn outcomes(series: &Series) -> Vec<Value> {
    let all = [
        (RowOutcome::Pass, "passed"),
        (RowOutcome::Fail, "failed"),
        (RowOutcome::Invalid, "invalid"),
        (RowOutcome::Stopped, "stopped"),
        (RowOutcome::NotBegun, "could not begin"),
        (RowOutcome::Planned, "not run"),
    ];
    let counted = all.into_iter().filter_map(|(outcome, words)| {
        let rows = || series.runs.iter().filter(|row| row.outcome == outcome);
        let number = rows().count();
        let unranked = rows().filter(|row| row.out_of_contest.is_some()).count();
        let text = match (outcome, unranked) {
            (RowOutcome::Pass, 1..) => format!("{number} {words}, {unranked} not ranked"),
            _ => format!("{number} {words}"),
        };
        (number > 0).then(|| json!([outcome, text]))
    });
    counted.collect()
}

/// Summarizes the series in one sentence: the capacity if clients are varied, else the number of
/// runs that passed.
fn sentence(series: &Series) -> String {
    let ended = |text: String| match text.ends_with('.') {
        true => text,
        false => format!("{text}."),
    };
    if series.is_of_files || !series.comparisons.is_empty() {
        let capacities = series.capacity_comparisons.iter();
        let answers = capacities.map(comparison_words::capacities);
        let answers = answers.chain(series.comparisons.iter().map(comparison_words::answer));
        return ended(answers.collect::<Vec<_>>().join("; "));
    }
    if !series.searches.is_empty() {
        let answers = series.searches.iter().map(search_words::answer);
        return ended(format!(
            "Capacity: {}",
            answers.collect::<Vec<_>>().join("; ")
        ));
    }
    if let [most] = series.most_messages.as_slice() {
        return ended(capital(&words::most(most, series)));
    }
    let best = series
        .most_messages
        .iter()
        .filter_map(|most| Some((most.messages?, most)));
    if let Some((_, most)) = best.max_by(|a, b| a.0.total_cmp(&b.0)) {
        return ended(format!("Most {}", words::most(most, series)));
    }
    match series.capacity.as_slice() {
        [] => {}
        [capacity] => return ended(capital(&words::capacity(capacity)) + &knee(series)),
        all => {
            let most = all.iter().max_by_key(|capacity| capacity.passed);
            let least = all.iter().min_by_key(|capacity| capacity.passed);
            if let (Some(most), Some(least)) = (most, least) {
                return capacity_range(most, least);
            }
        }
    }
    let passed = series
        .runs
        .iter()
        .filter(|row| row.outcome == RowOutcome::Pass)
        .count();
    match series.runs.len() {
        0 => "There was no run.".to_owned(),
        all if all == passed => "Every run passed.".to_owned(),
        all => format!(
            "{} of {} passed.",
            count(passed as f64),
            plural(all as f64, "run", "runs")
        ),
    }
}

fn knee(series: &Series) -> String {
    let knee = series.scaling.first().and_then(|scaling| scaling.knee);
    knee.map_or_else(String::new, |knee| {
        let clients = |value: f64| count(value.round());
        format!(
            "; the output is largest at {} clients ({} to {})",
            clients(knee.clients.value),
            clients(knee.clients.low),
            clients(knee.clients.high)
        )
    })
}

/// Describes the capacities of the best and the worst combination.
fn capacity_range(most: &Capacity, least: &Capacity) -> String {
    let with = |capacity: &Capacity| {
        let with = capacity.with.iter();
        let with = with
            .map(|(key, value)| format!("{} {value}", short_names(std::slice::from_ref(key))[0]));
        with.collect::<Vec<_>>().join(", ")
    };
    let passed = |capacity: &Capacity| match capacity.passed {
        Some(clients) => format!(
            "up to {} passed",
            plural(clients as f64, "client", "clients")
        ),
        None => "no number of clients passed".to_owned(),
    };
    match most.passed == least.passed {
        true => {
            let keys = most.with.iter().map(|(key, _)| key.clone());
            let names = short_names(&keys.collect::<Vec<_>>()).join(" and the ");
            format!("{}, whatever the {names}.", capital(&passed(most)))
        }
        false => format!(
            "With {} {}; with {} {}.",
            with(most),
            passed(most),
            with(least),
            passed(least)
        ),
    }
}

/// Returns the reason why a run did not pass: the first sentence of its own page, or its first
/// reason.
fn failure_reason(row: &Row, page: &Page) -> Option<String> {
    let first = row.reasons.first()?;
    let reason_text = page
        .content
        .as_ref()
        .and_then(|run| run["verdict"]["sentence"].as_str());
    let reason_text = reason_text.filter(|reason_text| !reason_text.is_empty());
    // The part after the first semicolon says where it happened and what to do.
    let reason = first
        .split_once("; ")
        .map_or(first.as_str(), |(why, _)| why);
    Some(reason_text.unwrap_or(reason).to_owned())
}

/// Lists the runs that did not pass, with the reason of each.
fn reasons(series: &Series, pages: &[Page]) -> Vec<String> {
    let rows = series.runs.iter().zip(pages);
    let bad = rows.filter_map(|(row, page)| Some((row, failure_reason(row, page)?)));
    let all: Vec<String> = bad
        .map(|(row, why)| format!("{}: {why}", row.values.join(", ")))
        .collect();
    let mut texts: Vec<String> = all.iter().take(REASONS_MAX).cloned().collect();
    let more = all.len().saturating_sub(REASONS_MAX);
    if more > 0 {
        texts.push(format!("and {more} more, in the table"));
    }
    texts
}

fn notes(series: &Series, left_out: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if series.ended == Some(false) {
        notes.push("The series was cut off or is still running.".to_owned());
    }
    if left_out > 0 {
        notes.push(format!(
            "{} would make this file too large: `streamgauge report RUNFILE --html FILE` makes the \
             page of one.",
            plural(left_out as f64, "run's page", "runs' pages")
        ));
    }
    notes
}

/// Returns the conclusions from all runs: for each a name, a sentence, and named details.
fn findings(series: &Series) -> Vec<Value> {
    let mut all = Vec::new();
    let none = Vec::<Value>::new;
    for most in &series.most_messages {
        all.push(json!(["most", words::most(most, series), none()]));
    }
    for capacity in &series.capacity {
        all.push(json!(["capacity", words::capacity(capacity), none()]));
    }
    for found in &series.searches {
        let (answer, details) = (search_words::answer(found), search_words::details(found));
        all.push(json!(["capacity", answer, details]));
    }
    for found in &series.capacity_comparisons {
        let text = comparison_words::capacities(found);
        all.push(json!(["compare", text, none()]));
    }
    for found in &series.found {
        all.push(json!(["found", words::found(found), none()]));
    }
    for scaling in &series.scaling {
        let (model, lines) = words::scaling(scaling);
        all.push(json!(["model", model, lines]));
    }
    all
}

/// Returns the picture of each capacity search: its trials, and the distribution of the capacity.
fn searches(series: &Series, pages: &[Page]) -> Vec<Value> {
    let searches = series
        .searches
        .iter()
        .filter(|found| !found.trials.is_empty());
    let pictures = searches.map(|found| {
        let keys: Vec<String> = found.with.iter().map(|(key, _)| key.clone()).collect();
        let names = short_names(&keys);
        let with = names.iter().zip(&found.with);
        let with = with.map(|(name, (_, value))| format!("{name} {value}"));
        let trials = found.trials.iter().map(|trial| {
            let text = search_words::trial(trial);
            let page = pages.get(trial.run);
            let has_page = page.is_some_and(|page| page.content.is_some());
            json!([trial.load.value, trial.result, trial.run, text, has_page])
        });
        let mut ticks: Vec<(f64, &str)> = found
            .trials
            .iter()
            .map(|trial| (trial.load.value, trial.load.text.as_str()))
            .collect();
        ticks.sort_by(|one, other| one.0.total_cmp(&other.0));
        ticks.dedup_by(|one, other| one.0 == other.0);
        let density = found.distribution.iter();
        let density = density.map(|point| {
            json!([
                round_significant(point.value),
                round_significant(point.probability)
            ])
        });
        let value = |load: &Option<LoadValue>| load.as_ref().map(|load| load.value);
        json!({
            "title": with.collect::<Vec<_>>().join(", "),
            "axis": short_names(std::slice::from_ref(&found.key))[0],
            "answer": search_words::short_answer(found),
            "spoken": format!("Capacity: {}", search_words::answer(found)),
            "text": search_words::answer_alone(found),
            "capacity": value(&found.capacity),
            "low": value(&found.low),
            "high": value(&found.high),
            "trials": trials.collect::<Vec<_>>(),
            "ticks": ticks,
            "density": density.collect::<Vec<_>>(),
        })
    });
    pictures.collect()
}

/// Returns the columns of the table, with the text of each run.
fn table(series: &Series) -> Vec<Value> {
    let columns = columns::of(series).into_iter().map(|shown| {
        let cells = series.runs.iter().map(|row| {
            let text = columns::text(row, shown.column, shown.unit);
            json!([
                text.as_deref().unwrap_or("–"),
                row.best.contains(&shown.column.name)
            ])
        });
        json!({
            "name": shown.column.name,
            "heading": shown.column.heading.join(" ").trim_end(),
            "cells": cells.collect::<Vec<_>>(),
        })
    });
    columns.collect()
}

/// Returns the limits that the runs' thresholds set for a column, each with its threshold and
/// without duplicates.
fn limits(column: &TableColumn, pages: &[Page]) -> Vec<Value> {
    let statistic = columns::statistic(column);
    let made = pages.iter().filter_map(|page| page.content.as_ref());
    let all = made.flat_map(|run| run["thresholds"].as_array().into_iter().flatten());
    let own = all.filter(|threshold| {
        !column.metric.is_empty()
            && threshold["metric"].as_str() == Some(column.metric)
            && threshold["statistic"].as_str() == statistic.as_deref()
            && threshold["implied"] == json!(false)
    });
    let mut limits = Vec::new();
    for limit in own.map(|own| json!([own["limit"], own["text"]])) {
        if limits.len() < LIMITS_MAX && !limits.contains(&limit) {
            limits.push(limit);
        }
    }
    limits
}

fn charts(series: &Series, layout: &ChartLayout, pages: &[Page]) -> Vec<Value> {
    let charts = columns::of(series).into_iter().filter_map(|shown| {
        let figures = |row: &Row| row.figures.as_ref()?.value(shown.column);
        let values: Vec<Option<f64>> = series.runs.iter().map(figures).collect();
        let known: Vec<f64> = values.iter().copied().flatten().collect();
        // A value that is equal in all runs, or known for one run only, shows no trend. The table
        // has it.
        if known.windows(2).all(|pair| pair[0] == pair[1]) {
            return None;
        }
        let models = match shown.column.meaning {
            Meaning::BitRate => series.scaling.iter(),
            _ => [].iter(),
        };
        let unit_of = match shown.column.meaning {
            Meaning::CpuPerOperation => Unit::Seconds,
            _ => shown.unit,
        };
        let of_values = values.into_iter();
        Some(json!({
            "name": shown.column.name,
            "title": columns::title(shown.column),
            "unit": unit_of,
            "better": match shown.column.better {
                BetterWhen::Larger => "more is better",
                BetterWhen::Smaller => "less is better",
            },
            "values": of_values.map(|value| value.map_or(Value::Null, round_significant)).collect::<Vec<_>>(),
            "limits": limits(shown.column, pages),
            "models": models
                .filter_map(|scaling| model(series, layout, scaling))
                .collect::<Vec<_>>(),
        }))
    });
    charts.collect()
}

/// Returns the capacity for the charts: the panel, the number of clients on the axis, and its text.
/// A capacity is left out if all runs passed, because no end is visible then.
fn passed(series: &Series, layout: &ChartLayout) -> Vec<Value> {
    let found = series.capacity.iter().filter_map(|capacity| {
        capacity.first_not_passed?;
        let clients = capacity.passed? as f64;
        let mut rows = series.runs.iter().zip(&layout.runs);
        let (_, spot) =
            rows.find(|(row, spot)| spot.x == clients && has_values(series, row, &capacity.with))?;
        let text = format!("passed up to {}", count(clients));
        Some(json!([spot.panel, round_significant(clients), text]))
    });
    found.collect()
}

/// Returns `true` if the run has these values.
fn has_values(series: &Series, row: &Row, with: &[(String, String)]) -> bool {
    with.iter().all(|(key, value)| {
        let at = series.varied.iter().position(|varied| varied == key);
        at.and_then(|at| row.values.get(at)) == Some(value)
    })
}

/// Returns the curve of a model and its knee, in chart coordinates.
fn model(series: &Series, layout: &ChartLayout, scaling: &Scaling) -> Option<Value> {
    let (lambda, sigma, kappa) = (scaling.lambda?, scaling.sigma?, scaling.kappa?);
    let of: Vec<usize> = (0..series.runs.len())
        .filter(|&at| has_values(series, &series.runs[at], &scaling.with))
        .collect();
    let position = layout.runs.get(*of.first()?)?;
    let xs = of.iter().filter_map(|&at| Some(layout.runs.get(at)?.x));
    let (least, most) = xs.fold((f64::INFINITY, 0.0_f64), |(low, high), x| {
        (low.min(x), high.max(x))
    });
    let output = |n: f64| {
        let others = n - 1.0;
        lambda.value * n / (1.0 + sigma.value * others + kappa.value * n * others)
    };
    let curve = (0..=CURVE).map(|at| {
        let share = at as f64 / CURVE as f64;
        // Points are as dense on a logarithmic axis as on a linear one.
        let x = match layout.log {
            true => least * (most / least).powf(share),
            false => least + (most - least) * share,
        };
        json!([round_significant(x), round_significant(output(x))])
    });
    // A knee far outside the measured range would leave no space for the rest.
    let knee = scaling.knee.filter(|knee| knee.clients.value <= most);
    Some(json!({
        "panel": position.panel,
        "line": position.line,
        "curve": curve.collect::<Vec<_>>(),
        "knee": knee.map(|knee| json!({
            "at": round_significant(knee.clients.value),
            "low": round_significant(knee.clients.low),
            "high": round_significant(knee.clients.high),
            "text": format!("knee {}", count(knee.clients.value.round())),
        })),
    }))
}

/// Returns the definition of each column, from the metric that it shows or from the schema of the
/// figures.
fn defined(series: &Series, known: &BTreeMap<String, Value>) -> Value {
    let schema = schemars::schema_for!(Figures).to_value();
    let columns = columns::of(series).into_iter().filter_map(|shown| {
        let column = shown.column;
        let of_figures = schema["properties"][column.name]["description"].as_str();
        let of_metric = known
            .values()
            .find_map(|metrics| metrics.get(column.metric)?.as_array());
        let reference = of_metric.and_then(|metric| metric.get(1).cloned());
        let text = of_figures.map(str::to_owned).or_else(|| {
            let text = of_metric?.first()?.as_str()?;
            Some(text.to_owned())
        })?;
        let text = text.replace('\n', " ");
        let value = json!([text, reference, shown.unit]);
        Some((column.name.to_owned(), value))
    });
    Value::Object(columns.collect())
}
