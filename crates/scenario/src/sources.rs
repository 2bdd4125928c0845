//! Sources: what a run sends to multicast groups itself.

use std::collections::HashMap;
use std::path::PathBuf;

use measure::units::BitRate;
use protocol::media::ts::reel::{RATE_MAX, RATE_MIN};
use protocol::source::{DEFAULT_RATE, GROUPS_MAX, Target};
use schemars::SchemaGenerator;
use serde::Serialize;
use serde_json::{Value as Json, json};

use crate::error::Problem;
use crate::fields::{Fields, wrong_type};
use crate::network::Network;
use crate::node::{Entry, Node, Value, shown};
use crate::population;
use crate::source::Origin;
use crate::urls;

/// A source: a transport stream, sent to each of some multicast groups for as long as the run lasts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MulticastSource {
    /// Its name, written as a population's.
    pub name: String,
    /// Where to: one stream each. At least one, and none that another source sends to.
    pub to: Vec<Target>,
    /// The bit rate of each stream: of transport packets, stamps included. Default: that of the file, else
    /// [`DEFAULT_RATE`].
    pub bitrate: Option<BitRate>,
    /// The transport stream that is sent over and over. Default: a made programme.
    pub file: Option<PathBuf>,
    /// By which interface it leaves: the name of one, or an address that it has. Default: the loopback interface; in a
    /// [`Network::Veth`] that towards the server.
    pub interface: String,
    /// How many hops datagrams live. Default 1.
    pub ttl: u8,
}

impl MulticastSource {
    /// The bit rate of each stream, as far as the scenario alone tells: that of a file is known when it is read.
    pub fn rate(&self) -> Option<BitRate> {
        let made = || self.file.is_none().then_some(BitRate(DEFAULT_RATE));
        self.bitrate.or_else(made)
    }

    /// What it is going to send, in words.
    pub(crate) fn line(&self) -> String {
        let what = match &self.file {
            Some(file) => format!("{} over and over", file.display()),
            None => "a made programme".to_owned(),
        };
        let rate = match self.rate() {
            Some(rate) => format!("{rate} each"),
            None => "its own bit rate".to_owned(),
        };
        let to = match self.to.as_slice() {
            [first, .., last] => format!("{first} to {last}, {} groups", self.to.len()),
            one => one.iter().map(Target::to_string).collect(),
        };
        format!(
            "source {}: {what} at {rate} to {to}, by {}, TTL {}",
            self.name, self.interface, self.ttl
        )
    }
}

/// The keys of a source.
pub(crate) const KEYS: [&str; 5] = ["to", "bitrate", "file", "interface", "ttl"];

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
    population::check_name(entry, "source", problems);
    let path = format!("sources.{}", entry.key);
    let mut fields = Fields::of(&entry.node, &path, "write at least `to` below it", problems)?;
    let to = fields
        .need("to", "write `to: [\"udp://239.81.0.1:4056\"]`", problems)
        .map(|node| targets(node, &fields.path_of("to"), seen, problems))
        .unwrap_or_default();
    let bitrate = fields.quantity::<BitRate>("bitrate", problems);
    if let (Some(rate), Some(entry)) = (bitrate, fields.entry("bitrate"))
        && !(RATE_MIN..=RATE_MAX).contains(&rate.0)
    {
        let (least, most) = (BitRate(RATE_MIN), BitRate(RATE_MAX));
        problems.push(
            Problem::new(&entry.node.origin, format!("a source cannot send {rate}"))
                .help(format!("write a bit rate from {least} to {most}")),
        );
    }
    let ttl = fields.integer("ttl", 0..=255, problems);
    let source = MulticastSource {
        name: entry.key.clone(),
        to,
        bitrate,
        file: fields.text("file", problems).map(PathBuf::from),
        interface: fields
            .text("interface", problems)
            .unwrap_or_else(|| network.source_interface().to_owned()),
        ttl: ttl.and_then(|ttl| u8::try_from(ttl).ok()).unwrap_or(1),
    };
    fields.finish(&KEYS, problems);
    Some(source)
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

/// What an editor is told of sources.
pub(crate) fn schema(generator: &mut SchemaGenerator) -> Json {
    let bit_rate = generator.subschema_for::<BitRate>().to_value();
    let mut bit_rate = bit_rate.clone();
    bit_rate["description"] = Json::from(
        "The bit rate of each stream: of transport packets, stamps included; 500kbps to 10Gbps. Default: of a file its own, else 4Mbps.",
    );
    json!({
        "type": "object",
        "description": "What the run itself sends to multicast groups, by name, from before the server starts until every client has ended.",
        "minProperties": 1,
        "maxProperties": MAX_SOURCES,
        "propertyNames": {
            "pattern": "^[a-z][a-z0-9_]{0,63}$",
            "not": { "enum": ["server", "tester"] }
        },
        "additionalProperties": {
            "type": "object",
            "additionalProperties": false,
            "required": ["to"],
            "properties": {
                "to": {
                    "type": ["array", "string"],
                    "items": { "type": "string" },
                    "minItems": 1,
                    "description": "Where to: udp://GROUP:PORT for MPEG-TS alone, rtp://GROUP:PORT for RTP with it; `{1..8}` expands. One stream each."
                },
                "bitrate": bit_rate,
                "file": { "type": "string", "description": "An MPEG-TS file that is sent over and over, relative to the scenario file. Default: a made programme." },
                "interface": { "type": "string", "description": "By which interface it leaves: a name, or an address that it has. Default `lo`; with `network: veth` the one towards the server." },
                "ttl": { "type": "integer", "minimum": 0, "maximum": 255, "description": "How many hops datagrams live. Default 1." }
            }
        }
    })
}
