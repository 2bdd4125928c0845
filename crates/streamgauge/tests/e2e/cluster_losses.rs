//! Runs over several runners that lose a runner or their coordinator.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cluster::{
    FAULTY, PATIENCE, nats, runner, scenario, seconds_so_far, summaries, wait_for_clients,
};
use crate::support::{
    Process, Report, Server, established, folder, free_port, have, run, streamgauge, wait_for,
};
use crate::{dashboard, scrape};

#[test]
fn runner_that_is_ended_makes_the_run_invalid() {
    if !have("nats-server") {
        return;
    }
    let folder = folder();
    let (_nats, at) = nats(folder.path());
    let server = Server::start(folder.path(), &["--length", "600s"]);
    let one = runner(folder.path(), &at, "one");
    scenario(folder.path(), &server.url(), 3, "duration: 300s\n");
    let mut command = streamgauge(["run", "many.yaml", "--runners", "1", "--at", &at]);
    command.args(["--json", "many.json", "-o", "many.run"]);
    let coordinator = Process::start(command, folder.path());
    wait_for_clients(folder.path(), &server, 3);
    one.signal("INT");
    coordinator.finish(PATIENCE).expect(110);
    one.finish(PATIENCE).expect(0);
    let report = Report::read(&folder.path().join("many.json"));
    let reasons = report.0["verdict"]["reasons"].to_string();
    assert!(
        reasons.contains("runner one: it stopped its clients by itself"),
        "{reasons}"
    );
    assert_eq!(
        (report.clients("stopped"), report.clients("failed")),
        (3, 0)
    );
    // The name is free at once.
    let _again = runner(folder.path(), &at, "one");
}

/// Kills one of two runners during a run. Returns the report.
fn run_that_loses_a_runner(more: &str, code: i32) -> Option<Report> {
    if !have("nats-server") {
        return None;
    }
    let folder = folder();
    let (_nats, at) = nats(folder.path());
    let server = Server::start(folder.path(), &["--length", "600s"]);
    let _one = runner(folder.path(), &at, "one");
    let two = runner(folder.path(), &at, "two");
    let more = format!("duration: 300s\n{more}");
    scenario(folder.path(), &server.url(), 6, &more);
    let (metrics, page) = (free_port(), free_port());
    let mut command = streamgauge(["run", "many.yaml", "--runners", "2", "--at", &at]);
    command.args(["--json", "many.json", "-o", "many.run"]);
    command.args(["--metrics", &metrics.to_string()]);
    command.arg(format!("--dashboard={page}"));
    let coordinator = Process::start(command, folder.path());
    wait_for("whole seconds with all clients are there", PATIENCE, || {
        let there = seconds_so_far(folder.path()) >= 4 && established(server.port) >= 6;
        there.then_some(())
    });
    wait_for(
        "Prometheus has the clients of each runner",
        PATIENCE,
        || {
            let text = scrape::get(metrics, "/metrics")?;
            let has = |sample: &str| text.lines().any(|line| line == sample);
            let each = ["one", "two"].iter().all(|name| {
                has(&format!(
                    "streamgauge_runner_playing{{runner=\"{name}\"}} 3"
                )) && has(&format!("streamgauge_runner_lost{{runner=\"{name}\"}} 0"))
            });
            each.then_some(())
        },
    );
    let host = format!("127.0.0.1:{page}");
    let events = dashboard::ask(page, "GET", "/events", &host).expect("it answers");
    let shown = dashboard::received_runs(events)
        .map(|run| run["tester"]["runners_now"].clone())
        .find(|runners| runners[0]["playing"] == "3" && runners[1]["playing"] == "3");
    let shown = shown.expect("the dashboard has the clients of each runner");
    assert_eq!(
        (&shown[0]["name"], &shown[1]["name"]),
        (&"one".into(), &"two".into())
    );
    two.signal("KILL");
    let killed = Instant::now();
    let ended = coordinator.finish(PATIENCE).expect(code);
    assert!(
        killed.elapsed() < Duration::from_secs(30),
        "{}",
        ended.stderr
    );
    let report = Report::read(&folder.path().join("many.json"));
    let runners = summaries(&report);
    assert_eq!(runners[0]["lost"], Value::Null);
    assert_ne!(runners[1]["lost"], Value::Null);
    assert!(
        ended.stdout.contains("runner two of 2 was lost"),
        "{}",
        ended.stdout
    );
    Some(report)
}

#[test]
fn killed_runner_makes_the_run_invalid() {
    run_that_loses_a_runner("", 110);
}

#[test]
fn run_that_may_lose_a_runner_is_judged_by_the_seconds_with_all() {
    let Some(report) = run_that_loses_a_runner("tester: {may_lose: 1}\n", 0) else {
        return;
    };
    assert_eq!(report.0["verdict"]["result"], "pass");
    let judged = report.0["run"]["duration"].as_f64().expect("a number");
    // The loss is noticed after ten seconds, in which the clients of one runner were missing.
    assert!((4.0..300.0).contains(&judged), "{judged}");
    let windows = report.0["windows"].as_array().expect("they are listed");
    let playing = |window: &Value| {
        let begins = window["start"].as_f64().expect("a number");
        let active = window["populations"]["viewers"]["metrics"]["active"].as_f64();
        (begins, active)
    };
    for (begins, active) in windows.iter().map(playing) {
        assert!(begins < judged, "{begins} s does not count, and is kept");
        if (2.0..judged).contains(&begins) {
            assert_eq!(
                active,
                Some(6.0),
                "at {begins} s of {judged} s: {windows:?}"
            );
        }
    }
}

#[test]
fn runner_stops_its_clients_if_the_coordinator_is_killed() {
    if !have("nats-server") {
        return;
    }
    let folder = folder();
    let (_nats, at) = nats(folder.path());
    let server = Server::start(folder.path(), &["--length", "600s"]);
    let one = runner(folder.path(), &at, "one");
    scenario(folder.path(), &server.url(), 4, "duration: 300s\n");
    let mut command = streamgauge(["run", "many.yaml", "--runners", "1", "--at", &at]);
    command.args(["-o", "many.run"]);
    let coordinator = Process::start(command, folder.path());
    wait_for_clients(folder.path(), &server, 4);
    coordinator.signal("KILL");
    wait_for("the clients have left", PATIENCE, || {
        (established(server.port) == 0).then_some(())
    });
    // The run file of the runner is complete.
    wait_for("the runner has left the run", PATIENCE, || {
        one.stderr_text().contains("has ended").then_some(())
    });
    let own = folder.path().join("streamgauge-runs");
    let own = fs::read_dir(own).expect("it can be read");
    let mut own = own.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let own = own.find(|name| name.ends_with("-one.sgrun"));
    let shown = run(folder.path(), ["report", &own.expect("it has a file")]);
    assert!(
        shown.stdout.contains("viewers"),
        "{}{}",
        shown.stdout,
        shown.stderr
    );
}

#[test]
fn run_goes_on_after_its_coordinator_was_killed() {
    if !have("nats-server") {
        return;
    }
    let folder = folder();
    let (_nats, at) = nats(folder.path());
    let longer = FAULTY.map(|word| if word == "3s" { "20s" } else { word });
    let server = Server::start(folder.path(), &longer);
    let _runners = ["one", "two"].map(|name| runner(folder.path(), &at, name));
    scenario(folder.path(), &server.url(), 6, "");
    let words = ["run", "many.yaml", "--runners", "2", "--at", &at];
    let mut command = streamgauge(words);
    command.args(["-o", "many.run"]);
    let coordinator = Process::start(command, folder.path());
    wait_for("whole seconds with all clients are there", PATIENCE, || {
        let there = seconds_so_far(folder.path()) >= 3 && established(server.port) >= 6;
        there.then_some(())
    });
    let mut command = streamgauge(words);
    command.args(["--resume", "many.run", "--json", "many.json"]);
    let early = Process::start(command, folder.path());
    let told = early.finish(PATIENCE).expect(104).stderr;
    assert!(told.contains("--resume many.run"), "{told}");
    coordinator.signal("KILL");
    coordinator.finish(PATIENCE);
    let mut command = streamgauge(words);
    command.args(["--resume", "many.run", "--json", "many.json"]);
    let ran = Process::start(command, folder.path()).finish(PATIENCE);
    // Loss is above the implied threshold.
    assert!(matches!(ran.status.code(), Some(0 | 99)), "{}", ran.stderr);
    let (_, sent) = server.stop();
    let report = Report::read(&folder.path().join("many.json"));
    report.tester_was_fit();
    assert_eq!(
        (report.clients("started"), report.clients("completed")),
        (6, 6)
    );
    assert!(sent.lost > 0 && sent.duplicated > 0, "{sent:?}");
    assert_eq!(report.counts(), sent);
    for runner in report.0["runners"].as_array().expect("they are listed") {
        let is_unknown = |key: &str| runner[key].is_null();
        assert_eq!(
            is_unknown("clock_error"),
            is_unknown("clock_offset"),
            "{runner}"
        );
    }
    let starts = report.0["windows"].as_array().expect("they are listed");
    let starts: Vec<f64> = starts
        .iter()
        .filter_map(|one| one["start"].as_f64())
        .collect();
    let seconds: Vec<f64> = (0..starts.len()).map(|second| second as f64).collect();
    assert_eq!(starts, seconds, "no second is missing or twice");
    let mut command = streamgauge(words);
    command.args(["--resume", "many.run"]);
    let again = Process::start(command, folder.path());
    let told = again.finish(PATIENCE).expect(104).stderr;
    assert!(told.contains("the run has ended"), "{told}");
}
