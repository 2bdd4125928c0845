//! The plan of a scenario file: one run, a series, or a search for a capacity.

use std::path::Path;

use measure::units::TimeSpan;

use crate::axes::{Axis, SERIES_KEYS, find_set_outside_file, read_axes};
use crate::capacity_search::CapacitySearch;
use crate::error::{Problem, ScenarioError};
use crate::model::{Scenario, StopAt};
use crate::node::{Entry, Node, Value};
use crate::one_liner::OneLiner;
use crate::overrides::Overrides;
use crate::vary::{DEFAULT_SETTLE, Series};
use crate::{capacity_goal, decode, open, section};

/// The runs of a scenario file.
#[derive(Clone, Debug)]
pub enum Plan {
    /// One run.
    Run(Box<Scenario>),
    /// Several runs, one after another.
    Series(Box<Series>),
    /// Runs with different loads, until the capacity is known.
    Capacity(Box<CapacitySearch>),
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

    /// Builds the plan of a one-line command, which may search for a capacity: `overrides` set its
    /// keys.
    pub fn of_one_liner(line: &OneLiner, overrides: &Overrides) -> Result<Plan, ScenarioError> {
        let (root, name) = line.named_tree()?;
        Plan::of_tree(root, name, overrides, None)
    }

    fn make(
        source_name: &str,
        text: &str,
        overrides: &Overrides,
        folder: Option<&Path>,
    ) -> Result<Plan, ScenarioError> {
        let (root, name) = open::tree(source_name, text)?;
        Plan::of_tree(root, name, overrides, folder)
    }

    fn of_tree(
        mut root: Node,
        name: String,
        overrides: &Overrides,
        folder: Option<&Path>,
    ) -> Result<Plan, ScenarioError> {
        let mut problems = Vec::new();
        overrides.apply(&mut root, &mut problems);
        if !has(&root, "vary") && !has(&root, "capacity") {
            let mut scenario = decode::decode(&root, &name, overrides, problems)?;
            scenario.resolve(folder);
            return Ok(Plan::Run(Box::new(scenario)));
        }
        let taken = SERIES_KEYS.map(|key| remove_entry(&mut root, key));
        let [vary, find, settle, stop_at, capacity] = &taken;
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
        let axis = find
            .as_ref()
            .and_then(|entry| find_axis(entry, &axes, stop_at, &mut problems));
        for axis in &axes {
            problems.extend(find_set_outside_file(axis, &root));
        }
        let goal = capacity.as_ref().and_then(|entry| {
            refuse_with_capacity(&taken, &mut problems);
            capacity_goal::read(entry, &root, &axes, &mut problems)
        });
        let series = Series {
            axes,
            settle: settle.map_or(DEFAULT_SETTLE, |span| span.0),
            stop_at: stop_at.unwrap_or_default(),
            find: axis,
            name,
            root,
            overrides: overrides.clone(),
            folder: folder.map(Path::to_owned),
        };
        if problems.is_empty() {
            problems.extend(series.too_large());
        }
        if let Some(goal) = goal.filter(|_| problems.is_empty()) {
            let search = CapacitySearch::new(goal, series).map_err(ScenarioError::new)?;
            return Ok(Plan::Capacity(Box::new(search)));
        }
        if problems.is_empty() {
            problems = series.problems(&|run| series.decode_with(run, |_, _| {}));
        }
        if problems.is_empty() {
            Ok(Plan::Series(Box::new(series)))
        } else {
            Err(ScenarioError::new(problems))
        }
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

/// Reports keys of a series that a capacity search has no use for.
fn refuse_with_capacity(taken: &[Option<Entry>], problems: &mut Vec<Problem>) {
    for entry in taken.iter().flatten() {
        let text = match entry.key.as_str() {
            "find" => "`find` and `capacity` are two searches",
            "stop_at" => "a capacity search needs trials that fail, so `stop_at` has no meaning",
            _ => continue,
        };
        problems.push(Problem::new(&entry.key_origin, text).help("remove one of them"));
    }
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
