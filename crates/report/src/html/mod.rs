//! The HTML report: one file to look at, which loads nothing.
//!
//! What it says is worked out here and put into the page as one block of data; the scripts under
//! `assets/` draw it and decide nothing. Figures in words are those of the terminal.

mod charts;
mod clients;
mod course;
mod head;
mod heat;
mod page;
mod thin;

pub use page::BEGINS;

use std::collections::BTreeMap;
use std::io::Write;

use runfile::Reader;
use serde_json::{Value, json};

use crate::ReportError;
use crate::model::Report;
use course::{Course, Fineness};

/// How finely the charts of a single run are drawn: more than a screen has columns, so that there is
/// something to zoom into.
const FINE: Fineness = Fineness {
    points: 4_000,
    columns: 600,
};

/// Writes the page of one run.
pub fn write(report: &Report, reader: &Reader, out: &mut dyn Write) -> Result<(), ReportError> {
    let mut definitions = BTreeMap::new();
    head::definitions(reader, &mut definitions);
    let run = run(report, reader, FINE)?;
    let title = format!(
        "{}: {}",
        report.verdict.result.name().to_uppercase(),
        report.run.name
    );
    let sentence = run["verdict"]["sentence"].as_str().unwrap_or_default();
    let without_script = format!("{title}. {sentence}");
    let data = json!({
        "page_version": 1,
        "streamgauge": env!("CARGO_PKG_VERSION"),
        "definitions": definitions,
        "runs": [run],
    });
    page::write(&title, &without_script, data, out)
}

/// A run as the page has it.
fn run(report: &Report, reader: &Reader, fineness: Fineness) -> Result<Value, ReportError> {
    let course = Course::of(reader, report, fineness)?;
    let mut run = head::head(reader, report, &course)?;
    run["course"] = course.value(reader);
    run["clients"] = clients::clients(reader, report.verdict.stopped_by_user)?;
    Ok(run)
}
