//! The server under test.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use measure::units::{BitRate, TimeSpan};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::collector::TypeSyntax;
use crate::entry::environment;
use crate::error::Problem;
use crate::fields::has_typo;
use crate::group::Group;
use crate::model::{
    Clips, DEFAULT_READY_TIMEOUT, DEFAULT_STOP_TIMEOUT, Ready, Server, ServerLog, ServerStart,
};
use crate::node::{Node, Value, display_text};
use crate::section::{self, BoundedInteger, Deferred, Key, ValueRange, Within, one_line};
use crate::urls;
use measure::nearest::suggest;

/// The server under test: launched (`launch` or `command`) or only observed (`observe`).
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline, transform = one_line, extend("oneOf" = [
    { "required": ["launch"] }, { "required": ["command"] }, { "required": ["observe"] }
]))]
pub(crate) struct ServerKeys {
    /// A server of the catalogue, such as `vlc` (`streamgauge servers` lists them), or the path of
    /// a server entry, relative to the scenario file.
    #[schemars(with = "String")]
    launch: Deferred,
    /// The program and its arguments.
    #[schemars(with = "Vec<Scalar>", length(min = 1))]
    command: Deferred,
    /// A running server, on this machine or another.
    #[schemars(with = "ObserveKeys")]
    observe: Deferred,
    /// With `launch`: port to serve on.
    #[schemars(with = "Port")]
    port: Deferred,
    /// With `launch`: network interface to receive multicast on. Default lo; with `network: veth`
    /// the one towards the sources, or towards the clients if there are no sources.
    interface: Key<String>,
    /// With `launch`: multicast groups to relay, such as rtp://239.81.0.{1..8}:5000, for servers
    /// that must know them at their start.
    #[schemars(schema_with = "urls::schema")]
    groups: Key<Deferred>,
    clips: Key<ClipKeys>,
    ready: Key<ReadyKeys>,
    /// Time limit until the server is ready. Default 30s.
    ready_timeout: Key<TimeSpan>,
    /// Time limit for the shutdown of the server. Default 5s.
    stop_timeout: Key<TimeSpan>,
    /// Time for which the server is observed after the last client has left, to see what it
    /// releases: multicast groups, file descriptors, memory. Default: none.
    linger: Key<Within<Linger>>,
    /// With `command`: environment variables, in addition to PATH, HOME, USER, LOGNAME, LANG, LC_*,
    /// TZ and TMPDIR. Their values appear in no report.
    #[schemars(with = "BTreeMap<String, Scalar>")]
    environment: Key<Deferred>,
    /// With `launch` or `command`: user to run as, by name or number; only root can change it.
    /// Default: `nobody` for a server of the catalogue that does not need root, else the user of
    /// streamgauge.
    #[schemars(extend("type" = ["string", "integer"]))]
    user: Key<String>,
    /// With `command`: working directory, relative to the scenario file. Default: that of
    /// streamgauge.
    directory: Key<PathBuf>,
    log: Key<LogKeys>,
}

type Port = BoundedInteger<1, 65_535>;

/// Values that are accepted as a string.
#[derive(JsonSchema)]
#[schemars(inline, description = "", extend("type" = ["string", "number", "boolean"]))]
struct Scalar;

/// The observed server.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline, transform = one_line, extend("anyOf" = [
    { "required": ["pid"] }, { "required": ["node"] }, { "required": ["process"] },
    { "required": ["runner"] }
]))]
struct ObserveKeys {
    /// Process ID on this machine.
    #[schemars(with = "BoundedInteger<1, { u64::MAX }>")]
    pid: Key<BoundedInteger<1, 0x7fff_ffff>>,
    /// For a server on another machine: URL of node_exporter there, such as
    /// http://10.0.0.5:9100/metrics.
    node: Key<String>,
    /// URL of process-exporter there, such as http://10.0.0.5:9256/metrics.
    process: Key<String>,
    /// Process group of the server in process-exporter. Default: the only one.
    group: Key<String>,
    /// With `--runners`: name of a runner that observes the server on its machine (`streamgauge
    /// runner --observe`).
    runner: Key<String>,
}

/// Test media: clip1.mp4 and so on, generated with ffmpeg if missing.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline, transform = one_line, extend("required" = ["directory"]))]
struct ClipKeys {
    /// Folder of the clips, relative to the scenario file.
    directory: Key<PathBuf>,
    /// Number of clips. Default 10.
    count: Key<BoundedInteger<1, 1_000>>,
    /// Length of each clip. Default 60s.
    length: Key<Within<ClipLength>>,
    /// Bit rate of the video. Default 1Mbps.
    video: Key<Within<ClipRate<10_000>>>,
    /// Bit rate of the audio. Default: no audio.
    audio: Key<Within<ClipRate<8_000>>>,
    /// Frames per second. Default 25.
    frame_rate: Key<BoundedInteger<1, 240>>,
}

/// Readiness condition of the server.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline, transform = one_line, extend("minProperties" = 1, "maxProperties" = 1))]
struct ReadyKeys {
    /// It listens on this TCP port.
    port: Key<Port>,
    /// It has bound this UDP port.
    udp: Key<Port>,
    /// It prints a line that contains this text.
    line: Key<String>,
    /// It prints a line that matches this regular expression.
    pattern: Key<String>,
}

/// Log of the server, and the patterns to search it for.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline, transform = one_line, extend("minProperties" = 1))]
struct LogKeys {
    /// Log file of the server, relative to the scenario file. The output of a launched server is
    /// read in any case.
    file: Key<PathBuf>,
    /// Regular expressions: a line that matches one is counted as a complaint. Default: the usual
    /// words for errors.
    #[serde(rename = "match")]
    #[schemars(with = "Vec<String>", length(min = 1, max = 32))]
    patterns: Key<Patterns>,
    /// Regular expressions: a line that matches one is not a complaint, whatever it contains. They
    /// are added to those of the catalogue's entry. Default: only those.
    #[schemars(with = "Vec<String>", length(min = 1, max = 32))]
    ignore: Key<Patterns>,
}

#[derive(Deserialize)]
struct Patterns(Vec<Key<String>>);

#[derive(Deserialize)]
struct Command(Vec<Key<String>>);

const FORM: &str = "write `server: {launch: vlc}`, `{command: [\"./server\", \"--port\", \"8554\"], ready: {port: 8554}}` or `{observe: {pid: 123}}`";

const OBSERVE_FORM: &str = "write `observe: {pid: 123}`, or of another machine `observe: {node: \
     \"http://10.0.0.5:9100/metrics\", process: \"http://10.0.0.5:9256/metrics\", group: vlc}` or \
     `{runner: NAME}`";

const READY_FORM: &str = "write `ready: {port: 8554}`, `{udp: 9000}`, `{line: \"text it prints\"}` or `{pattern: \"regular \
     expression\"}`";

const LOG_FORM: &str = "write `log: {file: server.log}`, or `{match: [\"overrun\", \"(?i)error\"]}` with regular \
     expressions, `{ignore: [\"error 0$\"]}`, or several of them";

const COMMAND_FORM: &str = "write the program and each argument as an item: `command: [\"./server\", \"--port\", \
     \"8554\"]`";

const CLIPS_FORM: &str =
    "write `clips: {directory: clips, count: 10, length: 60s, video: 1Mbps, audio: 128kbps}`";

const FORMS: &[TypeSyntax] = &[
    ("ServerKeys", FORM, &[]),
    ("ObserveKeys", OBSERVE_FORM, &[]),
    ("ClipKeys", CLIPS_FORM, &[("directory", CLIPS_FORM)]),
    ("ReadyKeys", READY_FORM, &[]),
    ("LogKeys", LOG_FORM, &[]),
    ("Patterns", LOG_FORM, &[]),
    ("Command", COMMAND_FORM, &[]),
];

/// Valid range of `linger`.
struct Linger;

impl ValueRange for Linger {
    type Value = TimeSpan;
    const MIN: TimeSpan = TimeSpan(Duration::from_nanos(1));
    const MAX: TimeSpan = TimeSpan(Duration::from_secs(3600));

    fn out_of_range_message(_: &TimeSpan) -> String {
        "`linger` is out of range; \
         write a time up to 1h, such as `linger: 5s`"
            .to_owned()
    }
}

struct ClipLength;

impl ValueRange for ClipLength {
    type Value = TimeSpan;
    const MIN: TimeSpan = TimeSpan(Duration::from_secs(1));
    const MAX: TimeSpan = TimeSpan(Duration::from_secs(6 * 3600));

    fn out_of_range_message(_: &TimeSpan) -> String {
        "clips of this length cannot be made; write a length from 1s to 6h".to_owned()
    }
}

/// Range of a bit rate: from `LEAST` bit/s to 1 Gb/s.
struct ClipRate<const LEAST: u64>;

impl<const LEAST: u64> ValueRange for ClipRate<LEAST> {
    type Value = BitRate;
    const MIN: BitRate = BitRate(LEAST);
    const MAX: BitRate = BitRate(1_000_000_000);

    fn out_of_range_message(rate: &BitRate) -> String {
        let least = Self::MIN;
        format!("clips cannot have {rate}; write a bit rate from {least} to 1Gbps")
    }
}

pub(crate) fn read(
    node: &Node,
    known_servers: &[String],
    problems: &mut Vec<Problem>,
) -> Option<Server> {
    let start = start(node, known_servers, problems);
    let keys: ServerKeys = section::read(node, "server", FORMS, problems)?;
    let server = Server {
        interface: keys.interface.0,
        groups: node
            .get("groups")
            .map(|node| groups(node, problems))
            .unwrap_or_default(),
        clips: keys.clips.0.and_then(clips),
        ready: keys
            .ready
            .0
            .and_then(|keys| ready(keys, node.get("ready")?, problems)),
        ready_timeout: keys.ready_timeout.or(TimeSpan(DEFAULT_READY_TIMEOUT)).0,
        stop_timeout: keys.stop_timeout.or(TimeSpan(DEFAULT_STOP_TIMEOUT)).0,
        linger: keys.linger.0.map(|linger| linger.0.0),
        environment: node
            .get("environment")
            .map(|node| environment(node, "server.environment", problems))
            .unwrap_or_default()
            .into_iter()
            .collect(),
        user: keys.user.0.filter(|user| check_user(user, node, problems)),
        directory: keys.directory.0,
        log: keys
            .log
            .0
            .map(|keys| log(keys, node, problems))
            .unwrap_or_default(),
        start: start?,
    };
    let (kind, without): (&str, &[&str]) = match server.start {
        ServerStart::Launch { .. } => ("launch", &["environment", "directory", "ready"]),
        ServerStart::Command(_) => ("command", &["port", "interface", "groups"]),
        ServerStart::Observe { .. }
        | ServerStart::Exporters { .. }
        | ServerStart::Observer { .. } => (
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
        if let Some(entry) = node.entry(key) {
            let text = format!("`{key}` cannot be combined with `{kind}`");
            let help = match (*key, kind) {
                ("port", "command") => {
                    "write `ready: {port: NUMBER}` for the port that the server opens; its URLs \
                     name it too"
                }
                ("port", "observe") => "remove it: the URLs of the clients name the port",
                _ => "remove it",
            };
            problems.push(Problem::new(&entry.key_origin, text).help(help));
        }
    }
    let is_here = !matches!(
        server.start,
        ServerStart::Exporters { .. } | ServerStart::Observer { .. }
    );
    if !is_here && let Some(entry) = node.entry("linger") {
        let text = "`linger` needs a server on this machine";
        Problem::new(&entry.key_origin, text)
            .help("remove `linger`, or run streamgauge there and observe the server by its `pid`")
            .report(problems);
    }
    let has_observer = matches!(server.start, ServerStart::Observer { .. });
    if has_observer
        && server.log.file.is_some()
        && let Some(entry) = node.entry("log")
    {
        let text = "the runner on the server's machine says which log is read";
        Problem::new(&entry.node.origin, text)
            .help("remove `file`, and start that runner with `--log FILE`")
            .report(problems);
    }
    if server.start.is_observed()
        && !has_observer
        && !(server.log.patterns.is_empty() && server.log.ignore.is_empty())
        && server.log.file.is_none()
        && let Some(entry) = node.entry("log")
    {
        let text = "the output of a server that is only observed cannot be read";
        Problem::new(&entry.node.origin, text)
            .help("name its log file: `log: {file: server.log, match: [...]}`")
            .report(problems);
    }
    Some(server)
}

fn start(
    node: &Node,
    known_servers: &[String],
    problems: &mut Vec<Problem>,
) -> Option<ServerStart> {
    let start_entries: Vec<_> = ["launch", "command", "observe"]
        .into_iter()
        .filter_map(|key| node.entry(key))
        .collect();
    match start_entries.as_slice() {
        [] => {
            // A misspelt key is reported as unknown.
            let typo = has_typo(node, section::keys::<ServerKeys>());
            if !typo && matches!(node.value, Value::Map(_)) {
                let text = "`server` has no `launch`, `command` or `observe`";
                Problem::new(&node.origin, text).help(FORM).report(problems);
            }
            return None;
        }
        [_] => {}
        [first, second, ..] => {
            let text = format!("`{}` and `{}` cannot be combined", first.key, second.key);
            Problem::new(&second.key_origin, text)
                .with_second_position(&first.key_origin, "and here")
                .help("remove one of them")
                .report(problems);
            return None;
        }
    }
    let key = start_entries[0].key.as_str();
    match key {
        "launch" => {
            let port: Option<Port> = section::value_of(node, "port", "server", FORMS, problems);
            let name: String = section::value_of(node, key, "server", FORMS, problems)?;
            if !is_path(&name) && !known_servers.is_empty() && !known_servers.contains(&name) {
                let text = format!(
                    "there is no server `{}` in the catalogue",
                    display_text(&name)
                );
                Problem::new(&start_entries[0].node.origin, text)
                    .help(suggest(&name, known_servers.iter().map(String::as_str)))
                    .report(problems);
                return None;
            }
            let port = port.and_then(|port| u16::try_from(port.0).ok());
            Some(ServerStart::Launch { name, port })
        }
        "command" => {
            let Command(words) = section::value_of(node, key, "server", FORMS, problems)?;
            let words = words.into_iter().map(|word| word.0);
            let words: Vec<String> = words.collect::<Option<_>>()?;
            if words.first().is_none_or(String::is_empty) {
                let text = "`server.command` names no program";
                problems.push(Problem::new(&start_entries[0].node.origin, text).help(COMMAND_FORM));
                return None;
            }
            Some(ServerStart::Command(words))
        }
        _ => observe(node, problems),
    }
}

fn observe(server: &Node, problems: &mut Vec<Problem>) -> Option<ServerStart> {
    let before = problems.len();
    let keys: ObserveKeys = section::value_of(server, "observe", "server", FORMS, problems)?;
    let node = server.get("observe")?;
    for (key, url) in [("node", &keys.node.0), ("process", &keys.process.0)] {
        if let (Some(url), Some(entry)) = (url, node.entry(key))
            && !url.starts_with("http://")
        {
            let url = display_text(url);
            let text = format!("`server.observe.{key}` is not a URL of an exporter: `{url}`");
            Problem::new(&entry.node.origin, text)
                .help("write it with `http://`, such as `http://10.0.0.5:9100/metrics`")
                .report(problems);
        }
    }
    if problems.len() > before {
        return None;
    }
    let (node_url, process, group) = (keys.node.0, keys.process.0, keys.group.0);
    let has_exporter = node_url.is_some() || process.is_some();
    let wrong = match (&keys.pid.0, has_exporter, &keys.runner.0) {
        (None, false, Some(_)) if group.is_none() => None,
        (_, _, Some(_)) => Some("`runner` cannot be combined with other keys"),
        (Some(_), true, None) => Some(
            "`pid` is for a server on this machine, `node` and `process` are for one on another",
        ),
        (None, false, None) => Some("`server.observe` has no `pid`, `node`, `process` or `runner`"),
        _ if group.is_some() && process.is_none() => {
            Some("`group` needs the URL of process-exporter in `process`")
        }
        _ => None,
    };
    if let Some(wrong) = wrong {
        problems.push(Problem::new(&node.origin, wrong).help(OBSERVE_FORM));
        return None;
    }
    match (keys.pid.0, keys.runner.0) {
        (Some(pid), _) => Some(ServerStart::Observe {
            pid: u32::try_from(pid.0).ok()?,
        }),
        (None, Some(runner)) => Some(ServerStart::Observer { runner }),
        (None, None) => Some(ServerStart::Exporters {
            node: node_url,
            process,
            group,
        }),
    }
}

/// Returns `true` if `launch` names a file instead of an entry of the catalogue.
pub(crate) fn is_path(name: &str) -> bool {
    name.contains('/') || name.ends_with(".yaml") || name.ends_with(".yml")
}

/// Maximum number of groups of a server.
const GROUPS_MAX: usize = 1_000;

fn groups(node: &Node, problems: &mut Vec<Problem>) -> Vec<Group> {
    let urls = urls::read(node, "server.groups", None, problems);
    if urls.len() > GROUPS_MAX {
        let text = format!("a server relays at most {GROUPS_MAX} groups");
        problems.push(Problem::new(&node.origin, text));
        return Vec::new();
    }
    urls.into_iter()
        .filter_map(|(url, node)| {
            let group = Group::parse(&url);
            if group.is_none() {
                let text = format!("`{}` is not a multicast group", display_text(&url));
                Problem::new(&node.origin, text)
                    .help(
                        "write type, address and port: `rtp://239.81.0.{1..8}:5000`, or \
                         `udp://[ff15::1]:5000` for MPEG-TS without RTP",
                    )
                    .report(problems);
            }
            group
        })
        .collect()
}

/// Returns `true` if the name of a user is well-formed, else reports it.
fn check_user(user: &str, server: &Node, problems: &mut Vec<Problem>) -> bool {
    let fits = |c: char| !(c.is_whitespace() || c.is_control() || c == ':');
    let good = !user.is_empty() && user.chars().all(fits);
    if let (false, Some(node)) = (good, server.get("user")) {
        let text = format!("`{}` is not a valid name of a user", display_text(user));
        Problem::new(&node.origin, text)
            .help("write the name or number of a user of this machine: `user: nobody`")
            .report(problems);
    }
    good
}

fn ready(keys: ReadyKeys, node: &Node, problems: &mut Vec<Problem>) -> Option<Ready> {
    let known = section::keys::<ReadyKeys>();
    let given = node.entries();
    if given.len() != 1
        && given
            .iter()
            .all(|entry| known.contains(&entry.key.as_str()))
    {
        let text = "`server.ready` needs exactly one condition";
        problems.push(Problem::new(&node.origin, text).help(READY_FORM));
    }
    let (port, udp) = (keys.port.number(), keys.udp.number());
    port.map(Ready::Port)
        .or(udp.map(Ready::Udp))
        .or(keys.line.0.map(Ready::Line))
        .or(keys.pattern.0.map(Ready::Pattern))
}

/// Maximum number of patterns of a log.
const PATTERNS_MAX: usize = 32;

fn log(keys: LogKeys, server: &Node, problems: &mut Vec<Problem>) -> ServerLog {
    let mut list = |name: &str, patterns: Key<Patterns>| -> Vec<String> {
        let patterns = patterns.0.map(|patterns| patterns.0);
        let node = server.get("log").and_then(|log| log.get(name));
        if let (Some(patterns), Some(node)) = (&patterns, node)
            && (patterns.is_empty() || patterns.len() > PATTERNS_MAX)
        {
            let text = format!("`server.log.{name}` needs 1 to {PATTERNS_MAX} patterns");
            problems.push(Problem::new(&node.origin, text).help(LOG_FORM));
        }
        let patterns = patterns.into_iter().flatten();
        patterns.filter_map(|key| key.0).collect()
    };
    ServerLog {
        file: keys.file.0,
        patterns: list("match", keys.patterns),
        ignore: list("ignore", keys.ignore),
    }
}

/// Default length of a clip.
const CLIP_LENGTH: Duration = Duration::from_secs(60);

fn clips(keys: ClipKeys) -> Option<Clips> {
    Some(Clips {
        directory: keys.directory.0?,
        count: keys.count.number().unwrap_or(10),
        length: keys.length.or(Within(TimeSpan(CLIP_LENGTH))).0.0,
        video: keys.video.0.map_or(BitRate(1_000_000), |rate| rate.0),
        audio: keys.audio.0.map(|rate| rate.0),
        frame_rate: keys.frame_rate.number().unwrap_or(25),
    })
}
