//! Best run of each column.

use measure::totals::Statistic;
use measure::{BetterWhen, TableColumn};

use super::figures::ShownColumn;
use super::{Row, eligibility};

/// Columns that do not depend on the protocol of the clients. They follow the other columns.
pub(super) static SERVER: [TableColumn; 3] = [
    TableColumn::smaller("server_cpu", "", Statistic::Mean, ["CPU", "mean"]),
    TableColumn::smaller("server_cpu_peak", "", Statistic::Max, ["CPU", "peak"]),
    TableColumn::smaller("server_memory", "", Statistic::Max, ["server", "MiB"]),
];

/// Loss of emulated links on the way to the clients. No run is marked as the best, because the loss
/// was configured.
pub(super) static LINK_LOSS: TableColumn =
    TableColumn::smaller("link_loss", "", Statistic::Value, ["link", "loss %"]);

/// Parts of a viewer's delay over an emulated link. No run is marked as the best, because the delay
/// was configured.
pub(super) static DELAY: [TableColumn; 5] = [
    TableColumn::smaller("delay_viewer", "", Statistic::Mean, ["viewer", "delay ms"]),
    TableColumn::smaller("delay_sender", "", Statistic::Mean, ["sender", "ms"]),
    TableColumn::smaller("delay_link", "", Statistic::Mean, ["link", "ms"]),
    TableColumn::smaller("delay_rest", "", Statistic::Mean, ["server", "ms"]),
    TableColumn::smaller("delay_buffer", "", Statistic::Mean, ["buffer", "ms"]),
];

/// Number of failed clients.
pub(super) static FAILED: TableColumn =
    TableColumn::smaller("failed", "", Statistic::Value, ["failed", ""]);

/// Client columns of all runs, in the order of their first appearance.
pub(super) fn of_clients(rows: &[Row]) -> Vec<ShownColumn> {
    let mut all: Vec<ShownColumn> = Vec::new();
    let figures = rows.iter().filter_map(|row| row.figures.as_ref());
    for shown in figures.flat_map(|figures| &figures.shown) {
        let known = |other: &ShownColumn| other.column.name == shown.column.name;
        if !all.iter().any(known) {
            all.push(*shown);
        }
    }
    all
}

/// Sets `out_of_contest` of each run, and marks the best run of each column among the eligible
/// ones. A column with equal values in all runs has no best run.
pub(super) fn mark(rows: &mut [Row]) {
    for row in rows.iter_mut() {
        row.out_of_contest = eligibility::ineligibility(row);
    }
    let clients = of_clients(rows);
    let clients = clients.iter().map(|shown| shown.column);
    for column in clients.chain(&SERVER).chain([&FAILED]) {
        let any = |row: &Row| row.figures.as_ref()?.value(column);
        let mut all = rows.iter().filter_map(any);
        let first = all.next();
        if all.all(|value| Some(value) == first) {
            continue;
        }
        let value = |row: &Row| {
            let figures = row.figures.as_ref()?;
            let counts = row.out_of_contest.is_none() && !figures.is_doubtful(column);
            figures.value(column).filter(|_| counts)
        };
        let values = rows.iter().filter_map(value);
        let best = match column.better {
            BetterWhen::Larger => values.max_by(f64::total_cmp),
            BetterWhen::Smaller => values.min_by(f64::total_cmp),
        };
        for row in rows.iter_mut() {
            if best.is_some() && value(row) == best {
                row.best.push(column.name);
            }
        }
    }
}
