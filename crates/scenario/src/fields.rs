//! Problems of unknown keys and wrong types, and reading of strings.

use crate::error::Problem;
use crate::node::{Entry, Node, display_text};
use crate::origin::SourceKind;
use measure::nearest::{nearest, suggest};

/// Reports every key of the mapping at `path` that is not in `known`.
pub(crate) fn unknown_keys(node: &Node, path: &str, known: &[&str], problems: &mut Vec<Problem>) {
    let unknown = |entry: &&Entry| !known.contains(&entry.key.as_str());
    let unknown = node.entries().iter().filter(unknown);
    problems.extend(unknown.map(|entry| unknown_key(entry, path, known.iter().copied())));
}

/// Returns `true` if a key is not in `known`, but is like one that is.
pub(crate) fn has_typo(node: &Node, known: &[&str]) -> bool {
    node.entries().iter().any(|entry| {
        let key = entry.key.as_str();
        !known.contains(&key) && nearest(key, known.iter().copied()).is_some()
    })
}

/// Returns the entry whose key is not in `known` and is most like `key`, which is.
pub(crate) fn misspelt<'a>(node: &'a Node, key: &str, known: &[&str]) -> Option<&'a Entry> {
    node.entries().iter().find(|entry| {
        let written = entry.key.as_str();
        !known.contains(&written) && nearest(written, known.iter().copied()) == Some(key)
    })
}

pub(crate) fn unknown_key<'a>(
    entry: &Entry,
    path: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Problem {
    let location = match path {
        "" => String::new(),
        path => format!(" in `{path}`"),
    };
    let text = format!("unknown key `{}`{location}", display_text(&entry.key));
    Problem::new(&entry.key_origin, text)
        .label("not a key here")
        .help(suggest(&entry.key, known))
}

pub(crate) fn wrong_type(node: &Node, path: &str, wanted: &str) -> Problem {
    let subject = match path {
        // The message begins with the option.
        _ if node.origin.source.kind == SourceKind::Option => "it".to_owned(),
        "" => "the scenario".to_owned(),
        path => format!("`{path}`"),
    };
    let text = format!("{subject} must be {wanted}, but is {}", node.describe());
    Problem::new(&node.origin, text)
}

pub(crate) fn read_string(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Option<String> {
    let text = node.text().map(str::to_owned);
    if text.is_none() {
        problems.push(wrong_type(node, path, "a string"));
    }
    text
}

pub(crate) fn node_text(node: &Node) -> String {
    node.text().map_or_else(|| node.describe(), display_text)
}
