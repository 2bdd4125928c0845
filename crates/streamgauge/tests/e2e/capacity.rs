//! Capacity searches of a server whose capacity is known.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{
    Process, RUN_TIMEOUT, folder, free_port, number, read_json, run, streamgauge, wait_for,
};

/// Writes a scenario that launches a reference server for each trial. It serves seven clients.
fn scenario(folder: &Path, capacity: &str) {
    let port = free_port();
    let program = env!("CARGO_BIN_EXE_streamgauge");
    let text = format!(
        "name: seven\n\
         server:\n  command: [{program}, serve, rtsp, --quiet, --bitrate, 100kbps, --max-sessions, '7', --port, {port}]\n  \
         ready: {{port: {port}}}\n\
         clients: {{viewers: {{urls: [\"rtsp://127.0.0.1:{port}/a\"], transport: tcp, load: {{clients: 2}}}}}}\n\
         warm_up: 1s\nthresholds: [\"viewers.loss < 1%\", \"viewers.startup_delay.p95 < 20s\"]\nsettle: 0s\ncapacity: {{{capacity}}}\n"
    );
    fs::write(folder.join("s.yaml"), text).expect("the test's folder can be written");
}

/// Returns the loads of the trials, in order.
fn loads(search: &Value) -> Vec<u64> {
    let trials = search["trials"].as_array().expect("a list of trials");
    let mut loads: Vec<u64> = trials.iter().map(|trial| load(&trial["load"])).collect();
    // A trial that the machine spoiled is made again.
    loads.dedup();
    loads
}

fn load(load: &Value) -> u64 {
    load["value"].as_f64().expect("a load") as u64
}

#[test]
fn continuing_search_adds_clients_to_a_server_that_is_not_restarted() {
    let folder = folder();
    scenario(folder.path(), "quick: true, hold: 3s, continue: true");
    let arguments = [
        "run", "s.yaml", "--out", "x.series", "--json", "x.json", "--html", "x.html",
    ];
    let finished = run(folder.path(), arguments).expect(0);
    assert!(finished.stdout.contains("7 clients"), "{}", finished.stdout);
    let report = read_json(&folder.path().join("x.json"));
    let search = &report["searches"][0];
    assert_eq!(load(&search["capacity"]), 7);
    assert_eq!(search["served"], 7);
    // After a failure the largest load that held is tried again.
    assert_eq!(loads(search), [2, 4, 8, 4, 7]);
    let index = read_json(&folder.path().join("x.series/series.json"));
    let runs = index["runs"].as_array().expect("a list of runs");
    let fresh: Vec<bool> = runs
        .iter()
        .map(|run| run["trial"]["fresh"].as_bool().expect("a trial"))
        .collect();
    // Only a trial that the machine spoiled makes the server start again.
    let spoiled = runs.iter().map(|run| run["outcome"] == "invalid");
    let expected: Vec<bool> = std::iter::once(true).chain(spoiled).collect();
    assert_eq!(fresh, expected[..fresh.len()], "{}", finished.stderr);
    // Each trial is a run of its own: its report has its own clients and its own time.
    let last = runs.last().expect("a trial")["file"]
        .as_str()
        .expect("a file");
    let file = format!("x.series/{last}");
    run(folder.path(), ["report", &file, "--json", "t.json"]).expect(0);
    let trial = read_json(&folder.path().join("t.json"));
    assert_eq!(trial["verdict"]["result"], "pass");
    let viewers = &trial["populations"]["viewers"];
    // Three more than the four of the trial before.
    let started = if fresh[fresh.len() - 1] { 7 } else { 3 };
    assert_eq!(number(&viewers["clients"]["started"]), started);
    assert_eq!(number(&viewers["clients"]["active_max"]), 7);
    let warm_up = trial["run"]["warm_up"].as_f64().expect("a time");
    let duration = trial["run"]["duration"].as_f64().expect("a time");
    assert!(
        (duration - warm_up - 3.0).abs() < 0.5,
        "{duration} {warm_up}"
    );
}

#[test]
fn quick_search_finds_how_many_clients_a_server_takes() {
    let folder = folder();
    scenario(folder.path(), "quick: true, hold: 3s");
    let arguments = [
        "run", "s.yaml", "--out", "x.series", "--json", "x.json", "--html", "x.html", "--junit",
        "x.xml",
    ];
    let finished = run(folder.path(), arguments).expect(0);
    assert!(finished.stdout.contains("7 clients"), "{}", finished.stdout);
    assert!(
        finished.stderr.contains("failed: 1 of 8 clients failed"),
        "{}",
        finished.stderr
    );
    let report = read_json(&folder.path().join("x.json"));
    let search = &report["searches"][0];
    assert_eq!(load(&search["capacity"]), 7);
    assert_eq!(search["state"], "found");
    assert_eq!(search["low"], Value::Null);
    // Seven of eight clients are served, so that is tried next.
    assert_eq!(loads(search), [2, 4, 8, 7]);
    assert_eq!(search["broke"][0]["threshold"], "viewers.failed == 0");
    assert_eq!(number(&search["served"]), 7);
    assert_eq!(report["capacity"].as_array().map(Vec::len), Some(0));
    let startup = &report["runs"][0]["figures"]["startup_delay_p50"];
    assert!(startup.is_number(), "starts in the ramp count: {startup}");
    let junit = fs::read_to_string(folder.path().join("x.xml")).expect("it was written");
    assert!(junit.contains("capacity: 7 clients"), "{junit}");
    assert!(
        !junit.contains("<failure"),
        "failed trials are part of a search: {junit}"
    );
    // The report can be made again.
    let again = run(folder.path(), ["report", "x.series", "--json", "y.json"]).expect(0);
    assert!(again.stdout.contains("7 clients"), "{}", again.stdout);
    let again = read_json(&folder.path().join("y.json"));
    assert_eq!(again["searches"], report["searches"]);
}

#[test]
fn smallest_load_that_fails_and_largest_that_holds_end_a_search() {
    let folder = folder();
    scenario(folder.path(), "quick: true, hold: 2s");
    let with = |set: &[&str]| {
        let mut command = streamgauge(["run", "s.yaml", "--no-run-file", "-q"]);
        for set in set {
            command.args(["--set", set]);
        }
        Process::start(command, folder.path()).finish(RUN_TIMEOUT)
    };
    let finished = with(&["capacity.from=9", "capacity.min=9"]).expect(99);
    assert!(
        finished.stdout.contains("below 9 clients"),
        "{}",
        finished.stdout
    );
    let finished = with(&["capacity.from=3", "capacity.max=4"]).expect(0);
    assert!(
        finished.stdout.contains("at least 4 clients"),
        "{}",
        finished.stdout
    );
    // A tester that is never fit claims nothing.
    let finished = with(&["tester.health.worker_cpu=0%", "tester.health.windows=0%"]);
    let finished = finished.expect(110);
    assert!(
        finished.stdout.contains("unknown: the tester ends here"),
        "{}",
        finished.stdout
    );
}

#[test]
fn killed_search_goes_on_after_its_trials() {
    let folder = folder();
    scenario(folder.path(), "quick: true, hold: 3s");
    let command = streamgauge(["run", "s.yaml", "--out", "x.series"]);
    let process = Process::start(command, folder.path());
    let index = folder.path().join("x.series/series.json");
    let trials = || -> Option<Vec<Value>> {
        let index: Value = serde_json::from_slice(&fs::read(&index).ok()?).ok()?;
        let mut runs = index["runs"].as_array()?.clone();
        runs.retain(|run| run["trial"].is_object());
        Some(runs)
    };
    let before = wait_for("two trials", RUN_TIMEOUT, || {
        trials().filter(|trials| trials.len() >= 2)
    });
    process.signal("KILL");
    process.finish(RUN_TIMEOUT);
    let arguments = ["run", "s.yaml", "--resume", "x.series", "--json", "x.json"];
    run(folder.path(), arguments).expect(0);
    // Each trial has its own duration to the nanosecond.
    let after = trials().expect("the search has ended");
    assert_eq!(after[..before.len()], before);
    let report = read_json(&folder.path().join("x.json"));
    assert_eq!(loads(&report["searches"][0]), [2, 4, 8, 7]);
    assert_eq!(load(&report["searches"][0]["capacity"]), 7);
    let refused = run(
        folder.path(),
        [
            "run",
            "s.yaml",
            "--set",
            "capacity=",
            "--set",
            "settle=",
            "--set",
            "duration=5s",
            "--resume",
            "x.series",
        ],
    );
    let refused = refused.expect(104);
    assert!(refused.stderr.contains("--resume"), "{}", refused.stderr);
}
