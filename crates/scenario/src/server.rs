//! The server under test.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use measure::units::{BitRate, TimeSpan};

use crate::entry::Group;
use crate::error::Problem;
use crate::fields::{Fields, text, wrong_type};
use crate::model::{
    Clips, DEFAULT_READY_TIMEOUT, DEFAULT_STOP_TIMEOUT, Ready, Server, ServerLog, ServerStart,
};
use crate::nearest::suggest;
use crate::node::{Node, Value, shown};

/// The keys of the server.
pub(crate) const KEYS: [&str; 15] = [
    "launch",
    "command",
    "observe",
    "port",
    "interface",
    "groups",
    "clips",
    "ready",
    "ready_timeout",
    "stop_timeout",
    "linger",
    "environment",
    "user",
    "directory",
    "log",
];

/// The keys of clips.
pub(crate) const CLIP_KEYS: [&str; 6] = [
    "directory",
    "count",
    "length",
    "video",
    "audio",
    "frame_rate",
];

const FORM: &str = "write `server: {launch: vlc}`, `{command: [\"./server\", \"--port\", \"8554\"], ready: {port: 8554}}` or `{observe: {pid: 123}}`";

pub(crate) fn read(
    node: &Node,
    known_servers: &[String],
    problems: &mut Vec<Problem>,
) -> Option<Server> {
    let mut fields = Fields::of(node, "server", FORM, problems)?;
    let start = start(&mut fields, known_servers, problems);
    let server = Server {
        interface: fields.text("interface", problems),
        groups: fields
            .get("groups", problems)
            .map(|node| groups(node, problems))
            .unwrap_or_default(),
        clips: fields
            .get("clips", problems)
            .and_then(|node| clips(node, problems)),
        ready: fields
            .get("ready", problems)
            .and_then(|node| ready(node, problems)),
        ready_timeout: fields
            .quantity::<TimeSpan>("ready_timeout", problems)
            .map_or(DEFAULT_READY_TIMEOUT, |span| span.0),
        stop_timeout: fields
            .quantity::<TimeSpan>("stop_timeout", problems)
            .map_or(DEFAULT_STOP_TIMEOUT, |span| span.0),
        linger: linger(&mut fields, problems),
        environment: fields
            .get("environment", problems)
            .map(|node| environment(node, problems))
            .unwrap_or_default(),
        user: user(&mut fields, problems),
        directory: fields.text("directory", problems).map(PathBuf::from),
        log: fields
            .get("log", problems)
            .and_then(|node| log(node, problems))
            .unwrap_or_default(),
        start: match start {
            Some(start) => start,
            None => {
                fields.finish(&KEYS, problems);
                return None;
            }
        },
    };
    let (kind, without): (&str, &[&str]) = match server.start {
        ServerStart::Launch { .. } => ("launch", &["environment", "directory", "ready"]),
        ServerStart::Command(_) => ("command", &["port", "interface", "groups"]),
        ServerStart::Observe { .. } | ServerStart::Exporters { .. } => (
            "observe",
            &[
                "port",
                "interface",
                "groups",
                "ready",
                "ready_timeout",
                "stop_timeout",
                "environment",
                "user",
                "directory",
            ],
        ),
    };
    for key in without {
        if let Some(entry) = fields.entry(key) {
            problems.push(
                Problem::new(
                    &entry.key_origin,
                    format!("`{key}` does not go with `{kind}`"),
                )
                .help("take it out"),
            );
        }
    }
    if matches!(server.start, ServerStart::Exporters { .. })
        && let Some(entry) = fields.entry("linger")
    {
        let text = "what a server gives back is looked at on its own machine";
        problems.push(
            Problem::new(&entry.key_origin, text).help(
                "take `linger` out, or run streamgauge there and watch the server by its `pid`",
            ),
        );
    }
    let only_observed = matches!(
        server.start,
        ServerStart::Observe { .. } | ServerStart::Exporters { .. }
    );
    if only_observed
        && !server.log.patterns.is_empty()
        && server.log.file.is_none()
        && let Some(entry) = fields.entry("log")
    {
        let text = "what a server prints that is only observed cannot be read";
        problems.push(
            Problem::new(&entry.node.origin, text)
                .help("say where its log is: `log: {file: server.log, match: [...]}`"),
        );
    }
    fields.finish(&KEYS, problems);
    Some(server)
}

fn start(
    fields: &mut Fields<'_>,
    known_servers: &[String],
    problems: &mut Vec<Problem>,
) -> Option<ServerStart> {
    let ways: Vec<_> = ["launch", "command", "observe"]
        .into_iter()
        .filter_map(|key| fields.entry(key))
        .collect();
    match ways.as_slice() {
        [] => {
            // A key that is nearly right is reported as such.
            let typo = fields.rest().iter().any(|entry| {
                !KEYS.contains(&entry.key.as_str())
                    && crate::nearest::nearest(&entry.key, KEYS).is_some()
            });
            if !typo {
                problems.push(
                    Problem::new(
                        &fields.node.origin,
                        "`server` does not say where the server comes from",
                    )
                    .help(FORM),
                );
            }
            return None;
        }
        [_] => {}
        [first, second, ..] => {
            problems.push(
                Problem::new(
                    &second.key_origin,
                    format!("`{}` and `{}` do not go together", first.key, second.key),
                )
                .other(&first.key_origin, "and here")
                .help("leave one of them out"),
            );
            return None;
        }
    }
    match ways[0].key.as_str() {
        "launch" => {
            let port = port(fields, problems);
            let node = fields.get("launch", problems)?;
            let name = text(node, "server.launch", problems)?;
            if !is_path(&name) && !known_servers.is_empty() && !known_servers.contains(&name) {
                problems.push(
                    Problem::new(
                        &node.origin,
                        format!("there is no server `{}` in the catalogue", shown(&name)),
                    )
                    .help(suggest(&name, known_servers.iter().map(String::as_str))),
                );
                return None;
            }
            Some(ServerStart::Launch { name, port })
        }
        "command" => {
            let node = fields.get("command", problems)?;
            command(node, problems).map(ServerStart::Command)
        }
        _ => {
            let node = fields.get("observe", problems)?;
            observe(node, problems)
        }
    }
}

fn observe(node: &Node, problems: &mut Vec<Problem>) -> Option<ServerStart> {
    const HELP: &str = "write `observe: {pid: 123}`, or of another machine `observe: {node: \"http://10.0.0.5:9100/metrics\", process: \"http://10.0.0.5:9256/metrics\", group: vlc}`";
    let mut fields = Fields::of(node, "server.observe", HELP, problems)?;
    let before = problems.len();
    let urls: Vec<Option<String>> = ["node", "process"]
        .into_iter()
        .map(|key| exporter(&mut fields, key, problems))
        .collect();
    let group = fields.text("group", problems);
    let pid = fields.integer("pid", 1..=u64::from(u32::MAX >> 1), problems);
    let given = |key: &str, fields: &mut Fields<'_>| fields.entry(key).is_some();
    let (by_pid, by_node, by_process, by_group) = (
        given("pid", &mut fields),
        given("node", &mut fields),
        given("process", &mut fields),
        given("group", &mut fields),
    );
    fields.finish(&["pid", "node", "process", "group"], problems);
    if problems.len() > before {
        return None;
    }
    let wrong = match (by_pid, by_node || by_process) {
        (true, true) => {
            Some("`pid` is of this machine, and exporters are of another: one of them is meant")
        }
        (false, false) => Some("`server.observe` does not say what is observed"),
        _ if by_group && !by_process => {
            Some("`group` is one of process-exporter's, whose URL is missing")
        }
        _ => None,
    };
    if let Some(wrong) = wrong {
        problems.push(Problem::new(&node.origin, wrong).help(HELP));
        return None;
    }
    match pid {
        Some(pid) => Some(ServerStart::Observe {
            pid: u32::try_from(pid).ok()?,
        }),
        None => {
            let [node, process] = urls.try_into().ok()?;
            Some(ServerStart::Exporters {
                node,
                process,
                group,
            })
        }
    }
}

/// The URL of an exporter.
fn exporter(fields: &mut Fields<'_>, key: &str, problems: &mut Vec<Problem>) -> Option<String> {
    let url = fields.text(key, problems)?;
    if !url.starts_with("http://")
        && let Some(entry) = fields.entry(key)
    {
        problems.push(
            Problem::new(
                &entry.node.origin,
                format!(
                    "`{}` is not a URL of an exporter: `{}`",
                    fields.path_of(key),
                    shown(&url)
                ),
            )
            .help("write it with `http://`, such as `http://10.0.0.5:9100/metrics`"),
        );
        return None;
    }
    Some(url)
}

/// Whether `launch` names a file of the user's own, and not an entry of the catalogue.
pub(crate) fn is_path(name: &str) -> bool {
    name.contains('/') || name.ends_with(".yaml") || name.ends_with(".yml")
}

/// The most groups that a server is told of.
const GROUPS_MAX: usize = 1_000;

fn groups(node: &Node, problems: &mut Vec<Problem>) -> Vec<Group> {
    let urls = crate::urls::read(node, "server.groups", None, problems);
    if urls.len() > GROUPS_MAX {
        problems.push(Problem::new(
            &node.origin,
            format!("a server is told of at most {GROUPS_MAX} groups"),
        ));
        return Vec::new();
    }
    urls.into_iter()
        .filter_map(|(url, node)| {
            let group = Group::parse(&url);
            if group.is_none() {
                problems.push(
                    Problem::new(
                        &node.origin,
                        format!("`{}` is not a multicast group", shown(&url)),
                    )
                    .help("write what is sent, address and port: `rtp://239.81.0.{1..8}:5000`, or `udp://[ff15::1]:5000` for MPEG-TS without RTP"),
                );
            }
            group
        })
        .collect()
}

/// The longest time that a server is looked at after its last client.
const LINGER_MAX: Duration = Duration::from_secs(3600);

fn linger(fields: &mut Fields<'_>, problems: &mut Vec<Problem>) -> Option<Duration> {
    let linger = fields.quantity::<TimeSpan>("linger", problems)?.0;
    if (linger.is_zero() || linger > LINGER_MAX)
        && let Some(entry) = fields.entry("linger")
    {
        problems.push(
            Problem::new(
                &entry.node.origin,
                "a server is not looked at for so long after its last client",
            )
            .help("write a time up to 1h, such as `linger: 5s`"),
        );
    }
    Some(linger)
}

fn user(fields: &mut Fields<'_>, problems: &mut Vec<Problem>) -> Option<String> {
    let user = fields.text("user", problems)?;
    let fits = |c: char| !(c.is_whitespace() || c.is_control() || c == ':');
    if (user.is_empty() || !user.chars().all(fits))
        && let Some(entry) = fields.entry("user")
    {
        problems.push(
            Problem::new(
                &entry.node.origin,
                format!("`{}` is no name of a user", shown(&user)),
            )
            .help("write a name or a number of this machine: `user: nobody`"),
        );
        return None;
    }
    Some(user)
}

fn port(fields: &mut Fields<'_>, problems: &mut Vec<Problem>) -> Option<u16> {
    let port = fields.integer("port", 1..=65_535, problems)?;
    u16::try_from(port).ok()
}

fn command(node: &Node, problems: &mut Vec<Problem>) -> Option<Vec<String>> {
    const HELP: &str = "write the program and each argument as an item: `command: [\"./server\", \"--port\", \"8554\"]`";
    let Value::List(items) = &node.value else {
        problems.push(wrong_type(node, "server.command", "a list").help(HELP));
        return None;
    };
    let words: Vec<String> = items
        .iter()
        .enumerate()
        .filter_map(|(index, item)| text(item, &format!("server.command.{index}"), problems))
        .collect();
    if words.first().is_none_or(String::is_empty) && words.len() == items.len() {
        problems.push(Problem::new(&node.origin, "`server.command` names no program").help(HELP));
        return None;
    }
    (words.len() == items.len()).then_some(words)
}

fn ready(node: &Node, problems: &mut Vec<Problem>) -> Option<Ready> {
    const HELP: &str = "write `ready: {port: 8554}`, `{line: \"text it prints\"}` or `{pattern: \"regular expression\"}`";
    let mut fields = Fields::of(node, "server.ready", HELP, problems)?;
    let port = port(&mut fields, problems).map(Ready::Port);
    let line = fields.text("line", problems).map(Ready::Line);
    let pattern = fields.text("pattern", problems).map(Ready::Pattern);
    let before = problems.len();
    let given = ["port", "line", "pattern"]
        .into_iter()
        .filter(|key| fields.entry(key).is_some())
        .count();
    fields.finish(&["port", "line", "pattern"], problems);
    if given != 1 && problems.len() == before {
        problems.push(
            Problem::new(
                &node.origin,
                "`server.ready` must say one thing to wait for",
            )
            .help(HELP),
        );
    }
    port.or(line).or(pattern)
}

/// The most patterns that a log is held against.
const PATTERNS_MAX: usize = 32;

fn log(node: &Node, problems: &mut Vec<Problem>) -> Option<ServerLog> {
    const HELP: &str = "write `log: {file: server.log}`, or `{match: [\"overrun\", \"(?i)error\"]}` with regular expressions, or both";
    let mut fields = Fields::of(node, "server.log", HELP, problems)?;
    let file = fields.text("file", problems).map(PathBuf::from);
    let patterns = match fields.get("match", problems) {
        None => Vec::new(),
        Some(node) => {
            let Value::List(items) = &node.value else {
                problems.push(wrong_type(node, "server.log.match", "a list").help(HELP));
                return None;
            };
            if items.is_empty() || items.len() > PATTERNS_MAX {
                let text = format!("`server.log.match` needs 1 to {PATTERNS_MAX} patterns");
                problems.push(Problem::new(&node.origin, text).help(HELP));
            }
            items
                .iter()
                .enumerate()
                .filter_map(|(index, item)| {
                    text(item, &format!("server.log.match.{index}"), problems)
                })
                .collect()
        }
    };
    fields.finish(&["file", "match"], problems);
    Some(ServerLog { file, patterns })
}

fn environment(node: &Node, problems: &mut Vec<Problem>) -> BTreeMap<String, String> {
    let Value::Map(entries) = &node.value else {
        problems.push(
            wrong_type(node, "server.environment", "a mapping")
                .help("write `environment: {NAME: value}`"),
        );
        return BTreeMap::new();
    };
    entries
        .iter()
        .filter_map(|entry| {
            let path = format!("server.environment.{}", entry.key);
            if entry.key.is_empty() || entry.key.contains(['=', '\0']) {
                problems.push(Problem::new(
                    &entry.key_origin,
                    format!("`{}` is no name for a variable", shown(&entry.key)),
                ));
                return None;
            }
            text(&entry.node, &path, problems).map(|value| (entry.key.clone(), value))
        })
        .collect()
}

fn clips(node: &Node, problems: &mut Vec<Problem>) -> Option<Clips> {
    const HELP: &str =
        "write `clips: {directory: clips, count: 10, length: 60s, video: 1Mbps, audio: 128kbps}`";
    let mut fields = Fields::of(node, "server.clips", HELP, problems)?;
    let directory = fields
        .need("directory", HELP, problems)
        .and_then(|node| text(node, "server.clips.directory", problems));
    let count = fields.integer("count", 1..=1_000, problems).unwrap_or(10);
    let length = fields
        .quantity::<TimeSpan>("length", problems)
        .map_or(Duration::from_secs(60), |span| span.0);
    if (length < Duration::from_secs(1) || length > Duration::from_secs(6 * 3600))
        && let Some(entry) = fields.entry("length")
    {
        problems.push(
            Problem::new(&entry.node.origin, "clips of this length cannot be made")
                .help("write a length from 1s to 6h"),
        );
    }
    let video = bit_rate(&mut fields, "video", 10_000, problems).unwrap_or(BitRate(1_000_000));
    let audio = bit_rate(&mut fields, "audio", 8_000, problems);
    let frame_rate = fields
        .integer("frame_rate", 1..=240, problems)
        .unwrap_or(25);
    fields.finish(&CLIP_KEYS, problems);
    Some(Clips {
        directory: PathBuf::from(directory?),
        count: u32::try_from(count).ok()?,
        length,
        video,
        audio,
        frame_rate: u32::try_from(frame_rate).ok()?,
    })
}

/// A bit rate from `least` bit/s to 1 Gb/s.
fn bit_rate(
    fields: &mut Fields<'_>,
    key: &str,
    least: u64,
    problems: &mut Vec<Problem>,
) -> Option<BitRate> {
    let rate = fields.quantity::<BitRate>(key, problems)?;
    if !(least..=1_000_000_000).contains(&rate.0)
        && let Some(entry) = fields.entry(key)
    {
        problems.push(
            Problem::new(&entry.node.origin, format!("clips cannot have {rate}"))
                .help(format!("write a bit rate from {} to 1Gbps", BitRate(least))),
        );
    }
    Some(rate)
}
