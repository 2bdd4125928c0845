//! Resources that a server releases after its last client has left: multicast groups, file
//! descriptors, memory.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use measure::server::{self, GivenBack, Held};
use measure::{Recorder, Time, Window};
use scenario::Scenario;
use sut::{HeldResources, Sut};

use crate::window_merger::gauge_of;

/// Interval between checks of the joined groups.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of kept groups that the report names.
const NAMED: usize = 16;

/// Multicast groups that a scenario names, in its URLs or under `server`.
pub(crate) fn groups(scenario: &Scenario) -> BTreeSet<IpAddr> {
    let of_urls = scenario.populations.iter().flat_map(|population| {
        let group = |url: &String| population.config.group_of(url);
        population.urls.iter().filter_map(group)
    });
    let listed = scenario.server.iter().flat_map(|server| &server.groups);
    let listed = listed.filter_map(|group| group.address.trim_matches(['[', ']']).parse().ok());
    of_urls.chain(listed).collect()
}

/// Resources that a server held before the run, and their peaks during it.
#[derive(Debug, Default)]
pub(crate) struct PeakHoldings {
    before: HeldResources,
    groups_peak: u64,
    file_descriptors_peak: u64,
    uss_peak: u64,
}

impl PeakHoldings {
    /// Takes the baseline of a server that has no clients yet.
    pub(crate) fn baseline(sut: &Sut) -> PeakHoldings {
        let before = sut.held_resources();
        let mut holding = PeakHoldings::default();
        holding.add(&before);
        holding.before = before;
        holding
    }

    /// Adds an observation.
    pub(crate) fn add(&mut self, seen: &HeldResources) {
        let count = seen.groups.as_ref().map_or(0, BTreeSet::len) as u64;
        self.groups_peak = self.groups_peak.max(count);
        let raise = |peak: &mut u64, seen: Option<u64>| *peak = seen.unwrap_or(0).max(*peak);
        raise(&mut self.file_descriptors_peak, seen.file_descriptors);
        raise(&mut self.uss_peak, seen.uss);
    }

    /// Adds a window of the server.
    pub(crate) fn add_window(&mut self, window: &Window) {
        let gauge = |id| gauge_of(window, id).map(|level| level as u64);
        self.groups_peak = self
            .groups_peak
            .max(gauge(server::MULTICAST_GROUPS).unwrap_or(0));
        self.add(&HeldResources {
            groups: None,
            file_descriptors: gauge(server::FILE_DESCRIPTORS),
            uss: gauge(server::USS),
        });
    }

    /// Groups that are joined now and were not joined before the first client.
    fn kept(&self, joined: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
        let none = BTreeSet::new();
        let before = self.before.groups.as_ref().unwrap_or(&none);
        joined.difference(before).copied().collect()
    }
}

/// Observation of a server after its last client has left.
#[derive(Debug)]
pub(crate) struct ReleaseObserver {
    holding: PeakHoldings,
    last_client_left_at: Time,
    /// Time from which no group is joined except those joined before the first client.
    groups_released_at: Option<Time>,
}

impl ReleaseObserver {
    pub(crate) fn new(holding: PeakHoldings, left: Time) -> ReleaseObserver {
        ReleaseObserver {
            holding,
            last_client_left_at: left,
            groups_released_at: None,
        }
    }

    /// Adds an observation of the joined groups.
    pub(crate) fn add_groups(&mut self, now: Time, joined: Option<&BTreeSet<IpAddr>>) {
        let is_free = joined.is_some_and(|joined| self.holding.kept(joined).is_empty());
        self.groups_released_at = match is_free {
            // The resolution is one check: groups left by the first check count as left at once.
            true if now.since(self.last_client_left_at) < POLL_INTERVAL => {
                self.groups_released_at.or(Some(self.last_client_left_at))
            }
            true => self.groups_released_at.or(Some(now)),
            false => None,
        };
    }

    /// Result, with the last observation `after`.
    pub(crate) fn finish(mut self, now: Time, after: &HeldResources) -> GivenBack {
        self.add_groups(now, after.groups.as_ref());
        let holding = &self.holding;
        let held = |before: Option<u64>, peak: u64, after: Option<u64>| {
            let (before, after) = (before?, after?);
            Some(Held {
                before,
                peak: peak.max(after),
                after,
            })
        };
        let count = |groups: &Option<BTreeSet<IpAddr>>| groups.as_ref().map(|g| g.len() as u64);
        let none = BTreeSet::new();
        let joined = after.groups.as_ref().unwrap_or(&none);
        let kept = holding.kept(joined);
        GivenBack {
            looked_for: now.since(self.last_client_left_at).as_secs_f64(),
            groups: held(
                count(&holding.before.groups),
                holding.groups_peak,
                count(&after.groups),
            ),
            groups_left_within: self
                .groups_released_at
                .map(|free| free.since(self.last_client_left_at).as_secs_f64()),
            groups_kept: kept.len() as u64,
            kept: kept.iter().take(NAMED).map(IpAddr::to_string).collect(),
            file_descriptors: held(
                holding.before.file_descriptors,
                holding.file_descriptors_peak,
                after.file_descriptors,
            ),
            uss: held(holding.before.uss, holding.uss_peak, after.uss),
        }
    }
}

/// Result as a window of the server that has no other metrics.
pub(crate) fn window(given_back: &GivenBack) -> Window {
    let mut recorder = Recorder::new(server::SERVER_CATALOGUE);
    let mut set = |gauge, value: Option<f64>| {
        if let Some(value) = value {
            recorder.set(gauge, value);
        }
    };
    let kept = |held: Option<Held>| held.map(|held| held.kept() as f64);
    let groups_kept = given_back.groups.map(|_| given_back.groups_kept as f64);
    set(server::GROUPS_KEPT, groups_kept);
    set(server::GROUPS_LEFT_WITHIN, given_back.groups_left_within);
    set(
        server::FILE_DESCRIPTORS_KEPT,
        kept(given_back.file_descriptors),
    );
    set(server::USS_KEPT, kept(given_back.uss));
    recorder.take_window()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holdings(groups: &[&str], file_descriptors: u64, uss: u64) -> HeldResources {
        let groups = groups
            .iter()
            .map(|group| group.parse().expect("an address"));
        HeldResources {
            groups: Some(groups.collect()),
            file_descriptors: Some(file_descriptors),
            uss: Some(uss),
        }
    }

    fn lingering(before: HeldResources, peak: &HeldResources) -> ReleaseObserver {
        let mut holding = PeakHoldings {
            before: before.clone(),
            groups_peak: 0,
            file_descriptors_peak: 0,
            uss_peak: 0,
        };
        holding.add(&before);
        holding.add(peak);
        ReleaseObserver::new(holding, Time::from_start(Duration::from_secs(10)))
    }

    fn at(millis: u64) -> Time {
        Time::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn groups_count_as_left_from_when_they_stayed_left() {
        let before = holdings(&["239.0.0.9"], 9, 1000);
        let peak = holdings(&["239.0.0.1", "239.0.0.2", "239.0.0.9"], 29, 3000);
        let mut lingering = lingering(before, &peak);
        lingering.add_groups(at(10_000), peak.groups.as_ref());
        // The second entry joins a group again, so the first one does not count.
        for (millis, groups) in [
            (10_100, &["239.0.0.9"][..]),
            (10_150, &["239.0.0.1", "239.0.0.9"]),
            (10_400, &["239.0.0.9"]),
            (11_000, &[]),
        ] {
            lingering.add_groups(at(millis), holdings(groups, 0, 0).groups.as_ref());
        }
        let given_back = lingering.finish(at(15_000), &holdings(&["239.0.0.9"], 10, 900));
        let held = |before, peak, after| {
            Some(Held {
                before,
                peak,
                after,
            })
        };
        assert_eq!(
            given_back,
            GivenBack {
                looked_for: 5.0,
                groups: held(1, 3, 1),
                groups_left_within: Some(0.4),
                groups_kept: 0,
                kept: Vec::new(),
                file_descriptors: held(9, 29, 10),
                uss: held(1000, 3000, 900),
            }
        );
        let window = window(&given_back);
        let gauge = |id: measure::GaugeId| window.gauges[usize::from(id.0)];
        assert_eq!(gauge(server::GROUPS_KEPT), Some(0.0));
        assert_eq!(gauge(server::GROUPS_LEFT_WITHIN), Some(0.4));
        assert_eq!(gauge(server::FILE_DESCRIPTORS_KEPT), Some(1.0));
        assert_eq!(gauge(server::USS_KEPT), Some(-100.0));
        assert_eq!(gauge(server::CPU), None);
    }

    #[test]
    fn kept_groups_are_named_and_unknown_counts_stay_unknown() {
        let peak = holdings(&["239.0.0.1", "ff15::1"], 1, 1);
        let given_back = lingering(holdings(&[], 1, 1), &peak).finish(at(12_000), &peak);
        assert_eq!(given_back.kept, ["239.0.0.1", "ff15::1"]);
        let kept = usize::from(server::GROUPS_KEPT.0);
        assert_eq!(window(&given_back).gauges[kept], Some(2.0));
        assert_eq!(given_back.groups_left_within, None);
        let nothing = HeldResources::default();
        let given_back = lingering(nothing.clone(), &nothing).finish(at(12_000), &nothing);
        let unknown = GivenBack {
            looked_for: 2.0,
            ..GivenBack::default()
        };
        assert_eq!(given_back, unknown);
        assert!(window(&given_back).gauges.iter().all(Option::is_none));
    }
}
