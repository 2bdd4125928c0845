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
    let to_stderr = outputs.take_stdout();
    // Errors are returned at the end: a file that cannot be written must not suppress the table.
    let mut written = Ok(());
    let reader_of = |file: &str| report::open(&folder.join(file), engine::catalogue_of);
    for (form, output) in outputs.reports {
        let done = match form {
            ReportFormat::Html => output
                .write(|out| report::html::write_series(series, |file| reader_of(file).ok(), out)),
            ReportFormat::Json => output.write(|out| report::json::write_series(series, out)),
            ReportFormat::Markdown => {
                output.write(|out| report::markdown::write_series(series, out))
            }
            ReportFormat::Junit => output.write(|out| {
                let report_of = |file: &str| report::Report::from_run(&reader_of(file).ok()?).ok();
                report::junit::write_series(series, report_of, out)
            }),
        };
        written = written.and(done);
    }
    if let Some(csv) = outputs.csv {
        let done = csv.write(|tables| {
            // Runs without a readable run file are left out here; the table reports them.
            let runs = series.runs.iter();
            let mut readable = runs.filter_map(|row| Some((&row.file, reader_of(&row.file).ok()?)));
            readable.try_for_each(|(file, reader)| tables.add(file, &reader))
        });
        written = written.and(done);
    }
    console.show(to_stderr, |layout| match console.quiet {
        true => report::series::headlines(series, layout),
        false => report::series::table(series, layout),
    })?;
    written
}
