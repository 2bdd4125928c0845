//! Run file as tables of comma-separated values (RFC 4180): runs, windows, clients and streams.
//!
//! Windows and streams are long tables with one figure per row, so that the columns are the same
//! for every protocol. Values have the units of the JSON report. Texts from outside cannot control
//! a terminal, and get a leading apostrophe if a spreadsheet would take them for a formula.

use std::io::{self, Write};

use runfile::{ClientOutcome, Reader};
use serde_json::Value;

use crate::ReportError;
use crate::csv_cell::write_line;
use crate::metrics::MetricFigures;
use crate::series::{FIRST_COLUMNS, RunTable};
use crate::source;
use crate::window::SubjectWindow;

/// A table of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// File name of the table.
    pub file: &'static str,
    /// Column names, as in the first line.
    pub columns: &'static [&'static str],
}

impl Table {
    /// Returns the first line, with its line end.
    pub fn head(&self) -> String {
        self.columns.join(",") + "\n"
    }
}

/// One row for each figure of each subject (a population, a direction of a link, `server` or
/// `tester`) in each window. `statistic` is `value`, or for a distribution `count`, `mean`, `p50`,
/// `p95`, `p99` and `max`. Failures are metrics named `failures.REASON`. Figures without data have
/// no row. `partial` is `true` for a window that is shorter than the others, such as the last one
/// of a run: its counts are smaller, and its rates cover less time.
pub const WINDOWS: Table = Table {
    file: "windows.csv",
    columns: &[
        "run",
        "start_s",
        "duration_s",
        "subject",
        "metric",
        "statistic",
        "value",
        "partial",
    ],
};

/// Minimum length of a whole window, as a share of the usual length.
const WHOLE: f64 = 0.95;

/// One row for each client. Times are seconds since the start of the run. A time is empty if the
/// event did not occur.
pub const CLIENTS: Table = Table {
    file: "clients.csv",
    columns: &[
        "run",
        "client",
        "population",
        "slot",
        "generation",
        "url",
        "due_s",
        "begun_s",
        "first_media_s",
        "ended_s",
        "outcome",
        "reason",
        "detail",
    ],
};

/// One row for each figure of each stream of each client; `stream` counts from 0.
pub const STREAMS: Table = Table {
    file: "streams.csv",
    columns: &["run", "client", "population", "stream", "name", "value"],
};

/// One row for each run: the first columns are these, then come the varied keys and the metrics.
pub const RUNS: Table = Table {
    file: "runs.csv",
    columns: &FIRST_COLUMNS,
};

/// All tables.
pub const TABLES: [Table; 4] = [WINDOWS, CLIENTS, STREAMS, RUNS];

/// Writer of the tables of one run, or of several runs in sequence.
#[derive(Debug)]
pub struct TableWriter<W> {
    windows: W,
    clients: W,
    streams: W,
    runs: W,
    rows: RunTable,
}

impl<W: Write> TableWriter<W> {
    /// Creates the tables with their first lines. `open` opens the file of a table.
    pub fn begin(mut open: impl FnMut(Table) -> io::Result<W>) -> io::Result<TableWriter<W>> {
        let mut begun = |table: Table| {
            let mut out = open(table)?;
            out.write_all(table.head().as_bytes())?;
            Ok::<W, io::Error>(out)
        };
        Ok(TableWriter {
            windows: begun(WINDOWS)?,
            clients: begun(CLIENTS)?,
            streams: begun(STREAMS)?,
            // The first line depends on all runs, so it is written at the end.
            runs: open(RUNS)?,
            rows: RunTable::default(),
        })
    }

    /// Adds a run. `run` is the value of the first column in its rows.
    pub fn add(&mut self, run: &str, reader: &Reader) -> Result<(), ReportError> {
        self.rows.add(run, reader)?;
        for window in source::windows(reader) {
            let window = window?;
            let whole = WHOLE * reader.header().window.as_secs_f64();
            let partial = (window.seconds < whole).to_string();
            let [start, seconds] = [window.start, window.seconds].map(|value| value.to_string());
            let populations = window.populations.iter();
            let populations = populations.map(|(name, found)| (name.as_str(), found));
            let others = [("server", &window.server), ("tester", &window.tester)];
            let others = others
                .into_iter()
                .filter_map(|(name, found)| Some((name, found.as_ref()?)));
            let links = window.links.iter();
            let links = links.map(|(name, found)| (name.as_str(), found));
            for (subject, found) in populations.chain(links).chain(others) {
                for (metric, statistic, value) in figures(found) {
                    let cells = [
                        run, &start, &seconds, subject, &metric, statistic, &value, &partial,
                    ];
                    write_line(&mut self.windows, cells)?;
                }
            }
        }
        for row in reader.clients() {
            let row = row?;
            let time = |time: Option<measure::Time>| {
                time.map_or_else(String::new, |time| time.as_secs_f64().to_string())
            };
            let outcome = row.outcome.map_or("", ClientOutcome::name);
            let client = row.id.to_string();
            let cells = [
                run,
                &client,
                &row.subject,
                &row.slot.to_string(),
                &row.generation.to_string(),
                &row.url,
                &time(Some(row.due)),
                &time(row.begun),
                &time(row.first_media),
                &time(row.ended),
                outcome,
                row.reason.as_deref().unwrap_or_default(),
                row.detail.as_deref().unwrap_or_default(),
            ];
            write_line(&mut self.clients, cells)?;
            let streams = row.streams.as_array().into_iter().flatten();
            for (number, stream) in streams.enumerate() {
                let number = number.to_string();
                for (name, value) in stream.as_object().into_iter().flatten() {
                    let value = match value {
                        Value::Null => continue,
                        Value::String(text) => text.clone(),
                        other => other.to_string(),
                    };
                    let cells = [run, &client, &row.subject, &number, name, &value];
                    write_line(&mut self.streams, cells)?;
                }
            }
        }
        Ok(())
    }

    /// Flushes the tables.
    pub fn end(mut self) -> io::Result<()> {
        self.windows.flush()?;
        self.clients.flush()?;
        self.streams.flush()?;
        self.rows.write(&mut self.runs)?;
        self.runs.flush()
    }
}

/// Returns every figure of a subject in a window: metric, statistic, value.
fn figures(window: &SubjectWindow) -> Vec<(String, &'static str, String)> {
    let mut found: Vec<(String, &'static str, String)> = Vec::new();
    for (name, figures) in &window.metrics {
        let mut add = |statistic, value: f64| {
            found.push(((*name).to_owned(), statistic, value.to_string()));
        };
        match figures {
            MetricFigures::Value(Some(value)) => add("value", *value),
            MetricFigures::Level(Some(level)) => add("value", level.mean),
            MetricFigures::Distribution(Some(of)) => {
                add("count", of.count as f64);
                for (statistic, value) in of.statistics() {
                    add(statistic, value);
                }
            }
            MetricFigures::Value(None)
            | MetricFigures::Level(None)
            | MetricFigures::Distribution(None) => {}
        }
    }
    for (reason, count) in &window.failures {
        found.push((format!("failures.{reason}"), "value", count.to_string()));
    }
    found
}
