//! Scenarios of a one-line command.

use kit::descriptor::Protocol;
use kit::registry;

use crate::apply::option_value;
use crate::error::{Problem, ScenarioError};
use crate::masking::{MASK, is_public_header, mask_text};
use crate::node::{Entry, Node, display_text};
use crate::origin::{Origin, SourceKind, SourceText};

/// Name of a one-liner's population with media: `viewers.loss < 1%`.
pub const ONE_LINER_POPULATION: &str = "viewers";

/// Name of a one-liner's population with messages instead of media: `senders.back_pressure < 1%`.
pub const ONE_LINER_SENDERS: &str = "senders";

/// Name of a one-liner's population that publishes: `publishers.sent_bitrate > 1Mbps`.
pub const ONE_LINER_PUBLISHERS: &str = "publishers";

/// Returns the name of the population of a one-liner with these URLs. `publishes` is true with
/// `--publish`.
pub fn one_liner_population(urls: &[String], publishes: bool) -> &'static str {
    match protocol_of(urls) {
        Some(protocol) if !protocol.default_config().facts().has_media => ONE_LINER_SENDERS,
        _ if publishes => ONE_LINER_PUBLISHERS,
        _ => ONE_LINER_POPULATION,
    }
}

/// Returns the protocol of the first URL.
fn protocol_of(urls: &[String]) -> Option<&'static Protocol> {
    registry::find_by_url(urls.first().map_or("", String::as_str))
}

/// Returns the thresholds of a search for the capacity of these URLs, if none are given: what
/// viewers of the protocol notice first.
pub fn capacity_thresholds(urls: &[String]) -> Vec<String> {
    let population = one_liner_population(urls, false);
    let config = protocol_of(urls).map(|protocol| protocol.default_config());
    let thresholds = config.map_or(&[][..], |config| config.protocol().capacity_thresholds);
    let thresholds = thresholds.iter();
    thresholds
        .map(|threshold| format!("{population}.{threshold}"))
        .collect()
}

/// Arguments of a one-line command as typed, so that errors can show them. Each means the same as
/// the key of that name in a scenario file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OneLiner {
    /// URLs, with `{1..10}` not yet expanded. At least one.
    pub urls: Vec<String>,
    /// Name of the run. Default: the URLs.
    pub name: Option<String>,
    /// `-c`, `--clients`: number of clients. Default: 1.
    pub clients: Option<String>,
    /// `--ramp`: time over which the clients start.
    pub ramp: Option<String>,
    /// `--one-every`: time between two starts.
    pub one_every: Option<String>,
    /// `--arrivals`: arrival rate; `clients` then limits the number of active clients.
    pub arrivals: Option<String>,
    /// `-d`, `--duration`: length of the run.
    pub duration: Option<String>,
    /// `--warm-up`: time at the beginning that does not count.
    pub warm_up: Option<String>,
    /// `--transport`: transport of the media.
    pub transport: Option<String>,
    /// `--pick`: `random` or `in_turn`.
    pub pick: Option<String>,
    /// `--leave-after`: `at_end`, or the time after which each client leaves.
    pub leave: Option<String>,
    /// `--rejoin`: another client replaces one that ended or died.
    pub rejoin: bool,
    /// `--threshold`: thresholds.
    pub thresholds: Vec<String>,
    /// `--seed`: seed of all random choices.
    pub seed: Option<String>,
    /// `--workers`: number of worker threads.
    pub workers: Option<String>,
    /// `--header`: additional header fields, such as `Origin: https://example.org`.
    pub headers: Vec<String>,
    /// `--publish`: the clients publish this file, or generated media if it is empty. `None`: they
    /// play.
    pub publish: Option<String>,
    /// Pause between two trials of a search for the capacity. `None`: a single run.
    pub search_settle: Option<String>,
}

impl OneLiner {
    /// Returns the tree that an equivalent file has, and the name of the scenario.
    pub(crate) fn named_tree(&self) -> Result<(Node, String), ScenarioError> {
        if self.urls.is_empty() {
            return Err(Problem::without_position("a URL is missing")
                .help("say what to play, such as `streamgauge load rtsp://127.0.0.1:8554/a`")
                .into());
        }
        let name = self.name.clone();
        let name = name.unwrap_or_else(|| mask_text(&self.urls.join(" ")));
        Ok((self.tree()?, name))
    }

    /// Returns the entry of `headers`.
    fn header_fields(&self) -> Result<Option<Entry>, Problem> {
        const OPTION: &str = "--header";
        let Some(first) = self.headers.first() else {
            return Ok(None);
        };
        let shown = |field: &str| {
            // Messages quote the option, and the value may be a secret.
            let text = match field.split_once(':') {
                Some((name, _)) if !is_public_header(name) => format!("{OPTION} {name}: {MASK}"),
                Some(_) => format!("{OPTION} {field}"),
                None => format!("{OPTION} {MASK}"),
            };
            Origin::whole(&SourceText::new(SourceKind::Option, OPTION, text))
        };
        let mut fields: Vec<Entry> = Vec::new();
        for field in &self.headers {
            let origin = shown(field);
            let Some((name, value)) = field.split_once(':') else {
                return Err(Problem::new(&origin, "there is no `:`")
                    .help("write it as `--header 'NAME: VALUE'`"));
            };
            let (name, value) = (name.trim(), value.trim());
            if fields.iter().any(|other| other.key == name) {
                let text = format!("`{}` is given twice", display_text(name));
                return Err(Problem::new(&origin, text).help("leave one of them out"));
            }
            let node = Node::scalar(value, origin.clone());
            fields.push(Entry::new(name, origin, node));
        }
        let origin = shown(first);
        let fields = Node::map(fields, origin.clone());
        Ok(Some(Entry::new("headers", origin, fields)))
    }

    /// Returns the entry of `publish`.
    fn publication(&self) -> Option<Entry> {
        let file = self.publish.as_ref()?;
        let node = option_value("--publish", file);
        let origin = Origin::whole(&node.origin.source);
        let file = Entry::new("file", origin.clone(), node);
        let is_generated = self.publish.as_deref() == Some("");
        let keys = if is_generated { Vec::new() } else { vec![file] };
        let source = Node::map(keys, origin.clone());
        Some(Entry::new("publish", origin, source))
    }

    fn tree(&self) -> Result<Node, Problem> {
        let command = match self.search_settle {
            Some(_) => "capacity",
            None => "load",
        };
        let line = format!("{command} {}", self.urls.join(" "));
        let origin = Origin::whole(&SourceText::new(SourceKind::Option, command, line));
        let map = |entries: Vec<Entry>| Node::map(entries, origin.clone());
        let entry = |key: &str, node: Node| Entry::new(key, node.origin.clone(), node);
        let given = |key: &str, flag: &str, value: &Option<String>| {
            value
                .as_ref()
                .map(|value| entry(key, option_value(flag, value)))
        };

        let bound = if self.arrivals.is_some() {
            "max_clients"
        } else {
            "clients"
        };
        let clients = given(bound, "--clients", &self.clients)
            .unwrap_or_else(|| entry(bound, Node::scalar("1", origin.clone())));
        let load = [
            Some(clients),
            given("ramp", "--ramp", &self.ramp),
            given("one_every", "--one-every", &self.one_every),
            given("arrivals", "--arrivals", &self.arrivals),
        ];
        let urls = self.urls.iter().map(|url| {
            let source = SourceText::new(SourceKind::Option, "URL", url.as_str());
            Node::scalar(url.as_str(), Origin::whole(&source))
        });
        let leave = self.leave.as_ref().map(|text| {
            let node = option_value("--leave-after", text);
            if text == "at_end" {
                entry("leave", node)
            } else {
                let origin = node.origin.clone();
                entry("leave", Node::map(vec![entry("after", node)], origin))
            }
        });
        let rejoin = self.rejoin.then(|| {
            let source = SourceText::new(SourceKind::Option, "--rejoin", "--rejoin");
            entry("rejoin", Node::scalar("true", Origin::whole(&source)))
        });
        let population = [
            Some(entry("urls", Node::list(urls.collect(), origin.clone()))),
            Some(entry("load", map(load.into_iter().flatten().collect()))),
            given("transport", "--transport", &self.transport),
            given("pick", "--pick", &self.pick),
            leave,
            rejoin,
            self.header_fields()?,
            self.publication(),
        ];
        let population = map(population.into_iter().flatten().collect());
        let thresholds = (!self.thresholds.is_empty()).then(|| {
            let items = self
                .thresholds
                .iter()
                .map(|text| option_value("--threshold", text));
            entry("thresholds", Node::list(items.collect(), origin.clone()))
        });
        let name = one_liner_population(&self.urls, self.publish.is_some());
        let top = [
            Some(entry("clients", map(vec![entry(name, population)]))),
            given("duration", "--duration", &self.duration),
            given("warm_up", "--warm-up", &self.warm_up),
            given("seed", "--seed", &self.seed),
            given("workers", "--workers", &self.workers),
            thresholds,
            given("settle", "--settle", &self.search_settle),
            self.search_settle
                .as_ref()
                .map(|_| entry("capacity", map(Vec::new()))),
        ];
        Ok(map(top.into_iter().flatten().collect()))
    }
}
