use super::*;
use crate::group::Group;
use proptest::prelude::*;

const GOOD: &str = "\
summary: a relay
protocols: [http-ts]
program: [relay, /opt/relay]
command: [\"{program}\", -l, \"{port}\", -c, \"{config}\"]
environment: {HOME: \"{home}\"}
config: |
  bind {{port}} = {port}
  group {group_number}: {group_kind} {group}@{group_port} on {interface}
  http { }
clips: no
groups: optional
port: 5140
ready: {line: up}
urls: [\"http://{host}:{port}/{group_kind}/{group}:{group_port}\", \"http://{host}:{port}/status\"]
version: {command: [\"{program}\", -V], pattern: \"v([0-9.]{1,9})\"}
missing: build it
notes: one thing
";

fn group(number: u16) -> Group {
    Group {
        kind: "rtp".to_owned(),
        address: format!("239.0.0.{number}"),
        port: 5000 + number,
    }
}

fn error_text(name: &str, text: &str) -> String {
    let error = ServerEntry::parse(name, text).expect_err("it is wrong");
    error
        .problems()
        .iter()
        .map(|problem| {
            format!(
                "{}: {} | {}\n",
                problem.position().unwrap_or_default(),
                problem.message(),
                problem.help_text().unwrap_or("-")
            )
        })
        .collect()
}

#[test]
fn entry_is_read_and_filled_in() {
    let entry = ServerEntry::parse("servers/my-relay.yaml", GOOD).unwrap();
    assert_eq!(entry.name, "my-relay");
    assert_eq!(entry.programs, ["relay", "/opt/relay"]);
    assert_eq!((entry.port, entry.groups), (5140, Requirement::Optional));
    assert_eq!(entry.ready, EntryReady::Line("up".to_owned()));
    assert_eq!(entry.notes, ["one thing"]);
    let filled = entry.fill(&PlaceholderValues {
        program: "/bin/relay".to_owned(),
        host: "127.0.0.1".to_owned(),
        port: 9,
        interface: "lo".to_owned(),
        config: "/s/server.conf".to_owned(),
        home: "/s/home".to_owned(),
        groups: vec![group(1), group(2)],
        ..PlaceholderValues::default()
    });
    assert_eq!(
        filled.command,
        ["/bin/relay", "-l", "9", "-c", "/s/server.conf"]
    );
    assert_eq!(
        filled.environment,
        [("HOME".to_owned(), "/s/home".to_owned())]
    );
    assert_eq!(
        filled.config.as_deref(),
        Some(
            "bind {port} = 9\ngroup 1: rtp 239.0.0.1@5001 on lo\ngroup 2: rtp 239.0.0.2@5002 on lo\nhttp { }\n"
        )
    );
    assert_eq!(
        filled.urls,
        [
            "http://127.0.0.1:9/rtp/239.0.0.1:5001",
            "http://127.0.0.1:9/rtp/239.0.0.2:5002",
            "http://127.0.0.1:9/status"
        ]
    );
}

#[test]
fn needs_root_requires_a_reason() {
    let entry = ServerEntry::parse("x.yaml", GOOD).unwrap();
    assert_eq!((entry.needs_root, entry.not_as_root), (None, false));
    let text = format!("{GOOD}needs_root: it opens raw sockets\n");
    let entry = ServerEntry::parse("x.yaml", &text).unwrap();
    assert_eq!(entry.needs_root.as_deref(), Some("it opens raw sockets"));
    assert!(
        error_text("x.yaml", &format!("{GOOD}needs_root: true\n")).contains("does not say why")
    );
    let both = format!("{text}not_as_root: true\n");
    assert!(error_text("x.yaml", &both).contains("cannot be combined"));
}

#[test]
fn clip_placeholder_repeats_the_argument() {
    let text = GOOD
        .replace("[\"{program}\", -l,", "[\"{program}\", \"{clip}\", -l,")
        .replace("clips: no", "clips: needed");
    let entry = ServerEntry::parse("a.yaml", &text).unwrap();
    let values = |clips: &[&str]| PlaceholderValues {
        clips: clips.iter().map(|&clip| clip.to_owned()).collect(),
        ..PlaceholderValues::default()
    };
    assert_eq!(
        entry.fill(&values(&["/1", "/2"])).command[1..3],
        ["/1", "/2"]
    );
    assert_eq!(entry.fill(&values(&[])).command[1], "-l");
}

#[test]
fn each_mistake_is_reported_at_its_position() {
    let wrong = GOOD
        .replace("-l, \"{port}\"", "-l, \"{prot}\"")
        .replace("clips: no", "clips: neded")
        .replace("port: 5140", "port: 70000")
        .replace("missing: build it\n", "")
        .replace("notes:", "noets:");
    assert_eq!(
        error_text("x.yaml", &wrong),
        "x.yaml:1:1: `missing` is missing | say how it is installed, such as `apt-get install vlc-bin`\n\
         x.yaml:10:8: `clips` cannot be `neded` | did you mean `needed`?\n\
         x.yaml:12:7: `port: 70000` is out of range | write a whole number from 1 to 65535\n\
         x.yaml:16:1: unknown key `noets` | did you mean `notes`?\n"
    );
    assert_eq!(
        error_text("x.yaml", &GOOD.replace("-l, \"{port}\"", "-l, \"{prot}\"")),
        "x.yaml:4:29: unknown placeholder `{prot}` in `command` | did you mean `port`?; write literal braces doubled: `{{prot}}`\n"
    );
    assert!(
        error_text("x.yaml", &GOOD.replace("{config}", "x"))
            .contains("does not name its configuration")
    );
    assert!(error_text("x y.yaml", GOOD).contains("not a valid name of a server"));
    assert!(error_text("x.yaml", "- a\n").contains("1:1: a server entry must be a mapping"));
    assert!(error_text("x.yaml", "").contains("must be a mapping"));
    let two = ServerEntry::parse("x.yaml", &wrong)
        .unwrap_err()
        .to_string();
    assert_eq!(two, "4 problems in the server entry");
}

#[test]
fn missing_entry_file_is_named() {
    let error = ServerEntry::load(Path::new("/nowhere/x.yaml")).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("cannot read the server entry /nowhere/x.yaml"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn any_text_is_an_entry_or_an_error(
        text in "\\PC{0,200}",
        key in proptest::sample::select(section::keys::<EntryKeys>()),
    ) {
        let _ = ServerEntry::parse("x.yaml", &text);
        let _ = ServerEntry::parse("x.yaml", &format!("{key}: {text}\n"));
    }

    #[test]
    fn text_without_placeholders_is_unchanged(text in "[ -~é]{0,60}") {
        prop_assume!(fill::placeholders(&text).count() == 0 && !text.contains("{{"));
        let entry = ServerEntry { urls: vec![text.clone()], ..ServerEntry::parse("a.yaml", GOOD).unwrap() };
        prop_assert_eq!(entry.fill(&PlaceholderValues::default()).urls, [text]);
    }
}
