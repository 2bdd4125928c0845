//! `streamgauge metrics` and `streamgauge schema`: lists generated from the code itself.

use std::fmt::Write;

use kit::browser::BROWSER_CATALOGUE;
use measure::metric::MetricSource;
use measure::{Catalogue, LINK_CATALOGUE, Metric, SERVER_CATALOGUE, TESTER_CATALOGUE};
use protocols::PROTOCOLS;
use serde_json::{Value, json};

use crate::args;
use crate::exit::{Exit, Failure};
use crate::ui::console::{Console, width};
use crate::ui::wrap;

/// Version of the JSON list. It grows when a name disappears or changes its meaning.
const METRICS_VERSION: u32 = 1;

/// Lists the metrics whose name contains `wanted`, or whose protocol or subject has that name.
fn listing(wanted: &str) -> String {
    let mut text = String::new();
    for protocol in PROTOCOLS {
        let title = format!("a population that speaks {}", protocol.name);
        list(
            &mut text,
            &title,
            protocol.catalogue,
            wanted,
            &[protocol.name],
        );
    }
    let browser = "the golden browser of a population, NAME_golden";
    list(&mut text, browser, BROWSER_CATALOGUE, wanted, &["golden"]);
    let link = "uplink and downlink, the directions of an emulated link";
    list(&mut text, link, LINK_CATALOGUE, wanted, &LINKS);
    list(&mut text, "server", SERVER_CATALOGUE, wanted, &["server"]);
    list(&mut text, "tester", TESTER_CATALOGUE, wanted, &["tester"]);
    text
}

/// Names of the subjects of an emulated link.
const LINKS: [&str; 3] = ["link", "uplink", "downlink"];

/// Returns `true` if the name of the metric contains `wanted`, or if its protocol or subject has
/// that name.
fn is_wanted(metric: &Metric, wanted: &str, names: &[&str]) -> bool {
    names.contains(&wanted) || metric.name.contains(wanted)
}

/// Prints every metric: name, unit, definition, source.
pub(crate) fn metrics(arguments: &args::Metrics, console: Console) -> Result<Exit, Failure> {
    let wanted = arguments.name.as_deref().unwrap_or_default();
    if arguments.json {
        console.print_json(&metrics_json(wanted)?)?;
        return Ok(Exit::Pass);
    }
    let text = listing(wanted);
    if text.is_empty() {
        return Err(unknown(wanted));
    }
    console.print(&wrap::lines(&text, width(std::io::stdout()), 0))?;
    Ok(Exit::Pass)
}

fn unknown(wanted: &str) -> Failure {
    Failure::bad(format_args!(
        "no metric has `{wanted}` in its name, and no protocol or subject has that name; `streamgauge metrics` lists all"
    ))
}

/// Returns every metric as JSON, by its subject: `population` (of a protocol), `golden`, `uplink`,
/// `downlink`, `server` or `tester`.
fn metrics_json(wanted: &str) -> Result<Value, Failure> {
    let subject = |subject: &str, protocol: Option<&str>, catalogue: Catalogue| {
        let names: &[&str] = match protocol {
            Some(protocol) => &[protocol],
            None if LINKS.contains(&subject) => &[LINKS[0], subject],
            None => &[subject],
        };
        let metrics = catalogue.metrics();
        let metrics = metrics.filter(|metric| is_wanted(metric, wanted, names));
        let metrics: Vec<Value> = metrics.map(metric_json).collect();
        json!({ "subject": subject, "protocol": protocol, "metrics": metrics })
    };
    let mut subjects: Vec<Value> = PROTOCOLS
        .iter()
        .map(|protocol| subject("population", Some(protocol.name), protocol.catalogue))
        .collect();
    subjects.push(subject("golden", None, BROWSER_CATALOGUE));
    subjects.push(subject("uplink", None, LINK_CATALOGUE));
    subjects.push(subject("downlink", None, LINK_CATALOGUE));
    subjects.push(subject("server", None, SERVER_CATALOGUE));
    subjects.push(subject("tester", None, TESTER_CATALOGUE));
    subjects.retain(|subject| subject["metrics"] != json!([]));
    if subjects.is_empty() {
        return Err(unknown(wanted));
    }
    Ok(json!({ "metrics_version": METRICS_VERSION, "subjects": subjects }))
}

fn metric_json(metric: &Metric) -> Value {
    let (kind, statistics) = match metric.source {
        MetricSource::Distribution(_) => (
            "distribution",
            &["mean", "min", "max", "percentiles", "count"][..],
        ),
        MetricSource::Gauge(..) => ("level", &["mean", "min", "max"][..]),
        MetricSource::Counter(_) => ("counter", &[][..]),
        _ => ("derived", &[][..]),
    };
    let lines: Vec<&str> = metric.doc.lines().map(str::trim).collect();
    json!({
        "name": metric.name,
        "unit": metric.unit,
        "kind": kind,
        "statistics": statistics,
        "definition": lines.join("\n"),
        "source": Some(metric.reference).filter(|reference| !reference.is_empty()),
    })
}

fn list(text: &mut String, title: &str, catalogue: Catalogue, wanted: &str, names: &[&str]) {
    let mut titled = false;
    for metric in catalogue
        .metrics()
        .filter(|metric| is_wanted(metric, wanted, names))
    {
        if !titled {
            titled = true;
            let gap = if text.is_empty() { "" } else { "\n" };
            let _ = writeln!(text, "{gap}Metrics of {title}:");
        }
        let _ = write!(text, "\n  {}  ({})", metric.name, kind(metric));
        for paragraph in wrap::paragraphs(metric.doc) {
            let _ = write!(text, "\n      {paragraph}");
        }
        if !metric.reference.is_empty() {
            let _ = write!(text, "\n      Source: {}", metric.reference);
        }
        text.push('\n');
    }
}

/// Returns the unit and the statistics of a metric as text.
fn kind(metric: &Metric) -> String {
    let unit = match metric.unit {
        measure::Unit::Count => "count",
        measure::Unit::Ratio => "share from 0 to 1",
        other => other.symbol(),
    };
    let statistics = match metric.source {
        MetricSource::Distribution(_) => "; mean, min, max, percentiles such as p95, count",
        MetricSource::Gauge(..) => "; mean, min, max",
        _ => "",
    };
    format!("{unit}{statistics}")
}

/// Prints a JSON Schema.
pub(crate) fn schema(arguments: &args::Schema, console: Console) -> Result<Exit, Failure> {
    let schema = match arguments.of {
        args::SchemaOf::Scenario => scenario::schema(),
        args::SchemaOf::Series => report::schema::series_schema(),
        args::SchemaOf::Report => {
            let protocols: Vec<Catalogue> = PROTOCOLS
                .iter()
                .map(|protocol| protocol.catalogue)
                .chain([BROWSER_CATALOGUE])
                .collect();
            report::schema::report_schema(&protocols, SERVER_CATALOGUE, TESTER_CATALOGUE)
        }
    };
    console.print_json(&schema)?;
    Ok(Exit::Pass)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_name_existing_metrics() {
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let mut named = 0;
        for entry in std::fs::read_dir(docs).expect("there are pages") {
            let path = entry.expect("it can be read").path();
            if path.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let page = std::fs::read_to_string(&path).expect("it is text");
            let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
            for after in page.split("`streamgauge metrics ").skip(1) {
                let words = after.split('`').next().unwrap_or_default();
                for word in words.split(' ').filter(|word| !word.starts_with('-')) {
                    named += 1;
                    assert_ne!(listing(word), "", "{word} in {}", path.display());
                    assert!(metrics_json(word).is_ok(), "{word} in {}", path.display());
                }
            }
        }
        assert!(named > 3, "{named}");
    }
}
