//! Which run is the best of a column.

use measure::totals::Statistic;
use measure::{Better, TableColumn};

use super::figures::Shown;
use super::{Row, contest};

/// The columns that do not hang on what the clients speak. They stand behind the others.
pub(super) static SERVER: [TableColumn; 3] = [
    TableColumn::smaller("server_cpu", "", Statistic::Mean, ["CPU", "mean"]),
    TableColumn::smaller("server_cpu_peak", "", Statistic::Max, ["CPU", "peak"]),
    TableColumn::smaller("server_memory", "", Statistic::Max, ["server", "MiB"]),
];

/// What emulated links lost on the way to the clients. No run is the best of what was asked for.
pub(super) static LINK_LOSS: TableColumn =
    TableColumn::smaller("link_loss", "", Statistic::Value, ["link", "loss %"]);

/// The parts of a viewer's delay over an emulated link. No run is marked as the best: the delay was
/// asked for.
pub(super) static DELAY: [TableColumn; 5] = [
    TableColumn::smaller("delay_viewer", "", Statistic::Mean, ["viewer", "delay ms"]),
    TableColumn::smaller("delay_sender", "", Statistic::Mean, ["sender", "ms"]),
    TableColumn::smaller("delay_link", "", Statistic::Mean, ["link", "ms"]),
    TableColumn::smaller("delay_rest", "", Statistic::Mean, ["server", "ms"]),
    TableColumn::smaller("delay_buffer", "", Statistic::Mean, ["buffer", "ms"]),
];

/// Clients that failed.
pub(super) static FAILED: TableColumn =
    TableColumn::smaller("failed", "", Statistic::Value, ["failed", ""]);

/// The columns that the clients of any run have, in the order in which they first come.
pub(super) fn of_clients(rows: &[Row]) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    let figures = rows.iter().filter_map(|row| row.figures.as_ref());
    for shown in figures.flat_map(|figures| &figures.shown) {
        let known = |other: &Shown| other.column.name == shown.column.name;
        if !all.iter().any(known) {
            all.push(*shown);
        }
    }
    all
}

/// Says of each run whether it is in the contest, and marks the best of each column among those
/// that are. A column in which all runs are alike has none.
pub(super) fn mark(rows: &mut [Row]) {
    for row in rows.iter_mut() {
        row.out_of_contest = contest::of(row);
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
            Better::Larger => values.max_by(f64::total_cmp),
            Better::Smaller => values.min_by(f64::total_cmp),
        };
        for row in rows.iter_mut() {
            if best.is_some() && value(row) == best {
                row.best.push(column.name);
            }
        }
    }
}
