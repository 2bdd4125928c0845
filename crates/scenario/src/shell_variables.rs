//! Variables in the syntax of a shell, which a scenario does not replace.

use crate::collector::join_path;
use crate::error::Problem;
use crate::node::{Node, Value};
use crate::origin::SourceKind;

/// Keys whose values are for other programs, or are sent as they are written.
const LITERAL: [&str; 4] = ["command", "environment", "message", "set"];

/// Maximum number of problems. Further variables are not listed.
const PROBLEMS_MAX: usize = 10;

/// Refuses values of the file that contain a variable, such as `${HOST}`. Returns whether there are
/// any. Values of the command line are taken as they are: the shell has replaced its variables.
pub(crate) fn refuse(root: &Node, problems: &mut Vec<Problem>) -> bool {
    let before = problems.len();
    walk(root, "", &mut |node, path, text, quoted| {
        let is_of_file = node.origin.source.kind == SourceKind::File;
        let Some(name) = variable(text, quoted).filter(|_| is_of_file) else {
            return true;
        };
        let environment = path.to_uppercase().replace('.', "__");
        let text = format!("`{name}` is not replaced: a scenario has no variables");
        Problem::new(&node.origin, text)
            .help(format!(
                "leave the key out of the file, and set it: `--set {path}=...`, or \
                 `STREAMGAUGE_{environment}=...` in the environment"
            ))
            .report(problems);
        problems.len() < before + PROBLEMS_MAX
    });
    problems.len() > before
}

/// Calls `visit` with each scalar, the dotted path of the nearest key, the text, and whether it is
/// quoted, until it returns `false`. Returns whether all were visited.
fn walk(node: &Node, path: &str, visit: &mut dyn FnMut(&Node, &str, &str, bool) -> bool) -> bool {
    match &node.value {
        Value::Null => true,
        Value::Scalar { text, quoted } => visit(node, path, text, *quoted),
        Value::List(items) => items.iter().all(|item| walk(item, path, visit)),
        Value::Map(entries) => entries.iter().all(|entry| {
            if LITERAL.contains(&entry.key.as_str()) {
                return true;
            }
            walk(&entry.node, &join_path(path, &entry.key), visit)
        }),
    }
}

/// Returns the first variable in a text: `${NAME}`, with or without a default, or `$NAME` as the
/// whole text without quotes.
fn variable(text: &str, quoted: bool) -> Option<String> {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    if let Some(name) = text.strip_prefix('$')
        && is_name(name)
        && !quoted
    {
        return Some(format!("${name}"));
    }
    text.split("${").skip(1).find_map(|rest| {
        let (inside, _) = rest.split_once('}')?;
        let name = inside.split([':', '-', '?', '+', '=']).next()?;
        is_name(name).then(|| format!("${{{name}}}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_a_shell_are_found() {
        for (text, found) in [
            ("${HOST}", Some("${HOST}")),
            ("rtsp://${HOST:-h}:8554/a", Some("${HOST}")),
            ("${1} ${_b2}", Some("${_b2}")),
            ("$HOST", Some("$HOST")),
            ("a$HOST", None),
            ("pa$$word", None),
            ("${", None),
            ("${a b}", None),
            ("{1..10}", None),
        ] {
            assert_eq!(variable(text, false).as_deref(), found, "{text}");
        }
        // A password may begin with a dollar sign.
        assert_eq!(variable("$ecret", true), None);
    }
}
