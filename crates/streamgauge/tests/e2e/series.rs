//! Series: several runs of one scenario file, and one table.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Process, folder, free_port, number, run, streamgauge, wait_for};

/// Writes a scenario that launches a reference server for each run.
fn scenario(folder: &Path, vary: &str) {
    let port = free_port();
    let program = env!("CARGO_BIN_EXE_streamgauge");
    let text = format!(
        "name: evening\n\
         server:\n  command: [{program}, serve, rtsp, --quiet, --bitrate, 100kbps, --port, {port}]\n  \
         ready: {{port: {port}}}\n\
         clients: {{viewers: {{urls: [\"rtsp://127.0.0.1:{port}/a\"], transport: tcp, load: {{clients: 2}}}}}}\n\
         duration: 5s\nthresholds: [\"viewers.loss < 1%\"]\nsettle: 0s\n{vary}\n"
    );
    fs::write(
        folder.join("s.yaml"),
        text.replace("PORT", &port.to_string()),
    )
    .expect("the test's folder can be written");
}

fn json(path: &Path) -> Value {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn outcomes(report: &Value) -> Vec<&str> {
    let runs = report["runs"].as_array().expect("a list of runs");
    let outcomes = runs.iter().map(|run| run["outcome"].as_str());
    outcomes.map(|outcome| outcome.expect("a word")).collect()
}

#[test]
fn report_repeats_the_table_of_a_series() {
    let folder = folder();
    scenario(
        folder.path(),
        "vary: {clients.viewers.load.clients: [1, 3]}",
    );
    let arguments = ["run", "s.yaml", "--out", "x.series", "--json", "x.json"];
    let finished = run(folder.path(), arguments).expect(0);
    let report = json(&folder.path().join("x.json"));
    assert_eq!(outcomes(&report), ["pass", "pass"]);
    assert_eq!(report["varied"][0], "clients.viewers.load.clients");
    for (at, clients) in [(0, 1), (1, 3)] {
        let row = &report["runs"][at];
        assert_eq!(row["values"][0], clients.to_string());
        assert_eq!(number(&row["figures"]["playing"]), clients);
        assert_eq!(row["figures"]["tester_fit"], true);
        assert!(row["figures"]["server_memory"].is_number(), "{row}");
        // Each file is a run file like any other.
        let file = format!("x.series/{}", row["file"].as_str().expect("a name"));
        let alone = run(folder.path(), ["report", &file]).expect(0);
        let setting = format!("clients.viewers.load.clients: {clients}");
        assert!(alone.stdout.contains(&setting), "{}", alone.stdout);
    }
    assert_eq!(number(&report["capacity"][0]["passed"]), 3);
    assert!(finished.stdout.contains("capacity"), "{}", finished.stdout);
    let again = run(folder.path(), ["report", "x.series"]).expect(0);
    assert_eq!(again.stdout, finished.stdout);
    // With `-q` there is only the verdict of each run.
    let quiet = run(folder.path(), ["report", "x.series", "-q"]).expect(0);
    let lines: Vec<&str> = quiet.stdout.lines().collect();
    let of_run = |at: usize| lines[at].starts_with("PASS") && lines[at].contains("clients: ");
    assert!((0..lines.len()).all(of_run), "{}", quiet.stdout);
    let runs = report["runs"].as_array().map(Vec::len);
    assert_eq!(Some(lines.len()), runs, "{}", quiet.stdout);
    // A series is replaced only with `--force`, like a run file.
    let arguments = ["run", "s.yaml", "-q", "--out", "x.series/"];
    run(folder.path(), arguments).expect(104).names("--force");
    let force = ["--force", "--set", "stop_at=fail"];
    run(folder.path(), arguments.iter().chain(&force)).expect(0);
}

#[test]
fn series_gets_a_name_in_a_folder_unless_it_is_not_kept() {
    let folder = folder();
    scenario(folder.path(), "vary: {clients.viewers.load.clients: [1]}");
    let count = |place: &str| {
        let entries = fs::read_dir(folder.path().join(place)).expect("it is there");
        let paths = entries.map(|entry| entry.expect("it can be read").path());
        let series = paths.filter(|path| path.join("series.json").exists());
        series.count()
    };
    fs::create_dir(folder.path().join("mine")).expect("the test's folder can be written");
    fs::write(folder.path().join("mine/a"), "a").expect("the test's folder can be written");
    run(folder.path(), ["run", "s.yaml", "-q", "--out", "mine"]).expect(0);
    assert_eq!(count("mine"), 1);
    assert!(folder.path().join("mine/a").exists());

    let arguments = ["run", "s.yaml", "--no-run-file", "--json", "x.json"];
    let finished = run(folder.path(), arguments).expect(0);
    assert!(
        finished.stdout.contains("series  not kept"),
        "{}",
        finished.stdout
    );
    assert_eq!(count("."), 0);
    let report = json(&folder.path().join("x.json"));
    assert_eq!(outcomes(&report), ["pass"]);

    for (out, names) in [
        ("mine/a", "mine/a: this is not a folder"),
        ("missing/x.series", "missing: there is no such folder"),
        ("-", "standard output"),
    ] {
        run(folder.path(), ["run", "s.yaml", "--out", out])
            .expect(104)
            .names(names);
    }
}

#[test]
fn failed_run_is_a_row_and_the_series_continues() {
    let folder = folder();
    let program = env!("CARGO_BIN_EXE_streamgauge");
    let server = format!("{program}, serve, rtsp, --quiet, --bitrate, 100kbps, --port, PORT");
    let vary = format!(
        "vary:\n  server.command:\n    - [/nothing/such]\n    - [{server}, --fault, loss=20%]\n    - [{server}]"
    );
    scenario(folder.path(), &vary);
    let arguments = ["run", "s.yaml", "--out", "x.series", "--json", "x.json"];
    let finished = run(folder.path(), arguments).expect(104);
    let report = json(&folder.path().join("x.json"));
    assert_eq!(outcomes(&report), ["not_begun", "fail", "pass"]);
    assert!(report["runs"][0]["figures"].is_null());
    let reason = report["runs"][0]["reasons"][0].as_str().expect("a reason");
    assert!(reason.contains("/nothing/such"), "{reason}");
    assert!(finished.stdout.contains("NOT BEGUN"), "{}", finished.stdout);
    // With `stop_at=fail` the series ends there.
    let arguments = [
        "run",
        "s.yaml",
        "-q",
        "--set",
        "stop_at=fail",
        "--out",
        "y.series",
        "--json",
        "y.json",
    ];
    run(folder.path(), arguments).expect(104);
    let report = json(&folder.path().join("y.json"));
    assert_eq!(outcomes(&report), ["not_begun", "planned", "planned"]);
    // No run has begun, so there is nothing to keep.
    assert!(!folder.path().join("y.series").exists());
}

/// Starts a series of three long runs, and waits until the first one plays.
fn endless(folder: &Path) -> Process {
    scenario(folder, "vary: {clients.viewers.load.clients: [1, 2, 3]}");
    let arguments = [
        "run",
        "s.yaml",
        "--out",
        "x.series",
        "--set",
        "duration=60s",
    ];
    let series = Process::start(streamgauge(arguments), folder);
    wait_for("the first run has begun", Duration::from_secs(60), || {
        let report = run(folder, ["report", "x.series", "-q", "--json", "-"]);
        let report: Value = serde_json::from_str(&report.stdout).ok()?;
        (report["runs"][0]["figures"]["playing"].as_u64()? == 1).then_some(())
    });
    series
}

#[test]
fn ctrl_c_ends_the_current_run_and_the_series() {
    let folder = folder();
    let series = endless(folder.path());
    series.signal("INT");
    let finished = series.finish(Duration::from_secs(60)).expect(105);
    assert!(finished.stdout.contains("stopped"), "{}", finished.stdout);
    run(
        folder.path(),
        ["report", "x.series", "-q", "--json", "x.json"],
    )
    .expect(0);
    let report = json(&folder.path().join("x.json"));
    assert_eq!(outcomes(&report), ["stopped", "planned", "planned"]);
    assert_eq!(report["ended"], true);
}

#[test]
fn kill_of_a_series_loses_no_measured_window() {
    let folder = folder();
    let series = endless(folder.path());
    series.signal("KILL");
    series.finish(Duration::from_secs(60));
    let finished = run(folder.path(), ["report", "x.series", "--json", "x.json"]).expect(0);
    assert!(finished.stdout.contains("cut off"), "{}", finished.stdout);
    let report = json(&folder.path().join("x.json"));
    assert_eq!(outcomes(&report), ["invalid", "planned", "planned"]);
    assert_eq!(report["ended"], false);
    assert_eq!(number(&report["runs"][0]["figures"]["playing"]), 1);
}

#[test]
fn every_combination_is_checked_before_anything_starts() {
    let folder = folder();
    scenario(
        folder.path(),
        "vary:\n  clients.viewers.transport: [tcp]\n  clients.viewers.load.clients: [1, few]",
    );
    for command in ["check", "run"] {
        run(folder.path(), [command, "s.yaml"])
            .expect(104)
            .names("few");
    }
    let left = fs::read_dir(folder.path())
        .expect("it is there")
        .filter(|entry| {
            let path = entry.as_ref().expect("it can be read").path();
            path.extension()
                .is_some_and(|extension| extension == "series")
        });
    assert_eq!(left.count(), 0, "nothing was begun");
    scenario(
        folder.path(),
        "vary: {clients.viewers.load.clients: [1, 2]}",
    );
    let finished = run(folder.path(), ["check", "--offline", "s.yaml"]).expect(0);
    assert!(finished.stdout.contains("2 runs"), "{}", finished.stdout);
    run(
        folder.path(),
        ["run", "s.yaml", "--set", "clients.viewers.load.clients=5"],
    )
    .expect(104)
    .names("vary=");
    let finished = run(folder.path(), ["report", "."]).expect(104);
    finished.names("series.json");
}
