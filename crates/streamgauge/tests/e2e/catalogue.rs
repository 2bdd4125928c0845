//! `streamgauge servers`: known servers, their installation here, and the user's own files.

use std::fs;
use std::process::{Command, Output};

use crate::support::{folder, streamgauge};

const OWN: &str = "\
summary: a shell that calls itself a relay
protocols: [http-ts]
program: sh
command: [\"{program}\", -c, exit 7]
port: 4999
urls: [\"http://{host}:{port}/\"]
version: {command: [\"{program}\", -c, echo relay 1.2], pattern: 'relay ([0-9.]+)'}
missing: there is a shell everywhere
";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn ended(mut command: Command) -> Output {
    command.output().expect("it can be started")
}

#[test]
fn server_list_shows_installations_and_user_files() {
    let folder = folder();
    fs::write(folder.path().join("my-relay.yaml"), OWN).expect("it can be written");
    let bad = OWN.replace("missing:", "mising:");
    fs::write(folder.path().join("bad.yaml"), bad).expect("it can be written");
    let ask = |arguments: &[&str]| {
        let mut command = streamgauge(["servers"]);
        command
            .args(arguments)
            .env("STREAMGAUGE_CATALOGUE", folder.path());
        ended(command)
    };
    let list = text(&ask(&[]).stdout);
    for name in [
        "vlc",
        "gstreamer",
        "rtp2httpd",
        "msd_lite",
        "udpxy",
        "tvgate",
    ] {
        assert!(list.lines().any(|line| line.starts_with(name)), "{list}");
    }
    let own = list
        .lines()
        .find(|line| line.starts_with("my-relay"))
        .expect("it is listed");
    assert!(
        own.contains("http-ts") && own.contains(" 1.2 ") && own.contains("/sh "),
        "{own}"
    );
    assert!(
        list.contains("bad.yaml:8:1: unknown key `mising`: did you mean `missing`?"),
        "{list}"
    );

    let json: serde_json::Value =
        serde_json::from_slice(&ask(&["--json"]).stdout).expect("it is JSON");
    let entries = json.as_array().expect("it is a list");
    let find = |name: &str| {
        let found = entries.iter().find(|entry| entry["name"] == name);
        found.expect("it is listed")
    };
    assert_eq!(find("my-relay")["version"], "1.2");
    assert_eq!(
        find("bad")["problems"][0]["help"],
        "did you mean `missing`?"
    );
    assert_eq!(find("udpxy")["port"], 4022);

    assert_eq!(text(&ask(&["my-relay", "--yaml"]).stdout), OWN);
    // Without the programs of this machine.
    let mut command = streamgauge(["servers", "msd_lite"]);
    command.env("PATH", folder.path());
    let shown = text(&ended(command).stdout);
    assert!(
        shown.contains("<ifName>{interface}</ifName>") && shown.contains("build it from"),
        "{shown}"
    );
    let bad = ask(&["bad"]);
    assert_eq!(bad.status.code(), Some(104));
    assert!(
        text(&bad.stderr).contains("bad.yaml:8:1"),
        "{}",
        text(&bad.stderr)
    );
    let unknown = ask(&["udpx"]);
    assert_eq!(unknown.status.code(), Some(104));
    assert!(text(&unknown.stderr).contains("udpxy"));
}

#[test]
fn scenario_launches_a_server_file_of_its_own_folder() {
    let folder = folder();
    let scenario = "server: {launch: ./own.yaml}\nclients: {a: {urls: [\"rtsp://127.0.0.1:4999/a\"], load: {clients: 1}}}\nduration: 1s\n";
    let path = folder.path().join("s.yaml");
    fs::write(&path, scenario).expect("it can be written");
    let ask = |command: &str| {
        let output = ended(streamgauge([command, path.to_str().expect("it is UTF-8")]));
        (output.status.code(), text(&output.stderr))
    };
    fs::write(
        folder.path().join("own.yaml"),
        OWN.replace("port:", "prot:"),
    )
    .expect("it is written");
    for command in ["check", "run"] {
        let (code, message) = ask(command);
        assert_eq!(code, Some(104), "{message}");
        assert!(
            message.contains("own.yaml:5:1") && message.contains("did you mean `port`?"),
            "{message}"
        );
    }
    fs::write(folder.path().join("own.yaml"), OWN).expect("it is written");
    let (code, message) = ask("check");
    assert_eq!(code, Some(0), "{message}");
    let (code, message) = ask("run");
    assert_eq!(code, Some(104), "{message}");
    assert!(
        message.contains("the server ended before it was ready (exit status 7)"),
        "{message}"
    );
}
