//! Placeholders: their names and values.

use std::collections::BTreeSet;

use super::ServerEntry;
use crate::group::Group;

/// Placeholders of commands, configuration files and the environment.
pub(super) const COMMAND: [&str; 16] = [
    "program",
    "port",
    "interface",
    "config",
    "scratch",
    "home",
    "audio",
    "clip",
    "clip_number",
    "group_kind",
    "group",
    "group_port",
    "group_number",
    "host",
    "admin_port",
    "secret",
];

/// Placeholders of URLs.
pub(super) const URLS: [&str; 7] = [
    "host",
    "port",
    "clip_number",
    "group_kind",
    "group",
    "group_port",
    "group_number",
];

/// Placeholders of the commands `probe` and `version`, which run without a start of the server.
pub(super) const PROGRAM: [&str; 1] = ["program"];

/// Values of the placeholders.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlaceholderValues {
    /// `{program}`: path of the program.
    pub program: String,
    /// `{host}`: address at which clients reach the server, in URL syntax.
    pub host: String,
    /// `{port}`: port to listen on.
    pub port: u16,
    /// `{admin_port}`: loopback port of the server's own counters.
    pub admin_port: u16,
    /// `{secret}`: secret that gives access to these counters.
    pub secret: String,
    /// `{interface}`: network interface to receive multicast on.
    pub interface: String,
    /// `{config}`: path of the configuration file.
    pub config: String,
    /// `{scratch}`: temporary folder of the server, removed after its end.
    pub scratch: String,
    /// `{home}`: folder in `{scratch}` that the server's user may write to.
    pub home: String,
    /// `{audio}`: `yes` if the clips have audio, else `no`.
    pub audio: bool,
    /// `{clip}`: paths of the clips. A text that contains it is repeated for each clip, with
    /// `{clip_number}` from 1.
    pub clips: Vec<String>,
    /// `{group_kind}`, `{group}` and `{group_port}`: multicast groups. A text that contains one of
    /// them is repeated for each group, with `{group_number}` from 1.
    pub groups: Vec<Group>,
}

/// Texts of an entry with their placeholders filled in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilledEntry {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Variables added to the server's environment.
    pub environment: Vec<(String, String)>,
    /// Content of the configuration file, if any.
    pub config: Option<String>,
    /// URLs that the server serves.
    pub urls: Vec<String>,
}

impl ServerEntry {
    /// Fills in `{program}`, the only placeholder of the commands of `probe` and `version`.
    pub fn fill_program(&self, program: &str, command: &[String]) -> Vec<String> {
        let values = PlaceholderValues {
            program: program.to_owned(),
            ..PlaceholderValues::default()
        };
        fill_list(command, &values)
    }

    /// Fills in all placeholders. An argument, a URL or a line of the configuration file that
    /// contains a clip or a group is repeated for each of them, and omitted if there is none.
    pub fn fill(&self, values: &PlaceholderValues) -> FilledEntry {
        FilledEntry {
            command: fill_list(&self.command, values),
            environment: self
                .environment
                .iter()
                .map(|(name, value)| (name.clone(), fill_text(value, values).join(":")))
                .collect(),
            config: self.config.as_ref().map(|config| {
                config
                    .text
                    .split_inclusive('\n')
                    .flat_map(|line| fill_text(line, values))
                    .collect()
            }),
            urls: fill_list(&self.urls, values),
        }
    }
}

/// Returns the names of the placeholders in a text and their offsets. Doubled braces are skipped.
pub(super) fn placeholders(text: &str) -> impl Iterator<Item = (&str, usize)> {
    tokens(text).filter_map(|piece| match piece {
        Token::Name(name, at) => Some((name, at)),
        Token::Text(_) => None,
    })
}

enum Token<'a> {
    Text(&'a str),
    Name(&'a str, usize),
}

/// Splits a text into placeholders and literal parts. Braces around anything but lower-case words
/// are literal, so that most configuration files need no escapes; `{{name}}` stands for `{name}`.
fn tokens(text: &str) -> impl Iterator<Item = Token<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &text[at..];
        if rest.is_empty() {
            return None;
        }
        if let Some(name) = name_at(rest, 1) {
            let piece = Token::Name(name, at);
            at += name.len() + 2;
            return Some(piece);
        }
        if let Some(name) = name_at(rest, 2) {
            // The inner braces are literal.
            let piece = &rest[1..name.len() + 3];
            at += name.len() + 4;
            return Some(Token::Text(piece));
        }
        let next = rest
            .char_indices()
            .skip(1)
            .find(|(_, c)| *c == '{')
            .map_or(rest.len(), |(next, _)| next);
        at += next;
        Some(Token::Text(&rest[..next]))
    })
}

/// Returns the name at the beginning of a text within `braces` pairs of braces.
fn name_at(text: &str, braces: usize) -> Option<&str> {
    let inside = text.strip_prefix(&"{{"[..braces])?;
    let end = inside.find(|c: char| !(c.is_ascii_lowercase() || c == '_'))?;
    inside[end..].starts_with(&"}}"[..braces]).then_some(())?;
    (end > 0).then(|| &inside[..end])
}

fn fill_list(texts: &[String], values: &PlaceholderValues) -> Vec<String> {
    let filled = texts.iter().flat_map(|text| fill_text(text, values));
    filled.collect()
}

/// Fills in a text: once, or once for each clip or group that it contains.
fn fill_text(text: &str, values: &PlaceholderValues) -> Vec<String> {
    let named: BTreeSet<&str> = placeholders(text).map(|(name, _)| name).collect();
    let count = |of: &str, all: usize| match named.iter().any(|name| name.starts_with(of)) {
        true => all,
        false => 1,
    };
    let mut filled = Vec::new();
    for clip in 0..count("clip", values.clips.len()) {
        for group in 0..count("group", values.groups.len()) {
            let parts = tokens(text).map(|piece| match piece {
                Token::Text(text) => text.to_owned(),
                Token::Name(name, _) => value(name, values, clip, group),
            });
            filled.push(parts.collect());
        }
    }
    filled
}

fn value(name: &str, values: &PlaceholderValues, clip: usize, group: usize) -> String {
    let of_group = |part: fn(&Group) -> String| values.groups.get(group).map(part);
    let found = match name {
        "program" => Some(values.program.clone()),
        "host" => Some(values.host.clone()),
        "port" => Some(values.port.to_string()),
        "admin_port" => Some(values.admin_port.to_string()),
        "secret" => Some(values.secret.clone()),
        "interface" => Some(values.interface.clone()),
        "config" => Some(values.config.clone()),
        "scratch" => Some(values.scratch.clone()),
        "home" => Some(values.home.clone()),
        "audio" => Some(if values.audio { "yes" } else { "no" }.to_owned()),
        "clip" => values.clips.get(clip).cloned(),
        "clip_number" => Some((clip + 1).to_string()),
        "group_kind" => of_group(|group| group.kind.clone()),
        "group" => of_group(|group| group.address.clone()),
        "group_port" => of_group(|group| group.port.to_string()),
        "group_number" => Some((group + 1).to_string()),
        _ => None,
    };
    found.expect("an entry with an unknown placeholder is refused")
}
