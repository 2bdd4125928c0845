//! Formats of output: with or without colours, and as data.

use serde_json::Value;

use crate::support::{Process, RUN_TIMEOUT, folder, run, streamgauge};

/// Returns `true` if an error is coloured with these arguments and this environment.
fn coloured(arguments: &[&str], environment: &[(&str, &str)]) -> bool {
    let folder = folder();
    let mut command = streamgauge(["report", "missing.run"]);
    command
        .args(arguments)
        .env_remove("NO_COLOR")
        .env_remove("CLICOLOR_FORCE");
    command
        .env("TERM", "xterm")
        .envs(environment.iter().copied());
    let finished = Process::start(command, folder.path())
        .finish(RUN_TIMEOUT)
        .expect(104);
    finished.stderr.contains('\u{1b}')
}

#[test]
fn colours_follow_options_and_environment() {
    let (no, force) = (("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1"));
    // A file has no colours.
    assert!(!coloured(&[], &[]));
    assert!(coloured(&["--color", "always"], &[]));
    assert!(coloured(&["--color=always"], &[no]));
    assert!(coloured(&[], &[force]));
    assert!(!coloured(&[], &[no, force]));
    assert!(!coloured(&["--color", "never"], &[force]));
    assert!(!coloured(&["--no-color"], &[force]));
    let folder = folder();
    run(folder.path(), ["metrics", "--color", "sometimes"])
        .expect(104)
        .names("always");
}

fn metrics(arguments: &[&str]) -> Value {
    let folder = folder();
    let finished = run(folder.path(), arguments).expect(0);
    serde_json::from_str(&finished.stdout).expect("it is JSON")
}

#[test]
fn metrics_are_available_as_json() {
    let all = metrics(&["metrics", "--json"]);
    assert_eq!(all["metrics_version"], 1);
    let subjects = all["subjects"].as_array().expect("a list");
    let named = |metric: &Value| {
        assert!(metric["name"].is_string() && metric["unit"].is_string());
        let definition = metric["definition"].as_str().expect("a text");
        assert!(!definition.is_empty(), "{metric}");
    };
    for subject in subjects {
        subject["metrics"]
            .as_array()
            .expect("a list")
            .iter()
            .for_each(named);
    }
    let rtsp = subjects
        .iter()
        .find(|subject| subject["protocol"] == "rtsp");
    let rtsp = rtsp.expect("it is a protocol");
    assert_eq!(rtsp["subject"], "population");
    let found = |name: &str| {
        let metrics = rtsp["metrics"].as_array().expect("a list");
        metrics
            .iter()
            .find(|metric| metric["name"] == name)
            .expect("it is measured")
    };
    assert_eq!(found("received")["kind"], "counter");
    assert_eq!(found("loss")["kind"], "derived");
    assert_eq!(found("loss")["unit"], "ratio");
    assert_eq!(found("active")["kind"], "level");
    let delay = found("startup_delay");
    assert_eq!(delay["kind"], "distribution");
    assert_eq!(delay["unit"], "seconds");
    assert_eq!(
        delay["statistics"],
        serde_json::json!(["mean", "min", "max", "percentiles", "count"])
    );
    for name in ["server", "tester"] {
        let alone = subjects.iter().filter(|subject| subject["subject"] == name);
        assert_eq!(alone.count(), 1, "{name}");
    }

    let some = metrics(&["metrics", "jitter", "--json"]);
    let text = some.to_string();
    assert!(
        text.contains("jitter") && !text.contains("startup_delay"),
        "{text}"
    );
    let folder = folder();
    run(folder.path(), ["metrics", "nonsense", "--json"])
        .expect(104)
        .names("no metric has `nonsense`");
}

#[test]
fn metrics_are_wrapped_between_words_and_name_their_source() {
    let folder = folder();
    let listed = run(folder.path(), ["metrics"]).expect(0).stdout;
    assert!(listed.contains("\n      Source: RFC 3550, 6.4.1 and A.8\n"));
    let wide = listed.lines().find(|line| line.chars().count() > 80);
    assert_eq!(wide, None);
}

/// Parses a table without quoted cells: rows by the names of the columns.
fn table(text: &str) -> Vec<std::collections::BTreeMap<&str, &str>> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().expect("names").split(',').collect();
    lines
        .map(|line| names.iter().copied().zip(line.split(',')).collect())
        .collect()
}

#[test]
fn other_report_formats_agree_with_the_json_report() {
    let folder = folder();
    let arguments = ["demo", "-c", "3", "-d", "5s", "--json", "r.json"];
    let reports = ["--junit", "j.xml", "--markdown", "m.md", "--csv", "tables"];
    let thresholds = [
        "--threshold",
        "viewers.jitter.max < 1ns",
        "--threshold",
        "viewers.loss < 50%",
    ];
    let all = arguments.into_iter().chain(reports).chain(thresholds);
    run(folder.path(), all).expect(99);
    let read = |name: &str| {
        let text = std::fs::read_to_string(folder.path().join(name));
        text.expect("it was written")
    };
    let json: Value = serde_json::from_str(&read("r.json")).expect("it is JSON");
    let junit = read("j.xml");
    assert!(junit.contains("failures=\"1\" errors=\"0\""), "{junit}");
    assert!(
        junit.contains("<testcase name=\"viewers.loss &lt; 50%\" classname=\"demo\" file=\""),
        "{junit}"
    );
    let markdown = read("m.md");
    assert!(markdown.contains("### FAIL: demo"), "{markdown}");
    assert!(
        markdown.contains("| **FAILED** | viewers.jitter.max &lt; 1ns |"),
        "{markdown}"
    );
    let (windows, clients, streams) = (
        read("tables/windows.csv"),
        read("tables/clients.csv"),
        read("tables/streams.csv"),
    );
    let sum = |rows: &[std::collections::BTreeMap<&str, &str>], column: &str, name: &str| -> f64 {
        let rows = rows.iter().filter(|row| row[column] == name);
        rows.filter(|row| {
            row.get("subject")
                .is_none_or(|&subject| subject == "viewers")
        })
        .map(|row| row["value"].parse::<f64>().expect("a number"))
        .sum()
    };
    let received = json["populations"]["viewers"]["metrics"]["received"].as_f64();
    let received = received.expect("it was measured");
    assert!(received > 0.0);
    assert_eq!(sum(&table(&windows), "metric", "received"), received);
    assert_eq!(sum(&table(&streams), "name", "received"), received);
    assert_eq!(table(&clients).len(), 3);
    assert!(
        table(&clients)
            .iter()
            .all(|row| row["outcome"] == "stopped")
    );

    // Reports can be made again from the run file. A file that is not such a report is not
    // replaced.
    let runs = folder.path().join("streamgauge-runs");
    let file = std::fs::read_dir(runs).expect("it is there");
    let file = file.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let file = file.into_iter().find(|name| name.ends_with(".run"));
    let file = file.expect("the run is kept");
    run(folder.path(), ["report", &file, "--junit", "again.xml"]).expect(0);
    assert_eq!(read("again.xml"), junit);
    let onto_other = ["report", &file, "--junit", "r.json"];
    let refused = run(folder.path(), onto_other).expect(104);
    refused.names("r.json is not a report of streamgauge, so it is not replaced: name another file with `--junit`, or use `--force`");
    assert_eq!(read("r.json").chars().next(), Some('{'));
    run(folder.path(), onto_other.iter().chain(&["--force"])).expect(0);
    assert_eq!(read("r.json"), junit);
    std::fs::write(folder.path().join("tables/clients.csv"), "mine").expect("there is room");
    let refused = run(folder.path(), ["report", &file, "--csv", "tables"]).expect(104);
    refused.names("clients.csv is not a table of streamgauge");
}

#[test]
fn completions_and_manual_pages_name_every_command() {
    let folder = folder();
    for shell in ["bash", "zsh", "fish"] {
        let finished = run(folder.path(), ["completions", shell]).expect(0);
        for command in ["calibrate", "report", "junit"] {
            assert!(finished.stdout.contains(command), "{shell}: {command}");
        }
    }
    run(folder.path(), ["man", "--folder", "man"]).expect(0);
    let page = std::fs::read_to_string(folder.path().join("man/streamgauge-run.1"));
    assert!(page.expect("it was written").contains("\\-\\-junit"));
}
