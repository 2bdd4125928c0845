//! Mistakes of users and servers: each has one clear message and the right exit code.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::scripted::{Answer, Scripted};
use crate::support::{
    Finished, Process, RUN_TIMEOUT, Report, Server, established, folder, run, streamgauge,
    wait_for, wrap_command,
};

/// Returns a scenario of one viewer. Its time-outs are longer than any process waits for a
/// processor.
fn scenario(url: &str, more: &str) -> String {
    impatient_scenario(url, "20s", more)
}

/// Returns a scenario of one viewer that waits this long for a connection and for each answer.
fn impatient_scenario(url: &str, patience: &str, more: &str) -> String {
    format!(
        "name: test\nclients:\n  viewers:\n    protocol: rtsp\n    urls: [\"{url}\"]\n    \
         transport: tcp\n    connect_timeout: {patience}\n    request_timeout: {patience}\n    \
         no_media: 1s\n    load: {{ clients: 1 }}\n{more}"
    )
}

fn run_scenario(folder: &Path, text: &str) -> Finished {
    fs::write(folder.join("test.yaml"), text).expect("the test's folder can be written");
    run(folder, ["run", "test.yaml", "--json", "out.json"])
}

/// Checks that a client of `url` fails for one of `reasons`, and that the run fails with it.
fn fails_with(url: &str, reasons: &[&str]) {
    fails_within(url, "20s", reasons);
}

/// As `fails_with`, for a client that waits this long for a connection and for each answer.
fn fails_within(url: &str, patience: &str, reasons: &[&str]) {
    let folder = folder();
    let text = impatient_scenario(url, patience, "");
    let finished = run_scenario(folder.path(), &text).expect(99);
    let report = Report::read(&folder.path().join("out.json"));
    assert_eq!(report.result(), "fail");
    assert_eq!(report.clients("failed"), 1);
    let failures = &report.0["populations"]["viewers"]["clients"]["failures"];
    let found: u64 = reasons.iter().map(|reason| report.failures(reason)).sum();
    assert_eq!(found, 1, "{failures}");
    let shown = finished.stdout + &finished.stderr;
    assert!(
        reasons.iter().any(|reason| shown.contains(reason)),
        "the summary names the reason: {shown}"
    );
}

#[test]
fn errors_about_options_name_the_option() {
    let folder = folder();
    for (arguments, message) in [
        (
            "load rtsp://127.0.0.1/a --launch vcl",
            "--launch vcl: there is no server `vcl`",
        ),
        (
            "load rtsp://127.0.0.1/a --pid 0",
            "--pid 0: `server.observe.pid: 0` is out of range",
        ),
        (
            "load rtsp://127.0.0.1/a --leave-after 1",
            "--leave-after 1: a unit is missing",
        ),
        (
            "load rtsp://127.0.0.1/a --size 5",
            "--size 5: `--size` does not apply to clients of these URLs",
        ),
    ] {
        run(folder.path(), arguments.split(' '))
            .expect(104)
            .names(message);
    }
}

#[test]
fn too_few_descriptors_error_names_the_workers() {
    let folder = folder();
    let program = env!("CARGO_BIN_EXE_streamgauge");
    for (limit, clients, need) in [
        // 5 for each client, and 64 for the worker itself: more workers would not help.
        (
            40,
            20,
            "164 file descriptors in its one worker, and may open 40",
        ),
        // 16 workers would not suffice, so the limit has to be raised.
        (
            70,
            2000,
            "689 file descriptors in each of its 16 workers, and may open 70",
        ),
    ] {
        let load = format!("load rtsp://127.0.0.1:1/a -c {clients} -d 1s --no-describe");
        let line = format!("ulimit -n {limit} && ulimit -Hn {limit} && exec {program} {load}");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &line]).env("NO_COLOR", "1");
        let refused = Process::start(command, folder.path());
        refused
            .finish(Duration::from_secs(60))
            .expect(104)
            .names(need);
    }
}

#[test]
fn misspelt_key_is_an_error_with_a_suggestion() {
    let folder = folder();
    let text = scenario("rtsp://127.0.0.1/a", "").replace("transport:", "transprot:");
    run_scenario(folder.path(), &text)
        .expect(104)
        .names("transprot")
        .names("transport")
        .names("test.yaml:6");
}

#[test]
fn missing_unit_is_an_error() {
    let folder = folder();
    run_scenario(
        folder.path(),
        &scenario("rtsp://127.0.0.1/a", "duration: 60\n"),
    )
    .expect(104)
    .names("60s");
    run(folder.path(), ["load", "rtsp://127.0.0.1/a", "-d", "60"])
        .expect(104)
        .names("60");
}

#[test]
fn unknown_arguments_and_missing_files_are_errors() {
    let folder = folder();
    run(
        folder.path(),
        ["load", "rtsp://127.0.0.1/a", "--cleints", "3"],
    )
    .expect(104)
    .names("--clients");
    run(folder.path(), ["run", "missing.yaml"])
        .expect(104)
        .names("missing.yaml");
    run(folder.path(), ["load", "ftp://127.0.0.1/a"])
        .expect(104)
        .names("ftp");
    // Other load testers call it so.
    run(
        folder.path(),
        ["load", "rtsp://127.0.0.1/a", "--users", "-5"],
    )
    .expect(104)
    .names("must be a whole number");
    run(folder.path(), ["load", "whip+http://127.0.0.1/a"])
        .expect(104)
        .names("publish");
    run(folder.path(), ["report", "missing.run"])
        .expect(104)
        .names("missing.run");
    run(
        folder.path(),
        [
            "load",
            "rtsp://127.0.0.1/a",
            "--threshold",
            "viewers.los < 1%",
        ],
    )
    .expect(104)
    .names("viewers.los < 1%")
    .names("did you mean `loss`?");
}

#[test]
fn check_offline_sends_nothing() {
    let folder = folder();
    let server = Scripted::start(|_| Answer::Good);
    fs::write(folder.path().join("test.yaml"), scenario(&server.url(), "")).expect("written");
    run(folder.path(), ["check", "--offline", "test.yaml"]).expect(0);
    assert_eq!(established(server.port), 0);
}

#[test]
fn check_names_a_program_that_is_missing() {
    let folder = folder();
    let with = |server: &str| {
        let text = scenario("rtsp://127.0.0.1:9/a", &format!("server: {server}\n"));
        fs::write(folder.path().join("test.yaml"), text).expect("written");
    };
    with("{command: [no-such-server, --port, '9']}");
    run(folder.path(), ["check", "test.yaml"])
        .expect(104)
        .names("`no-such-server`, which is not in PATH");
    // A machine that only checks scenarios lacks the programs.
    run(folder.path(), ["check", "--offline", "test.yaml"]).expect(0);
    let varied = "vary.server.command=[[sh], [./relayd]]";
    run(folder.path(), ["check", "test.yaml", "--set", varied])
        .expect(104)
        .names("`./relayd`");
    fs::write(
        folder.path().join("own.yaml"),
        "summary: s\nprotocols: [rtsp]\nprogram: no-such-server\ncommand: [\"{program}\"]\nport: 9\n\
         urls: [\"rtsp://{host}:{port}/\"]\nmissing: build it\n",
    )
    .expect("written");
    with("{launch: ./own.yaml}");
    run(folder.path(), ["check", "test.yaml"])
        .expect(104)
        .names("own is not installed: build it");
    // The bare word is this executable, whatever PATH contains.
    with("{command: [streamgauge, serve, rtsp]}");
    let mut check = streamgauge(["check", "test.yaml"]);
    check.env("PATH", "/nowhere");
    Process::start(check, folder.path())
        .finish(RUN_TIMEOUT)
        .expect(0);
}

#[test]
fn unknown_host_fails_the_client() {
    fails_within(
        "rtsp://no-such-host.invalid/a",
        "2s",
        &["name_not_found", "connect_timeout"],
    );
}

#[test]
fn unreachable_host_fails_the_client() {
    // Broadcast address of the loopback network: the kernel has no route to it for TCP, and sends
    // nothing.
    fails_with("rtsp://127.255.255.255/a", &["unreachable"]);
}

#[test]
fn refused_connection_fails_the_client() {
    // The discard port: no server of another test listens on it.
    fails_with("rtsp://127.0.0.1:9/a", &["refused"]);
}

#[test]
fn missing_credentials_fail_the_client() {
    let server = Scripted::start(|method| match method {
        "OPTIONS" => Answer::Good,
        _ => Answer::Status(401),
    });
    fails_with(&server.url(), &["status_401"]);
}

#[test]
fn missing_path_fails_the_client() {
    let server = Scripted::start(|method| match method {
        "OPTIONS" => Answer::Good,
        _ => Answer::Status(404),
    });
    fails_with(&server.url(), &["status_404"]);
}

#[test]
fn unsupported_transport_fails_the_client() {
    let server = Scripted::start(|method| match method {
        "SETUP" => Answer::Status(461),
        _ => Answer::Good,
    });
    fails_with(&server.url(), &["status_461"]);
}

#[test]
fn silent_server_fails_the_client() {
    let server = Scripted::start(|_| Answer::Silence);
    let reasons = ["timeout_options", "timeout_describe"];
    fails_within(&server.url(), "500ms", &reasons);
}

#[test]
fn server_that_ignores_play_fails_the_client() {
    let server = Scripted::start(|method| match method {
        "PLAY" => Answer::Silence,
        _ => Answer::Good,
    });
    fails_within(&server.url(), "5s", &["timeout_play"]);
}

#[test]
fn server_that_hangs_up_fails_the_client() {
    let server = Scripted::start(|method| match method {
        "SETUP" => Answer::Close,
        _ => Answer::Good,
    });
    fails_with(&server.url(), &["closed_in_setup", "reset_in_setup"]);
}

#[test]
fn garbage_answer_fails_the_client() {
    let server = Scripted::start(|_| Answer::Garbage);
    fails_within(
        &server.url(),
        "500ms",
        &[
            "malformed_response",
            "message_too_large",
            "timeout_options",
            "timeout_describe",
        ],
    );
}

#[test]
fn missing_media_fails_the_client() {
    let server = Scripted::start(|_| Answer::Good);
    fails_with(&server.url(), &["no_media"]);
}

#[test]
fn server_killed_during_the_run_fails_all_clients() {
    for transport in ["udp", "tcp"] {
        let folder = folder();
        let server = Server::start(folder.path(), &["--bitrate", "100kbps"]);
        let arguments = format!(
            "load {} -c 5 --transport {transport} -d 60s --json out.json",
            server.url()
        );
        let load = Process::start(streamgauge(arguments.split(' ')), folder.path());
        wait_for("all clients are connected", Duration::from_secs(60), || {
            (established(server.port) == 5).then_some(())
        });
        server.signal("KILL");
        let died = Instant::now();
        load.finish(Duration::from_secs(60)).expect(99);
        assert!(died.elapsed() < Duration::from_secs(20));
        let report = Report::read(&folder.path().join("out.json"));
        assert_eq!(report.clients("failed"), 5, "{}", report.0["populations"]);
    }
}

#[test]
fn too_few_file_descriptors_are_an_error() {
    let folder = folder();
    let server = Server::start(folder.path(), &[]);
    let mut command = std::process::Command::new("prlimit");
    command.args(["--nofile=64:64", env!("CARGO_BIN_EXE_streamgauge")]);
    command.args(["load", &server.url(), "-c", "100", "-d", "3s"]);
    let finished = Process::start(command, folder.path()).finish(Duration::from_secs(60));
    let finished = finished.expect(104).names("64");
    let needed = finished
        .stderr
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|number| number.parse::<u64>().ok())
        .max();
    assert!(
        needed > Some(64),
        "the number needed is named: {}",
        finished.stderr
    );
}

#[test]
fn descriptor_limit_is_raised_if_permitted() {
    let folder = folder();
    let server = Server::start(folder.path(), &["--bitrate", "50kbps", "--length", "2s"]);
    let mut limited = std::process::Command::new("prlimit");
    limited.arg("--nofile=64:4096");
    let load = streamgauge(["load", &server.url(), "-c", "100"]);
    Process::start(wrap_command(limited, &load), folder.path())
        .finish(RUN_TIMEOUT)
        .expect(0);
}

#[test]
fn escape_sequences_in_a_scenario_do_not_reach_the_terminal() {
    let folder = folder();
    let hostile = "a\u{1b}]0;title\u{7}\u{9b}2J\u{202e}b";
    let text =
        scenario("rtsp://127.0.0.1/a", "").replace("name: test", &format!("name: \"{hostile}\""));
    fs::write(folder.path().join("raw.yaml"), &text).expect("the test's folder can be written");
    // Some YAML parsers refuse such characters unless they are escaped; all accept them escaped.
    let escaped = text.replace(hostile, "a\\e]0;title\\a\\x9b2J\\u202eb\\nc");
    fs::write(folder.path().join("escaped.yaml"), escaped)
        .expect("the test's folder can be written");
    for name in ["raw.yaml", "escaped.yaml"] {
        let finished = run(folder.path(), ["check", "--offline", name]);
        let output = finished.stdout + &finished.stderr;
        let steers = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!output.contains(steers), "{output:?}");
    }
}
