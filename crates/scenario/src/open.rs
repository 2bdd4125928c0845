//! From a file to a tree.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::{Problem, ScenarioError};
use crate::node::Node;
use crate::source::{SourceKind, SourceText};
use crate::yaml;

/// What messages call the scenario file at `path`, and its text.
pub(crate) fn read(path: &Path) -> Result<(String, String), ScenarioError> {
    read_as(path, "scenario")
}

/// The same of a file that messages call `what`.
pub(crate) fn read_as(path: &Path, what: &str) -> Result<(String, String), ScenarioError> {
    let shown = path.display().to_string();
    let unreadable = |error: std::io::Error| {
        let help = match error.kind() {
            std::io::ErrorKind::NotFound => "is the path right, seen from where you are?",
            std::io::ErrorKind::PermissionDenied => "you may not read it",
            _ => "",
        };
        Problem::nowhere(format!("cannot read the {what} {shown}: {error}")).help(help)
    };
    let mut bytes = Vec::new();
    // One byte more than allowed, so that the parser sees that it is too large.
    let most = yaml::MAX_BYTES as u64 + 1;
    File::open(path)
        .and_then(|file| file.take(most).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    if bytes.len() > yaml::MAX_BYTES {
        return Err(
            Problem::nowhere(format!("the {what} {shown} is larger than 1 MiB"))
                .help("is it the right file?")
                .into(),
        );
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
            + 1;
        Problem::nowhere(format!("the {what} {shown} is not UTF-8 in line {line}"))
            .help("save it as UTF-8")
    })?;
    Ok((shown, text))
}

/// The tree of a scenario's text, and what the scenario is called where it has no name of its own.
pub(crate) fn tree(source_name: &str, text: &str) -> Result<(Node, String), ScenarioError> {
    let source = SourceText::new(SourceKind::File, source_name, text);
    let root = yaml::parse(&source, 0)?;
    let name = Path::new(source_name).file_stem().map_or_else(
        || source_name.to_owned(),
        |stem| stem.to_string_lossy().into_owned(),
    );
    Ok((root, name))
}
