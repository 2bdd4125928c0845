//! From the tree to the scenario: every key decoded, every problem collected.

use std::time::Duration;

use measure::link::{DOWNLINK, UPLINK};
use measure::units::TimeSpan;
use measure::{Catalogue, LINK_CATALOGUE, SERVER_CATALOGUE, TESTER_CATALOGUE};
use protocol::browser::BROWSER_CATALOGUE;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use crate::collector::Form;
use crate::emulated_link::Link;
use crate::error::{Problem, ScenarioError};
use crate::fields::{text, unknown_keys, wrong_type};
use crate::golden;
use crate::link_keys::{self, LinkKeys};
use crate::link_places;
use crate::model::{
    DEFAULT_STOP_TIMEOUT, Population, Scenario, Server, ServerStart, StopAt, Threshold,
};
use crate::network::Network;
use crate::node::{Entry, Node, Value, shown};
use crate::overrides::Overrides;
use crate::section::{self, Key, Raw, Whole, one_line};
use crate::server::{self, ServerKeys};
use crate::source::{Origin, SourceKind};
use crate::tester::{self, TesterKeys};
use crate::{network_keys, population, sources, waiting};

/// What a run is to do: whom it measures, with how many clients, and what must hold.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(transform = one_line, title = "streamgauge scenario")]
#[schemars(extend("required" = ["clients"]))]
pub(crate) struct ScenarioKeys {
    /// What the run is called in reports. Default: the name of the file.
    name: Key<String>,
    #[schemars(with = "ServerKeys")]
    server: Key<Raw>,
    /// The network of clients, sources and server: this machine's `own` (default); a namespace with
    /// a `loopback` interface alone, made for the run; or namespaces tied by `veth`, in which the
    /// server is 10.81.0.2. What is made needs CAP_SYS_ADMIN and CAP_NET_ADMIN. With keys:
    /// `{kind: veth, congestion: bbr}`.
    #[schemars(schema_with = "network_keys::schema")]
    network: Key<Raw>,
    /// An emulated link between clients and server, which are in networks that are made for the
    /// run (`network: veth`): delay, loss, rate, queue.
    #[schemars(with = "LinkKeys")]
    link: Key<Raw>,
    /// What the run itself sends to multicast groups, by name, from before the server starts until
    /// every client has ended.
    #[schemars(schema_with = "sources::schema")]
    sources: Key<Raw>,
    /// The populations: groups of alike clients, by name.
    #[schemars(schema_with = "population::schema")]
    clients: Key<Raw>,
    /// The length of the run from its start, ramp included. Default: until every population has
    /// ended.
    duration: Key<TimeSpan>,
    /// How much of the beginning is left out of every figure and threshold, but of how many clients
    /// there were and failed. Default 0s.
    warm_up: Key<TimeSpan>,
    /// What must hold, such as `viewers.loss < 1%` or `viewers.startup_delay.p95 < 2s`; with
    /// `.worst` of the worst second.
    #[schemars(with = "Vec<ThresholdForm>")]
    thresholds: Key<Raw>,
    /// What all random choices follow from. Default: another one each time; the report names it.
    seed: Key<Whole<0, { u64::MAX }>>,
    /// How long sessions may take for their clean end. Default 5s.
    stop_timeout: Key<TimeSpan>,
    /// How many threads run clients. Default: what the machine has.
    workers: Key<Whole<1, 1_024>>,
    tester: Key<TesterKeys>,
    /// Several runs: dotted keys of this file, each with a list of the values it takes, such as
    /// `clients.viewers.load.clients: [50, 100]`; and `cases`, of which each sets several keys. One
    /// run for each combination, the first key changing slowest.
    #[schemars(schema_with = "vary_schema")]
    vary: Raw,
    /// With `vary`: the key of which the first value is wanted with which a run passes. Its values
    /// are tried by halves, with each combination of the others. Default: all are run.
    #[schemars(with = "String")]
    find: Raw,
    /// With `vary`: the time between two runs. Default 5s.
    #[schemars(with = "TimeSpan")]
    settle: Raw,
    /// With `vary`: whether the series ends after the first run that does not pass (`fail`).
    /// Default `never`.
    #[schemars(with = "StopAt")]
    stop_at: Raw,
}

/// The JSON Schema of `vary`.
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

/// The forms in which a threshold is written.
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
    /// What must hold.
    #[schemars(with = "String")]
    threshold: Key<Raw>,
    /// Whether the run ends, as failed, as soon as it does not hold. Default false.
    abort: Key<bool>,
    /// How long the run goes on before the threshold may end it. Default 0s.
    delay: Key<TimeSpan>,
}

const THRESHOLD_FORM: &str = "write a text such as \"viewers.loss < 1%\", or \
                              `{threshold: \"viewers.loss < 1%\", abort: true, delay: 10s}`";

const FORMS: &[Form] = &[
    ("ScenarioKeys", EXAMPLE, &[("clients", EXAMPLE)]),
    (
        "ThresholdKeys",
        THRESHOLD_FORM,
        &[("threshold", THRESHOLD_FORM)],
    ),
    tester::FORM,
    tester::HEALTH_FORM,
];

/// The most populations of one scenario.
const MAX_POPULATIONS: usize = 100;

/// The most thresholds of one scenario.
const MAX_THRESHOLDS: usize = 1_000;

/// The smallest scenario there is, for those who have none.
pub(crate) const EXAMPLE: &str =
    "the least is `clients: {viewers: {urls: [\"rtsp://127.0.0.1:8554/a\"], load: {clients: 10}}}`";

/// What the tree says, as a scenario called `name` where it has no name of its own.
pub(crate) fn scenario(
    root: &Node,
    name: &str,
    overrides: &Overrides,
    problems: &mut Vec<Problem>,
) -> Option<Scenario> {
    if root.value == Value::Null {
        problems.push(
            Problem::new(&root.origin, "the scenario is empty")
                .label("nothing here")
                .help(EXAMPLE),
        );
        return None;
    }
    let keys: ScenarioKeys = section::read_open(root, "", FORMS, problems)?;
    let mut server = root
        .get("server")
        .and_then(|node| server::read(node, &overrides.known_servers, problems));
    let linked = link_keys::entries(root).next();
    // Where packets pass a link, they pass from one network to another.
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
        problems.push(
            Problem::new(
                &entry.node.origin,
                format!("a warm-up of {warm_up} leaves nothing of a run of {duration}"),
            )
            .help("the duration counts from the start of the run, warm-up included"),
        );
    }
    if let (Some(TimeSpan(Duration::ZERO)), Some(node)) = (duration, root.get("duration")) {
        problems.push(
            Problem::new(&node.origin, "a run of `0s` measures nothing")
                .help("write how long it is to last, such as `60s`"),
        );
    }
    let populations = root
        .get("clients")
        .map(|node| populations(node, network, duration.map(|span| span.0), problems))
        .unwrap_or_default();
    link_places::check_names(&populations, root, problems);
    golden::check(&populations, root, problems);
    if problems.is_empty() {
        waiting::check(&populations, root, problems);
    }
    if let (Some(linked), Some(entry), false) =
        (linked, root.entry("network"), network == Network::Veth)
    {
        problems.push(
            Problem::new(
                &linked.key_origin,
                format!(
                    "a link is between two networks, and all is in one: `network: {}`",
                    network.name()
                ),
            )
            .other(&entry.node.origin, "said here")
            .help("write `network: veth`, or take `network` out"),
        );
    }
    if let Some(entry) = root.entry("network").or(linked) {
        let has = (server.as_ref(), populations.as_slice());
        // A server that could not be read is no server that is missing.
        if problems.is_empty() {
            check_network(entry, network, has, problems);
        }
    }
    let has_server = root.entry("server").is_some();
    let links = (link.as_ref(), populations.as_slice());
    let thresholds = root
        .get("thresholds")
        .map(|node| thresholds(node, links, has_server, problems))
        .unwrap_or_default();
    of_series(root, problems);
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
        thresholds,
        seed: keys.seed.0.map_or(overrides.default_seed, |seed| seed.0),
        stop_timeout: keys
            .stop_timeout
            .0
            .map_or(DEFAULT_STOP_TIMEOUT, |span| span.0),
        workers: keys
            .workers
            .0
            .and_then(|workers| u32::try_from(workers.0).ok()),
        tester: keys.tester.or(TesterKeys::default()).into(),
        varied: Vec::new(),
    })
}

/// The same, or all that is wrong: `problems` are those found on the way to the tree.
pub(crate) fn whole(
    root: &Node,
    name: &str,
    overrides: &Overrides,
    mut problems: Vec<Problem>,
) -> Result<Scenario, ScenarioError> {
    match scenario(root, name, overrides, &mut problems) {
        Some(scenario) if problems.is_empty() => Ok(scenario),
        _ if problems.is_empty() => Err(Problem::new(
            &Origin::whole(&root.origin.source),
            "the scenario cannot be read",
        )
        .into()),
        _ => Err(ScenarioError::new(problems)),
    }
}

/// Whether what the scenario names can be in a network that is made for the run. `ready` says that
/// all of it could be read.
fn check_network(
    entry: &Entry,
    network: Network,
    (server, populations): (Option<&Server>, &[Population]),
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
        Some(ServerStart::Launch { .. } | ServerStart::Command(_)) => None,
        Some(ServerStart::Observe { .. } | ServerStart::Exporters { .. }) => {
            Some("the server is only observed, so it is not in it".to_owned())
        }
        None => Some("the run starts no server, and nobody else is in it".to_owned()),
    };
    let elsewhere = |own: &&Population| {
        own.config
            .media()
            .is_some_and(|media| media.receiver.is_some() || media.address.is_some())
    };
    let elsewhere = populations.iter().find(elsewhere);
    let apart = elsewhere.map(|own| {
        let name = &own.name;
        format!("`clients.{name}.media` is received where the run's network does not reach")
    });
    if let Some(why) = why.or(apart) {
        problems.push(
            Problem::new(
                &entry.node.origin,
                format!("{what} made for the run: {why}"),
            )
            .help(format!(
                "let the run start the server (`launch` or `command`), or take `{}` out",
                entry.key
            )),
        );
    }
}

/// Refuses what makes a series of a scenario: who reads a series has taken it out.
fn of_series(root: &Node, problems: &mut Vec<Problem>) {
    let vary = root.entry("vary");
    for key in ["find", "settle", "stop_at"] {
        if let (None, Some(entry)) = (vary, root.entry(key)) {
            problems.push(
                Problem::new(&entry.key_origin, format!("`{key}` is of a series of runs"))
                    .help("say what varies with `vary`, or take it out"),
            );
        }
    }
    if let Some(vary) = vary {
        problems.push(
            Problem::new(&vary.key_origin, "`vary` makes several runs of a scenario")
                .label("one run is wanted here")
                .help("take it out, or set `vary=`"),
        );
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
        problems.push(
            Problem::new(
                &node.origin,
                format!("{} populations are too many", entries.len()),
            )
            .help(format!("at most {MAX_POPULATIONS} are possible")),
        );
        return Vec::new();
    }
    let read = |(at, entry): (usize, &Entry)| {
        let server = match entry.node.entry("link") {
            Some(_) => link_places::own_server_address(at),
            None => network.server_address(),
        };
        population::read(entry, server, duration, problems)
    };
    entries.iter().enumerate().filter_map(read).collect()
}

fn thresholds(
    node: &Node,
    (link, populations): (Option<&Link>, &[Population]),
    has_server: bool,
    problems: &mut Vec<Problem>,
) -> Vec<Threshold> {
    let Value::List(items) = &node.value else {
        problems.push(
            wrong_type(node, "thresholds", "a list")
                .help("write `thresholds: [\"viewers.loss < 1%\"]`"),
        );
        return Vec::new();
    };
    if items.len() > MAX_THRESHOLDS {
        problems.push(
            Problem::new(
                &node.origin,
                format!("{} thresholds are too many", items.len()),
            )
            .help(format!("at most {MAX_THRESHOLDS} are possible")),
        );
        return Vec::new();
    }
    let mut subjects: Vec<(&str, Catalogue)> = populations
        .iter()
        .map(|population| {
            (
                population.name.as_str(),
                population.config.protocol().catalogue,
            )
        })
        .collect();
    if has_server {
        subjects.push(("server", SERVER_CATALOGUE));
    }
    subjects.push(("tester", TESTER_CATALOGUE));
    let of_links = link_places::subjects(link, populations);
    let of_links = of_links.iter().map(|name| (name.as_str(), LINK_CATALOGUE));
    subjects.extend(of_links);
    let of_golden = golden::subjects(populations);
    let of_golden = of_golden.iter();
    subjects.extend(of_golden.map(|name| (name.as_str(), BROWSER_CATALOGUE)));
    // Where a population could not be read its thresholds cannot be judged.
    let broken = !problems.is_empty();
    let mut thresholds = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let path = format!("thresholds.{index}");
        let Some((node, abort)) = written_threshold(item, &path, problems) else {
            continue;
        };
        let Some(written) = text(node, &path, problems) else {
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

/// The text of a threshold, and from when on the run is ended where it does not hold: a text alone,
/// or `{threshold: TEXT, abort: true, delay: 10s}`.
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
        problems.push(
            Problem::new(
                &entry.key_origin,
                "`delay` has no meaning without `abort: true`",
            )
            .help("it is how long the run goes on before the threshold may end it"),
        );
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
    // The option that has it is named anyway.
    let named = |message: &str| match node.origin.source.kind {
        SourceKind::Option => message.to_owned(),
        _ => format!("threshold `{}`: {message}", shown(written)),
    };
    let located = |error: measure::ThresholdError| {
        // The place within the text, where the file shows it letter by letter.
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
        return Err(Problem::new(
            &node.origin,
            named("the scenario has no `server` to measure"),
        )
        .help("launch it with `server: {command: [...]}` or watch it with `server: {observe: {pid: 123}}`"));
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
