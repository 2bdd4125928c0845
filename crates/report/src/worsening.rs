//! Metrics that got worse during a run with a constant load, although their thresholds held.

use std::array;
use std::collections::BTreeMap;
use std::time::Duration;

use measure::threshold::{BLOCKS, Worsening, worsening};
use measure::totals::measured_seconds;
use measure::{Threshold, Totals};
use runfile::{Reader, WindowRow};

use crate::ReportError;
use crate::human::{figure, short_duration};

/// Shortest part of a run that is compared with others, in seconds: it contains a whole window.
const BLOCK_SECONDS_MIN: f64 = 0.95;

/// Describes the metric that gets worse and is expected to cross the limit of its threshold first,
/// within `ahead` after the run. `None` if no explicit threshold has such a metric. The warm-up is
/// excluded.
///
/// # Errors
/// Fails if the run file cannot be read.
pub fn worsened(reader: &Reader, ahead: Duration) -> Result<Option<String>, ReportError> {
    let Some((_, thresholds)) = reader.verdict()? else {
        return Ok(None);
    };
    let explicit = thresholds.iter().filter(|threshold| !threshold.implied);
    let parsed = explicit.filter_map(|threshold| Threshold::parse(&threshold.text).ok());
    let parsed: Vec<Threshold> = parsed.collect();
    let (blocks, seconds) = blocks(reader)?;
    if seconds < BLOCK_SECONDS_MIN {
        return Ok(None);
    }
    let subjects = reader.catalogues();
    let ahead = ahead.as_secs_f64();
    let found = parsed
        .iter()
        .filter_map(|threshold| worsening(threshold, &subjects, &blocks, seconds, ahead));
    let first = found.min_by(|one, other| one.crosses_after.total_cmp(&other.crosses_after));
    Ok(first.map(|found| sentence(&found, seconds)))
}

fn sentence(found: &Worsening, seconds: f64) -> String {
    let when = match found.crosses_after {
        after if after > 0.0 => format!(
            ", and {} is expected in {}",
            figure(found.unit, found.limit),
            short_duration(after)
        ),
        _ => String::new(),
    };
    format!(
        "`{}` gets worse: {} in the last {}{when}",
        found.threshold,
        figure(found.unit, found.value),
        short_duration(seconds),
    )
}

type Block = BTreeMap<String, Totals>;

/// Returns the totals of equally long parts of the measured time, and their length in seconds.
fn blocks(reader: &Reader) -> Result<([Block; BLOCKS], f64), ReportError> {
    let stopped_at = reader.stopped_at()?;
    let warm_up = reader.header().warm_up_windows();
    let counted = |row: &WindowRow| {
        let counts = measured_seconds(row.start, row.seconds, stopped_at);
        counts.filter(|_| row.index >= warm_up).unwrap_or(0.0)
    };
    let mut measured = 0.0;
    for row in reader.windows() {
        measured += counted(&row?);
    }
    let seconds = measured / BLOCKS as f64;
    let mut blocks: [Block; BLOCKS] = array::from_fn(|_| reader.empty_totals());
    let mut before = 0.0;
    for row in reader.windows() {
        let row = row?;
        let counts = counted(&row);
        if counts <= 0.0 {
            continue;
        }
        // A window belongs to the block in which its middle is.
        let block = ((before + counts / 2.0) / seconds) as usize;
        before += counts;
        for (name, window) in &row.subjects {
            if let Some(totals) = blocks[block.min(BLOCKS - 1)].get_mut(name) {
                totals.add(window, counts);
            }
        }
    }
    Ok((blocks, seconds))
}
