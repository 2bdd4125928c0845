//! Takes a mapping apart key by key, and collects what is wrong with it.

use crate::error::Problem;
use crate::nearest::suggest;
use crate::node::{Entry, Node, Value, shown};

/// A mapping and its place in the scenario.
pub(crate) struct Fields<'a> {
    entries: &'a [Entry],
    taken: Vec<bool>,
    /// The dotted path of the mapping; empty at the top.
    path: String,
    pub(crate) node: &'a Node,
}

impl<'a> Fields<'a> {
    /// The mapping that `node` is. `what` says what it should have been.
    pub(crate) fn of(
        node: &'a Node,
        path: &str,
        what: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<Fields<'a>> {
        let Value::Map(entries) = &node.value else {
            problems.push(wrong_type(node, path, "a mapping").help(what));
            return None;
        };
        Some(Fields {
            entries,
            taken: vec![false; entries.len()],
            path: path.to_owned(),
            node,
        })
    }

    /// The dotted path of one of its keys.
    pub(crate) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    pub(crate) fn entry(&mut self, key: &str) -> Option<&'a Entry> {
        let index = self.entries.iter().position(|entry| entry.key == key)?;
        self.taken[index] = true;
        Some(&self.entries[index])
    }

    /// The value of a key that may be left out. One that is there without a value is a problem.
    pub(crate) fn get(&mut self, key: &str, problems: &mut Vec<Problem>) -> Option<&'a Node> {
        let entry = self.entry(key)?;
        if entry.node.value == Value::Null {
            problems.push(
                Problem::new(
                    &entry.key_origin,
                    format!("`{}` has no value", self.path_of(key)),
                )
                .help("write one after the colon, or take the key out"),
            );
            return None;
        }
        Some(&entry.node)
    }

    /// The value of a key that must be there. `how` shows how it is written.
    pub(crate) fn need(
        &mut self,
        key: &str,
        how: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<&'a Node> {
        if !self.entries.iter().any(|entry| entry.key == key) {
            problems.push(self.missing(key, how));
            return None;
        }
        self.get(key, problems)
    }

    /// The problem that a key is missing.
    pub(crate) fn missing(&self, key: &str, how: &str) -> Problem {
        let place = if self.path.is_empty() {
            format!("`{key}` is missing")
        } else {
            format!("`{key}` is missing in `{}`", self.path)
        };
        Problem::new(&self.node.origin, place)
            .label(format!("has no `{key}`"))
            .help(how)
    }

    /// What has not been taken.
    pub(crate) fn rest(&self) -> Vec<Entry> {
        self.entries
            .iter()
            .zip(&self.taken)
            .filter(|(_, taken)| !**taken)
            .map(|(entry, _)| entry.clone())
            .collect()
    }

    /// Reports every key that is none of `known`.
    pub(crate) fn finish(self, known: &[&str], problems: &mut Vec<Problem>) {
        for entry in self.rest() {
            problems.push(unknown_key(&entry, &self.path, known.iter().copied()));
        }
    }

    pub(crate) fn text(&mut self, key: &str, problems: &mut Vec<Problem>) -> Option<String> {
        let node = self.get(key, problems)?;
        text(node, &self.path_of(key), problems)
    }

    pub(crate) fn integer(
        &mut self,
        key: &str,
        range: std::ops::RangeInclusive<u64>,
        problems: &mut Vec<Problem>,
    ) -> Option<u64> {
        let node = self.get(key, problems)?;
        integer(node, &self.path_of(key), range, problems)
    }
}

/// Reports every key of a mapping at `path` that is none of `known`.
pub(crate) fn unknown_keys(node: &Node, path: &str, known: &[&str], problems: &mut Vec<Problem>) {
    let unknown = |entry: &&Entry| !known.contains(&entry.key.as_str());
    let unknown = node.entries().iter().filter(unknown);
    problems.extend(unknown.map(|entry| unknown_key(entry, path, known.iter().copied())));
}

pub(crate) fn unknown_key<'a>(
    entry: &Entry,
    path: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Problem {
    let place = if path.is_empty() {
        String::new()
    } else {
        format!(" in `{path}`")
    };
    Problem::new(
        &entry.key_origin,
        format!("unknown key `{}`{place}", shown(&entry.key)),
    )
    .label("not a key here")
    .help(suggest(&entry.key, known))
}

pub(crate) fn wrong_type(node: &Node, path: &str, wanted: &str) -> Problem {
    let subject = if path.is_empty() {
        "the scenario".to_owned()
    } else {
        format!("`{path}`")
    };
    Problem::new(
        &node.origin,
        format!("{subject} must be {wanted}, and is {}", node.kind()),
    )
}

pub(crate) fn text(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Option<String> {
    match &node.value {
        Value::Scalar { text, .. } => Some(text.clone()),
        _ => {
            problems.push(wrong_type(node, path, "a text"));
            None
        }
    }
}

pub(crate) fn integer(
    node: &Node,
    path: &str,
    range: std::ops::RangeInclusive<u64>,
    problems: &mut Vec<Problem>,
) -> Option<u64> {
    let bounds = || match *range.end() {
        u64::MAX => format!("a whole number from {}", range.start()),
        end => format!("a whole number from {} to {end}", range.start()),
    };
    let value = match &node.value {
        Value::Scalar { text, .. } if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            text.parse::<u64>().ok()
        }
        _ => {
            problems.push(wrong_type(node, path, &bounds()));
            return None;
        }
    };
    match value {
        Some(value) if range.contains(&value) => Some(value),
        _ => {
            problems.push(
                Problem::new(
                    &node.origin,
                    format!("`{path}: {}` is out of range", node_text(node)),
                )
                .help(format!("write {}", bounds())),
            );
            None
        }
    }
}

pub(crate) fn node_text(node: &Node) -> String {
    match &node.value {
        Value::Scalar { text, .. } => shown(text),
        _ => node.kind(),
    }
}
