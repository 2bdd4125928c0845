//! Whether a run measured what was planned. If not, its verdict is `invalid`.

use std::collections::BTreeMap;

use kit::metrics::{ACTIVE, REJOINED, STARTED, TURNED_AWAY};
use measure::metric::CounterId;
use measure::{Time, Window};
use scenario::Scenario;

use crate::window_merger::gauge_of;

/// Shortest duration of a whole window, in seconds. Windows end when the event loop gets to it, so
/// a whole window is not exactly one second long.
const WHOLE: f64 = 0.95;

/// Coverage of a run. Its size does not depend on the length of the run.
#[derive(Clone, Debug)]
pub(crate) struct Coverage {
    /// Clients of each population that started, or arrived and were turned away, warm-up included.
    /// Clients that rejoined are excluded because the plan does not count them.
    began: Vec<u64>,
    /// Whole windows of each population, after the warm-up and before the stop, that began with
    /// clients active.
    windows: Vec<u64>,
    /// True if the population had clients in the previous window.
    active: Vec<bool>,
    /// True after the first window.
    begun: bool,
}

impl Coverage {
    pub(crate) fn new(scenario: &Scenario) -> Coverage {
        Coverage {
            began: vec![0; scenario.populations.len()],
            windows: vec![0; scenario.populations.len()],
            active: vec![false; scenario.populations.len()],
            begun: false,
        }
    }

    /// Adds a window of which `seconds` count.
    pub(crate) fn window(
        &mut self,
        scenario: &Scenario,
        subjects: &BTreeMap<String, Window>,
        seconds: f64,
    ) {
        for (number, population) in scenario.populations.iter().enumerate() {
            let Some(window) = subjects.get(&population.name) else {
                continue;
            };
            let counter = |id: CounterId| {
                let value = window.counters.get(usize::from(id.0)).copied();
                u64::try_from(value.unwrap_or(0)).unwrap_or(0)
            };
            let planned = counter(STARTED).saturating_sub(counter(REJOINED));
            self.began[number] += planned + counter(TURNED_AWAY);
            let active = gauge_of(window, ACTIVE).is_some_and(|active| active > 0.0);
            // A client that starts within the window is not measured for all of it.
            let before = std::mem::replace(&mut self.active[number], active) || !self.begun;
            self.windows[number] += u64::from(active && before && seconds >= WHOLE);
        }
        self.begun = true;
    }

    /// Reasons why there is too little to judge.
    ///
    /// Clients that were due by `due_by` must have started; `None` skips that check. `failed` skips
    /// the check of whole windows: if clients failed and a threshold fails for it, the run may be
    /// short.
    pub(crate) fn gaps(
        &self,
        scenario: &Scenario,
        due_by: Option<Time>,
        failed: bool,
    ) -> Vec<String> {
        let mut gaps = Vec::new();
        let after = match scenario.warm_up.is_zero() {
            true => "",
            false => " after the warm-up",
        };
        let none = |windows: &u64| *windows == 0;
        if failed {
            // The client failures explain the short run.
        } else if self.windows.iter().all(none) {
            gaps.push(format!(
                "nothing was measured: the run had no whole second with clients{after}; make it longer"
            ));
        } else {
            let all = scenario.populations.iter().zip(&self.windows);
            gaps.extend(all.filter(|(_, windows)| none(windows)).map(|(population, _)| {
                format!(
                    "`{}` was not measured: it had no whole second with clients{after}; make the run longer, or \
                     start them sooner",
                    population.name
                )
            }));
        }
        let Some(due_by) = due_by else {
            return gaps;
        };
        for (population, &began) in scenario.populations.iter().zip(&self.began) {
            let planned = measure::load::started(&population.load, due_by);
            // Arrivals continue until the run ends, so `Time::NEVER` gives no number of them to
            // compare with.
            let endless = due_by == Time::NEVER
                && matches!(population.load.shape, measure::load::Shape::Arrivals { .. });
            if began < planned && !endless {
                gaps.push(format!(
                    "the tester started {began} of the {planned} clients of `{}` that were due: give it \
                     more cores, or start them over a longer time",
                    population.name
                ));
            }
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use measure::Recorder;
    use protocols::RTSP_PROTOCOL;

    use super::*;

    fn scenario(load: &str, rest: &str) -> Scenario {
        protocols::install();
        let text = format!(
            "clients: {{viewers: {{urls: ['rtsp://127.0.0.1:9/a'], load: {load}}}}}\n{rest}"
        );
        Scenario::parse("test", &text, &scenario::Overrides::default())
            .unwrap_or_else(|error| panic!("{error:?}"))
    }

    fn began(started: u64, turned_away: u64) -> BTreeMap<String, Window> {
        let mut recorder = Recorder::new(RTSP_PROTOCOL.catalogue);
        recorder.add(STARTED, started);
        recorder.add(TURNED_AWAY, turned_away);
        recorder.set(ACTIVE, 1.0);
        BTreeMap::from([("viewers".to_owned(), recorder.take_window())])
    }

    #[test]
    fn run_without_whole_second_has_measured_nothing() {
        let scenario = scenario("{clients: 2}", "duration: 10s\nwarm_up: 5s");
        let mut coverage = Coverage::new(&scenario);
        coverage.window(&scenario, &began(2, 0), 0.7);
        let gaps = coverage.gaps(&scenario, Some(Time::NEVER), false);
        assert_eq!(gaps.len(), 1);
        assert!(
            gaps[0].contains("no whole second with clients after the warm-up"),
            "{gaps:?}"
        );
        // A run that fails because its clients failed may be short.
        assert_eq!(coverage.gaps(&scenario, None, true), Vec::<String>::new());
        coverage.window(&scenario, &began(0, 0), 0.999);
        assert_eq!(
            coverage.gaps(&scenario, Some(Time::NEVER), false),
            Vec::<String>::new()
        );
    }

    #[test]
    fn due_clients_that_did_not_start_are_a_gap() {
        let scenario = scenario("{clients: 20, ramp: 10s}", "duration: 20s");
        let mut coverage = Coverage::new(&scenario);
        coverage.window(&scenario, &began(4, 0), 1.0);
        // The fourth client is due at 1.5 s, the fifth at 2 s.
        let at = |nanos| coverage.gaps(&scenario, Some(Time::from_nanos(nanos)), false);
        assert_eq!(at(1_900_000_000), Vec::<String>::new());
        assert!(at(2_000_000_000)[0].contains("4 of the 5 clients"));
        assert!(
            coverage.gaps(&scenario, Some(Time::NEVER), false)[0].contains("4 of the 20 clients")
        );
    }

    #[test]
    fn rejoined_clients_do_not_count_as_planned_ones() {
        let scenario = scenario("{clients: 20, ramp: 10s}, rejoin: true", "duration: 20s");
        let mut coverage = Coverage::new(&scenario);
        let mut recorder = Recorder::new(RTSP_PROTOCOL.catalogue);
        recorder.add(STARTED, 20);
        recorder.add(REJOINED, 16);
        recorder.set(ACTIVE, 1.0);
        let window = BTreeMap::from([("viewers".to_owned(), recorder.take_window())]);
        coverage.window(&scenario, &window, 1.0);
        let gaps = coverage.gaps(&scenario, Some(Time::NEVER), false);
        assert!(gaps[0].contains("4 of the 20 clients"), "{gaps:?}");
    }

    #[test]
    fn turned_away_arrivals_count_and_arrivals_have_no_end() {
        let scenario = scenario("{arrivals: 5/s, max_clients: 3}", "duration: 20s");
        let mut coverage = Coverage::new(&scenario);
        coverage.window(&scenario, &began(3, 2), 1.0);
        assert_eq!(
            coverage.gaps(&scenario, Some(Time::from_nanos(999_999_999)), false),
            Vec::<String>::new()
        );
        assert_eq!(
            coverage.gaps(&scenario, Some(Time::NEVER), false),
            Vec::<String>::new()
        );
        assert_eq!(
            coverage
                .gaps(&scenario, Some(Time::from_nanos(1_000_000_000)), false)
                .len(),
            1
        );
    }

    #[test]
    fn population_starting_in_last_second_is_not_measured() {
        protocols::install();
        let text = "clients: {early: {urls: ['rtsp://127.0.0.1:9/a'], load: {clients: 1}}, \
                    late: {urls: ['rtsp://127.0.0.1:9/a'], load: {clients: 1}}}\nduration: 9s";
        let scenario = Scenario::parse("test", text, &scenario::Overrides::default())
            .unwrap_or_else(|error| panic!("{error:?}"));
        let mut coverage = Coverage::new(&scenario);
        let window = |late: bool| {
            let mut subjects = BTreeMap::new();
            for (name, active) in [("early", true), ("late", late)] {
                let mut recorder = Recorder::new(RTSP_PROTOCOL.catalogue);
                recorder.set(ACTIVE, f64::from(u8::from(active)));
                subjects.insert(name.to_owned(), recorder.take_window());
            }
            subjects
        };
        coverage.window(&scenario, &window(false), 1.0);
        coverage.window(&scenario, &window(true), 1.0);
        let gaps = coverage.gaps(&scenario, None, false);
        assert_eq!(gaps.len(), 1);
        assert!(gaps[0].starts_with("`late` was not measured"), "{gaps:?}");
        coverage.window(&scenario, &window(true), 1.0);
        assert_eq!(coverage.gaps(&scenario, None, false), Vec::<String>::new());
    }
}
