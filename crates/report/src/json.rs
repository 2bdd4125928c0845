//! JSON report, written window by window. Memory does not grow with the length of the run.
//!
//! Characters that could control a terminal are escaped, because JSON is often viewed in one.

use std::io::{self, Write};

use crate::ReportError;
use crate::model::Report;
use crate::sanitize;
use crate::series::Series;
use crate::window::ReportWindow;

/// Writes the report of a series as one JSON object.
pub fn write_series(series: &Series, out: &mut dyn Write) -> Result<(), ReportError> {
    let text = serde_json::to_string_pretty(series).map_err(io::Error::from)?;
    writeln!(out, "{}", sanitize::json(&text))?;
    out.flush()?;
    Ok(())
}

/// Writes the report and its windows as one JSON object.
///
/// The windows come last, one per line, so that the first part is easy to read.
pub fn write(
    report: &Report,
    windows: impl Iterator<Item = Result<ReportWindow, ReportError>>,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let head = serde_json::to_string_pretty(report).map_err(io::Error::from)?;
    let open = head
        .strip_suffix("\n}")
        .expect("a struct with fields is written as an object over several lines");
    write!(out, "{},\n  \"windows\": [", sanitize::json(open))?;
    let mut first = true;
    for window in windows {
        let line = serde_json::to_string(&window?).map_err(io::Error::from)?;
        let line = sanitize::json(&line);
        write!(out, "{}\n    {line}", if first { "" } else { "," })?;
        first = false;
    }
    writeln!(out, "{}]\n}}", if first { "" } else { "\n  " })?;
    out.flush()?;
    Ok(())
}
