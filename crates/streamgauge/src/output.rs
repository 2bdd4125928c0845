//! Report files that the user requested. A path that cannot be written is an error before the run
//! instead of after it.

pub(crate) mod csv_folder;
pub(crate) mod overwrite;
pub(crate) mod run_location;
pub(crate) mod runs_folder;
pub(crate) mod unfinished_run;

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use report::csv::TableWriter;
use report::{Layout, ReportError, io_reason};

use crate::args::Reports;
use crate::exit::Failure;
use crate::output::csv_folder::CsvFolder;
use crate::output::overwrite::{Force, is_replaceable};
use crate::ui::console::{Console, to_stdout};

/// Possible first keys of the documents that `--json` writes.
const FIRST_KEYS: [&str; 3] = ["schema_version", "series_version", "missing"];

/// Format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReportFormat {
    Json,
    Html,
    Junit,
    Markdown,
}

impl ReportFormat {
    /// Returns the option that names its file.
    fn option(self) -> &'static str {
        match self {
            ReportFormat::Json => "--json",
            ReportFormat::Html => "--html",
            ReportFormat::Junit => "--junit",
            ReportFormat::Markdown => "--markdown",
        }
    }

    /// Returns its name for messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ReportFormat::Json => "JSON",
            ReportFormat::Html => "HTML",
            ReportFormat::Junit => "JUnit",
            ReportFormat::Markdown => "Markdown",
        }
    }

    /// Returns the requested formats with their paths.
    pub(crate) fn all(reports: &Reports) -> impl Iterator<Item = (ReportFormat, &PathBuf)> {
        let all = [
            (ReportFormat::Json, &reports.json),
            (ReportFormat::Html, &reports.html),
            (ReportFormat::Junit, &reports.junit),
            (ReportFormat::Markdown, &reports.markdown),
        ];
        all.into_iter()
            .filter_map(|(format, path)| Some((format, path.as_ref()?)))
    }
}

/// Requested reports, in addition to the summary.
#[derive(Default)]
pub(crate) struct Outputs {
    /// Reports of one file each.
    pub(crate) reports: Vec<(ReportFormat, Output)>,
    /// Folder for tables.
    pub(crate) csv: Option<CsvFolder>,
}

impl Outputs {
    /// Checks that each report can be written.
    pub(crate) fn claim(reports: &Reports, force: Force) -> Result<Outputs, Failure> {
        let mut outputs = Outputs::default();
        for (index, (format, path)) in ReportFormat::all(reports).enumerate() {
            let mut before = ReportFormat::all(reports).take(index);
            if let Some((other, _)) = before.find(|(_, other)| *other == path) {
                return Err(Failure::bad(format_args!(
                    "{} and {} name the same file: use a different one for each",
                    other.option(),
                    format.option()
                )));
            }
            let output = Output::claim(format, path, force)?;
            outputs.reports.push((format, output));
        }
        let csv = reports.csv.as_deref();
        outputs.csv = csv.map(|csv| CsvFolder::claim(csv, force)).transpose()?;
        Ok(outputs)
    }

    /// Writes each report with `report` and the tables with `add`, and shows the summary: on
    /// standard output unless a report goes there.
    pub(crate) fn write(
        self,
        report: impl Fn(ReportFormat, &mut dyn Write) -> Result<(), ReportError>,
        add: impl FnOnce(&mut TableWriter<BufWriter<File>>) -> Result<(), ReportError>,
        summary: impl FnOnce(Layout) -> String,
        console: Console,
    ) -> Result<(), Failure> {
        let to_stderr = self.reports.iter().any(|(_, output)| output.is_stdout());
        // Errors are returned at the end: a file that cannot be written must not suppress the
        // summary.
        let mut written = Ok(());
        for (format, output) in self.reports {
            written = written.and(output.write(|out| report(format, out)));
        }
        if let Some(folder) = self.csv {
            written = written.and(folder.write(add));
        }
        console.show(to_stderr, summary)?;
        written
    }
}

/// Destination of a report.
pub(crate) enum Output {
    Stdout,
    File(Claim),
}

/// A file that can be written but has not been written yet.
pub(crate) struct Claim {
    format: ReportFormat,
    path: PathBuf,
    /// True if this process created the file, which is still empty. It is removed if it is not
    /// used.
    empty: bool,
}

impl Output {
    /// Checks that `path` can be written; `-` is standard output. An existing report is kept until
    /// the new one is written. Any other file that is not empty is refused, because `--json
    /// scenario.yaml` is a slip.
    pub(crate) fn claim(
        format: ReportFormat,
        path: &Path,
        force: Force,
    ) -> Result<Output, Failure> {
        if path == Path::new("-") {
            return Ok(Output::Stdout);
        }
        let is_ours = |head: &[u8]| is_report(format, head);
        if force != Force::Given && !is_replaceable(path, 128, is_ours) {
            let or = match force {
                Force::Unknown => "",
                _ => ", or use `--force`",
            };
            return Err(Failure::bad(format_args!(
                "{} is not a report of streamgauge, so it is not replaced: name another file with `{}`{or}",
                path.display(),
                format.option()
            )));
        }
        let empty = !path.exists();
        match OpenOptions::new().append(true).create(true).open(path) {
            Ok(_) => Ok(Output::File(Claim {
                format,
                path: path.to_owned(),
                empty,
            })),
            Err(error) => Err(refused(format, path, &error)),
        }
    }

    /// Returns `true` if it goes to standard output, so that nothing else may be written there.
    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self, Output::Stdout)
    }

    /// Writes the report.
    pub(crate) fn write(
        self,
        write: impl FnOnce(&mut dyn Write) -> Result<(), ReportError>,
    ) -> Result<(), Failure> {
        match self {
            Output::Stdout => {
                let mut out = BufWriter::new(io::stdout().lock());
                match write(&mut out) {
                    Err(ReportError::Write(error)) => to_stdout(Err(error)),
                    other => other.map_err(Failure::bad),
                }
            }
            Output::File(mut claim) => {
                let format = claim.format;
                let file = File::create(&claim.path)
                    .map_err(|error| refused(format, &claim.path, &error))?;
                claim.empty = false;
                let mut out = BufWriter::new(file);
                write(&mut out).map_err(|error| match error {
                    ReportError::Write(error) => refused(format, &claim.path, &error),
                    other => Failure::bad(other),
                })
            }
        }
    }
}

/// Returns `true` if a report of this format begins like this.
fn is_report(format: ReportFormat, head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    match format {
        ReportFormat::Json => begins_as_report(&head),
        ReportFormat::Html => head.starts_with(report::html::FIRST_LINES),
        ReportFormat::Junit => {
            let ours = format!("<testsuites name=\"{}\"", report::junit::NAME);
            head.starts_with("<?xml") && head.contains(&ours)
        }
        ReportFormat::Markdown => head.starts_with(report::markdown::BEGINS),
    }
}

fn begins_as_report(head: &str) -> bool {
    let key = head
        .trim_start()
        .strip_prefix('{')
        .and_then(|rest| rest.trim_start().strip_prefix('"'))
        .and_then(|rest| rest.split_once('"'));
    key.is_some_and(|(key, _)| FIRST_KEYS.contains(&key))
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.empty {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn refused(format: ReportFormat, path: &Path, error: &io::Error) -> Failure {
    Failure::bad(format_args!(
        "{}: the report cannot be written: {}; name another place with `{}`",
        path.display(),
        io_reason(error),
        format.option()
    ))
}
