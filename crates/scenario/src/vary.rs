//! `vary`: a series of runs of one scenario file, each with other values of some keys.

use std::path::{Path, PathBuf};
use std::time::Duration;

use measure::units::TimeSpan;

use crate::apply::set_at_path;
use crate::axes::{
    Axis, AxisValue, SERIES_KEYS, contains_origin, find_set_outside_file, read_axes,
};
use crate::error::{Problem, ScenarioError};
use crate::model::{Scenario, Setting, StopAt};
use crate::node::{Entry, Node, Value};
use crate::origin::Origin;
use crate::overrides::Overrides;
use crate::{decode, open, section};

/// Default time between two runs of a series: 5 s.
pub const DEFAULT_SETTLE: Duration = Duration::from_secs(5);

/// Maximum number of runs of a series.
const MAX_RUNS: usize = 1_000;

/// Maximum number of tree nodes over all runs, so that checking a series takes seconds at most.
const NODES_MAX: usize = 5_000_000;

/// The runs of a scenario file.
#[derive(Clone, Debug)]
pub enum Plan {
    /// One run.
    Run(Box<Scenario>),
    /// Several runs, one after another.
    Series(Box<Series>),
}

/// Runs of one scenario, one for each combination of the values under `vary`. All of them have been
/// validated.
#[derive(Clone, Debug)]
pub struct Series {
    axes: Vec<Axis>,
    settle: Duration,
    stop_at: StopAt,
    /// Index of the axis whose first passing value is searched for.
    find: Option<usize>,
    name: String,
    root: Node,
    overrides: Overrides,
    folder: Option<PathBuf>,
}

impl Plan {
    /// Reads the scenario file at `path`. Paths relative to the file are resolved.
    pub fn load(path: &Path, overrides: &Overrides) -> Result<Plan, ScenarioError> {
        let (name, text) = open::read(path)?;
        Plan::make(&name, &text, overrides, path.parent())
    }

    /// Reads a scenario from a string; see [`Scenario::parse`].
    pub fn parse(
        source_name: &str,
        text: &str,
        overrides: &Overrides,
    ) -> Result<Plan, ScenarioError> {
        Plan::make(source_name, text, overrides, None)
    }

    fn make(
        source_name: &str,
        text: &str,
        overrides: &Overrides,
        folder: Option<&Path>,
    ) -> Result<Plan, ScenarioError> {
        let (mut root, name) = open::tree(source_name, text)?;
        let mut problems = Vec::new();
        overrides.apply(&mut root, &mut problems);
        if !has(&root, "vary") {
            let mut scenario = decode::decode(&root, &name, overrides, problems)?;
            scenario.resolve(folder);
            return Ok(Plan::Run(Box::new(scenario)));
        }
        let taken = SERIES_KEYS.map(|key| remove_entry(&mut root, key));
        let [vary, find, settle, stop_at] = &taken;
        let axes = vary
            .as_ref()
            .map(|entry| read_axes(entry, &mut problems))
            .unwrap_or_default();
        let settle: Option<TimeSpan> = settle
            .as_ref()
            .and_then(|entry| section::read(&entry.node, "settle", &[], &mut problems));
        let stop_at: Option<StopAt> = stop_at
            .as_ref()
            .and_then(|entry| section::read(&entry.node, "stop_at", &[], &mut problems));
        let find = find
            .as_ref()
            .and_then(|entry| find_axis(entry, &axes, stop_at, &mut problems));
        for axis in &axes {
            problems.extend(find_set_outside_file(axis, &root));
        }
        let series = Series {
            axes,
            settle: settle.map_or(DEFAULT_SETTLE, |span| span.0),
            stop_at: stop_at.unwrap_or_default(),
            find,
            name,
            root,
            overrides: overrides.clone(),
            folder: folder.map(Path::to_owned),
        };
        if problems.is_empty() {
            problems.extend(series.too_large());
        }
        if problems.is_empty() {
            problems = series.problems();
        }
        if problems.is_empty() {
            Ok(Plan::Series(Box::new(series)))
        } else {
            Err(ScenarioError::new(problems))
        }
    }
}

impl Series {
    /// Returns the number of runs. At least one.
    pub fn runs(&self) -> usize {
        self.axes
            .iter()
            .fold(1, |runs, axis| runs.saturating_mul(axis.values.len()))
    }

    /// Returns each varied key with the display texts of its values, in the order of the file.
    pub fn varied(&self) -> Vec<(&str, Vec<String>)> {
        self.axes
            .iter()
            .map(|axis| {
                (
                    axis.key.as_str(),
                    axis.values.iter().map(|value| axis.shown(value)).collect(),
                )
            })
            .collect()
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
        self.chosen(run)
            .into_iter()
            .map(|(axis, value)| Setting {
                key: axis.key.clone(),
                value: axis.shown(value),
            })
            .collect()
    }

    /// Returns the scenario of a run, counted from 0. It was validated when the series was created,
    /// so an error is not expected.
    pub fn scenario(&self, run: usize) -> Result<Scenario, ScenarioError> {
        let mut scenario = self.decode(run)?;
        scenario.resolve(self.folder.as_deref());
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
        for axis in &self.axes {
            let values: Vec<String> = axis.values.iter().map(|one| axis.line(one)).collect();
            lines.push(format!("varies: {}: {}", axis.key, values.join(", ")));
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

    /// Returns the value of each key in a run.
    fn chosen(&self, run: usize) -> Vec<(&Axis, &AxisValue)> {
        let mut rest = run;
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

    fn decode(&self, run: usize) -> Result<Scenario, ScenarioError> {
        let mut root = self.root.clone();
        let mut problems = Vec::new();
        let chosen = self.chosen(run).into_iter();
        for set in chosen.flat_map(|(_, choice)| &choice.assignments) {
            set_at_path(&mut root, &set.path, set.value.clone(), "")
                .unwrap_or_else(|problem| problems.push(problem));
        }
        decode::decode(&root, &self.name, &self.overrides, problems)
    }

    fn too_large(&self) -> Option<Problem> {
        let first = self.axes.first()?;
        let set = |axis: &Axis| axis.values.iter().map(|one| one.assignments.len()).max();
        let set: usize = self.axes.iter().filter_map(set).sum();
        let nodes = self.root.node_count() + set;
        let runs_max = MAX_RUNS.min(NODES_MAX / nodes);
        (self.runs() > runs_max).then(|| {
            Problem::new(
                &first.origin,
                format!("these values make {} runs, which are too many", self.runs()),
            )
            .help(format!("at most {runs_max} are possible here"))
        })
    }

    /// Returns the problems of all runs, each once.
    fn problems(&self) -> Vec<Problem> {
        let mut found: Vec<(Problem, Vec<usize>)> = Vec::new();
        let mut decoded = 0;
        for run in 0..self.runs() {
            decoded += 1;
            let Err(error) = self.decode(run) else {
                continue;
            };
            for problem in error.into_problems() {
                match found
                    .iter_mut()
                    .find(|(known, _)| known.is_same_as(&problem))
                {
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
                if whole || problem.origin().is_some_and(|origin| self.holds(origin)) {
                    return problem;
                }
                let settings: Vec<String> = self
                    .settings(runs[0])
                    .iter()
                    .map(|setting| format!("{}: {}", setting.key, setting.value))
                    .collect();
                let problem = problem.with(&format!("with `{}`: ", settings.join(", ")));
                match self.common_value(&runs) {
                    Some(value) => {
                        problem.with_second_position(&value.node.origin, "with this value")
                    }
                    None => problem,
                }
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

/// Returns the index of the axis that `find` names.
fn find_axis(
    entry: &Entry,
    axes: &[Axis],
    stop_at: Option<StopAt>,
    problems: &mut Vec<Problem>,
) -> Option<usize> {
    let key: String = section::read(&entry.node, "find", &[], problems)?;
    if stop_at == Some(StopAt::Fail) {
        let text = "`find` needs runs that fail, and `stop_at: fail` ends the series after one";
        problems.push(Problem::new(&entry.key_origin, text).help("remove one of them"));
    }
    let found = axes.iter().position(|axis| axis.key == key);
    if found.is_none() {
        let keys: Vec<String> = axes.iter().map(|axis| format!("`{}`", axis.key)).collect();
        problems.push(
            Problem::new(&entry.node.origin, "`find` does not name a varied key")
                .help(format!("varied keys: {}", keys.join(", "))),
        );
    }
    found
}

fn has(root: &Node, key: &str) -> bool {
    matches!(&root.value, Value::Map(entries) if entries.iter().any(|entry| entry.key == key))
}

fn remove_entry(root: &mut Node, key: &str) -> Option<Entry> {
    let Value::Map(entries) = &mut root.value else {
        return None;
    };
    let index = entries.iter().position(|entry| entry.key == key)?;
    Some(entries.remove(index))
}
