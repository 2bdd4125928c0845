//! Warnings: settings that are valid, but most likely not intended.

use std::time::Duration;

use kit::metrics::START_METRICS;
use measure::Time;
use measure::load::Shape;
use measure::units::TimeSpan;

use crate::model::{Population, Scenario};

/// Minimum time for a measurement: one whole window.
const WINDOW: Duration = Duration::from_secs(1);

impl Scenario {
    /// Returns warnings, one sentence each: figures that will have no data, and loads that do not
    /// fit into the run.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(duration) = self.duration
            && duration.saturating_sub(self.warm_up) < WINDOW
        {
            warnings.push(format!(
                "the run measures nothing: less than a second of its {} is left after the warm-up",
                TimeSpan(duration)
            ));
        }
        for threshold in &self.thresholds {
            let Ok(read) = measure::Threshold::parse(&threshold.text) else {
                continue;
            };
            let mut populations = self.populations.iter();
            let population = populations.find(|own| own.name == read.subject());
            if let Some(population) = population
                && START_METRICS.contains(&read.metric())
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
        if self.starts_in_warm_up {
            return false;
        }
        let last = measure::load::last_start(&population.load);
        !population.load.rejoin && last.is_some_and(|last| last.since_start() < self.warm_up)
    }

    /// Warns of a load that does not fit into the run.
    fn late_plan(&self, population: &Population) -> Option<String> {
        let duration = self.duration?;
        let name = &population.name;
        if let Shape::Stages(stages) = &population.load.shape {
            let stages = stages.iter().map(|stage| stage.over);
            let all = stages.fold(population.load.after, Duration::saturating_add);
            if all > duration {
                return Some(format!(
                    "the stages of `{name}` end after {}, and the run ends after {}",
                    TimeSpan(all),
                    TimeSpan(duration)
                ));
            }
        }
        let last = measure::load::last_start(&population.load)?;
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
        protocols::install();
        let text = format!(
            "clients: {{viewers: {{urls: ['rtsp://127.0.0.1:9/a'], load: {load}}}}}\n{rest}"
        );
        Scenario::parse("test", &text, &Overrides::default())
            .unwrap_or_else(|error| panic!("{error:?}"))
            .warnings()
    }

    #[test]
    fn start_threshold_without_starts_after_warm_up_warns() {
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
    fn run_shorter_than_its_load_warns() {
        let found = warnings("{clients: 10, ramp: 10s}", "duration: 9.5s");
        assert!(found[0].contains("0.5 s before the run ends"), "{found:?}");
        let stages = "{stages: [{clients: 5, over: 2s}, {clients: 0, over: 10s}]}";
        let found = warnings(stages, "duration: 5s");
        assert!(
            found[0].contains("end after 12s, and the run ends after 5s"),
            "{found:?}"
        );
        let found = warnings("{clients: 1}", "duration: 5s\nwarm_up: 4.5s");
        assert!(found[0].contains("measures nothing"), "{found:?}");
    }
}
