//! What is no error in a scenario, and yet most likely not meant.

use std::time::Duration;

use load::Shape;
use measure::Time;
use measure::units::TimeSpan;
use protocol::metrics::OF_THE_START;

use crate::model::{Population, Scenario};

/// The shortest time in which anything is measured: a whole window.
const WINDOW: Duration = Duration::from_secs(1);

impl Scenario {
    /// What will most likely disappoint whoever runs it, a sentence each: figures that will have no
    /// data, and plans that do not fit the length of the run.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(duration) = self.duration
            && duration.saturating_sub(self.warm_up) < WINDOW
        {
            warnings.push(format!(
                "the run measures nothing: after the warm-up there is no whole second of its {}",
                TimeSpan(duration)
            ));
        }
        for threshold in &self.thresholds {
            let Ok(read) = measure::Threshold::parse(&threshold.text) else {
                continue;
            };
            let population = self
                .populations
                .iter()
                .find(|own| own.name == read.subject());
            if let Some(population) = population
                && OF_THE_START.contains(&read.metric())
                && self.all_start_in_the_warm_up(population)
            {
                warnings.push(format!(
                    "threshold `{}` will have no data: all clients of `{}` start within the warm-up of {}, \
                     and `{}` is measured when a client starts; shorten `warm_up`",
                    threshold.text,
                    population.name,
                    TimeSpan(self.warm_up),
                    read.metric(),
                ));
            }
        }
        for population in &self.populations {
            warnings.extend(self.late_plan(population));
        }
        warnings
    }

    fn all_start_in_the_warm_up(&self, population: &Population) -> bool {
        let last = load::last_start(&population.load);
        !population.load.rejoin && last.is_some_and(|last| last.since_start() < self.warm_up)
    }

    /// That the plan's end and the run's do not fit.
    fn late_plan(&self, population: &Population) -> Option<String> {
        let duration = self.duration?;
        let name = &population.name;
        if let Shape::Stages(stages) = &population.load.shape {
            let all: Duration = stages.iter().map(|stage| stage.over).sum();
            if all > duration {
                return Some(format!(
                    "the stages of `{name}` take {}, and the run ends after {}",
                    TimeSpan(all),
                    TimeSpan(duration)
                ));
            }
        }
        let last = load::last_start(&population.load)?;
        let left = Time::from_start(duration).since(last);
        (left < WINDOW).then(|| {
            format!(
                "the last client of `{name}` starts {:.1} s before the run ends: let it last longer, or \
                 start them faster",
                left.as_secs_f64()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Overrides;

    fn warnings(load: &str, rest: &str) -> Vec<String> {
        let text = format!(
            "clients: {{viewers: {{urls: ['rtsp://127.0.0.1:9/a'], load: {load}}}}}\n{rest}"
        );
        Scenario::parse("test", &text, &Overrides::default())
            .unwrap_or_else(|error| panic!("{error:?}"))
            .warnings()
    }

    #[test]
    fn a_threshold_on_the_start_needs_clients_that_start_after_the_warm_up() {
        let on_start =
            "thresholds: ['viewers.startup_delay.p95 < 1s', 'viewers.loss < 1%']\nduration: 30s\n";
        let with = |load: &str, warm_up: &str| warnings(load, &format!("{on_start}{warm_up}"));
        let ramp = "{clients: 10, ramp: 10s}";
        let found = with(ramp, "warm_up: 10s");
        assert_eq!(found.len(), 1);
        assert!(
            found[0].contains("`viewers.startup_delay.p95 < 1s` will have no data"),
            "{found:?}"
        );
        assert_eq!(with(ramp, "warm_up: 9s"), Vec::<String>::new());
        assert_eq!(
            with("{arrivals: 5/s, max_clients: 500}", "warm_up: 10s"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_run_that_is_over_before_its_plan_is_warned_of() {
        let found = warnings("{clients: 10, ramp: 10s}", "duration: 9.5s");
        assert!(found[0].contains("0.5 s before the run ends"), "{found:?}");
        let stages = "{stages: [{clients: 5, over: 2s}, {clients: 0, over: 10s}]}";
        let found = warnings(stages, "duration: 5s");
        assert!(
            found[0].contains("take 12s, and the run ends after 5s"),
            "{found:?}"
        );
        let found = warnings("{clients: 1}", "duration: 5s\nwarm_up: 4.5s");
        assert!(found[0].contains("measures nothing"), "{found:?}");
    }
}
