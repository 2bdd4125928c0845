//! The plan of a scenario file: one run, a series, or a search for a capacity.

use std::path::Path;

use measure::units::TimeSpan;

use crate::axes::{Axis, find_set_outside_file, find_set_twice, read_axes};
use crate::capacity_search::CapacitySearch;
use crate::comparison::{self, Comparison};
use crate::error::{Problem, ScenarioError};
use crate::model::{Scenario, StopAt};
use crate::node::{Entry, Node};
use crate::one_liner::OneLiner;
use crate::overrides::Overrides;
use crate::series_keys::{MAKE_SERIES, SERIES_KEYS};
use crate::vary::{DEFAULT_SETTLE, Series};
use crate::{capacity_goal, data_files, decode, open, section};

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
        let (name, text) = open::read(path, "scenario")?;
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
        data_files::inline(&mut root, folder)?;
        if !MAKE_SERIES.iter().any(|key| root.entry(key).is_some()) {
            let mut scenario = decode::decode(&root, &name, overrides, problems)?;
            scenario.resolve(folder);
            return Ok(Plan::Run(Box::new(scenario)));
        }
        let taken = SERIES_KEYS.map(|key| root.remove(key));
        let [
            vary,
            find,
            settle,
            stop_at,
            capacity,
            compare,
            repeat,
            min_effect,
        ] = &taken;
        let mut axes = vary
            .as_ref()
            .map(|entry| read_axes(entry, &mut problems))
            .unwrap_or_default();
        let variants = compare.as_ref();
        let variants = variants.and_then(|entry| comparison::read_variants(entry, &mut problems));
        axes.extend(variants);
        find_set_twice(&axes, &mut problems);
        let compares = compare.is_some();
        let repeat = comparison::read_repeat(repeat.as_ref(), compares, &mut problems);
        let min_effect = comparison::read_min_effect(min_effect.as_ref(), compares, &mut problems);
        refuse_repeated(&taken, &mut problems);
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
        let mut series = Series {
            axes,
            settle: settle.map_or(DEFAULT_SETTLE, |span| span.0),
            stop_at: stop_at.unwrap_or_default(),
            find: axis,
            repeat,
            comparison: compares.then_some(Comparison {
                min_effect,
                begins_with_second: false,
            }),
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
        if !problems.is_empty() {
            return Err(ScenarioError::new(problems));
        }
        if let Some(mut comparison) = series.comparison {
            comparison.begins_with_second = series.scenario(0)?.seed % 2 == 1;
            series.comparison = Some(comparison);
        }
        Ok(Plan::Series(Box::new(series)))
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
        Problem::new(&entry.node.origin, "`find` does not name a varied key")
            .help(format!("varied keys: {}", keys.join(", ")))
            .report(problems);
    }
    found
}

/// Reports keys of a series that a capacity search has no use for.
fn refuse_with_capacity(taken: &[Option<Entry>], problems: &mut Vec<Problem>) {
    for entry in taken.iter().flatten() {
        let text = match entry.key.as_str() {
            "find" => "`find` and `capacity` are two searches",
            "repeat" => "a capacity search repeats trials as needed, so `repeat` has no meaning",
            "stop_at" => "a capacity search needs trials that fail, so `stop_at` has no meaning",
            _ => continue,
        };
        problems.push(Problem::new(&entry.key_origin, text).help("remove one of them"));
    }
}

/// Reports keys that do not fit together with `compare` or `repeat`.
fn refuse_repeated(taken: &[Option<Entry>], problems: &mut Vec<Problem>) {
    let entry = |key: &str| taken.iter().flatten().find(|entry| entry.key == key);
    let compare = entry("compare");
    if let (Some(compare), Some(capacity)) = (compare, entry("capacity")) {
        let text = "`compare` compares runs, and `capacity` makes a search";
        Problem::new(&compare.key_origin, text)
            .with_second_position(&capacity.key_origin, "the search")
            .help("write the two variants as `vary: {cases: [...]}`: there is a search for each")
            .report(problems);
    }
    if let (Some(_), Some(stop)) = (compare, entry("stop_at")) {
        let text = "a comparison needs all its runs, so `stop_at` has no meaning";
        problems.push(Problem::new(&stop.key_origin, text).help("remove it"));
    }
    if let (Some(repeated), Some(find)) = (compare.or(entry("repeat")), entry("find")) {
        let text = format!(
            "`find` makes one run of a value, and `{}` several",
            repeated.key
        );
        problems.push(Problem::new(&find.key_origin, text).help("remove one of them"));
    }
}
