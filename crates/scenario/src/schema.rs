//! The JSON Schema of the scenario file, for editors.

use crate::section;
use crate::tester::TesterKeys;
use load::LoadSpec;
use measure::units::{BitRate, TimeSpan};
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
    let server = server(&duration, &mut generator);
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

fn server(duration: &Value, generator: &mut SchemaGenerator) -> Value {
    let bit_rate = generator.subschema_for::<BitRate>().to_value();
    let port = |text: &str| json!({ "type": "integer", "minimum": 1, "maximum": 65535, "description": text });
    json!({
        "type": "object",
        "description": "The server under test: launched (`launch` or `command`) or only watched (`observe`).",
        "additionalProperties": false,
        "oneOf": [
            { "required": ["launch"] },
            { "required": ["command"] },
            { "required": ["observe"] }
        ],
        "properties": {
            "launch": { "type": "string", "description": "One of the catalogue of known servers, such as `vlc` (`streamgauge servers` lists them); or the path of a file that is such an entry, relative to the scenario file." },
            "port": port("With `launch`: the port that it is to serve on."),
            "interface": { "type": "string", "description": "With `launch`: the network interface that it receives multicast on. Default lo; with `network: veth` the one towards the sources." },
            "groups": {
                "type": ["array", "string"],
                "items": { "type": "string" },
                "description": "With `launch`: the multicast groups that it is to relay, such as rtp://239.81.0.{1..8}:5000, for servers that must be told."
            },
            "command": {
                "type": "array",
                "items": { "type": ["string", "number", "boolean"] },
                "minItems": 1,
                "description": "The program and its arguments."
            },
            "observe": {
                "type": "object",
                "additionalProperties": false,
                "anyOf": [
                    { "required": ["pid"] },
                    { "required": ["node"] },
                    { "required": ["process"] }
                ],
                "properties": {
                    "pid": { "type": "integer", "minimum": 1, "description": "A process of this machine." },
                    "node": { "type": "string", "description": "Of a server on another machine: the URL of node_exporter there, such as http://10.0.0.5:9100/metrics." },
                    "process": { "type": "string", "description": "The URL of process-exporter there, such as http://10.0.0.5:9256/metrics." },
                    "group": { "type": "string", "description": "Which of process-exporter's groups the server is. Default: the only one." }
                },
                "description": "A server that runs already, on this machine or another."
            },
            "clips": {
                "type": "object",
                "description": "Test media: clip1.mp4 and so on, made with ffmpeg where they are missing.",
                "additionalProperties": false,
                "required": ["directory"],
                "properties": {
                    "directory": { "type": "string", "description": "Where they are, relative to the scenario file." },
                    "count": { "type": "integer", "minimum": 1, "maximum": 1000, "description": "How many. Default 10." },
                    "length": with_description(duration, "How long each is. Default 60s."),
                    "video": with_description(&bit_rate, "The bit rate of the video. Default 1Mbps."),
                    "audio": with_description(&bit_rate, "The bit rate of the audio. Default: no audio."),
                    "frame_rate": { "type": "integer", "minimum": 1, "maximum": 240, "description": "Frames per second. Default 25." }
                }
            },
            "ready": {
                "description": "How the server shows that it is ready.",
                "type": "object",
                "additionalProperties": false,
                "minProperties": 1,
                "maxProperties": 1,
                "properties": {
                    "port": port("It listens on this TCP port."),
                    "line": { "type": "string", "description": "It writes a line that contains this text." },
                    "pattern": { "type": "string", "description": "It writes a line that matches this regular expression." }
                }
            },
            "ready_timeout": with_description(duration, "How long it may take until it is ready. Default 10s."),
            "stop_timeout": with_description(duration, "How long it may take to end after it was asked to. Default 5s."),
            "linger": with_description(duration, "How long it is looked at after the last client has left, for what it gives back: multicast groups, file descriptors, memory. Default: not."),
            "environment": {
                "type": "object",
                "additionalProperties": { "type": ["string", "number", "boolean"] },
                "description": "With `command`: its variables, beside PATH, HOME, USER, LOGNAME, LANG, LC_*, TZ and TMPDIR. Their values are in no report."
            },
            "user": {
                "type": ["string", "integer"],
                "description": "With `launch` or `command`: whom it runs as, by name or number; only root can change that. Default: a server of the catalogue as `nobody` where it does not need root, any other as streamgauge does."
            },
            "log": {
                "type": "object",
                "additionalProperties": false,
                "minProperties": 1,
                "properties": {
                    "file": { "type": "string", "description": "A file that the server writes its log to, relative to the scenario file. What a launched server prints is read anyway." },
                    "match": {
                        "type": "array",
                        "items": { "type": "string" },
                        "minItems": 1,
                        "maxItems": 32,
                        "description": "Regular expressions: a line that matches one is counted as a complaint. Default: the usual words for what went wrong."
                    }
                },
                "description": "The server's log, and what is looked for in it."
            },
            "directory": { "type": "string", "description": "With `command`: where it runs, relative to the scenario file. Default: where streamgauge was started." }
        }
    })
}
