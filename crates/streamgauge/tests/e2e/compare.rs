//! Comparisons of a reference server with and without faults.

use std::fs;
use std::path::Path;

use crate::support::{folder, free_port, read_json, run};

/// Writes a scenario that launches a reference server for each run.
fn scenario(folder: &Path, file: &str, fault: &str, more: &str) {
    let port = free_port();
    let program = env!("CARGO_BIN_EXE_streamgauge");
    let server = format!("{program}, serve, rtsp, --quiet, --bitrate, 500kbps, --port, {port}");
    let text = format!(
        "name: two\n\
         server:\n  command: [{server}{fault}]\n  ready: {{port: {port}}}\n\
         clients: {{viewers: {{urls: [\"rtsp://127.0.0.1:{port}/a\"], load: {{clients: 4}}}}}}\n\
         duration: 3s\nthresholds: [\"viewers.loss < 50%\"]\n{}",
        more.replace("SERVER", &server)
    );
    fs::write(folder.join(file), text).expect("the test's folder can be written");
}

const LOSSY: &str = ", --fault, loss=10%";

#[test]
fn server_that_loses_packets_is_worse_than_one_that_does_not() {
    let folder = folder();
    scenario(
        folder.path(),
        "s.yaml",
        "",
        "settle: 0s\nrepeat: 3\nseed: 2\ncompare:\n  good: {duration: 3s}\n  \
         lossy: {server.command: [SERVER, --fault, loss=10%]}\n",
    );
    let arguments = [
        "run", "s.yaml", "--out", "x.series", "--json", "x.json", "--junit", "x.xml", "--csv", "t",
    ];
    let finished = run(folder.path(), arguments).expect(99);
    assert!(
        finished
            .stdout
            .contains("lossy against good: worse in loss"),
        "{}",
        finished.stdout
    );
    let report = read_json(&folder.path().join("x.json"));
    let found = &report["comparisons"][0];
    assert_eq!(found["result"], "worse");
    let order: Vec<&str> = report["runs"]
        .as_array()
        .expect("a list of runs")
        .iter()
        .map(|row| row["values"][1].as_str().expect("the variant"))
        .collect();
    assert_eq!(order, ["good", "lossy", "lossy", "good", "good", "lossy"]);
    let loss = &found["metrics"][0];
    assert_eq!(loss["name"], "viewers.loss");
    let points = loss["effect"].as_f64().expect("a difference");
    assert!((0.05..0.15).contains(&points), "{loss}");
    let table = fs::read_to_string(folder.path().join("t/runs.csv")).expect("it was written");
    assert_eq!(table.lines().count(), 7, "{table}");
    assert!(table.starts_with("time,run,scenario,version,result,repeat,compare,viewers.loss,"));
    // The series compares itself; a single run of it can be compared with another.
    let again = run(folder.path(), ["compare", "x.series", "x.series"]).expect(104);
    assert!(again.stderr.contains("two variants"), "{}", again.stderr);
    let runs = ["compare", "x.series/1-1-good.run", "x.series/2-1-lossy.run"];
    let single = run(folder.path(), runs).expect(110);
    assert!(single.stdout.contains("too few runs"), "{}", single.stdout);
}

#[test]
fn run_is_compared_with_its_baseline() {
    let folder = folder();
    scenario(folder.path(), "good.yaml", "", "settle: 0s\nrepeat: 3\n");
    scenario(
        folder.path(),
        "lossy.yaml",
        LOSSY,
        "settle: 0s\nrepeat: 3\n",
    );
    scenario(folder.path(), "short.yaml", "", "warm_up: 1s\n");
    run(folder.path(), ["run", "good.yaml", "-o", "good.series"]).expect(0);
    let arguments = [
        "run",
        "lossy.yaml",
        "-o",
        "lossy.series",
        "--baseline",
        "good.series",
        "--junit",
        "x.xml",
        "--markdown",
        "x.md",
    ];
    let finished = run(folder.path(), arguments).expect(99);
    assert!(
        finished
            .stdout
            .contains("lossy against good: worse in loss"),
        "{}",
        finished.stdout
    );
    let junit = fs::read_to_string(folder.path().join("x.xml")).expect("it was written");
    assert!(junit.contains("<failure message=\"worse: 0 % →"), "{junit}");
    let markdown = fs::read_to_string(folder.path().join("x.md")).expect("it was written");
    assert!(markdown.contains("worse in loss"), "{markdown}");
    // A series is not worse than itself. Another scenario is refused.
    run(folder.path(), ["compare", "good.series", "good.series"]).expect(0);
    let other = [
        "run",
        "short.yaml",
        "-o",
        "short.run",
        "--baseline",
        "good.series",
    ];
    let refused = run(folder.path(), other).expect(104);
    assert!(refused.stderr.contains("warm_up"), "{}", refused.stderr);
    // The refused run is kept.
    run(folder.path(), ["report", "short.run"]).expect(0);
    let missing = ["run", "short.yaml", "--baseline", "missing.run"];
    run(folder.path(), missing).expect(104);
    let itself = [
        "run",
        "good.yaml",
        "-o",
        "good.series",
        "--force",
        "--baseline",
        "good.series",
    ];
    let refused = run(folder.path(), itself).expect(104);
    assert!(
        refused.stderr.contains("replace its baseline"),
        "{}",
        refused.stderr
    );
    run(folder.path(), ["report", "good.series"]).expect(0);
    let search = [
        "capacity",
        "rtsp://127.0.0.1:9/a",
        "--baseline",
        "good.series",
    ];
    let refused = run(folder.path(), search).expect(104);
    assert!(
        refused.stderr.contains("the baseline is none"),
        "{}",
        refused.stderr
    );
}
