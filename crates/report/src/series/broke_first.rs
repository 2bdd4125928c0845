//! The threshold that broke first in a run.

use measure::totals::measured_seconds;
use measure::{ClockError, Judge, Threshold};
use runfile::Reader;

use crate::ReportError;

/// Returns which of these thresholds was the first to be violated, judged second by second over the
/// time so far. Only thresholds on numbers of clients have data in the warm-up. Of several in the
/// same second, it is the first of the list. `None` for an empty list.
pub(super) fn of(
    reader: &Reader,
    broke: &[String],
    clocks: ClockError,
) -> Result<Option<String>, ReportError> {
    if broke.len() < 2 {
        return Ok(broke.first().cloned());
    }
    let subjects = reader.catalogues();
    let header = reader.header();
    let warm_up = header.warm_up_windows();
    let stopped_at = reader.stopped_at()?;
    let judges = broke.iter().filter_map(|text| {
        let threshold = Threshold::parse(text).ok()?;
        let judge = Judge::new(vec![threshold], &subjects, warm_up).ok()?;
        Some((text, judge))
    });
    let mut judges: Vec<(&String, Judge)> = judges.collect();
    let mut totals = reader.empty_totals();
    for row in reader.windows() {
        let row = row?;
        for (name, window) in &row.subjects {
            if let Some(totals) = totals.get_mut(name) {
                header.add_counted(totals, window, &row, stopped_at);
            }
        }
        let measured = measured_seconds(row.start, row.seconds, stopped_at).unwrap_or(0.0);
        let mut first = None;
        for (text, judge) in &mut judges {
            judge.window(row.index, measured, &row.subjects);
            if first.is_none() && judge.violated(0, &totals, || clocks).is_some() {
                first = Some((*text).clone());
            }
        }
        if first.is_some() {
            return Ok(first);
        }
    }
    Ok(None)
}
