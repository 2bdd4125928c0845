//! What the emulated links of a run did, as far as it is judged.

use std::collections::BTreeMap;

use crate::link::{LINK_CATALOGUE, OVERLOAD};
use crate::metric::{Catalogue, Statistic};
use crate::recorder::Window;
use crate::totals::Totals;

/// Over so many packets a direction is judged: then ten of them make the 99th percentile, and not
/// one that any machine may hold up.
const PACKETS: f64 = 1000.0;

/// Of fewer packets there is no 99th percentile.
const PACKETS_MIN: f64 = 100.0;

/// The directions of all links.
#[derive(Clone, Debug, Default)]
pub(super) struct Links(Vec<Direction>);

/// One direction, over the windows that it takes for [`PACKETS`].
#[derive(Clone, Debug)]
struct Direction {
    name: String,
    /// The first of these windows, and the last so far; none where nothing was seen since it was
    /// last judged.
    windows: Option<(u64, u64)>,
    seen: Totals,
}

/// How late packets left a direction over some windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Late {
    /// The first of them, and the last.
    pub(super) windows: (u64, u64),
    /// The 99th percentile, in seconds.
    pub(super) p99: f64,
}

impl Links {
    /// Those among the subjects of a run.
    pub(super) fn among(subjects: &[(&str, Catalogue)]) -> Links {
        let links = subjects
            .iter()
            .filter(|(_, catalogue)| catalogue.find("overload").is_some());
        let links = links.map(|(name, _)| Direction {
            name: (*name).to_owned(),
            windows: None,
            seen: Totals::new(LINK_CATALOGUE),
        });
        Links(links.collect())
    }

    /// How many packets they dropped by their own fault in a window; none without links.
    pub(super) fn overload(
        &self,
        subjects: &BTreeMap<String, Window>,
        seconds: f64,
    ) -> Option<f64> {
        let of = |direction: &Direction| {
            let window = subjects.get(&direction.name)?;
            let totals = Totals::of_window(LINK_CATALOGUE, window, seconds);
            Some(totals.counter(OVERLOAD) as f64)
        };
        (!self.0.is_empty()).then(|| self.0.iter().filter_map(of).sum())
    }

    /// Takes a window in; gives what can be said now.
    pub(super) fn lateness(
        &mut self,
        subjects: &BTreeMap<String, Window>,
        index: u64,
        seconds: f64,
    ) -> Vec<Late> {
        let mut found = Vec::new();
        for direction in &mut self.0 {
            let Some(window) = subjects.get(&direction.name) else {
                continue;
            };
            direction.seen.add(window, seconds);
            let (first, _) = direction.windows.unwrap_or((index, index));
            direction.windows = Some((first, index));
            found.extend(direction.judge(PACKETS));
        }
        found
    }

    /// What can be said of the rest, at the end.
    pub(super) fn rest(&mut self) -> Vec<Late> {
        let directions = self.0.iter_mut();
        directions
            .filter_map(|direction| direction.judge(PACKETS_MIN))
            .collect()
    }
}

impl Direction {
    /// How late it was, where there were so many packets; then it begins anew.
    fn judge(&mut self, packets: f64) -> Option<Late> {
        let lateness = |statistic| self.seen.named("lateness", statistic);
        if lateness(Statistic::Count).unwrap_or(0.0) < packets {
            return None;
        }
        let p99 = lateness(Statistic::Quantile(0.99))?;
        let windows = self.windows.take()?;
        self.seen = Totals::new(LINK_CATALOGUE);
        Some(Late { windows, p99 })
    }
}
