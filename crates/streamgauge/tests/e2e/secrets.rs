//! A scenario's secrets are in no file that a run leaves and in no output.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Finished, folder, free_port, run};

/// Start of every secret in these tests.
const SECRET: &str = "hush";

/// Returns all files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the test's folder can be read");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => files(&path),
            false => vec![path],
        })
        .collect()
}

/// Checks that no file of the folder contains a secret, in its content or its name. Scenario files
/// are left out: they contain all secrets.
#[track_caller]
fn nothing_is_left_in(folder: &Path) {
    let mut looked_at = 0;
    for path in files(folder) {
        if path.extension().is_some_and(|kind| kind == "yaml") {
            continue;
        }
        assert!(
            !path.to_string_lossy().contains(SECRET),
            "{}",
            path.display()
        );
        let bytes = fs::read(&path).expect("it can be read");
        let found = bytes
            .windows(SECRET.len())
            .position(|window| window.eq_ignore_ascii_case(SECRET.as_bytes()));
        if let Some(at) = found {
            let around = &bytes[at.saturating_sub(80)..bytes.len().min(at + 40)];
            panic!("{}: {}", path.display(), String::from_utf8_lossy(around));
        }
        looked_at += 1;
    }
    assert!(looked_at > 0);
}

/// Writes a scenario of a server that prints everything it knows and then serves, and of clients
/// with a secret of each kind. The server's script ends with `then`.
fn scenario(folder: &Path, port: u16, then: &str) {
    let text = format!(
        r#"
name: quiet
server:
  command:
    - sh
    - -c
    - >-
      echo "error: $PLAIN $API_KEY $1 --password $3 hush-user-pw rtsp://a:hush-printed-pw@b/c?token=hush-printed-token";
      {then}
    - streamgauge
    - rtsp://cam:hush-command-pw@10.0.0.1/a?token=hush-command-token
    - --password
    - hush-command-option
    - --token=hush-command-assigned
  environment: {{PLAIN: hush-plain, API_KEY: hush-key}}
  ready: {{line: listening}}
clients:
  viewers:
    urls: ["rtsp://me:hush-user-pw@127.0.0.1:{port}/a?token=hush-query&quality=1"]
    transport: tcp
    load: {{clients: 2}}
  strangers:
    urls: ["rtsp://me:hush-wrong-pw@127.0.0.1:{port}/b?signature=hush-signature"]
    transport: tcp
    load: {{clients: 1}}
  relay:
    urls: ["http://me:hush-relay-pw@127.0.0.1:9/a?key=hush-relay-key"]
    headers: {{Authorization: "Bearer hush-bearer", X-Any: hush-header}}
    load: {{clients: 1}}
  chat:
    urls: ["tcp://127.0.0.1:9"]
    greeting: [{{send: "LOGIN hush-greeting"}}, {{expect: OK}}]
    load: {{clients: 1}}
duration: 5s
"#
    );
    fs::write(folder.join("s.yaml"), text).expect("it can be written");
}

/// Returns the command of the reference server, which demands the viewers' password.
fn serves(port: u16) -> String {
    let program = env!("CARGO_BIN_EXE_streamgauge");
    format!("exec {program} serve rtsp --port {port} --bitrate 100kbps --user me:hush-user-pw")
}

fn contains_no_secret(finished: &Finished) {
    for text in [&finished.stdout, &finished.stderr] {
        assert!(!text.contains(SECRET), "{text}");
    }
}

#[test]
fn run_keeps_and_prints_no_secret() {
    let folder = folder();
    let port = free_port();
    scenario(folder.path(), port, &serves(port));
    let arguments = [
        "run", "s.yaml", "-v", "--json", "out.json", "--out", "x.run",
    ];
    let finished = run(folder.path(), arguments);
    contains_no_secret(&finished);
    // The viewers' password was correct nevertheless, and each failure has its reason.
    let text = fs::read_to_string(folder.path().join("out.json")).expect("there is a report");
    let report: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let ended = |name: &str, how: &str| report["populations"][name]["clients"][how].as_u64();
    assert_eq!(ended("viewers", "failed"), Some(0), "{text}");
    for name in ["strangers", "relay", "chat"] {
        assert_eq!(ended(name, "failed"), Some(1), "{name}: {text}");
    }
    assert!(text.contains("rtsp://me:***@127.0.0.1"), "{text}");
    contains_no_secret(&run(
        folder.path(),
        ["report", "x.run", "-v", "--json", "again.json"],
    ));
    contains_no_secret(&run(folder.path(), ["check", "s.yaml"]));
    nothing_is_left_in(folder.path());
}

#[test]
fn run_that_cannot_begin_prints_no_secret() {
    let folder = folder();
    scenario(folder.path(), 9, "echo $API_KEY >&2; exit 3");
    let arguments = [
        "run",
        "s.yaml",
        "--set",
        "server.ready.line=never",
        "--out",
        "x.run",
    ];
    let finished = run(folder.path(), arguments)
        .expect(104)
        .names("exit status 3");
    contains_no_secret(&finished);
    nothing_is_left_in(folder.path());
}

#[test]
fn series_keeps_no_secret_and_tells_its_runs_apart() {
    let folder = folder();
    let port = free_port();
    // With the second value the server ends at once.
    let then = format!("test ${{API_KEY#*-}} = one || exit 3; {}", serves(port));
    scenario(folder.path(), port, &then);
    let vary = "vary.server.environment.API_KEY=[hush-one, hush-two]";
    let arguments = ["run", "s.yaml", "--set", vary, "--set", "settle=0s"];
    let arguments = arguments
        .into_iter()
        .chain(["--out", "x.series", "--json", "x.json"]);
    let finished = run(folder.path(), arguments);
    contains_no_secret(&finished);
    let index = fs::read_to_string(folder.path().join("x.series/series.json"));
    let index = index.expect("there is an index");
    assert!(index.contains("***1") && index.contains("***2"), "{index}");
    assert!(index.contains("exit status 3"), "{index}");
    nothing_is_left_in(folder.path());
}

#[test]
fn secrets_in_arguments_leave_no_trace() {
    let folder = folder();
    let url = "rtsp://me:hush-line@127.0.0.1:9/a?token=hush-token";
    let finished = run(folder.path(), ["load", url, "-d", "1s"]);
    contains_no_secret(&finished);
    let is_run = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "run");
    assert!(
        files(folder.path()).iter().any(is_run),
        "{}",
        finished.stderr
    );
    nothing_is_left_in(folder.path());
    contains_no_secret(
        &run(
            folder.path(),
            ["load", "rtspx://me:hush-line@h/", "-d", "1s"],
        )
        .expect(104),
    );
}
