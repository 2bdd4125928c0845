//! Files with the URLs of a population, and with values for them: their contents replace them in
//! the tree, so that all other code sees a scenario without them.

use std::path::Path;

use schemars::{Schema, SchemaGenerator, json_schema};

use crate::collector::join_path;
use crate::csv::{self, Table};
use crate::error::{Problem, ScenarioError};
use crate::fields::{unknown_keys, wrong_type};
use crate::node::{Node, Value, display_text};
use crate::origin::{Origin, SourceKind, SourceText};
use crate::{open, urls};

/// Maximum size of a file, in bytes: 4 MiB.
pub(crate) const BYTES_MAX: usize = 4 << 20;

/// Keys whose text may name columns of the data, in addition to `urls`, and the keys that take a
/// list of such texts.
const KEYS_WITH_COLUMNS: [(&str, &str); 1] = [("token", "tokens")];

/// Replaces `urls: {file: ...}` and the columns of `data` of each population. Relative paths begin
/// in `folder`. Without all the values, other checks of the scenario only mislead, so wrong files
/// are an error on their own.
pub(crate) fn inline(root: &mut Node, folder: Option<&Path>) -> Result<(), ScenarioError> {
    let Some(clients) = root.entry_mut("clients") else {
        return Ok(());
    };
    let Value::Map(populations) = &mut clients.node.value else {
        return Ok(());
    };
    let mut problems = Vec::new();
    for population in populations {
        let path = format!("clients.{}", population.key);
        inline_population(&mut population.node, &path, folder, &mut problems);
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(ScenarioError::new(problems)),
    }
}

fn inline_population(
    population: &mut Node,
    path: &str,
    folder: Option<&Path>,
    problems: &mut Vec<Problem>,
) {
    if let Some(entry) = population.entry_mut("urls")
        && matches!(entry.node.value, Value::Map(_))
    {
        let path = join_path(path, "urls");
        if let Some(list) = read_urls(&entry.node, &path, folder, problems) {
            entry.node = list;
        }
    }
    let Some(entry) = population.remove("data") else {
        return;
    };
    let Some(file) = file_name(&entry.node, &join_path(path, "data"), problems) else {
        return;
    };
    match read_table(&file, folder, &entry.node.origin) {
        Ok(table) => fill(population, &table, &entry.node.origin, problems),
        Err(problem) => problems.push(problem),
    }
}

/// Returns the JSON Schema of `urls`: a list, one URL, or a file.
pub(crate) fn urls_schema(generator: &mut SchemaGenerator) -> Schema {
    let mut list = urls::schema(generator).to_value();
    list["minItems"] = 1.into();
    json_schema!({ "anyOf": [list, {
        "type": "object",
        "properties": { "file": { "type": "string" } },
        "required": ["file"],
        "additionalProperties": false,
    }] })
}

fn file_name(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Option<String> {
    match &node.value {
        Value::Scalar { text, .. } if !text.is_empty() => Some(text.clone()),
        _ => {
            problems.push(wrong_type(node, path, "the name of a file"));
            None
        }
    }
}

/// Reads a file that the scenario names at `named`.
fn read_file(
    file: &str,
    folder: Option<&Path>,
    named: &Origin,
) -> Result<(String, String), Problem> {
    let path = folder.map_or_else(|| Path::new(file).to_owned(), |folder| folder.join(file));
    open::read_text(&path, "file", BYTES_MAX).map_err(|error| {
        let error = error.at(named);
        error.help("a relative path starts in the folder of the scenario")
    })
}

/// Reads the URLs of a file, one in each line.
fn read_urls(
    node: &Node,
    path: &str,
    folder: Option<&Path>,
    problems: &mut Vec<Problem>,
) -> Option<Node> {
    unknown_keys(node, path, &["file"], problems);
    let Some(entry) = node.entry("file") else {
        let problem = Problem::new(&node.origin, format!("`file` is missing in `{path}`"));
        problems.push(problem.help("write `urls: {file: urls.txt}`, or a list of URLs"));
        return None;
    };
    let file = file_name(&entry.node, &join_path(path, "file"), problems)?;
    let (name, text) = match read_file(&file, folder, &entry.node.origin) {
        Ok(read) => read,
        Err(problem) => {
            problems.push(problem);
            return None;
        }
    };
    let source = SourceText::new(SourceKind::File, name, text);
    let mut urls = Vec::new();
    let mut at = 0;
    for line in source.text.split_inclusive('\n') {
        let begin = at + (line.len() - line.trim_start().len());
        at += line.len();
        // A URL has no blanks: what follows one is a comment.
        let Some(url) = line.split_whitespace().next() else {
            continue;
        };
        if url.starts_with('#') {
            continue;
        }
        let origin = Origin::new(&source, begin, begin + url.len());
        let mut rest = line.split_whitespace().skip(1);
        if rest.next().is_some_and(|word| !word.starts_with('#')) {
            let problem = Problem::new(&origin, "the line has more than a URL");
            problems.push(problem.help("write one URL in each line, and comments after `#`"));
            return None;
        }
        urls.push(Node::scalar(url, origin));
    }
    if urls.is_empty() {
        let text = format!("the file `{}` has no URL", display_text(&file));
        let problem = Problem::new(&entry.node.origin, text);
        problems.push(problem.help("write one URL in each line"));
        return None;
    }
    Some(Node::list(urls, node.origin.clone()))
}

fn read_table(file: &str, folder: Option<&Path>, named: &Origin) -> Result<Table, Problem> {
    let (name, text) = read_file(file, folder, named)?;
    csv::parse(&name, &text)
}

/// Replaces the columns in the URLs and keys of a population by the values of each row.
fn fill(population: &mut Node, table: &Table, named: &Origin, problems: &mut Vec<Problem>) {
    let mut is_used = false;
    let mut urls_have_columns = false;
    let mut all_have_columns = true;
    let mut has_ranges = false;
    if let Some(entry) = population.entry_mut("urls") {
        let items = match std::mem::replace(&mut entry.node.value, Value::Null) {
            Value::List(items) => items,
            value => vec![Node {
                value,
                origin: entry.node.origin.clone(),
            }],
        };
        let mut filled = Vec::new();
        for item in items {
            let template = match &item.value {
                Value::Scalar { text, .. } if table.is_named_in(text) => text.clone(),
                _ => {
                    all_have_columns = false;
                    filled.push(item);
                    continue;
                }
            };
            urls_have_columns = true;
            has_ranges |= template.contains("..");
            for row in 0..table.row_count() {
                let origin = table.origin(row, &template);
                filled.push(Node::scalar(table.fill_url(row, &template), origin));
            }
        }
        is_used |= urls_have_columns;
        entry.node.value = Value::List(filled);
    }
    for (key, list) in KEYS_WITH_COLUMNS {
        let Some(entry) = population.entry_mut(key) else {
            continue;
        };
        let Value::Scalar { text, .. } = &entry.node.value else {
            continue;
        };
        if !table.is_named_in(text) {
            continue;
        }
        is_used = true;
        if urls_have_columns && (has_ranges || !all_have_columns) {
            let text = format!("it is unknown which row `{key}` is to use");
            let problem = Problem::new(&entry.node.origin, text);
            let help = "let each URL name a column, without a range, or none of them";
            problems.push(problem.help(help));
            continue;
        }
        let rows = 0..table.row_count();
        let rows = rows.map(|row| Node {
            value: Value::Scalar {
                text: table.fill(row, text),
                quoted: true,
            },
            origin: table.origin(row, text),
        });
        entry.node = Node::list(rows.collect(), entry.node.origin.clone());
        entry.key = list.to_owned();
    }
    if !is_used {
        let problem = Problem::new(named, "no URL names a column of the data");
        problems.push(problem.help(format!("write a column as `{{{}}}`", table.columns[0])));
    }
}
