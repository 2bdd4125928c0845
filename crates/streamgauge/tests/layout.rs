//! The repository's rules, as tests of what ARCHITECTURE.md says about the crates.

#[path = "layout/book.rs"]
mod book;
#[path = "layout/import_cycles.rs"]
mod import_cycles;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use protocols::{CRATES, PROTOCOLS};

/// The crates in their order of dependency: each may depend on earlier ones only.
const ORDER: [&str; 20] = [
    "measure",
    "session",
    "kit",
    "rtsp",
    "rtmp",
    "srt",
    "http-ts",
    "hls",
    "messages",
    "webrtc",
    "proof",
    "net",
    "runfile",
    "scenario",
    "sut",
    "report",
    "engine",
    "cluster",
    "protocols",
    "streamgauge",
];

/// Crates that hold one protocol each.
const PROTOCOL_CRATES: [&str; 8] = [
    "rtsp", "rtmp", "srt", "http-ts", "hls", "messages", "webrtc", "proof",
];

/// Crates that do no I/O and read no clock, apart from those of the protocols.
const PURE: [&str; 4] = ["measure", "session", "kit", "protocols"];

/// All crates that do no I/O and read no clock.
fn pure() -> impl Iterator<Item = &'static str> {
    PURE.into_iter().chain(PROTOCOL_CRATES)
}

/// Maximum length of a line of a document, in characters.
const LONGEST_LINE: usize = 100;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the workspace is two folders up")
}

/// Returns the package of a crate: its name with the command's name in front, so that it could be
/// published.
fn package(name: &str) -> String {
    match name {
        "streamgauge" => name.to_owned(),
        _ => format!("streamgauge-{name}"),
    }
}

/// Returns the names of all crates that a crate needs at run time, on any platform, except itself.
/// Crates of this workspace have their short names.
fn dependencies(name: &str, depth: Option<u32>) -> BTreeSet<String> {
    let mut command = Command::new(env!("CARGO"));
    command
        .current_dir(root())
        .args(["tree", "--offline", "--locked", "--package"])
        .arg(package(name))
        .args(["--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    if let Some(depth) = depth {
        command.args(["--depth", &depth.to_string()]);
    }
    let output = command
        .output()
        .expect("cargo runs this test, so it can be run");
    assert!(
        output.status.success(),
        "cargo tree: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("names of crates are ASCII");
    text.lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(|found| found.strip_prefix("streamgauge-").unwrap_or(found))
        .filter(|&found| found != name)
        .map(str::to_owned)
        .collect()
}

/// Returns all source files of a crate with their paths.
fn sources(crate_name: &str) -> Vec<(PathBuf, String)> {
    let found = files(&root().join("crates").join(crate_name), "rs");
    assert!(!found.is_empty(), "{crate_name} has sources");
    found
}

/// Returns all files below a folder with this extension, with their paths.
fn files(folder: &Path, extension: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).expect("the folder was just listed");
        for entry in entries {
            let path = entry.expect("the folder can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                let text = fs::read_to_string(&path).expect("files of the repository are UTF-8");
                found.push((path, text));
            }
        }
    }
    found
}

/// Returns the documents for readers, with their paths.
fn documents() -> Vec<(PathBuf, String)> {
    let mut found = files(&root().join("docs"), "md");
    for name in ["README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG"] {
        let path = root().join(name).with_extension("md");
        let text = fs::read_to_string(&path).expect("it is in the repository");
        found.push((path, text));
    }
    found
}

/// Returns the numbers of the lines that are too long.
fn long_lines(text: &str) -> impl Iterator<Item = usize> {
    text.lines()
        .zip(1..)
        .filter(|(line, _)| line.chars().count() > LONGEST_LINE)
        .map(|(_, number)| number)
}

/// Returns the files that a document links to, each with the linked heading, if any.
fn links(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', '\n']).next())
        .filter(|target| !target.contains("://"))
        .map(|target| match target.split_once('#') {
            Some((file, heading)) => (file, Some(heading)),
            None => (target, None),
        })
}

/// Returns `true` if a document has a heading with this name in links.
fn has_heading(text: &str, name: &str) -> bool {
    text.lines()
        .filter(|line| line.starts_with('#'))
        .any(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
            let heading: String = heading.chars().filter(kept).collect();
            heading.replace(' ', "-") == name
        })
}

/// Iterates over the code of a source file: without comments, and without the tests at its end.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    without_tests(text)
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, without_comment(line)))
}

/// Returns a source file up to its tests.
fn without_tests(text: &str) -> &str {
    let marks = [
        "#[cfg(test)]\nmod tests {",
        "#[cfg(test)]\npub(crate) mod tests {",
    ];
    let end = marks.iter().filter_map(|mark| text.find(mark)).min();
    &text[..end.unwrap_or(text.len())]
}

/// Returns a line up to its comment. Slashes after a colon belong to a URL.
fn without_comment(line: &str) -> &str {
    let mut positions = line.match_indices("//").map(|(at, _)| at);
    let end = positions.find(|&at| !line[..at].ends_with(':'));
    &line[..end.unwrap_or(line.len())]
}

/// Returns `true` if a file contains only tests.
fn is_test(path: &Path) -> bool {
    let inside = path.strip_prefix(root()).expect("it is in the workspace");
    inside.components().any(|part| {
        let part = part.as_os_str();
        part == "tests" || part == "tests.rs" || part == "benches" || part == "examples"
    })
}

/// Returns `true` if `line` contains `word`, but not as a part of a longer name.
fn has_word(line: &str, word: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(part_of_name) && !after.is_some_and(part_of_name)
    })
}

#[test]
fn every_crate_is_in_the_order_of_dependency() {
    let mut found: Vec<String> = fs::read_dir(root().join("crates"))
        .expect("it exists")
        .map(|entry| entry.expect("it can be read").file_name())
        .map(|name| name.into_string().expect("names of crates are ASCII"))
        .collect();
    let mut expected = ORDER.to_vec();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn packages_are_named_after_the_command() {
    for name in ORDER {
        let manifest = root().join("crates").join(name).join("Cargo.toml");
        let manifest = fs::read_to_string(manifest).expect("every crate has a manifest");
        let line = format!("[package]\nname = \"{}\"\n", package(name));
        assert!(manifest.contains(&line), "{name}: not {}", package(name));
    }
}

#[test]
fn crates_depend_in_one_direction() {
    assert!(dependencies("session", Some(1)).contains("measure"));
    for (index, name) in ORDER.iter().enumerate() {
        let direct = dependencies(name, Some(1));
        for later in &ORDER[index + 1..] {
            assert!(
                !direct.contains(*later),
                "{name} must not depend on {later}"
            );
        }
    }
}

#[test]
fn pure_crates_have_no_means_to_do_io() {
    let forbidden = [
        "async-io",
        "async-std",
        "crossbeam-channel",
        "futures",
        "getrandom",
        "libc",
        "libsqlite3-sys",
        "mio",
        "nix",
        "polling",
        "procfs",
        "quanta",
        "rusqlite",
        "rustix",
        "rustls",
        "smol",
        "socket2",
        "tokio",
        "windows-sys",
    ];
    for name in pure() {
        let found = dependencies(name, None);
        for other in forbidden {
            // sha2 detects processor features through libc on some platforms. The DTLS handshake
            // generates elliptic-curve keys, which no seed can provide.
            let hashes = name == "kit" || name == "protocols" || PROTOCOL_CRATES.contains(&name);
            let excused = hashes && ["libc", "getrandom"].contains(&other);
            assert!(
                excused || !found.contains(other),
                "{name} must not depend on {other}: `cargo tree -p {} -i {other}`",
                package(name)
            );
        }
        assert!(
            !found.contains("net") && !found.contains("runfile"),
            "{name}"
        );
    }
}

#[test]
fn pure_crates_open_nothing_and_read_no_clock() {
    let forbidden = [
        "TcpStream",
        "TcpListener",
        "UdpSocket",
        "Instant",
        "SystemTime",
        "std::thread",
        "std::fs",
        "std::process",
        "std::os",
        "async",
        "await",
    ];
    for name in pure() {
        for (path, text) in sources(name) {
            if is_test(&path) {
                continue;
            }
            for (number, line) in code(&text) {
                for word in forbidden {
                    // Libraries that count in the standard library's times need one to count from.
                    let excused = word == "Instant" && path.ends_with("webrtc/src/clock.rs");
                    assert!(
                        excused || !has_word(line, word),
                        "{}:{number}: {word} in a crate that does no I/O",
                        path.display()
                    );
                }
            }
        }
    }
}

#[test]
fn reports_are_made_from_run_files_alone() {
    let found = dependencies("report", None);
    for other in [
        "engine", "net", "sut", "scenario", "mio", "socket2", "procfs",
    ] {
        assert!(!found.contains(other), "report must not depend on {other}");
    }
}

#[test]
fn libraries_for_tests_are_not_in_the_command() {
    let found = dependencies("streamgauge", None);
    for other in ["allocation-counter", "insta", "jsonschema", "proptest"] {
        assert!(!found.contains(other), "it is only for tests: {other}");
    }
}

#[test]
fn only_the_crate_for_several_machines_has_an_async_runtime() {
    let other_runtimes = ["async-std", "smol", "futures-executor"];
    let found = dependencies("streamgauge", None);
    for other in other_runtimes {
        assert!(!found.contains(other), "an async runtime came in: {other}");
    }
    // The media path has none.
    let found = dependencies("engine", None);
    for other in ["tokio", "async-nats"] {
        assert!(!found.contains(other), "an async runtime came in: {other}");
    }
    for other in ["tokio", "async-nats"] {
        let direct = dependencies("streamgauge", Some(1));
        assert!(!direct.contains(other), "`cluster` alone uses {other}");
        assert!(dependencies("cluster", Some(1)).contains(other));
    }
}

/// Places outside the protocols' crates that may name a protocol: the start of the path, and why.
const MAY_NAME_PROTOCOLS: &[(&str, &str)] = &[
    (
        "kit/src/browser/metrics.rs",
        "browsers count by the metrics of the W3C's recommendation webrtc-stats",
    ),
    (
        "kit/src/media/source.rs",
        "an error names the only protocol that has a key of publishers",
    ),
    (
        "kit/src/server_counters/janus_admin.rs",
        "the server counts its peer connections under this name",
    ),
    (
        "scenario/src/entry.rs",
        "an error shows how a list of protocols is written",
    ),
    (
        "scenario/src/scheme_help.rs",
        "a usual port of servers shows which scheme is missing",
    ),
    (
        "sut/src/catalogue.rs",
        "a known server's file is named after the server, whose name may hold that of a protocol",
    ),
    (
        "streamgauge/src/commands/calibrate",
        "one protocol is calibrated by its reference server's log of every packet",
    ),
];

/// Names of protocols that are ordinary words as well. Only values with these names are found.
const ORDINARY_WORDS: &[&str] = &["messages", "proof"];

/// Returns the protocol that a line of code names. URLs do not count: they are examples in texts.
fn named_in(line: &str) -> Option<String> {
    for (protocol, name) in PROTOCOLS.iter().zip(CRATES) {
        let entry = format!("{}_PROTOCOL", name.to_uppercase());
        let value = format!("\"{}\"", protocol.name);
        let text = line.to_ascii_lowercase();
        let mut names = vec![protocol.name, name];
        names.retain(|name| !ORDINARY_WORDS.contains(name));
        let as_word = |name: &&str| has_word(&text.replace(&format!("{name}://"), ""), name);
        if has_word(line, &entry) || line.contains(&value) {
            return Some(protocol.name.to_owned());
        }
        if let Some(name) = names.iter().find(|name| as_word(name)) {
            return Some((*name).to_owned());
        }
    }
    None
}

#[test]
fn no_crate_but_its_own_knows_a_protocol_by_name() {
    let crates = root().join("crates");
    let mut used = BTreeSet::new();
    let mut wrong = Vec::new();
    let is_other = |name: &&&str| **name != "protocols" && !PROTOCOL_CRATES.contains(name);
    for name in ORDER.iter().filter(is_other) {
        for (path, text) in sources(name) {
            if is_test(&path) {
                continue;
            }
            let inside = path.strip_prefix(&crates).expect("it is in a crate");
            let inside = inside.to_str().expect("names of files are ASCII");
            let named = code(&text).filter_map(|(number, line)| Some((number, named_in(line)?)));
            for (number, protocol) in named {
                let mut allowed = MAY_NAME_PROTOCOLS.iter();
                match allowed.find(|(path, _)| inside.starts_with(path)) {
                    Some((path, _)) => _ = used.insert(*path),
                    None => wrong.push(format!("{inside}:{number}: {protocol}")),
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "code of one protocol belongs into its crate, declared in its descriptor:\n{}",
        wrong.join("\n")
    );
    for (path, _) in MAY_NAME_PROTOCOLS {
        assert!(used.contains(path), "{path} names no protocol any more");
    }
}

#[test]
fn only_the_list_of_protocols_depends_on_them() {
    for name in ORDER.iter().filter(|name| **name != "protocols") {
        let direct = dependencies(name, Some(1));
        for protocol in PROTOCOL_CRATES {
            assert!(
                !direct.contains(protocol),
                "{name} must not depend on {protocol}"
            );
        }
    }
}

#[test]
fn protocols_are_found_by_their_names() {
    for line in [
        "use rtsp::client::Client;",
        "let server = RTSP_PROTOCOL.server;",
        "if name == \"messages\" {",
        "command.arg(\"rtsp\");",
        "protocol::http_ts",
    ] {
        assert!(named_in(line).is_some(), "{line}");
    }
    for line in [
        "use crate::messages::Report;",
        "help(\"write `rtsp://127.0.0.1/a`\")",
        "use kit::remote_receiver::messages::Lines;",
    ] {
        assert_eq!(named_in(line), None, "{line}");
    }
    assert_eq!(without_comment("a(\"b://c\"); // d"), "a(\"b://c\"); ");
}

#[test]
fn unsafe_code_is_in_net_alone() {
    for name in ORDER {
        let manifest = root().join("crates").join(name).join("Cargo.toml");
        let manifest = fs::read_to_string(manifest).expect("every crate has a manifest");
        if name == "net" {
            continue;
        }
        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{name} does not take the workspace's lints"
        );
        for (path, text) in sources(name) {
            // This file names what it searches for.
            if path.ends_with("tests/layout.rs") {
                continue;
            }
            for (number, line) in code(&text) {
                assert!(
                    !has_word(line, "unsafe"),
                    "{}:{number}: unsafe",
                    path.display()
                );
            }
        }
    }
}

#[test]
fn documents_fit_a_terminal() {
    for (path, text) in documents() {
        let long: Vec<usize> = long_lines(&text).collect();
        assert!(
            long.is_empty(),
            "{}: lines of more than {LONGEST_LINE} columns: {long:?}",
            path.display()
        );
    }
}

#[test]
fn comments_fit_the_lines_of_code() {
    let is_long =
        |line: &str| line.trim_start().starts_with("//") && line.chars().count() > LONGEST_LINE;
    assert!(is_long(&format!("    // {}", "a ".repeat(50))));
    for name in ORDER {
        for (path, text) in sources(name) {
            let long = text.lines().zip(1..).filter(|(line, _)| is_long(line));
            let long: Vec<usize> = long.map(|(_, number)| number).collect();
            assert!(
                long.is_empty(),
                "{}: comments of more than {LONGEST_LINE} columns: {long:?}",
                path.display()
            );
        }
    }
}

#[test]
fn readme_and_architecture_have_a_maximum_length() {
    for (name, max) in [("README.md", 125), ("ARCHITECTURE.md", 150)] {
        let text = fs::read_to_string(root().join(name)).expect("it is in the repository");
        let lines = text.lines().count();
        assert!(lines <= max, "{name}: {lines} lines");
    }
}

#[test]
fn description_of_the_debian_package_names_every_protocol_of_the_readme() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let manifest = fs::read_to_string(root().join("crates/streamgauge/Cargo.toml"))
        .unwrap()
        .to_lowercase();
    let protocols: Vec<&str> = readme
        .lines()
        .filter_map(|line| Some(line.strip_prefix("- **")?.split_once("**: ")?.0))
        .collect();
    assert!(protocols.len() >= 8, "{protocols:?}");
    for protocol in protocols {
        assert!(
            manifest.contains(&format!("\n * {}", protocol.to_lowercase())),
            "extended-description does not name {protocol}"
        );
    }
}

#[test]
fn links_of_documents_have_a_target() {
    for (path, text) in documents() {
        let folder = path.parent().expect("it is in a folder");
        for (file, heading) in links(&text) {
            let target = match file {
                "" => path.clone(),
                _ => folder.join(file),
            };
            assert!(target.exists(), "{}: no {file}", path.display());
            let Some(heading) = heading else { continue };
            let text = fs::read_to_string(&target).expect("headings are of documents");
            assert!(
                has_heading(&text, heading),
                "{}: {file} has no heading {heading}",
                path.display()
            );
        }
    }
}

#[test]
fn words_are_distinguished_from_parts_of_names() {
    assert!(has_word("let a = Instant::now();", "Instant"));
    assert!(!has_word("let a = Instantaneous;", "Instant"));
    assert!(!has_word("forbid(unsafe_code)", "unsafe"));
    let text = "a // unsafe\nb\n#[cfg(test)]\nmod tests {\nunsafe\n";
    let lines: Vec<&str> = code(text).map(|(_, line)| line.trim()).collect();
    assert_eq!(lines, ["a", "b"]);
}

#[test]
fn links_and_long_lines_are_found() {
    let text = "# A b\n[x](y.md#a-b), [z](https://h/i) and [here](#a-b)\n";
    let found: Vec<_> = links(text).collect();
    assert_eq!(found, [("y.md", Some("a-b")), ("", Some("a-b"))]);
    assert!(has_heading(text, "a-b") && !has_heading(text, "b"));
    let text = format!("{0}\n{0}ä\n", "ü".repeat(LONGEST_LINE));
    assert_eq!(long_lines(&text).collect::<Vec<_>>(), [2]);
}
