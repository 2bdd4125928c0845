//! A server entry of the catalogue: a YAML file that describes how a server is started.
//!
//! An entry is read like a scenario: an unknown key is an error with its position. Texts contain
//! placeholders, such as `{port}`, which are filled in when the server is started
//! ([`ServerEntry::fill`]).

mod fill;

use std::fmt;
use std::path::Path;

use serde::Deserialize;

use crate::collector::{TypeSyntax, join_path};
use crate::error::{Problem, ScenarioError};
use crate::fields::{read_string, wrong_type};
use crate::node::{Node, Value, display_text};
use crate::open;
use crate::origin::{SourceKind, SourceText};
use crate::section::{self, BoundedInteger, Deferred, Key};
use crate::words::words;
use crate::yaml;
use kit::server_counters;
use measure::nearest::suggest;

pub use fill::{FilledEntry, PlaceholderValues};

/// How a known server is started, as plain data. Created by [`ServerEntry::parse`] and
/// [`ServerEntry::load`].
#[derive(Clone, Debug, PartialEq)]
pub struct ServerEntry {
    /// Name, as in `launch: NAME`: the file name without its extension.
    pub name: String,
    /// Description in one line.
    pub summary: String,
    /// Names of the protocols that it serves, such as `rtsp`. At least one.
    pub protocols: Vec<String>,
    /// Candidate programs, best first: names to look up in PATH, or paths.
    pub programs: Vec<String>,
    /// Command that exits with 0 if all dependencies are installed. Default: none; an existing
    /// program is enough.
    pub probe: Option<Vec<String>>,
    /// Program and arguments, with placeholders.
    pub command: Vec<String>,
    /// Variables added to its environment, with placeholders.
    pub environment: Vec<(String, String)>,
    /// Configuration file. Default: none.
    pub config: Option<ConfigFile>,
    /// Interface to its own counters, on port `{admin_port}` of this machine with the secret
    /// `{secret}`. Default: none.
    pub counters: Option<server_counters::CounterInterface>,
    /// Regular expressions: a log line that matches one is not a complaint, whatever it contains.
    /// Default: none.
    pub log_ignore: Vec<String>,
    /// Whether it uses the `clips` of a scenario. Default: [`Requirement::No`].
    pub clips: Requirement,
    /// Whether it uses the multicast `groups` of a scenario. Default: [`Requirement::No`].
    pub groups: Requirement,
    /// Default port that it listens on, with the transport of its first protocol.
    pub port: u16,
    /// Readiness condition. Default: [`EntryReady::Port`].
    pub ready: EntryReady,
    /// True if it refuses to run as root: a scenario cannot set `user: root`. Default: false.
    pub not_as_root: bool,
    /// Reason why it keeps root if streamgauge has it. Default: none; it runs as user 65534.
    pub needs_root: Option<String>,
    /// URLs that it serves, with placeholders. At least one.
    pub urls: Vec<String>,
    /// How its version is determined. Default: unknown.
    pub version: Option<Version>,
    /// How to install it.
    pub missing: String,
    /// Facts to know before its figures are trusted.
    pub notes: Vec<String>,
    /// Text of the file.
    pub text: String,
}

/// A server's configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// File name. Default: `server.conf`.
    pub name: String,
    /// Content, with placeholders.
    pub text: String,
}

/// Whether a server uses a setting of the scenario, such as `clips`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requirement {
    /// The setting is refused.
    #[default]
    No,
    /// The setting is used if present.
    Optional,
    /// The server cannot start without the setting.
    Needed,
}

words!(Requirement: 3 { No = "no", Optional = "optional", Needed = "needed" });

/// Readiness condition of a known server. In every case the server must also own its port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EntryReady {
    /// It owns its port and, with TCP, accepts a connection.
    #[default]
    Port,
    /// It answers the probe of each of its URLs: DESCRIBE with 200 for RTSP (RFC 2326, 10.2).
    Urls,
    /// It prints a line that contains this text.
    Line(String),
    /// It prints a line that matches this regular expression.
    Pattern(String),
}

/// How the version of a server is determined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Program and arguments; `{program}` is the only placeholder.
    pub command: Vec<String>,
    /// Regular expression. The version is its first group, or the whole match if it has no group.
    pub pattern: String,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EntryKeys {
    summary: Key<String>,
    protocols: Key<Deferred>,
    program: Key<Deferred>,
    probe: Key<Deferred>,
    command: Key<Deferred>,
    environment: Key<Deferred>,
    config: Key<Deferred>,
    counters: Key<server_counters::CounterInterface>,
    log_ignore: Key<Deferred>,
    clips: Key<Requirement>,
    groups: Key<Requirement>,
    port: Key<BoundedInteger<1, 65_535>>,
    ready: Key<Deferred>,
    not_as_root: Key<Flag>,
    needs_root: Key<String>,
    urls: Key<Deferred>,
    version: Key<VersionKeys>,
    missing: Key<String>,
    notes: Key<Deferred>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Flag {
    #[default]
    False,
    True,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ConfigKeys {
    name: Key<Deferred>,
    text: Key<Deferred>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ReadyKeys {
    line: Key<String>,
    pattern: Key<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct VersionKeys {
    command: Key<Deferred>,
    pattern: Key<String>,
}

const FORMS: &[TypeSyntax] = &[
    (
        "EntryKeys",
        "",
        &[
            ("summary", "describe it in one line"),
            ("protocols", "write `protocols: [rtsp]`"),
            ("program", "write `program: NAME`"),
            ("command", COMMAND_HELP),
            ("port", "write the port that it listens on by default"),
            ("urls", "write `urls: [\"rtsp://{host}:{port}/live\"]`"),
            (
                "missing",
                "say how it is installed, such as `apt-get install vlc-bin`",
            ),
        ],
    ),
    (
        "ConfigKeys",
        CONFIG_HELP,
        &[("name", CONFIG_HELP), ("text", CONFIG_HELP)],
    ),
    ("ReadyKeys", READY_HELP, &[]),
    (
        "VersionKeys",
        VERSION_HELP,
        &[("command", VERSION_HELP), ("pattern", VERSION_HELP)],
    ),
];

const CONFIG_HELP: &str = "write `config: |` and the file's lines below, further in; or `config: {name: FILE, text: \
     ...}`";

const READY_HELP: &str = "write `ready: port`, `ready: urls`, `ready: {line: \"text it prints\"}` or `ready: \
     {pattern: \"regular expression\"}`";

const VERSION_HELP: &str =
    "write `version: {command: [\"{program}\", --version], pattern: \"version ([0-9.]+)\"}`";

const COMMAND_HELP: &str =
    "write the program and each argument as an item: `command: [\"{program}\", -p, \"{port}\"]`";

impl ServerEntry {
    /// Reads the file at `path`. The entry is named after the file, without its extension.
    ///
    /// # Errors
    /// If the file cannot be read or has mistakes, each with line and column.
    pub fn load(path: &Path) -> Result<ServerEntry, ScenarioError> {
        let (shown, text) = open::read(path, DOCUMENT_TYPE)?;
        ServerEntry::parse(&shown, &text)
    }

    /// Reads an entry from a string. `source_name` is a path or file name: messages show it, and
    /// the entry is named after it.
    ///
    /// # Errors
    /// All mistakes, each with line and column.
    pub fn parse(source_name: &str, text: &str) -> Result<ServerEntry, ScenarioError> {
        let source = SourceText::new(SourceKind::File, source_name, text);
        let root = yaml::parse(&source, 0)?;
        let mut problems = Vec::new();
        let entry = read(&root, source_name, text, &mut problems);
        match entry {
            Some(entry) if problems.is_empty() => Ok(entry),
            _ => Err(ScenarioError::of_document(DOCUMENT_TYPE, problems)),
        }
    }
}

/// Type of the document in messages.
const DOCUMENT_TYPE: &str = "server entry";

impl fmt::Display for ServerEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.summary)
    }
}

fn read(
    root: &Node,
    source_name: &str,
    text: &str,
    problems: &mut Vec<Problem>,
) -> Option<ServerEntry> {
    if !matches!(root.value, Value::Map(_)) {
        let problem = Problem::new(
            &root.origin,
            format!(
                "a {DOCUMENT_TYPE} must be a mapping, but is {}",
                root.describe()
            ),
        );
        problems.push(problem.help("write `summary: ...`, `command: [...]` and so on"));
        return None;
    }
    let name = name_of(source_name, root, problems);
    let keys: EntryKeys = section::read(root, "", FORMS, problems)?;
    let mut list = |key: &str| root.get(key).map(|node| read_strings(node, key, problems));
    let (protocols, programs, probe) = (list("protocols"), list("program"), list("probe"));
    let (urls, notes, log_ignore) = (list("urls"), list("notes"), list("log_ignore"));
    let command = root
        .get("command")
        .map(|node| command(node, "command", problems));
    let environment = root
        .get("environment")
        .map(|node| environment(node, "environment", problems))
        .unwrap_or_default();
    let config = root.get("config").and_then(|node| config(node, problems));
    let ready = root.get("ready").and_then(|node| ready(node, problems));
    let not_as_root = matches!(keys.not_as_root.0, Some(Flag::True));
    let needs_root = keys
        .needs_root
        .0
        .and_then(|reason| needs_root(reason, root.get("needs_root")?, not_as_root, problems));
    let version = keys
        .version
        .0
        .and_then(|keys| version(keys, root.get("version")?, problems));
    let entry = ServerEntry {
        name: name?,
        summary: keys.summary.0?,
        protocols: protocols?,
        programs: programs?,
        probe,
        command: command?,
        environment,
        config,
        counters: keys.counters.0,
        log_ignore: log_ignore.unwrap_or_default(),
        clips: keys.clips.or(Requirement::No),
        groups: keys.groups.or(Requirement::No),
        port: keys.port.number()?,
        ready: ready.unwrap_or_default(),
        not_as_root,
        needs_root,
        urls: urls?,
        version,
        missing: keys.missing.0?,
        notes: notes.unwrap_or_default(),
        text: text.to_owned(),
    };
    check_placeholders(&entry, root, problems);
    Some(entry)
}

/// Checks the reason for keeping root, which the list of servers shows.
fn needs_root(
    reason: String,
    node: &Node,
    not_as_root: bool,
    problems: &mut Vec<Problem>,
) -> Option<String> {
    if ["", "true", "false"].contains(&reason.as_str()) {
        Problem::new(&node.origin, "`needs_root` does not say why")
            .help("write what it needs root for: `needs_root: it opens raw sockets`")
            .report(problems);
        return None;
    }
    if not_as_root {
        let text = "`needs_root` and `not_as_root` cannot be combined";
        problems.push(Problem::new(&node.origin, text).help("remove one of them"));
        return None;
    }
    Some(reason)
}

fn name_of(source_name: &str, root: &Node, problems: &mut Vec<Problem>) -> Option<String> {
    let name = Path::new(source_name)
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .filter(|name| {
            !name.is_empty()
                && name
                    .chars()
                    .all(|c| c.is_alphanumeric() || ['-', '_', '.'].contains(&c))
        });
    if name.is_none() {
        let text = "the file name is not a valid name of a server";
        Problem::new(&root.origin, text)
            .help("use letters, digits, `-`, `_` and `.`, such as `my-relay.yaml`")
            .report(problems);
    }
    name
}

/// Reads a list of strings, or one string. Reports an empty list and empty items.
fn read_strings(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Vec<String> {
    let Some(items) = node.items() else {
        problems.push(wrong_type(node, path, "a list"));
        return Vec::new();
    };
    if items.is_empty() {
        problems.push(Problem::new(&node.origin, format!("`{path}` is empty")));
    }
    let words: Vec<String> = items
        .iter()
        .enumerate()
        .filter_map(|(index, item)| read_string(item, &format!("{path}.{index}"), problems))
        .collect();
    for (word, item) in words.iter().zip(items) {
        if word.is_empty() || word.contains('\0') {
            let text = format!("`{path}` has an item that is empty or contains NUL");
            problems.push(Problem::new(&item.origin, text));
        }
    }
    words
}

fn command(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Vec<String> {
    if !matches!(node.value, Value::List(_)) {
        problems.push(wrong_type(node, path, "a list").help(COMMAND_HELP));
        return Vec::new();
    }
    read_strings(node, path, problems)
}

/// Reads variables and their values.
pub(crate) fn environment(
    node: &Node,
    path: &str,
    problems: &mut Vec<Problem>,
) -> Vec<(String, String)> {
    if !matches!(node.value, Value::Map(_)) {
        let wrong = wrong_type(node, path, "a mapping");
        problems.push(wrong.help("write `environment: {NAME: value}`"));
    }
    let mut variables = Vec::new();
    for entry in node.entries() {
        if entry.key.is_empty() || entry.key.contains(['=', '\0']) {
            let text = format!(
                "`{}` is not a valid name of a variable",
                display_text(&entry.key)
            );
            problems.push(Problem::new(&entry.key_origin, text));
        }
        let value = read_string(&entry.node, &join_path(path, &entry.key), problems);
        variables.extend(value.map(|value| (entry.key.clone(), value)));
    }
    variables
}

fn config(node: &Node, problems: &mut Vec<Problem>) -> Option<ConfigFile> {
    if let Value::Scalar { text, .. } = &node.value {
        return Some(ConfigFile {
            name: "server.conf".to_owned(),
            text: text.clone(),
        });
    }
    section::read::<ConfigKeys>(node, "config", FORMS, problems)?;
    let mut part = |key| {
        node.get(key)
            .and_then(|node| read_string(node, key, problems))
    };
    let (name, text) = (part("name"), part("text"));
    if let (Some(name), Some(entry)) = (&name, node.entry("name"))
        && (name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']))
    {
        let text = format!("`{}` is not a valid file name", display_text(name));
        Problem::new(&entry.node.origin, text)
            .help("it is written to the server's own folder: write a name without a path")
            .report(problems);
    }
    Some(ConfigFile {
        name: name?,
        text: text?,
    })
}

fn ready(node: &Node, problems: &mut Vec<Problem>) -> Option<EntryReady> {
    if let Value::Scalar { text, .. } = &node.value {
        let ready = match text.as_str() {
            "port" => Some(EntryReady::Port),
            "urls" => Some(EntryReady::Urls),
            _ => None,
        };
        if ready.is_none() {
            let text = format!("`ready` cannot be `{}`", display_text(text));
            problems.push(Problem::new(&node.origin, text).help(READY_HELP));
        }
        return ready;
    }
    let keys: ReadyKeys = section::read(node, "ready", FORMS, problems)?;
    let known = section::keys::<ReadyKeys>();
    let line = keys.line.0.map(EntryReady::Line);
    let pattern = keys.pattern.0.map(EntryReady::Pattern);
    let one = line.is_some() != pattern.is_some();
    let mut given = node.entries().iter();
    if !one && given.all(|entry| known.contains(&entry.key.as_str())) {
        let text = "`ready` needs exactly one condition";
        problems.push(Problem::new(&node.origin, text).help(READY_HELP));
    }
    line.or(pattern)
}

fn version(keys: VersionKeys, node: &Node, problems: &mut Vec<Problem>) -> Option<Version> {
    let words = node
        .get("command")
        .map(|node| command(node, "version.command", problems));
    Some(Version {
        command: words?,
        pattern: keys.pattern.0?,
    })
}

/// Reports unknown placeholders at their position, and placeholders that are missing from the
/// command.
fn check_placeholders(entry: &ServerEntry, root: &Node, problems: &mut Vec<Problem>) {
    for found in root.entries() {
        let known: &[&str] = match found.key.as_str() {
            "command" | "environment" | "config" => &fill::COMMAND,
            "urls" => &fill::URLS,
            "probe" | "version" => &fill::PROGRAM,
            _ => continue,
        };
        placeholders(&found.node, &found.key, known, problems);
    }
    let uses = |name: &str| {
        entry
            .command
            .iter()
            .map(String::as_str)
            .chain(entry.environment.iter().map(|(_, value)| value.as_str()))
            .any(|text| fill::placeholders(text).any(|(found, _)| found == name))
    };
    let in_config = |name: &str| {
        let text = entry.config.as_ref().map_or("", |config| &config.text);
        fill::placeholders(text).any(|(found, _)| found == name)
    };
    for name in ["admin_port", "secret"] {
        if entry.counters.is_some() && !uses(name) && !in_config(name) {
            let text = format!("`counters` needs `{{{name}}}`, but the server does not get it");
            let problem = Problem::new(&root.origin, text).label("has `counters`");
            problems.push(problem.help("write it in `config`, `command` or `environment`"));
        }
    }
    if entry.config.is_some() && !uses("config") {
        let text = "`command` does not name its configuration file";
        Problem::new(&root.origin, text)
            .label("has a `config`")
            .help("write `{config}` where its path belongs")
            .report(problems);
    }
    if entry.config.is_none() && uses("config") {
        let text = "`command` names a configuration file, but there is no `config`";
        Problem::new(&root.origin, text)
            .label("has no `config`")
            .help("write what is in the file under `config: |`")
            .report(problems);
    }
}

fn placeholders(node: &Node, path: &str, known: &[&str], problems: &mut Vec<Problem>) {
    match &node.value {
        Value::Null => {}
        Value::List(items) => {
            for item in items {
                placeholders(item, path, known, problems);
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                // Braces of a regular expression are not placeholders.
                if entry.key != "pattern" {
                    placeholders(&entry.node, path, known, problems);
                }
            }
        }
        Value::Scalar { text, .. } => {
            for (name, _) in fill::placeholders(text) {
                if !known.contains(&name) {
                    // Position in the file, if the text is found there as it is: escapes and blocks
                    // shift it.
                    let offset = node.origin.text().find(&format!("{{{name}}}"));
                    let origin = offset.map_or_else(
                        || node.origin.clone(),
                        |at| node.origin.part(at, name.len() + 2),
                    );
                    let text = format!("unknown placeholder `{{{name}}}` in `{path}`");
                    Problem::new(&origin, text)
                        .help(format!(
                            "{}; write literal braces doubled: `{{{{{name}}}}}`",
                            suggest(name, known.iter().copied())
                        ))
                        .report(problems);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
