//! A run over two runners whose clocks differ.

use std::fs;
use std::io::Write;
use std::process::Command;

use crate::cluster::{PATIENCE, nats, runner};
use crate::support::{Process, Report, Server, folder, have, number, streamgauge, wait_for};

/// Arguments of unshare(1) for a command in a time namespace in which the monotonic clock is 100 s
/// ahead.
const AHEAD: [&str; 5] = ["--time", "--monotonic", "100", "--fork", "--kill-child"];

fn time_namespace_is_permitted() -> bool {
    let status = Command::new("unshare").args(AHEAD).arg("true").status();
    let is_permitted = status.is_ok_and(|status| status.success());
    if !is_permitted {
        let _ = writeln!(
            std::io::stderr(),
            "left out: `unshare --time` is not permitted"
        );
    }
    is_permitted
}

#[test]
fn delay_between_runners_is_free_of_the_offset_of_their_clocks() {
    if !have("nats-server") || !time_namespace_is_permitted() {
        return;
    }
    let folder = folder();
    let (_nats, at) = nats(folder.path());
    let server = Server::start(folder.path(), &[]);
    let _here = runner(folder.path(), &at, "here");
    let plain = streamgauge(["runner", "--at", &at, "--name", "ahead"]);
    let mut command = Command::new("unshare");
    command
        .args(AHEAD)
        .arg(plain.get_program())
        .args(plain.get_args());
    let mut ahead = Process::start(command, folder.path());
    wait_for("the runner waits for runs", PATIENCE, || {
        assert!(ahead.runs(), "it ended: {}", ahead.stderr_text());
        let text = ahead.stderr_text();
        text.contains("waits for runs").then_some(())
    });
    let url = format!("rtsp://127.0.0.1:{}/published", server.port);
    // Half of the viewers are not on the runner of the publisher, whichever runner that is.
    let text = format!(
        "duration: 5s\nclients:\n  publishers: {{urls: ['{url}'], publish: {{}}, load: {{clients: 1}}}}\n  \
         viewers: {{urls: ['{url}'], load: {{clients: 4}}}}\n\
         thresholds: ['viewers.frame_delay.p50 < 50s']\n"
    );
    fs::write(folder.path().join("many.yaml"), text).expect("the test's folder can be written");
    let mut command = streamgauge(["run", "many.yaml", "--runners", "2", "--at", &at]);
    command.args([
        "--json",
        "many.json",
        "-o",
        "many.run",
        "--markdown",
        "many.md",
    ]);
    let ended = Process::start(command, folder.path()).finish(PATIENCE);
    let report = Report::read(&folder.path().join("many.json"));
    let runners = report.0["runners"].as_array().expect("a list");
    assert_eq!(runners.len(), 2);
    for runner in runners {
        let known = |key: &str| runner[key].as_f64().expect("it is known");
        let expected = match runner["name"].as_str() {
            Some("ahead") => 100.0,
            _ => 0.0,
        };
        let off = (known("clock_offset") - expected).abs();
        assert!(off <= known("clock_uncertainty") + 1e-6, "{runner}");
        assert!(known("clock_error") < 1.0, "{runner}");
        assert!(known("began_late") < 5.0, "{runner}");
        assert!(number(&runner["clients_max"]) >= 2, "{runner}");
    }
    let metrics = &report.0["populations"]["viewers"]["metrics"];
    let delay = &metrics["frame_delay"];
    let frames = number(&delay["count"]);
    assert!(
        frames > 100 && number(&metrics["time_codes_ahead"]) < frames / 2,
        "{metrics}"
    );
    assert!(
        delay["max"].as_f64().is_some_and(|max| max < 20.0),
        "{delay}"
    );
    // Below three errors it is marked, and then the threshold is undecided.
    let error = delay["clock_error"]["seconds"]
        .as_f64()
        .expect("it is known");
    for statistic in ["mean", "p50", "p95", "p99", "max"] {
        let is_short = delay[statistic].as_f64().expect("there are frames") < 3.0 * error;
        let is_marked = &delay["clock_error"]["uncertain"][statistic];
        assert_eq!(is_marked.as_bool(), Some(is_short), "{statistic} {delay}");
    }
    let is_open = delay["clock_error"]["uncertain"]["p50"] == true;
    let threshold = &report.0["thresholds"][0];
    assert_eq!(threshold["undecided"], is_open, "{threshold}");
    assert_eq!(threshold["passed"], !is_open, "{threshold}");
    let ended = ended.expect(if is_open { 110 } else { 0 });
    let note = "clock error between two runners";
    let markdown = fs::read_to_string(folder.path().join("many.md")).expect("it was written");
    let is_noted = markdown.contains(note);
    assert_eq!(
        is_noted,
        delay["clock_error"]["uncertain"]
            .to_string()
            .contains("true")
    );
    assert_eq!(
        ended.stdout.contains("~ too short"),
        is_noted,
        "{}",
        ended.stdout
    );
}
