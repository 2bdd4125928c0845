//! Columns of a series, and the text of a run in each.

use measure::metric::Statistic;
use measure::{Meaning, TableColumn, Unit};

use super::figures::ShownColumn;
use super::{Row, RowOutcome, Series, best, eligibility};
use crate::human::{count, digits};
use crate::metric_words::{capital, metric_words};

/// Columns in which any run has a value, in display order.
pub(crate) fn of(series: &Series) -> Vec<ShownColumn> {
    let clients = best::of_clients(&series.runs);
    let mut columns = Vec::new();
    // Columns of processor time per unit of output follow the processor columns of the server.
    let mut shared_by = Vec::new();
    let mut meanings = clients.iter().map(|shown| shown.column.meaning);
    let says_served = meanings.any(|meaning| meaning == Meaning::Served);
    for shown in clients {
        match shown.column.meaning {
            Meaning::CpuPerGbit | Meaning::CpuPerOperation => shared_by.push(shown),
            _ => columns.push(shown),
        }
    }
    let own = |column, unit| ShownColumn { column, unit };
    columns.push(own(&best::LINK_LOSS, Unit::Ratio));
    columns.extend(best::DELAY.iter().map(|one| own(one, Unit::Seconds)));
    let [cpu, peak, memory] = &best::SERVER;
    columns.extend([own(cpu, Unit::Cores), own(peak, Unit::Cores)]);
    columns.extend(shared_by);
    columns.push(own(memory, Unit::Bytes));
    // The column of served clients shows failures already.
    if !says_served {
        columns.push(own(&best::FAILED, Unit::Count));
    }
    let is_known = |shown: &ShownColumn| {
        let mut rows = series.runs.iter();
        rows.any(|row| text(row, shown.column, shown.unit).is_some())
    };
    columns.retain(is_known);
    columns
}

/// Returns the text of a run in a column, or `None` if the value is unknown.
pub(crate) fn text(row: &Row, column: &TableColumn, unit: Unit) -> Option<String> {
    let figures = row.figures.as_ref()?;
    let value = figures.value(column);
    if column.shows_unknown && value.is_none() && figures.bitrate.is_some() {
        return Some("unknown".to_owned());
    }
    let text = match column.meaning {
        Meaning::CpuPerOperation => digits(value? * 1e6),
        _ => in_column(unit, value?),
    };
    Some(match column.meaning {
        Meaning::Served => format!("{text} of {}", count(figures.asked as f64)),
        _ if figures.is_doubtful(column) => format!("~{text}"),
        _ => text,
    })
}

/// Formats a value for a column of this unit.
fn in_column(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Count => count(value),
        Unit::Seconds => digits(value * 1e3),
        Unit::BitsPerSecond => digits(value / 1e6),
        Unit::Ratio => digits(value * 100.0),
        Unit::Bytes => digits(value / f64::from(1 << 20)),
        Unit::Cores => format!("{value:.2}"),
    }
}

/// Returns the verdict of a run. It also says if a run passed and is not ranked; a failed run has
/// the reason why clients were not served, unless its reasons state it anyway.
pub(crate) fn verdict(row: &Row) -> String {
    let word = match row.outcome {
        RowOutcome::Pass => "PASS",
        RowOutcome::Fail => "FAIL",
        RowOutcome::Invalid => "INVALID",
        RowOutcome::Stopped => "stopped",
        RowOutcome::NotBegun => "NOT BEGUN",
        RowOutcome::Planned => "not run",
    };
    match (out_of_contest(row), row.outcome) {
        (Some(_), RowOutcome::Pass) => format!("{word}, not ranked"),
        (Some(why), _) => format!("{word}, {why}"),
        (None, _) => word.to_owned(),
    }
}

/// Returns why a run that passed is not ranked: `not ranked: 2 of 8 failed`.
pub(crate) fn unranked(row: &Row) -> Option<String> {
    let why = out_of_contest(row).filter(|_| row.outcome == RowOutcome::Pass)?;
    Some(format!("not ranked: {why}"))
}

/// Returns the reason why a trusted run is not eligible as the best. Returns `None` for a failed
/// threshold, which the reasons of the run state.
pub(crate) fn out_of_contest(row: &Row) -> Option<&str> {
    let why = row.out_of_contest.as_deref();
    why.filter(|why| row.outcome.is_trusted() && *why != eligibility::THRESHOLD)
}

/// Returns the statistic of a column's metric, unless the metric has only one.
pub(crate) fn statistic(column: &TableColumn) -> Option<String> {
    match column.statistic {
        Statistic::Quantile(share) => Some(format!("p{}", 100.0 * share)),
        Statistic::Mean => Some("mean".to_owned()),
        Statistic::Min => Some("min".to_owned()),
        Statistic::Max => Some("max".to_owned()),
        Statistic::Count | Statistic::Value => None,
    }
}

/// Returns the title of a chart of a column.
pub(crate) fn title(column: &TableColumn) -> String {
    capital(&name(column))
}

/// Returns the name of a column in words, with its statistic.
pub(crate) fn name(column: &TableColumn) -> String {
    let (name, statistic) = match (column.name, column.metric) {
        ("server_cpu", _) => ("server CPU", "mean".to_owned()),
        ("server_cpu_peak", _) => ("server CPU", "peak".to_owned()),
        ("cpu_per_gbit", _) => ("server CPU per Gbit/s", String::new()),
        ("cpu_per_message", _) => ("server CPU per message", String::new()),
        ("served", _) => ("clients served", String::new()),
        // The heading names the activity of a playing client, which depends on the protocol.
        ("playing", _) => (column.heading[0], String::new()),
        ("link_loss", _) => ("loss on the link", String::new()),
        ("delay_viewer", _) => ("viewer's delay", String::new()),
        ("delay_sender", _) => ("delay at the sender", "mean".to_owned()),
        ("delay_link", _) => ("delay of the link", "mean".to_owned()),
        ("delay_rest", _) => (
            "delay of the server and of retransmissions",
            "mean".to_owned(),
        ),
        ("delay_buffer", _) => ("players' buffer", String::new()),
        ("failed", _) => ("clients that failed", String::new()),
        ("bitrate", _) => ("bit rate", String::new()),
        (name, "") => (name, String::new()),
        (_, metric) => (metric, statistic(column).unwrap_or_default()),
    };
    let mut name = metric_words(name);
    if column.heading.contains(&"/s") {
        name += ", per second";
    }
    match statistic.is_empty() {
        true => name,
        false => format!("{name}, {statistic}"),
    }
}
