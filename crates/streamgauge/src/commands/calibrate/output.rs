//! Results of `calibrate`: tables for people, JSON for programs.

use measure::Unit;
use report::human::{count, figure, plural};
use report::paint::Paint;
use serde_json::{Value, json};

use super::capacity::{CLIENT_RATE, Capacity, FIRST_CLIENTS, Limit, SustainedLoad};
use super::case::CalibrationCase;
use super::judge::{Judgement, Row};
use super::{CalibrationResult, CaseResult};
use crate::exit::Failure;
use crate::output::Output;
use crate::ui::console::Console;

/// Writes the JSON if requested, and the tables: to standard error if the JSON goes to standard
/// output.
pub(super) fn show(
    outcome: &CalibrationResult,
    json: Option<Output>,
    console: Console,
) -> Result<(), Failure> {
    let to_stderr = json.as_ref().is_some_and(Output::is_stdout);
    let written = match json {
        None => Ok(()),
        Some(json) => json.write(|out| {
            serde_json::to_writer_pretty(&mut *out, &document(outcome))
                .map_err(std::io::Error::from)?;
            Ok(out.write_all(b"\n")?)
        }),
    };
    if !console.quiet {
        if to_stderr {
            console.say(&text(outcome, console.verbose, console.paint_stderr()));
        } else {
            console.print(&(text(outcome, console.verbose, console.paint_stdout()) + "\n"))?;
        }
    }
    written
}

/// Returns a table for each case, and the conclusion.
fn text(outcome: &CalibrationResult, everything: bool, paint: Paint) -> String {
    let all = &outcome.found;
    let mut text = String::new();
    for found in all {
        text.push_str(&paint.strong(&found.course.title()));
        text.push('\n');
        text.push_str(&table(&found.trial.rows, everything, paint));
        for reason in &found.trial.reasons {
            text.push_str(&format!(
                "  {} {reason}\n",
                paint.bad("the run is not to be trusted:")
            ));
        }
        if found.repeated > 0 {
            let trials = plural(f64::from(found.repeated), "trial", "trials");
            let line = format!("  repeated after {trials} that were disturbed\n");
            text.push_str(&paint.faint(&line));
        }
        if let Some(capacity) = &found.capacity {
            text.push_str(&capacity_text(capacity));
        }
        text.push('\n');
    }
    for (course, why) in &outcome.missing {
        let title = paint.strong(&course.title());
        text.push_str(&format!("{title}: not calibrated; {why}\n\n"));
    }
    let rows: usize = all.iter().map(|found| found.trial.rows.len()).sum();
    let count_of = |judgement| {
        let rows = all.iter().flat_map(|found| &found.trial.rows);
        rows.filter(|row| row.judge() == judgement).count()
    };
    let (off, unknown) = (count_of(Judgement::Off), count_of(Judgement::Unknown));
    text.push_str(&if outcome.passed() {
        paint.good(&format!("true: all {rows} figures are within their tolerances"))
    } else if off > 0 {
        paint.bad(&format!(
            "NOT TRUE: {off} of {rows} figures are outside their tolerances; do not trust this tester here"
        ))
    } else if unknown > 0 {
        paint.doubtful(&format!(
            "not known: the reference server was interrupted while it sent, so {unknown} of {rows} true values are \
             not known precisely enough; try again when this machine is less busy"
        ))
    } else {
        paint.bad("NOT TRUE: the tester was unhealthy during calibration")
    });
    text
}

/// Returns the capacity of a receive path, in two lines.
fn capacity_text(capacity: &Capacity) -> String {
    let SustainedLoad {
        clients,
        packets,
        bits,
    } = capacity.carried;
    let at_least = match capacity.limit {
        Limit::Tester(_) => "",
        Limit::Server(_) | Limit::None => "at least ",
    };
    let why = match &capacity.limit {
        Limit::Tester(reason) => format!("the tester was at its limit: {reason}"),
        Limit::Server(reason) => format!(
            "the reference server, which shares this machine, reached its limit before the tester: {reason}"
        ),
        Limit::None => "no higher load was tried".to_owned(),
    };
    if clients == 0.0 {
        return format!("  this machine can measure fewer than {FIRST_CLIENTS} clients: {why}\n");
    }
    format!(
        "  this machine can measure {at_least}{} of {} each: {} packets/s, {};\n  then {why}\n",
        plural(clients, "client", "clients"),
        figure(Unit::BitsPerSecond, CLIENT_RATE),
        count(packets.round()),
        figure(Unit::BitsPerSecond, bits),
    )
}

const HEADINGS: [&str; 6] = [
    "streams",
    "metric",
    "true",
    "measured",
    "error",
    "tolerance",
];

fn table(rows: &[Row], everything: bool, paint: Paint) -> String {
    // Figures that are correctly 0 get a line of their own only with `--verbose`.
    let nothing = |row: &&Row| row.judge() == Judgement::Ok && row.measured == Some(0.0);
    let left_out = rows.iter().filter(nothing).count();
    let rows: Vec<&Row> = if everything {
        rows.iter().collect()
    } else {
        rows.iter().filter(|row| !nothing(row)).collect()
    };
    let cells: Vec<[String; 6]> = rows
        .iter()
        .map(|row| {
            let unsure = if row.judge() == Judgement::Unknown {
                format!(" ± {}", exact(row.unit, row.truth.uncertainty))
            } else {
                String::new()
            };
            let or_dash =
                |value: Option<f64>| value.map_or("-".to_owned(), |value| exact(row.unit, value));
            let tolerance = match row.tolerance.for_value(row.truth.value) {
                0.0 => "exact".to_owned(),
                permitted => figure(row.unit, permitted),
            };
            let error = match row.error() {
                Some(0.0) => "0".to_owned(),
                Some(error) => format!(
                    "{}{}",
                    if error > 0.0 { "+" } else { "" },
                    figure(row.unit, error)
                ),
                None => "-".to_owned(),
            };
            [
                row.streams.to_owned(),
                row.metric.clone(),
                exact(row.unit, row.truth.value) + &unsure,
                or_dash(row.measured),
                error,
                tolerance,
            ]
        })
        .collect();
    let width = |column: usize| {
        let of = |text: &str| text.chars().count();
        let cells = cells.iter().map(|row| of(&row[column]));
        cells.chain([of(HEADINGS[column])]).max().unwrap_or(0)
    };
    let widths: [usize; 6] = std::array::from_fn(width);
    let line = |cells: [&str; 6]| {
        let mut line = String::from(" ");
        for (index, (cell, width)) in cells.iter().zip(widths).enumerate() {
            // Names are aligned to the left, figures to the right.
            line.push_str(&if index < 2 {
                format!(" {cell:<width$}")
            } else {
                format!("  {cell:>width$}")
            });
        }
        line
    };
    let mut text = paint.faint(&line(HEADINGS)) + "\n";
    let mut last = "";
    for (row, cells) in rows.iter().zip(&cells) {
        let mut cells: [&str; 6] = std::array::from_fn(|index| cells[index].as_str());
        if row.streams == last {
            cells[0] = "";
        }
        last = row.streams;
        text.push_str(&line(cells));
        text.push_str("  ");
        text.push_str(&match row.judge() {
            Judgement::Ok => paint.good("ok"),
            Judgement::Off => paint.bad("NOT OK"),
            Judgement::Unknown => paint.doubtful("not known"),
        });
        text.push('\n');
    }
    if !everything && left_out > 0 {
        let line = format!("  and {left_out} that are correctly 0 (--verbose shows them)\n");
        text.push_str(&paint.faint(&line));
    }
    text
}

/// Formats a figure with as many digits as its tolerance needs, so that errors are visible.
fn exact(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Seconds => format!("{:.3} ms", value * 1e3),
        Unit::BitsPerSecond => format!("{:.3} Mbit/s", value / 1e6),
        Unit::Count => count(value),
        unit => figure(unit, value),
    }
}

fn document(outcome: &CalibrationResult) -> Value {
    json!({
        "streamgauge": env!("CARGO_PKG_VERSION"),
        "result": if outcome.passed() { "pass" } else { "invalid" },
        "missing": outcome.missing.iter().map(missing).collect::<Vec<_>>(),
        "paths": outcome.found.iter().map(path).collect::<Vec<_>>(),
    })
}

fn missing((course, why): &(CalibrationCase, String)) -> Value {
    json!({
        "protocol": course.protocol.name,
        "path": course.way.name(),
        "over_link": course.over_link,
        "reason": why,
    })
}

fn path(found: &CaseResult) -> Value {
    json!({
        "protocol": found.course.protocol.name,
        "path": found.course.way.name(),
        "over_link": found.course.over_link,
        "receive_path": found.trial.receive_path,
        "result": found.trial.judge().name(),
        "repeated_trials": found.repeated,
        "reasons": found.trial.reasons,
        "capacity": found.capacity.as_ref().map(capacity),
        "figures": found.trial.rows.iter().map(row).collect::<Vec<_>>(),
    })
}

fn capacity(capacity: &Capacity) -> Value {
    let (limit, reason) = match &capacity.limit {
        Limit::Tester(reason) => ("tester", Some(reason)),
        Limit::Server(reason) => ("server", Some(reason)),
        Limit::None => ("none", None),
    };
    json!({
        "clients": capacity.carried.clients,
        "client_bitrate": CLIENT_RATE,
        "packets_per_second": capacity.carried.packets,
        "bitrate": capacity.carried.bits,
        "limit": limit,
        "reason": reason,
    })
}

fn row(row: &Row) -> Value {
    json!({
        "streams": row.streams,
        "metric": row.metric,
        "true": row.truth.value,
        "true_uncertain_by": row.truth.uncertainty,
        "measured": row.measured,
        "error": row.error(),
        "tolerance": row.tolerance.for_value(row.truth.value),
        "result": row.judge().name(),
    })
}
