//! Table with one row for each run, as spreadsheets and tools for change-point detection read it.

use std::io::{self, Write};
use std::path::Path;

use runfile::Reader;

use super::{Row, Series, columns, row_of};
use crate::ReportError;
use crate::csv_cell::write_line;
use crate::distinct::distinct;
use crate::model::Report;

/// First columns of the table.
pub const FIRST_COLUMNS: [&str; 5] = ["time", "run", "scenario", "version", "result"];

/// Text of a value that is unknown. An empty cell is an error to tools that expect numbers.
const UNKNOWN: &str = "NaN";

/// Rows of the table.
#[derive(Debug, Default)]
pub struct RunTable {
    lines: Vec<Line>,
}

/// A run.
#[derive(Debug)]
struct Line {
    /// Cells of the first columns.
    first: [String; FIRST_COLUMNS.len()],
    /// Varied keys with their values.
    varied: Vec<(String, String)>,
    /// Metrics with their values.
    metrics: Vec<(String, Option<f64>)>,
}

impl RunTable {
    /// Adds a run. `name` is the value of its column `run`.
    ///
    /// # Errors
    /// Fails if the run file cannot be read.
    pub fn add(&mut self, name: &str, reader: &Reader) -> Result<(), ReportError> {
        let report = Report::from_run(reader)?;
        let row = row_of(reader, &report)?;
        let first = [
            report.run.started_at.clone(),
            name.to_owned(),
            report.run.name.clone(),
            report.streamgauge.clone(),
            row.outcome.name().to_owned(),
        ];
        let varied = report.run.varied.iter();
        self.lines.push(Line {
            first,
            varied: varied
                .map(|setting| (setting.key.clone(), setting.value.clone()))
                .collect(),
            metrics: metrics(row),
        });
        Ok(())
    }

    /// Writes the table: the first columns, the varied keys, and every metric that a run has, in
    /// the units of the JSON report.
    ///
    /// # Errors
    /// Fails if writing fails.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let keys = names(self.lines.iter().map(|line| &line.varied));
        let metrics = names(self.lines.iter().map(|line| &line.metrics));
        let head = FIRST_COLUMNS.iter().copied();
        let head = head.chain(keys.iter().map(String::as_str));
        let head = head.chain(metrics.iter().map(String::as_str));
        write_line(out, head)?;
        for line in &self.lines {
            let varied = keys.iter().map(|key| {
                let own = line.varied.iter().find(|(other, _)| other == key);
                own.map_or(String::new(), |(_, value)| value.clone())
            });
            let values = metrics.iter().map(|metric| {
                let own = line.metrics.iter().find(|(other, _)| other == metric);
                let value = own.and_then(|(_, value)| *value);
                value.map_or(UNKNOWN.to_owned(), |value| value.to_string())
            });
            let cells: Vec<String> = line
                .first
                .iter()
                .cloned()
                .chain(varied)
                .chain(values)
                .collect();
            write_line(out, cells.iter().map(String::as_str))?;
        }
        Ok(())
    }
}

/// Returns the metrics of the run's thresholds, and its figures.
fn metrics(row: Row) -> Vec<(String, Option<f64>)> {
    let thresholds = row.measured.iter();
    let thresholds = thresholds.map(|measured| (measured.name.clone(), measured.value));
    let mut found: Vec<(String, Option<f64>)> = thresholds.collect();
    let figures = row.figures.clone();
    let series = Series {
        runs: vec![row],
        ..Series::empty(String::new(), Vec::new(), Path::new(""))
    };
    for shown in columns::of(&series) {
        let value = figures.as_ref().and_then(|own| own.value(shown.column));
        found.push((shown.column.name.to_owned(), value));
    }
    found
}

/// Returns the names of all lines, in the order of their first appearance.
fn names<'a, V: 'a>(lines: impl Iterator<Item = &'a Vec<(String, V)>>) -> Vec<String> {
    distinct(lines.flatten().map(|(name, _)| name.clone()))
}
