//! The JSON Schema of the scenario file, for editors.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::decode::ScenarioKeys;

/// Returns the JSON Schema (draft 2020-12) of a scenario file, with the keys of every protocol.
pub fn schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<ScenarioKeys>();
    schema.insert("$id".to_owned(), "scenario.schema.json".into());
    schema.to_value()
}
