//! Axes of a series (`vary`): keys with their values, and cases that each set several keys.

use serde::Deserialize;

use crate::apply::{PATH_KEYS_MAX, PathKey};
use crate::collector::TypeSyntax;
use crate::error::Problem;
use crate::fields::wrong_type;
use crate::masking::{MASK, is_secret_key, mask_command, mask_text};
use crate::node::{Entry, Node, Value, display_text};
use crate::origin::{Origin, SourceKind};
use crate::section::{self, Deferred, Key};
use crate::series_keys::{COMPARE, SERIES_KEYS};

/// Maximum number of axes of a series.
const MAX_KEYS: usize = 16;

/// Key of the cases under `vary`, and the name of their axis.
const CASES: &str = "cases";
const CASE: &str = "case";

const CASES_FORM: &str = "write each case with its name and the keys that it sets, such as `cases: [{name: Frankfurt, \
     set: {link.rtt: 17ms, link.loss: 0.1%}}]`";

const FORM: &str = "write each key with the values it takes, such as `vary: {clients.viewers.load.clients: [50, 100]}`";

/// A varied key with its values, or a list of cases.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// The dotted key, or [`CASE`].
    pub(crate) key: String,
    pub(crate) values: Vec<AxisValue>,
    pub(crate) origin: Origin,
}

/// One value of an axis.
#[derive(Clone, Debug)]
pub(crate) struct AxisValue {
    /// Value as written.
    pub(crate) node: Node,
    /// Name of a case; `None` for a plain value.
    pub(crate) name: Option<String>,
    /// One assignment of a key, or several of a case.
    pub(crate) assignments: Vec<Assignment>,
}

/// A key and the value that it is set to.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    key: String,
    pub(crate) path: Vec<PathKey>,
    pub(crate) value: Node,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CaseKeys {
    name: Key<String>,
    set: Key<Deferred>,
}

const CASE_FORMS: &[TypeSyntax] = &[(
    "CaseKeys",
    CASES_FORM,
    &[("name", CASES_FORM), ("set", CASES_FORM)],
)];

/// Returns `true` if `origin` lies within the text of `node`.
pub(crate) fn contains_origin(node: &Node, origin: &Origin) -> bool {
    let mut keys = node.entries().iter().map(|entry| &entry.key_origin);
    node.origin.contains(origin)
        || keys.any(|key| key.contains(origin))
        || node.children().any(|child| contains_origin(child, origin))
}

/// Reads the axes of `vary`.
pub(crate) fn read_axes(entry: &Entry, problems: &mut Vec<Problem>) -> Vec<Axis> {
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
        Problem::new(&one.origin, "too many keys are varied")
            .help(format!("at most {MAX_KEYS} are possible"))
            .report(problems);
    }
    axes
}

/// Reports keys that two axes set.
pub(crate) fn find_set_twice(axes: &[Axis], problems: &mut Vec<Problem>) {
    for (index, axis) in axes.iter().enumerate() {
        let twice = |other: &Axis| {
            let keys = axis.assignments().map(|set| &set.key);
            let mut pairs =
                keys.flat_map(|one| other.assignments().map(move |other| (one, &other.key)));
            let (one, other) = pairs.find(|(one, other)| overlap(one, other))?;
            Some((one.clone(), other.clone()))
        };
        let found = axes[..index]
            .iter()
            .find_map(|other| Some((other, twice(other)?)));
        if let Some((other, (own, others))) = found {
            let text = format!(
                "`{}` is already varied with `{}`",
                display_text(&own),
                display_text(&others)
            );
            Problem::new(&axis.origin, text)
                .label("and again here")
                .with_second_position(&other.origin, "first here")
                .help("remove one of them")
                .report(problems);
        }
    }
}

/// Adds an axis for every list. Enclosing mappings are part of the key, as `--set vary.KEY=[...]`
/// creates them.
fn flatten(
    entries: &[Entry],
    above: &[PathKey],
    axes: &mut Vec<Axis>,
    problems: &mut Vec<Problem>,
) {
    for entry in entries {
        let Some((key, path)) = varied_key(entry, above, problems) else {
            continue;
        };
        if key == CASES {
            axes.extend(read_cases(entry, problems));
            continue;
        }
        match &entry.node.value {
            Value::Map(inner) if !inner.is_empty() => flatten(inner, &path, axes, problems),
            Value::List(values) if !values.is_empty() => {
                let choice = |value: &Node| AxisValue {
                    node: value.clone(),
                    name: None,
                    assignments: vec![Assignment {
                        key: key.clone(),
                        path: path.clone(),
                        value: value.clone(),
                    }],
                };
                let axis = Axis {
                    values: values.iter().map(choice).collect(),
                    key: key.clone(),
                    origin: entry.key_origin.clone(),
                };
                // A setting of the command line or the environment replaces that of the file.
                let known = axes.iter_mut().find(|known| known.key == axis.key);
                match known {
                    Some(known) if axis.origin.source.kind != SourceKind::File => {
                        known.values = axis.values;
                    }
                    _ => axes.push(axis),
                }
            }
            Value::List(_) => Problem::new(
                &entry.node.origin,
                format!("`vary.{}` has no value", display_text(&key)),
            )
            .help(FORM)
            .report(problems),
            _ => wrong_type(
                &entry.node,
                &format!("vary.{}", display_text(&key)),
                "a list of values",
            )
            .help(FORM)
            .report(problems),
        }
    }
}

/// Returns the dotted key of an entry below the keys `above`, and its parts; `None` after reporting
/// a key that cannot be varied.
fn varied_key(
    entry: &Entry,
    above: &[PathKey],
    problems: &mut Vec<Problem>,
) -> Option<(String, Vec<PathKey>)> {
    let path = [above, &split_key(entry)].concat();
    if path.len() > PATH_KEYS_MAX {
        problems.push(Problem::new(&entry.key_origin, "this path is too long"));
        return None;
    }
    (!is_series_key(&path, problems)).then(|| (dotted(&path), path))
}

/// Joins the parts of a dotted key.
pub(crate) fn dotted(path: &[PathKey]) -> String {
    let keys: Vec<&str> = path.iter().map(|key| key.key.as_str()).collect();
    keys.join(".")
}

/// Returns `true` and reports a problem if a key belongs to the whole series.
pub(crate) fn is_series_key(path: &[PathKey], problems: &mut Vec<Problem>) -> bool {
    let Some(first) = path.first() else {
        return false;
    };
    let key = first.key.as_str();
    let is = SERIES_KEYS.contains(&key) || key == "name";
    if is {
        Problem::new(&first.origin, format!("`{key}` cannot be varied"))
            .help("all runs of a series share it; vary a key of a single run")
            .report(problems);
    }
    is
}

/// Returns `true` if setting one of two keys also sets the other.
fn overlap(one: &str, other: &str) -> bool {
    one == other || one.starts_with(&format!("{other}.")) || other.starts_with(&format!("{one}."))
}

/// Reads the cases of a series, each with a name and assignments.
fn read_cases(entry: &Entry, problems: &mut Vec<Problem>) -> Option<Axis> {
    let items = match &entry.node.value {
        Value::List(items) if !items.is_empty() => items,
        _ => {
            let wrong = wrong_type(&entry.node, "vary.cases", "a list of cases");
            problems.push(wrong.help(CASES_FORM));
            return None;
        }
    };
    let mut values: Vec<AxisValue> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let path = format!("vary.cases.{index}");
        let keys: Option<CaseKeys> = section::read(item, &path, CASE_FORMS, problems);
        let (Some(name), Some(set)) = (keys.and_then(|keys| keys.name.0), item.entry("set")) else {
            continue;
        };
        let mut others = values.iter();
        if let Some(other) = others.find(|other| other.name.as_ref() == Some(&name)) {
            let text = format!("two cases have the name `{}`", display_text(&name));
            Problem::new(&item.origin, text)
                .with_second_position(&other.node.origin, "first here")
                .help("give each case its own name, so that tables can distinguish them")
                .report(problems);
        }
        values.push(AxisValue {
            node: item.clone(),
            name: Some(name),
            assignments: read_assignments(set, &format!("{path}.set"), CASES_FORM, problems),
        });
    }
    Some(Axis {
        key: CASE.to_owned(),
        values,
        origin: entry.key_origin.clone(),
    })
}

/// Reads assignments: dotted keys and their values. `form` describes them. There may be none, which
/// leaves the scenario as it is.
pub(crate) fn read_assignments(
    set: &Entry,
    path: &str,
    form: &str,
    problems: &mut Vec<Problem>,
) -> Vec<Assignment> {
    let entries = match &set.node.value {
        Value::Map(entries) => entries,
        _ => {
            let wanted = "a mapping of keys to values";
            problems.push(wrong_type(&set.node, path, wanted).help(form));
            return Vec::new();
        }
    };
    let mut found: Vec<Assignment> = Vec::new();
    for entry in entries {
        let Some((key, path)) = varied_key(entry, &[], problems) else {
            continue;
        };
        if let Some(other) = found.iter().find(|other| overlap(&other.key, &key)) {
            let text = format!(
                "`{}` is already set with `{}`",
                display_text(&key),
                display_text(&other.key)
            );
            problems.push(Problem::new(&entry.key_origin, text).help("remove one of them"));
        }
        found.push(Assignment {
            key,
            path,
            value: entry.node.clone(),
        });
    }
    found
}

/// Splits a dotted key into its parts, each with its origin.
pub(crate) fn split_key(entry: &Entry) -> Vec<PathKey> {
    let origin = &entry.key_origin;
    // The key may follow a quote. If it has escapes, each part gets the origin of the whole key.
    let begin = origin.text().find(&entry.key);
    let mut at = 0;
    entry
        .key
        .split('.')
        .map(|part| {
            let origin = match begin {
                Some(begin) => origin.part(begin + at, part.len().max(1)),
                None => origin.clone(),
            };
            at += part.len() + 1;
            PathKey {
                key: part.trim().to_owned(),
                origin,
            }
        })
        .collect()
}

/// Reports a key that is varied and also set outside the file: one value would win silently.
pub(crate) fn find_set_outside_file(axis: &Axis, root: &Node) -> Option<Problem> {
    axis.assignments()
        .find_map(|set| assignment_set_outside_file(axis, set, root))
}

fn assignment_set_outside_file(axis: &Axis, set: &Assignment, root: &Node) -> Option<Problem> {
    let origin = origin_outside_file(value_at(root, &set.path)?)?;
    let text = format!("`{}` is varied, and also set here", display_text(&set.key));
    Some(Problem::new(origin, text).help(match axis.key == COMPARE {
        true => "for runs with this value alone, remove the comparison: `--set compare=`",
        false => {
            "for a single run with this value, remove the series: `--set vary=`; for other \
             values, set those: `--set vary.KEY=[...]`"
        }
    }))
}

/// Returns the value at a path; `None` if there is none.
pub(crate) fn value_at<'a>(root: &'a Node, path: &[PathKey]) -> Option<&'a Node> {
    path.iter().try_fold(root, |node, key| match &node.value {
        Value::List(items) => items.get(key.key.parse::<usize>().ok()?),
        _ => node.entry(&key.key).map(|entry| &entry.node),
    })
}

/// Returns the first origin within `node` that is not the scenario file.
fn origin_outside_file(node: &Node) -> Option<&Origin> {
    if node.origin.source.kind != SourceKind::File {
        return Some(&node.origin);
    }
    node.children().find_map(origin_outside_file)
}

impl Axis {
    /// Returns the display text of a value for tables, file names and the index. Secrets are
    /// numbered, so that runs can be distinguished.
    pub(crate) fn shown(&self, value: &AxisValue) -> String {
        if let Some(name) = &value.name {
            return display_text(&mask_text(name));
        }
        if is_secret_key(&self.key) {
            let at = self
                .values
                .iter()
                .position(|other| other.node.origin == value.node.origin);
            return format!("{MASK}{}", at.map_or(0, |at| at + 1));
        }
        value_text(&value.node, &self.key)
    }

    /// Returns the display text of a value; for a case, with its assignments.
    pub(crate) fn line(&self, value: &AxisValue) -> String {
        let line = self.shown(value);
        if value.assignments.is_empty() || value.name.is_none() {
            return line;
        }
        let sets = value.assignments.iter();
        let sets: Vec<String> = sets
            .map(|set| format!("{}: {}", set.key, value_text(&set.value, &set.key)))
            .collect();
        format!("{line} ({})", sets.join(", "))
    }

    /// Returns `true` if a value sets `key`, a part of it, or more than it.
    pub(crate) fn sets(&self, key: &str) -> bool {
        self.assignments().any(|set| overlap(&set.key, key))
    }

    /// Returns the assignments of all values.
    fn assignments(&self) -> impl Iterator<Item = &Assignment> {
        self.values.iter().flat_map(|value| &value.assignments)
    }
}

/// Formats a value of the dotted key `key` in one line, with masked secrets.
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
            // In a command, the word after an option can be a secret.
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
    display_text(&text)
}
