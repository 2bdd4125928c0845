//! A protocol that consists of a folder and a line of the registry has everything in the command:
//! its server, its clients, its rows. It is only in a command that is built with the feature
//! `proof`: `cargo test -p streamgauge --features proof --test proof`.

#[path = "e2e/support.rs"]
#[allow(dead_code, reason = "others need more of it")]
mod support;

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use support::{Finished, Process, Report, folder, free_port, number, run, streamgauge, wait_for};

const CLIENTS: u64 = 3;

/// Number of packets for each client, and how many of them are left out at first.
const PACKETS: u64 = 500;
const LEFT_OUT: u64 = PACKETS / 7;

/// A reference server that leaves out every seventh packet.
struct Server {
    process: Process,
    url: String,
}

impl Server {
    fn start(folder: &Path) -> Server {
        let packets = PACKETS.to_string();
        let arguments = ["serve", "proof", "--port", "0", "--packets", &packets];
        let mut command = streamgauge(arguments);
        command.args([
            "--every",
            "5ms",
            "--lose-every",
            "7",
            "--report",
            "sent.jsonl",
        ]);
        let mut process = Process::start(command, folder);
        let url = wait_for("the server listens", Duration::from_secs(20), || {
            assert!(
                process.runs(),
                "the server ended: {}",
                process.stderr_text()
            );
            let output = process.stdout_text();
            let (_, url) = output.trim_end().split_once("listening on ")?;
            Some(url.to_owned())
        });
        assert!(url.starts_with("proof://127.0.0.1:"), "{url}");
        Server { process, url }
    }

    /// Writes a scenario with these keys of the population and of the scenario.
    fn scenario(&self, folder: &Path, keys: &str, more: &str) {
        let url = &self.url;
        let text = format!(
            "name: proof\nclients:\n  viewers: {{urls: [\"{url}\"], load: {{clients: {CLIENTS}}}, \
             {keys}}}\nthresholds: [\"viewers.received > 0\"]\n{more}\n"
        );
        fs::write(folder.join("s.yaml"), text).expect("the test's folder can be written");
    }

    /// Stops the server. Returns the lines of its report, and separately the last one, with the
    /// totals.
    fn stop(self, folder: &Path) -> (Vec<Value>, Value) {
        self.process.signal("TERM");
        self.process.finish(Duration::from_secs(10)).expect(0);
        let text = fs::read_to_string(folder.join("sent.jsonl")).expect("it wrote its report");
        let lines = text.lines().map(serde_json::from_str);
        let mut lines: Vec<Value> = lines.map(|line| line.expect("JSON")).collect();
        let all = lines.pop().expect("it ends with a line for all");
        (lines, all["all"].clone())
    }
}

fn play(folder: &Path) -> (Finished, Report) {
    let finished = run(
        folder,
        ["run", "s.yaml", "--out", "x.run", "--json", "x.json"],
    )
    .expect(0);
    (finished, Report::read(&folder.join("x.json")))
}

#[test]
fn packets_left_out_are_recovered_and_counted_exactly() {
    let folder = folder();
    let server = Server::start(folder.path());
    // The limits are long, so that no packet is requested twice on a busy machine.
    server.scenario(
        folder.path(),
        "ask_again: 5s, give_up: 20s, silence: 30s",
        "",
    );
    let (finished, report) = play(folder.path());
    let (lines, all) = server.stop(folder.path());
    report.tester_was_fit();
    assert_eq!(report.result(), "pass");
    assert_eq!(report.clients("completed"), CLIENTS);
    let lost = CLIENTS * LEFT_OUT;
    for (name, expected) in [
        ("expected", CLIENTS * PACKETS),
        ("received", CLIENTS * PACKETS),
        ("missed", lost),
        ("asked", lost),
        ("retransmitted", lost),
        ("recovered", lost),
        ("lost", 0),
        ("given_up", 0),
        ("duplicated", 0),
        ("reordered", 0),
        ("malformed", 0),
    ] {
        assert_eq!(number(report.metric(name)), expected, "{name}");
    }
    assert_eq!(number(&report.metric("recovery_delay")["count"]), lost);
    assert_eq!(number(&report.metric("startup_delay")["count"]), CLIENTS);
    let rows = format!("{lost} of {lost} missed packets; {lost} sent again, 0 given up");
    assert!(finished.stdout.contains(&rows), "{}", finished.stdout);
    // The run file alone gives the same report.
    let again = run(folder.path(), ["report", "x.run"]).expect(0);
    assert_eq!(again.stdout, finished.stdout);

    assert_eq!(lines.len() as u64, CLIENTS);
    for (name, expected) in [
        ("clients", CLIENTS),
        ("expected", CLIENTS * PACKETS),
        ("sent", CLIENTS * PACKETS - lost),
        ("left_out", lost),
        ("asked", lost),
        ("sent_again", lost),
        ("not_taken", 0),
    ] {
        assert_eq!(number(&all[name]), expected, "{name}: {all}");
    }
}

#[test]
fn series_shows_the_loss_without_recovery_and_none_with_it() {
    let folder = folder();
    let server = Server::start(folder.path());
    let vary = "vary: {clients.viewers.recovery: [false, true]}\nsettle: 0s";
    server.scenario(
        folder.path(),
        "ask_again: 5s, give_up: 6s, silence: 30s",
        vary,
    );
    let arguments = ["run", "s.yaml", "--out", "x.series", "--json", "x.json"];
    let finished = run(folder.path(), arguments).expect(0);
    let text = fs::read_to_string(folder.path().join("x.json")).expect("it was written");
    let series: Value = serde_json::from_str(&text).expect("JSON");
    let lost = CLIENTS * LEFT_OUT;
    for (at, (received, sent_again)) in [(CLIENTS * PACKETS - lost, 0), (CLIENTS * PACKETS, lost)]
        .into_iter()
        .enumerate()
    {
        let figures = &series["runs"][at]["figures"];
        assert_eq!(number(&figures["received"]), received, "{figures}");
        let column = figures["columns"]["retransmitted"].as_f64();
        assert_eq!(column, Some(sent_again as f64), "{figures}");
        assert_eq!(figures["tester_fit"], true, "{figures}");
    }
    let share = series["runs"][0]["figures"]["loss"].as_f64();
    let expected = LEFT_OUT as f64 / PACKETS as f64;
    assert!(share.is_some_and(|share| (share - expected).abs() < 1e-9));
    for heading in ["sent", "again", "loss"] {
        assert!(finished.stdout.contains(heading), "{}", finished.stdout);
    }
    let file = format!(
        "x.series/{}",
        series["runs"][0]["file"].as_str().expect("a name")
    );
    run(folder.path(), ["report", &file, "--json", "one.json"]).expect(0);
    let report = Report::read(&folder.path().join("one.json"));
    for (name, expected) in [("lost", lost), ("given_up", lost), ("asked", 0)] {
        assert_eq!(number(report.metric(name)), expected, "{name}");
    }
    let (_, all) = server.stop(folder.path());
    assert_eq!(number(&all["left_out"]), 2 * lost);
    assert_eq!(number(&all["sent_again"]), lost);
}

#[test]
fn command_knows_the_flags_keys_and_metrics_of_a_protocol() {
    let folder = folder();
    let server = Server::start(folder.path());
    let arguments = [
        "load",
        &server.url,
        "-c",
        "2",
        "--trace",
        "0",
        "--json",
        "x.json",
    ];
    run(folder.path(), arguments).expect(0);
    let report = Report::read(&folder.path().join("x.json"));
    assert_eq!(report.clients("completed"), 2);
    assert_eq!(number(report.metric("received")), 2 * PACKETS);
    let arguments = [
        "load",
        &server.url,
        "--recovery",
        "false",
        "--json",
        "y.json",
    ];
    run(folder.path(), arguments).expect(0);
    let report = Report::read(&folder.path().join("y.json"));
    assert_eq!(number(report.metric("received")), PACKETS - LEFT_OUT);
    server.stop(folder.path());

    // Launched by the run, which then knows that the server owns the port.
    let port = free_port();
    let (url, program) = (
        format!("proof://127.0.0.1:{port}"),
        env!("CARGO_BIN_EXE_streamgauge"),
    );
    let launched = format!(
        "server: {{command: [{program}, serve, proof, --port, {port}], \
         ready: {{line: listening}}}}\n\
         clients: {{viewers: {{urls: [\"{url}\"], load: {{clients: 2}}}}}}\nduration: 2s\n"
    );
    fs::write(folder.path().join("l.yaml"), launched).expect("the test's folder can be written");
    let finished = run(folder.path(), ["run", "l.yaml", "--no-run-file"]).expect(0);
    assert!(
        finished.stdout.contains("socket_drops"),
        "{}",
        finished.stdout
    );

    let nobody = format!("proof://127.0.0.1:{}", free_port());
    let arguments = ["load", &nobody, "--json", "x.json", "--force"];
    run(folder.path(), arguments).expect(99);
    let report = Report::read(&folder.path().join("x.json"));
    assert_eq!(report.failures("refused"), 1);

    let help = run(folder.path(), ["serve", "proof", "--help"]).expect(0);
    for flag in [
        "--packets <NUMBER>",
        "--lose-every <NUMBER>",
        "[default: 5ms]",
    ] {
        assert!(help.stdout.contains(flag), "{}", help.stdout);
    }
    run(folder.path(), ["serve", "proof", "--packets", "0"]).expect(104);
    let metrics = run(folder.path(), ["metrics", "recovery"]).expect(0);
    assert!(
        metrics.stdout.contains("recovery_delay"),
        "{}",
        metrics.stdout
    );
    for (url, names) in [
        ("proof://somewhere", "the host must be an address"),
        ("proofs://127.0.0.1", "proof://"),
    ] {
        run(folder.path(), ["load", url]).expect(104).names(names);
    }
    let wrong = "clients: {a: {urls: [\"proof://127.0.0.1\"], recover: true, load: {clients: 1}}}";
    fs::write(folder.path().join("s.yaml"), wrong).expect("the test's folder can be written");
    run(folder.path(), ["check", "s.yaml"])
        .expect(104)
        .names("recovery");
}
