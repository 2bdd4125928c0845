//! The JSON Schema of the scenario file, for editors.

use crate::section;
use crate::server::ServerKeys;
use crate::tester::TesterKeys;
use load::LoadSpec;
use measure::units::TimeSpan;
use protocol::registry::{PROTOCOLS, Protocol};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The JSON Schema (draft 2020-12) of a scenario file, the keys of every protocol included.
pub fn schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let duration = generator.subschema_for::<TimeSpan>().to_value();
    let populations: Vec<Value> = PROTOCOLS
        .iter()
        .map(|protocol| population(protocol, &duration, &mut generator))
        .collect();
    let population = match <[Value; 1]>::try_from(populations) {
        Ok([one]) => one,
        Err(several) => json!({ "anyOf": several }),
    };
    let server = section::schema::<ServerKeys>(&mut generator);
    let sources = crate::sources::schema(&mut generator);
    let tester = section::schema::<TesterKeys>(&mut generator);
    let described = |schema: &Value, text: &str| with_description(schema, text);
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "streamgauge scenario",
        "description": "What a run is to do: whom it measures, with how many clients, and what must hold.",
        "type": "object",
        "additionalProperties": false,
        "required": ["clients"],
        "properties": {
            "name": {
                "type": "string",
                "description": "What the run is called in reports. Default: the name of the file."
            },
            "server": server,
            "network": crate::network::schema(),
            "sources": sources,
            "clients": {
                "type": "object",
                "description": "The populations: groups of alike clients, by name.",
                "minProperties": 1,
                "propertyNames": {
                    "pattern": "^[a-z][a-z0-9_]{0,63}$",
                    "not": { "enum": ["server", "tester"] }
                },
                "additionalProperties": population
            },
            "duration": described(&duration, "The length of the run from its start, ramp included. Default: until every population has ended."),
            "warm_up": described(&duration, "How much of the beginning is left out of every figure and threshold, but of how many clients there were and failed. Default 0s."),
            "thresholds": {
                "type": "array",
                "items": {
                    "anyOf": [
                        { "type": "string" },
                        {
                            "type": "object",
                            "additionalProperties": false,
                            "required": ["threshold"],
                            "properties": {
                                "threshold": { "type": "string", "description": "What must hold." },
                                "abort": { "type": "boolean", "description": "Whether the run ends, as failed, as soon as it does not hold. Default false." },
                                "delay": described(&duration, "How long the run goes on before the threshold may end it. Default 0s.")
                            }
                        }
                    ]
                },
                "description": "What must hold, such as `viewers.loss < 1%` or `viewers.startup_delay.p95 < 2s`; with `.worst` of the worst second."
            },
            "seed": {
                "type": "integer",
                "minimum": 0,
                "description": "What all random choices follow from. Default: another one each time; the report names it."
            },
            "stop_timeout": described(&duration, "How long sessions may take for their clean end. Default 5s."),
            "workers": {
                "type": "integer",
                "minimum": 1,
                "maximum": 1024,
                "description": "How many threads run clients. Default: what the machine has."
            },
            "tester": tester,
            "vary": {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": { "anyOf": [
                    { "type": "array", "minItems": 1 },
                    { "type": "object", "minProperties": 1 }
                ] },
                "description": "Several runs: dotted keys of this file, each with a list of the values it takes, such as `clients.viewers.load.clients: [50, 100]`; one run for each combination, the first key changing slowest."
            },
            "settle": described(&duration, "With `vary`: the time between two runs. Default 5s."),
            "stop_at": {
                "enum": ["never", "fail"],
                "description": "With `vary`: whether the series ends after the first run that does not pass (`fail`). Default `never`."
            }
        }
    });
    let definitions = generator.take_definitions(true);
    schema["$defs"] = Value::Object(definitions);
    schema
}

/// A schema with a description of its own; the one it refers to keeps its own.
fn with_description(schema: &Value, text: &str) -> Value {
    let mut schema = schema.clone();
    schema["description"] = Value::from(text);
    schema
}

fn population(protocol: &Protocol, duration: &Value, generator: &mut SchemaGenerator) -> Value {
    let config = protocol.config_schema(generator).to_value();
    let mut properties = Map::new();
    if let Some(own) = config.get("properties").and_then(Value::as_object) {
        properties.extend(own.clone());
    }
    let own = json!({
        "protocol": {
            "const": protocol.name,
            "description": "What the clients speak. Default: as the URLs tell."
        },
        "urls": {
            "type": ["array", "string"],
            "items": { "type": "string" },
            "minItems": 1,
            "description": "What the clients ask for; `{1..10}` expands, and `{server}` is the server's address in the run's network. Each client picks one."
        },
        "pick": {
            "enum": ["random", "in_turn", "own"],
            "description": "Which of the URLs a client asks for. Default `random`, by the seed; of clients that publish `own`."
        },
        "leave": {
            "anyOf": [
                { "const": "at_end" },
                {
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["after"],
                    "properties": { "after": duration }
                }
            ],
            "description": "When a client leaves: `at_end` of its media (default), or `{after: 60s}`."
        },
        "rejoin": {
            "type": "boolean",
            "description": "Whether another client takes the place of one that ended or died. Default false."
        },
        "load": generator.subschema_for::<LoadSpec>().to_value()
    });
    if let Value::Object(own) = own {
        properties.extend(own);
    }
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["urls", "load"],
        "properties": properties
    })
}
