//! Placeholders: what they are called, and filling them in.

use std::collections::BTreeSet;

use super::ServerEntry;
use crate::group::Group;

/// What stands for a command, a configuration file and the environment.
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

/// What stands for URLs.
pub(super) const URLS: [&str; 7] = [
    "host",
    "port",
    "clip_number",
    "group_kind",
    "group",
    "group_port",
    "group_number",
];

/// What can be known without starting it.
pub(super) const PROGRAM: [&str; 1] = ["program"];

/// What placeholders stand for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Values {
    /// `{program}`: the path of the program.
    pub program: String,
    /// `{host}`: the address that clients reach it at, as a URL writes it.
    pub host: String,
    /// `{port}`: the TCP port that it is to listen on.
    pub port: u16,
    /// `{admin_port}`: a port of the loopback interface on which it tells what it counts.
    pub admin_port: u16,
    /// `{secret}`: what whoever asks it there has to know.
    pub secret: String,
    /// `{interface}`: the network interface that it receives multicast on.
    pub interface: String,
    /// `{config}`: the path of its configuration file.
    pub config: String,
    /// `{scratch}`: a folder of its own, which is removed afterwards.
    pub scratch: String,
    /// `{home}`: a folder in that, which the user it runs as may write to.
    pub home: String,
    /// `{audio}`: whether its clips have audio, `yes` or `no`.
    pub audio: bool,
    /// `{clip}`: the paths of its clips. What names it is there once for each, with `{clip_number}`
    /// from 1.
    pub clips: Vec<String>,
    /// `{group_kind}`, `{group}` and `{group_port}`: its multicast groups. What names one of them
    /// is there once for each, with `{group_number}` from 1.
    pub groups: Vec<Group>,
}

/// An entry whose placeholders are filled in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filled {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Variables added to its environment.
    pub environment: Vec<(String, String)>,
    /// What is in its configuration file.
    pub config: Option<String>,
    /// The URLs that it serves.
    pub urls: Vec<String>,
}

impl ServerEntry {
    /// Fills in `{program}`, the only placeholder of the commands of `probe` and `version`.
    pub fn fill_program(&self, program: &str, command: &[String]) -> Vec<String> {
        let values = Values {
            program: program.to_owned(),
            ..Values::default()
        };
        command
            .iter()
            .flat_map(|text| each(text, &values))
            .collect()
    }

    /// Fills in what its texts leave open. An argument, a URL or a line of the configuration file
    /// that names a clip or a group is there once for each, and not at all where there is none.
    pub fn fill(&self, values: &Values) -> Filled {
        let list = |texts: &[String]| -> Vec<String> {
            texts.iter().flat_map(|text| each(text, values)).collect()
        };
        Filled {
            command: list(&self.command),
            environment: self
                .environment
                .iter()
                .map(|(name, value)| (name.clone(), each(value, values).join(":")))
                .collect(),
            config: self.config.as_ref().map(|config| {
                config
                    .text
                    .split_inclusive('\n')
                    .flat_map(|line| each(line, values))
                    .collect()
            }),
            urls: list(&self.urls),
        }
    }
}

/// The names of placeholders in a text, each with its place: `{name}`, and not what is doubled.
pub(super) fn names(text: &str) -> impl Iterator<Item = (&str, usize)> {
    pieces(text).filter_map(|piece| match piece {
        Piece::Name(name, at) => Some((name, at)),
        Piece::Text(_) => None,
    })
}

enum Piece<'a> {
    Text(&'a str),
    Name(&'a str, usize),
}

/// Takes a text apart. Braces around anything but lower-case words are text, so that most
/// configuration files can be written as they are; `{{name}}` stands for `{name}`.
fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &text[at..];
        if rest.is_empty() {
            return None;
        }
        if let Some(name) = name_at(rest, 1) {
            let piece = Piece::Name(name, at);
            at += name.len() + 2;
            return Some(piece);
        }
        if let Some(name) = name_at(rest, 2) {
            // Its inner braces stay.
            let piece = &rest[1..name.len() + 3];
            at += name.len() + 4;
            return Some(Piece::Text(piece));
        }
        let next = rest
            .char_indices()
            .skip(1)
            .find(|(_, c)| *c == '{')
            .map_or(rest.len(), |(next, _)| next);
        at += next;
        Some(Piece::Text(&rest[..next]))
    })
}

/// The word that stands at the beginning in so many pairs of braces.
fn name_at(text: &str, braces: usize) -> Option<&str> {
    let inside = text.strip_prefix(&"{{"[..braces])?;
    let end = inside.find(|c: char| !(c.is_ascii_lowercase() || c == '_'))?;
    inside[end..].starts_with(&"}}"[..braces]).then_some(())?;
    (end > 0).then(|| &inside[..end])
}

/// The text with its placeholders filled in: once, or once for each clip or group that it names.
fn each(text: &str, values: &Values) -> Vec<String> {
    let named: BTreeSet<&str> = names(text).map(|(name, _)| name).collect();
    let clips = if named.contains("clip") || named.contains("clip_number") {
        values.clips.len()
    } else {
        1
    };
    let groups = if named.iter().any(|name| name.starts_with("group")) {
        values.groups.len()
    } else {
        1
    };
    let mut filled = Vec::new();
    for clip in 0..clips {
        for group in 0..groups {
            filled.push(
                pieces(text)
                    .map(|piece| match piece {
                        Piece::Text(text) => text.to_owned(),
                        Piece::Name(name, _) => value(name, values, clip, group),
                    })
                    .collect(),
            );
        }
    }
    filled
}

fn value(name: &str, values: &Values, clip: usize, group: usize) -> String {
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
    found.expect("an entry with another placeholder is not taken")
}
