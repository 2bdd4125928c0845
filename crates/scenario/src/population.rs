//! Populations: URLs, protocol, load, and the time at which clients leave.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use crate::scheme_help;
use kit::descriptor::{ClientConfig, PathSuffix, Protocol};
use kit::registry;
use kit::url::UrlParts;
use measure::Time;
use measure::load::{Load, LoadSpec, Shape, Stage, StartKind};
use measure::units::{Frequency, TimeSpan};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::collector::{TypeSyntax, join_path};
use crate::data_files;
use crate::error::Problem;
use crate::fields::{has_typo, misspelt, unknown_key, unknown_keys, wrong_type};
use crate::link_keys::{self, LinkKeys};
use crate::masking::mask_text;
use crate::model::{Leave, Pick, Population};
use crate::node::{Entry, Node, Value, display_text};
use crate::node_deserializer::{FirstError, NodeReader, Purpose};
use crate::section::{self, BoundedInteger, Deferred, Key, one_line};
use crate::{names, urls};
use measure::nearest::{nearest, suggest};

/// Keys of a population, in addition to those of its protocol.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(transform = one_line, description = "", extend("required" = ["urls", "load"]))]
pub(crate) struct PopulationKeys {
    /// Protocol of the clients. Default: that of the URLs.
    #[schemars(schema_with = "anything")]
    protocol: Key<Deferred>,
    /// URLs of the clients, or a file with one URL in each line: `{file: urls.txt}`. `{1..10}`
    /// expands, and `{server}` is the server's address in the run's network. Each client picks one.
    #[schemars(schema_with = "data_files::urls_schema")]
    urls: Key<Deferred>,
    /// CSV file with values for the URLs, and for `token`: the first line names the columns, and
    /// `{column}` stands for a value. Each URL that names a column becomes one for each row.
    data: Key<String>,
    /// Which of the URLs a client requests. Default `random`, derived from the seed; for clients
    /// that publish `own`.
    #[schemars(schema_with = "anything", extend("enum" = ["random", "in_turn", "own"]))]
    pick: Key<Deferred>,
    /// When a client leaves: `with_run` (default), `at_end` of its media, or `{after: 60s}`. A
    /// client that is to stay fails if the server ends its stream before, unless the length of the
    /// media is known. In a run without a `duration`, clients leave with their media, but fail if
    /// the server only closes the connection.
    #[schemars(schema_with = "leave_schema")]
    leave: Key<Deferred>,
    /// Population whose streams the clients wait for. If both have the same number of URLs, a
    /// client waits for the stream at the position of its own, else for any. Default: players wait
    /// for the stream that the scenario publishes at the same host and path, in any protocol.
    waits_for: Key<String>,
    /// Maximum time that a client waits for its stream, if the scenario publishes it. After that it
    /// fails with `no_publisher`. Its delays count from the publication. Default 30s.
    wait_for_publisher: Key<TimeSpan>,
    /// Time between the publication of a stream and the request of a client that waited for it.
    /// Some servers have a stream only after they have seen some of its media: MediaMTX takes up to
    /// a second. Delays count from the request. Default 0s.
    join_after: Key<TimeSpan>,
    /// True: another client replaces one that ended or died. Default false.
    rejoin: Key<bool>,
    #[schemars(with = "LoadSpec")]
    load: Key<Deferred>,
    /// Emulated link between the server and these clients only, in place of the shared one.
    #[schemars(with = "LinkKeys")]
    link: Key<Deferred>,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline, extend("required" = ["after"]))]
struct LeaveKeys {
    after: Key<TimeSpan>,
}

/// Keys of a load in any of its forms.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LoadKeys {
    clients: Key<BoundedInteger<0, { u64::MAX }>>,
    start: Key<Deferred>,
    ramp: Key<TimeSpan>,
    one_every: Key<TimeSpan>,
    stages: Key<Stages>,
    arrivals: Key<Frequency>,
    max_clients: Key<BoundedInteger<0, { u64::MAX }>>,
    after: Key<TimeSpan>,
}

#[derive(Deserialize)]
struct Stages(Vec<Key<StageKeys>>);

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct StageKeys {
    clients: Key<BoundedInteger<0, { u64::MAX }>>,
    over: Key<TimeSpan>,
}

/// Default of `wait_for_publisher`.
const WAIT_FOR_PUBLISHER: Duration = Duration::from_secs(30);

const LOAD_FORM: &str = "write `load: {clients: 10}`, or `{clients: 10, ramp: 20s}`";

const STAGES_FORM: &str = "write `stages: [{clients: 100, over: 30s}, {clients: 0, over: 10s}]`";

const LEAVE_FORM: &str = "write `leave: with_run`, `leave: at_end`, or `leave: {after: 60s}`";

const FORMS: &[TypeSyntax] = &[
    (
        "PopulationKeys",
        "write at least `urls` and `load` below it",
        &[
            ("urls", "write `urls: [\"rtsp://127.0.0.1:8554/a\"]`"),
            ("load", LOAD_FORM),
        ],
    ),
    ("LeaveKeys", LEAVE_FORM, &[("after", LEAVE_FORM)]),
    ("LoadKeys", LOAD_FORM, &[]),
    ("Stages", STAGES_FORM, &[]),
    (
        "StageKeys",
        STAGES_FORM,
        &[("clients", STAGES_FORM), ("over", STAGES_FORM)],
    ),
];

/// Returns the JSON Schema of the populations, with the keys of every protocol.
///
/// A population whose protocol is known, by its key or by the scheme of its first URL, is compared
/// with the keys of that protocol only. So an editor names the wrong key, instead of all protocols
/// that do not match.
pub(crate) fn schema(generator: &mut SchemaGenerator) -> Schema {
    let mut rules = Vec::new();
    let mut known = Vec::new();
    let mut all = Vec::new();
    for protocol in registry::protocols() {
        let name = format!("population_{}", protocol.name.replace('-', "_"));
        let keys = json!({ "$ref": format!("#/$defs/{name}") });
        let schema = one_schema(protocol, generator);
        generator.definitions_mut().insert(name, schema);
        let is_protocol = is_of_protocol(protocol);
        rules.push(json!({ "if": is_protocol, "then": keys }));
        known.push(is_protocol);
        all.push(keys);
    }
    rules.push(json!({ "if": { "anyOf": known }, "else": { "anyOf": all } }));
    names::schema(json!({ "allOf": rules }))
}

/// Returns the condition that a population names the protocol, or names none and its first URL has
/// a scheme or a path of the protocol.
fn is_of_protocol(protocol: &Protocol) -> Json {
    let schemes = |schemes: &[&str]| format!("^({})://", schemes.join("|").replace('+', "\\+"));
    let by_path = |protocol: &Protocol| {
        let PathSuffix {
            schemes: of,
            suffix,
        } = protocol.path_suffix?;
        let either = |letter: char| match letter {
            '.' => "\\.".to_owned(),
            other => format!(
                "[{}{}]",
                other.to_ascii_lowercase(),
                other.to_ascii_uppercase()
            ),
        };
        let suffix: String = suffix.chars().map(either).collect();
        let pattern = format!("{}[^/?#]+/[^?#]*{suffix}([?#]|$)", schemes(of));
        Some(json!({ "type": "string", "pattern": pattern }))
    };
    let url = json!({ "type": "string", "pattern": schemes(protocol.schemes) });
    let others = registry::protocols().iter();
    let mut others = others.filter(|other| other.name != protocol.name);
    let elsewhere = others.find_map(|other| by_path(other));
    let url = match (by_path(protocol), elsewhere) {
        (Some(by_path), _) => json!({ "anyOf": [url, by_path] }),
        (None, Some(elsewhere)) => json!({ "allOf": [url, { "not": elsewhere }] }),
        (None, None) => url,
    };
    let urls = json!({ "anyOf": [
        url,
        { "type": "array", "minItems": 1, "prefixItems": [url] },
    ] });
    json!({ "anyOf": [
        {
            "required": ["protocol"],
            "properties": { "protocol": { "const": protocol.name } },
        },
        {
            "required": ["urls"],
            "properties": { "urls": urls, "protocol": false },
        },
    ] })
}

fn one_schema(protocol: &Protocol, generator: &mut SchemaGenerator) -> Json {
    let mut schema = PopulationKeys::json_schema(generator).to_value();
    let config = protocol.keys_schema(generator).to_value();
    if let (Some(keys), Some(own)) = (
        schema["properties"].as_object_mut(),
        config["properties"].as_object(),
    ) {
        let own = own
            .iter()
            .map(|(key, schema)| (key.clone(), schema.clone()));
        let before = std::mem::take(keys);
        keys.extend(own.chain(before));
    }
    schema["properties"]["protocol"]["const"] = Json::from(protocol.name);
    schema
}

fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({})
}

fn leave_schema(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [{ "enum": ["with_run", "at_end"] }, LeaveKeys::json_schema(generator)] })
}

/// Reads a population. `server` is the server's address for its clients, and `duration` that of the
/// run, if set.
pub(crate) fn read(
    entry: &Entry,
    server: IpAddr,
    duration: Option<Duration>,
    problems: &mut Vec<Problem>,
) -> Option<Population> {
    names::check(entry, "population", problems);
    let path = format!("clients.{}", entry.key);
    let node = &entry.node;
    let keys: PopulationKeys = section::read_with_foreign_keys(node, &path, FORMS, problems)?;
    let known = section::keys::<PopulationKeys>();
    // Misspelt URLs still tell the protocol, whose keys are then known.
    let written = node.entry("urls").or_else(|| misspelt(node, "urls", known));
    let urls = written
        .map(|entry| {
            let path = join_path(&path, &entry.key);
            urls::read(&entry.node, &path, Some(server), problems)
        })
        .unwrap_or_default();
    let protocol = protocol(node, &path, &urls, problems);
    let pick = pick(node, &path, problems);
    let leave = leave(node, &path, problems).unwrap_or_default();
    let rejoin = keys.rejoin.or(false);
    let link = node
        .get("link")
        .and_then(|node| link_keys::read(node, &join_path(&path, "link"), problems));
    if let (Some(_), Some(entry)) = (&link, node.entry("link")) {
        check_urls(&urls, server, entry, problems);
    }
    let load = node
        .get("load")
        .and_then(|node| load(node, &join_path(&path, "load"), rejoin, problems));
    if let Some(load) = &load {
        let leaves = matches!(leave, Leave::After(_));
        let ends = duration.is_some();
        check_has_end(node, load, leaves, ends, problems);
        check_starts(node, load, duration, problems);
    }
    let own = |entry: &&Entry| !known.contains(&entry.key.as_str());
    let rest = node.entries().iter().filter(own).cloned().collect();
    let config = match protocol {
        Some(protocol) => config(protocol, rest, node, &path, problems),
        // Without a protocol its keys are not known. Keys that no protocol has are still reported.
        None => {
            let all: BTreeSet<String> = registry::protocols()
                .iter()
                .flat_map(|protocol| protocol.config_keys())
                .collect();
            for other in rest.iter().filter(|other| !all.contains(&other.key)) {
                let known = known.iter().copied().chain(all.iter().map(String::as_str));
                // The keys of all protocols are more than a hundred.
                let help = match nearest(&other.key, known) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "the URLs of a population tell which keys it has".to_owned(),
                };
                problems.push(unknown_key(other, &path, []).help(help));
            }
            None
        }
    };
    let config = config?;
    for (url, url_node) in &urls {
        if let Err((key, text)) = config.check_url(url) {
            let at = node
                .entry(key)
                .map_or(&url_node.origin, |own| &own.key_origin);
            problems.push(Problem::new(at, format!("`{}`: {text}", display_text(url))));
            break;
        }
    }
    let others = |(url, _): &(String, &Node)| *url != urls[0].0;
    if config.facts().changes_channel
        && !urls.is_empty()
        && !urls.iter().any(others)
        && let Some(entry) = node.entry("zap")
    {
        Problem::new(&entry.key_origin, "there is no other URL to change to")
            .help(
                "give the population several `urls`, such as \
                 \"http://127.0.0.1:5140/rtp/239.81.0.{1..8}:4056\"",
            )
            .report(problems);
    }
    // Two publishers of one URL would only disturb each other.
    let usual = match config.facts().publishes() {
        true => Pick::Own,
        false => Pick::default(),
    };
    Some(Population {
        name: entry.key.clone(),
        urls: urls.into_iter().map(|(url, _)| url).collect(),
        pick: pick.unwrap_or(usual),
        load: load?,
        leave,
        waits_for: keys.waits_for.0.clone(),
        wait_for_publisher: wait(&keys.wait_for_publisher, node, problems),
        join_after: keys.join_after.0.map_or(Duration::ZERO, |span| span.0),
        link,
        config,
    })
}

/// Refuses URLs that bypass the population's own link.
fn check_urls(urls: &[(String, &Node)], server: IpAddr, link: &Entry, problems: &mut Vec<Problem>) {
    let host = server.to_string();
    let past = |url: &str| UrlParts::parse(url).is_ok_and(|parts| parts.host != host);
    if let Some((url, node)) = urls.iter().find(|(url, _)| past(url)) {
        let text = format!(
            "the server of `{}` is not behind this link",
            display_text(url)
        );
        Problem::new(&link.key_origin, text)
            .with_second_position(&node.origin, "this URL")
            .help(
                "write `{server}` in `urls`: it is the server's address at the other end of \
                 the link",
            )
            .report(problems);
    }
}

/// Refuses a load whose starts do not fit into the run: another load would be measured.
fn check_starts(node: &Node, load: &Load, duration: Option<Duration>, problems: &mut Vec<Problem>) {
    let (Some(duration), Some(written)) = (duration, node.get("load")) else {
        return;
    };
    // A run of `0s` is already reported.
    if duration.is_zero() {
        return;
    }
    if let Some(entry) = written.entry("after")
        && load.after >= duration
    {
        let text = format!(
            "the run ends after {}, before the first of these clients starts",
            TimeSpan(duration)
        );
        let problem = Problem::new(&entry.node.origin, text);
        problems.push(problem.help("let the run last longer, or start the clients sooner"));
        return;
    }
    let Some(last) = measure::load::last_start(load) else {
        return;
    };
    if last.since_start() < duration {
        return;
    }
    let end = Time::from_nanos(Time::from_start(duration).as_nanos().saturating_sub(1));
    let (started, planned) = (
        measure::load::started(load, end),
        measure::load::started(load, Time::NEVER),
    );
    let cause = ["ramp", "one_every", "stages"]
        .iter()
        .find_map(|key| written.entry(key));
    let origin = cause.map_or(&written.origin, |entry| &entry.node.origin);
    let text = format!(
        "the run ends after {}, when {started} of its {planned} clients have started",
        TimeSpan(duration)
    );
    Problem::new(origin, text)
    .help(format!(
        "the last one starts after {:.1} s: let the run last longer, or start the clients faster",
        last.as_secs_f64()
    ))
    .report(problems);
}

/// Returns the protocol as named, or that of the URLs.
fn protocol(
    node: &Node,
    path: &str,
    urls: &[(String, &Node)],
    problems: &mut Vec<Problem>,
) -> Option<&'static Protocol> {
    let names = || registry::protocols().iter().map(|protocol| protocol.name);
    let mut named = None;
    if let Some(node) = node.get("protocol") {
        let Some(text) = node.text() else {
            let wrong = wrong_type(node, &join_path(path, "protocol"), "a word");
            problems.push(wrong.help(suggest("", names())));
            return None;
        };
        named = registry::find(text);
        if named.is_none() {
            let message = format!("there is no protocol `{}`", display_text(text));
            problems.push(Problem::new(&node.origin, message).help(suggest(text, names())));
            return None;
        }
    }
    let mut chosen = named;
    // One problem for each URL as written, not for each expanded URL.
    let mut last: Option<&Node> = None;
    for (url, node) in urls {
        if last.is_some_and(|last| std::ptr::eq(last, *node)) {
            continue;
        }
        // The key decides over the path: an `http` URL may belong to several protocols.
        let found = named
            .filter(|named| named.check_url(url).is_ok())
            .or_else(|| registry::find_by_url(url));
        let problem = match (found, chosen) {
            (None, _) => {
                let text = format!("`{}` has an unsupported URL scheme", display_text(url));
                let help = scheme_help::help(url, &|url| mask_text(&display_text(url)));
                Some(Problem::new(&node.origin, text).help(help))
            }
            (Some(found), Some(chosen)) if found.name != chosen.name => {
                let (url, name) = (display_text(url), chosen.name);
                let text = format!("`{url}` is not a URL of the protocol `{name}`");
                let help = "the clients of a population use one protocol: split it into two";
                Some(Problem::new(&node.origin, text).help(help))
            }
            (Some(found), _) => {
                chosen = Some(found);
                found.check_url(url).err().map(|message| {
                    // Some messages already contain the URL.
                    let named = format!("`{url}`: ");
                    let message = message.strip_prefix(&named).unwrap_or(&message);
                    let message = format!("`{}`: {message}", display_text(url));
                    Problem::new(&node.origin, message).help(example_of(found))
                })
            }
        };
        if let Some(problem) = problem {
            problems.push(problem);
            last = Some(node);
        }
    }
    chosen
}

/// Returns an example URL of the protocol.
fn example_of(protocol: &Protocol) -> String {
    let address = format!(
        "{}://127.0.0.1:{}",
        protocol.schemes[0], protocol.default_port
    );
    let with_path = format!("{address}/a");
    match protocol.check_url(&with_path) {
        Ok(()) => format!("such as {with_path}"),
        Err(_) => format!("such as {address}"),
    }
}

fn pick(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Option<Pick> {
    let node = node.get("pick")?;
    Some(match node.text() {
        Some("random") => Pick::Random,
        Some("in_turn") => Pick::InTurn,
        Some("own") => Pick::Own,
        _ => {
            let path = join_path(path, "pick");
            wrong_type(node, &path, "`random`, `in_turn` or `own`")
                .help("it selects which of the URLs a client requests")
                .report(problems);
            Pick::default()
        }
    })
}

/// Returns the maximum time that clients wait for their stream.
fn wait(key: &Key<TimeSpan>, node: &Node, problems: &mut Vec<Problem>) -> Duration {
    let wait = key.0.map_or(WAIT_FOR_PUBLISHER, |span| span.0);
    if let (true, Some(entry)) = (wait.is_zero(), node.entry("wait_for_publisher")) {
        let text = "`wait_for_publisher` must be longer than 0s";
        problems.push(Problem::new(&entry.node.origin, text));
    }
    wait
}

fn leave(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Option<Leave> {
    let node = node.get("leave")?;
    let path = join_path(path, "leave");
    match &node.value {
        Value::Scalar { text, .. } if text == "with_run" => Some(Leave::WithRun),
        Value::Scalar { text, .. } if text == "at_end" => Some(Leave::AtEnd),
        Value::Map(_) => {
            let keys: Option<LeaveKeys> = section::read(node, &path, FORMS, problems);
            Some(Leave::After(keys?.after.0?.0))
        }
        _ => {
            let wrong = wrong_type(node, &path, "`with_run`, `at_end` or `{after: TIME}`");
            problems.push(wrong.help(LEAVE_FORM));
            None
        }
    }
}

/// Refuses a population that never ends in a run without a duration.
fn check_has_end(node: &Node, load: &Load, leaves: bool, ends: bool, problems: &mut Vec<Problem>) {
    let Load { shape, rejoin, .. } = load;
    let rejoin = *rejoin;
    let arrivals = matches!(shape, Shape::Arrivals { .. });
    if arrivals
        && rejoin
        && let Some(entry) = node.entry("rejoin")
    {
        let text = "`rejoin` cannot be combined with `arrivals`";
        Problem::new(&entry.key_origin, text)
            .help("clients arrive at their rate, however many have left: remove `rejoin`")
            .report(problems);
    }
    if ends {
        return;
    }
    let mut keys = ["publish", "feed"].into_iter();
    let published = keys.find(|key| !leaves && node.entry(key).is_some());
    let cause = match shape {
        Shape::Arrivals { .. } => "load",
        // The last stage may end all clients.
        Shape::Stages(stages) if stages.last().is_none_or(|stage| stage.clients == 0) => return,
        _ if rejoin => "rejoin",
        // Published media does not end.
        _ => match published {
            Some(key) => key,
            None => return,
        },
    };
    let Some(entry) = node.entry(cause) else {
        return;
    };
    let text = if arrivals {
        "these arrivals never end, and the run has no `duration`"
    } else if Some(cause) == published {
        "published media never ends, and the run has no `duration`"
    } else {
        "with `rejoin` the clients never end, and the run has no `duration`"
    };
    Problem::new(&entry.key_origin, text)
        .help("add `duration: 60s` at the top of the scenario, or `-d 60s`")
        .report(problems);
}

/// Reads a load in any of its forms.
fn load(node: &Node, path: &str, rejoin: bool, problems: &mut Vec<Problem>) -> Option<Load> {
    let before = problems.len();
    let keys: LoadKeys = section::read_with_foreign_keys(node, path, FORMS, problems)?;
    let start = node.get("start").and_then(|node| {
        if node.text() == Some("at_once") {
            return Some(StartKind::AtOnce);
        }
        wrong_type(node, &join_path(path, "start"), "`at_once`")
            .help("or write `ramp: 60s` or `one_every: 2s` instead")
            .report(problems);
        None
    });
    let stage = |stage: Key<StageKeys>| {
        let stage = stage.0?;
        Some(Stage {
            clients: stage.clients.0?.0,
            over: stage.over.0?.0,
        })
    };
    let spec = LoadSpec {
        clients: keys.clients.number(),
        start,
        ramp: keys.ramp.0,
        one_every: keys.one_every.0,
        stages: keys
            .stages
            .0
            .map(|stages| stages.0.into_iter().filter_map(stage).collect()),
        arrivals: keys.arrivals.0,
        max_clients: keys.max_clients.number(),
        after: keys.after.0,
    };
    let after = spec.after.map_or(Duration::ZERO, |span| span.0);
    let known = section::keys::<LoadKeys>();
    // A key with a wrong value would only be reported as missing.
    let shape = match problems.len() == before {
        true => Shape::try_from(spec)
            .map_err(|error| {
                // `cleints: 5` is a typo, not a missing `clients`.
                if !(error.keys.is_empty() && has_typo(node, known)) {
                    problems.push(load_problem(node, &error, path));
                }
            })
            .ok(),
        false => None,
    };
    unknown_keys(node, path, known, problems);
    Some(Load {
        shape: shape?,
        rejoin,
        after,
    })
}

fn load_problem(node: &Node, error: &measure::load::LoadError, path: &str) -> Problem {
    let entry = error.keys.first().and_then(|key| node.entry(key));
    let mut problem = match (entry, error.stage) {
        (None, _) => Problem::new(&node.origin, format!("{} in `{path}`", error.message)),
        (Some(entry), Some(stage)) => {
            let origin = match &entry.node.value {
                Value::List(items) => items.get(stage).map(|item| &item.origin),
                _ => None,
            };
            Problem::new(origin.unwrap_or(&entry.key_origin), error.message.clone())
        }
        (Some(entry), None) => Problem::new(&entry.key_origin, error.message.clone()),
    };
    if let Some(other) = error.keys.get(1).and_then(|key| node.entry(key)) {
        problem = problem.with_second_position(&other.key_origin, "and here");
    }
    problem.help(error.help.clone())
}

/// Reads the protocol's own keys. A problem with one key does not hide those of others.
fn config(
    protocol: &Protocol,
    rest: Vec<Entry>,
    node: &Node,
    path: &str,
    problems: &mut Vec<Problem>,
) -> Option<ClientConfig> {
    let mut own = Node::map(rest, node.origin.clone());
    let mut whole = true;
    let first = FirstError::default();
    loop {
        let reader = NodeReader::new(&own, Purpose::Protocol(&first));
        let error = match protocol.read_keys(reader) {
            Ok(config) if !whole => {
                drop(config);
                return None;
            }
            Ok(config) => {
                return match config.check() {
                    Ok(()) => Some(config),
                    Err((key, message)) => {
                        problems.push(check_problem(&own, key, &message));
                        None
                    }
                };
            }
            Err(error) => first.restore(error.to_string()),
        };
        whole = false;
        let problem = error.problem(path, &node.origin, section::keys::<PopulationKeys>());
        let advice = error.unknown().and_then(|key| protocol.former_key(key));
        problems.push(match advice {
            Some(advice) => problem.help(advice),
            None => problem,
        });
        // Each round removes one key, so this ends.
        let Value::Map(entries) = &mut own.value else {
            return None;
        };
        let count = entries.len();
        entries.retain(|entry| Some(entry.key.as_str()) != error.key());
        if entries.len() == count {
            return None;
        }
    }
}

fn check_problem(own: &Node, key: &str, message: &str) -> Problem {
    let entry = own.entry(key);
    let origin = entry.map_or(&own.origin, |entry| &entry.node.origin);
    let (message, help) = message.split_once("; ").unwrap_or((message, ""));
    Problem::new(origin, message).help(help)
}
