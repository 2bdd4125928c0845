//! The JSON Schema of the JSON report: made from the types that are written and from the catalogues
//! of metrics, so it cannot fall behind them.

use measure::metric::MetricSource;
use measure::tester::WorkerFigures;
use measure::{Catalogue, Finding, Metric};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::loss::WhereLost;
use crate::metrics::{Distribution, Level};
use crate::model::{Clients, Report};
use crate::series::Series;

/// The schema of a report. `protocols` are the catalogues of all protocols' populations; a
/// population has the metrics of its own.
pub fn report_schema(protocols: &[Catalogue], server: Catalogue, tester: Catalogue) -> Value {
    let link = measure::LINK_CATALOGUE;
    let mut settings = SchemaSettings::draft2020_12();
    settings.contract = schemars::generate::Contract::Serialize;
    let mut generator = settings.into_generator();
    for schema in [
        generator.subschema_for::<Level>(),
        generator.subschema_for::<Distribution>(),
        generator.subschema_for::<Clients>(),
        generator.subschema_for::<Finding>(),
        generator.subschema_for::<WorkerFigures>(),
        generator.subschema_for::<WhereLost>(),
    ] {
        drop(schema);
    }
    let mut root = generator.into_root_schema_for::<Report>().to_value();
    root["$id"] = json!("report.schema.json");
    root["title"] = json!("A report of streamgauge");
    let windows = json!({
        "description": "Every window of the run, warm-up included, oldest first.",
        "type": "array",
        "items": {"$ref": "#/$defs/Window"},
    });
    root["properties"]["windows"] = windows;
    if let Some(required) = root["required"].as_array_mut() {
        required.push(json!("windows"));
    }
    let definitions = [
        ("PopulationMetrics", population_metrics(protocols, false)),
        ("ServerMetrics", closed(metric_properties(server, false))),
        ("Tester", tester_schema(tester)),
        ("Population", population()),
        ("Link", link_schema()),
        ("LinkMetrics", closed(metric_properties(link, false))),
        ("LinkWindowMetrics", closed(metric_properties(link, true))),
        ("Window", window()),
        ("PopulationWindow", population_window()),
        (
            "PopulationWindowMetrics",
            population_metrics(protocols, true),
        ),
        (
            "ServerWindowMetrics",
            closed(metric_properties(server, true)),
        ),
        (
            "TesterWindowMetrics",
            closed(metric_properties(tester, true)),
        ),
    ];
    for (name, definition) in definitions {
        root["$defs"][name] = definition;
    }
    close_structs(&mut root);
    root
}

/// The schema of the report of a series.
pub fn series_schema() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.contract = schemars::generate::Contract::Serialize;
    let generator = settings.into_generator();
    let mut root = generator.into_root_schema_for::<Series>().to_value();
    root["$id"] = json!("series.schema.json");
    root["title"] = json!("A report of streamgauge on a series of runs");
    close_structs(&mut root);
    root
}

/// Allows no field that is not named, so that a test notices when the schema falls behind.
fn close_structs(root: &mut Value) {
    let is_struct = |schema: &Value| {
        schema["type"] == "object"
            && schema["properties"].is_object()
            && schema.get("additionalProperties").is_none()
    };
    if is_struct(root) {
        root["additionalProperties"] = json!(false);
    }
    if let Some(definitions) = root["$defs"].as_object_mut() {
        for schema in definitions.values_mut().filter(|schema| is_struct(schema)) {
            schema["additionalProperties"] = json!(false);
        }
    }
}

/// An object with exactly these fields.
fn closed(properties: Map<String, Value>) -> Value {
    let required: Vec<&String> = properties.keys().collect();
    json!({
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": false,
    })
}

/// A population's metrics are those of one protocol: what every protocol has is required.
fn population_metrics(protocols: &[Catalogue], of_window: bool) -> Value {
    let mut properties = Map::new();
    for &protocol in protocols {
        for (name, mut schema) in metric_properties(protocol, of_window) {
            // Of one name, protocols may say more exactly what it is there.
            if let Some(other) = properties.get(&name)
                && other["description"] != schema["description"]
                && let (Some(first), Some(second)) = (
                    other["description"].as_str(),
                    schema["description"].as_str(),
                )
            {
                schema["description"] = json!(format!("{first} Or, of another protocol: {second}"));
            }
            properties.insert(name, schema);
        }
    }
    let required: Vec<&String> = properties
        .keys()
        .filter(|name| {
            protocols
                .iter()
                .all(|protocol| protocol.find(name).is_some())
        })
        .collect();
    json!({
        "type": "object",
        "required": required,
        "properties": properties,
        "additionalProperties": false,
    })
}

fn metric_properties(catalogue: Catalogue, of_window: bool) -> Map<String, Value> {
    catalogue
        .metrics()
        .map(|metric| (metric.name.to_owned(), metric_schema(metric, of_window)))
        .collect()
}

fn metric_schema(metric: &Metric, of_window: bool) -> Value {
    let mut text = metric.doc.split_whitespace().collect::<Vec<_>>().join(" ");
    if !metric.reference.is_empty() {
        text = format!("{text} ({})", metric.reference);
    }
    if !metric.unit.symbol().is_empty() {
        text = format!("{text} Unit: {}.", metric.unit.symbol());
    }
    match metric.source {
        MetricSource::Distribution(_) => json!({
            "description": text,
            "anyOf": [{"$ref": "#/$defs/Distribution"}, {"type": "null"}],
        }),
        MetricSource::Gauge(..) if !of_window => json!({
            "description": text,
            "anyOf": [{"$ref": "#/$defs/Level"}, {"type": "null"}],
        }),
        _ => json!({"description": text, "type": ["number", "null"]}),
    }
}

fn tester_schema(tester: Catalogue) -> Value {
    let mut properties = Map::new();
    properties.insert(
        "receive_path".to_owned(),
        json!({
            "description": "By which way packets came in; null where none was needed.",
            "type": ["string", "null"],
        }),
    );
    properties.insert(
        "receive_hint".to_owned(),
        json!({
            "description": "What a better way would take, where there is one and it may not be used.",
            "type": ["string", "null"],
        }),
    );
    let lists = [
        (
            "health",
            "Finding",
            "What was held against each bound of the tester's health; empty of a run that was cut off.",
        ),
        (
            "workers",
            "WorkerFigures",
            "Each worker's own figures, by its number; empty of a run that was cut off.",
        ),
    ];
    for (name, item, text) in lists {
        let item = format!("#/$defs/{item}");
        let list = json!({"description": text, "type": "array", "items": {"$ref": item}});
        properties.insert(name.to_owned(), list);
    }
    properties.insert(
        "where_lost".to_owned(),
        json!({"$ref": "#/$defs/WhereLost"}),
    );
    properties.append(&mut metric_properties(tester, false));
    closed(properties)
}

fn population() -> Value {
    json!({
        "description": "What one population saw.",
        "type": "object",
        "required": ["clients", "where_lost", "metrics"],
        "properties": {
            "clients": {"$ref": "#/$defs/Clients"},
            "where_lost": {
                "description": "Where its lost packets were lost; null where its protocol counts none.",
                "anyOf": [{"$ref": "#/$defs/WhereLost"}, {"type": "null"}],
            },
            "metrics": {"$ref": "#/$defs/PopulationMetrics"},
        },
    })
}

fn link_schema() -> Value {
    json!({
        "description": "What one direction of an emulated link did.",
        "type": "object",
        "required": ["link", "metrics"],
        "properties": {
            "link": {
                "description": "What it was asked to do, in words, of both directions.",
                "type": "string",
            },
            "metrics": {"$ref": "#/$defs/LinkMetrics"},
        },
    })
}

fn window() -> Value {
    json!({
        "description": "What was seen in one window. Counts are of this window alone; one is negative where a packet given up for lost in an earlier window came in this one.",
        "type": "object",
        "required": ["start", "seconds", "populations", "links", "server", "tester"],
        "properties": {
            "start": {"description": "When it began, in seconds from the beginning of the run.", "type": "number"},
            "seconds": {"description": "How long it lasted.", "type": "number"},
            "populations": {
                "description": "What each population saw, by its name.",
                "type": "object",
                "additionalProperties": {"$ref": "#/$defs/PopulationWindow"},
            },
            "links": {
                "description": "What each direction of an emulated link did, by its name.",
                "type": "object",
                "additionalProperties": {"$ref": "#/$defs/LinkWindowMetrics"},
            },
            "server": {"anyOf": [{"$ref": "#/$defs/ServerWindowMetrics"}, {"type": "null"}]},
            "tester": {"anyOf": [{"$ref": "#/$defs/TesterWindowMetrics"}, {"type": "null"}]},
        },
    })
}

fn population_window() -> Value {
    json!({
        "type": "object",
        "required": ["failures", "metrics"],
        "properties": {
            "failures": {
                "description": "Clients that failed in this window, by reason.",
                "type": "object",
                "additionalProperties": {"type": "integer", "minimum": 0},
            },
            "metrics": {"$ref": "#/$defs/PopulationWindowMetrics"},
        },
    })
}
