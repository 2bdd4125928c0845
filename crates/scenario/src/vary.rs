//! Series: runs of one scenario file, each with other values of some keys (`vary`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use measure::units::TimeSpan;

use crate::apply::set_at_path;
use crate::axes::{Axis, AxisValue, contains_origin};
use crate::comparison::Comparison;
use crate::decode;
use crate::error::{Problem, ScenarioError};
use crate::model::{Scenario, Setting, StopAt};
use crate::node::Node;
use crate::origin::Origin;
use crate::overrides::Overrides;
use crate::series_keys::COMPARE;

/// Default time between two runs of a series: 5 s.
pub const DEFAULT_SETTLE: Duration = Duration::from_secs(5);

/// Maximum number of runs of a series.
const MAX_RUNS: usize = 1_000;

/// Maximum number of tree nodes over all runs, so that checking a series takes seconds at most.
const NODES_MAX: usize = 5_000_000;

/// Key of the number of a repetition among the settings of a run.
const REPEAT: &str = "repeat";

/// Runs of one scenario, one for each combination of the values under `vary` and `compare`, or as
/// many as `repeat` requests. All of them have been validated.
#[derive(Clone, Debug)]
pub struct Series {
    pub(crate) axes: Vec<Axis>,
    pub(crate) settle: Duration,
    pub(crate) stop_at: StopAt,
    /// Index of the axis whose first passing value is searched for.
    pub(crate) find: Option<usize>,
    /// Number of runs of each combination, at least 1.
    pub(crate) repeat: usize,
    /// Set if the last axis has two variants to compare.
    pub(crate) comparison: Option<Comparison>,
    pub(crate) name: String,
    pub(crate) root: Node,
    pub(crate) overrides: Overrides,
    pub(crate) folder: Option<PathBuf>,
}

impl Series {
    /// Returns the number of runs. At least one.
    pub fn runs(&self) -> usize {
        self.combinations().saturating_mul(self.repeat)
    }

    /// Returns the number of combinations of the values. Runs below this number have one each.
    fn combinations(&self) -> usize {
        self.axes
            .iter()
            .fold(1, |runs, axis| runs.saturating_mul(axis.values.len()))
    }

    /// Returns each varied key with the display texts of its values, in the order of the file.
    pub fn varied(&self) -> Vec<(&str, Vec<String>)> {
        let repetitions = (self.repeat > 1).then(|| {
            let numbers = (1..=self.repeat).map(|number| number.to_string());
            (REPEAT, numbers.collect())
        });
        let axes = self.axes.iter().map(|axis| {
            let values = axis.values.iter().map(|value| axis.shown(value));
            (axis.key.as_str(), values.collect())
        });
        repetitions.into_iter().chain(axes).collect()
    }

    /// Returns how the variants under `compare` are compared, or `None` without any.
    pub fn comparison(&self) -> Option<Comparison> {
        self.comparison
    }

    /// Returns the time between two runs. Default: [`DEFAULT_SETTLE`].
    pub fn settle(&self) -> Duration {
        self.settle
    }

    /// Returns the condition on which the series ends early. Default: [`StopAt::Never`].
    pub fn stop_at(&self) -> StopAt {
        self.stop_at
    }

    /// Returns the key whose first passing value is searched for; `None` if all runs are wanted.
    pub fn find(&self) -> Option<&str> {
        self.find.map(|at| self.axes[at].key.as_str())
    }

    /// Returns the runs of each search, in the order of the searched values. There is one search
    /// for each combination of the other values. Empty if all runs are wanted.
    pub fn searches(&self) -> Vec<Vec<usize>> {
        let Some(at) = self.find else {
            return Vec::new();
        };
        // Distance between the runs of two consecutive values.
        let step: usize = self.axes[at + 1..]
            .iter()
            .map(|axis| axis.values.len())
            .product();
        let values = self.axes[at].values.len();
        let first = (0..self.runs()).filter(|run| (run / step).is_multiple_of(values));
        first
            .map(|run| (0..values).map(|value| run + value * step).collect())
            .collect()
    }

    /// Returns the settings of a run, counted from 0. The first key changes slowest.
    pub fn settings(&self, run: usize) -> Vec<Setting> {
        let repetition = (self.repeat > 1).then(|| Setting {
            key: REPEAT.to_owned(),
            value: (self.repetition(run) + 1).to_string(),
        });
        let chosen = self.chosen(run).into_iter().map(|(axis, value)| Setting {
            key: axis.key.clone(),
            value: axis.shown(value),
        });
        repetition.into_iter().chain(chosen).collect()
    }

    /// Returns the scenario of a run, counted from 0. It was validated when the series was created,
    /// so an error is not expected. Each repetition has a seed of its own, which compared runs
    /// share.
    pub fn scenario(&self, run: usize) -> Result<Scenario, ScenarioError> {
        let mut scenario = self.decode_with(run, |_, _| {})?;
        scenario.resolve(self.folder());
        scenario.seed = scenario.seed.wrapping_add(self.repetition(run) as u64);
        scenario.varied = self.settings(run);
        Ok(scenario)
    }

    /// Describes the series in sentences, one per line.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "series: {} runs, one after the other, with {} between them",
            self.runs(),
            TimeSpan(self.settle)
        )];
        lines.extend(self.axis_lines());
        if self.comparison.is_some() {
            lines.push(format!(
                "compares: the second with the first, {} of each, in alternating order",
                plural_runs(self.repeat)
            ));
        } else if self.repeat > 1 {
            lines.push(format!("repeats: {} of each", plural_runs(self.repeat)));
        }
        if let Some(key) = self.find() {
            lines.push(format!(
                "finds: the first {key} with which a run passes, by binary search: not every run is \
                 needed, if every later value passes too"
            ));
        }
        if self.stop_at == StopAt::Fail {
            lines.push("stops: after the first run that does not pass".to_owned());
        }
        lines
    }

    /// Describes the varied keys, one per line.
    pub(crate) fn axis_lines(&self) -> impl Iterator<Item = String> {
        self.axes.iter().map(|axis| {
            let values: Vec<String> = axis.values.iter().map(|one| axis.line(one)).collect();
            match axis.key.as_str() {
                COMPARE => format!("variants: {}", values.join(", ")),
                key => format!("varies: {key}: {}", values.join(", ")),
            }
        })
    }

    /// Returns the folder of the scenario file.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Returns the number of earlier runs with the same values.
    fn repetition(&self, run: usize) -> usize {
        run / self.combinations()
    }

    /// Returns the value of each key in a run.
    fn chosen(&self, run: usize) -> Vec<(&Axis, &AxisValue)> {
        let place = run % self.combinations();
        let mut rest = match self.comparison {
            // The variants are the last axis, so that the two runs of a pair are neighbours. Pairs
            // alternate: a drift of the machine then does not favour one variant.
            Some(comparison)
                if comparison.begins_with_second ^ !self.repetition(run).is_multiple_of(2) =>
            {
                place ^ 1
            }
            _ => place,
        };
        let mut chosen: Vec<(&Axis, &AxisValue)> = self
            .axes
            .iter()
            .rev()
            .map(|axis| {
                let count = axis.values.len();
                let value = &axis.values[rest % count];
                rest /= count;
                (axis, value)
            })
            .collect();
        chosen.reverse();
        chosen
    }

    /// Decodes the scenario of a run after `change` has changed its tree.
    pub(crate) fn decode_with(
        &self,
        run: usize,
        change: impl Fn(&mut Node, &mut Vec<Problem>),
    ) -> Result<Scenario, ScenarioError> {
        let mut root = self.root.clone();
        let mut problems = Vec::new();
        let chosen = self.chosen(run).into_iter();
        for set in chosen.flat_map(|(_, choice)| &choice.assignments) {
            set_at_path(&mut root, &set.path, set.value.clone(), "")
                .unwrap_or_else(|problem| problems.push(problem));
        }
        change(&mut root, &mut problems);
        decode::decode(&root, &self.name, &self.overrides, problems)
    }

    pub(crate) fn too_large(&self) -> Option<Problem> {
        let first = self.axes.first()?;
        let set = |axis: &Axis| axis.values.iter().map(|one| one.assignments.len()).max();
        let set: usize = self.axes.iter().filter_map(set).sum();
        let nodes = self.root.node_count() + set;
        let runs_max = MAX_RUNS.min(NODES_MAX / nodes);
        (self.runs() > runs_max).then(|| {
            let text = format!("these values make {} runs, which are too many", self.runs());
            Problem::new(&first.origin, text).help(format!("at most {runs_max} are possible here"))
        })
    }

    /// Returns the problems of all runs, each once. `decode` decodes a run.
    pub(crate) fn problems(
        &self,
        decode: &dyn Fn(usize) -> Result<Scenario, ScenarioError>,
    ) -> Vec<Problem> {
        let mut found: Vec<(Problem, Vec<usize>)> = Vec::new();
        let mut decoded = 0;
        for run in 0..self.combinations() {
            decoded += 1;
            let Err(error) = decode(run) else {
                continue;
            };
            for problem in error.into_problems() {
                let mut known = found.iter_mut();
                match known.find(|(known, _)| known.is_same_as(&problem)) {
                    Some((_, runs)) => runs.push(run),
                    None => found.push((problem, vec![run])),
                }
            }
            if found.len() > 20 {
                break;
            }
        }
        found
            .into_iter()
            .map(|(problem, runs)| {
                // A problem of all runs, or at one of the values, needs no further context.
                let whole = runs.len() == decoded && decoded > 1;
                let whole = whole || self.axes.is_empty();
                if whole || problem.origin().is_some_and(|origin| self.holds(origin)) {
                    return problem;
                }
                let settings: Vec<String> = self
                    .settings(runs[0])
                    .iter()
                    .map(|setting| format!("{}: {}", setting.key, setting.value))
                    .collect();
                let problem = problem.with(&format!("with `{}`: ", settings.join(", ")));
                let Some(value) = self.common_value(&runs) else {
                    return problem;
                };
                problem.with_second_position(&value.node.origin, "with this value")
            })
            .collect()
    }

    /// Returns a value that all these runs have in common.
    fn common_value(&self, runs: &[usize]) -> Option<&AxisValue> {
        let chosen: Vec<_> = runs.iter().map(|&run| self.chosen(run)).collect();
        (0..self.axes.len())
            .filter(|&at| self.axes[at].values.len() > 1 || self.axes.len() == 1)
            .find_map(|at| {
                let first = chosen.first()?[at].1;
                let all = chosen
                    .iter()
                    .all(|values| values[at].1.node.origin == first.node.origin);
                all.then_some(first)
            })
    }

    /// Returns `true` if `origin` is at one of the keys or values under `vary`.
    fn holds(&self, origin: &Origin) -> bool {
        self.axes.iter().any(|axis| {
            let mut values = axis.values.iter();
            axis.origin.contains(origin) || values.any(|value| contains_origin(&value.node, origin))
        })
    }
}

fn plural_runs(count: usize) -> String {
    match count {
        1 => "one run".to_owned(),
        count => format!("{count} runs"),
    }
}
