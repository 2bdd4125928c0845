//! An entry of the catalogue of servers: one YAML file that says how a server is started.
//!
//! It is read as a scenario is: what is not known is an error at its place. Texts hold placeholders,
//! such as `{port}`, which are filled in when the server is started ([`ServerEntry::fill`]).

mod fill;

use std::fmt;
use std::path::Path;

use crate::error::{Problem, ScenarioError};
use crate::fields::{Fields, text, wrong_type};
use crate::nearest::suggest;
use crate::node::{Node, Value, shown};
use crate::open;
use crate::source::{Source, SourceKind};
use crate::yaml;

pub use fill::{Filled, Group, Values};

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
    /// A command that ends with 0 where all that it needs is installed. Default: that the program is
    /// there is enough.
    pub probe: Option<Vec<String>>,
    /// The program and its arguments, with placeholders.
    pub command: Vec<String>,
    /// Variables added to its environment, with placeholders.
    pub environment: Vec<(String, String)>,
    /// Its configuration file. Default: none.
    pub config: Option<Config>,
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
    /// Why it keeps root where streamgauge has it. Default: it does not need root, and runs as user 65534.
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
pub struct Config {
    /// What the file is called. Default: `server.conf`.
    pub name: String,
    /// What is in it, with placeholders.
    pub text: String,
}

/// Whether a server needs something that the scenario may say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Use {
    /// It has no use for it.
    #[default]
    No,
    /// It takes it where it is there.
    Optional,
    /// It cannot be started without.
    Needed,
}

impl Use {
    const ALL: [Use; 3] = [Use::No, Use::Optional, Use::Needed];

    /// As the file writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Use::No => "no",
            Use::Optional => "optional",
            Use::Needed => "needed",
        }
    }
}

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

const KEYS: [&str; 17] = [
    "summary",
    "protocols",
    "program",
    "probe",
    "command",
    "environment",
    "config",
    "clips",
    "groups",
    "port",
    "ready",
    "not_as_root",
    "needs_root",
    "urls",
    "version",
    "missing",
    "notes",
];

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
        let source = Source::new(SourceKind::File, source_name, text);
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
    let mut fields = Fields::of(root, "", "", problems)?;
    let name = name_of(source_name, root, problems);
    let summary = need_text(&mut fields, "summary", "say in a line what it is", problems);
    let protocols = fields
        .need("protocols", "write `protocols: [rtsp]`", problems)
        .map(|node| words(node, "protocols", problems));
    let programs = fields
        .need("program", "write `program: NAME`", problems)
        .map(|node| words(node, "program", problems));
    let probe = fields
        .get("probe", problems)
        .map(|node| words(node, "probe", problems));
    let command = fields
        .need("command", COMMAND_HELP, problems)
        .map(|node| command(node, "command", problems));
    let environment = fields
        .get("environment", problems)
        .map(|node| environment(node, problems))
        .unwrap_or_default();
    let config = fields
        .get("config", problems)
        .and_then(|node| config(node, problems));
    let clips = word(&mut fields, "clips", Use::ALL, Use::name, problems).unwrap_or_default();
    let groups = word(&mut fields, "groups", Use::ALL, Use::name, problems).unwrap_or_default();
    let port = match fields.need("port", "write the port it listens on by itself", problems) {
        Some(_) => fields.integer("port", 1..=65_535, problems),
        None => None,
    };
    let ready = fields
        .get("ready", problems)
        .and_then(|node| ready(node, problems))
        .unwrap_or_default();
    let not_as_root = word(
        &mut fields,
        "not_as_root",
        [false, true],
        |value| if value { "true" } else { "false" },
        problems,
    )
    .unwrap_or_default();
    let needs_root = fields
        .get("needs_root", problems)
        .and_then(|node| needs_root(node, not_as_root, problems));
    let urls = fields
        .need(
            "urls",
            "write `urls: [\"rtsp://{host}:{port}/live\"]`",
            problems,
        )
        .map(|node| words(node, "urls", problems));
    let version = fields
        .get("version", problems)
        .and_then(|node| version(node, problems));
    let missing = need_text(
        &mut fields,
        "missing",
        "say how it is installed, such as `apt-get install vlc-bin`",
        problems,
    );
    let notes = fields
        .get("notes", problems)
        .map(|node| words(node, "notes", problems))
        .unwrap_or_default();
    fields.finish(&KEYS, problems);
    let entry = ServerEntry {
        name: name?,
        summary: summary?,
        protocols: protocols?,
        programs: programs?,
        probe,
        command: command?,
        environment,
        config,
        clips,
        groups,
        port: u16::try_from(port?).ok()?,
        ready,
        not_as_root,
        needs_root,
        urls: urls?,
        version,
        missing: missing?,
        notes,
        text: text.to_owned(),
    };
    check_placeholders(&entry, root, problems);
    Some(entry)
}

/// Why a server keeps root, in words: the reason stands in the list of servers.
fn needs_root(node: &Node, not_as_root: bool, problems: &mut Vec<Problem>) -> Option<String> {
    let reason = text(node, "needs_root", problems)?;
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

fn need_text(
    fields: &mut Fields<'_>,
    key: &str,
    how: &str,
    problems: &mut Vec<Problem>,
) -> Option<String> {
    let node = fields.need(key, how, problems)?;
    text(node, key, problems)
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

fn word<T: Copy>(
    fields: &mut Fields<'_>,
    key: &str,
    all: impl IntoIterator<Item = T>,
    name: impl Fn(T) -> &'static str,
    problems: &mut Vec<Problem>,
) -> Option<T> {
    let node = fields.get(key, problems)?;
    let written = text(node, key, problems)?;
    let all: Vec<T> = all.into_iter().collect();
    let found = all.iter().copied().find(|&value| name(value) == written);
    if found.is_none() {
        problems.push(
            Problem::new(
                &node.origin,
                format!("`{key}` cannot be `{}`", shown(&written)),
            )
            .help(suggest(&written, all.into_iter().map(name))),
        );
    }
    found
}

fn environment(node: &Node, problems: &mut Vec<Problem>) -> Vec<(String, String)> {
    let Value::Map(entries) = &node.value else {
        problems.push(
            wrong_type(node, "environment", "a mapping").help("write `environment: {NAME: value}`"),
        );
        return Vec::new();
    };
    entries
        .iter()
        .filter_map(|entry| {
            if entry.key.is_empty() || entry.key.contains(['=', '\0']) {
                problems.push(Problem::new(
                    &entry.key_origin,
                    format!("`{}` is no name for a variable", shown(&entry.key)),
                ));
            }
            let path = format!("environment.{}", entry.key);
            Some((entry.key.clone(), text(&entry.node, &path, problems)?))
        })
        .collect()
}

fn config(node: &Node, problems: &mut Vec<Problem>) -> Option<Config> {
    const HELP: &str = "write `config: |` and the file's lines below, further in; or `config: {name: FILE, text: ...}`";
    if let Value::Scalar { text, .. } = &node.value {
        return Some(Config {
            name: "server.conf".to_owned(),
            text: text.clone(),
        });
    }
    let mut fields = Fields::of(node, "config", HELP, problems)?;
    let name = need_text(&mut fields, "name", HELP, problems);
    let text = need_text(&mut fields, "text", HELP, problems);
    if let (Some(name), Some(entry)) = (&name, fields.entry("name"))
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
    fields.finish(&["name", "text"], problems);
    Some(Config {
        name: name?,
        text: text?,
    })
}

fn ready(node: &Node, problems: &mut Vec<Problem>) -> Option<EntryReady> {
    const HELP: &str = "write `ready: port`, `ready: urls`, `ready: {line: \"text it prints\"}` or `ready: {pattern: \"regular expression\"}`";
    if let Value::Scalar { text, .. } = &node.value {
        let ready = match text.as_str() {
            "port" => Some(EntryReady::Port),
            "urls" => Some(EntryReady::Urls),
            _ => None,
        };
        if ready.is_none() {
            problems.push(
                Problem::new(&node.origin, format!("`ready` cannot be `{}`", shown(text)))
                    .help(HELP),
            );
        }
        return ready;
    }
    let mut fields = Fields::of(node, "ready", HELP, problems)?;
    let line = fields.text("line", problems).map(EntryReady::Line);
    let pattern = fields.text("pattern", problems).map(EntryReady::Pattern);
    let before = problems.len();
    let both = line.is_some() && pattern.is_some();
    let found = line.or(pattern);
    fields.finish(&["line", "pattern"], problems);
    if (both || found.is_none()) && problems.len() == before {
        problems
            .push(Problem::new(&node.origin, "`ready` must say one thing to wait for").help(HELP));
    }
    found
}

fn version(node: &Node, problems: &mut Vec<Problem>) -> Option<Version> {
    const HELP: &str =
        "write `version: {command: [\"{program}\", --version], pattern: \"version ([0-9.]+)\"}`";
    let mut fields = Fields::of(node, "version", HELP, problems)?;
    let words = fields
        .need("command", HELP, problems)
        .map(|node| command(node, "version.command", problems));
    let pattern = fields
        .need("pattern", HELP, problems)
        .and_then(|node| text(node, "version.pattern", problems));
    fields.finish(&["command", "pattern"], problems);
    Some(Version {
        command: words?,
        pattern: pattern?,
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
