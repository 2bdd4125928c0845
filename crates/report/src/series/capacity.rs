//! Capacity of the server: the number of clients up to which runs pass.

use schemars::JsonSchema;

use super::{RowOutcome, Series};

/// Number of clients up to which runs passed, with all other values equal.
#[derive(Clone, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct Capacity {
    /// Other varied values, by key.
    #[serde(serialize_with = "super::scaling::as_map")]
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    pub with: Vec<(String, String)>,
    /// Key that sets the number of clients.
    pub key: String,
    /// Largest number of clients at which every run passed, as did every run with fewer clients;
    /// null if the run with the fewest clients did not pass.
    pub passed: Option<u64>,
    /// Media bit rate of that run in bit/s, as in `figures.bitrate`.
    pub bitrate: Option<f64>,
    /// Smallest number of clients at which a run did not pass; null if all runs passed.
    pub first_not_passed: Option<u64>,
    /// Outcome of that run.
    pub outcome: Option<RowOutcome>,
}

/// Returns the capacity for each combination of the other values.
pub(super) fn of(series: &Series) -> Vec<Capacity> {
    let Some(axis) = series.clients_axis() else {
        return Vec::new();
    };
    series
        .group_by_others(axis)
        .into_iter()
        .map(|(with, mut rows)| {
            // Of several runs with equal clients, those that did not pass come first.
            rows.sort_by_key(|(clients, row)| (*clients, row.outcome == RowOutcome::Pass));
            // A run that was not made says nothing about the server, but no capacity is claimed
            // beyond it.
            let end = rows
                .iter()
                .position(|(_, row)| row.outcome != RowOutcome::Pass);
            let (passed, rest) = rows.split_at(end.unwrap_or(rows.len()));
            let first = rest.first();
            let last = passed
                .iter()
                .rev()
                .find(|(clients, _)| first.is_none_or(|(first, _)| clients < first));
            Capacity {
                with,
                key: series.varied[axis].clone(),
                passed: last.map(|(clients, _)| *clients),
                bitrate: last.and_then(|(_, row)| row.figures.as_ref()?.bitrate),
                first_not_passed: first.map(|(clients, _)| *clients),
                outcome: first.map(|(_, row)| row.outcome),
            }
        })
        .collect()
}
