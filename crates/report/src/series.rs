//! Reports of a series, with one row per run. All figures come from the run files; the index only
//! lists the runs.

mod best;
mod broke_first;
mod capacity;
pub(crate) mod capacity_comparison;
mod chart;
pub(crate) mod columns;
pub(crate) mod comparison;
mod comparison_table;
pub(crate) mod comparison_words;
mod delay;
mod eligibility;
mod figures;
mod found;
mod most;
pub(crate) mod names;
mod run_table;
mod scaling;
pub(crate) mod search;
mod search_table;
pub(crate) mod search_words;
mod side_by_side;
mod sums;
mod table;
pub(crate) mod words;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use measure::comparison::MIN_EFFECT;
use measure::{Catalogue, ClockError, VerdictResult};
use runfile::Reader;
use runfile::series::{EntryOutcome, Index, IndexError};
use schemars::JsonSchema;

pub use self::capacity::Capacity;
pub use capacity_comparison::CapacityComparison;
pub use comparison::{ComparedMetric, ComparisonResult};
pub use delay::DelayParts;
pub use figures::Figures;
pub use found::Found;
pub use most::MostMessages;
pub use run_table::{FIRST_COLUMNS, RunTable};
pub use scaling::{Interval, Knee, LeftOut, Scaling};
pub use search::{CapacityResult, LoadValue};
pub use side_by_side::{CompareError, side_by_side};
pub use table::{headlines, table};

use crate::ReportError;
use crate::cause::all_reasons;
use crate::limits::Limit;
use crate::model::{Report, Run};
use crate::source::open;
use crate::time::rfc3339;

/// Version of the JSON report of a series. It increases when a key is removed or changes its
/// meaning, but not when a key is added.
pub const SERIES_VERSION: u32 = 2;

/// Maximum number of run files that are read from a folder.
const RUNS_MAX: usize = 10_000;

/// Report of a series. Units are those of the SI: seconds, bit/s, bytes, shares from 0 to 1.
#[derive(Clone, Debug, Default, serde::Serialize, JsonSchema)]
pub struct Series {
    /// Version of this format. It increases when a key is removed or changes its meaning.
    pub series_version: u32,
    /// Version of streamgauge that made the series; null if the index is missing.
    pub streamgauge: Option<String>,
    /// Name of the scenario.
    pub name: String,
    /// Start of the series: date and time (RFC 3339), in UTC; null if the index is missing.
    pub started_at: Option<String>,
    /// True if the series ended. False if streamgauge was killed or is still running; null if the
    /// index is missing.
    pub ended: Option<bool>,
    /// Varied keys, the one that changes most slowly first.
    pub varied: Vec<String>,
    /// Runs of the series, in order.
    pub runs: Vec<Row>,
    /// Number of clients with the most acknowledged messages: one entry for each combination of the
    /// other values. Empty unless the clients of one population are varied and clients send
    /// messages.
    pub most_messages: Vec<MostMessages>,
    /// Capacity of the server, with all other values equal: one entry for each combination of the
    /// other values. Empty unless the clients of one population are varied.
    pub capacity: Vec<Capacity>,
    /// Results of a capacity search, with all other values equal: one entry for each combination of
    /// the other values. Empty unless the scenario requests it with `capacity`.
    pub searches: Vec<CapacityResult>,
    /// Comparisons of two variants, with all other values equal: one entry for each combination of
    /// the other values. Empty unless the scenario requests it with `compare`, or two runs or
    /// series are compared.
    pub comparisons: Vec<ComparisonResult>,
    /// Comparisons of two capacities, with all other values equal. Empty unless two searches are
    /// compared, or one series makes two.
    pub capacity_comparisons: Vec<CapacityComparison>,
    /// First value of a key with which a run passed, with all other values equal: one entry for
    /// each combination of the other values. Empty unless the scenario requests it with `find`.
    pub found: Vec<Found>,
    /// Model of the server, fitted to its output: one entry for each combination of the other
    /// values. Empty unless the clients of one population are varied.
    pub scaling: Vec<Scaling>,
    /// Folder of the series. Empty if the series is not kept.
    #[serde(skip)]
    pub folder: PathBuf,
    /// Names of the compared variants, the first one first.
    #[serde(skip)]
    pub(crate) variants: Option<[String; 2]>,
    /// True for two runs or series that are compared, which the user named.
    #[serde(skip)]
    pub(crate) is_of_files: bool,
}

/// A run of a series.
#[derive(Clone, Debug, Default, serde::Serialize, JsonSchema)]
pub struct Row {
    /// Value of each varied key, in the order of `varied`, as written in the scenario.
    pub values: Vec<String>,
    /// Name of the run file in the folder.
    pub file: String,
    /// Outcome of the run.
    pub outcome: RowOutcome,
    /// Reasons for the outcome, the cause first: how clients failed, failed thresholds, what makes
    /// the measurement invalid, or why the run could not begin.
    pub reasons: Vec<String>,
    /// Figures of the run; null for a run without a run file.
    pub figures: Option<Figures>,
    /// Reason why the run cannot be the best of any column: it did not pass, some clients were not
    /// served, or they received wrong content. Null for a run that served what was requested.
    pub out_of_contest: Option<String>,
    /// Columns (names of fields of `figures`, or of entries in `figures.columns`) in which the run
    /// is the best of all runs that served what was requested: the largest `playing`, `served`,
    /// `bitrate` and `received`, the smallest of the others. No run is marked in a column with
    /// equal values in all runs.
    pub best: Vec<&'static str>,
    /// Thresholds that did not hold.
    #[serde(skip)]
    pub(crate) broke: Vec<String>,
    /// The one of them that broke first.
    #[serde(skip)]
    pub(crate) broke_first: Option<String>,
    /// Limits of the server that were observed.
    #[serde(skip)]
    pub(crate) limits: Vec<Limit>,
    /// Metrics of the explicit thresholds.
    #[serde(skip)]
    pub(crate) measured: Vec<comparison::Measured>,
}

/// Outcome of a run of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RowOutcome {
    /// Every threshold held, and the measurement can be trusted.
    Pass,
    /// A threshold did not hold, and the measurement can be trusted.
    Fail,
    /// The measurement cannot be trusted, whatever the thresholds say, or the run was cut off.
    #[default]
    Invalid,
    /// The user stopped the run before its planned end.
    Stopped,
    /// The run could not begin.
    NotBegun,
    /// The run was not made: the series ended before, or is still running.
    Planned,
}

impl RowOutcome {
    /// Name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            RowOutcome::Pass => "pass",
            RowOutcome::Fail => "fail",
            RowOutcome::Invalid => "invalid",
            RowOutcome::Stopped => "stopped",
            RowOutcome::NotBegun => "not_begun",
            RowOutcome::Planned => "planned",
        }
    }

    /// Returns `true` if the measurement can be compared with other runs.
    pub fn is_trusted(self) -> bool {
        matches!(self, RowOutcome::Pass | RowOutcome::Fail)
    }
}

impl Series {
    /// Returns a series without runs.
    pub(crate) fn empty(name: String, varied: Vec<String>, folder: &Path) -> Series {
        Series {
            series_version: SERIES_VERSION,
            name,
            varied,
            folder: folder.to_owned(),
            ..Series::default()
        }
    }

    /// Reads the report of the series in `folder`. `catalogue` returns the metrics of a kind of
    /// subject: `server`, `tester`, or a protocol's name.
    ///
    /// # Errors
    /// Fails if `folder` is not the folder of a series. A run file that cannot be read becomes a
    /// row with the error.
    pub fn open(
        folder: &Path,
        catalogue: impl Fn(&str) -> Option<Catalogue> + Copy,
    ) -> Result<Series, ReportError> {
        match Index::read(folder) {
            Ok(index) => Ok(Series::of_index(folder, &index, catalogue)),
            Err(IndexError::Missing { folder: missing }) => {
                let found = Series::without_index(folder, catalogue)?;
                found.ok_or(IndexError::Missing { folder: missing }.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn of_index(
        folder: &Path,
        index: &Index,
        catalogue: impl Fn(&str) -> Option<Catalogue> + Copy,
    ) -> Series {
        let runs = index.runs.iter().map(|entry| {
            let path = folder.join(&entry.file);
            let mut row = if path.exists() {
                match read_run(&path, catalogue) {
                    Ok((_, row)) => row,
                    Err(error) => Row {
                        reasons: vec![error.to_string()],
                        ..Row::default()
                    },
                }
            } else {
                Row {
                    outcome: match entry.outcome {
                        EntryOutcome::NotBegun => RowOutcome::NotBegun,
                        EntryOutcome::Planned => RowOutcome::Planned,
                        EntryOutcome::Stopped => RowOutcome::Stopped,
                        _ => RowOutcome::Invalid,
                    },
                    reasons: match entry.outcome {
                        EntryOutcome::NotBegun => entry.reason.iter().cloned().collect(),
                        EntryOutcome::Planned | EntryOutcome::Stopped => Vec::new(),
                        _ => vec!["its run file is missing".to_owned()],
                    },
                    ..Row::default()
                }
            };
            row.values.clone_from(&entry.values);
            row.file.clone_from(&entry.file);
            row
        });
        let started_at = Duration::try_from_secs_f64(index.started_at).unwrap_or_default();
        let varied = index.varied.iter().map(|axis| axis.key.clone()).collect();
        let mut series = Series {
            streamgauge: Some(index.streamgauge.clone()),
            started_at: Some(rfc3339(started_at)),
            ended: Some(index.ended),
            runs: runs.collect(),
            variants: index.variants(),
            ..Series::empty(index.name.clone(), varied, folder)
        };
        if let Some(key) = &index.find {
            series.found = found::of(&series, key);
        }
        series.searches = search::of(&series, index);
        let min_effect = index.min_effect.unwrap_or(MIN_EFFECT);
        let basis = comparison::Basis {
            paired: true,
            min_effect,
            with_invalid: false,
            differences: &[],
        };
        series.comparisons = comparison::of(&series, basis);
        series.capacity_comparisons = capacity_comparison::of_two(&series, min_effect);
        series.finished()
    }

    /// Reads a series without its index: each run file states itself what was varied.
    fn without_index(
        folder: &Path,
        catalogue: impl Fn(&str) -> Option<Catalogue> + Copy,
    ) -> Result<Option<Series>, ReportError> {
        let unreadable = |error: io::Error| ReportError::Folder {
            path: folder.to_owned(),
            error,
        };
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.extension().is_some_and(|extension| extension == "run") {
                paths.push(path);
            }
            if paths.len() >= RUNS_MAX {
                break;
            }
        }
        paths.sort();
        let mut series: Option<Series> = None;
        for path in paths {
            let Ok((run, mut row)) = read_run(&path, catalogue) else {
                continue;
            };
            if run.varied.is_empty() {
                continue;
            }
            let keys = run
                .varied
                .iter()
                .map(|setting| setting.key.clone())
                .collect();
            let series =
                series.get_or_insert_with(|| Series::empty(run.name.clone(), keys, folder));
            // A run of another series.
            let is_own = run
                .varied
                .iter()
                .map(|setting| &setting.key)
                .eq(&series.varied);
            if !is_own || run.name != series.name {
                continue;
            }
            let name = path.file_name().unwrap_or_default();
            row.file = name.to_string_lossy().into_owned();
            series.runs.push(row);
        }
        // Which variant is the first, and which runs form pairs, is in the index alone.
        Ok(series.map(Series::finished))
    }

    fn finished(mut self) -> Series {
        best::mark(&mut self.runs);
        self.most_messages = most::of(&self);
        // A search has an answer of its own: its trials repeat loads, and some fail by chance.
        if self.searches.is_empty() {
            self.capacity = capacity::of(&self);
        }
        self.scaling = scaling::of(&self);
        if !self.searches.is_empty() {
            self.scaling.retain(|scaling| scaling.lambda.is_some());
        }
        self
    }

    /// Returns the index of the key that sets the clients of a population. Returns `None` unless
    /// there is exactly one.
    pub(crate) fn clients_axis(&self) -> Option<usize> {
        let is_clients = |key: &str| {
            let parts: Vec<&str> = key.split('.').collect();
            matches!(parts.as_slice(), ["clients", _, "load", "clients"])
        };
        let mut found = self
            .varied
            .iter()
            .enumerate()
            .filter(|(_, key)| is_clients(key));
        match (found.next(), found.next()) {
            (Some((at, _)), None) => Some(at),
            _ => None,
        }
    }

    /// Returns the values of a run except that of the key with this index.
    fn others(&self, row: &Row, axis: usize) -> Vec<(String, String)> {
        let all = self.varied.iter().zip(&row.values).enumerate();
        all.filter(|(at, _)| *at != axis)
            .map(|(_, (key, value))| (key.clone(), value.clone()))
            .collect()
    }

    /// Groups the runs by the values of the other keys. Each run has its number of clients.
    fn group_by_others(&self, axis: usize) -> Vec<Group<'_>> {
        grouped(self.runs.iter().filter_map(|row| {
            let clients: u64 = row.values.get(axis)?.parse().ok()?;
            Some((self.others(row, axis), (clients, row)))
        }))
    }
}

/// Runs that differ only in the number of clients, after their other values.
type Group<'a> = (Vec<(String, String)>, Vec<(u64, &'a Row)>);

/// Groups values by their keys, in the order of the first appearance of a key.
fn grouped<K: PartialEq, V>(pairs: impl Iterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in pairs {
        match groups.iter_mut().find(|(other, _)| *other == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

fn read_run(
    path: &Path,
    catalogue: impl Fn(&str) -> Option<Catalogue>,
) -> Result<(Run, Row), ReportError> {
    let reader = open(path, catalogue)?;
    let report = Report::from_run(&reader)?;
    let row = row_of(&reader, &report)?;
    Ok((report.run, row))
}

/// Returns the row of a run.
pub(crate) fn row_of(reader: &Reader, report: &Report) -> Result<Row, ReportError> {
    let varied = &report.run.varied;
    let broke: Vec<String> = report
        .thresholds
        .iter()
        .filter(|threshold| threshold.has_failed() && threshold.value.is_some())
        .map(|threshold| threshold.threshold.clone())
        .collect();
    Ok(Row {
        values: varied.iter().map(|setting| setting.value.clone()).collect(),
        outcome: match report.verdict.result {
            _ if report.verdict.stopped_by_user => RowOutcome::Stopped,
            VerdictResult::Pass => RowOutcome::Pass,
            VerdictResult::Fail => RowOutcome::Fail,
            VerdictResult::Invalid => RowOutcome::Invalid,
            VerdictResult::Stopped => RowOutcome::Stopped,
        },
        reasons: all_reasons(report),
        figures: Some(sums::figures(reader, report)?),
        broke_first: broke_first::of(reader, &broke, ClockError::of(&report.runners))?,
        broke,
        limits: report.server_limits.clone(),
        measured: comparison::of_thresholds(report),
        ..Row::default()
    })
}
