//! Figures of the previous windows of a run.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use engine::{ClientRole, Progress};
use report::human::{count, duration, plural};

use super::curves::{Curves, push_last};
use super::line::{ScreenLine, Tone};
use super::roles::rate_role;

/// Maximum number of windows in a sparkline.
pub(super) const POINTS_MAX: usize = 60;

/// Figures of the previous windows.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) populations: BTreeMap<String, PopulationHistory>,
    pub(super) curves: Curves,
    /// Failed clients by population and reason. Reasons are enumerated, so there are few.
    failures: BTreeMap<(String, String), Failed>,
}

/// Clients of a population that failed for one reason.
#[derive(Clone, Copy, Debug)]
struct Failed {
    count: u64,
    /// Times at which the first and the last of them were reported.
    first: Duration,
    last: Duration,
}

/// Last windows of a population, the newest last.
#[derive(Debug, Default)]
pub(super) struct PopulationHistory {
    /// Bit/s, or messages per second.
    pub(super) rate: VecDeque<f64>,
    /// Share of lost packets, or answers per second.
    pub(super) detail: VecDeque<f64>,
}

impl History {
    /// Adds a window. A window that was cut short has no rates, so only its failures and its
    /// numbers of clients are added.
    pub(super) fn add(&mut self, progress: &Progress) {
        self.curves.add(progress);
        let at = progress.elapsed;
        for seen in &progress.failures {
            let key = (seen.population.clone(), seen.reason.clone());
            let failed = self.failures.entry(key).or_insert(Failed {
                count: 0,
                first: at,
                last: at,
            });
            failed.count += seen.count;
            failed.last = at;
        }
        for (name, population) in &progress.populations {
            let Some(rates) = &population.rates else {
                continue;
            };
            let (rate, detail) = match rate_role(population.role, rates) {
                ClientRole::Play => (rates.bitrate, rates.loss().unwrap_or(0.0)),
                ClientRole::Publish => (rates.sent_bitrate, 0.0),
                ClientRole::Send => (rates.sent, rates.answered),
            };
            let track = self.populations.entry(name.clone()).or_default();
            push_last(&mut track.rate, rate, POINTS_MAX);
            push_last(&mut track.detail, detail, POINTS_MAX);
        }
    }

    /// Returns the reasons why clients failed, in at most this many lines: the reasons that were
    /// reported last, the newest at the end.
    pub(super) fn failures(&self, lines: usize) -> Vec<ScreenLine> {
        let all = self.failures.len();
        let shown = match all <= lines {
            true => all,
            false => lines.saturating_sub(1),
        };
        let mut failures: Vec<_> = self.failures.iter().collect();
        failures.sort_by_key(|(_, failed)| std::cmp::Reverse((failed.last, failed.first)));
        failures.truncate(shown);
        failures.sort_by_key(|(_, failed)| failed.first);
        let mut texts: Vec<ScreenLine> = Vec::new();
        if shown < all && lines > 0 {
            let more = (all - shown) as f64;
            let text = plural(more, "older reason", "older reasons");
            texts.push(ScreenLine::default().with(Tone::Faint, &text));
        }
        texts.extend(failures.into_iter().map(|((population, reason), failed)| {
            let clients = count(failed.count as f64);
            let first = duration(failed.first.as_secs_f64());
            let when = match failed.last > failed.first {
                true => format!("{first} to {}", duration(failed.last.as_secs_f64())),
                false => first,
            };
            // The reason comes first, because a narrow terminal cuts the end.
            let text = format!("{clients} × {reason} of {population}, {when}");
            ScreenLine::default().with(Tone::Bad, &text)
        }));
        texts
    }
}
