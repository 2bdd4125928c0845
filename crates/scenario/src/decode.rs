//! Decodes the tree into the scenario and collects all problems.

use std::time::Duration;

use kit::browser::BROWSER_CATALOGUE;
use measure::link::{DOWNLINK, UPLINK};
use measure::units::{Ratio, TimeSpan};
use measure::{Catalogue, LINK_CATALOGUE, SERVER_CATALOGUE, TESTER_CATALOGUE};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use crate::capacity_keys::CapacityKeys;
use crate::collector::TypeSyntax;
use crate::emulated_link::Link;
use crate::error::{Problem, ScenarioError};
use crate::fields::{read_string, unknown_keys, wrong_type};
use crate::golden;
use crate::link_keys::{self, LinkKeys};
use crate::model::{
    DEFAULT_STOP_TIMEOUT, Population, Scenario, Server, ServerStart, StopAt, Threshold,
};
use crate::network::Network;
use crate::node::{Entry, Node, Value, display_text};
use crate::origin::{Origin, SourceKind};
use crate::overrides::Overrides;
use crate::placed_links;
use crate::section::{self, BoundedInteger, Deferred, Key, one_line};
use crate::series_keys::{MAKE_SERIES, MAX_REPEAT};
use crate::server::{self, ServerKeys};
use crate::tester::{self, TesterKeys};
use crate::tree::Tree;
use crate::{network_keys, population, shell_variables, sources, waiting};

/// Plan of a run: the server, the clients, and the thresholds.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(transform = one_line, title = "streamgauge scenario")]
#[schemars(extend("required" = ["clients"]))]
pub(crate) struct ScenarioKeys {
    /// Name of the run in reports. Default: the name of the file.
    name: Key<String>,
    #[schemars(with = "ServerKeys")]
    server: Key<Deferred>,
    /// Network of clients, sources and server: this machine's `own` (default); a namespace created
    /// for the run with only a `loopback` interface; or namespaces connected by `veth`, in which
    /// the server is 10.81.0.2. A created network needs CAP_SYS_ADMIN and CAP_NET_ADMIN. With keys:
    /// `{kind: veth, congestion: bbr}`.
    #[schemars(schema_with = "network_keys::schema")]
    network: Key<Deferred>,
    /// An emulated link between clients and server, which are in networks created for the run
    /// (`network: veth`): delay, loss, rate, queue.
    #[schemars(with = "LinkKeys")]
    link: Key<Deferred>,
    /// Multicast sources of the run, by name. They send from before the server starts until every
    /// client has ended.
    #[schemars(schema_with = "sources::schema")]
    sources: Key<Deferred>,
    /// The populations: groups of clients with the same settings, by name.
    #[schemars(schema_with = "population::schema")]
    clients: Key<Deferred>,
    /// Length of the run from its start, ramp included. Default: until every population has ended.
    duration: Key<TimeSpan>,
    /// Time at the beginning that is excluded from every figure and threshold, except the numbers
    /// of clients and of failures. Default 0s.
    warm_up: Key<TimeSpan>,
    /// Conditions that must hold, such as `viewers.loss < 1%` or `viewers.startup_delay.p95 < 2s`;
    /// with `.worst` in the worst second.
    #[schemars(with = "Vec<ThresholdForm>")]
    thresholds: Key<Deferred>,
    /// Seed of all random choices. Default: a new one for each run; the report shows it.
    seed: Key<BoundedInteger<0, { u64::MAX }>>,
    /// Maximum time for the graceful shutdown of sessions. Default 5s.
    stop_timeout: Key<TimeSpan>,
    /// Number of worker threads. Default: one for each 1000 clients, up to the number of cores, or
    /// more if the limit of file descriptors requires it.
    workers: Key<BoundedInteger<1, 1_024>>,
    tester: Key<TesterKeys>,
    /// A series of runs: dotted keys of this file, each with a list of values, such as
    /// `clients.viewers.load.clients: [50, 100]`; and `cases`, each of which sets several keys. One
    /// run for each combination; the first key changes slowest.
    #[schemars(schema_with = "vary_schema")]
    vary: Deferred,
    /// With `vary`: the key whose first passing value is searched for. Its values are tried by
    /// binary search, for each combination of the others. Default: all combinations run.
    #[schemars(with = "String")]
    find: Deferred,
    /// With `vary` or `capacity`: time between two runs. Default 5s.
    #[schemars(with = "TimeSpan")]
    settle: Deferred,
    /// With `vary`: `fail` ends the series after the first run that does not pass. Default `never`.
    #[schemars(with = "StopAt")]
    stop_at: Deferred,
    /// Search for the largest load at which every threshold holds: several runs, each with another
    /// load. With `vary`, one search for each combination.
    #[schemars(with = "CapacityKeys")]
    capacity: Deferred,
    /// Two variants to compare, each with a name and the dotted keys that it sets, such as `old:
    /// {server.launch: mediamtx}`. Their runs alternate. With `vary`, one comparison for each
    /// combination.
    #[schemars(schema_with = "compare_schema")]
    compare: Deferred,
    /// Number of runs of each combination, or of each variant of `compare`. Default 6 with
    /// `compare`, else 1.
    #[schemars(with = "BoundedInteger<1, { MAX_REPEAT }>")]
    repeat: Deferred,
    /// With `compare`: smallest relative difference that counts. Default 5%.
    #[schemars(with = "Ratio")]
    min_effect: Deferred,
}

/// Returns the JSON Schema of `vary`.
fn vary_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "minProperties": 1,
        "properties": {
            "cases": {
                "description": "Cases with a name, each of which sets several dotted keys.",
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["name", "set"],
                    "properties": {
                        "name": { "type": "string" },
                        "set": { "type": "object", "minProperties": 1 }
                    },
                    "additionalProperties": false
                }
            }
        },
        "additionalProperties": { "anyOf": [
            { "type": "array", "minItems": 1 },
            { "type": "object", "minProperties": 1 }
        ] }
    })
}

/// Returns the JSON Schema of `compare`.
fn compare_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "minProperties": 2,
        "maxProperties": 2,
        "additionalProperties": { "type": "object", "minProperties": 1 }
    })
}

/// Forms of a threshold.
#[derive(JsonSchema)]
#[schemars(inline, untagged, description = "")]
#[expect(dead_code, reason = "the reader takes the forms one by one")]
enum ThresholdForm {
    Text(String),
    Keys(ThresholdKeys),
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline, transform = one_line, extend("required" = ["threshold"]))]
struct ThresholdKeys {
    /// Condition that must hold.
    #[schemars(with = "String")]
    threshold: Key<Deferred>,
    /// True: the run ends, as failed, as soon as the condition does not hold. Default false.
    abort: Key<bool>,
    /// Time before the threshold can end the run. Default 0s.
    delay: Key<TimeSpan>,
}

const THRESHOLD_FORM: &str = "write a text such as \"viewers.loss < 1%\", or \
                              `{threshold: \"viewers.loss < 1%\", abort: true, delay: 10s}`";

const FORMS: &[TypeSyntax] = &[
    ("ScenarioKeys", EXAMPLE, &[("clients", EXAMPLE)]),
    (
        "ThresholdKeys",
        THRESHOLD_FORM,
        &[("threshold", THRESHOLD_FORM)],
    ),
    tester::FORM,
    tester::HEALTH_FORM,
];

/// Maximum number of populations of a scenario.
const MAX_POPULATIONS: usize = 100;

/// Maximum number of thresholds of a scenario.
const MAX_THRESHOLDS: usize = 1_000;

/// Help text with a minimal scenario.
pub(crate) const EXAMPLE: &str = "a minimal scenario is `clients: {viewers: {urls: [\"rtsp://127.0.0.1:8554/a\"], load: {clients: 10}}}`";

/// Decodes a scenario. `name` is its name if it has none of its own.
pub(crate) fn decode_scenario(
    root: &Node,
    name: &str,
    overrides: &Overrides,
    problems: &mut Vec<Problem>,
) -> Option<Scenario> {
    if root.value == Value::Null {
        Problem::new(&root.origin, "the scenario is empty")
            .label("nothing here")
            .help(EXAMPLE)
            .report(problems);
        return None;
    }
    if shell_variables::refuse(root, problems) {
        return None;
    }
    let keys: ScenarioKeys = section::read_with_foreign_keys(root, "", FORMS, problems)?;
    let mut server = root
        .get("server")
        .and_then(|node| server::read(node, &overrides.known_servers, problems));
    let linked = link_keys::entries(root).next();
    // A link needs two networks.
    let usual = match linked {
        Some(_) => Network::Veth,
        None => Network::default(),
    };
    let (network, congestion) = network_keys::read(root, usual, problems);
    let link = root
        .get("link")
        .and_then(|node| link_keys::read(node, "link", problems));
    let sources = root
        .get("sources")
        .map(|node| sources::read(node, network, problems))
        .unwrap_or_default();
    if let Some(server) = &mut server
        && let ServerStart::Launch { .. } = server.start
        && network != Network::Own
    {
        let usual = network.server_interface(!sources.is_empty());
        server.interface.get_or_insert_with(|| usual.to_owned());
    }
    let (duration, warm_up) = (keys.duration.0, keys.warm_up.0);
    if let (Some(warm_up), Some(duration), Some(entry)) = (warm_up, duration, root.entry("warm_up"))
        && warm_up >= duration
    {
        let text = format!("a warm-up of {warm_up} leaves nothing of a run of {duration}");
        Problem::new(&entry.node.origin, text)
            .help("the duration counts from the start of the run, warm-up included")
            .report(problems);
    }
    if let (Some(TimeSpan(Duration::ZERO)), Some(node)) = (duration, root.get("duration")) {
        Problem::new(&node.origin, "a run of `0s` measures nothing")
            .help("write how long it is to last, such as `60s`")
            .report(problems);
    }
    let populations = root
        .get("clients")
        .map(|node| populations(node, network, duration.map(|span| span.0), problems))
        .unwrap_or_default();
    placed_links::check_names(&populations, root, problems);
    golden::check(&populations, root, problems);
    if problems.is_empty() {
        waiting::check(&populations, root, problems);
    }
    if let (Some(linked), Some(entry), false) =
        (linked, root.entry("network"), network == Network::Veth)
    {
        let text = format!(
            "a link needs two networks, but `network: {}` is only one",
            network.name()
        );
        Problem::new(&linked.key_origin, text)
            .with_second_position(&entry.node.origin, "set here")
            .help("write `network: veth`, or remove `network`")
            .report(problems);
    }
    if let Some(entry) = root.entry("network").or(linked) {
        // A server that could not be read is not a missing server.
        if problems.is_empty() {
            check_network(entry, network, server.as_ref(), &populations, problems);
        }
    }
    let has_server = root.entry("server").is_some();
    let thresholds = root
        .get("thresholds")
        .map(|node| thresholds(node, link.as_ref(), &populations, has_server, problems))
        .unwrap_or_default();
    refuse_series_keys(root, problems);
    unknown_keys(root, "", section::keys::<ScenarioKeys>(), problems);
    Some(Scenario {
        name: keys.name.0.unwrap_or_else(|| name.to_owned()),
        server,
        network,
        congestion,
        link,
        sources,
        populations,
        duration: duration.map(|span| span.0),
        warm_up: warm_up.unwrap_or_default().0,
        starts_in_warm_up: false,
        thresholds,
        seed: keys.seed.number().unwrap_or(overrides.default_seed),
        stop_timeout: keys.stop_timeout.or(TimeSpan(DEFAULT_STOP_TIMEOUT)).0,
        workers: keys.workers.number(),
        tester: keys.tester.or(TesterKeys::default()).into(),
        varied: Vec::new(),
        tree: Tree::new(root),
    })
}

/// Decodes a scenario, or returns all problems: `problems` are those of building the tree.
pub(crate) fn decode(
    root: &Node,
    name: &str,
    overrides: &Overrides,
    mut problems: Vec<Problem>,
) -> Result<Scenario, ScenarioError> {
    match decode_scenario(root, name, overrides, &mut problems) {
        Some(scenario) if problems.is_empty() => Ok(scenario),
        _ if problems.is_empty() => Err(Problem::new(
            &Origin::whole(&root.origin.source),
            "the scenario cannot be read",
        )
        .into()),
        _ => Err(ScenarioError::new(problems)),
    }
}

/// Reports the lack of a server that the run starts, or a receiver elsewhere, if the network is
/// created for the run.
fn check_network(
    entry: &Entry,
    network: Network,
    server: Option<&Server>,
    populations: &[Population],
    problems: &mut Vec<Problem>,
) {
    if network == Network::Own {
        return;
    }
    let what = match entry.key.as_str() {
        "network" => format!("`network: {}` is", network.name()),
        _ => "a link needs networks that are".to_owned(),
    };
    let why = match server.map(|server| &server.start) {
        Some(start) if start.is_observed() => {
            Some("the server is only observed, so it is not in it".to_owned())
        }
        Some(_) => None,
        None => Some("the run starts no server in it".to_owned()),
    };
    let receives_outside = |own: &&Population| {
        own.config
            .facts()
            .media
            .is_some_and(|media| media.receiver.is_some() || media.address.is_some())
    };
    let receives_outside = populations.iter().find(receives_outside);
    let outside = receives_outside.map(|own| {
        let name = &own.name;
        format!("`clients.{name}.media` is received outside the run's network")
    });
    if let Some(why) = why.or(outside) {
        let text = format!("{what} created for the run: {why}");
        Problem::new(&entry.node.origin, text)
            .help(format!(
                "let the run start the server (`launch` or `command`), or remove `{}`",
                entry.key
            ))
            .report(problems);
    }
}

/// Refuses the keys of a series. The reader of a series has already removed them.
fn refuse_series_keys(root: &Node, problems: &mut Vec<Problem>) {
    for key in MAKE_SERIES {
        if let Some(entry) = root.entry(key) {
            let text = format!("`{key}` makes several runs of a scenario");
            Problem::new(&entry.key_origin, text)
                .label("a single run is expected here")
                .help(format!("remove it, or set `{key}=`"))
                .report(problems);
        }
    }
    let is_series = MAKE_SERIES.iter().any(|key| root.entry(key).is_some());
    for key in ["find", "settle", "stop_at", "min_effect"] {
        if let (false, Some(entry)) = (is_series, root.entry(key)) {
            Problem::new(&entry.key_origin, format!("`{key}` needs a series of runs"))
                .help("add `vary`, or remove it")
                .report(problems);
        }
    }
}

fn populations(
    node: &Node,
    network: Network,
    duration: Option<Duration>,
    problems: &mut Vec<Problem>,
) -> Vec<Population> {
    const FORM: &str = "write the name of each population with its keys below it, such as `clients: {viewers: {urls: [...], load: {clients: 10}}}`";
    let Value::Map(entries) = &node.value else {
        problems.push(wrong_type(node, "clients", "a mapping").help(FORM));
        return Vec::new();
    };
    if entries.is_empty() {
        problems.push(Problem::new(&node.origin, "`clients` has no population").help(FORM));
    }
    if entries.len() > MAX_POPULATIONS {
        let text = format!("{} populations are too many", entries.len());
        Problem::new(&node.origin, text)
            .help(format!("at most {MAX_POPULATIONS} are possible"))
            .report(problems);
        return Vec::new();
    }
    let read = |(at, entry): (usize, &Entry)| {
        let server = match entry.node.entry("link") {
            Some(_) => placed_links::own_server_address(at),
            None => network.server_address(),
        };
        population::read(entry, server, duration, problems)
    };
    entries.iter().enumerate().filter_map(read).collect()
}

fn thresholds(
    node: &Node,
    link: Option<&Link>,
    populations: &[Population],
    has_server: bool,
    problems: &mut Vec<Problem>,
) -> Vec<Threshold> {
    let Value::List(items) = &node.value else {
        wrong_type(node, "thresholds", "a list")
            .help("write `thresholds: [\"viewers.loss < 1%\"]`")
            .report(problems);
        return Vec::new();
    };
    if items.len() > MAX_THRESHOLDS {
        let text = format!("{} thresholds are too many", items.len());
        Problem::new(&node.origin, text)
            .help(format!("at most {MAX_THRESHOLDS} are possible"))
            .report(problems);
        return Vec::new();
    }
    let mut subjects: Vec<_> = populations.iter().map(Population::subject).collect();
    if has_server {
        subjects.push(("server", SERVER_CATALOGUE));
    }
    subjects.push(("tester", TESTER_CATALOGUE));
    let of_links = placed_links::subjects(link, populations);
    let of_links = of_links.iter().map(|name| (name.as_str(), LINK_CATALOGUE));
    subjects.extend(of_links);
    let of_golden = golden::subjects(populations);
    let of_golden = of_golden.iter();
    subjects.extend(of_golden.map(|name| (name.as_str(), BROWSER_CATALOGUE)));
    // Thresholds of a population that could not be read cannot be checked.
    let broken = !problems.is_empty();
    let mut thresholds = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let path = format!("thresholds.{index}");
        let Some((node, abort)) = written_threshold(item, &path, problems) else {
            continue;
        };
        let Some(written) = read_string(node, &path, problems) else {
            continue;
        };
        if let Err(problem) = check_threshold(&written, node, &subjects, has_server, broken) {
            problems.push(problem);
        }
        thresholds.push(Threshold {
            text: written,
            origin: node.origin.to_string(),
            abort,
        });
    }
    thresholds
}

/// Returns the node with the text of a threshold, and the time from which a violation ends the run.
/// A threshold is a text alone, or `{threshold: TEXT, abort: true, delay: 10s}`.
fn written_threshold<'a>(
    item: &'a Node,
    path: &str,
    problems: &mut Vec<Problem>,
) -> Option<(&'a Node, Option<Duration>)> {
    let Value::Map(_) = item.value else {
        return Some((item, None));
    };
    let keys: ThresholdKeys = section::read(item, path, FORMS, problems)?;
    let abort = keys.abort.or(false);
    if let (false, Some(_), Some(entry)) = (abort, keys.delay.0, item.entry("delay")) {
        let text = "`delay` has no meaning without `abort: true`";
        Problem::new(&entry.key_origin, text)
            .help("it is the time before the threshold can end the run")
            .report(problems);
    }
    let delay = keys.delay.0.unwrap_or_default().0;
    Some((item.get("threshold")?, abort.then_some(delay)))
}

fn check_threshold(
    written: &str,
    node: &Node,
    subjects: &[(&str, Catalogue)],
    has_server: bool,
    broken: bool,
) -> Result<(), Problem> {
    // The message names the option anyway.
    let named = |message: &str| match node.origin.source.kind {
        SourceKind::Option => message.to_owned(),
        _ => format!("threshold `{}`: {message}", display_text(written)),
    };
    let located = |error: measure::ThresholdError| {
        // Position within the text, if the file contains it literally.
        let raw = node.origin.text();
        let origin = match raw.find(written) {
            Some(begin) => {
                let rest = written.get(error.offset..).unwrap_or("");
                let word = rest
                    .find(|c: char| c.is_whitespace() || "<>=!.".contains(c))
                    .unwrap_or(rest.len());
                node.origin.part(begin + error.offset, word.max(1))
            }
            None => node.origin.clone(),
        };
        Problem::new(&origin, named(&error.message)).help(error.help)
    };
    let threshold = measure::Threshold::parse(written).map_err(located)?;
    if threshold.subject() == "server" && !has_server {
        let text = named("the scenario has no `server` to measure");
        return Err(Problem::new(&node.origin, text).help(
            "launch it with `server: {command: [...]}` or observe it with `server: {observe: {pid: \
             123}}`",
        ));
    }
    let no_such = subjects
        .iter()
        .all(|(name, _)| *name != threshold.subject());
    if no_such && [UPLINK, DOWNLINK].contains(&threshold.subject()) {
        return Err(
            Problem::new(&node.origin, named("the scenario has no `link` to measure"))
                .help("write one, such as `link: {rtt: 178ms, loss: 0.5%}`"),
        );
    }
    if broken && no_such {
        return Ok(());
    }
    threshold.check(subjects).map_err(located)
}
