//! An entry of the catalogue of servers: one YAML file that says how a server is started.
//!
//! It is read as a scenario is: what is not known is an error at its place. Texts hold
//! placeholders, such as `{port}`, which are filled in when the server is started
//! ([`ServerEntry::fill`]).

mod fill;

use std::fmt;
use std::path::Path;

use serde::Deserialize;

use crate::collector::{Form, join};
use crate::error::{Problem, ScenarioError};
use crate::fields::{text, wrong_type};
use crate::node::{Node, Value, shown};
use crate::open;
use crate::section::{self, Key, Raw, Whole};
use crate::source::{SourceKind, SourceText};
use crate::words::words;
use crate::yaml;
use measure::nearest::suggest;
use protocol::server_counters;

pub use fill::{Filled, Values};

/// How a known server is started, in plain data. Made by [`ServerEntry::parse`] and
/// [`ServerEntry::load`].
#[derive(Clone, Debug, PartialEq)]
pub struct ServerEntry {
    /// Its name, as in `launch: NAME`: that of its file.
    pub name: String,
    /// What it is, in one line.
    pub summary: String,
    /// What clients can speak to it: names of protocols, such as `rtsp`. At least one.
    pub protocols: Vec<String>,
    /// The programs that can be it, best first: each a name that is looked for in PATH, or a path.
    pub programs: Vec<String>,
    /// A command that ends with 0 where all that it needs is installed. Default: that the program
    /// is there is enough.
    pub probe: Option<Vec<String>>,
    /// The program and its arguments, with placeholders.
    pub command: Vec<String>,
    /// Variables added to its environment, with placeholders.
    pub environment: Vec<(String, String)>,
    /// Its configuration file. Default: none.
    pub config: Option<ConfigFile>,
    /// How it is asked what it counts itself: on port `{admin_port}` of this machine, with the
    /// secret `{secret}`. Default: it is not.
    pub counters: Option<server_counters::Kind>,
    /// Regular expressions that tell a line of its log that is no complaint, whatever its words.
    /// Default: none.
    pub log_ignore: Vec<String>,
    /// What of clips it plays. Default: [`Use::No`].
    pub clips: Use,
    /// What it does with multicast groups. Default: [`Use::No`].
    pub groups: Use,
    /// The TCP port that it listens on where nothing else is said.
    pub port: u16,
    /// How it shows that it is ready. Default: [`EntryReady::Port`].
    pub ready: EntryReady,
    /// It refuses to be root: the scenario cannot say `user: root`. Default: no.
    pub not_as_root: bool,
    /// Why it keeps root where streamgauge has it. Default: it does not need root, and runs as user
    /// 65534.
    pub needs_root: Option<String>,
    /// The URLs that it serves, with placeholders. At least one.
    pub urls: Vec<String>,
    /// How it is asked for its version. Default: nobody knows.
    pub version: Option<Version>,
    /// What to do where it is not installed.
    pub missing: String,
    /// What to know before its figures are believed.
    pub notes: Vec<String>,
    /// The file, as it is written.
    pub text: String,
}

/// A server's configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// What the file is called. Default: `server.conf`.
    pub name: String,
    /// What is in it, with placeholders.
    pub text: String,
}

/// Whether a server needs something that the scenario may say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Use {
    /// It has no use for it.
    #[default]
    No,
    /// It takes it where it is there.
    Optional,
    /// It cannot be started without.
    Needed,
}

words!(Use: 3 { No = "no", Optional = "optional", Needed = "needed" });

/// How a known server shows that it is ready. Whichever it is, the port must be its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EntryReady {
    /// It has its port and accepts a connection.
    #[default]
    Port,
    /// It answers DESCRIBE of each of its URLs with 200 (RFC 2326, 10.2).
    Urls,
    /// It prints a line that contains this text.
    Line(String),
    /// It prints a line that matches this regular expression.
    Pattern(String),
}

/// How a server is asked for its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The program and its arguments; `{program}` is the only placeholder.
    pub command: Vec<String>,
    /// A regular expression. The version is its first group, or all that matched where it has none.
    pub pattern: String,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EntryKeys {
    summary: Key<String>,
    protocols: Key<Raw>,
    program: Key<Raw>,
    probe: Key<Raw>,
    command: Key<Raw>,
    environment: Key<Raw>,
    config: Key<Raw>,
    counters: Key<server_counters::Kind>,
    log_ignore: Key<Raw>,
    clips: Key<Use>,
    groups: Key<Use>,
    port: Key<Whole<1, 65_535>>,
    ready: Key<Raw>,
    not_as_root: Key<Flag>,
    needs_root: Key<String>,
    urls: Key<Raw>,
    version: Key<VersionKeys>,
    missing: Key<String>,
    notes: Key<Raw>,
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
    name: Key<Raw>,
    text: Key<Raw>,
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
    command: Key<Raw>,
    pattern: Key<String>,
}

const FORMS: &[Form] = &[
    (
        "EntryKeys",
        "",
        &[
            ("summary", "say in a line what it is"),
            ("protocols", "write `protocols: [rtsp]`"),
            ("program", "write `program: NAME`"),
            ("command", COMMAND_HELP),
            ("port", "write the port it listens on by itself"),
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

/// Something that is needed for one of the keys that must be there.
const COMMAND_HELP: &str =
    "write the program and each argument as an item: `command: [\"{program}\", -p, \"{port}\"]`";

impl ServerEntry {
    /// Reads the file at `path`. The entry is called as the file is, without its ending.
    ///
    /// # Errors
    /// The file cannot be read, or something in it is wrong: each with line and column.
    pub fn load(path: &Path) -> Result<ServerEntry, ScenarioError> {
        let (shown, text) = open::read_as(path, WHAT)?;
        ServerEntry::parse(&shown, &text)
    }

    /// Reads an entry from a text. `source_name` is what messages call it, and what its name is
    /// taken from: a path, or a file's name.
    ///
    /// # Errors
    /// Whatever is wrong in it, each with line and column.
    pub fn parse(source_name: &str, text: &str) -> Result<ServerEntry, ScenarioError> {
        let source = SourceText::new(SourceKind::File, source_name, text);
        let root = yaml::parse(&source, 0)?;
        let mut problems = Vec::new();
        let entry = read(&root, source_name, text, &mut problems);
        match entry {
            Some(entry) if problems.is_empty() => Ok(entry),
            _ => Err(ScenarioError::of(WHAT, problems)),
        }
    }
}

/// What messages call it as a whole.
const WHAT: &str = "server entry";

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
            format!("a {WHAT} must be a mapping, and is {}", root.kind()),
        );
        problems.push(problem.help("write `summary: ...`, `command: [...]` and so on"));
        return None;
    }
    let name = name_of(source_name, root, problems);
    let keys: EntryKeys = section::read(root, "", FORMS, problems)?;
    let mut list = |key: &str| root.get(key).map(|node| words(node, key, problems));
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
        clips: keys.clips.or(Use::No),
        groups: keys.groups.or(Use::No),
        port: u16::try_from(keys.port.0?.0).ok()?,
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

/// Why a server keeps root, in words: the reason stands in the list of servers.
fn needs_root(
    reason: String,
    node: &Node,
    not_as_root: bool,
    problems: &mut Vec<Problem>,
) -> Option<String> {
    if ["", "true", "false"].contains(&reason.as_str()) {
        problems.push(
            Problem::new(&node.origin, "`needs_root` does not say why")
                .help("write what it needs root for: `needs_root: it opens raw sockets`"),
        );
        return None;
    }
    if not_as_root {
        problems.push(
            Problem::new(
                &node.origin,
                "`needs_root` and `not_as_root` do not go together",
            )
            .help("leave one of them out"),
        );
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
        problems.push(
            Problem::new(&root.origin, "the file's name is no name for a server")
                .help("call it by letters, digits, `-`, `_` and `.`, such as `my-relay.yaml`"),
        );
    }
    name
}

/// A list of texts, or one text. Never empty where nothing is wrong.
fn words(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Vec<String> {
    let items = match &node.value {
        Value::List(items) => items.as_slice(),
        Value::Scalar { .. } => std::slice::from_ref(node),
        _ => {
            problems.push(wrong_type(node, path, "a list"));
            return Vec::new();
        }
    };
    if items.is_empty() {
        problems.push(Problem::new(&node.origin, format!("`{path}` is empty")));
    }
    let words: Vec<String> = items
        .iter()
        .enumerate()
        .filter_map(|(index, item)| text(item, &format!("{path}.{index}"), problems))
        .collect();
    for (word, item) in words.iter().zip(items) {
        if word.is_empty() || word.contains('\0') {
            problems.push(Problem::new(
                &item.origin,
                format!("`{path}` has an item with nothing in it"),
            ));
        }
    }
    words
}

fn command(node: &Node, path: &str, problems: &mut Vec<Problem>) -> Vec<String> {
    if !matches!(node.value, Value::List(_)) {
        problems.push(wrong_type(node, path, "a list").help(COMMAND_HELP));
        return Vec::new();
    }
    words(node, path, problems)
}

/// Variables and their values.
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
            problems.push(Problem::new(
                &entry.key_origin,
                format!("`{}` is no name for a variable", shown(&entry.key)),
            ));
        }
        let value = text(&entry.node, &join(path, &entry.key), problems);
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
    let mut part = |key| node.get(key).and_then(|node| text(node, key, problems));
    let (name, text) = (part("name"), part("text"));
    if let (Some(name), Some(entry)) = (&name, node.entry("name"))
        && (name.is_empty() || name.starts_with('.') || name.contains(['/', '\0']))
    {
        problems.push(
            Problem::new(
                &entry.node.origin,
                format!("`{}` is no name for a file", shown(name)),
            )
            .help("it is written to a folder of the server's own: name it alone, without a path"),
        );
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
            problems.push(
                Problem::new(&node.origin, format!("`ready` cannot be `{}`", shown(text)))
                    .help(READY_HELP),
            );
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
        let text = "`ready` must say one thing to wait for";
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

/// Names every placeholder that there is none of, where it stands.
fn check_placeholders(entry: &ServerEntry, root: &Node, problems: &mut Vec<Problem>) {
    let Value::Map(entries) = &root.value else {
        return;
    };
    for found in entries {
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
            .any(|text| fill::names(text).any(|(found, _)| found == name))
    };
    let in_config = |name: &str| {
        let text = entry.config.as_ref().map_or("", |config| &config.text);
        fill::names(text).any(|(found, _)| found == name)
    };
    for name in ["admin_port", "secret"] {
        if entry.counters.is_some() && !uses(name) && !in_config(name) {
            let text = format!("`counters` needs `{{{name}}}`, and nothing tells it to the server");
            let problem = Problem::new(&root.origin, text).label("has `counters`");
            problems.push(problem.help("write it in `config`, `command` or `environment`"));
        }
    }
    if entry.config.is_some() && !uses("config") {
        problems.push(
            Problem::new(
                &root.origin,
                "`command` does not name its configuration file",
            )
            .label("has a `config`")
            .help("write `{config}` where its path belongs"),
        );
    }
    if entry.config.is_none() && uses("config") {
        problems.push(
            Problem::new(
                &root.origin,
                "`command` names a configuration file: there is no `config`",
            )
            .label("has no `config`")
            .help("write what is in the file under `config: |`"),
        );
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
                // A regular expression has braces of its own.
                if entry.key != "pattern" {
                    placeholders(&entry.node, path, known, problems);
                }
            }
        }
        Value::Scalar { text, .. } => {
            for (name, _) in fill::names(text) {
                if !known.contains(&name) {
                    // As the text is written where it is found again: escapes and blocks move it.
                    let place = node.origin.text().find(&format!("{{{name}}}"));
                    let origin = place.map_or_else(
                        || node.origin.clone(),
                        |at| node.origin.part(at, name.len() + 2),
                    );
                    problems.push(
                        Problem::new(&origin, format!("`{path}` knows no `{{{name}}}`")).help(
                            format!(
                                "{}; braces that are to stay are written doubled: `{{{{{name}}}}}`",
                                suggest(name, known.iter().copied())
                            ),
                        ),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
