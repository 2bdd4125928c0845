//! Reports of a series.

use std::path::Path;

use crate::exit::Failure;
use crate::output::{Outputs, ReportFormat};
use crate::ui::console::Console;

/// Writes the requested reports, and shows the table. Run files are in `folder`.
pub(crate) fn write_out(
    series: &report::series::Series,
    folder: &Path,
    outputs: Outputs,
    console: Console,
) -> Result<(), Failure> {
    let reader_of = |file: &str| report::open(&folder.join(file), engine::catalogue_of);
    outputs.write(
        |form, out| match form {
            ReportFormat::Html => {
                report::html::write_series(series, |file| reader_of(file).ok(), out)
            }
            ReportFormat::Json => report::json::write_series(series, out),
            ReportFormat::Markdown => report::markdown::write_series(series, out),
            ReportFormat::Junit => {
                let report_of = |file: &str| report::Report::from_run(&reader_of(file).ok()?).ok();
                report::junit::write_series(series, report_of, out)
            }
        },
        |tables| {
            // Runs without a readable run file are left out here; the table reports them.
            let runs = series.runs.iter();
            let mut readable = runs.filter_map(|row| Some((&row.file, reader_of(&row.file).ok()?)));
            readable.try_for_each(|(file, reader)| tables.add(file, &reader))
        },
        |layout| match console.quiet {
            true => report::series::headlines(series, layout),
            false => report::series::table(series, layout),
        },
        console,
    )
}
