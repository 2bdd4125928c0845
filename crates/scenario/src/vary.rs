//! `vary`: one scenario file, several runs, of which each sets some keys otherwise.

use std::path::{Path, PathBuf};
use std::time::Duration;

use measure::units::TimeSpan;

use crate::apply::{MAX_PLACES, Place, put};
use crate::error::{Problem, ScenarioError};
use crate::fields::wrong_type;
use crate::masking::{MASK, is_secret_key, mask_command, mask_text};
use crate::model::{Scenario, Setting, StopAt};
use crate::node::{Entry, Node, Value, shown};
use crate::overrides::Overrides;
use crate::source::{Origin, SourceKind};
use crate::{open, read, section};

/// The time between two runs of a series, unless the scenario says otherwise: 5 s.
pub const DEFAULT_SETTLE: Duration = Duration::from_secs(5);

/// The most runs of one series.
const MAX_RUNS: usize = 1_000;

/// The most keys that are varied in one series.
const MAX_KEYS: usize = 16;

/// The most nodes of the tree, over all runs: so that checking a series takes seconds at most.
const MAX_WEIGHT: usize = 5_000_000;

/// The keys that make a series of a scenario.
const KEYS: [&str; 3] = ["vary", "settle", "stop_at"];

const FORM: &str = "write each key with the values it takes, such as `vary: {clients.viewers.load.clients: [50, 100]}`";

/// What a scenario file asks for.
#[derive(Clone, Debug)]
pub enum Plan {
    /// One run.
    Run(Box<Scenario>),
    /// Several runs, one after the other.
    Series(Box<Series>),
}

/// Several runs of one scenario: one for each combination of the values under `vary`. Every one of
/// them has been checked.
#[derive(Clone, Debug)]
pub struct Series {
    axes: Vec<Axis>,
    settle: Duration,
    stop_at: StopAt,
    name: String,
    root: Node,
    overrides: Overrides,
    folder: Option<PathBuf>,
}

/// A key and the values it takes.
#[derive(Clone, Debug)]
struct Axis {
    key: String,
    places: Vec<Place>,
    values: Vec<Node>,
    /// Where it was written.
    origin: Origin,
}

impl Plan {
    /// Reads the scenario file at `path`. What it names relative to itself is resolved.
    pub fn load(path: &Path, overrides: &Overrides) -> Result<Plan, ScenarioError> {
        let (name, text) = open::read(path)?;
        Plan::make(&name, &text, overrides, path.parent())
    }

    /// Reads a scenario from a text; see [`Scenario::parse`].
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
            let mut scenario = read::whole(&root, &name, overrides, problems)?;
            scenario.resolve(folder);
            return Ok(Plan::Run(Box::new(scenario)));
        }
        let taken = KEYS.map(|key| take(&mut root, key));
        let [vary, settle, stop_at] = &taken;
        let axes = vary
            .as_ref()
            .map(|entry| axes(entry, &mut problems))
            .unwrap_or_default();
        let settle: Option<TimeSpan> = settle
            .as_ref()
            .and_then(|entry| section::read(&entry.node, "settle", &[], &mut problems));
        let stop_at: Option<StopAt> = stop_at
            .as_ref()
            .and_then(|entry| section::read(&entry.node, "stop_at", &[], &mut problems));
        for axis in &axes {
            problems.extend(set_elsewhere(axis, &root));
        }
        let series = Series {
            axes,
            settle: settle.map_or(DEFAULT_SETTLE, |span| span.0),
            stop_at: stop_at.unwrap_or_default(),
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
    /// How many runs it has. At least one.
    pub fn runs(&self) -> usize {
        self.axes
            .iter()
            .fold(1, |runs, axis| runs.saturating_mul(axis.values.len()))
    }

    /// What is varied: each key with its values as they are shown, in the order of the file.
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

    /// How long to wait between two runs. Default: [`DEFAULT_SETTLE`].
    pub fn settle(&self) -> Duration {
        self.settle
    }

    /// When it ends before its last run. Default: [`StopAt::Never`].
    pub fn stop_at(&self) -> StopAt {
        self.stop_at
    }

    /// What a run sets, counted from 0: the first key changes slowest.
    pub fn settings(&self, run: usize) -> Vec<Setting> {
        self.chosen(run)
            .into_iter()
            .map(|(axis, value)| Setting {
                key: axis.key.clone(),
                value: axis.shown(value),
            })
            .collect()
    }

    /// The scenario of a run, counted from 0. It was checked when the series was made, so an error
    /// is not to be expected.
    pub fn scenario(&self, run: usize) -> Result<Scenario, ScenarioError> {
        let mut scenario = self.decode(run)?;
        scenario.resolve(self.folder.as_deref());
        scenario.varied = self.settings(run);
        Ok(scenario)
    }

    /// What it will do, in sentences, one a line.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "series: {} runs, one after the other, with {} between them",
            self.runs(),
            TimeSpan(self.settle)
        )];
        for (key, values) in self.varied() {
            lines.push(format!("varies: {key}: {}", values.join(", ")));
        }
        if self.stop_at == StopAt::Fail {
            lines.push("stops: after the first run that does not pass".to_owned());
        }
        lines
    }

    /// The value of each key in a run.
    fn chosen(&self, run: usize) -> Vec<(&Axis, &Node)> {
        let mut rest = run;
        let mut chosen: Vec<(&Axis, &Node)> = self
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
        for (axis, value) in self.chosen(run) {
            put(&mut root, &axis.places, value.clone(), "")
                .unwrap_or_else(|problem| problems.push(problem));
        }
        read::whole(&root, &self.name, &self.overrides, problems)
    }

    fn too_large(&self) -> Option<Problem> {
        let first = self.axes.first()?;
        let weight = self.root.weight() + self.axes.len();
        let most = MAX_RUNS.min(MAX_WEIGHT / weight);
        (self.runs() > most).then(|| {
            Problem::new(
                &first.origin,
                format!("these values make {} runs, which are too many", self.runs()),
            )
            .help(format!("at most {most} are possible here"))
        })
    }

    /// What is wrong with any of its runs, each thing once.
    fn problems(&self) -> Vec<Problem> {
        let mut found: Vec<(Problem, Vec<usize>)> = Vec::new();
        let mut looked = 0;
        for run in 0..self.runs() {
            looked += 1;
            let Err(error) = self.decode(run) else {
                continue;
            };
            for problem in error.into_problems() {
                match found.iter_mut().find(|(known, _)| known.is_like(&problem)) {
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
                // What is wrong with every run, or at one of the values, says enough.
                let whole = runs.len() == looked && looked > 1;
                if whole || problem.origin().is_some_and(|origin| self.holds(origin)) {
                    return problem;
                }
                let settings: Vec<String> = self
                    .settings(runs[0])
                    .iter()
                    .map(|setting| format!("{}: {}", setting.key, setting.value))
                    .collect();
                let problem = problem.with(&format!("with `{}`: ", settings.join(", ")));
                match self.common(&runs) {
                    Some(value) => problem.other(&value.origin, "with this value"),
                    None => problem,
                }
            })
            .collect()
    }

    /// The one value that these runs have in common, and no other run has.
    fn common(&self, runs: &[usize]) -> Option<&Node> {
        let chosen: Vec<_> = runs.iter().map(|&run| self.chosen(run)).collect();
        (0..self.axes.len())
            .filter(|&at| self.axes[at].values.len() > 1 || self.axes.len() == 1)
            .find_map(|at| {
                let first = chosen.first()?[at].1;
                let all = chosen
                    .iter()
                    .all(|values| values[at].1.origin == first.origin);
                all.then_some(first)
            })
    }

    /// Whether a place is one of the keys or values under `vary`.
    fn holds(&self, origin: &Origin) -> bool {
        self.axes.iter().any(|axis| {
            axis.origin.contains(origin) || axis.values.iter().any(|value| within(value, origin))
        })
    }
}

fn within(node: &Node, origin: &Origin) -> bool {
    node.origin.contains(origin)
        || match &node.value {
            Value::Null | Value::Scalar { .. } => false,
            Value::List(items) => items.iter().any(|item| within(item, origin)),
            Value::Map(entries) => entries
                .iter()
                .any(|entry| entry.key_origin.contains(origin) || within(&entry.node, origin)),
        }
}

fn has(root: &Node, key: &str) -> bool {
    matches!(&root.value, Value::Map(entries) if entries.iter().any(|entry| entry.key == key))
}

fn take(root: &mut Node, key: &str) -> Option<Entry> {
    let Value::Map(entries) = &mut root.value else {
        return None;
    };
    let index = entries.iter().position(|entry| entry.key == key)?;
    Some(entries.remove(index))
}

fn axes(entry: &Entry, problems: &mut Vec<Problem>) -> Vec<Axis> {
    let Value::Map(entries) = &entry.node.value else {
        problems.push(wrong_type(&entry.node, "vary", "a mapping").help(FORM));
        return Vec::new();
    };
    let mut axes = Vec::new();
    flatten(entries, &[], &mut axes, problems);
    if axes.is_empty() && problems.is_empty() {
        problems.push(Problem::new(&entry.node.origin, "`vary` names no key").help(FORM));
    }
    if let Some(one) = axes.get(MAX_KEYS) {
        problems.push(
            Problem::new(&one.origin, "too many keys are varied")
                .help(format!("at most {MAX_KEYS} are possible")),
        );
    }
    for (index, axis) in axes.iter().enumerate() {
        let inside = |other: &&Axis| {
            let (one, other) = (&axis.key, &other.key);
            one == other
                || one.starts_with(&format!("{other}."))
                || other.starts_with(&format!("{one}."))
        };
        if let Some(other) = axes[..index].iter().find(inside) {
            problems.push(
                Problem::new(
                    &axis.origin,
                    format!(
                        "`{}` is varied with `{}` already",
                        shown(&axis.key),
                        shown(&other.key)
                    ),
                )
                .label("and again here")
                .other(&other.origin, "first here")
                .help("take one of them out"),
            );
        }
    }
    axes
}

/// Every list is a key's values; mappings on the way are part of the key, as `--set vary.KEY=[...]`
/// makes them.
fn flatten(entries: &[Entry], above: &[Place], axes: &mut Vec<Axis>, problems: &mut Vec<Problem>) {
    for entry in entries {
        let mut path = above.to_vec();
        path.extend(places(entry));
        let key = path
            .iter()
            .map(|place| place.key.as_str())
            .collect::<Vec<_>>()
            .join(".");
        if path.len() > MAX_PLACES {
            problems.push(Problem::new(&entry.key_origin, "this path is too long"));
            continue;
        }
        let first = path.first().map_or("", |place| place.key.as_str());
        if KEYS.contains(&first) || first == "name" {
            problems.push(
                Problem::new(&entry.key_origin, format!("`{first}` cannot be varied"))
                    .help("it is the same for all runs of a series; vary what one run is told"),
            );
            continue;
        }
        match &entry.node.value {
            Value::Map(inner) if !inner.is_empty() => flatten(inner, &path, axes, problems),
            Value::List(values) if !values.is_empty() => {
                let axis = Axis {
                    key,
                    places: path,
                    values: values.clone(),
                    origin: entry.key_origin.clone(),
                };
                // A setting of the command line or the environment takes the place of the file's.
                let known = axes.iter_mut().find(|known| known.key == axis.key);
                match known {
                    Some(known) if axis.origin.source.kind != SourceKind::File => {
                        known.values = axis.values;
                    }
                    _ => axes.push(axis),
                }
            }
            Value::List(_) => problems.push(
                Problem::new(
                    &entry.node.origin,
                    format!("`vary.{}` has no value", shown(&key)),
                )
                .help(FORM),
            ),
            _ => problems.push(
                wrong_type(
                    &entry.node,
                    &format!("vary.{}", shown(&key)),
                    "a list of values",
                )
                .help(FORM),
            ),
        }
    }
}

/// The parts of a dotted key, each with its place.
fn places(entry: &Entry) -> Vec<Place> {
    let origin = &entry.key_origin;
    // Quotes stand before it, and escapes leave no place for a part.
    let begin = origin.text().find(&entry.key);
    let mut at = 0;
    entry
        .key
        .split('.')
        .map(|part| {
            let place = match begin {
                Some(begin) => origin.part(begin + at, part.len().max(1)),
                None => origin.clone(),
            };
            at += part.len() + 1;
            Place {
                key: part.trim().to_owned(),
                origin: place,
            }
        })
        .collect()
}

/// A key that is varied and set from outside: one of them would win without a word.
fn set_elsewhere(axis: &Axis, root: &Node) -> Option<Problem> {
    let mut node = root;
    for place in &axis.places {
        let inner = match &node.value {
            Value::Map(entries) => entries
                .iter()
                .find(|entry| entry.key == place.key)
                .map(|entry| &entry.node),
            Value::List(items) => place.key.parse::<usize>().ok().and_then(|at| items.get(at)),
            _ => None,
        };
        node = inner?;
    }
    let origin = outside(node)?;
    Some(
        Problem::new(
            origin,
            format!("`{}` is varied, and set here", shown(&axis.key)),
        )
        .help(
            "for one run with this value, take the rest out: `--set vary=`; for other values, \
             set those: `--set vary.KEY=[...]`",
        ),
    )
}

/// The place of what does not come from the file.
fn outside(node: &Node) -> Option<&Origin> {
    if node.origin.source.kind != SourceKind::File {
        return Some(&node.origin);
    }
    match &node.value {
        Value::Null | Value::Scalar { .. } => None,
        Value::List(items) => items.iter().find_map(outside),
        Value::Map(entries) => entries.iter().find_map(|entry| outside(&entry.node)),
    }
}

impl Axis {
    /// One of its values as tables, file names and the index show it. Secrets are numbered, so that
    /// runs can still be told apart.
    fn shown(&self, value: &Node) -> String {
        if is_secret_key(&self.key) {
            let at = self
                .values
                .iter()
                .position(|other| other.origin == value.origin);
            return format!("{MASK}{}", at.map_or(0, |at| at + 1));
        }
        value_text(value, &self.key)
    }
}

/// A value of that dotted key in one line, without secrets.
fn value_text(node: &Node, key: &str) -> String {
    let text = match &node.value {
        Value::Null => "-".to_owned(),
        _ if is_secret_key(key) => MASK.to_owned(),
        Value::Scalar { text, .. } => mask_text(text),
        Value::List(items) => {
            let items: Vec<String> = items
                .iter()
                .take(10)
                .enumerate()
                .map(|(index, item)| value_text(item, &format!("{key}.{index}")))
                .collect();
            // Those of a command: an option's value is the next word.
            let items = match key {
                "server.command" => mask_command(&items),
                _ => items,
            };
            format!("[{}]", items.join(", "))
        }
        Value::Map(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .take(10)
                .map(|entry| {
                    let key = format!("{key}.{}", entry.key);
                    format!("{}: {}", entry.key, value_text(&entry.node, &key))
                })
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
    };
    shown(&text)
}
