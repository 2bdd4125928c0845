//! The JSON Schema of the scenario file, for editors.

use schemars::generate::SchemaSettings;
use schemars::{Schema, json_schema};
use serde_json::Value;

use crate::read::ScenarioKeys;

/// The JSON Schema (draft 2020-12) of a scenario file, the keys of every protocol included.
pub fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    generator.into_root_schema_for::<ScenarioKeys>().to_value()
}

/// The schema of a mapping of names to such things.
pub(crate) fn named(thing: Value) -> Schema {
    json_schema!({
        "type": "object",
        "minProperties": 1,
        "propertyNames": {
            "pattern": "^[a-z][a-z0-9_]{0,63}$",
            "not": { "enum": ["server", "tester"] }
        },
        "additionalProperties": thing
    })
}
