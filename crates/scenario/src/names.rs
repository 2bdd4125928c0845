//! Names of populations and sources.

use schemars::{Schema, json_schema};
use serde_json::Value as Json;

use crate::error::Problem;
use crate::node::{Entry, display_text};

/// Names that thresholds use for other subjects.
const RESERVED: [&str; 4] = ["server", "tester", "uplink", "downlink"];

/// Maximum length of a name.
const MAX_NAME: usize = 64;

/// Checks the name of a `what`, such as `population`.
pub(crate) fn check(entry: &Entry, what: &str, problems: &mut Vec<Problem>) {
    let name = entry.key.as_str();
    let origin = &entry.key_origin;
    if RESERVED.contains(&name) {
        Problem::new(origin, format!("a {what} cannot be called `{name}`"))
            .help("thresholds use that name for something else: choose another")
            .report(problems);
    }
    let good = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && name.len() <= MAX_NAME;
    if !good {
        let text = format!("`{}` is not a valid name of a {what}", display_text(name));
        Problem::new(origin, text)
            .help(
                "a name begins with a lower-case letter, followed by lower-case letters, digits \
             and `_`; at most 64 characters",
            )
            .report(problems);
    }
}

/// Returns the JSON Schema of a mapping from names to `thing`.
pub(crate) fn schema(thing: Json) -> Schema {
    json_schema!({
        "type": "object",
        "minProperties": 1,
        "propertyNames": {
            "pattern": "^[a-z][a-z0-9_]{0,63}$",
            "not": { "enum": RESERVED }
        },
        "additionalProperties": thing
    })
}
