//! The first value with which a run passes, of a series that looks for it.

use schemars::JsonSchema;

use super::{RowOutcome, Series};

/// What was found with one combination of the other values.
#[derive(Clone, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct Found {
    /// The other values that are varied, by their keys.
    #[serde(serialize_with = "super::scaling::as_map")]
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    pub with: Vec<(String, String)>,
    /// The key.
    pub key: String,
    /// The first of its values with which a run passed, and with every later one that was tried;
    /// null where the last did not.
    pub passed: Option<String>,
    /// The last value before it that was tried; null where there is none.
    pub not_passed: Option<String>,
    /// How the run with that came out.
    pub outcome: Option<RowOutcome>,
}

/// Values that were tried, and how the run with each came out.
type Tried<'a> = Vec<(&'a str, RowOutcome)>;

/// What was found with each combination of the other values.
pub(super) fn of(series: &Series, key: &str) -> Vec<Found> {
    let Some(axis) = series.varied.iter().position(|varied| varied == key) else {
        return Vec::new();
    };
    let mut all: Vec<(Vec<(String, String)>, Tried<'_>)> = Vec::new();
    for row in &series.runs {
        let mut with: Vec<(String, String)> = series
            .varied
            .iter()
            .cloned()
            .zip(row.values.iter().cloned())
            .collect();
        if axis >= with.len() || row.outcome == RowOutcome::Planned {
            continue;
        }
        with.remove(axis);
        let run = (row.values[axis].as_str(), row.outcome);
        match all.iter_mut().find(|(others, _)| *others == with) {
            Some((_, runs)) => runs.push(run),
            None => all.push((with, vec![run])),
        }
    }
    all.into_iter()
        .map(|(with, runs)| {
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
            }
        })
        .collect()
}
