//! A capacity search: its goal, and the scenario of each trial.

use std::time::Duration;

use measure::Threshold;
use measure::capacity::{Method, Scale, Settings};
use measure::units::{Ratio, TimeSpan};

use crate::apply::set_at_path;
use crate::capacity_goal::{Goal, SETTLING, short_budget};
use crate::error::{Problem, ScenarioError};
use crate::model::{Scenario, Setting};
use crate::node::{Entry, Node, Value};
use crate::vary::Series;

/// Duration of a run whose plan is only read.
const LONG: Duration = Duration::from_secs(24 * 3600);

/// A search for the largest load at which all thresholds hold: one for each combination of the
/// values under `vary`. The first trial of each has been validated.
#[derive(Clone, Debug)]
pub struct CapacitySearch {
    goal: Goal,
    series: Series,
    /// Explicit thresholds.
    thresholds: Vec<String>,
}

impl CapacitySearch {
    /// Creates the search and validates trials with the first load and at explicit bounds, for each
    /// combination.
    pub(crate) fn new(goal: Goal, series: Series) -> Result<CapacitySearch, Vec<Problem>> {
        let mut search = CapacitySearch {
            goal,
            series,
            thresholds: Vec::new(),
        };
        let (from, hold) = (search.goal.settings.from, search.goal.settings.hold);
        let mut loads = vec![from];
        loads.extend(&search.goal.bounds);
        for load in loads {
            let decode = |combination| search.decode(combination, load, hold);
            let problems = search.series.problems(&decode);
            if !problems.is_empty() {
                return Err(problems);
            }
        }
        let first = search
            .decode(0, from, hold)
            .map_err(ScenarioError::into_problems)?;
        let trial = first.duration.unwrap_or_default() + search.series.settle();
        let mut problems: Vec<Problem> = short_budget(&search.goal, trial).into_iter().collect();
        problems.extend(search.worst_starts(&first));
        let lingers = first
            .server
            .as_ref()
            .is_some_and(|server| server.linger.is_some());
        if search.goal.settings.continuing && lingers {
            let text =
                "`server.linger` observes the server after each trial, and this search continues";
            let origin = &search.goal.entry.key_origin;
            problems.push(Problem::new(origin, text).help("remove `linger` or `continue`"));
        }
        let thresholds = first.thresholds.iter();
        search.thresholds = thresholds.map(|threshold| threshold.text.clone()).collect();
        match problems.is_empty() {
            true => Ok(search),
            false => Err(problems),
        }
    }

    /// Returns the problems of thresholds on the worst second of a metric that is measured only
    /// while clients start: all of them start in the warm-up of a trial.
    fn worst_starts(&self, scenario: &Scenario) -> Vec<Problem> {
        let thresholds = scenario.thresholds.iter();
        let wrong = thresholds.filter(|threshold| {
            let Ok(read) = Threshold::parse(&threshold.text) else {
                return false;
            };
            let mut populations = scenario.populations.iter();
            let population = populations.find(|one| one.name == read.subject());
            let catalogue = population.map(|one| one.config.protocol().catalogue);
            read.reads_worst_window() && catalogue.is_some_and(|own| own.is_start(read.metric()))
        });
        let problems = wrong.map(|threshold| {
            let text = format!(
                "threshold `{}` reads the worst second of the hold, but clients start before it",
                threshold.text
            );
            Problem::new(&self.goal.entry.key_origin, text)
                .help("remove `.worst`: without it, the starts in the ramp count")
        });
        problems.collect()
    }

    /// Returns the dotted key of the load.
    pub fn key(&self) -> &str {
        &self.goal.key
    }

    /// Returns the scale of the loads.
    pub fn scale(&self) -> Scale {
        self.goal.scale
    }

    /// Returns goals and limits of each search.
    pub fn settings(&self) -> &Settings {
        &self.goal.settings
    }

    /// Returns the population whose clients are the load, or `None` if it is something else.
    pub fn population(&self) -> Option<&str> {
        let within = self.goal.key.strip_prefix("clients.")?;
        within.strip_suffix(".load.clients")
    }

    /// Returns the combinations of the values under `vary`: its runs. Without `vary`, there is one.
    pub fn combinations(&self) -> &Series {
        &self.series
    }

    /// Returns the scenario of a trial of a combination, counted from 0. Its warm-up covers ramp
    /// and settling, in which only the starts of clients count.
    ///
    /// # Errors
    /// The load makes the scenario invalid.
    pub fn scenario(
        &self,
        combination: usize,
        load: u64,
        hold: Duration,
    ) -> Result<Scenario, ScenarioError> {
        let mut scenario = self.decode(combination, load, hold)?;
        scenario.resolve(self.series.folder());
        scenario.varied = self.series.settings(combination);
        scenario.varied.push(Setting {
            key: self.goal.key.clone(),
            value: self.goal.scale.text(load),
        });
        Ok(scenario)
    }

    fn decode(
        &self,
        combination: usize,
        load: u64,
        hold: Duration,
    ) -> Result<Scenario, ScenarioError> {
        let of_plan = self.decode_with(combination, load, None, LONG)?;
        let starts = of_plan.populations.iter();
        let starts = starts.filter_map(|population| measure::load::last_start(&population.load));
        let ramp = starts
            .max()
            .map_or(Duration::ZERO, |start| start.since_start());
        let own = Some(of_plan.warm_up).filter(|own| !own.is_zero());
        let warm_up = own.unwrap_or(ramp + SETTLING);
        let mut scenario = self.decode_with(combination, load, Some(warm_up), warm_up + hold)?;
        scenario.starts_in_warm_up = true;
        Ok(scenario)
    }

    /// Decodes the scenario with this load, and with this warm-up and duration.
    fn decode_with(
        &self,
        combination: usize,
        load: u64,
        warm_up: Option<Duration>,
        duration: Duration,
    ) -> Result<Scenario, ScenarioError> {
        self.series.decode_with(combination, |root, problems| {
            let goal = &self.goal;
            set_at_path(root, &goal.path, goal.node(load), "")
                .unwrap_or_else(|problem| problems.push(problem));
            self.set(root, "duration", duration);
            if let Some(warm_up) = warm_up {
                self.set(root, "warm_up", warm_up);
            }
        })
    }

    fn set(&self, root: &mut Node, key: &str, span: Duration) {
        let Value::Map(entries) = &mut root.value else {
            return;
        };
        let origin = &self.goal.entry.node.origin;
        let node = Node::scalar(TimeSpan(span).to_string(), origin.clone());
        entries.retain(|entry| entry.key != key);
        entries.push(Entry::new(key, origin.clone(), node));
    }

    /// Describes the search in sentences, one per line.
    pub fn lines(&self) -> Vec<String> {
        let settings = &self.goal.settings;
        let budget = TimeSpan(settings.budget);
        let text = |load| self.goal.scale.text(load);
        let mut lines = vec![
            format!(
                "capacity: the largest {} at which every threshold holds; from {}, at least {}, at most {}",
                self.goal.key,
                text(settings.from),
                text(settings.min),
                text(settings.max)
            ),
            format!("thresholds: {}", self.thresholds.join(", ")),
            format!(
                "each trial: ramp, {} of settling, then {} that are judged",
                TimeSpan(SETTLING),
                TimeSpan(settings.hold)
            ),
            match settings.method {
                Method::Quick => format!("ends: after eight loads, or {budget}"),
                Method::Interval | Method::List => format!(
                    "ends: when the {} interval is at most {} wide, or after {budget}",
                    Ratio(settings.sure),
                    Ratio(settings.within)
                ),
            },
        ];
        if settings.continuing {
            let text = "continues: clients join and leave a server that is not restarted";
            lines.push(text.to_owned());
        }
        lines.extend(self.series.axis_lines());
        lines
    }
}
