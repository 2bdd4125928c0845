//! Reading of scenario files into trees.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::{Problem, ScenarioError};
use crate::node::Node;
use crate::origin::{SourceKind, SourceText};
use crate::yaml;

/// Reads a file of the document type `what`, such as `scenario`. Returns its name in messages, and
/// its text.
pub(crate) fn read(path: &Path, what: &str) -> Result<(String, String), ScenarioError> {
    Ok(read_text(path, what, yaml::MAX_BYTES)?)
}

/// Reads a file of the type `what`, of at most `bytes_max` bytes. Returns its name in messages, and
/// its text.
pub(crate) fn read_text(
    path: &Path,
    what: &str,
    bytes_max: usize,
) -> Result<(String, String), Problem> {
    let shown = path.display().to_string();
    let unreadable = |error: std::io::Error| {
        let help = match error.kind() {
            std::io::ErrorKind::NotFound => {
                "check the path: a relative path starts at the current directory"
            }
            std::io::ErrorKind::PermissionDenied => "this user may not read it",
            _ => "",
        };
        Problem::without_position(format!("cannot read the {what} {shown}: {error}")).help(help)
    };
    let mut bytes = Vec::new();
    // One byte more than allowed, to detect a file that is too large.
    File::open(path)
        .and_then(|file| file.take(bytes_max as u64 + 1).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    if bytes.len() > bytes_max {
        let text = format!(
            "the {what} {shown} is larger than {} MiB",
            bytes_max.div_ceil(1 << 20)
        );
        return Err(Problem::without_position(text).help("is it the right file?"));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
            + 1;
        Problem::without_position(format!("the {what} {shown} is not UTF-8 in line {line}"))
            .help("save it as UTF-8")
    })?;
    Ok((shown, text))
}

/// Parses the text of a scenario. Returns its tree and the default name of the scenario.
pub(crate) fn tree(source_name: &str, text: &str) -> Result<(Node, String), ScenarioError> {
    let source = SourceText::new(SourceKind::File, source_name, text);
    let root = yaml::parse(&source, 0)?;
    let name = Path::new(source_name).file_stem().map_or_else(
        || source_name.to_owned(),
        |stem| stem.to_string_lossy().into_owned(),
    );
    Ok((root, name))
}
