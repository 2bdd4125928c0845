//! Number of clients with the most acknowledged messages.

use schemars::JsonSchema;

use super::{LeftOut, Row, Series};

/// Share of the maximum that counts as nearly as good: identical runs differ by as much.
const NEARLY: f64 = 0.95;

/// Number of clients with the most acknowledged messages per second, with all other values equal:
/// the best concurrency.
#[derive(Clone, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct MostMessages {
    /// Other varied values, by key.
    #[serde(serialize_with = "super::scaling::as_map")]
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    pub with: Vec<(String, String)>,
    /// Key that sets the number of clients.
    pub key: String,
    /// Number of clients; of equal maxima, the smallest. Null if no run served what was requested.
    pub clients: Option<u64>,
    /// Messages per second, as in `figures.messages`.
    pub messages: Option<f64>,
    /// Smallest number of clients with at least 95 % of these messages.
    pub nearly_with: Option<u64>,
    /// True if no eligible run had more clients, so that the maximum may be higher.
    pub at_the_end: bool,
    /// Runs that are not eligible, with the reason (`out_of_contest`).
    pub left_out: Vec<LeftOut>,
}

/// Returns the maximum for each combination of the other values. Empty if no run had messages.
pub(super) fn of(series: &Series) -> Vec<MostMessages> {
    let Some(axis) = series.clients_axis() else {
        return Vec::new();
    };
    let messages = |row: &Row| row.figures.as_ref()?.messages;
    if series.runs.iter().all(|row| messages(row).is_none()) {
        return Vec::new();
    }
    series
        .group_by_others(axis)
        .into_iter()
        .map(|(with, rows)| {
            let mut counted = Vec::new();
            let mut left_out = Vec::new();
            for (clients, row) in rows {
                match (&row.out_of_contest, messages(row)) {
                    (None, Some(messages)) => counted.push((clients, messages)),
                    (why, _) => left_out.push(LeftOut {
                        clients,
                        reason: why.as_deref().unwrap_or("no messages").to_owned(),
                    }),
                }
            }
            counted.sort_by_key(|(clients, _)| *clients);
            // Of equal maxima, the run with the fewest clients stays.
            let best = counted
                .iter()
                .copied()
                .reduce(|best, next| if next.1 > best.1 { next } else { best });
            let nearly = |best: (u64, f64)| {
                let mut good = counted.iter().filter(|run| run.1 >= NEARLY * best.1);
                good.next().map(|(clients, _)| *clients)
            };
            MostMessages {
                with,
                key: series.varied[axis].clone(),
                clients: best.map(|(clients, _)| clients),
                messages: best.map(|(_, messages)| messages),
                nearly_with: best.and_then(nearly),
                at_the_end: best.is_some_and(|(clients, _)| {
                    counted.last().is_some_and(|(most, _)| *most == clients)
                }),
                left_out,
            }
        })
        .collect()
}
