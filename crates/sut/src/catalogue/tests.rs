use std::fs;

use super::*;

fn request(groups: &[Group]) -> Request<'_> {
    Request {
        host: std::net::Ipv4Addr::LOCALHOST.into(),
        port: Some(5000),
        interface: "lo",
        groups,
        clips: &[],
        audio: false,
        user: None,
    }
}

fn built_in() -> Vec<ServerEntry> {
    BUILT_IN
        .iter()
        .map(|(file, text)| {
            ServerEntry::parse(file, text).unwrap_or_else(|error| panic!("{:?}", error.problems()))
        })
        .collect()
}

#[test]
fn built_in_entries_are_valid_and_name_the_remedy() {
    for entry in built_in() {
        assert!(!entry.notes.is_empty(), "{}", entry.name);
        assert!(
            ["install", "build it"]
                .iter()
                .any(|way| entry.missing.contains(way)),
            "{}",
            entry.name
        );
        let version = entry.version.expect("each can be asked");
        regex_lite::Regex::new(&version.pattern).unwrap();
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/catalogue");
    assert_eq!(
        files_of(Path::new(folder), true).unwrap().len(),
        BUILT_IN.len()
    );
}

#[test]
fn relays_have_the_same_url_paths() {
    let group = Group {
        kind: "rtp".to_owned(),
        address: "239.81.0.1".to_owned(),
        port: 5004,
    };
    let values = PlaceholderValues {
        host: "127.0.0.1".to_owned(),
        port: 7000,
        groups: vec![group],
        ..PlaceholderValues::default()
    };
    let mut relays = 0;
    for entry in built_in() {
        if entry.protocols == ["http-ts"] {
            relays += 1;
            assert_eq!(
                entry.fill(&values).urls,
                ["http://127.0.0.1:7000/rtp/239.81.0.1:5004"],
                "{}",
                entry.name
            );
        }
    }
    assert_eq!(relays, 5);
}

#[test]
fn unknown_server_error_lists_the_known_ones() {
    let error = find("vcl").unwrap_err().to_string();
    assert!(
        error.contains("vcl") && error.contains("vlc, gstreamer"),
        "{error}"
    );
}

#[test]
fn own_entry_file_is_read_or_its_mistake_located() {
    protocols::install();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.yaml");
    let name = path.to_str().unwrap();
    let text = "summary: mine\nprotocols: [http-ts]\nprogram: sh\ncommand: [\"{program}\", -c, \"exit 1\"]\nport: 1\nurls: [\"http://{host}:{port}/\"]\nmissing: install it\n";
    fs::write(&path, text).unwrap();
    assert_eq!(find(name).unwrap().name, "mine");
    assert_eq!(
        files_of(folder.path(), true).unwrap(),
        std::slice::from_ref(&path)
    );
    let built = build(name, &request(&[])).unwrap();
    assert_eq!(built.urls, ["http://127.0.0.1:5000/"]);
    assert_eq!(built.launch.command[1..], ["-c", "exit 1"]);

    fs::write(&path, text.replace("summary", "sumary")).unwrap();
    let error = build(name, &request(&[])).unwrap_err().to_string();
    assert!(
        error.contains(&format!(
            "{name}:1:1: unknown key `sumary`: did you mean `summary`?"
        )),
        "{error}"
    );

    fs::write(
        &path,
        text.replace("program: sh", "program: no-such-server"),
    )
    .unwrap();
    let error = build(name, &request(&[])).unwrap_err().to_string();
    assert_eq!(error, "mine is not installed: install it");
}

#[test]
fn named_folder_must_exist() {
    let nowhere = Path::new("/nowhere/at/all");
    assert!(files_of(nowhere, false).unwrap().is_empty());
    let error = files_of(nowhere, true).unwrap_err().to_string();
    assert!(
        error.contains("cannot read the servers in /nowhere/at/all"),
        "{error}"
    );
}

#[test]
fn missing_and_useless_keys_are_refused() {
    let entry = |name: &str| {
        built_in()
            .into_iter()
            .find(|entry| entry.name == name)
            .unwrap()
    };
    let error = check_uses(&entry("vlc-relay"), &request(&[]))
        .unwrap_err()
        .to_string();
    assert!(error.contains("set `groups`"), "{error}");
    let groups = [Group {
        kind: "udp".to_owned(),
        address: "239.0.0.1".to_owned(),
        port: 1,
    }];
    let error = check_uses(&entry("gstreamer"), &request(&groups))
        .unwrap_err()
        .to_string();
    assert!(error.contains("does not use `groups`"), "{error}");
    check_uses(&entry("udpxy"), &request(&groups)).unwrap();
    check_uses(&entry("udpxy"), &request(&[])).unwrap();
}

fn asked(probe: &str, version: &str, pattern: &str) -> (Option<PathBuf>, Option<String>) {
    let text = format!(
        "summary: s\nprotocols: [x]\nprogram: [no-such-server, sh]\nprobe: [\"{{program}}\", -c, {probe:?}]\ncommand: [x]\nport: 1\nurls: [u]\nmissing: m\n\
         version: {{command: [\"{{program}}\", -c, {version:?}], pattern: {pattern:?}}}\n"
    );
    let entry = ServerEntry::parse("s.yaml", &text)
        .unwrap_or_else(|error| panic!("{:?}", error.problems()));
    let program = installed(&entry);
    let version = super::version(&entry, Path::new("/bin/sh")).unwrap();
    (program, version)
}

#[test]
fn programs_are_probed_and_asked_for_their_version() {
    let (program, version) = asked("exit 0", "echo s 1.2.3 >&2; exit 1", "s ([0-9.]+)");
    assert_eq!(program.unwrap().file_name().unwrap(), "sh");
    assert_eq!(version.as_deref(), Some("1.2.3"));
    let (program, version) = asked("exit 3", "echo nothing", "s ([0-9.]+)");
    assert_eq!((program, version), (None, None));
}

#[test]
fn endless_version_output_is_cut_off() {
    let (_, version) = asked("exit 0", "while :; do echo s 7; done", "s ([0-9.]+)");
    assert_eq!(version.as_deref(), Some("7"));
}
