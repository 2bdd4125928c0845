//! Multicast sources of a run.

use std::collections::HashMap;
use std::path::PathBuf;

use kit::mediagen::ts::looped_stream::{RATE_MAX, RATE_MIN};
use kit::source::{Destination, GROUPS_MAX};
use measure::units::BitRate;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::json;

use crate::collector::{TypeSyntax, join_path};
use crate::error::Problem;
use crate::fields::wrong_type;
use crate::model::MulticastSource;
use crate::network::Network;
use crate::node::{Entry, Node, Value, display_text};
use crate::origin::Origin;
use crate::section::{self, BoundedInteger, Deferred, Key, ValueRange, Within, one_line};
use crate::{names, urls};

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline, transform = one_line, extend("required" = ["to"]))]
struct SourceKeys {
    /// Targets: udp://GROUP:PORT for MPEG-TS alone, rtp://GROUP:PORT for MPEG-TS over RTP; `{1..8}`
    /// expands. One stream each.
    #[schemars(schema_with = "urls::schema", extend("minItems" = 1))]
    to: Key<Deferred>,
    /// Bit rate of each stream: of transport packets, stamps included; 500kbps to 10Gbps. Default:
    /// that of the file, else 4Mbps.
    bitrate: Key<Within<SourceRate>>,
    /// An MPEG-TS file that is sent in a loop, relative to the scenario file. Default: a generated
    /// programme.
    file: Key<PathBuf>,
    /// Sending interface: its name, or one of its addresses. Default `lo`; with `network: veth` the
    /// one towards the server.
    interface: Key<String>,
    /// Time to live of the datagrams, in hops. Default 1.
    ttl: Key<BoundedInteger<0, 255>>,
}

const FORMS: &[TypeSyntax] = &[(
    "SourceKeys",
    "write at least `to` below it",
    &[("to", "write `to: [\"udp://239.81.0.1:4056\"]`")],
)];

struct SourceRate;

impl ValueRange for SourceRate {
    type Value = BitRate;
    const MIN: BitRate = BitRate(RATE_MIN);
    const MAX: BitRate = BitRate(RATE_MAX);

    fn out_of_range_message(rate: &BitRate) -> String {
        let (least, most) = (Self::MIN, Self::MAX);
        format!("a source cannot send {rate}; write a bit rate from {least} to {most}")
    }
}

/// Maximum number of sources of a scenario.
const MAX_SOURCES: usize = 100;

/// Line of the description about the time in which sources send.
pub(crate) const HOW_LONG: &str =
    "sources: send from before the server starts until every client has ended";

const FORM: &str = "write the name of each source with its keys below it, such as `sources: {channels: {to: [\"rtp://239.81.0.{1..8}:4056\"], bitrate: 40Mbps}}`";

/// Reads the sources of a scenario.
pub(crate) fn read(
    node: &Node,
    network: Network,
    problems: &mut Vec<Problem>,
) -> Vec<MulticastSource> {
    let Value::Map(entries) = &node.value else {
        problems.push(wrong_type(node, "sources", "a mapping").help(FORM));
        return Vec::new();
    };
    if entries.is_empty() || entries.len() > MAX_SOURCES {
        let text = format!("`sources` needs 1 to {MAX_SOURCES} sources");
        problems.push(Problem::new(&node.origin, text).help(FORM));
        return Vec::new();
    }
    let mut seen = HashMap::new();
    entries
        .iter()
        .filter_map(|entry| one(entry, network, &mut seen, problems))
        .collect()
}

fn one(
    entry: &Entry,
    network: Network,
    seen: &mut HashMap<std::net::SocketAddr, Origin>,
    problems: &mut Vec<Problem>,
) -> Option<MulticastSource> {
    names::check(entry, "source", problems);
    let path = format!("sources.{}", entry.key);
    let keys: SourceKeys = section::read(&entry.node, &path, FORMS, problems)?;
    Some(MulticastSource {
        name: entry.key.clone(),
        to: match entry.node.get("to") {
            Some(node) => targets(node, &join_path(&path, "to"), seen, problems),
            None => Vec::new(),
        },
        bitrate: keys.bitrate.0.map(|rate| rate.0),
        file: keys.file.0,
        interface: keys.interface.or(network.source_interface().to_owned()),
        ttl: keys.ttl.number().unwrap_or(1),
    })
}

/// Reads the targets of a source: groups without another stream.
fn targets(
    node: &Node,
    path: &str,
    seen: &mut HashMap<std::net::SocketAddr, Origin>,
    problems: &mut Vec<Problem>,
) -> Vec<Destination> {
    let mut targets = Vec::new();
    for (url, node) in urls::read(node, path, None, problems) {
        if seen.len() == GROUPS_MAX {
            let text = format!("a run sends to at most {GROUPS_MAX} groups");
            problems.push(Problem::new(&node.origin, text));
            break;
        }
        let target: Destination = match url.parse() {
            Ok(target) => target,
            Err(error) => {
                problems.push(Problem::new(&node.origin, format!("{error}")));
                continue;
            }
        };
        match seen.insert(target.group, node.origin.clone()) {
            None => targets.push(target),
            Some(first) => {
                let mut problem = Problem::new(
                    &node.origin,
                    format!(
                        "two streams are sent to {}",
                        display_text(&target.group.to_string())
                    ),
                )
                .help(
                    "receivers could not distinguish them: give each stream its own group or port",
                );
                if first != node.origin {
                    problem = problem.with_second_position(&first, "and here");
                }
                problems.push(problem);
            }
        }
    }
    targets
}

/// Returns the JSON Schema of the values that [`read`] accepts.
pub(crate) fn schema(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = names::schema(SourceKeys::json_schema(generator).to_value());
    schema.insert("maxProperties".to_owned(), json!(MAX_SOURCES));
    schema
}
