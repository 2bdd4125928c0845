//! How far the server went.

use schemars::JsonSchema;

use super::{RowOutcome, Series};

/// How many clients passed, with everything else alike.
#[derive(Clone, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct Capacity {
    /// The other values that are varied, by their keys.
    #[serde(serialize_with = "super::scaling::as_map")]
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    pub with: Vec<(String, String)>,
    /// The key of the clients.
    pub key: String,
    /// The most clients with which every run passed, and every run with fewer clients too; null
    /// where already the fewest did not.
    pub passed: Option<u64>,
    /// Its media in bit/s, as in `figures.bitrate`.
    pub bitrate: Option<f64>,
    /// The fewest clients with which a run did not pass; null where all passed.
    pub first_not_passed: Option<u64>,
    /// How that run came out.
    pub outcome: Option<RowOutcome>,
}

/// The capacity for each combination of the other values.
pub(super) fn of(series: &Series) -> Vec<Capacity> {
    let Some(axis) = series.clients_axis() else {
        return Vec::new();
    };
    series
        .by_the_others(axis)
        .into_iter()
        .map(|group| {
            let mut rows = group.rows;
            // Of equal numbers first the one that did not pass.
            rows.sort_by_key(|(clients, row)| (*clients, row.outcome == RowOutcome::Pass));
            // What had no turn says nothing, but nothing is claimed across the gap either.
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
                with: group.others,
                key: series.varied[axis].clone(),
                passed: last.map(|(clients, _)| *clients),
                bitrate: last.and_then(|(_, row)| row.figures.as_ref()?.bitrate),
                first_not_passed: first.map(|(clients, _)| *clients),
                outcome: first.map(|(_, row)| row.outcome),
            }
        })
        .collect()
}
