//! JSON Schema of the JSON report. It is generated from the serialized types and from the
//! catalogues of metrics, so it is always up to date.

use measure::metric::MetricSource;
use measure::tester::WorkerFigures;
use measure::{Catalogue, Finding, Metric};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::loss::WhereLost;
use crate::metrics::{Distribution, Level};
use crate::model::{Clients, Report};
use crate::series::Series;

/// Returns the schema of a report. `protocols` are the catalogues of all protocols; a population
/// has the metrics of one of them.
pub fn report_schema(protocols: &[Catalogue], server: Catalogue, tester: Catalogue) -> Value {
    let link = measure::LINK_CATALOGUE;
    let mut generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    generator.subschema_for::<Level>();
    generator.subschema_for::<Distribution>();
    generator.subschema_for::<Clients>();
    generator.subschema_for::<Finding>();
    generator.subschema_for::<WorkerFigures>();
    generator.subschema_for::<WhereLost>();
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

/// Returns the schema of the report of a series.
pub fn series_schema() -> Value {
    let generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let mut root = generator.into_root_schema_for::<Series>().to_value();
    root["$id"] = json!("series.schema.json");
    root["title"] = json!("A report of streamgauge on a series of runs");
    close_structs(&mut root);
    root
}

/// Forbids fields that are not named, so that a test detects an outdated schema.
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

/// Returns the schema of an object with exactly these fields.
fn closed(properties: Map<String, Value>) -> Value {
    closed_with(properties, |_| true)
}

/// Returns the schema of an object with these fields only, some of which are required.
fn closed_with(properties: Map<String, Value>, is_required: impl Fn(&str) -> bool) -> Value {
    let required = properties.keys().filter(|name| is_required(name));
    json!({
        "type": "object",
        "required": required.collect::<Vec<_>>(),
        "properties": properties,
        "additionalProperties": false,
    })
}

/// Returns the schema of a population's metrics, which are those of one protocol. Only the metrics
/// of all protocols are required.
fn population_metrics(protocols: &[Catalogue], of_window: bool) -> Value {
    let mut properties = Map::new();
    for &protocol in protocols {
        for (name, mut schema) in metric_properties(protocol, of_window) {
            // Protocols may describe a metric of the same name differently.
            if let Some(other) = properties.get(&name)
                && other["description"] != schema["description"]
                && let (Some(first), Some(second)) = (
                    other["description"].as_str(),
                    schema["description"].as_str(),
                )
            {
                schema["description"] =
                    json!(format!("{first} Or, for another protocol: {second}"));
            }
            properties.insert(name, schema);
        }
    }
    closed_with(properties, |name| {
        let mut protocols = protocols.iter();
        protocols.all(|protocol| protocol.find(name).is_some())
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
    let own = [
        (
            "receive_path",
            json!({
                "description": "Path by which media was received: `ring` (a packet ring), `sockets`, or `ring and sockets` if runners differ; null for a run that was cut off before it began.",
                "type": ["string", "null"],
            }),
        ),
        (
            "receive_hint",
            json!({
                "description": "Requirement for a better receive path, if one exists that may not be used.",
                "type": ["string", "null"],
            }),
        ),
        (
            "health",
            json!({
                "description": "Results for each health bound of the tester; empty for a run that was cut off.",
                "type": "array",
                "items": {"$ref": "#/$defs/Finding"},
            }),
        ),
        (
            "workers",
            json!({
                "description": "Figures of each worker, by its number; empty for a run that was cut off.",
                "type": "array",
                "items": {"$ref": "#/$defs/WorkerFigures"},
            }),
        ),
        ("where_lost", json!({"$ref": "#/$defs/WhereLost"})),
    ];
    let own = own
        .map(|(name, schema)| (name.to_owned(), schema))
        .into_iter();
    closed(own.chain(metric_properties(tester, false)).collect())
}

fn population() -> Value {
    json!({
        "description": "Figures of one population.",
        "type": "object",
        "required": ["clients", "where_lost", "metrics"],
        "properties": {
            "clients": {"$ref": "#/$defs/Clients"},
            "where_lost": {
                "description": "Places where packets were lost; null if the protocol does not count losses.",
                "anyOf": [{"$ref": "#/$defs/WhereLost"}, {"type": "null"}],
            },
            "metrics": {"$ref": "#/$defs/PopulationMetrics"},
        },
    })
}

fn link_schema() -> Value {
    json!({
        "description": "Figures of one direction of an emulated link.",
        "type": "object",
        "required": ["link", "metrics"],
        "properties": {
            "link": {
                "description": "Configuration of both directions, in words.",
                "type": "string",
            },
            "metrics": {"$ref": "#/$defs/LinkMetrics"},
        },
    })
}

fn window() -> Value {
    json!({
        "description": "Figures of one window. Counts are of this window alone. A count is negative if a packet that counted as lost in an earlier window arrived in this one.",
        "type": "object",
        "required": ["start", "seconds", "populations", "links", "server", "tester"],
        "properties": {
            "start": {"description": "Start, in seconds since the start of the run.", "type": "number"},
            "seconds": {"description": "Length in seconds.", "type": "number"},
            "populations": {
                "description": "Figures of each population, by name.",
                "type": "object",
                "additionalProperties": {"$ref": "#/$defs/PopulationWindow"},
            },
            "links": {
                "description": "Figures of each direction of an emulated link, by name.",
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
                "description": "Number of clients that failed in this window, by reason.",
                "type": "object",
                "additionalProperties": {"type": "integer", "minimum": 0},
            },
            "metrics": {"$ref": "#/$defs/PopulationWindowMetrics"},
        },
    })
}
