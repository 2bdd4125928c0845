//! Applies single settings to the tree of a scenario file.

use std::sync::Arc;

use crate::collector::join_path;
use crate::decode::ScenarioKeys;
use crate::error::Problem;
use crate::link_keys::LinkKeys;
use crate::node::{Entry, Node, Value, display_text};
use crate::origin::{Origin, SourceKind, SourceText};
use crate::overrides::{ENVIRONMENT_PREFIX, Overrides};
use crate::population::PopulationKeys;
use crate::server::ServerKeys;
use crate::tester::{HealthKeys, TesterKeys};
use crate::{section, yaml};
use measure::nearest::{nearest, suggest};

/// Maximum number of keys in a path.
pub(crate) const PATH_KEYS_MAX: usize = 32;

impl Overrides {
    /// Applies all settings to `root`. Later ones win: environment, `--set`, options.
    pub(crate) fn apply(&self, root: &mut Node, problems: &mut Vec<Problem>) {
        for (name, value) in &self.environment {
            let text = format!("{name}={value}");
            let source = SourceText::new(SourceKind::Environment, name.as_str(), text);
            let path = name.strip_prefix(ENVIRONMENT_PREFIX).unwrap_or(name);
            let path = path.to_lowercase();
            let path_at = name.len() - path.len();
            let keys = path_keys(&source, &path, "__", path_at);
            if !section::keys::<ScenarioKeys>().contains(&keys[0].key.as_str()) {
                problems.push(self.unknown_variable(root, name, &path, &keys[0]));
                continue;
            }
            apply_setting(root, &source, &keys, name.len() + 1)
                .unwrap_or_else(|p| problems.push(p));
        }
        for setting in &self.set {
            let source = SourceText::new(SourceKind::Set, "--set", format!("--set {setting}"));
            let at = "--set ".len();
            let Some((path, _)) = setting.split_once('=') else {
                Problem::new(&Origin::new(&source, at, usize::MAX), "there is no `=`")
                    .help("write it as `--set KEY=VALUE`, such as `--set duration=60s`")
                    .report(problems);
                continue;
            };
            let keys = path_keys(&source, path, ".", at);
            apply_setting(root, &source, &keys, at + path.len() + 1)
                .unwrap_or_else(|p| problems.push(p));
        }
        for setting in &self.options {
            let value = option_value(&setting.option, &setting.value);
            let keys = keys_at(&setting.key, &Origin::whole(&value.origin.source));
            set_at_path(root, &keys, value, "").unwrap_or_else(|p| problems.push(p));
        }
        let added = self.thresholds.iter();
        let added = added.map(|text| option_value("--threshold", text));
        let added: Vec<Node> = added.collect();
        if !added.is_empty() {
            self.add_thresholds(root, added, problems);
        }
    }

    /// Returns the problem of a variable that sets no key, with the nearest known variable as help.
    fn unknown_variable(&self, root: &Node, name: &str, path: &str, at: &PathKey) -> Problem {
        let nested = |outer: &str, keys: &[&str]| -> Vec<String> {
            keys.iter().map(|key| format!("{outer}__{key}")).collect()
        };
        let top = section::keys::<ScenarioKeys>().iter();
        let mut known: Vec<String> = top.map(|&key| key.to_owned()).collect();
        known.extend(nested("tester", section::keys::<TesterKeys>()));
        known.extend(nested("tester__health", section::keys::<HealthKeys>()));
        known.extend(nested("link", section::keys::<LinkKeys>()));
        known.extend(nested("server", section::keys::<ServerKeys>()));
        known.extend(self.reserved.iter().filter_map(|name| {
            let rest = name.strip_prefix(ENVIRONMENT_PREFIX)?;
            Some(rest.to_lowercase())
        }));
        for population in root.get("clients").map_or(&[][..], Node::entries) {
            let outer = format!("clients__{}", population.key);
            known.extend(nested(&outer, section::keys::<PopulationKeys>()));
        }
        let help = match nearest(path, known.iter().map(String::as_str)) {
            Some(near) => format!(
                "did you mean `{ENVIRONMENT_PREFIX}{}`?",
                near.to_uppercase()
            ),
            None => format!(
                "write a key in capitals, with two underscores for each dot, such as \
                 `{ENVIRONMENT_PREFIX}TESTER__RECEIVE`; unset `{name}` if it is not meant for this program"
            ),
        };
        let text = format!("unknown key `{}`", display_text(&at.key));
        Problem::new(&at.origin, text)
            .label("not a key here")
            .help(help)
    }

    fn add_thresholds(&self, root: &mut Node, added: Vec<Node>, problems: &mut Vec<Problem>) {
        let Value::Map(entries) = &mut root.value else {
            return;
        };
        let Some(entry) = entries.iter_mut().find(|entry| entry.key == "thresholds") else {
            let origin = added[0].origin.clone();
            entries.push(Entry::new(
                "thresholds",
                origin.clone(),
                Node::list(added, origin),
            ));
            return;
        };
        match &mut entry.node.value {
            Value::List(items) => items.extend(added),
            Value::Null => entry.node.value = Value::List(added),
            _ => Problem::new(&entry.node.origin, "`thresholds` is not a list")
                .help("write `thresholds: [\"viewers.loss < 1%\"]`")
                .report(problems),
        }
    }
}

/// Creates the value of a command-line option, with the option as its origin.
pub(crate) fn option_value(name: &str, value: &str) -> Node {
    let source = SourceText::new(SourceKind::Option, name, format!("{name} {value}"));
    let origin = Origin::new(&source, name.len() + 1, usize::MAX);
    Node::scalar(value, origin)
}

/// A key of a path and its origin.
#[derive(Clone, Debug)]
pub(crate) struct PathKey {
    pub(crate) key: String,
    pub(crate) origin: Origin,
}

/// Splits a dotted key, all parts of which come from one place.
pub(crate) fn keys_at(path: &str, origin: &Origin) -> Vec<PathKey> {
    let keys = path.split('.').map(|key| PathKey {
        key: key.to_owned(),
        origin: origin.clone(),
    });
    keys.collect()
}

fn path_keys(source: &Arc<SourceText>, path: &str, separator: &str, at: usize) -> Vec<PathKey> {
    let mut at = at;
    path.split(separator)
        .map(|key| {
            let origin = Origin::new(source, at, at + key.len());
            at += key.len() + separator.len();
            PathKey {
                key: key.trim().to_owned(),
                origin,
            }
        })
        .collect()
}

fn apply_setting(
    root: &mut Node,
    source: &Arc<SourceText>,
    keys: &[PathKey],
    value_at: usize,
) -> Result<(), Problem> {
    let value = yaml::parse(source, value_at)?;
    if keys.len() > PATH_KEYS_MAX {
        return Err(Problem::new(&keys[0].origin, "this path is too long"));
    }
    set_at_path(root, keys, value, "")
}

/// Sets the value at a path and creates missing mappings.
pub(crate) fn set_at_path(
    node: &mut Node,
    keys: &[PathKey],
    value: Node,
    path: &str,
) -> Result<(), Problem> {
    let Some((key, rest)) = keys.split_first() else {
        *node = value;
        return Ok(());
    };
    if key.key.is_empty() {
        return Err(Problem::new(&key.origin, "a key is missing here").help(
            "write the keys with dots between them, such as `clients.viewers.load.clients`",
        ));
    }
    let inner = join_path(path, &key.key);
    match &mut node.value {
        Value::List(items) => {
            let count = items.len();
            let index = key.key.parse::<usize>().ok().filter(|at| *at <= count);
            let Some(index) = index else {
                let text = format!(
                    "`{path}` is a list of {count}, and has no item `{}`",
                    display_text(&key.key)
                );
                return Err(Problem::new(&key.origin, text)
                    .help(format!("items are numbered from 0; {count} adds one")));
            };
            if index == count {
                items.push(Node::null(key.origin.clone()));
            }
            set_at_path(&mut items[index], rest, value, &inner)
        }
        Value::Null | Value::Map(_) => {
            if matches!(node.value, Value::Null) {
                *node = Node::map(Vec::new(), key.origin.clone());
            }
            let Value::Map(entries) = &mut node.value else {
                return Ok(());
            };
            let index = entries.iter().position(|entry| entry.key == key.key);
            if rest.is_empty() && value.value == Value::Null {
                // `duration=` removes the key.
                if let Some(index) = index {
                    entries.remove(index);
                }
                return Ok(());
            }
            let index = match index {
                Some(index) => index,
                // An unknown population would only be reported to lack its required keys.
                None if path == "clients" && !entries.is_empty() && !rest.is_empty() => {
                    let text = format!("there is no population `{}`", display_text(&key.key));
                    return Err(Problem::new(&key.origin, text).help(suggest(
                        &key.key,
                        entries.iter().map(|entry| entry.key.as_str()),
                    )));
                }
                None => {
                    let empty = Node::null(key.origin.clone());
                    entries.push(Entry::new(key.key.clone(), key.origin.clone(), empty));
                    entries.len() - 1
                }
            };
            set_at_path(&mut entries[index].node, rest, value, &inner)
        }
        Value::Scalar { .. } => Err(Problem::new(
            &key.origin,
            format!(
                "`{path}` is {}, and has no key `{}`",
                node.describe(),
                display_text(&key.key)
            ),
        )
        .help(format!("set `{path}` as a whole"))),
    }
}
