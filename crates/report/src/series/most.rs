//! With how many clients most messages were acknowledged.

use schemars::JsonSchema;

use super::{LeftOut, Row, Series};

/// From which share of the most on a run counts as nearly as good: what runs alike differ by.
const NEARLY: f64 = 0.95;

/// With how many clients most messages were acknowledged a second, with everything else alike: the
/// best concurrency.
#[derive(Clone, Debug, PartialEq, serde::Serialize, JsonSchema)]
pub struct MostMessages {
    /// The other values that are varied, by their keys.
    #[serde(serialize_with = "super::scaling::as_map")]
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    pub with: Vec<(String, String)>,
    /// The key of the clients.
    pub key: String,
    /// How many clients; of equals the fewest. Null where no run served what was asked.
    pub clients: Option<u64>,
    /// How many messages a second, as in `figures.messages`.
    pub messages: Option<f64>,
    /// The fewest clients with at least 95 % of it.
    pub nearly_with: Option<u64>,
    /// Whether no run that counts had more clients, so that more of them may do more.
    pub at_the_end: bool,
    /// The runs that do not count, and why (`out_of_contest`).
    pub left_out: Vec<LeftOut>,
}

/// The most for each combination of the other values; nothing where no run had messages.
pub(super) fn of(series: &Series) -> Vec<MostMessages> {
    let Some(axis) = series.clients_axis() else {
        return Vec::new();
    };
    let messages = |row: &Row| row.figures.as_ref()?.messages;
    if series.runs.iter().all(|row| messages(row).is_none()) {
        return Vec::new();
    }
    series
        .by_the_others(axis)
        .into_iter()
        .map(|group| {
            let mut counted = Vec::new();
            let mut left_out = Vec::new();
            for (clients, row) in group.rows {
                match (&row.out_of_contest, messages(row)) {
                    (None, Some(messages)) => counted.push((clients, messages)),
                    (why, _) => left_out.push(LeftOut {
                        clients,
                        reason: why.as_deref().unwrap_or("no messages").to_owned(),
                    }),
                }
            }
            counted.sort_by_key(|(clients, _)| *clients);
            // The first of equals is the one with the fewest clients.
            let best = counted
                .iter()
                .copied()
                .reduce(|best, next| if next.1 > best.1 { next } else { best });
            let nearly = |best: (u64, f64)| {
                let mut good = counted.iter().filter(|run| run.1 >= NEARLY * best.1);
                good.next().map(|(clients, _)| *clients)
            };
            MostMessages {
                with: group.others,
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
