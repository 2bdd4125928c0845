//! Page of one run, and the data of a run on any page.

use std::collections::BTreeMap;
use std::io::Write;

use runfile::Reader;
use serde_json::{Value, json};

use super::page::Connections;
use super::time_series::{Resolution, TimeSeries};
use super::{clients, overview, page};
use crate::ReportError;
use crate::model::Report;

/// Resolution of the charts of a single run: finer than a screen, so that zooming shows more.
pub(super) const FINE: Resolution = Resolution::new(4_000, 600);

/// Writes the page of one run.
pub fn write(report: &Report, reader: &Reader, out: &mut dyn Write) -> Result<(), ReportError> {
    let mut definitions = BTreeMap::new();
    overview::definitions(reader, &mut definitions);
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
    page::write(
        &title,
        &without_script,
        data,
        Vec::new(),
        Connections::Forbidden,
        out,
    )
}

/// Returns the data of a run for a page.
pub(super) fn run(
    report: &Report,
    reader: &Reader,
    resolution: Resolution,
) -> Result<Value, ReportError> {
    let time_series = TimeSeries::of(reader, report, resolution)?;
    let mut run = overview::head(reader, report, &time_series)?;
    run["course"] = time_series.value(reader);
    run["clients"] = clients::clients(reader, report.verdict.stopped_by_user)?;
    Ok(run)
}
