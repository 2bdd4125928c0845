//! First passing value of a key, in a series that searches for it.

use schemars::JsonSchema;

use super::{RowOutcome, Series, grouped};

/// Result of the search for one combination of the other values.
#[derive(Clone, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct Found {
    /// Other varied values, by key.
    #[serde(serialize_with = "super::scaling::as_map")]
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    pub with: Vec<(String, String)>,
    /// Key whose values are searched.
    pub key: String,
    /// First value with which a run passed, as did every later value that was tried; null if the
    /// last value did not pass.
    pub passed: Option<String>,
    /// Last tried value before it; null if no value before it was tried.
    pub not_passed: Option<String>,
    /// Outcome of the run with the value in `not_passed`.
    pub outcome: Option<RowOutcome>,
    /// True if the search ended. Otherwise an earlier value may pass as well.
    pub finished: bool,
}

/// Returns the result of the search for each combination of the other values.
pub(super) fn of(series: &Series, key: &str) -> Vec<Found> {
    let Some(axis) = series.varied.iter().position(|varied| varied == key) else {
        return Vec::new();
    };
    let tried = series.runs.iter().filter_map(|row| {
        let value = row.values.get(axis)?.as_str();
        Some((series.others(row, axis), (value, row.outcome)))
    });
    grouped(tried)
        .into_iter()
        .map(|(with, mut runs)| {
            // When a search ends, it removes the runs that it did not need from the series.
            let planned = runs.len();
            runs.retain(|(_, outcome)| *outcome != RowOutcome::Planned);
            let finished = runs.len() == planned;
            let failed = runs
                .iter()
                .rposition(|(_, outcome)| *outcome != RowOutcome::Pass);
            let passed = runs.get(failed.map_or(0, |at| at + 1));
            let failed = failed.map(|at| runs[at]);
            Found {
                with,
                key: key.to_owned(),
                passed: passed.map(|(value, _)| (*value).to_owned()),
                not_passed: failed.map(|(value, _)| value.to_owned()),
                outcome: failed.map(|(_, outcome)| outcome),
                finished,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::series::Row;

    fn found(outcomes: &[RowOutcome]) -> Found {
        let row = |(at, outcome): (usize, &RowOutcome)| Row {
            values: vec![at.to_string()],
            outcome: *outcome,
            ..Row::default()
        };
        let series = Series {
            runs: outcomes.iter().enumerate().map(row).collect(),
            ..Series::empty("a".to_owned(), vec!["latency".to_owned()], Path::new(""))
        };
        of(&series, "latency").remove(0)
    }

    #[test]
    fn interrupted_search_is_reported_as_cut_off() {
        use RowOutcome::{Fail, Pass, Planned};
        let whole = found(&[Fail, Pass, Pass]);
        assert_eq!((whole.passed.as_deref(), whole.finished), (Some("1"), true));
        let cut = found(&[Planned, Planned, Pass]);
        assert_eq!((cut.passed.as_deref(), cut.finished), (Some("2"), false));
        let none = found(&[Planned, Planned]);
        assert_eq!(
            (none.passed, none.not_passed, none.finished),
            (None, None, false)
        );
        let text = crate::series::words::found(&cut);
        assert!(text.contains("cut off"), "{text}");
    }
}
