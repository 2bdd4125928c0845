//! Sources: what a run sends to multicast groups itself.

use std::collections::HashMap;
use std::path::PathBuf;

use measure::units::BitRate;
use mediagen::ts::looped_stream::{RATE_MAX, RATE_MIN};
use protocol::source::{GROUPS_MAX, Target};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::json;

use crate::collector::{Form, join};
use crate::error::Problem;
use crate::fields::wrong_type;
use crate::model::MulticastSource;
use crate::network::Network;
use crate::node::{Entry, Node, Value, shown};
use crate::section::{self, Key, Range, Raw, Whole, Within, one_line};
use crate::source::Origin;
use crate::{names, urls};

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline, transform = one_line, extend("required" = ["to"]))]
struct SourceKeys {
    /// Where to: udp://GROUP:PORT for MPEG-TS alone, rtp://GROUP:PORT for RTP with it; `{1..8}`
    /// expands. One stream each.
    #[schemars(schema_with = "urls::schema", extend("minItems" = 1))]
    to: Key<Raw>,
    /// The bit rate of each stream: of transport packets, stamps included; 500kbps to 10Gbps.
    /// Default: of a file its own, else 4Mbps.
    bitrate: Key<Within<SourceRate>>,
    /// An MPEG-TS file that is sent over and over, relative to the scenario file. Default: a made
    /// programme.
    file: Key<PathBuf>,
    /// By which interface it leaves: a name, or an address that it has. Default `lo`; with
    /// `network: veth` the one towards the server.
    interface: Key<String>,
    /// How many hops datagrams live. Default 1.
    ttl: Key<Whole<0, 255>>,
}

const FORMS: &[Form] = &[(
    "SourceKeys",
    "write at least `to` below it",
    &[("to", "write `to: [\"udp://239.81.0.1:4056\"]`")],
)];

struct SourceRate;

impl Range for SourceRate {
    type Value = BitRate;
    const LEAST: BitRate = BitRate(RATE_MIN);
    const MOST: BitRate = BitRate(RATE_MAX);

    fn refusal(rate: &BitRate) -> String {
        let (least, most) = (Self::LEAST, Self::MOST);
        format!("a source cannot send {rate}; write a bit rate from {least} to {most}")
    }
}

/// The most sources of one scenario.
const MAX_SOURCES: usize = 100;

/// When sources send, in words for who reads a plan.
pub(crate) const HOW_LONG: &str =
    "sources: send from before the server starts until every client has ended";

const FORM: &str = "write the name of each source with its keys below it, such as `sources: {channels: {to: [\"rtp://239.81.0.{1..8}:4056\"], bitrate: 40Mbps}}`";

/// The sources of a scenario.
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
            Some(node) => targets(node, &join(&path, "to"), seen, problems),
            None => Vec::new(),
        },
        bitrate: keys.bitrate.0.map(|rate| rate.0),
        file: keys.file.0,
        interface: keys.interface.or(network.source_interface().to_owned()),
        ttl: keys
            .ttl
            .0
            .and_then(|ttl| u8::try_from(ttl.0).ok())
            .unwrap_or(1),
    })
}

/// Where it sends to: groups that nothing else is sent to.
fn targets(
    node: &Node,
    path: &str,
    seen: &mut HashMap<std::net::SocketAddr, Origin>,
    problems: &mut Vec<Problem>,
) -> Vec<Target> {
    let mut targets = Vec::new();
    for (url, node) in urls::read(node, path, None, problems) {
        if seen.len() == GROUPS_MAX {
            let text = format!("a run sends to at most {GROUPS_MAX} groups");
            problems.push(Problem::new(&node.origin, text));
            break;
        }
        let target: Target = match url.parse() {
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
                    format!("{} is sent to twice", shown(&target.group.to_string())),
                )
                .help("streams to one group could not be told apart: give each a group or a port of its own");
                if first != node.origin {
                    problem = problem.other(&first, "and here");
                }
                problems.push(problem);
            }
        }
    }
    targets
}

/// The JSON Schema of what [`read`] takes.
pub(crate) fn schema(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = names::schema(SourceKeys::json_schema(generator).to_value());
    schema.insert("maxProperties".to_owned(), json!(MAX_SOURCES));
    schema
}
