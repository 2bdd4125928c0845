//! From the tree to the scenario: every key decoded, every problem collected.

use std::time::Duration;

use measure::units::TimeSpan;
use measure::{Catalogue, SERVER_CATALOGUE, TESTER_CATALOGUE};

use crate::error::{Problem, ScenarioError};
use crate::fields::{Fields, text, wrong_type};
use crate::model::{DEFAULT_STOP_TIMEOUT, Population, Scenario, ServerStart, Threshold};
use crate::network::{self, Network};
use crate::node::{Node, Value, shown};
use crate::overrides::Overrides;
use crate::section;
use crate::source::Origin;
use crate::tester::{self, TesterKeys};
use crate::{population, server, sources};

/// The keys of a scenario.
pub(crate) const KEYS: [&str; 15] = [
    "name",
    "server",
    "network",
    "sources",
    "clients",
    "duration",
    "warm_up",
    "thresholds",
    "seed",
    "stop_timeout",
    "workers",
    "tester",
    "vary",
    "settle",
    "stop_at",
];

/// The most populations of one scenario.
const MAX_POPULATIONS: usize = 100;

/// The most thresholds of one scenario.
const MAX_THRESHOLDS: usize = 1_000;

/// The most threads that a run may be told to use.
const MAX_WORKERS: u64 = 1_024;

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
    let mut fields = Fields::of(root, "", EXAMPLE, problems)?;
    let name = fields
        .text("name", problems)
        .unwrap_or_else(|| name.to_owned());
    let mut server = fields
        .get("server", problems)
        .and_then(|node| server::read(node, &overrides.known_servers, problems));
    let network = fields
        .get("network", problems)
        .and_then(|_| fields.entry("network"))
        .and_then(|entry| network::read(entry, problems))
        .unwrap_or_default();
    let sources = fields
        .get("sources", problems)
        .map(|node| sources::read(node, network, problems))
        .unwrap_or_default();
    if let Some(server) = &mut server
        && let ServerStart::Launch { .. } = server.start
        && network != Network::Own
    {
        let usual = network.server_interface(!sources.is_empty());
        server.interface.get_or_insert_with(|| usual.to_owned());
    }
    let duration = fields.quantity::<TimeSpan>("duration", problems);
    let duration_node = fields.entry("duration").map(|entry| &entry.node);
    let warm_up = fields.quantity::<TimeSpan>("warm_up", problems);
    if let (Some(warm_up), Some(duration), Some(entry)) =
        (warm_up, duration, fields.entry("warm_up"))
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
    if let (Some(TimeSpan(Duration::ZERO)), Some(node)) = (duration, duration_node) {
        problems.push(
            Problem::new(&node.origin, "a run of `0s` measures nothing")
                .help("write how long it is to last, such as `60s`"),
        );
    }
    let stop_timeout = fields.quantity::<TimeSpan>("stop_timeout", problems);
    let seed = fields.integer("seed", 0..=u64::MAX, problems);
    let workers = fields
        .integer("workers", 1..=MAX_WORKERS, problems)
        .and_then(|workers| u32::try_from(workers).ok());
    let tester = fields
        .get("tester", problems)
        .and_then(|node| section::read(node, "tester", tester::FORMS, problems))
        .map(|keys: TesterKeys| keys.into());
    let populations = fields
        .need("clients", EXAMPLE, problems)
        .map(|node| populations(node, network, duration.map(|span| span.0), problems))
        .unwrap_or_default();
    if let Some(entry) = fields.entry("network") {
        let has = (server.as_ref(), populations.as_slice());
        // A server that could not be read is no server that is missing.
        if problems.is_empty() {
            network::check(entry, network, has, problems);
        }
    }
    let has_server = fields.entry("server").is_some();
    let thresholds = fields
        .get("thresholds", problems)
        .map(|node| thresholds(node, &populations, has_server, problems))
        .unwrap_or_default();
    of_series(&mut fields, problems);
    fields.finish(&KEYS, problems);
    Some(Scenario {
        name,
        server,
        network,
        sources,
        populations,
        duration: duration.map(|span| span.0),
        warm_up: warm_up.unwrap_or_default().0,
        thresholds,
        seed: seed.unwrap_or(overrides.default_seed),
        stop_timeout: stop_timeout.map_or(DEFAULT_STOP_TIMEOUT, |span| span.0),
        workers,
        tester: tester.unwrap_or_default(),
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

/// Refuses what makes a series of a scenario: who reads a series has taken it out.
fn of_series(fields: &mut Fields<'_>, problems: &mut Vec<Problem>) {
    let vary = fields.entry("vary");
    for key in ["settle", "stop_at"] {
        if let (None, Some(entry)) = (vary, fields.entry(key)) {
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
    entries
        .iter()
        .filter_map(|entry| population::read(entry, network, duration, problems))
        .collect()
}

fn thresholds(
    node: &Node,
    populations: &[Population],
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

/// The keys of a threshold that is written as a mapping.
const THRESHOLD_KEYS: [&str; 3] = ["threshold", "abort", "delay"];

/// The text of a threshold, and from when on the run is ended where it does not hold: a text alone, or
/// `{threshold: TEXT, abort: true, delay: 10s}`.
fn written_threshold<'a>(
    item: &'a Node,
    path: &str,
    problems: &mut Vec<Problem>,
) -> Option<(&'a Node, Option<Duration>)> {
    const FORM: &str = "write a text such as \"viewers.loss < 1%\", or \
                        `{threshold: \"viewers.loss < 1%\", abort: true, delay: 10s}`";
    let Value::Map(_) = item.value else {
        return Some((item, None));
    };
    let mut fields = Fields::of(item, path, FORM, problems)?;
    let node = fields.need("threshold", FORM, problems);
    let abort = fields.boolean("abort", problems).unwrap_or(false);
    let delay = fields.quantity::<TimeSpan>("delay", problems);
    if let (false, Some(_), Some(entry)) = (abort, delay, fields.entry("delay")) {
        problems.push(
            Problem::new(
                &entry.key_origin,
                "`delay` has no meaning without `abort: true`",
            )
            .help("it is how long the run goes on before the threshold may end it"),
        );
    }
    fields.finish(&THRESHOLD_KEYS, problems);
    Some((node?, abort.then(|| delay.unwrap_or_default().0)))
}

fn check_threshold(
    written: &str,
    node: &Node,
    subjects: &[(&str, Catalogue)],
    has_server: bool,
    broken: bool,
) -> Result<(), Problem> {
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
        Problem::new(
            &origin,
            format!("threshold `{}`: {}", shown(written), error.message),
        )
        .help(error.help)
    };
    let threshold = measure::Threshold::parse(written).map_err(located)?;
    if threshold.subject() == "server" && !has_server {
        return Err(Problem::new(
            &node.origin,
            format!(
                "threshold `{}`: the scenario has no `server` to measure",
                shown(written)
            ),
        )
        .help("launch it with `server: {command: [...]}` or watch it with `server: {observe: {pid: 123}}`"));
    }
    if broken
        && subjects
            .iter()
            .all(|(name, _)| *name != threshold.subject())
    {
        return Ok(());
    }
    threshold.check(subjects).map_err(located)
}
