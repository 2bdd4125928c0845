//! Health figures of the emulated links.

use std::collections::BTreeMap;

use crate::link::{LINK_CATALOGUE, OVERLOAD};
use crate::metric::{Catalogue, Statistic};
use crate::recorder::Window;
use crate::totals::Totals;

/// Number of packets over which the lateness of a direction is judged. With 1,000, ten packets lie
/// above the 99th percentile, so a single packet that the machine delayed does not decide.
const PACKETS_PER_JUDGEMENT: f64 = 1000.0;

/// Minimum number of packets for a 99th percentile.
const PACKETS_MIN: f64 = 100.0;

/// Directions of all emulated links.
#[derive(Clone, Debug, Default)]
pub(super) struct Links(Vec<Direction>);

/// One direction of a link, over the windows that collect [`PACKETS_PER_JUDGEMENT`] packets.
#[derive(Clone, Debug)]
struct Direction {
    name: String,
    /// First and last window since the last judgement. `None` if there was none since.
    windows: Option<(u64, u64)>,
    totals: Totals,
}

/// Lateness of packets leaving one direction, over some windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LinkLateness {
    /// First and last window.
    pub(super) windows: (u64, u64),
    /// 99th percentile, in seconds.
    pub(super) p99: f64,
}

impl Links {
    /// Selects the links among the subjects of a run.
    pub(super) fn of_subjects(subjects: &[(&str, Catalogue)]) -> Links {
        let links = subjects
            .iter()
            .filter(|(_, catalogue)| catalogue.find("overload").is_some());
        let links = links.map(|(name, _)| Direction {
            name: (*name).to_owned(),
            windows: None,
            totals: Totals::new(LINK_CATALOGUE),
        });
        Links(links.collect())
    }

    /// Number of packets that the links dropped in a window because they could not keep up. `None`
    /// if there are no links.
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

    /// Adds a window. Returns the directions that now have enough packets.
    pub(super) fn lateness(
        &mut self,
        subjects: &BTreeMap<String, Window>,
        index: u64,
        seconds: f64,
    ) -> Vec<LinkLateness> {
        let mut found = Vec::new();
        for direction in &mut self.0 {
            let Some(window) = subjects.get(&direction.name) else {
                continue;
            };
            direction.totals.add(window, seconds);
            let (first, _) = direction.windows.unwrap_or((index, index));
            direction.windows = Some((first, index));
            found.extend(direction.judge(PACKETS_PER_JUDGEMENT));
        }
        found
    }

    /// Judges the remaining packets at the end of the run.
    pub(super) fn take_pending(&mut self) -> Vec<LinkLateness> {
        let directions = self.0.iter_mut();
        directions
            .filter_map(|direction| direction.judge(PACKETS_MIN))
            .collect()
    }
}

impl Direction {
    /// Returns the lateness and resets the direction if it has at least `packets` packets.
    fn judge(&mut self, packets: f64) -> Option<LinkLateness> {
        let lateness = |statistic| self.totals.named("lateness", statistic);
        if lateness(Statistic::Count).unwrap_or(0.0) < packets {
            return None;
        }
        let p99 = lateness(Statistic::Quantile(0.99))?;
        let windows = self.windows.take()?;
        self.totals = Totals::new(LINK_CATALOGUE);
        Some(LinkLateness { windows, p99 })
    }
}
